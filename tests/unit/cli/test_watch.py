"""A run is watched while it runs, after its end and after a kill; and a command or a URL is notified of its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from qloom.cli import progress as progress_module
from qloom.cli.progress import shown, watch_run
from qloom.journal import home
from qloom.journal.events import Granted, JobSubmitted, Requested, RunStarted, TaskStarted
from qloom.journal.file import FILE_NAME, read_events
from qloom.runs.notify import notify
from tests.unit.cli.typed import QLOOM, refused, write

WAITS = """
    import time
    from pathlib import Path
    import qloom

    @qloom.task(expected_s=1)
    def until(path):
        while not Path(path).exists():
            time.sleep(0.02)
        return 7

    async def program(job, path: str):
        await job.classical(until(__file__))
        return (await job.classical(until(path)))[0]
"""

ELSEWHERE = json.dumps({"host": "elsewhere", "boot": "b", "namespace": "1", "pid": "1", "started": "1"})


def begin(flag):
    """A run in a process of its own that waits for a file; returns once its second task runs."""
    words = [str(QLOOM), "run", write("waits.py", WAITS), "--set", f"path={flag}", "--quiet"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    until_s = time.monotonic() + 60
    while time.monotonic() < until_s:
        names = home.run_names()
        if names and (home.runs_directory() / names[-1] / FILE_NAME).read_text().count("task_started") == 2:
            return process, names[-1]
        time.sleep(0.05)
    raise AssertionError("the run did not begin")


def lines_of(text):
    return [line.rstrip() for line in text.splitlines()]


def test_a_run_is_watched_until_it_ends(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(progress_module, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(progress_module, "LOOK_EVERY_S", 0.05)
    flag = tmp_path / "flag"
    process, run = begin(flag)
    now = cli("watch", "--once")
    assert "waits.py:program under offload, local: running for" in lines_of(now.out)[0]
    assert "1 call returned, 1 task done" in now.out
    assert "job j1 runs 1 task: until on n1" in now.out
    assert all(len(line) <= 80 for line in lines_of(now.out)), now.out
    assert cli("watch", run, "--json").json["state"] == "running"
    threading.Timer(0.5, flag.touch).start()
    seen = cli("watch")
    assert process.wait(60) == 0
    assert seen.code == 0
    assert "running for" in seen.out
    assert "done after" in seen.out


def test_a_run_that_was_killed_says_so_and_how_to_go_on(cli, tmp_path):
    process, run = begin(tmp_path / "flag")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    seen = cli("watch", run)
    assert seen.code == 1
    assert f"the run was killed or its process is gone: qloom resume {run}" in seen.out
    assert "until on n1" in seen.out


def test_the_end_is_estimated_from_an_earlier_run_of_the_same_plan(cli, tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    process, earlier = begin(flag)
    assert process.wait(60) == 0
    last = home.runs_directory() / earlier
    events = read_events(last)
    cut = (last / FILE_NAME).read_bytes().splitlines(keepends=True)
    first_return = next(place for place, event in enumerate(events) if event.event == "returned")
    now = home.new_run()
    (now / FILE_NAME).write_bytes(b"".join(cut[: first_return + 1]) + cut[first_return + 1][:10])  # and a torn line
    (now / "journal.owner").write_text(ELSEWHERE)  # nobody here can say whether its driver is there
    row = cli("watch", now.name, "--json").json
    assert row["estimated_from"] == earlier
    assert row["calls"] == 1
    assert 0 < row["done"] <= 1
    assert "call 1 of about 2" in cli("watch", now.name, "--once").out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"n":0,"at_us":0,"event":"run_started","version":99}\n', "this qloom reads up to"),
        (b'{"n":0,"at_us":0,"event":"run_started","version":1}\nno line\n', "line 2: no event"),
        (b"", "holds no run yet"),
    ],
)
def test_a_journal_that_cannot_be_read_is_one_clear_line(cli, content, words):
    run = home.new_run()
    (run / FILE_NAME).write_bytes(content)
    seen = cli("watch", run.name)
    assert words in seen.err
    assert len(seen.err.splitlines()) == 1
    assert "Traceback" not in seen.err


def test_names_that_would_move_the_cursor_are_spelled_out(tmp_path):
    run = home.new_run()
    events = [
        RunStarted(version=1, program="a\x1b[2J\u202eb.py", strategy="offload", world="local", site={"nodes": 1}),
        JobSubmitted(job="j1"),
        Requested(job="j1", lease="j1.1", nodes=1),
        Granted(job="j1", lease="j1.1", nodes=["n1"]),
        TaskStarted(job="j1", work="w", name="\x1b]0;title\x07", nodes=["n1"]),
    ]
    lines = [json.dumps({**event.as_dict(), "n": n}) for n, event in enumerate(events)]
    (run / FILE_NAME).write_text("\n".join(lines) + "\n")
    (run / "journal.owner").write_text(ELSEWHERE)
    text = StringIO()
    watch_run(run, Console(file=text, width=80), once=True)
    assert "\\u001b[2J\\u202eb.py" in text.getvalue()
    assert "\x1b" not in text.getvalue()
    assert "\u202e" not in text.getvalue()


def test_a_log_has_a_line_now_and_then_and_a_terminal_is_redrawn(monkeypatch):
    start = RunStarted(n=0, program="p.py", strategy="weave", world="virtual", site={"nodes": 2})
    monkeypatch.setattr(progress_module, "LINE_EVERY_S", 0.01)
    log = StringIO()
    with shown(Console(file=log, width=80), True) as progress:
        progress(start)
        until_s = time.monotonic() + 30
        while "p.py under weave" not in log.getvalue() and time.monotonic() < until_s:
            time.sleep(0.01)
    assert "p.py under weave, virtual: running for 0.0 s; 0 calls returned" in log.getvalue()
    drawn = StringIO()
    with shown(Console(file=drawn, force_terminal=True, width=80), True) as progress:
        progress(start)
    assert "nodes [..] 0 busy, 0 held idle, 2 free" in drawn.getvalue()


# Notifications


def test_a_command_is_notified_of_the_end(cli, tmp_path):
    write("note.sh", "#!/bin/sh\ncat > note.json\necho $QLOOM_STATE >> state\n")
    Path("note.sh").chmod(0o755)
    said = cli("run", "phases", "--world", "virtual", "--notify", f"{tmp_path}/note.sh", "--quiet")
    assert (said.code, said.err) == (0, "")
    note = json.loads(Path("note.json").read_text())
    assert (note["run"], note["state"]) == (home.find_run("last").name, "done")
    assert note["text"].startswith("qloom: phases under offload is done after")
    assert Path("state").read_text() == "done\n"


def test_a_run_that_fails_is_notified_of_too_and_fails_as_before(cli, tmp_path):
    write("note.sh", "#!/bin/sh\necho $QLOOM_STATE > state\n")
    write("not-a-program", "no script at all")
    for name in ("note.sh", "not-a-program"):
        Path(name).chmod(0o755)
    program = write("fails.py", "async def program(job):\n    raise KeyError('x')\n")
    assert cli("run", program, "--notify", f"{tmp_path}/note.sh").code == 1
    assert Path("state").read_text() == "failed\n"
    said = cli("run", program, "--notify", f"{tmp_path}/not-a-program")
    assert said.code == 1
    assert "not-a-program could not be started" in said.err
    refused(cli("run", program, "--notify", "no-such-command"), "no-such-command")
    refused(cli("run", program, "--notify", "ftp://x/"), "http or https")
    refused(cli("run", program, "--notify", "http:///x"), "no host")
    for url in (
        "http://ann:s3cret@127.0.0.1/",
        "http://127.0.0.1:s3cret/",
        "http://[::1/s3cret",
        "http://h/s3cret x",
    ):
        said = cli("run", program, "--notify", url)
        refused(said, "the URL to notify")
        assert "s3cret" not in said.err


@pytest.fixture
def web_hook():
    """A server on this machine that keeps what is posted."""
    posted = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "nonsense" in self.path:
                self.wfile.write(b"this is no HTTP\r\n\r\n")
                return
            posted.append(message)
            self.send_response(500 if "broken" in self.path else 204)
            self.end_headers()

        def log_message(self, *words):
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", posted
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_url_is_notified_and_never_printed(cli, web_hook, capfd):
    address, posted = web_hook
    said = cli("run", "phases", "--world", "virtual", "--notify", f"{address}/hook?secret=s3", "--quiet")
    assert (said.code, said.err) == (0, "")
    assert posted[0]["state"] == "done"
    notify(f"{address}/broken?secret=s3", home.find_run("last"))
    complaint = capfd.readouterr().err
    assert complaint == "qloom: the notification failed: 127.0.0.1 answered 500\n"
    notify(f"{address}/nonsense?secret=s3", home.find_run("last"))
    assert capfd.readouterr().err == "qloom: the notification failed: 127.0.0.1 could not be reached\n"


def test_a_notification_that_hangs_ends_nevertheless(cli, monkeypatch, capfd):
    monkeypatch.setattr("qloom.runs.notify.WITHIN_S", 0.3)
    cli("run", "phases", "--world", "virtual", "--quiet")
    notify("sleep 60", home.find_run("last"))
    assert "the notification failed" in capfd.readouterr().err
