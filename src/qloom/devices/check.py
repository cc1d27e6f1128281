"""The check of a payload against a device's description, and what is read off a payload beside it."""

from __future__ import annotations

import math

from qloom.device import Description, DeviceTarget
from qloom.errors import PayloadError
from qloom.model import OWN_OPTIONS, Payload, PayloadFacts
from qloom.payloads.wire import facts_of

BODILESS = ("delay", "command")  # payloads whose body nobody has to read
WORDS = {"qubo": ("QUBO", "variables"), "openqasm3": ("circuit", "qubits"), "pulser": ("Pulser sequence", "atoms")}


def check_payload(description: Description, payload: Payload) -> None:
    """Raise `PayloadError` for what this device cannot take; the reason names both sizes if it is too large."""
    check_frame(description, payload)
    if payload.kind in BODILESS:
        return
    facts, name = facts_of(payload), description.name
    _check_shots(description, facts.shots)
    if payload.kind in WORDS:
        what, unit = WORDS[payload.kind]
        for value, most, of in (
            (facts.size, _most(description), unit),
            (facts.used, description.max_used or description.qubits, f"{unit} in use"),
            (facts.circuits, description.max_circuits, "circuits (max_circuits)"),
            (facts.bits, description.max_bits, "classical bits (max_bits)"),
            (facts.operations, description.max_operations, "operations when written out (max_operations)"),
            (facts.duration_ns, description.max_duration_ns, "ns of pulses (max_duration_ns)"),
        ):
            if value > most:
                raise PayloadError(
                    f"the {what} has {_number(value)} {of}, {name} takes up to {most}",
                    hint="use a larger device, or a smaller problem",
                )
        if (expected := _answer_bytes(facts, payload.shots)) > description.max_answer_bytes:
            raise PayloadError(
                f"the answer may have {_number(expected)} bytes, {name} gives up to {description.max_answer_bytes} "
                "(max_answer_bytes)",
                hint="ask for fewer shots, circuits or bits",
            )
        if description.target is not None:
            _check_target(description, description.target, facts)
    if facts.local and not description.local_addressing:
        raise PayloadError(
            f"{facts.local}, and {name} has no local addressing",
            hint="treat all alike, or use a device with local addressing",
        )


def _most(description: Description) -> int:
    """A machine may have more qubits than the emulator in its place can hold at once."""
    return description.target.qubits if description.target is not None else description.qubits


def _check_target(description: Description, target: DeviceTarget, facts: PayloadFacts) -> None:
    """Refuse what a machine that does not compile could not run as it is."""
    name, hint = description.name, "transpile it to the device's target; job.qiskit_sampler() does so"
    if target.channels and (missing := [one for one in facts.channels if one not in target.channels]):
        raise PayloadError(
            f"the sequence uses channel {missing[0]}, and {name} has {', '.join(target.channels)}",
            hint="declare a channel that the device has",
        )
    if description.compiles:
        return
    native = [gate.name for gate in target.gates]
    foreign = [gate for gate in facts.gates if native and gate not in native]
    if foreign:
        raise PayloadError(f"{name} has no gate {foreign[0]!r}: it has {', '.join(native)}", hint=hint)
    if target.couplings:
        if facts.scattered:
            raise PayloadError(f"the circuit has a gate whose qubits {name} cannot know beforehand", hint=hint)
        coupled = {frozenset(pair) for pair in target.couplings}
        for u, v in facts.pairs:
            if frozenset((u, v)) not in coupled:
                raise PayloadError(f"qubits {u} and {v} are not coupled on {name}", hint=hint)


def _answer_bytes(facts: PayloadFacts, shots: int) -> int:
    """The most that counts can take: one line for each different outcome."""
    if not facts.bits:
        return 0
    outcomes = min(shots, 2 ** min(facts.bits, 60))
    return int(facts.circuits * outcomes * (facts.bits + 12))


def _number(value: int) -> str:
    return str(value) if value < 10**15 else f"about 1e{len(str(value)) - 1}"


def check_frame(description: Description, payload: Payload) -> None:
    """What holds for every kind: the kind itself, shots, seconds and options."""
    if payload.kind not in description.payloads:
        takes = ", ".join(description.payloads)
        raise PayloadError(f"{description.name} takes {takes}, not {payload.kind!r}")
    shots, seconds = payload.shots, payload.seconds
    if isinstance(shots, bool) or not isinstance(shots, int) or shots < 1:
        raise PayloadError(f"shots must be a whole number of at least 1, not {shots!r}")
    _check_shots(description, shots)
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
        raise PayloadError(f"seconds must be a number, not {type(seconds).__name__}")
    if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
        raise PayloadError(f"a task cannot take {seconds} seconds")
    if not isinstance(payload.options, dict):
        raise PayloadError(f"options must be a table, not {type(payload.options).__name__}")
    if description.options is not None:
        for option in payload.options:
            if option not in description.options and option not in OWN_OPTIONS:
                has = f"it has {', '.join(description.options)}" if description.options else "it has none"
                raise PayloadError(f"{description.name} has no option {option!r}", hint=has)


def _check_shots(description: Description, shots: int) -> None:
    if shots > description.max_shots:
        raise PayloadError(f"the task has {shots} shots, {description.name} takes up to {description.max_shots}")


def seconds_of(description: Description, payload: Payload) -> float:
    """Set-up + circuits x shots x seconds per shot.

    An emulated device takes as long as the payload says, if it says so. Nobody can make a vendor's machine take a
    given time, so there the payload's seconds mean nothing. A vendor's own payload has its own shots; if they cannot
    be read, it takes as long as the longest that the device takes.
    """
    if payload.seconds is not None and description.emulated:
        return float(payload.seconds)
    circuits, shots = 1, payload.shots
    if payload.kind in ("openqasm3", "qrmi"):
        facts = facts_of(payload)
        circuits = facts.circuits
        if payload.kind == "qrmi":
            shots = facts.shots or description.max_shots
    return description.set_up_s + circuits * shots * description.per_shot_s


def set_up_key_of(payload: Payload) -> str | None:
    """The same problem, the same circuit whatever its angles, the same register of atoms."""
    return facts_of(payload).set_up
