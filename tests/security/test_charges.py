"""What is admitted and charged comes from the device's model or the vendor's word, never from the user's."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.security.site import ROOT, ended, site

CIRCUIT = 'OPENQASM 3.0;\ninclude "stdgates.inc";\nqubit[1] q;\nbit[1] c;\nh q[0];\nc[0] = measure q[0];\n'


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """A machine behind the stand-in of QRMI: 2 s of set-up and 10 ms per shot, as its site says."""
    monkeypatch.setenv("QRMI_STANDIN", str(tmp_path / "vendor"))
    monkeypatch.setenv("QRMI_STANDIN_S", "0")
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "unit"))
    (tmp_path / "vendor" / "machine").mkdir(parents=True)
    return {
        "kind": "qrmi", "name": "vendor", "resource": "machine", "type": "qiskit-runtime-service",
        "module": "qrmi_standin", "poll_s": 0.05, "tokens": str(tmp_path / "tokens.jsonl"), "in_process": True,
        "set_up_s": 2.0, "per_shot_s": 0.01, "max_shots": 1000,
    }  # fmt: skip


def circuit(**more):
    return {"kind": "openqasm3", "body": CIRCUIT, "shots": 100, **more}


def primitive(pubs, program="sampler", **more):
    fields = {"variant": "QiskitPrimitive", "input": json.dumps({"pubs": pubs, **more}), "program_id": program}
    return {"kind": "qrmi", "body": fields, "shots": 1, "seconds": 0.0}


def test_a_budget_does_not_believe_a_users_seconds(tmp_path, vendor):
    async def main():
        projects = {"physics": {"budget_s": 5.0}}
        async with site(tmp_path, devices=[vendor], projects=projects) as (_, client), client("ann") as ann:
            first = await ann.post("/v1/tasks", json=circuit(seconds=0.001))
            assert first.json()["expected_s"] == 3.0
            late = await ann.post("/v1/tasks", json=circuit(seconds=0.001))
            assert late.status_code == 409, late.text
            assert "QPU-seconds left of 5, and this task takes 3.0" in late.json()["message"]
            view = await ended(ann, first.json()["id"])
            assert view["state"] == "done"
            assert view["billed_s"] == 3.0, "nobody saw it execute, and the vendor does not say: the model's"
            assert (await ann.post("/v1/tasks", json=circuit(seconds=0.0))).status_code == 409

    asyncio.run(main())


def test_the_longest_task_that_is_admitted_is_by_the_devices_model(tmp_path, vendor):
    async def main():
        async with site(tmp_path, devices=[vendor], promise={"longest_s": 2.5}) as (_, client), client("ann") as ann:
            refused = await ann.post("/v1/tasks", json=circuit(seconds=0.001))
            assert refused.status_code == 409, refused.text
            assert "a task of 3 s is longer than QPU vendor admits (2.5 s)" in refused.json()["message"]
            assert (await ann.post("/v1/tasks", json=circuit(shots=10, seconds=99.0))).status_code == 201

    asyncio.run(main())


@pytest.mark.parametrize(
    ("payload", "expected_s"),
    [
        (primitive([["c", None, 300]]), 5.0),
        (
            primitive([["c", None], ["c", [[0.1], [0.2]], 50]], shots=100),
            5.0,
        ),  # three circuits, at most 100 shots each
        (primitive([["c", None]], options={"default_shots": 700}), 9.0),
        (primitive([["c"]]), 12.0),  # nobody says how many: as many as the machine takes
        (primitive([["c", "Z", None, 0.01]], program="estimator"), 12.0),
        (primitive([["c", {"names": [0.1]}, 1]]), 12.0),
        (primitive("nonsense"), 12.0),
    ],
)
def test_the_shots_of_a_native_payload_are_the_vendors(tmp_path, vendor, payload, expected_s):
    async def main():
        async with site(tmp_path, devices=[vendor]) as (_, client), client("ann") as ann:
            answer = await ann.post("/v1/tasks", json=payload)
            assert answer.json()["expected_s"] == pytest.approx(expected_s)

    asyncio.run(main())


def test_a_native_payload_of_too_many_shots_is_refused(tmp_path, vendor):
    async def main():
        async with site(tmp_path, devices=[vendor]) as (_, client), client("ann") as ann:
            answer = await ann.post("/v1/tasks", json=primitive([["c", None, 1001]]))
            assert answer.status_code == 422, answer.text
            assert "1001 shots, vendor takes up to 1000" in answer.json()["message"]

    asyncio.run(main())


def test_an_emulated_task_that_takes_longer_than_its_seconds_is_charged_for_it(tmp_path):
    async def main():
        async with site(tmp_path, devices=[{"kind": "exact", "name": "q"}]) as (_, client), client("ann") as ann:
            problem = {"linear": [["x", -1.0]], "quadratic": [], "offset": 0.0}
            task = await ann.post("/v1/tasks", json={"kind": "qubo", "body": problem, "seconds": 0.0})
            view = await ended(ann, task.json()["id"])
            assert view["state"] == "done"
            assert view["billed_s"] > 0, "a process had to be started for it"

    asyncio.run(main())
