"""What another user of the machine has planted in /tmp, in a home or among results is refused, not trusted."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import qloom
from qloom import call
from qloom.broker.config import default_address
from qloom.errors import InputError, JournalError, NotPrivate
from qloom.journal import home
from qloom.private import PrivateDirectory, read_private, runtime_directory
from qloom.testbed.configs import Ports
from qloom.testbed.place import PARTS, TestbedRecord, write_record
from qloom.testbed.processes import start_ticks
from qloom.testbed.settings import TestbedSettings

VICTIM, ATTACKER = 65534, 1
LIMIT_S = 60.0
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="NOT TESTED: two other user ids need root"
)


@pytest.fixture
def shared_tmp(open_path) -> Path:
    """A directory for temporary files, as /tmp is."""
    path = open_path / "t"
    path.mkdir()
    path.chmod(0o1777)
    return path


def as_victim(*words: str, tmp: Path, **variables: str) -> subprocess.CompletedProcess:
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp), "HOME": str(tmp), "QLOOM_HOME": str(tmp / "home")}
    command = ["setpriv", f"--reuid={VICTIM}", f"--regid={VICTIM}", "--clear-groups", sys.executable, "-m", "qloom"]
    return subprocess.run(
        [*command, *words],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=LIMIT_S,
    )


@contextlib.contextmanager
def planted_testbed(root: Path, supervisor: tuple[int, int]) -> Iterator[Path]:
    """A testbed of the attacker's that answers as if it were up, where the victim's own would be."""
    place = root / "default"
    place.mkdir(parents=True)
    for part in PARTS:
        (place / part).mkdir()
    write_record(place, TestbedRecord(TestbedSettings(), Ports(1, 2, (3, 4, 5, 6))))
    (place / "run" / "supervisor.json").write_text(json.dumps(supervisor))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "run" / "control.sock"))
        listener.listen()
        for path in (root, *root.rglob("*")):
            os.chown(path, ATTACKER, ATTACKER)
            path.chmod(0o777)
        answers = threading.Thread(target=_answer, args=(listener,), daemon=True)
        answers.start()
        yield place
        listener.shutdown(socket.SHUT_RDWR)
        answers.join(LIMIT_S)


def _answer(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b'{"daemons": []}\n')


@pytest.mark.parametrize("link", [False, True])
def test_no_command_of_the_testbed_trusts_what_another_user_has_planted(shared_tmp, open_path, link):
    root = shared_tmp / f"qloom-{VICTIM}"
    sleeper = subprocess.Popen(["setpriv", f"--reuid={VICTIM}", "--clear-groups", "sleep", "600"])
    try:
        with planted_testbed(open_path / "e" if link else root, (sleeper.pid, start_ticks(sleeper.pid))) as place:
            if link:
                root.symlink_to(open_path / "e")
                os.lchown(root, ATTACKER, ATTACKER)
            for command in ("env", "status", "down"):
                done = as_victim("testbed", command, tmp=shared_tmp)
                assert (done.returncode, done.stdout) == (2, ""), (command, done.stderr)
                assert "belongs to another user" in done.stderr or "another user has made" in done.stderr
            assert sleeper.poll() is None, "the planted file named a process of the victim's"
            assert (place / "testbed.json").exists()
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_runtime_directory_of_another_user_is_not_used(tmp_path, monkeypatch):
    """As after `su` and `sudo -E`."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_directory() == tmp_path
    assert default_address() == f"unix:{tmp_path}/qloom-broker.sock"
    for change in (
        lambda: os.chown(tmp_path, ATTACKER, -1),
        lambda: (os.chown(tmp_path, 0, -1), tmp_path.chmod(0o777)),
    ):
        change()
        assert runtime_directory() is None
        assert default_address() == f"unix:{home.home()}/broker/broker.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    assert runtime_directory() is None


def test_a_home_of_another_user_is_refused(shared_tmp):
    planted = shared_tmp / "home"
    (planted / "runs").mkdir(parents=True)
    for path in (planted, planted / "runs"):
        os.chown(path, ATTACKER, ATTACKER)
        path.chmod(0o777)
    done = as_victim("run", "phases", "--world", "virtual", tmp=shared_tmp)
    assert done.returncode == 2
    assert "belongs to another user" in done.stderr
    assert "QLOOM_HOME" in done.stderr
    assert list((planted / "runs").iterdir()) == []
    os.chown(planted, VICTIM, VICTIM)  # the runs in it are still the attacker's
    assert "belongs to another user" in as_victim("run", "phases", "--world", "virtual", tmp=shared_tmp).stderr


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777])
def test_a_home_of_an_older_version_goes_on_and_is_closed_to_others(qloom_home, mode):
    first = qloom.run("phases", world="virtual")
    for path in (qloom_home, qloom_home / "runs", first.directory, first.directory / "results"):
        path.chmod(mode)
    assert qloom.resume("last").result == first.result
    qloom.run("phases", world="virtual")
    for path in (qloom_home, qloom_home / "runs", first.directory):
        assert not path.stat().st_mode & 0o022


class Evil:
    """Runs code when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (Path.touch, (self.mark,))


async def long_text(job):
    return await job.classical(call(str.upper, "x" * 5000))


@pytest.mark.parametrize("planted", ["owner", "link", "writable", "fifo"])
def test_a_result_that_another_user_could_have_written_is_not_read(tmp_path, planted):
    outcome = qloom.run(long_text, world="virtual")
    results = outcome.directory / "results"
    evil = pickle.dumps(Evil(tmp_path / "mark"))
    (tmp_path / "evil").write_bytes(evil)
    for result in list(results.iterdir()):
        result.unlink()
        if planted == "fifo":
            os.mkfifo(result)
        elif planted == "link":
            result.symlink_to(tmp_path / "evil")
        else:
            result.write_bytes(evil)
        if planted == "owner":
            os.chown(result, ATTACKER, -1)
        if planted == "writable":
            result.chmod(0o666)
    if planted == "writable":
        results.chmod(0o755)
    with pytest.raises(InputError, match=r"belongs to another user|is not a|others can write"):
        qloom.resume("last")
    assert not (tmp_path / "mark").exists()


def test_a_run_that_is_a_link_to_somebody_elses_is_refused(qloom_home, tmp_path):
    outcome = qloom.run("phases", world="virtual")
    foreign = tmp_path / "foreign"
    shutil.copytree(outcome.directory, foreign)
    for path in (foreign, *foreign.rglob("*")):
        os.chown(path, ATTACKER, -1)
    (qloom_home / "runs" / "99991231-235959-000000").symlink_to(foreign)
    with pytest.raises(JournalError, match="belongs to another user"):
        qloom.resume("last")


def test_a_private_directory(tmp_path):
    own = tmp_path / "own"
    with PrivateDirectory.open(own, make=True) as directory:
        directory.write("a", b"1")
        assert (directory.read("a"), read_private(own / "a")) == (b"1", b"1")
        assert (own / "a").stat().st_mode & 0o777 == 0o600
        with pytest.raises(FileNotFoundError):
            directory.read("b")
        (own / "link").symlink_to(own / "a")
        with pytest.raises(NotPrivate, match="is not a file"):
            directory.read("link")
        with pytest.raises(NotPrivate, match="is not a directory"):
            directory.enter("a")
    (tmp_path / "mine").symlink_to(own)
    assert read_private(tmp_path / "mine" / "a") == b"1", "one's own link is as good as the directory"
    os.lchown(tmp_path / "mine", ATTACKER, -1)
    with pytest.raises(NotPrivate, match="another user has made"):
        read_private(tmp_path / "mine" / "a")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(NotPrivate, match="is not a directory"):
        PrivateDirectory.open(tmp_path / "loop")
