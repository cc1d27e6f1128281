"""The result and the logs of a submitted run, asked for before it starts, while it runs and after it."""

from __future__ import annotations

import subprocess
import textwrap

import pytest

from qloom.journal.events import Granted, WorkerStarted
from qloom.runs.runner import run
from qloom.site import Site, Slurm
from tests.broker.processes import Service
from tests.slurm import programs
from tests.slurm.driver import DEADLINE_S, QLOOM, start
from tests.slurm.waiting import until

pytestmark = pytest.mark.slow

PROGRAM = """
    from qloom import command, task

    @task
    def say(word):
        print("said", word)

    async def program(job):
        await job.classical(say("one"))
        await job.classical(command("sh", "-c", "echo begun; read word < pipe; echo $word"))
        return "all done"
"""


def qloom(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([QLOOM, *words], capture_output=True, text=True, check=False, timeout=DEADLINE_S)


@pytest.mark.usefixtures("slurm_env")
def test_a_submitted_run_is_followed_to_its_end_and_has_its_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prints.py").write_text(textwrap.dedent(PROGRAM))
    subprocess.run(["mkfifo", "pipe"], check=True)
    submitted = qloom("submit", "prints.py", "--driver", "in-job", "--nodes", "1")
    assert submitted.returncode == 0, submitted.stderr
    name = submitted.stdout.strip()
    following = start("logs", name, "-f", "--task", "j1/")
    assert following.stdout is not None
    lines = [following.stdout.readline() for _ in range(2)]
    assert lines == ["j1/001-say-1 | said one\n", "j1/002-sh-1 | begun\n"]
    early = qloom("result", name)
    assert early.returncode == 2
    assert f"run {name} has no result yet: it is still running" in early.stderr
    (tmp_path / "pipe").write_text("more\n")
    rest, end = following.communicate(timeout=DEADLINE_S)
    assert "j1/002-sh-1 | more\n" in rest
    assert end == f"run {name}: done\n"
    assert qloom("result", name, "-q").stdout == "all done\n"


LOOP = """
    from qloom import task

    @task
    def double(n):
        return 2 * n

    async def program(job):
        number = 1
        for _ in range(3):
            (number,) = await job.classical(double(number))
        return number
"""


@pytest.mark.usefixtures("slurm_env")
@pytest.mark.parametrize("keep_s", [0.0, 5.0])
def test_workers_start_warm_only_where_the_site_allows_it(tmp_path, monkeypatch, keep_s):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "loop.py").write_text(textwrap.dedent(LOOP))
    site = Site(nodes=1, slurm=Slurm(keep_warm_s=keep_s))
    outcome = run(str(tmp_path / "loop.py"), world="slurm", strategy="workflow", site=site)
    assert outcome.result == 8
    starts = [event.warm for event in outcome.events if isinstance(event, WorkerStarted)]
    assert starts[0] is False
    assert any(starts) is bool(keep_s)
    assert bool(list(tmp_path.glob("qloom-warm-*/*.sock"))) is bool(keep_s)
    until(lambda: not list(tmp_path.glob("qloom-warm-*/*.sock")))  # it ends by itself


@pytest.mark.usefixtures("slurm_env")
def test_a_broker_of_one_s_own_works_with_the_gres_of_the_testbed(tmp_path):
    devices = [{"kind": "annealing", "name": "mine"}]
    service = Service(tmp_path, "tests.broker.plain", devices=devices, promise={"shares": 8})
    service.start()
    try:
        for strategy in ("vqpu", "coschedule"):  # a share, and the whole device
            site = Site(nodes=1, broker=service.address)
            outcome = run(programs.source(programs.two_quantum), world="slurm", strategy=strategy, site=site)
            assert outcome.errors == []
            held = [event.device for event in outcome.events if isinstance(event, Granted) and event.device]
            assert held == ["mine"]
    finally:
        service.stop()
