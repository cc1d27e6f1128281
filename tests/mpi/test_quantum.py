"""The quantum component as the last rank of one world, and as a world of its own."""

from __future__ import annotations

import pytest

from qloom.errors import JobError
from qloom.mpi.items import wait_for
from tests.mpi import ranks

ONE_WORLD = """
from qloom.errors import QuantumFailed
from qloom.mpi import oneworld

def execute(item):
    if item is None:
        raise ValueError("nothing to do")
    return bytes(reversed(item))

def classical(qpu, comm):
    big = bytes(range(256)) * 4000  # larger than any eager message
    out = [qpu.submit(big), qpu.submit(bytes([comm.rank])), qpu.submit(None)]
    try:
        out[2].result(30)
        raise AssertionError("not reached")
    except QuantumFailed as error:
        assert "raised ValueError: nothing to do" in str(error), error
    assert out[1].result(30) == bytes([comm.rank])  # in another order than they were sent
    assert out[0].result(30) == bytes(reversed(big))
    assert out[0].done()
    return comm.size

print(f"returned {oneworld.run(classical, execute)}.", flush=True)
"""
SERVER = """
import sys
from pathlib import Path
from qloom.errors import JobError
from qloom.mpi import ports
from qloom.mpi.oneworld import checked_world

try:
    with ports.accept(Path(sys.argv[1]), within_s=float(sys.argv[2])) as qpu:
        assert qpu.submit("item").result(30) == "ITEM"
except JobError as error:
    print(f"went on without: {error}.", flush=True)
assert checked_world().allreduce(1) == checked_world().size  # the world is well, with or without a QPU
"""
CLIENT = """
import sys
from pathlib import Path
from qloom.mpi import ports

print(f"served {ports.serve(str.upper, Path(sys.argv[1]), within_s=float(sys.argv[2]))}.", flush=True)
"""


def test_several_items_are_out_at_once_in_one_world(tmp_path):
    out = ranks.run(3, ranks.write(tmp_path / "program.py", ONE_WORLD))
    assert out.count("returned 2.") == 2  # the classical ranks, who are two
    assert out.count("returned 6.") == 1  # the last one executed three items for each


@pytest.mark.slow
def test_two_worlds_meet_over_a_port_and_part_again(tmp_path):
    server = ranks.start(2, ranks.write(tmp_path / "server.py", SERVER), tmp_path, 30)
    client = ranks.start(1, ranks.write(tmp_path / "client.py", CLIENT), tmp_path, 30)
    assert ranks.finish(server)[0] == 0
    code, out, _err = ranks.finish(client)
    assert (code, out.strip()) == (0, "served 2.")
    assert not list(tmp_path.glob("qpu-port*"))


@pytest.mark.slow
def test_a_quantum_component_that_never_comes_is_not_waited_for_forever(tmp_path):
    code, out, err = ranks.finish(ranks.start(2, ranks.write(tmp_path / "server.py", SERVER), tmp_path, 0.3))
    assert code == 0, err
    assert out.count("went on without: the quantum component did not come within 0.3 s.") == 2
    assert not list(tmp_path.glob("qpu-port*"))


def test_a_classical_component_that_never_comes_is_not_waited_for_forever(tmp_path):
    code, _out, err = ranks.finish(ranks.start(1, ranks.write(tmp_path / "client.py", CLIENT), tmp_path, 0.3))
    assert code != 0
    assert "the port of the classical component (qpu-port-local-0) did not come within 0.3 s" in err


def test_a_call_that_hangs_is_ended_by_the_watchdog(tmp_path):
    program = """
    from mpi4py import MPI
    from qloom.mpi.items import watchdog

    port = MPI.Open_port()
    with watchdog(0.5, "accepting"):
        MPI.COMM_WORLD.Accept(port)  # nobody comes
    """
    code, _out, err = ranks.finish(ranks.start(2, ranks.write(tmp_path / "hang.py", program)))
    assert code != 0
    assert "qloom: accepting did not end within 0.5 s" in err


def test_waiting_ends_with_what_is_found_or_with_the_time():
    looks = iter([None, None, "found"])
    assert wait_for(lambda: next(looks), 30, "it") == "found"
    with pytest.raises(JobError, match=r"it did not come within 0.01 s"):
        wait_for(lambda: None, 0.01, "it")
