"""State of elastic programs: saved whole or not at all, restored on any number of ranks."""

from __future__ import annotations

import os

import numpy
import pytest

from qloom.errors import InputError, JobError
from qloom.mpi import state as saving
from qloom.mpi.nodes import LocalNodes
from qloom.mpi.root import ElasticPlan, Root
from qloom.mpi.state import CURRENT, SavedState, SplitArray, block
from tests.mpi import ranks


class Alone:
    """A communicator of one rank, or one that only says which rank of how many it is."""

    def __init__(self, rank=0, size=1):
        self.rank, self.size = rank, size

    def bcast(self, value):
        return value

    def gather(self, value):
        return [value]

    def allgather(self, value):
        return [value]

    def Barrier(self):
        pass


def state_in(directory, **initial):
    state = SavedState(Alone(), directory)
    state.register(initial or {"step": 0, "field": SplitArray(5, lambda first, last: numpy.zeros(last - first))})
    return state


@pytest.mark.parametrize("size", [1, 2, 3, 7, 11])
def test_blocks_are_all_rows_in_order_and_even(size):
    for length in (0, 1, 5, 10):
        bounds = [block(length, rank, size) for rank in range(size)]
        assert [row for first, last in bounds for row in range(first, last)] == list(range(length))
        assert max(last - first for first, last in bounds) - min(last - first for first, last in bounds) <= 1


def test_what_was_saved_comes_back_and_the_rest_is_initial(tmp_path):
    first = state_in(tmp_path)
    first.values.step = 7
    first.values.field += 3
    first.save()
    first.values.field += 1  # not saved
    again = state_in(tmp_path)
    assert again.values.step == 7
    assert again.values.field.tolist() == [3.0] * 5
    assert len(list(tmp_path.glob("save-*"))) == 1  # older ones go


def test_a_save_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    state = state_in(tmp_path)
    state.values.step = 1
    state.save()
    state.values.step = 2

    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(numpy, "save", full)
    with pytest.raises(JobError, match=r"rank 0 cannot save its state: .*No space left"):
        state.save()
    monkeypatch.undo()
    assert state_in(tmp_path).values.step == 1


def test_a_save_that_is_cut_short_does_not_count(tmp_path, monkeypatch):
    state = state_in(tmp_path)
    state.values.step = 1
    state.save()
    state.values.step = 2
    whole = saving.write_atomically

    def killed(path, data, **options):
        if path.name == CURRENT:
            raise KeyboardInterrupt
        whole(path, data, **options)

    monkeypatch.setattr(saving, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        state.save()
    monkeypatch.undo()
    again = state_in(tmp_path)
    assert again.values.step == 1
    again.save()  # and what was left of it is swept up
    assert len(list(tmp_path.glob("save-*"))) == 1


def test_a_program_that_registers_something_else_is_told(tmp_path):
    state_in(tmp_path).save()
    with pytest.raises(InputError, match="holds field, step and the program registers other, step"):
        state_in(tmp_path, step=0, other=1)


PROGRAM = """
import sys
import numpy
from pathlib import Path
from mpi4py import MPI
from qloom.mpi.state import SavedState, SplitArray

comm = MPI.COMM_WORLD
state = SavedState(comm, Path(sys.argv[1]))
state.register({
    "rounds": 0,
    "few": SplitArray(3, lambda first, last: numpy.arange(first, last)),
    "table": SplitArray(10, lambda first, last: numpy.outer(numpy.arange(first, last), [1.0, 2.0])),
})
values = state.values
few, table = comm.gather(values.few), comm.gather(values.table)
if comm.rank == 0:
    assert numpy.concatenate(few).tolist() == [row + values.rounds for row in range(3)], few
    assert (numpy.concatenate(table) == numpy.outer(numpy.arange(10), [1.0, 2.0]) + values.rounds).all()
values.few += 1
values.table += 1
values.rounds += 1
state.save()
if comm.rank == 0:
    print(values.rounds)
"""


@pytest.mark.slow
def test_real_ranks_hand_on_to_more_and_to_fewer(tmp_path):
    program = ranks.write(tmp_path / "program.py", PROGRAM)
    sizes = [2, 5, 3, 1, 4]  # 5 ranks share 3 rows: some have none
    for number, size in enumerate(sizes, 1):
        assert ranks.run(size, program, tmp_path / "state").split() == [str(number)]


def test_the_state_is_for_its_user_alone(tmp_path):
    state_in(tmp_path / "state").save()
    made = [tmp_path / "state", *(tmp_path / "state").glob("save-*")]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o700]


@pytest.mark.parametrize("what", ["", CURRENT, "save-000001", "save-000001/values.pickle"])
def test_state_of_another_user_is_not_read(tmp_path, what):
    if os.getuid() != 0:
        pytest.skip("NOT CHECKED: only root can give a file to another user")
    state_in(tmp_path / "state").save()
    os.chown(tmp_path / "state" / what, 65534, -1)
    with pytest.raises(InputError, match="belongs to another user"):
        state_in(tmp_path / "state")


@pytest.mark.parametrize("what", ["", "state"])
def test_a_root_refuses_a_directory_of_another_user(tmp_path, what):
    if os.getuid() != 0:
        pytest.skip("NOT CHECKED: only root can give a file to another user")
    (tmp_path / "elastic" / "state").mkdir(parents=True)
    os.chown(tmp_path / "elastic" / what, 65534, -1)
    with pytest.raises(InputError, match="belongs to another user"):
        Root(ElasticPlan(("true",), tmp_path / "elastic"), LocalNodes()).run()
