"""Payloads: what is a QUBO, what is not, and that nothing of a problem is lost on the way to a device."""

from __future__ import annotations

import itertools

import dimod
import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from qloom.errors import PayloadError
from qloom.payloads.adapt import delay, qubo
from qloom.worlds.answers import solve

BIASES = some.integers(-4, 4).map(float)
PROBLEMS = some.dictionaries(some.tuples(some.sampled_from("abcd"), some.sampled_from("abcd")), BIASES, min_size=1)


def energy_of(body, sample):
    linear = sum(bias * sample[variable] for variable, bias in body["linear"])
    return body["offset"] + linear + sum(bias * sample[u] * sample[v] for u, v, bias in body["quadratic"])


def samples(variables):
    for bits in itertools.product((0, 1), repeat=len(variables)):
        yield dict(zip(variables, bits, strict=True))


@given(PROBLEMS)
def test_a_dictionary_keeps_its_energies(problem):
    body = qubo(problem).body
    variables = [variable for variable, _ in body["linear"]]
    assert set(variables) == {variable for pair in problem for variable in pair}
    pairs = [frozenset((u, v)) for u, v, _ in body["quadratic"]]
    assert len(pairs) == len(set(pairs)), "one entry a pair"
    for sample in samples(variables):
        expected = sum(bias * sample[u] * sample[v] for (u, v), bias in problem.items())
        assert energy_of(body, sample) == pytest.approx(expected)


def test_biases_may_be_numpys():
    problem = {(0, 1): numpy.float32(1.5), (1, 1): numpy.int64(2), (0, 0): numpy.float64(-1)}
    body = qubo(problem).body
    assert body["linear"] == [[0, -1.0], [1, 2.0]]
    assert body["quadratic"] == [[0, 1, 1.5]]
    assert all(type(entry[-1]) is float for entry in body["linear"] + body["quadratic"])


@given(PROBLEMS, some.sampled_from(["BINARY", "SPIN"]))
def test_a_model_keeps_its_energies(problem, vartype):
    pairs = {(u, v): bias for (u, v), bias in problem.items() if u < v}
    alone = {u: bias for (u, v), bias in problem.items() if u == v}
    model = dimod.BinaryQuadraticModel(alone, pairs, 1.5, vartype)
    before = model.copy()
    body = qubo(model).body
    assert model == before, "the user's model is not changed"
    for sample in samples(list(model.variables)):
        given_to_model = sample if vartype == "BINARY" else {name: 2 * bit - 1 for name, bit in sample.items()}
        assert energy_of(body, sample) == pytest.approx(model.energy(given_to_model))


@settings(deadline=None, max_examples=20)
@given(PROBLEMS)
def test_the_emulated_device_finds_the_best_of_small_problems(problem):
    assume(any(problem.values()))  # the sampler warns of a problem without any bias
    payload = qubo(problem, shots=50)
    body = payload.body
    best = min(energy_of(body, sample) for sample in samples([variable for variable, _ in body["linear"]]))
    answer = solve(payload, seed=1)
    assert answer.energy == pytest.approx(best)
    assert energy_of(body, answer.values) == pytest.approx(best)
    assert answer == solve(payload, seed=1), "the same seed, the same sample"
    assert all(type(bit) is int for bit in answer.values.values())


@pytest.mark.parametrize(
    "problem",
    [
        "not a problem",
        None,
        5,
        [],
        {},
        [("a", "b", 1.0)],
        numpy.eye(2),
        {"a": 1.0},
        {("a",): 1.0},
        {("a", "b", "c"): 1.0},
        {("a", "b"): "1"},
        {("a", "b"): None},
        {("a", "b"): True},
        {("a", "b"): float("nan")},
        {("a", "a"): float("inf")},
        {("a", "b"): 1j},
        {("a", "b"): numpy.bool_(True)},
        dimod.ConstrainedQuadraticModel(),
        dimod.BinaryQuadraticModel({"a": 1.0}, {}, float("nan"), "BINARY"),
    ],
)
def test_what_is_no_qubo_is_refused(problem):
    with pytest.raises(PayloadError) as refused:
        qubo(problem)
    assert refused.value.exit_code == 2
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("shots", [0, -1, 1.5, True, "10", None])
def test_shots_are_a_whole_number(shots):
    with pytest.raises(PayloadError, match="shots must be a whole number"):
        qubo({("a", "a"): 1.0}, shots=shots)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_a_delay_is_a_time(seconds):
    with pytest.raises(PayloadError, match="a delay cannot be"):
        delay(seconds)


def test_a_delay_takes_what_it_says():
    assert delay(0).seconds == 0
    assert delay(2.5).seconds == 2.5
