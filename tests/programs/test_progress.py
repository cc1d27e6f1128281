"""What programs report: how far they are, with an estimate of the rest, and pictures among their files."""

from __future__ import annotations

import pytest

import qloom
from qloom.errors import InputError
from qloom.journal.events import JobSubmitted, Progressed, RunStarted
from qloom.journal.fold import fold
from qloom.views.status import status_lines


async def reports(job, turns=100, each_s=0.1):
    for turn in range(turns):
        job.progress(turn + 1, turns, f"turn {turn + 1}")
        await job.spend(each_s)


def reports_in_sync(job, turns=3):
    for turn in range(turns):
        job.progress(turn + 1, turns)
        job.spend(1.0)


async def overdone(job):
    job.progress(3, 2)


def progress_of(outcome):
    return [event for event in outcome.events if isinstance(event, Progressed)]


def at(second, event):
    event.stamp(second, second * 1_000_000, "j1")
    return event


def test_reports_are_a_few_a_second_and_the_last_one_always():
    made = progress_of(qloom.run(reports, world="virtual", in_memory=True))
    assert 30 <= len(made) <= 40  # of 100, in 10 seconds
    assert (made[-1].done, made[-1].of, made[-1].note) == (100, 100, "turn 100")


def test_synchronous_programs_report_too():
    made = progress_of(qloom.run(reports_in_sync, world="virtual", in_memory=True))
    assert [event.done for event in made] == [1, 2, 3]


def test_the_live_view_has_the_last_report_and_an_estimate_of_the_rest():
    events = [RunStarted(program="loop.py", strategy="weave", world="local"), at(0, JobSubmitted())]
    events += [at(second, Progressed(done=second, of=10, note="energy -1.1")) for second in (2, 3, 4)]
    lines = status_lines(fold(events), "running", 5_000_000, None)
    assert "  4 of 10, energy -1.1, about 5.0 s left" in lines
    events.append(at(6, Progressed(done=1, of=100)))  # it counts something else now
    assert "  1 of 100" in status_lines(fold(events), "running", 6_000_000, None)


def test_more_than_all_cannot_be_done():
    outcome = qloom.run(overdone, world="virtual", in_memory=True)
    said = 'more is done than there is: 3 of 2 (test_progress.py, line 27) (job.progress(3, 10, "energy -1.1"))'
    assert str(outcome.errors[0]) == f"job j1: {said}"


class Figure:
    def savefig(self, path):
        path.write_bytes(b"a picture")


async def draws(job, name="sub/energy.png"):
    return str(job.save_plot(Figure(), name))


def test_plots_are_saved_among_the_files_of_the_job():
    outcome = qloom.run(draws)
    saved = outcome.directory / "output" / "j1" / "sub" / "energy.png"
    assert outcome.result == str(saved)
    assert saved.read_bytes() == b"a picture"
    assert [path.name for path in saved.parent.iterdir()] == ["energy.png"]
    assert qloom.run(draws, world="virtual", in_memory=True).result == "None"


@pytest.mark.parametrize("name", ["../escapes.png", "/etc/passwd.png", "noformat"])
def test_a_plot_stays_among_the_files_of_the_job(name):
    outcome = qloom.run(draws, world="virtual", in_memory=True, parameters={"name": name})
    assert isinstance(outcome.errors[0], InputError)
    assert "cannot be a picture among the files of a job" in outcome.errors[0].message
