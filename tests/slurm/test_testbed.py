"""The testbed, for real: it comes up, does what it says, tells what is wrong, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from qloom.errors import InputError, QloomError
from qloom.testbed import Testbed, TestbedSettings
from qloom.testbed import testbed as testbed_module
from qloom.testbed.configs import Ports, broker_toml, loopback, slurm_conf, slurmdbd_conf
from qloom.testbed.place import free_ports, read_record, read_supervisor
from qloom.testbed.processes import descendants, left_over, name_of, start_ticks
from tests.slurm.waiting import kill_controller, until

QLOOM = [sys.executable, "-c", "from qloom.cli.main import run; run()"]
SMALL = TestbedSettings(nodes=1, vqpus=2, accounting=False, broker=False)
SHARED_MEMORY = """
import mmap, os, sys, time
with open(sys.argv[1], "wb+") as file:
    file.truncate(4096)
    held = mmap.mmap(file.fileno(), 4096)
open(sys.argv[2], "w").close()
time.sleep(600)
"""


@pytest.fixture
def name():
    """A name of its own; whatever happens, nothing of it stays."""
    own = f"t{os.getpid()}-{time.monotonic_ns() % 10**6}"
    yield own
    with contextlib.suppress(InputError):
        Testbed.find(own).down()


def qloom(*words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([*QLOOM, *words], capture_output=True, text=True, timeout=120, check=False, **options)


def job_steps(testbed: Testbed) -> list[tuple[int, int | None]]:
    """The slurmstepd of running jobs, found without the help of what `down` uses for orphans."""
    below = descendants(read_supervisor(testbed.directory)[0])
    return [(pid, start_ticks(pid)) for pid in below if name_of(pid) == "slurmstepd"]


def is_gone(testbed: Testbed, ports) -> bool:
    """No process, no directory with sockets, and nobody listens."""
    for port in (ports.slurmctld, ports.slurmdbd, *ports.slurmd):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return False
    return not left_over(testbed.directory) and not testbed.directory.exists()


def job_with_shared_memory(testbed: Testbed, directory: Path) -> Path:
    """A running job that has shared memory mapped."""
    memory = Path("/dev/shm") / f"qloom-test-{os.getpid()}-{time.monotonic_ns()}"
    (directory / "hold.py").write_text(SHARED_MEMORY)
    command = f"srun {sys.executable} {directory}/hold.py {memory} {directory}/mapped"
    testbed.run("sbatch", "--output=/dev/null", "--wrap", command)
    until((directory / "mapped").exists)
    return memory


@pytest.mark.slow
def test_down_leaves_nothing_of_running_jobs(slurm_programs, name, tmp_path):
    testbed = Testbed.up(name)
    ports = read_record(testbed.directory).ports
    memory = job_with_shared_memory(testbed, tmp_path)
    steps = job_steps(testbed)
    assert len(steps) == 2, "of the batch script and of its srun"
    assert testbed.directory.stat().st_mode & 0o777 == 0o700
    assert qloom("testbed", "down", name).returncode == 0
    assert is_gone(testbed, ports)
    assert not [pid for pid, ticks in steps if start_ticks(pid) == ticks]
    assert not memory.exists()


@pytest.mark.slow
def test_a_supervisor_killed_takes_its_daemons_along_and_the_rest_is_cleaned(slurm_programs, name, tmp_path):
    testbed = Testbed.up(name, SMALL)
    ports = read_record(testbed.directory).ports
    memory = job_with_shared_memory(testbed, tmp_path)
    steps = job_steps(testbed)
    daemons = [(row["pid"], start_ticks(row["pid"])) for row in testbed.status()]
    os.kill(read_supervisor(testbed.directory)[0], signal.SIGKILL)
    until(lambda: not any(start_ticks(pid) == ticks for pid, ticks in daemons))
    assert [pid for pid, ticks in steps if start_ticks(pid) == ticks], "orphans now, or this test shows nothing"

    shown = qloom("testbed", "status", name)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "has crashed (qloom testbed down)" in shown.stderr

    again = Testbed.up(name, SMALL)  # over the ruins
    assert not [pid for pid, ticks in steps if start_ticks(pid) == ticks]
    assert not memory.exists()
    assert again.run("srun", "printenv", "SLURMD_NODENAME") == "c1\n"
    again.down()
    assert is_gone(testbed, ports)


@pytest.mark.slow
def test_a_testbed_ends_with_whoever_wanted_it(slurm_programs, name):
    script = (
        "import os, sys; from qloom.testbed import TestbedSettings, Testbed; "
        f"Testbed.up({name!r}, TestbedSettings(nodes=1, accounting=False, broker=False), attached=True); "
        "os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    from qloom.testbed.place import default_directory

    until(lambda: not default_directory(name).exists() and not left_over(default_directory(name)))


@pytest.mark.slow
def test_interrupted_while_coming_up(slurm_programs, name):
    from qloom.testbed.place import default_directory

    process = subprocess.Popen([*QLOOM, "testbed", "up", name], stderr=subprocess.PIPE, text=True)
    until((default_directory(name) / "run" / "munge.sock").exists)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "qloom: interrupted: nothing was left"
    assert not left_over(default_directory(name))
    assert not default_directory(name).exists()


@pytest.mark.slow
def test_two_side_by_side(testbed, name):
    other = Testbed.up(name, TestbedSettings(nodes=1, vqpus=2, accounting=False, broker=False))
    assert sorted(row["name"] for row in other.nodes()) == ["c1", "q1"]
    assert len(testbed.nodes()) == 4
    other.kill("slurmctld")
    assert testbed.run("srun", "-N3", "printenv", "SLURMD_NODENAME").split() != []
    with pytest.raises(InputError, match="is up"):
        Testbed.up(name, SMALL)
    other.down()
    assert testbed.is_up()


@pytest.mark.slow
def test_a_port_that_somebody_takes_meanwhile_is_chosen_anew(name, monkeypatch):
    with socket.socket() as taken:
        taken.bind((loopback(), 0))
        taken.listen()
        chosen = [replace(free_ports(SMALL), slurmd=(taken.getsockname()[1],) * 2), free_ports(SMALL)]
        monkeypatch.setattr(testbed_module, "free_ports", lambda settings: chosen.pop(0))
        with Testbed.up(name, SMALL, attached=True) as testbed:
            assert "idle" in testbed.run("sinfo", "-h", "-o", "%T")
    assert chosen == []


@pytest.mark.slow
def test_status_tells_which_daemon_is_down_and_why(testbed):
    name = testbed.directory.name
    well = qloom("testbed", "status", name, "--quiet")
    assert (well.returncode, well.stdout) == (0, "up\n")
    testbed.kill("slurmdbd")
    try:
        shown = qloom("testbed", "status", name, env={**os.environ, "COLUMNS": "80"})
        told = json.loads(qloom("testbed", "status", name, "--json").stdout)
    finally:
        testbed.start("slurmdbd")
    assert shown.returncode == 1
    assert "killed by SIGKILL, as asked" in shown.stdout
    assert re.search(r"^slurmdbd: .*slurmdbd version \d", shown.stdout, re.MULTILINE), "the last lines of its log"
    assert max(len(line) for line in shown.stdout.splitlines()[:20]) <= 80
    assert [row["name"] for row in told["daemons"] if not row["up"]] == ["slurmdbd"]
    assert qloom("testbed", "status", name, "--quiet").returncode == 0


@pytest.mark.slow
def test_the_environment_is_for_eval(testbed):
    name = testbed.directory.name
    script = f'eval "$({" ".join(["qloom", "testbed", "env", name])})" && scontrol show config && qloom qpu list -q'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    assert f"{testbed.directory}/etc/slurm.conf" in done.stdout
    assert done.stdout.splitlines()[-1] == "qpu"


@pytest.mark.slow
def test_slurmctld_killed_and_started_again_keeps_the_jobs(testbed):
    job = testbed.run("sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 600").strip()

    def state() -> str:
        return testbed.run("squeue", "-h", "-j", job, "-o", "%T").strip()

    until(lambda: state() == "RUNNING")
    kill_controller(testbed)
    with pytest.raises((QloomError, subprocess.TimeoutExpired)):
        testbed.run("squeue", timeout_s=3)
    testbed.start("slurmctld")
    until(lambda: state() == "RUNNING")
    testbed.run("scancel", job)


@pytest.mark.slow
def test_a_node_goes_down_and_comes_back(testbed):
    testbed.set_node("c2", "DOWN", "a test")
    down = {row["name"]: row for row in testbed.nodes()}["c2"]
    assert (down["up"], down["why"]) == (False, "a test")
    testbed.set_node("c2", "RESUME")
    until(lambda: all(row["up"] for row in testbed.nodes()))


@pytest.mark.slow
def test_a_job_is_resized_more_than_once_and_accounted(testbed, tmp_path):
    job = testbed.run(
        "sbatch", "--parsable", "-N3", "--mincpus=4", "--output=/dev/null", "--wrap", "sleep 600", cwd=tmp_path
    ).strip()
    until(lambda: testbed.run("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING")
    for nodes in (2, 1):
        time.sleep(1.1)  # accounting counts whole seconds: a phase without one is not written down
        testbed.run("scontrol", "update", f"JobId={job}", f"NumNodes={nodes}", cwd=tmp_path)
        assert testbed.run("squeue", "-h", "-j", job, "-o", "%D").strip() == str(nodes)
    time.sleep(1.1)
    testbed.run("scancel", job)

    def phases() -> list[str]:
        return testbed.run("sacct", "-D", "-X", "-n", "-P", "-j", job, "-o", "NNodes,State").splitlines()

    until(lambda: any(phase.startswith("1|CANCELLED") for phase in phases()))
    assert phases()[:-1] == ["3|RESIZING", "2|RESIZING"]


@pytest.mark.slow
def test_the_broker_knows_callers_by_the_munge_of_the_testbed(testbed):
    import asyncio

    from qloom.broker.auth.peers import Munge
    from qloom.broker.client.transport import Transport

    async def ask(munge):
        transport = Transport(testbed.environment["QLOOM_BROKER"], munge=munge, retry_s=2.0)
        try:
            return await transport.ask("GET", "/v1/devices")
        finally:
            await transport.close()

    devices = asyncio.run(ask(Munge(socket=f"{testbed.directory}/run/munge.sock")))
    assert [(device["name"], device["shares"]) for device in devices] == [("qpu", testbed.settings.vqpus)]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_any_user_can_have_one(slurm_programs, tmp_path):
    other = pwd.getpwnam("daemon")  # nobody would not do: Slurm 26.05 refuses to run as that user
    drop = ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups"]
    place = Path("/tmp") / f"qloom-other-{os.getpid()}"
    place.mkdir(mode=0o700)
    os.chown(place, other.pw_uid, other.pw_gid)
    environment = {
        **os.environ,
        "HOME": str(place),
        "XDG_CACHE_HOME": str(place / "cache"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    environment.pop("XDG_RUNTIME_DIR", None)

    def as_other(*command: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*drop, *command], cwd="/", env=environment, capture_output=True, text=True, check=False
        )

    same_version = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    pythons = [one for one in (sys.executable, same_version) if as_other("test", "-x", one).returncode == 0]
    try:
        if not pythons or as_other(pythons[0], "-c", "import qloom.cli.main").returncode != 0:
            pytest.skip("another user can run no Python that has qloom here")
        if as_other("test", "-r", TestbedSettings().slurm_prefix or "/").returncode != 0:
            pytest.skip("another user cannot read the Slurm in the prefix")
        testbed = [pythons[0], *QLOOM[1:], "testbed"]
        came_up = as_other(*testbed, "up", "--directory", str(place / "d"), "--json")
        assert came_up.returncode == 0, came_up.stderr
        environment |= json.loads(came_up.stdout)["environment"]
        who = as_other("srun", "id", "-un")
        assert who.stdout == "daemon\n", who.stderr
        assert as_other(*testbed, "down", "--directory", str(place / "d")).returncode == 0
        assert not left_over(place / "d")
        assert not (place / "d").exists()
    finally:
        Testbed(place / "d", TestbedSettings()).down()
        shutil.rmtree(place)


def test_missing_programs_are_named_with_the_command_that_brings_them():
    done = qloom("testbed", "up", env={**os.environ, "PATH": "", "QLOOM_SLURM_PREFIX": ""})
    assert done.returncode == 2
    told = done.stderr.strip()
    assert told.startswith("qloom: a testbed needs programs that are not here: munged, slurmctld, slurmd, ")
    assert "mariadbd" in told
    assert "(apt-get install -y --no-install-recommends slurmctld " in told
    assert len(done.stderr.splitlines()) == 1


def prefix_with(place: Path, *files: str, script: str = "#!/bin/sh\n") -> Path:
    """A directory with empty programs, as far as a testbed looks before it starts any."""
    for name in files:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(script)
        (place / name).chmod(0o755)
    return place


PROGRAMS = [f"bin/{name}" for name in ("scontrol", "sinfo", "squeue", "sbatch", "salloc", "srun", "scancel", "sacct")]
PROGRAMS += ["bin/sacctmgr", "sbin/slurmctld", "sbin/slurmd", "sbin/slurmdbd", "sbin/slurmstepd"]


@pytest.mark.parametrize(
    ("files", "script", "told"),
    [
        ([], "", "qloom: no Slurm in PREFIX: slurmctld, slurmd, scontrol, "),
        (PROGRAMS[1:], "", "qloom: no Slurm in PREFIX: scontrol not found (--slurm-prefix takes a directory "),
        (PROGRAMS, "", "qloom: no Slurm in PREFIX: slurmstepd or auth_munge.so not found"),
        ([*PROGRAMS, "lib/slurm/auth_munge.so"], "#!/gone/ld.so\n", "qloom: PREFIX/sbin/slurmctld does not run: "),
        ([*PROGRAMS, "lib64/slurm/auth_munge.so"], "#!/bin/sh\necho a; echo b; exit 1\n", "does not run: b (--slurm"),
    ],
)
def test_a_prefix_without_a_slurm_that_runs_is_refused_in_one_line(slurm_programs, tmp_path, files, script, told):
    prefix = prefix_with(tmp_path, *files, script=script)
    done = qloom("testbed", "up", "--slurm-prefix", str(prefix))
    assert done.returncode == 2
    assert told.replace("PREFIX", str(prefix)) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_prefix_is_the_slurm_of_daemons_and_clients(tmp_path, monkeypatch):
    prefix = prefix_with(tmp_path, *PROGRAMS, "lib/x86_64-linux-gnu/slurm-wlm/auth_munge.so")
    monkeypatch.setenv("QLOOM_SLURM_PREFIX", str(prefix))
    settings = TestbedSettings()
    ports = Ports(1, 2, (3, 4, 5, 6))
    plugins = f"PluginDir={prefix}/lib/x86_64-linux-gnu/slurm-wlm"
    assert plugins in slurm_conf(Path("/d"), settings, ports).splitlines()
    assert plugins in slurmdbd_conf(Path("/d"), settings, ports).splitlines()
    testbed = Testbed(Path("/d"), settings)
    assert testbed.environment["PATH"].split(":")[:2] == [f"{prefix}/bin", f"{prefix}/sbin"]
    assert settings.installation.program("srun") == f"{prefix}/bin/srun"
    assert settings.installation.slurmstepd == prefix / "sbin" / "slurmstepd"
    monkeypatch.delenv("QLOOM_SLURM_PREFIX")
    assert "PATH" not in Testbed(Path("/d"), TestbedSettings()).environment
    assert "PluginDir" not in slurm_conf(Path("/d"), TestbedSettings(), ports)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["up", "--nodes", "0"], "qloom: a testbed has 1 to 64 nodes, not 0"),
        (["up", "--vqpus", "0"], "qloom: a testbed has 1 to 256 vQPUs, not 0"),
        (["up", "--site", "lax"], "qloom: unknown site 'lax' (choose one of open, strict)"),
        (["up", "--site", "strict", "--no-accounting"], "qloom: a strict site needs accounting"),
        (["up", "../up"], "qloom: '../up' is no name for a testbed"),
        (["env", "nobody-started-this"], "qloom: there is no testbed in "),
        (["down", "nobody-started-this"], "qloom: there is no testbed in "),
    ],
)
def test_bad_input_is_one_line(words, told):
    done = qloom("testbed", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(told)
    assert len(done.stderr.splitlines()) == 1


def test_a_path_too_long_for_sockets_is_refused(slurm_programs, tmp_path):
    with pytest.raises(InputError, match="too long a path"):
        Testbed.up(directory=tmp_path / ("d" * 80), settings=SMALL)


def test_a_directory_in_use_is_left_alone(slurm_programs):
    precious = Path(tempfile.mkdtemp(dir="/tmp"))  # tmp_path may be too long for sockets
    (precious / "thesis.tex").write_text("x")
    try:
        with pytest.raises(InputError, match="is not empty"):
            Testbed.up(directory=precious, settings=SMALL)
        assert (precious / "thesis.tex").exists()
    finally:
        shutil.rmtree(precious)


@pytest.mark.parametrize(("device", "kind"), [("qaoa", "qaoa"), ("pulser", "pulser"), ("annealing", "annealing")])
def test_the_broker_has_the_chosen_device(device, kind):
    config = tomllib.loads(broker_toml(Path("/d"), TestbedSettings(device=device)))
    assert config["devices"] == [{"kind": kind, "name": "qpu"}]


def test_an_unknown_device_is_one_line():
    done = qloom("testbed", "up", "--device", "anealing")
    assert done.returncode == 2
    assert done.stderr == "qloom: unknown device 'anealing' (did you mean annealing?)\n"
