"""Names made from content, and results that come back exactly as they were."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import os
import pathlib
import subprocess
import sys
from collections import OrderedDict

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from qloom.errors import InputError, JournalError
from qloom.journal.content import _digest_parts, call_key, digest, payload_key, task_key
from qloom.journal.results import ResultStore, decode_plain, encode_plain
from qloom.model import Sample, Work, call, command, task
from qloom.payloads.adapt import qubo

SCALARS = some.one_of(
    some.none(), some.booleans(), some.integers(-(10**30), 10**30), some.floats(), some.text(max_size=20)
)
PLAIN = some.recursive(
    SCALARS,
    lambda inner: some.one_of(
        some.lists(inner, max_size=4),
        some.lists(inner, max_size=4).map(tuple),
        some.dictionaries(some.text(max_size=5), inner, max_size=4),
    ),
    max_leaves=12,
)
HASHABLE = some.recursive(
    SCALARS, lambda inner: some.lists(inner, max_size=3).map(tuple) | some.frozensets(inner, max_size=3), max_leaves=6
)
VALUES = some.one_of(
    PLAIN,
    some.sets(HASHABLE, max_size=4),
    some.dictionaries(HASHABLE, PLAIN, max_size=4),
    some.binary(max_size=20),
    some.complex_numbers(),
)


def same(one, other):
    """Equal with the same types all the way down; nan is itself, and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (one != one and other != other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


@dataclasses.dataclass
class Point:
    x: float
    tags: frozenset


@task
def decorated(x):
    return x


def plain(x):
    return x


def adder(n):
    return lambda x: x + n


DISTINCT = [
    None,
    False,
    0,
    0.0,
    -0.0,
    0j,
    "",
    "0",
    b"",
    [],
    (),
    {},
    set(),
    frozenset(),
    bytearray(),
    OrderedDict(),
    True,
    1,
    1.0,
    "1",
    b"1",
    [1],
    (1,),
    [[1]],
    [[], []],
    [[[]]],
    {1},
    {1: None},
    {None: 1},
    {"1": None},
    ["a", "b"],
    ["ab"],
    ("a", ("b",)),
    ("a", "b"),
    {"a": {"b": 1}},
    {"a": 1, "b": 1},
    {("a", "b"): 1},
    float("nan"),
    float("inf"),
    float("-inf"),
    numpy.zeros(2),
    numpy.zeros((2, 1)),
    numpy.zeros(2, "f4"),
    numpy.zeros(2, ">f8"),
    numpy.zeros(2, int),
    numpy.zeros(0),
    numpy.zeros((0, 3)),
    numpy.array([1j]),
    numpy.array(["2020-01-01"], "M8[D]"),
    numpy.array(["2020-01-01"], "M8[s]"),
    numpy.array(["ab"]),
    numpy.float64(1),
    numpy.int64(1),
    numpy.bool_(True),
    Colour.RED,
    Colour.GREEN,
    Point(1, frozenset("ab")),
    Point(1, frozenset("ac")),
    pathlib.PurePath("a"),
    pathlib.PurePath("b"),
    decorated,
    plain,
    math.sqrt,
    math.sin,
    "abc".upper,
    "xyz".upper,
    functools.partial(plain, 1),
    functools.partial(plain, 2),
    functools.partial(plain, x=1),
    adder(1),
    adder(2),
    int,
    float,
    lambda x: x + 1,
    lambda x: x - 1,
    lambda x=1: x,
    lambda x=2: x,
    lambda *, x=1: x,
    lambda *, x=2: x,
    lambda y: [x * 2 for x in y],
    lambda y: [x * 3 for x in y],
    lambda y: sorted(y, key=lambda x: x[0]),
    lambda y: sorted(y, key=lambda x: x[1]),
    "a b".split,
    Point(1, frozenset("ab")).__eq__,
]


def test_values_that_differ_have_different_names():
    names = [digest(value) for value in DISTINCT]
    for place, name in enumerate(names):
        assert names.index(name) == place, f"{DISTINCT[place]!r} and {DISTINCT[names.index(name)]!r}"


@settings(deadline=None, max_examples=300)
@given(VALUES, VALUES)
def test_equal_values_and_only_those_have_the_same_name(one, other):
    if repr(one) == repr(other):
        assert digest(one) == digest(other)
    if digest(one) == digest(other):
        assert one == other or "nan" in repr(one)  # a nan equals nothing, not even itself


@given(some.dictionaries(some.text(max_size=4), some.integers(), max_size=6), some.randoms())
def test_the_order_in_which_a_dictionary_was_filled_does_not_matter(values, random):
    items = list(values.items())
    random.shuffle(items)
    assert digest(dict(items)) == digest(values)


@given(some.lists(SCALARS, max_size=5), some.integers(0, 5))
def test_where_a_list_ends_matters(items, cut):
    assert digest(items[:cut], items[cut:]) != digest(items[: cut + 1], items[cut + 1 :]) or len(items) <= cut


def test_arrays_are_known_by_what_they_contain_not_by_how_they_lie_in_memory():
    array = numpy.arange(12.0).reshape(3, 4)
    assert digest(array) == digest(array.copy(order="F")) == digest(numpy.vstack([array, array])[:3])
    assert digest(array[:, ::2]) == digest(array[:, ::2].copy())
    assert digest(array) != digest(array.T)


def test_closures_are_known_by_what_they_hold():
    assert digest(adder(1)) == digest(adder(1))
    assert digest(adder([1, 2])) != digest(adder([1, 3]))


def test_a_closure_that_calls_itself_has_a_name():
    def outer(base):
        def fall(n):
            return base if n == 0 else fall(n - 1)

        return fall

    assert digest(outer(1)) == digest(outer(1)) != digest(outer(2))


def test_what_cannot_be_sent_is_refused_with_its_type():
    import threading

    with pytest.raises(InputError, match="value of type lock can neither be kept nor sent"):
        task_key(call(plain, threading.Lock()))


def test_a_task_is_its_function_and_arguments_not_its_needs():
    assert task_key(decorated(1)) == task_key(decorated(1).needs(nodes=2, expected_s=9))
    assert task_key(decorated(1)) != task_key(decorated(2))
    assert task_key(decorated(1)) != task_key(decorated(x=1))
    assert task_key(command("a", "b")) == task_key(command("a", "b", name="other"))
    keys = [command("a", "b"), command("a b"), command("a", "b", cwd="/"), command("a", "b", env={"x": "1"})]
    assert len({task_key(one) for one in keys}) == 4


def test_a_payload_is_its_problem_and_how_it_is_asked():
    problem = {("a", "b"): 1.0}
    asked = [
        qubo(problem),
        qubo(problem, shots=5),
        qubo(problem, seconds=1.0),
        qubo(problem, device="q"),
        qubo({("a", "b"): 2.0}),
    ]
    assert len({payload_key(one) for one in asked}) == 5
    assert payload_key(qubo(problem)) == payload_key(qubo(dict(problem)))


IN_ANOTHER_PROCESS = """
import dataclasses, enum, numpy, pathlib
from qloom.journal.content import digest
class Colour(enum.Enum):
    RED = 1
@dataclasses.dataclass
class Point:
    x: float
    tags: frozenset
def adder(n):
    return lambda x: (x + n) in {"u", "v", "w"}
words = "the quick brown fox jumps over the lazy dog".split()
values = [
    set(words), frozenset(words), {word: {other for other in words} for word in words}, {tuple(words): set(words)},
    Point(1.5, frozenset(words)), Colour.RED, {Colour.RED}, adder(set(words)), pathlib.PurePath("a"),
    len, words.index,
    {frozenset(words): 1}, numpy.arange(5), {1.5, None, True, "x", b"y", (1, 2)},
]
print([digest(value) for value in values])
"""


def test_names_are_the_same_in_every_process():
    def names(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert names("0") == names("1") == names("12345")


# Results


@settings(deadline=None, max_examples=300)
@given(PLAIN)
def test_a_result_comes_back_exactly_as_it_was(value):
    store = ResultStore(None)
    assert same(store.load(store.keep(value)), value)
    encoded = encode_plain(value)
    if encoded is not None:
        import json

        assert same(decode_plain(json.loads(json.dumps(encoded, allow_nan=False))), value)


@settings(deadline=None, max_examples=50)
@given(VALUES)
def test_any_result_comes_back_from_a_file(tmp_path_factory, value):
    store = ResultStore(tmp_path_factory.mktemp("results"))
    kept = store.keep([value, "x" * 3000])
    assert list(kept) == ["file"]
    back, _ = store.load(kept)
    assert type(back) is type(value)
    assert digest(back) == digest(value)  # not ==: a nan inside equals nothing, and a set has no order


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        [1, [float("-inf")]],
        {"a": float("nan")},
        {1: 2},
        {1, 2},
        b"bytes",
        1j,
        numpy.float64(1.0),
        numpy.arange(3),
        Sample({("a", 1): 0}, 1.0),
        Sample({0: numpy.int8(1)}, 1.0),
        Sample({0: 1}, numpy.float64(1.0)),
        Sample({0: 1}, float("nan")),
        "x" * 2001,
    ],
)
def test_what_json_cannot_say_goes_to_a_file(value, tmp_path):
    store = ResultStore(tmp_path / "results")
    kept = store.keep(value)
    assert list(kept) == ["file"]
    assert repr(store.load(kept)) == repr(value)
    assert type(store.load(kept)) is type(value)
    assert [path.name for path in (tmp_path / "results").iterdir()] == [kept["file"]], "no temporary file is left"


def test_the_same_result_is_stored_once(tmp_path):
    store = ResultStore(tmp_path)
    assert store.keep("x" * 5000) == store.keep("x" * 5000)
    assert len(list(tmp_path.iterdir())) == 1


def test_results_that_differ_in_type_alone_are_kept_apart(tmp_path):
    store = ResultStore(tmp_path)
    for value in (bytes(3000), bytearray(3000), {1}, frozenset({1}), {1: 2}, OrderedDict({1: 2})):
        assert type(store.load(store.keep(value))) is type(value)


def test_samples_come_back(tmp_path):
    for values in ({"a": 1, "b": 0}, {0: 1, 1: 0}, {}):
        sample = Sample(values, -1.5)
        kept = ResultStore(tmp_path).keep(sample)
        assert "plain" in kept
        assert ResultStore(tmp_path).load(kept) == sample
        assert list(ResultStore(tmp_path).load(kept).values) == list(values)


def test_a_result_whose_file_is_gone_is_told(tmp_path):
    store = ResultStore(tmp_path)
    kept = store.keep(b"x")
    (tmp_path / kept["file"]).unlink()
    with pytest.raises(JournalError, match="missing"):
        store.load(kept)


@given(some.lists(VALUES, max_size=3))
def test_the_quick_way_for_plain_data_gives_the_same_digits(values):
    assert digest(*values) == _digest_parts(tuple(values))


def test_the_quick_way_knows_functions_of_tasks():
    assert digest("call", double, (1, 2.0), {}) == _digest_parts(("call", double, (1, 2.0), {}))


@task
def double(value):
    return 2 * value


@task
def told_apart(*values: object) -> None:
    """Arguments that are equal and not the same."""


@pytest.mark.parametrize("values", [(0.0, -0.0), (1, True, 1.0), ("1", 1), (0, False, None)])
def test_tasks_whose_arguments_are_equal_but_not_the_same_have_keys_of_their_own(values):
    assert len({task_key(told_apart(value)) for value in values}) == len(values)
    for value in values:
        assert task_key(told_apart(value)) == digest("call", told_apart, (value,), {}), "as without a cache"


def test_a_number_of_many_digits_has_a_key():
    assert task_key(told_apart(10**5000)) == digest("call", told_apart, (10**5000,), {})


def test_a_call_is_known_by_the_names_of_its_work():
    works = [Work(told_apart(place), "j1", task_key(told_apart(place)), 0) for place in range(3)]
    assert call_key("classical", works) == digest("classical", [work.id for work in works])
