"""One writer of a journal, also where locks do not reach: on another host, or on a file system without any."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import qloom
from qloom.errors import JournalError
from qloom.identity import own_process
from qloom.journal import owner
from qloom.journal.file import FILE_NAME, await_writer, has_writer

ELSEWHERE = replace(own_process(), host="another-host", pid="77")
BEFORE_THE_BOOT = replace(own_process(), boot="an earlier one")


@pytest.fixture
def killed():
    """The directory of a run whose driver was killed, and left nothing but its journal."""
    outcome = qloom.run("phases", world="virtual")
    assert outcome.directory is not None
    journal = outcome.directory / FILE_NAME
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:5]))
    return outcome.directory


@pytest.fixture
def without_locks(monkeypatch):
    def refuse(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


def leave(directory, process):
    (directory / owner.FILE_NAME).write_text(json.dumps(asdict(process)))


def test_a_run_leaves_no_owner(killed):
    qloom.resume("last")
    assert not (killed / owner.FILE_NAME).exists()


def test_a_driver_on_another_host_is_named_and_nothing_is_written(killed):
    leave(killed, ELSEWHERE)
    before = (killed / FILE_NAME).read_bytes()
    with pytest.raises(JournalError, match="process 77 on another-host") as refused:
        qloom.resume("last")
    assert str(killed / owner.FILE_NAME) in (refused.value.hint or "")
    assert (killed / FILE_NAME).read_bytes() == before
    assert has_writer(killed) is None
    (killed / owner.FILE_NAME).unlink()  # as the hint says
    assert has_writer(killed) is False
    qloom.resume("last")


@pytest.mark.parametrize("process", [BEFORE_THE_BOOT, replace(own_process(), started="1"), own_process()])
def test_where_locks_work_one_host_needs_no_other_word(killed, process):
    leave(killed, process)
    assert has_writer(killed) is False
    qloom.resume("last")


@pytest.mark.usefixtures("without_locks")
def test_without_locks_a_live_driver_is_found_by_its_process(killed):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        ticks = Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19]
        leave(killed, replace(own_process(), pid=str(other.pid), started=ticks))
        with pytest.raises(JournalError, match=f"process {other.pid} on"):
            qloom.resume("last")
        other.communicate(b"\n")
    qloom.resume("last")


@pytest.mark.usefixtures("without_locks")
def test_without_locks_an_owner_that_cannot_be_read_is_not_passed_over(killed):
    (killed / owner.FILE_NAME).write_text("{")
    with pytest.raises(JournalError, match="another process writes its journal"):
        qloom.resume("last")


def test_whoever_waits_for_a_writer_elsewhere_waits_until_it_has_gone(killed, monkeypatch):
    leave(killed, ELSEWHERE)
    looks = []

    def look(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            owner.forget(killed)

    monkeypatch.setattr("time.sleep", look)
    await_writer(killed, 30.0)
    assert len(looks) == 3
