"""A notification at the end of a run: a command is started, or JSON is posted to a URL.

It is sent when the run is over and its journal is closed, and has a few seconds. Whatever becomes of it, the run ends
as it would have: a notification that failed is one line on standard error. A URL may hold a secret, so only its host
is ever printed.
"""

from __future__ import annotations

import http.client
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from qloom.errors import InputError, QloomError
from qloom.journal import file
from qloom.journal.home import run_state
from qloom.views.summary import human_us

WITHIN_S = 10.0
SCHEMES = ("http", "https")


@contextmanager
def notifying(target: str | None) -> Iterator[None]:
    """Notify `target`, a command or a URL, when the run that is made meanwhile has ended, however it did."""
    if target is None:
        yield
        return
    require_target(target)
    before = list(file.written)
    try:
        yield
    finally:
        if file.written and file.written != before and file.written[-1].is_dir():
            notify(target, file.written[-1])


def require_target(target: str) -> None:
    """Refuse a target before the run begins instead of at its end."""
    if is_url(target):
        _require_url(target)
        return
    if "://" in target:
        raise InputError("a notification goes to an http or https URL, or to a command", hint="--notify https://...")
    words = _words(target)
    if not words or shutil.which(words[0]) is None:
        raise InputError(
            f"there is no command {words[0] if words else target!r} to notify", hint="name a program, or a URL"
        )


def _require_url(url: str) -> None:
    """Refuse what could not be posted to; no message repeats a part of the URL."""
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:  # of an address in brackets, or of the port
        is_whole = False
    if not is_whole:
        raise InputError("the URL to notify has no host, or a wrong port", hint="--notify https://HOST/PATH")
    if "@" in parts.netloc:
        raise InputError("the URL to notify has a user name in it", hint="--notify https://HOST/PATH")
    if " " in url or not url.isprintable() or not f"{parts.path}{parts.query}".isascii():
        raise InputError("the URL to notify has characters that have to be escaped", hint="such as %20 for a space")


def is_url(target: str) -> bool:
    """Whether a notification is posted rather than given to a command."""
    return target.partition("://")[0].lower() in SCHEMES and "://" in target


def notify(target: str, directory: Path) -> None:
    """Notify of a run that has ended; takes `WITHIN_S` at most and never raises."""
    try:
        message = _message(directory)
    except QloomError as error:
        _complain(str(error))
        return
    problem: list[str] = []

    def send() -> None:
        try:
            (_post if is_url(target) else _start)(target, message)
        except (OSError, ValueError, http.client.HTTPException, subprocess.SubprocessError) as error:
            problem.append(_in_words(target, error))

    sending = threading.Thread(target=send, name="qloom-notify", daemon=True)  # a host name may take long to resolve
    sending.start()
    sending.join(WITHIN_S)
    if sending.is_alive():
        problem.append(f"no answer within {WITHIN_S:g} s")
    for words in problem:
        _complain(words)


def _message(directory: Path) -> dict[str, Any]:
    events = file.read_events(directory)
    start, state = file.start_of(events), run_state(directory, file.ended_as(events))
    took_s = events[-1].at_us / 1e6
    program = os.path.basename(start.program or "the program")
    text = f"qloom: {program} under {start.strategy} is {state} after {human_us(events[-1].at_us)} ({directory.name})"
    plan = {"program": start.program, "strategy": start.strategy, "world": start.world, "jobs": start.jobs}
    return {"text": text, "run": directory.name, "state": state, "seconds": round(took_s, 3), **plan}


def _start(command: str, message: dict[str, Any]) -> None:
    variables = {"QLOOM_RUN": message["run"], "QLOOM_STATE": message["state"]}
    subprocess.run(
        _words(command),
        input=json.dumps(message).encode(),
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        timeout=WITHIN_S,
        check=True,
    )


def _post(url: str, message: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "qloom"}
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)  # noqa: S310  http(s) only
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:  # noqa: S310
        answer.read(65536)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise InputError(f"the command to notify cannot be read: {error}") from None


def _in_words(target: str, error: Exception) -> str:
    if is_url(target):
        code = f"answered {error.code}" if isinstance(error, urllib.request.HTTPError) else "could not be reached"
        return f"{urlsplit(target).hostname} {code}"
    if isinstance(error, subprocess.CalledProcessError):
        return f"{_words(target)[0]} ended with {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"{_words(target)[0]} did not end within {WITHIN_S:g} s"
    return f"{_words(target)[0]} could not be started: {error}"


def _complain(words: str) -> None:
    print(f"qloom: the notification failed: {words}", file=sys.stderr)
