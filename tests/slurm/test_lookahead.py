"""The chain of split on a real Slurm: each sub-job waits in the queue for the one before, and none is left."""

from __future__ import annotations

import asyncio
import threading

import pytest

import qloom
from qloom.site import Site, Slurm
from qloom.slurm.client import Client
from qloom.world import Request
from qloom.worlds.slurm.driver_job import BatchJob, submit_batch
from tests.journals import as_lines
from tests.slurm import programs
from tests.slurm.driver import (
    DEADLINE_S,
    ended,
    kill_with_its_sallocs,
    left,
    queue,
    reap,
    result,
    start,
    wait_for_event,
    wait_until,
)

pytestmark = pytest.mark.slow
LONG = programs.source(programs.long_phase)
SPLIT = ("--world", "slurm", "--strategy", "split", "-q")


@pytest.fixture
def cluster(slurm_env):
    """A cluster that is whole and empty after a test, too."""
    yield slurm_env
    wait_until(lambda: queue(slurm_env) == {}, "an empty queue")
    wait_until(lambda: set(slurm_env.run("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"}, "idle nodes")


def jobs(testbed, *more):
    """Components in Slurm's queue: `{id: (state, reason, dependency, nodes, name)}`."""
    said = testbed.run("squeue", "-h", "-o", "%i|%T|%r|%E|%N|%j", *more).splitlines()
    return {line.split("|")[0]: tuple(line.split("|")[1:]) for line in said}


def dependents(testbed):
    """Who waits for whom, leaders of het jobs only, and who runs: `({id: predecessor}, {id})`."""
    seen = jobs(testbed)
    behind = {
        id.removesuffix("+0"): dependency.partition("(")[0].removeprefix("afterany:")
        for id, (state, reason, dependency, *_) in seen.items()
        if (state, reason) == ("PENDING", "Dependency") and dependency.startswith("afterany:") and "+1" not in id
    }
    return behind, {id.removesuffix("+0") for id, (state, *_) in seen.items() if state == "RUNNING"}


def chained(testbed):
    """The first sub-job and the one behind it, as soon as one runs and the other waits for it."""
    behind, running = dependents(testbed)
    return next(((before, id) for id, before in behind.items() if before in running), None)


@pytest.mark.parametrize("place", [("run", "--world", "slurm"), ("submit", "--driver", "beside")], ids=" ".join)
def test_the_next_sub_job_waits_for_the_one_before_and_none_is_left_at_the_end(cluster, qloom_home, tmp_path, place):
    program = (programs.source(programs.gated), "--set", f"folder={tmp_path}", "--strategy", "split", "--nodes", "2")
    started = start(*place, *program)
    first, second = wait_until(lambda: chained(cluster), "a sub-job that waits for another")
    assert f"{second}+1" in jobs(cluster), "a het job: nodes and the QPU"
    (tmp_path / "1").touch()

    def second_has_started():
        _, running = dependents(cluster)
        assert not {first, second} <= running, "the second has started before the first has ended"
        return second in running

    wait_until(second_has_started, "the start of the second sub-job")
    (tmp_path / "2").touch()
    _, complaint = started.communicate(timeout=DEADLINE_S)
    assert started.returncode == 0, complaint
    (run,) = (qloom_home / "runs").iterdir()
    events = ended(run.name)
    assert result(run.name, events) == 1
    wait_until(lambda: queue(cluster) == {}, "an empty queue")
    granted = {event["lease"]: event["engine_id"] for event in as_lines(events) if event["event"] == "granted"}
    assert [granted["j1.1"], granted["j1.2"]] == [first, second]
    assert [event["lease"] for event in as_lines(events) if event["event"] == "queued_ahead"] == [
        "j1.2",
        "j1.3",
        "j1.4",
    ]
    assert [event["lease"] for event in as_lines(events) if event["event"] == "withdrawn"] == ["j1.4"]
    known = jobs(cluster, "-t", "all").values()
    never_used = [(state, nodes) for state, _, _, nodes, name in known if name.startswith(f"qloom.{run.name}.j1.4.")]
    assert never_used == [("CANCELLED", "")] * 2, "its nodes and its QPU"


def test_a_driver_that_is_killed_leaves_a_chain_that_is_reaped(cluster, qloom_home):
    driver = start("run", LONG, *SPLIT)
    wait_for_event(qloom_home, "queued_ahead", lease="j1.3")
    held, waiting = wait_until(lambda: chained(cluster), "a sub-job that waits for another")
    kill_with_its_sallocs(driver.pid)
    driver.communicate()
    assert {id.partition("+")[0] for id in left(cluster)} == {held, waiting}
    assert {row["job"].partition("+")[0] for row in reap()} == {held, waiting}
    wait_until(lambda: queue(cluster) == {}, "an empty queue")


def test_a_node_that_fails_under_a_sub_job_does_not_bring_the_next_one_forward(cluster, tmp_path):
    """Slurm ends a job whose only node has failed and starts the one behind it, on the node that the first needs."""
    log = tmp_path / "log"
    drained = ["c3"]  # two are left: the one that fails, and the only one for what ran there
    cluster.set_node("c3", "DRAIN", "test")

    def fail():
        (lost,) = wait_until(lambda: log.exists() and log.read_text().split(), "the long task")
        drained.append(lost)
        for state in ("DOWN", "DRAIN"):  # drained, too: it would come back by itself
            cluster.set_node(lost, state, "test")

    watcher = threading.Thread(target=fail)
    watcher.start()
    try:
        outcome = qloom.run(
            LONG,
            world="slurm",
            strategy="split",
            site=Site(nodes=1),
            parameters={"log": str(log)},
            in_memory=True,
        )
    finally:
        watcher.join()
        for node in drained:
            cluster.set_node(node, "RESUME")
    assert outcome.result == [1, 1]
    assert len(set(log.read_text().split())) == 2, "it ran again, elsewhere"
    held = [event["lease"] for event in as_lines(outcome.events) if event["event"] == "granted"]
    assert held == ["j1.1", "j1.2"], "the one ahead was never held"


def test_a_batch_sub_job_starts_only_if_the_one_before_ended_well(cluster, tmp_path, monkeypatch):
    """The links of a chain without a driver."""
    monkeypatch.chdir(tmp_path)
    before = cluster.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 600").strip()
    link = BatchJob("run", "chain", Request("j1.1", "j1", 1, 1), 0, after=before)

    async def submit_link():
        client = Client()
        try:
            return await submit_batch(link, Site(slurm=Slurm()), tmp_path, client)
        finally:
            client.close()

    after = asyncio.run(submit_link())
    wait_until(lambda: jobs(cluster)[before][0] == "RUNNING", "the first link")
    waits = ("PENDING", "Dependency", f"afterok:{before}(unfulfilled)")
    wait_until(lambda: jobs(cluster)[after][:3] == waits, "the second link behind it")
    cluster.run("scancel", before)
    wait_until(lambda: after not in jobs(cluster), "the end of the link that cannot start")
    assert jobs(cluster, "-t", "all", "-j", after)[after][0] == "CANCELLED"
