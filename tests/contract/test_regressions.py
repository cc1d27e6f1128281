"""Things that once went wrong, in every world where they could."""

from __future__ import annotations

import pytest

import qloom
from qloom.errors import ProgramChanged, QuantumFailed
from qloom.journal.accounting import account, read_history
from qloom.journal.file import FILE_NAME
from qloom.site import Qpu, Site
from qloom.strategies import STRATEGIES
from qloom.worlds import WORLDS
from tests.contract import programs


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_qpu_that_will_not_come_back_fails_every_job_and_blocks_none(world, strategy):
    site = Site(qpus=(Qpu(offline=True),))
    outcome = qloom.run(programs.source(programs.three_at_once), world=world, strategy=strategy, jobs=3, site=site)
    assert len(outcome.errors) == 3
    assert all(isinstance(error, QuantumFailed) for error in outcome.errors)
    assert all(interval.state != "open" for interval in read_history(outcome.events).intervals)


PROGRAM = """
import qloom
from tests.contract.programs import square

async def program(job):
    await job.classical(square({first}, 0.01))
    return await job.classical(square(2, 0.01))
"""


def test_a_refused_resume_leaves_the_journal_as_it_was(tmp_path):
    file = tmp_path / "changing.py"
    file.write_text(PROGRAM.format(first=1))
    whole = qloom.run(str(file), world="virtual")
    journal = whole.directory / FILE_NAME
    lines = journal.read_bytes().splitlines(keepends=True)
    last_end = max(place for place, line in enumerate(lines) if b'"task_ended"' in line)
    journal.write_bytes(b"".join(lines[:last_end]))
    file.write_text(PROGRAM.format(first=7))
    with pytest.raises(ProgramChanged, match=r"call 1 of the journal, classical\(square\)"):
        raise qloom.resume("last").errors[0]
    file.write_text(PROGRAM.format(first=1))
    resumed = qloom.resume("last")
    assert resumed.errors == []
    assert resumed.result == [4]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("jobs", [1, 2])
def test_speculation_never_makes_a_job_slower(strategy, jobs):
    """Spare work that has become required counts as work when the job grows."""
    lengths = {"classical_s": [4.0, 4.0, 4.0], "score_s": 0.5, "quantum_s": 2.0, "iterations": 3}
    walls = [
        account(
            read_history(
                qloom.run(
                    "phases",
                    strategy=strategy,
                    world="virtual",
                    jobs=jobs,
                    parameters={**lengths, "speculate": speculate},
                    in_memory=True,
                ).events
            )
        ).wall_s
        for speculate in (False, True)
    ]
    assert walls[1] <= walls[0] + 1e-6
