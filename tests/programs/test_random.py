"""Each job has random numbers of its own, which depend on its seed alone."""

from __future__ import annotations

import random

import numpy
import pytest

import qloom
from qloom import task


@task(expected_s=1.0)
def disturb(x):
    random.seed(1)
    numpy.random.seed(1)
    return x


def draws(job):
    first = (random.random(), float(numpy.random.rand()), float(job.random.random()))
    job.classical(disturb(1))
    return (*first, random.random(), float(numpy.random.rand()), float(job.random.random()))


async def drawn_from_generator(job):
    return [float(number) for number in job.random.random(3)]


def expected(seed):
    plain, legacy, own = random.Random(seed), numpy.random.RandomState(seed), numpy.random.default_rng(seed)
    return tuple(float(draw()) for _ in range(2) for draw in (plain.random, legacy.rand, own.random))


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("world", ["virtual", "local"])
def test_numbers_of_a_synchronous_program_are_those_of_its_seed(world, jobs):
    results = qloom.run(draws, world=world, jobs=jobs, seed=5, in_memory=True).results
    assert [tuple(result) for result in results] == [expected(5 + number) for number in range(jobs)]


@pytest.mark.parametrize("world", ["virtual", "local"])
def test_whoever_runs_a_program_keeps_its_own_numbers(world):
    random.seed(99)
    numpy.random.seed(99)
    qloom.run(lambda job: (random.random(), numpy.random.rand()), world=world, in_memory=True)
    assert random.random() == random.Random(99).random()
    assert numpy.random.rand() == numpy.random.RandomState(99).rand()


def test_an_asynchronous_program_has_a_generator():
    results = qloom.run(drawn_from_generator, world="virtual", jobs=2, seed=5, in_memory=True).results
    assert results == [list(numpy.random.default_rng(5 + number).random(3)) for number in range(2)]
