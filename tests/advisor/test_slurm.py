"""What is read from squeue, sinfo, sacct and scontrol; here they are scripts that say what real ones said."""

from __future__ import annotations

import time

import pytest

from qloom.lab.advisor import slurm
from qloom.lab.advisor.slurm import NoAnswer, read_queue, seconds_of
from qloom.site import Site, Slurm


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Make programs of Slurm that print a text, or hang."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def say(name: str, text: str, code: int = 0) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        path.chmod(0o755)

    now = int(time.time())
    say("sinfo", "idle|10:00|1:00:00\nallocated|10:00|1:00:00\ndrained*|10:00|1:00:00\nmixed|10:00|1:00:00")
    say("squeue", f"PENDING|3|2:00|0:00|{now - 5}\nRUNNING|2|1-00:00:00|1:00:00|{now - 4000}")
    say("sacct", f"2|00:02:00|{now - 900}|60\n0|00:02:00|{now - 800}|0\n1|UNLIMITED|{now - 700}|30")
    say("scontrol", "SchedulerParameters     = bf_continue,bf_interval=7")
    return say


SITE = Site(slurm=Slurm(partition="compute"))


def test_the_queue_as_it_stands(said):
    queue, notes = read_queue(SITE)
    assert not notes
    assert (queue.nodes, queue.limit_s, queue.interval_s) == (3, 600.0, 7.0)  # without the node that is drained
    assert [(seen.state, seen.nodes, seen.limit_s, seen.elapsed_s) for seen in queue.now] == [
        ("running", 2, 86400.0, 3600.0),
        ("pending", 3, 120.0, 0.0),
    ]
    assert [(seen.nodes, seen.elapsed_s, seen.state) for seen in queue.before if seen.state == "ended"] == [
        (2, 60.0, "ended"),
        (1, 30.0, "ended"),
    ]
    assert queue.span_s == pytest.approx(4000, abs=5)


def test_a_site_with_a_time_limit_asks_with_that(said):
    queue, _ = read_queue(Site(slurm=Slurm(partition="compute", time_limit="1-12")))
    assert queue.limit_s == 36 * 3600


@pytest.mark.parametrize(("text", "code"), [("", 0), ("", 1)])
def test_without_a_history_nobody_is_expected_and_that_is_said(said, text, code):
    said("sacct", text, code)
    queue, notes = read_queue(SITE)
    assert not [seen for seen in queue.before if seen.state == "ended"]
    assert "nobody is expected to come" in notes[0]


def test_a_controller_that_is_silent_is_not_waited_for(said, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "TIMEOUT_S", 0.2)
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(NoAnswer, match="squeue does not answer"):
        read_queue(SITE)


def test_a_partition_without_nodes(said):
    said("sinfo", "down*|10:00|1:00:00")
    with pytest.raises(NoAnswer, match="no node of partition compute is up"):
        read_queue(SITE)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("5:30", 330), ("1:30:00", 5400), ("2-0", 172800), ("1-02:03:04", 93784), ("UNLIMITED", None),
     ("n/a", None), ("infinite", None), ("", None), ("Partition_Limit", None)],
)  # fmt: skip
def test_times_as_slurm_writes_them(text, seconds):
    assert seconds_of(text) == seconds
