#!/bin/sh
# One page of what came out: after how many iterations, the score, and what the greedy method found.
{
    echo "iterations: $1"
    echo "device:     $(cat score.json)"
    echo "greedy:     $(cat baseline.json)"
} > "$2"
cat "$2"
