"""Vendors' devices, through a stand-in of QRMI."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from qloom.devices.factory import make_device
from qloom.devices.lend import command
from qloom.devices.solvers import solve
from qloom.devices.tokens import TokenLog
from qloom.errors import CannotTell, InputError, PayloadError, QuantumFailed, UnknownTask, Unreachable
from qloom.model import Payload
from tests.unit.devices.examples import BELL, QUBO, answer_of, finish, gone, sequence

PULSES = Payload("pulser", sequence(), shots=30)
either = pytest.mark.parametrize("in_process", [True, False], ids=["here", "process"])


@either
def test_a_vendors_task_from_start_to_result(vendor, in_process):
    async def go():
        device = vendor.device(in_process=in_process)
        assert (device.description.payloads, device.description.emulated) == (("pulser", "qrmi"), False)
        assert await device.state() == "idle"
        id = await device.start("one", PULSES)
        assert await device.start("one", PULSES) == id == "task-1"
        states, status = await finish(device, id)
        assert states == ["executing", "done"]
        assert status.billed_s is None  # the vendor does not tell
        answer = await answer_of(device, id)
        assert answer == {"form": "vendor", "type": "pasqal-cloud", "value": {"counter": {"01": 30}}}
        other = await device.start("two", PULSES)
        await device.stop(other)
        assert (await finish(device, other))[1].state == "cancelled"
        with pytest.raises(UnknownTask):
            await device.wait("task-77")
        assert await device.tasks() == {}
        (vendor.folder / "offline").touch()
        assert await device.state() == "offline"
        assert (vendor.folder / "held").exists()
        await device.close()
        assert not (vendor.folder / "held").exists()
        with pytest.raises(PayloadError):
            await device.start("three", Payload("qubo", QUBO))

    asyncio.run(go())
    assert vendor.tasks() == ["task-1", "task-2"]


IBM = {"configuration": {"n_qubits": 5}, "properties": {"last_update_date": "2026-11-18T03:00:00Z"}}
IQM = {"dynamic_quantum_architecture": {"calibration_set_id": "7f2a", "qubits": ["QB1"]}}


@either
@pytest.mark.parametrize(
    ("says", "calibration"),
    [
        ({"target": IBM}, "2026-11-18T03:00:00Z"),
        ({"target": IQM}, "7f2a"),
        ({"metadata": {"calibration_id": "night"}, "target": IBM}, "night"),
        ({}, None),
        ({"target": [1, 2]}, None),
    ],
)
def test_a_vendors_calibration_is_what_its_metadata_or_target_says(vendor, in_process, says, calibration):
    async def go():
        vendor.says(**says)
        device = vendor.device(in_process=in_process)
        id = await device.start("one", PULSES)
        assert (await finish(device, id))[1].calibration == calibration
        assert await device.calibration() == calibration
        await device.close()

    asyncio.run(go())


def test_a_vendor_that_does_not_say_what_it_is_has_no_calibration(vendor):
    async def go():
        vendor.faults(target_raises=5)
        device = vendor.device(in_process=True)
        assert await device.calibration() is None
        await device.close()

    asyncio.run(go())


def test_a_vendors_states_are_ours(vendor):
    async def go():
        device = vendor.device(in_process=True)
        states = [await device.state()]
        for name in ("busy", "paused", "offline"):
            (vendor.folder / name).touch()
            states.append(await device.state())
        vendor.faults(no_status=1)
        states.append(await device.state())  # older ones only say whether they can be reached
        await device.close()
        return states

    assert asyncio.run(go()) == ["idle", "busy", "maintenance", "offline", "offline"]


@either
def test_a_vendor_that_flaps_is_asked_again_and_never_goes_back(vendor, in_process):
    vendor.faults(status_raises=3, status_flaps=4, result_late=2)

    async def go():
        device = vendor.device(in_process=in_process)
        id = await device.start("one", PULSES)
        states, _ = await finish(device, id)
        assert states == ["vendor_queued", "executing", "done"] or states == ["vendor_queued", "done"]
        assert (await answer_of(device, id))["value"] == {"counter": {"01": 30}}
        await device.close()

    asyncio.run(go())


@either
def test_a_start_that_fails_after_it_was_sent_is_never_repeated(vendor, in_process):
    vendor.faults(start_lost=1)

    async def go():
        device = vendor.device(in_process=in_process)
        with pytest.raises(CannotTell, match="connection reset"):
            await device.start("one", PULSES)
        with pytest.raises(CannotTell):
            await device.find("one")
        with pytest.raises(CannotTell):
            await device.start("one", PULSES)
        assert await device.find("never") is None
        await device.close()
        again = vendor.device(in_process=in_process)  # a broker that was started again
        with pytest.raises(CannotTell):
            await again.find("one")
        await again.close()

    asyncio.run(go())
    assert vendor.tasks() == ["task-1"]


def test_a_start_that_the_vendor_refused_can_be_repeated(vendor):
    vendor.faults(start_invalid=1, acquire_raises=1)

    async def go():
        device = vendor.device(in_process=True)
        with pytest.raises(Unreachable, match="login"):
            await device.start("one", PULSES)
        assert await device.find("one") is None
        with pytest.raises(QuantumFailed, match="did not take") as refused:
            await device.start("one", PULSES)
        assert not isinstance(refused.value, CannotTell)
        assert await device.find("one") is None
        assert await device.start("one", PULSES) == "task-1"
        await device.close()

    asyncio.run(go())


def test_an_answer_that_comes_too_late_is_noted(vendor):
    vendor.faults(start_slow=1)

    async def go():
        device = vendor.device(in_process=True, call_s=0.3)
        with pytest.raises(CannotTell):
            await device.start("one", PULSES)
        await asyncio.sleep(1.2)
        assert await device.find("one") == "task-1"
        await device.close()

    asyncio.run(go())


def test_the_process_dies_while_a_task_runs_and_while_one_is_handed_over(vendor):
    async def go():
        device = vendor.device()
        id = await device.start("one", PULSES)
        first = device.child.pid
        vendor.faults(status_dies=1)
        _, status = await finish(device, id)
        assert status.state == "done"
        assert device.child.pid != first
        assert gone(first)
        vendor.faults(start_dies=1)
        with pytest.raises(CannotTell):  # the vendor has it, but nobody noted its id: not started a second time
            await device.start("two", PULSES)
        assert vendor.tasks() == ["task-1", "task-2"]
        os.kill(device.child.pid, signal.SIGKILL)
        assert await device.find("one") == "task-1"
        assert await device.state() == "idle"
        await device.close()

    asyncio.run(go())


def test_a_process_that_always_dies_or_hangs_is_given_up(vendor):
    async def go():
        device = vendor.device(tries=2)
        id = await device.start("one", PULSES)
        vendor.faults(status_dies=10)
        with pytest.raises(Unreachable, match="ended"):
            await device.wait(id)
        vendor.faults()
        assert (await finish(device, id))[1].state == "done"
        await device.close()
        broken = make_device({"kind": "process", "name": "b", "device": {"kind": "annealing"}, "python": "/bin/false",
                              "pause_s": 0.01})  # fmt: skip
        assert await broken.state() == "error"
        with pytest.raises(Unreachable):
            await broken.start("t", Payload("qubo", QUBO))
        await broken.close()
        silent = make_device({"kind": "process", "device": {"kind": "annealing"}, "python": "/bin/cat", "tries": 1})
        assert await silent.state() == "error"
        await silent.close()

    asyncio.run(go())


def test_secrets_are_in_files_of_mode_600_and_in_no_error(vendor, tmp_path):
    path = tmp_path / "secrets.toml"
    path.write_text('KEY = "hush-hush"\n')
    path.chmod(0o644)

    async def go(device):
        vendor.faults(acquire_raises=1)
        try:
            await device.start("one", PULSES)
        finally:
            await device.close()

    with pytest.raises(InputError, match="has mode 644"):
        asyncio.run(go(vendor.device(secrets=str(path), in_process=True)))
    path.chmod(0o600)
    with pytest.raises(Unreachable, match=r"login with \*\*\* failed"):
        asyncio.run(go(vendor.device(secrets=str(path), in_process=True)))


def test_the_token_log_survives_a_torn_line_and_reports_damage(tmp_path):
    path = tmp_path / "log" / "tokens.jsonl"
    log = TokenLog(path)
    log.starting("a")
    log.started("a", "id-a")
    log.starting("b")
    log.close()
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("ab") as file:
        file.write(b'{"token": "c", "eve')
    log = TokenLog(path)
    assert (log.find("a"), log.find("c"), log.known()) == ("id-a", None, ["id-a"])
    with pytest.raises(CannotTell):
        log.find("b")
    log.starting("d")
    log.close()
    assert TokenLog(path).find("a") == "id-a"
    path.write_text("nonsense\n")
    with pytest.raises(InputError, match="damaged in line 1"):
        TokenLog(path)


def test_native_payloads_reach_the_vendor_as_they_are(vendor):
    async def go():
        device = vendor.device(type="iqm-server", in_process=True)
        body = {"variant": "IQMServer", "iqmjson": "{}", "job_type": "circuit"}
        await device.start("one", Payload("qrmi", body))
        for wrong in ({}, {"variant": "X"}, {**body, "more": 1}, {"variant": "IQMServer", "iqmjson": "{}"}):
            with pytest.raises(PayloadError):
                device.check(Payload("qrmi", wrong))
        await device.close()
        ibm = vendor.device(type="ibm-quantum-system", in_process=True)
        await ibm.start("two", Payload("openqasm3", BELL, shots=9))
        await ibm.close()

    asyncio.run(go())
    first, second = (json.loads((vendor.folder / f"task-{n}.json").read_text()) for n in (1, 2))
    assert first["fields"] == {"iqmjson": "{}", "job_type": "circuit", "use_timeslot": None, "tag": None}
    assert json.loads(second["fields"]["input"])["pubs"] == [[BELL, None, 9]]


def test_the_stand_in_has_the_calls_of_the_real_package():
    qrmi = pytest.importorskip("qrmi", reason="NOT RUN: qrmi is not installed (pip install 'qloom[qrmi]')")
    from qloom.devices.resource import TYPES, VARIANTS, payload_of, state_of
    from tests.unit import qrmi_standin

    for name in ("TaskStatus", "ResourceType", "ResourceStatusCode"):
        ours = {member.name for member in getattr(qrmi_standin, name)}
        assert ours <= set(dir(getattr(qrmi, name)))
    calls = {call for call in vars(qrmi_standin.QuantumResource) if not call.startswith("_")}
    assert calls <= set(dir(qrmi.QuantumResource))
    assert {python for python, _ in TYPES.values()} <= set(dir(qrmi.ResourceType))
    assert set(VARIANTS) <= set(dir(qrmi.Payload))
    assert [state_of(status) for status in (qrmi.TaskStatus.Queued, qrmi.TaskStatus.Completed)] == [
        "vendor_queued",
        "done",
    ]
    assert payload_of(qrmi, PULSES).job_runs == 30
    assert payload_of(qrmi, Payload("openqasm3", BELL)).program_id == "sampler"
    native = {"variant": "IQMServer", "iqmjson": "{}", "job_type": "circuit"}
    assert payload_of(qrmi, Payload("qrmi", native)).job_type == "circuit"


def test_the_real_package_without_its_settings_is_a_device_in_error(tmp_path):
    pytest.importorskip("qrmi", reason="NOT RUN: qrmi is not installed (pip install 'qloom[qrmi]')")

    async def go():
        device = make_device({"kind": "qrmi", "resource": "nowhere", "type": "pasqal-local",
                              "tokens": str(tmp_path / "tokens")})  # fmt: skip
        assert await device.state() == "error"
        with pytest.raises(Unreachable, match=r"nowhere_QRMI_.* is not set"):
            await device.start("one", PULSES)
        await device.close()

    asyncio.run(go())


def test_any_device_can_have_a_process_of_its_own():
    async def go():
        device = make_device({"kind": "process", "name": "apart", "device": {"kind": "annealing", "set_up_s": 0.01}})
        id = await device.start("one", Payload("qubo", QUBO, shots=10, options={"seed": 3}))
        _, status = await finish(device, id)
        assert status.state == "done", status
        answer = await answer_of(device, id)
        assert answer == solve("annealing", {"kind": "qubo", "body": QUBO, "shots": 10, "seed": 3})
        os.kill(device.child.pid, signal.SIGKILL)  # an emulated device forgets
        with pytest.raises(UnknownTask):
            await device.wait(id)
        assert await device.find("one") is None
        await device.close()
        with pytest.raises(Unreachable, match="closed"):
            await device.find("one")

    asyncio.run(go())


def test_another_interpreter_needs_nothing_of_ours(vendor):
    bare = "import qloom.devices.serve, qloom.devices.factory, qloom.devices.qrmi"
    lent = command(sys.executable, "none")
    words = [lent[0], "-I", "-S", "-c", lent[3].partition("runpy.run")[0] + bare, *lent[4:]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

    async def go():
        device = vendor.device(python=os.path.realpath(sys.executable))  # the system's, not that of this venv
        assert (await finish(device, await device.start("one", PULSES)))[1].state == "done"
        await device.close()

    asyncio.run(go())
