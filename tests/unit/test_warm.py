"""Warm starts: a parent that has imported forks workers, ends when not needed, and refuses what it must not fork."""

from __future__ import annotations

import asyncio
import os
import signal
import socket as sockets
import sys
import textwrap
from pathlib import Path

import pytest

from qloom.model import call
from qloom.worlds.process import WorkerDied, WorkerProcess
from tests.unit.processes import is_alive, wait_until

IMPORTS = """
    import os, time
    imported_by = os.getpid()

    def who(word):
        print("said", word)
        return os.getpid(), imported_by, os.getcwd(), os.environ.get("MARK")

    def crash():
        os.kill(os.getpid(), 11)

    def sleep():
        time.sleep(600)
"""
THREADS = """
    import threading
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
KEEP_S = 30.0


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A node of its own: where sockets are, under a path that is too long for a socket, and the program."""
    place = tmp_path / ("a" * 108)
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    yield place
    for socket in place.glob("qloom-warm-*/*.sock"):
        end_parent_of(socket)


def end_parent_of(socket: Path) -> None:
    """The parents of this test alone: those that listen on its sockets."""
    for number in os.listdir("/proc"):
        try:
            inherits = (
                number.isdigit() and f"TMPDIR={socket.parents[1]}\0" in Path(f"/proc/{number}/environ").read_text()
            )
        except OSError:
            continue
        if inherits and int(number) != os.getpid():
            os.kill(int(number), signal.SIGKILL)


def program(place: Path, *parts: str) -> dict:
    file = place / "imports.py"
    file.write_text("".join(textwrap.dedent(part) for part in parts))
    names = {"qloom_program_imports": str(file)}
    path = [entry or os.getcwd() for entry in sys.path]
    return {"path": path, "programs": names, "preload": list(names), "keep_warm_s": KEEP_S}


async def ready(set_up: dict, place: Path) -> WorkerProcess:
    worker = WorkerProcess("n1", set_up, place / "n1.log", environment={**os.environ, "MARK": "of this step"})
    await worker.ready
    return worker


def function(name: str):
    """A function of the program, by name: only workers can import it."""
    module = type(sys)("qloom_program_imports")
    made = lambda *arguments: None  # noqa: E731
    made.__module__, made.__name__, made.__qualname__ = module.__name__, name, name
    setattr(module, name, made)
    sys.modules[module.__name__] = module
    return made


def test_the_second_worker_is_forked_by_the_parent_of_the_first(place):
    async def main():
        set_up, found = program(place, IMPORTS), []
        for number in range(2):
            worker = await ready(set_up, place)
            log = place / "logs" / f"{number}.log"
            found.append((worker.is_warm, (await worker.run(call(function("who"), "hello"), {}, log)).result))
            assert log.read_text() == "said hello\n"
            worker.kill()
            pid = found[-1][1][0]
            wait_until(lambda pid=pid: not is_alive(pid), "the forked worker outlived its step")
        return found

    (cold, first), (warm, second) = asyncio.run(main())
    assert (cold, warm) == (False, True)
    assert first[1] == second[1]  # imported once, by the parent
    assert len({first[0], second[0], first[1]}) == 3
    assert first[2:] == second[2:] == (os.getcwd(), "of this step")


def test_a_crash_is_reported_as_of_any_worker(place):
    async def main():
        worker = await ready(program(place, IMPORTS), place)
        with pytest.raises(WorkerDied, match="SIGSEGV"):
            await worker.run(call(function("crash")), {})

    asyncio.run(main())


def test_a_parent_with_threads_does_not_fork(place):
    async def main():
        set_up = program(place, IMPORTS, THREADS)
        for _ in range(2):
            worker = await ready(set_up, place)
            pid, imported_by, *_ = (await worker.run(call(function("who"), "hello"), {})).result
            assert (worker.is_warm, pid) == (False, imported_by)
            worker.kill()

    asyncio.run(main())


def test_a_parent_that_nobody_needs_ends(place):
    async def main():
        worker = await ready({**program(place, IMPORTS), "keep_warm_s": 0.1}, place)
        _, parent, *_ = (await worker.run(call(function("who"), "hello"), {})).result
        assert is_alive(parent)  # as long as its worker lives
        worker.kill()
        wait_until(lambda: not is_alive(parent), "the parent stayed")

    asyncio.run(main())
    assert list(place.glob("qloom-warm-*/*.sock")) == []


def test_a_module_that_has_changed_since_it_was_imported_is_imported_again(place):
    helper = place / "warm_helper.py"

    async def main():
        set_up, found = program(place, IMPORTS, "import warm_helper\ndef word():\n    return warm_helper.WORD\n"), []
        set_up["path"] = [str(place), *set_up["path"]]
        for word in ("old", "newer", "newer"):
            helper.write_text(f"WORD = {word!r}\n")
            worker = await ready(set_up, place)
            found.append((await worker.run(call(function("word")), {})).result)
            worker.kill()
        return found

    assert asyncio.run(main()) == ["old", "newer", "newer"]


def test_another_version_of_the_program_has_another_parent(place):
    async def main():
        parents = []
        for version in ("", "\n# changed\n"):
            worker = await ready(program(place, IMPORTS, version), place)
            parents.append((await worker.run(call(function("who"), "hello"), {})).result[1])
            worker.kill()
        return parents

    first, second = asyncio.run(main())
    assert first != second


def start_twice(place: Path, between) -> list[bool]:
    """Whether each of two workers started warm."""

    async def main():
        set_up, found = program(place, IMPORTS), []
        for number in range(2):
            async with asyncio.timeout(KEEP_S):
                worker = await ready(set_up, place)
            found.append(worker.is_warm)
            worker.kill()
            if number == 0:
                between()
        return found

    return asyncio.run(main())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a process of another user listen")
def test_a_process_of_another_user_is_sent_nothing(place, monkeypatch):
    planted = sockets.socket(sockets.AF_UNIX)

    def plant():
        (path,) = place.glob("qloom-warm-*/*.sock")
        end_parent_of(path)
        path.unlink()
        monkeypatch.chdir(path.parent)  # the whole path may be too long
        planted.bind(path.name)
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            planted.listen()  # the kernel reports who listens
            os._exit(0)
        os.waitpid(child, 0)

    with planted:
        assert start_twice(place, plant) == [False, False]
        planted.settimeout(30)
        with planted.accept()[0] as connection:
            connection.settimeout(30)
            assert connection.recv(1000) == b""


def test_the_lock_is_no_link_to_another_file(place):
    precious = place / "precious"
    precious.write_text("kept")

    def plant():
        (lock,) = place.glob("qloom-warm-*/*.lock")
        lock.unlink()
        lock.symlink_to(precious)

    start_twice(place, plant)
    assert precious.read_text() == "kept"
