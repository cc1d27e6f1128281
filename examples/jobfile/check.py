"""Count the sensors that were chosen, and the pairs among them that interfere."""

import json
import sys

edges_file, sample_file, score_file = sys.argv[1:]
with open(edges_file) as file:
    edges = [line.strip().split(",") for line in file if line.strip()]
with open(sample_file) as file:
    sample = json.load(file)["sample"]
score = {"chosen": sum(sample.values()), "conflicts": sum(sample[u] and sample[v] for u, v in edges)}
with open(score_file, "w") as file:
    json.dump(score, file)
