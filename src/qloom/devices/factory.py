"""A device from what a config file says of it. Each wrong key or value is one clear line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qloom.device import Description, Device
from qloom.devices.calibration import CalibrationData, calibration_of
from qloom.devices.disruptions import DeviceFaults, Window, calibration_at, window_from
from qloom.devices.profiles import load_profile
from qloom.devices.solvers import OPTIONS, require
from qloom.devices.technologies import technology
from qloom.errors import InputError
from qloom.plugins import Registry
from qloom.world import Clock

# kind: technology, payloads; an emulated device takes delays as well, which only use its time
EMULATED: dict[str, tuple[str, tuple[str, ...]]] = {
    "annealing": ("annealer", ("qubo", "delay")),
    "exact": ("annealer", ("qubo", "delay")),
    "aer": ("superconducting", ("openqasm3", "delay")),
    "qaoa": ("superconducting", ("openqasm3", "qubo", "delay")),
    "pulser": ("neutral-atoms", ("pulser", "delay")),
}
DEVICES: Registry[Callable[[Mapping[str, Any]], Device]] = Registry(
    "qloom.devices",
    "kind of device",
    {
        **dict.fromkeys(EMULATED, "qloom.devices.factory:make_emulated"),
        "qrmi": "qloom.devices.factory:make_qrmi",
        "process": "qloom.devices.factory:make_process",
    },
    expected="a function of a table of the config",
    check=callable,
)
COMMON = ("kind", "name", "technology", "profile", "qubits", "lanes", "set_up_s", "per_shot_s", "local_addressing",
          "max_shots", "max_bits", "max_operations", "max_duration_ns", "max_answer_bytes", "memory_mib",
          "set_up_shared", "notes", "in_process", "vendor_queue", "can_stop", "compiles",
          "max_circuits", "max_used")  # fmt: skip
OWN = {
    **dict.fromkeys(EMULATED, ("calibration", "faults", "solver_time_limit_s", "noise")),
    "qrmi": ("resource", "type", "tokens", "secrets", "module", "acquire", "poll_s", "call_s", "patience_s", "python",
             "environment", "log", "tries", "pause_s"),
    "process": ("device", "python", "environment", "log", "call_s", "tries", "pause_s"),
}  # fmt: skip
MEANINGS = {  # for the reference of the config
    "kind": "What computes the answers.",
    "name": "What users call the device; its profile or kind if not given.",
    "technology": "The time scale that an emulated device keeps; a typical one of its kind if not given.",
    "profile": "A machine whose size, time scale and limits it takes instead of a technology's.",
    "qubits": "The largest problem: variables, qubits or atoms.",
    "lanes": "Tasks that run at once.",
    "set_up_s": "Seconds before the first shot of a task.",
    "per_shot_s": "Seconds for each shot of each circuit.",
    "local_addressing": "Whether each variable, qubit or atom can be driven separately.",
    "max_shots": "The most shots of one task.",
    "max_bits": "The most classical bits of one circuit.",
    "max_operations": "The most operations of one task, with loops and gate definitions written out.",
    "max_duration_ns": "The longest pulse sequence, in nanoseconds.",
    "max_answer_bytes": "The largest answer, in bytes.",
    "memory_mib": "Address space of each solver, or of the device's process, in MiB.",
    "set_up_shared": "Whether a task that follows one with the same set-up does not pay for it again.",
    "vendor_queue": "Whether tasks wait in a queue of the vendor's, too: then no wait is promised. Usual for `qrmi`.",
    "can_stop": "Whether a task that executes can be ended. If not, no wait is promised.",
    "compiles": "Whether it makes circuits fit its target; if not, those that do not fit are refused.",
    "max_circuits": "The most circuits of one task.",
    "max_used": "The most qubits or atoms that a circuit or sequence may use, if fewer than `qubits`.",
    "notes": "Text for users.",
    "in_process": "Whether it runs in the broker's own process: for tests and for `device` within `process`.",
    "calibration": 'Windows in which it starts nothing, in UTC: `{ at = "03:00", for_s = 1800 }`.',
    "noise": "Whether a gate machine is noisy, by the figures of its target; without it, answers are ideal.",
    "faults": "Faults that it is made to have, for tests: `seed`, `rates`, `script`.",
    "solver_time_limit_s": "Seconds after which the solver of a task is ended, and the task fails.",
    "resource": "The name of the resource in QRMI.",
    "type": "The type of the resource in QRMI.",
    "tokens": "The file that notes each task before it is handed over, on the broker's own disk.",
    "secrets": "A TOML file of mode 600 with what QRMI would otherwise read from the environment.",
    "module": "The Python module that is QRMI.",
    "acquire": "Whether the resource is acquired before a task and released after.",
    "poll_s": "Seconds between two questions to the vendor for the state of a task.",
    "call_s": "Seconds that one call may take.",
    "patience_s": "Seconds for which calls that fail are repeated.",
    "python": "The interpreter of its process; the broker's own if not given.",
    "environment": "Variables that are set for its process.",
    "log": "The file for what its process prints; dropped if not given.",
    "tries": "Attempts at a call whose process died.",
    "pause_s": "Seconds between two such attempts.",
    "device": "The table of the device that runs in the process.",
}
WHOLE = ("qubits", "lanes", "max_shots", "max_bits", "max_operations", "max_duration_ns", "max_answer_bytes",
         "max_circuits", "max_used", "memory_mib", "tries")  # fmt: skip
NUMBERS = (*WHOLE, "set_up_s", "per_shot_s", "solver_time_limit_s", "poll_s", "call_s", "patience_s", "pause_s")
ZERO_ALLOWED = ("set_up_s", "per_shot_s", "pause_s")
TEXTS = ("name", "technology", "profile", "notes", "resource", "type", "tokens", "secrets", "module", "python", "log")
LIMITS = ("qubits", "max_bits", "max_operations", "max_duration_ns", "max_answer_bytes")  # solvers keep them too
YES_OR_NO = ("local_addressing", "set_up_shared", "acquire", "in_process", "vendor_queue", "can_stop", "compiles",
             "noise")  # fmt: skip


def make_device(config: Mapping[str, Any]) -> Device:
    """The device that a table describes: `kind`, `name`, `technology` or `profile`, and what its kind knows."""
    return _make(config, twin=False)


def _make(config: Mapping[str, Any], *, twin: bool) -> Device:
    """A twin only answers what needs no device, for one that runs elsewhere: what that needs is not needed here."""
    kind = str(config.get("kind", "annealing"))
    make = DEVICES.choose(kind)
    if kind in DEVICES.built_in:
        _check(kind, config)
    if kind in EMULATED and not twin:
        require(kind)
    return make(config)


def _check(kind: str, config: Mapping[str, Any]) -> None:
    place = f"device {config.get('name', kind)}"
    for key, value in config.items():
        if key not in (*COMMON, *OWN[kind]):
            known = ", ".join(sorted((*COMMON, *OWN[kind])))
            raise InputError(f"{place}: {key} is not a known key of kind {kind}", hint=f"known are {known}")
        if key in NUMBERS:
            right = (int,) if key in WHOLE else (int, float)
            least = 0 if key in ZERO_ALLOWED else 1 if key in WHOLE else 1e-6
            if isinstance(value, bool) or not isinstance(value, right) or not least <= value < float("inf"):
                what = "a whole number of at least 1" if key in WHOLE else "a number above 0"
                raise InputError(f"{place}: {key} must be {what}, not {value!r}")
        elif key in TEXTS and (not isinstance(value, str) or not value):
            raise InputError(f"{place}: {key} must be text, not {value!r}")
        elif key in YES_OR_NO and not isinstance(value, bool):
            raise InputError(f"{place}: {key} must be true or false, not {value!r}")
    if "technology" in config and "profile" in config:
        raise InputError(f"{place}: give a technology or a profile, not both")
    for name, value in (config.get("environment") or {}).items():
        if not isinstance(value, str):
            raise InputError(f"{place}: environment.{name} must be text, not {value!r}")


def _description(config: Mapping[str, Any], technology_name: str, **given: Any) -> Description:
    """From a profile or a technology; what the config says itself comes last."""
    if "profile" in config:
        base = load_profile(config["profile"])
    else:
        scale = technology(config.get("technology", technology_name))
        base = Description(
            scale.name, scale.name, given["qubits"], given["payloads"], scale.set_up_s, scale.per_shot_s
        )
    own = {field.name: config[field.name] for field in dataclasses.fields(Description) if field.name in config}
    own.pop("technology", None)
    name = config.get("name") or config.get("profile") or config.get("kind", "annealing")
    limited = {**given, "qubits": own.get("qubits", min(base.qubits, given["qubits"]))}  # an emulator's own limit
    return dataclasses.replace(base, **{**own, **limited, "name": name})


def make_emulated(config: Mapping[str, Any]) -> Device:
    """A device that keeps a technology's time scale and has a solver of this machine compute its answers."""
    from qloom.devices.answers import MEMORY_MIB, SolverAnswers
    from qloom.devices.emulated import EmulatedDevice
    from qloom.world import UnixClock

    kind = str(config.get("kind", "annealing"))
    default, payloads = EMULATED[kind]
    description = _description(
        config, default, qubits=_largest(kind), payloads=payloads, emulated=True, options=OPTIONS[kind]
    )
    calibration = config.get("calibration", ())
    if not isinstance(calibration, list | tuple):
        raise InputError(f"device {description.name}: calibration is a list of windows, not {calibration!r}")
    windows, clock = [window_from(window) for window in calibration], UnixClock()
    answers = SolverAnswers(
        kind,
        {name: getattr(description, name) for name in LIMITS},
        float(config.get("solver_time_limit_s", 600.0)),
        int(config.get("memory_mib", MEMORY_MIB)),
        _noise(description, windows, clock) if config.get("noise") else None,
    )
    return EmulatedDevice(
        description,
        answers,
        clock,
        windows=windows,
        faults=_table(DeviceFaults, config.get("faults", {}), f"device {description.name}: faults"),
    )


def _noise(description: Description, windows: Sequence[Window], clock: Clock) -> Callable[[], CalibrationData]:
    """The figures of the calibration that a device has when it is asked."""

    def current() -> CalibrationData:
        found = calibration_of(description, calibration_at(windows, clock.now_us() / 1e6))
        if found is None or description.compiles:
            raise InputError(
                f"device {description.name}: noise needs a machine that does not compile, with figures of its errors",
                hint='profile = "iqm-20"',
            )
        return found

    current()
    return current


def _largest(kind: str) -> int:
    """What an emulator can hold on an ordinary machine."""
    if kind == "exact":
        from qloom.devices.solvers.exact import largest

        return largest()
    return {"annealing": 5000, "aer": 20, "qaoa": 20, "pulser": 12}[kind]


def _table(make: Callable[..., Any], values: Any, place: str) -> Any:
    known = [field.name for field in dataclasses.fields(make)]  # type: ignore[arg-type]
    if not isinstance(values, Mapping):
        raise InputError(f"{place} is a table, not {values!r}")
    for key in values:
        if key not in known:
            raise InputError(f"{place}.{key} is not a known key", hint=f"known are {', '.join(known)}")
    return make(**values)


def make_qrmi(config: Mapping[str, Any]) -> Device:
    """In a process of its own, unless this is that process: a vendor's call that hangs cannot be ended otherwise."""
    from qloom.devices.qrmi import QrmiDevice
    from qloom.devices.resource import TYPES

    place = f"device {config.get('name', 'qrmi')}"
    for key in ("resource", "type", "tokens"):
        if key not in config:
            raise InputError(f"{place}: a device of kind qrmi needs {key}", hint='type = "pasqal-cloud", for example')
    if config["type"] not in TYPES:
        raise InputError(f"{place}: QRMI has no type {config['type']!r}", hint=f"choose one of {', '.join(TYPES)}")
    payloads = TYPES[config["type"]][1]
    default = "neutral-atoms" if "pulser" in payloads else "superconducting"
    given = {"qubits": int(config.get("qubits", 10_000)), "payloads": payloads, "emulated": False}
    if "vendor_queue" not in config:  # others may use the machine, too, unless the site says that it is its own
        given["vendor_queue"] = True
    description = _description(config, default, **given, tells_billed_s=False)
    options = {key: config[key] for key in ("module", "acquire", "poll_s", "call_s", "patience_s") if key in config}
    secrets = Path(config["secrets"]) if "secrets" in config else None
    device = QrmiDevice(
        description, config["resource"], config["type"], Path(config["tokens"]), secrets=secrets, **options
    )
    if config.get("in_process"):
        return device
    return _in_process_of_its_own(device, {**config, "call_s": 4 * config.get("call_s", 60.0) + 5}, config)


def make_process(config: Mapping[str, Any]) -> Device:
    """A device in a separate process, which may die without the broker."""
    inner = config.get("device")
    if not isinstance(inner, Mapping):
        raise InputError(f"device {config.get('name', 'process')}: a device of kind process needs a table 'device'")
    named = {**inner, "name": config.get("name") or inner.get("name") or "process", "in_process": True}
    if named.get("kind") == "process":
        raise InputError(f"device {named['name']}: a process within a process is of no use")
    return _in_process_of_its_own(_make(named, twin=True), config, named)


def _in_process_of_its_own(twin: Device, config: Mapping[str, Any], inner: Mapping[str, Any]) -> Device:
    from qloom.devices.answers import MEMORY_MIB
    from qloom.devices.process import ProcessDevice

    here = ("python", "environment", "log", "tries", "pause_s")
    options: dict[str, Any] = {
        key: config[key] for key in ("python", "environment", "tries", "pause_s") if key in config
    }
    options["memory_mib"] = int(config.get("memory_mib", MEMORY_MIB))
    if "log" in config:
        options["log"] = Path(config["log"])
    if "call_s" in config:
        options["call_s"] = float(config["call_s"])
    return ProcessDevice(twin, {key: value for key, value in inner.items() if key not in here}, **options)
