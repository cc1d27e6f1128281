"""The result and the logs of a submitted run, asked for before it starts, while it runs and after it."""

from __future__ import annotations

import subprocess
import textwrap

import pytest

from tests.slurm.driver import DEADLINE_S, QLOOM, start

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
    run = submitted.stdout.strip()
    following = start("logs", run, "-f", "--task", "j1/")
    assert following.stdout is not None
    lines = [following.stdout.readline() for _ in range(2)]
    assert lines == ["j1/001-say-1 | said one\n", "j1/002-sh-1 | begun\n"]
    early = qloom("result", run)
    assert early.returncode == 2
    assert f"run {run} has no result yet: it is still running" in early.stderr
    (tmp_path / "pipe").write_text("more\n")
    rest, end = following.communicate(timeout=DEADLINE_S)
    assert "j1/002-sh-1 | more\n" in rest
    assert end == f"run {run}: done\n"
    assert qloom("result", run, "-q").stdout == "all done\n"
