"""Steps of exported programs that run on a node: a quantum one, and the one that decides whether a loop continues.

A quantum step is emulated, run by the command that stands in for the device, or sent to a broker. A loop has a
limit, and perhaps a job file's condition on a value in a JSON file.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from qloom.errors import InputError, JobError, PayloadError
from qloom.export.records import is_recorded, perform_command, record
from qloom.jobfile.files import is_met, read_qubo, read_value, write_sample
from qloom.jobfile.model import Until
from qloom.journal.content import digest, payload_key
from qloom.journal.results import write_atomically
from qloom.model import Payload, Sample, command


def run_quantum_step(
    payload: Path,
    result: Path,
    shots: int,
    seconds: float | None,
    instead: list[str],
    seed: int = 0,
    device: str | None = None,
    asked: Path | None = None,
) -> str:
    """Make the answer of a payload; returns who made it. `asked` counts how often each payload was asked before."""
    if instead:
        recorded = read_payload(payload, shots, seconds, device)[0] if is_recorded() else None
        exit_code = perform_command(command(*instead, capture=(str(result),)), (), recorded)
        if exit_code != 0:
            raise JobError(f"{instead[0]}, in place of the device, exited with {exit_code}")
        if not result.exists():
            raise JobError(f"{instead[0]}, in place of the device, did not make {result}")
        return instead[0]
    sent, own_seed = read_payload(payload, shots, seconds, device)
    began_us, began_s = time.time_ns() // 1000, time.monotonic()
    sample = _solved(sent, own_seed if own_seed is not None else _seed_of(sent, seed, asked))
    took_s = time.monotonic() - began_s
    time.sleep(max(0.0, (sent.seconds or 0.0) - took_s))  # an emulated device takes its time
    write_atomically(result, write_sample(sample))
    record(payload_key(sent), payload.stem, sample, began_us)
    return "annealing"


def send_quantum_step(
    payload: Path, result: Path, shots: int, seconds: float | None, device: str | None, instead: list[str]
) -> str:
    """Send a payload to the broker of this environment and wait for its answer; returns the task that made it.

    If something may stand in for the device, it does so while none is available.
    """
    from qloom.broker.client.sync import SyncBrokerClient

    sent, seed = read_payload(payload, shots, seconds, device)
    form = {"kind": sent.kind, "body": sent.body, "shots": sent.shots, "seconds": sent.seconds, "name": payload.stem}
    options = {"options": {"seed": seed}} if seed is not None else {}
    if not sent.body["linear"]:
        write_atomically(result, write_sample(Sample({}, 0.0)))
        return "nobody: there is nothing to ask"
    with SyncBrokerClient(retry_s=10.0) as broker:
        usable = [
            view for view in broker.devices() if device in (None, view["name"]) and view["up"] and not view["held"]
        ]
        if instead and not usable:
            return run_quantum_step(payload, result, shots, seconds, instead, device=device)
        task = broker.submit({**form, **options}, device=device)["id"]
        try:
            answer = broker.result(task)
        except BaseException:  # the step is ended: the task is not to be left in the queue
            broker.cancel(task)
            raise
    best = Sample({_label(name): value for name, value in answer["values"]}, answer["energy"])
    write_atomically(result, write_sample(best))
    return f"quantum task {task}"


def _label(name: Any) -> Any:
    return tuple(name) if isinstance(name, list) else name


def read_answer(path: Path, sent: Payload) -> Sample:
    """The sample that a step's result file holds, with the names that its payload has."""
    answer = json.loads(path.read_bytes())
    values = {name: int(answer["sample"][str(name)]) for name, _ in sent.body["linear"]}
    return Sample(values, float(answer["energy"]))


def read_payload(
    path: Path, shots: int = 100, seconds: float | None = None, device: str | None = None
) -> tuple[Payload, int | None]:
    """A file that holds a QUBO, or one in the envelope that brokers take, with its seed."""
    try:
        content: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise PayloadError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise PayloadError(f"{path} is not JSON: {error}") from None
    if isinstance(content, dict) and {"kind", "body"} <= content.keys():
        if content["kind"] != "qubo":
            raise PayloadError(f"{path}: only a QPU can run {content['kind']!r}", hint="put the step on a QPU")
        sent = Payload("qubo", content["body"], content.get("shots", shots), content.get("seconds", seconds), device)
        return sent, content.get("options", {}).get("seed")
    return read_qubo(path.name, json.dumps(content).encode(), shots=shots, seconds=seconds, device=device), None


def _solved(sent: Payload, seed: int) -> Sample:
    from qloom.worlds.answers import solve

    solved: Sample = solve(sent, seed)
    return solved


def _seed_of(sent: Payload, seed: int, asked: Path | None) -> int:
    """The seed that a run of qloom's would use: another one each time that the same payload is sent."""
    key = payload_key(sent)
    counts = _counts(asked)
    if asked is not None:
        write_atomically(asked, json.dumps({**counts, key: counts.get(key, 0) + 1}).encode())
    return int(digest("seed", seed, key, counts.get(key, 0))[:7], 16)


def _counts(asked: Path | None) -> dict[str, int]:
    if asked is None or not asked.exists() or not asked.stat().st_size:
        return {}
    try:
        return dict(json.loads(asked.read_bytes()))
    except ValueError as error:
        raise PayloadError(f"{asked} is not JSON: {error}", hint="it is the step's own file: remove it") from None


def proceeds(
    folder: Path, iteration: int, max_iterations: int, file: str | None, key: str, limits: dict[str, Any]
) -> bool:
    """Whether there is another iteration after this one."""
    met = False
    if file is not None:
        try:
            until = Until(file=file, key=key, **limits)
            content = (folder / file).read_bytes()
        except ValidationError:
            raise InputError(
                "a condition has a key and exactly one limit", hint="--key score --at-least 0.8"
            ) from None
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}") from None
        met = is_met(until, file, read_value(until, file, content))
    return iteration < max_iterations and not met
