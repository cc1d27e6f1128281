"""Requests to Slurm that go wrong: somebody cancels one, a client loses its answer, a worker dies as it starts."""

from __future__ import annotations

import asyncio
import threading

import pytest

import qloom
from qloom.errors import AllocationEnded, InputError, JobError
from qloom.journal import home
from qloom.journal.events import LookFailed
from qloom.model import QpuHold
from qloom.site import Site, Slurm, site_from
from qloom.slurm import client as client_module
from qloom.slurm.arguments import components, salloc
from qloom.slurm.client import Client
from qloom.slurm.salloc import Salloc
from qloom.world import Request
from qloom.worlds.process import WorkerDied
from qloom.worlds.realtime import RealClock
from qloom.worlds.slurm import workers as workers_module
from qloom.worlds.slurm.driver_job import BatchJob, submit_batch
from qloom.worlds.slurm.lease_jobs import LeaseJob
from qloom.worlds.slurm.requests import QueueWatch
from qloom.worlds.slurm.workers import StepWorkers
from tests.journals import as_lines
from tests.slurm import programs
from tests.slurm.driver import queue, wait_until

WHOLE = Request("j1.1", "j1", 3, 3, QpuHold.WHOLE, "qpu")


# What a site may add


@pytest.mark.parametrize(
    "word",
    ["--comment=project-7", "--comm=x", "--job-name=x", "-Jx", "-J", "-M", "--array=1-3", "-d", ":", "--wrap=x"],
)
def test_a_site_cannot_take_its_jobs_out_of_the_run_s_hands(word):
    with pytest.raises(InputError, match=f"slurm.arguments may not hold {word}: qloom sets it.*leave it out"):
        site_from({"slurm": {"arguments": [word]}})


@pytest.mark.parametrize("word", ["--mail-type=END", "--nice=1", "--no-kill", "-x", "--wckey=a", "--begin=now+1hour"])
def test_all_other_arguments_are_the_site_s_own(word):
    assert site_from({"slurm": {"arguments": [word]}}).slurm.arguments == (word,)


def test_what_a_job_is_found_by_comes_last_so_that_nothing_overrules_it():
    site = Site(slurm=Slurm(arguments=("--mail-type=END",)))
    asked = salloc(components(site, WHOLE, 8), "name", "comment")
    tags = ["--job-name=name", "--comment=comment"]
    assert asked[asked.index(":") - 2 : asked.index(":")] == tags
    assert asked[-5:-3] == tags  # before the command that holds it
    script = BatchJob("r1", "in-job", Request("first", "j1", 1, 1)).script(site, "logs")
    assert script.index("--mail-type") < script.index("--job-name") < script.index("--comment")


@pytest.mark.parametrize(("rest_s", "minutes"), [(3600.0, 60), (61.0, 2), (0.5, 1), (-3.0, 1)])
def test_growing_is_asked_for_until_the_time_limit_of_what_grows(rest_s, minutes):
    (asked,) = components(Site(slurm=Slurm(time_limit="1-0")), Request("j1.2", "j1", 1, 2), 0, rest_s)
    assert [word for word in asked if word.startswith("--time=")][-1] == f"--time={minutes}"


@pytest.mark.slow
def test_growing_does_not_outlast_its_allocation_on_slurm(slurm_env, tmp_path):
    """The time limit of the allocation is changed from outside, and sooner or later what it grows by follows."""
    limits_min = []

    def listen(event):
        if event.event == "granted":
            slurm_env.run("scontrol", "update", f"JobId={event.engine_id}", "TimeLimit=4")
        if event.event == "grown":
            limit = slurm_env.run("squeue", "-h", "-j", event.engine_id, "-o", "%l").strip()
            limits_min.append(int(limit.split(":")[0]))  # below an hour it is MINUTES:SECONDS
            if limits_min[-1] <= 4:
                (tmp_path / "end").touch()

    source, site = programs.source(programs.phases_until), Site(slurm=Slurm(time_limit="9", poll_s=0.1))
    outcome = qloom.run(
        source,
        world="slurm",
        strategy="malleable",
        in_memory=True,
        site=site,
        parameters={"end": str(tmp_path / "end")},
        listener=listen,
    )
    assert outcome.errors == []
    assert limits_min[-1] <= 4, limits_min


# Requests that somebody cancels


@pytest.fixture
def full_cluster(slurm_env):
    """Others hold all nodes."""
    slurm_env.run("salloc", "--no-shell", "-Q", "-J", "others", "-N3", "--exclusive")
    yield slurm_env
    slurm_env.run("scancel", "-n", "others")
    wait_until(lambda: queue(slurm_env) == {}, "an empty queue")


def cancel_what_waits(testbed):
    """From another thread, as soon as a request stands in line."""

    def wait_and_cancel():
        pending = wait_until(lambda: [id for id, state in queue(testbed).items() if state == "PENDING"], "a request")
        testbed.run("scancel", *dict.fromkeys(id.partition("+")[0] for id in pending))

    thread = threading.Thread(target=wait_and_cancel)
    thread.start()
    return thread


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["offload", "coschedule"])
def test_scancel_of_a_request_that_waits_is_a_clear_end_and_can_be_resumed(full_cluster, qloom_home, strategy):
    watcher = cancel_what_waits(full_cluster)
    outcome = qloom.run(programs.source(programs.two_quantum), world="slurm", strategy=strategy)
    watcher.join()
    (error,) = outcome.errors
    assert isinstance(error, AllocationEnded)
    assert "was cancelled by its user or an administrator" in error.message
    assert error.job == "j1"
    assert "qloom resume" in error.hint
    assert home.find_run("last") == outcome.directory
    full_cluster.run("scancel", "-n", "others")
    assert qloom.resume("last").result == 2


@pytest.mark.slow
def test_scancel_of_nodes_that_a_job_waits_for_to_grow_leaves_it_as_it_is(slurm_env):
    slurm_env.run("salloc", "--no-shell", "-Q", "-J", "others", "-N2", "--exclusive")
    watcher = cancel_what_waits(slurm_env)
    outcome = qloom.run(
        programs.source(programs.phases_of_each_kind),
        world="slurm",
        strategy="malleable",
        options={"patience_s": 2.0},
    )
    watcher.join()
    slurm_env.run("scancel", "-n", "others")
    assert outcome.result == 1
    assert any(event["event"] == "allocation_ended" for event in as_lines(outcome.events))


# Programs of Slurm that fail, played by scripts


@pytest.fixture
def programs_of_slurm(tmp_path, monkeypatch):
    """A folder in front of PATH; `write(name, lines)` puts a script there that notes each of its calls in a file."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(workers_module, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(workers_module, "LONGEST_PAUSE_S", 0.01)

    def write(name, lines):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/{name}.calls\n{lines}\n')
        script.chmod(0o755)

    def calls(name):
        noted = tmp_path / f"{name}.calls"
        return noted.read_text().splitlines() if noted.exists() else []

    write.calls = calls
    return write


@pytest.mark.parametrize(
    ("printed", "starts"),
    [
        ("my database says: connection refused, socket timed out", 1),
        ("srun: error: Unable to contact slurm controller (connect failure)", 1 + workers_module.MOST_TRIES),
    ],
)
def test_a_worker_that_dies_is_started_again_only_for_what_srun_says_and_not_for_ever(
    programs_of_slurm, tmp_path, printed, starts
):
    programs_of_slurm("srun", f"echo '{printed}' >&2; exit 1")
    programs_of_slurm("squeue", "")

    async def start():
        client = Client()
        workers = StepWorkers(client, RealClock(), {}, tmp_path, "", None)
        try:
            await workers.begin(LeaseJob("7", ["c1"]), "c1")
        finally:
            client.close()

    with pytest.raises(WorkerDied, match="exited with 1"):
        asyncio.run(asyncio.wait_for(start(), 60))
    assert len(programs_of_slurm.calls("srun")) == starts
    assert (tmp_path / "7.c1.log").read_text().count(printed) == starts, "the user's own output is kept"


@pytest.mark.parametrize("taken", [True, False])
def test_a_submission_whose_answer_is_lost_is_not_made_twice(programs_of_slurm, tmp_path, taken):
    """The controller has taken the job, or not, when the first answer is lost."""
    name = f"$(sed -n 's/.*--job-name=\\([^ ]*\\).*/\\1/p' {tmp_path}/sbatch.calls | head -1)"
    row = f'echo "5|PENDING|||(null)|{name}||None"' if taken else ""
    programs_of_slurm("squeue", f'echo "4|RUNNING|1|2|c1|other||None"\n{row}')
    lost = "echo 'sbatch: error: Socket timed out on send/recv operation' >&2; exit 1"
    programs_of_slurm("sbatch", f"test -e {tmp_path}/again && echo 6 && exit\ntouch {tmp_path}/again; {lost}")

    async def run():
        client = Client()
        try:
            return await submit_batch(
                BatchJob("r1", "in-job", Request("first", "j1", 1, 1)), Site(), tmp_path, client
            )
        finally:
            client.close()

    assert asyncio.run(asyncio.wait_for(run(), 60)) == ("5" if taken else "6")
    assert len(programs_of_slurm.calls("sbatch")) == (1 if taken else 2)


def test_a_request_is_taken_back_also_from_a_salloc_that_forgets_a_signal(programs_of_slurm):
    """As Slurm's does if it comes before the controller has answered."""
    programs_of_slurm("salloc", "trap 'trap \"exit 1\" TERM' TERM\nwhile true; do sleep 0.02; done")
    programs_of_slurm("scancel", "")

    async def run():
        client = Client()
        asked = Salloc(client, ["salloc"], "name", lambda: True)
        granting = asyncio.ensure_future(asked.granted())
        await asyncio.to_thread(wait_until, lambda: programs_of_slurm.calls("salloc"), "a request")
        asked.withdraw()
        try:
            return await granting
        finally:
            client.close()

    assert asyncio.run(asyncio.wait_for(run(), 60)) is None
    assert "--name=name" in programs_of_slurm.calls("scancel")[-1], "the controller may have taken it"


def test_a_look_at_the_queue_that_fails_is_told_and_is_not_the_last():
    told, looks = [], []

    class Complaining:
        was_silent = False

        async def jobs(self):
            looks.append(1)
            raise JobError(f"squeue says: no {len(looks)}")

    class Holding:
        def all(self):
            return [LeaseJob("7", ["c1"])]

    async def look_three_times():
        watch = QueueWatch(Complaining(), 0.001, [], Holding(), lambda about, event: told.append(event))
        while len(looks) < 3:
            await asyncio.sleep(0.001)
        await watch.close()

    asyncio.run(asyncio.wait_for(look_three_times(), 60))
    assert told[:2] == [LookFailed(complaint=f"squeue says: no {number}") for number in (1, 2)]
