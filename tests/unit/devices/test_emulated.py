"""Emulated devices: tokens, lanes, solvers that die, drains, calibrations and faults."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qloom.device import Description
from qloom.devices.answers import SolverAnswers
from qloom.devices.disruptions import DeviceFaults, Window, left_s, window_from
from qloom.devices.emulated import EmulatedDevice
from qloom.devices.factory import make_device
from qloom.errors import InputError, QuantumFailed, UnknownTask, Unreachable
from qloom.model import Payload, Sample
from qloom.payloads.adapt import qubo
from qloom.world import UnixClock
from qloom.worlds.answers import solve as solve_inline
from tests.unit.devices.examples import BELL, QUBO, answer_of, delay, delays, finish, gone, sequence


def test_a_token_starts_one_task_and_states_come_in_order():
    async def go():
        device = make_device({"kind": "annealing", "set_up_s": 0.05, "per_shot_s": 0.0005})
        payload = Payload("qubo", QUBO, shots=100, options={"seed": 7})
        before = time.monotonic()
        id = await device.start("one", payload)
        assert await device.start("one", payload) == id
        assert await device.find("one") == id
        assert await device.find("two") is None
        states, status = await finish(device, id)
        assert [state for state in states if state != "vendor_queued"] == ["executing", "done"]
        assert time.monotonic() - before >= 0.1
        assert status.billed_s == pytest.approx(0.1) == device.seconds(payload)
        assert await device.tasks() == {id: status.billed_s}
        answer = await answer_of(device, id)
        assert await device.wait(id) == status  # final: told as often as it is asked
        await device.close()
        return answer

    answer = asyncio.run(go())
    assert (dict(answer["values"]), answer["energy"]) == ({"a": 0, "b": 1}, -1.5)
    assert answer["shots"] == 100
    json.dumps(answer)


def test_a_seed_gives_the_samples_of_dimod_whatever_the_labels():
    dimod, samplers = pytest.importorskip("dimod"), pytest.importorskip("dwave.samplers")
    draw = random.Random(7)
    for number in range(60):
        labels = [(place, "x") if number % 3 == 0 and place % 2 else f"v{place}" for place in range(9)]
        draw.shuffle(labels)
        problem = {(label, label): draw.choice([-1, 1, 2.5]) for label in labels}
        problem |= {
            pair: draw.choice([-1, 0.5, 2]) for pair in itertools.permutations(labels, 2) if draw.random() < 0.3
        }
        payload, seed = qubo(problem, shots=draw.choice([1, 20])), draw.randrange(16**7)
        quadratic = {(u, v): bias for u, v, bias in payload.body["quadratic"]}
        model = dimod.BinaryQuadraticModel(dict(payload.body["linear"]), quadratic, 0.0, "BINARY")
        first = samplers.SimulatedAnnealingSampler().sample(model, num_reads=payload.shots, seed=seed).first
        assert solve_inline(payload, seed) == Sample(
            {label: int(first.sample[label]) for label in labels}, first.energy
        )


def test_lanes_queue_and_tasks_in_it_can_be_stopped():
    async def go():
        device = delays(lanes=2)
        ids = [await device.start(str(i), delay(0.1)) for i in range(4)]
        await asyncio.sleep(0.05)
        assert [(await device.wait(id)).state for id in ids] == ["executing", "executing", *["vendor_queued"] * 2]
        assert await device.state() == "busy"
        await device.stop(ids[2])
        ends = [(await finish(device, id))[1] for id in ids]
        assert [end.state for end in ends] == ["done", "done", "cancelled", "done"]
        assert ends[2].billed_s == 0
        await device.stop(ids[0])  # over: left as it is
        assert (await device.wait(ids[0])).state == "done"
        assert await device.state() == "idle"
        with pytest.raises(UnknownTask):
            await device.wait("other")
        with pytest.raises(QuantumFailed, match="cancelled"):
            await device.result(ids[2])
        await device.close()

    asyncio.run(go())


def test_a_stopped_task_takes_its_solver_with_it_and_the_device_goes_on():
    async def go():
        device = make_device({"kind": "annealing"})
        heavy = {"linear": [[i, -1.0] for i in range(1500)], "offset": 0.0,
                 "quadratic": [[i, i - j, 1.0] for i in range(1500) for j in range(1, min(i, 40))]}  # fmt: skip
        id = await device.start("heavy", Payload("qubo", heavy, shots=100_000))
        ticks = 0
        while not (children := Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()):
            await asyncio.sleep(0.01)
        for _ in range(30):
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks == 30  # the loop was never blocked
        await device.stop(id)
        assert (await device.wait(id)).state == "cancelled"
        assert all(gone(int(pid)) for pid in children)
        _, status = await finish(device, await device.start("next", Payload("qubo", QUBO, shots=5)))
        assert status.state == "done"
        await device.close()

    asyncio.run(go())


def test_a_solver_that_crashes_is_the_devices_fault_and_one_that_takes_too_long_too():
    async def go():
        device = make_device({"kind": "annealing", "faults": {"script": {"bad": "crash"}}})
        _, status = await finish(device, await device.start("bad", Payload("qubo", QUBO)))
        assert (status.state, status.fault) == ("failed", True)
        assert "solver ended" in status.error
        _, status = await finish(device, await device.start("good", Payload("qubo", QUBO)))
        assert status.state == "done"
        await device.close()
        hasty = make_device({"kind": "annealing", "solver_time_limit_s": 0.001})
        _, status = await finish(hasty, await hasty.start("slow", Payload("qubo", QUBO)))
        assert (status.state, status.fault) == ("failed", True)
        assert "within 0.001 s" in status.error
        await hasty.close()

    asyncio.run(go())


BROKER = """
import asyncio, sys
from qloom.model import Payload, Sample
from qloom.payloads.adapt import qubo
from qloom.devices.emulated import EmulatedDevice
from qloom.world import UnixClock
from qloom.devices.factory import make_device

async def go():
    device = make_device({"kind": "annealing"})
    await device.start("t", Payload("qubo", {"linear": [["a", 1.0]]}, seconds=60.0))
    await asyncio.sleep(0.5)
    print("up", flush=True)
    await asyncio.sleep(60)

asyncio.run(go())
"""


def test_a_broker_that_is_killed_leaves_no_solver_behind():
    broker = subprocess.Popen([sys.executable, "-c", BROKER], stdout=subprocess.PIPE, text=True)
    assert broker.stdout.readline() == "up\n"
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    assert children
    broker.send_signal(signal.SIGKILL)
    broker.communicate()
    assert all(gone(int(pid)) for pid in children)


def test_no_time_means_no_process_and_no_timer():
    async def go():
        device = delays()
        before = time.monotonic()
        for number in range(2000):
            id = await device.start(str(number), delay(0))
            assert (await device.wait(id)).state == "done"
            assert await answer_of(device, id) is None
        assert time.monotonic() - before < 2
        assert Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split() == []
        assert len(await device.tasks()) == 2000
        assert await device.find("0") is None  # answers are not kept for ever
        await device.close()

    asyncio.run(go())


def test_tasks_wait_while_a_device_is_drained_and_none_is_lost():
    async def go():
        device = delays()
        running = await device.start("running", delay(0.1))
        await asyncio.sleep(0.02)
        device.drain()
        assert await device.state() == "maintenance"
        waiting = [await device.start(f"w{i}", delay(0.01)) for i in range(3)]
        assert (await finish(device, running))[1].state == "done"
        await asyncio.sleep(0.05)
        assert [(await device.wait(id)).state for id in waiting] == ["vendor_queued"] * 3
        device.resume()
        assert [(await finish(device, id))[1].state for id in waiting] == ["done"] * 3
        device.drain("offline")
        assert await device.state() == "offline"
        with pytest.raises(Unreachable, match="offline"):
            await device.start("later", delay())
        assert await device.find("later") is None
        with pytest.raises(InputError):
            device.drain("busy")
        await device.close()

    asyncio.run(go())


def test_tasks_wait_for_the_end_of_a_calibration():
    async def go():
        at = time.time()
        device = delays(windows=[Window(for_s=0.3, every_s=1000.0, first_s=at)])
        assert await device.state() == "calibration"
        id = await device.start("t", delay(0.01))
        assert (await device.wait(id)).state == "vendor_queued"
        assert (await finish(device, id))[1].state == "done"
        assert time.time() - at >= 0.3
        assert await device.state() == "idle"
        await device.close()

    asyncio.run(go())


class SetClock(UnixClock):
    """Shows the time that the test sets; timers run in real time."""

    seconds = 0.0

    def now_us(self):
        return round(self.seconds * 1e6)


def test_a_task_has_the_calibration_that_it_began_under():
    async def go():
        clock = SetClock()
        description = Description("test", "annealer", 100, ("delay",))
        windows = [Window(for_s=10.0, every_s=100.0, first_s=50.0), Window(for_s=1.0, every_s=1e6, first_s=75.0)]
        device = EmulatedDevice(description, SolverAnswers("annealing", {}, 600.0, None), clock, windows=windows)
        assert await device.calibration() == "c0"
        id = await device.start("t", delay(0.05))
        clock.seconds = 61.0  # the device was calibrated while the task ran
        assert (await finish(device, id))[1].calibration == "c0"
        assert await device.calibration() == "c1"
        known = []
        for clock.seconds in (0.0, 55.0, 60.0, 75.5, 76.0, 159.0, 160.0):
            known.append(await device.calibration())
        assert known == ["c0", "c0", "c1", "c1", "c2", "c2", "c3"]
        await device.close()

    asyncio.run(go())


def test_a_device_without_windows_has_no_calibration():
    async def go():
        device = delays()
        id = await device.start("t", delay(0.01))
        assert (await finish(device, id))[1].calibration is None
        assert await device.calibration() is None
        await device.close()

    asyncio.run(go())


def test_a_device_in_a_process_reports_its_calibration():
    async def go():
        first_s = (time.time() + 43_200) % 86_400  # half a day from now
        window = {"for_s": 1.0, "first_s": first_s, "every_s": 86_400.0}
        device = make_device({"kind": "process", "device": {"kind": "annealing", "calibration": [window]}})
        now = await device.calibration()
        id = await device.start("t", delay(0.01))
        assert (await finish(device, id))[1].calibration == now
        assert now is not None
        assert now.startswith("c")
        await device.close()

    asyncio.run(go())


def test_windows_come_again_and_run_into_each_other():
    night = window_from({"at": "03:00", "for_s": 1800})
    assert night.left_s(3 * 3600) == 1800
    assert night.left_s(86_400 * 20_000 + 3 * 3600 + 600) == 1200
    assert night.left_s(3 * 3600 + 1800) == 0
    assert left_s([night, Window(600, first_s=3 * 3600 + 1700)], 3 * 3600) == 2300
    assert left_s([], 5.0) == 0
    for wrong in ({}, {"for_s": 0}, {"for_s": 90_000}, {"for_s": 5, "at": "25:00"}, {"for_s": 5, "x": 1}, 7):
        with pytest.raises(InputError):
            window_from(wrong)


def test_faults_are_the_same_for_the_same_seed():
    faults = DeviceFaults({"fail": 0.2, "refuse": 0.1}, seed=5)
    drawn = [faults.of(str(i), 0) for i in range(1000)]
    assert drawn == [DeviceFaults({"fail": 0.2, "refuse": 0.1}, seed=5).of(str(i), 0) for i in range(1000)]
    assert 150 < drawn.count("fail") < 250
    assert 60 < drawn.count("refuse") < 140
    for wrong in ({"rates": {"melt": 0.1}}, {"rates": {"fail": 1.2}}):
        with pytest.raises(InputError):
            DeviceFaults(**wrong)


def test_each_fault_looks_as_it_would():
    async def go():
        device = delays(faults=DeviceFaults(script={"r": "refuse", "l": "lost", "f": "fail"}))
        with pytest.raises(Unreachable):
            await device.start("r", delay(0))
        assert await device.find("r") is None
        assert (await finish(device, await device.start("r", delay(0))))[1].state == "done"  # once only
        with pytest.raises(Unreachable):
            await device.start("l", delay(0.01))
        id = await device.find("l")
        assert id is not None
        assert (await finish(device, id))[1].state == "done"
        _, status = await finish(device, await device.start("f", delay(0.02)))
        assert (status.state, status.fault) == ("failed", True)
        assert 0 < status.billed_s < 0.02 + 0.05
        await device.close()

    asyncio.run(go())


def test_a_shared_set_up_is_paid_once():
    async def go():
        device = make_device({"kind": "annealing", "set_up_s": 0.05, "per_shot_s": 0, "set_up_shared": True})
        other = {**QUBO, "offset": 1.0}
        billed = []
        for number, body in enumerate((QUBO, QUBO, other, QUBO)):
            payload = Payload("qubo", body, shots=3)
            billed.append((await finish(device, await device.start(str(number), payload)))[1].billed_s)
        assert billed == pytest.approx([0.05, 0, 0.05, 0.05])
        await device.close()

    asyncio.run(go())


def test_set_up_keys_tell_the_same_register_and_the_same_circuit():
    device = make_device({"kind": "annealing"})
    rx = BELL.replace("h q[0]", "rx(0.1) q[0]")
    assert device.set_up_key(Payload("openqasm3", rx)) == device.set_up_key(
        Payload("openqasm3", rx.replace("0.1", "0.2"))
    )
    assert device.set_up_key(Payload("openqasm3", rx)) != device.set_up_key(Payload("openqasm3", BELL))
    assert device.set_up_key(Payload("pulser", sequence())) == device.set_up_key(
        Payload("pulser", sequence(name="another"))
    )
    assert device.set_up_key(Payload("pulser", sequence())) != device.set_up_key(Payload("pulser", sequence(3)))
    assert device.set_up_key(delay()) is None
