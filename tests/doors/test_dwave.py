"""D-Wave's client, unmodified, through the door of a real broker to an emulated annealer."""

from __future__ import annotations

import base64
import struct

import pytest

from tests.doors.site import DoorSite

ANNEALER = {"kind": "annealing", "name": "chimera", "profile": "chimera", "set_up_shared": False}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = DoorSite(tmp_path_factory.mktemp("site"), devices=[ANNEALER], doors={"dwave": {"devices": ["chimera"]}})
    made.start()
    yield made
    made.stop()


@pytest.mark.slow
def test_a_first_program_runs_unmodified_and_is_charged_what_its_estimate_says(site):
    found = site.run("dwave", "example")
    assert found["topology"] == {"type": "chimera", "shape": [16, 16, 4]}
    assert (found["reads"], found["energy"], found["broken"]) == (100, -1.0, 0.0)
    assert (found["rows"], found["lowest"]) == (50, -1.0)  # an annealer may also miss it
    assert found["slow_sample"] == -1
    assert found["access_s"] == pytest.approx(found["estimate_s"]) == pytest.approx(0.031 + 50 * 86e-6)
    assert found["slow_s"] >= found["slow_estimate_s"] * 0.999 > 0.031 + 10 * 500e-6
    rows = site.rows("ann")
    assert [row["name"] for row in rows[-3:]] == ["triangle", "dwave", "dwave"]
    assert {row["project"] for row in rows} == {"physics"}
    assert rows[-2]["billed_s"] == pytest.approx(found["access_s"])


@pytest.mark.slow
def test_the_clients_own_call_cancels_what_waits_and_what_runs(site):
    found = site.run("dwave", "cancel")
    assert found == {"waiting": "PENDING", "CanceledFutureError": 2}
    assert [row["state"] for row in site.rows("ann")[-2:]] == ["cancelled"] * 2


@pytest.mark.slow
def test_refusals_reach_the_client_in_its_own_form(site):
    assert "oken" in site.run("dwave", "token_is_wrong", user="qloom_0000")
    kind, message = site.run("dwave", "refused", user="poor")
    assert kind == "SolverFailureError"
    assert "budget" in message
    assert "chain" in site.run("dwave", "no_chain")


@pytest.mark.slow
def test_a_problem_is_fetched_by_its_id_after_its_client_has_gone(site):
    assert site.run("dwave", "fetched_later") == -1


def problem(**values):
    lin = [1.0] + [float("nan")] * 2047
    data = {"format": "qp", "lin": doubles(lin), "quad": "", "offset": 0.0, **values.pop("data", {})}
    return {"solver": {"name": "chimera"}, "data": data, "type": "ising", "params": {"num_reads": 2}, **values}


def doubles(values):
    return base64.b64encode(struct.pack(f"<{len(values)}d", *values)).decode()


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        ({"solver": {"name": "pegasus"}}, 404, "no solver 'pegasus'"),
        ({"solver": {"name": "chimera", "version": {"graph_id": "0"}}}, 422, "graph of solver chimera has changed"),
        ({"data": {"lin": doubles([1.0] * 4096)}}, 422, "4096 biases"),
        ({"data": {"quad": doubles([1.0])}}, 422, "0 couplers join"),
        ({"data": {"lin": doubles([float("inf")] * 2048)}}, 422, "not finite"),
        ({"data": {"lin": "???"}}, 422, "not base64"),
        ({"data": {"lin": doubles([float("nan")] * 2048)}}, 422, "uses no qubit"),
        ({"params": {"num_reads": 10**6}}, 422, "up to 100000"),
        ({"params": {"num_reads": 0}}, 422, "num_reads"),
        ({"params": {"beta": 1}}, 422, "beta"),
        ({"type": "bqm"}, 422, "type"),
    ],
)
def test_a_problem_that_cannot_be_taken_is_one_clear_line_and_the_others_are_taken(site, values, code, words):
    with site.http("dwave", **{"X-Auth-Token": site.tokens_of["ann"]}) as client:
        made = client.post("/problems/", json=[problem(**values), problem()])
        assert made.status_code == 200
        wrong, right = made.json()
        assert (wrong["error_code"], right["status"]) == (code, "PENDING"), made.text
        assert words in wrong["error_msg"]
        done = client.get("/problems/", params={"id": right["id"], "timeout": 30}).json()
        assert done[0]["status"] == "COMPLETED"


def test_nobody_sees_or_cancels_problems_of_others_or_of_another_door(site):
    with site.http("dwave", **{"X-Auth-Token": site.tokens_of["ann"]}) as ann:
        [made] = ann.post("/problems/", json=[problem()]).json()
    with site.own("ann") as own:
        other = own.post("/v1/tasks", json={"kind": "qubo", "body": {"linear": [[0, 1.0]]}}, params={"wait": 30})
    id = other.json()["id"]
    through_us = f"{id[:8]}-{id[8:12]}-8{id[12:15]}-8{id[15]}00-000000000000"
    for user, wanted in (("bob", made["id"]), ("ann", through_us), ("ann", "nonsense")):
        with site.http("dwave", **{"X-Auth-Token": site.tokens_of[user]}) as client:
            for answer in (client.get(f"/problems/{wanted}/"), client.delete(f"/problems/{wanted}/")):
                assert (answer.status_code, answer.json()["error_code"]) == (404, 404)
            [one] = client.get("/problems/", params={"id": wanted, "timeout": 30}).json()
            assert one["error_code"] == 404


def test_a_door_takes_no_caller_without_its_own_credential(site):
    for headers in ({}, {"Authorization": f"Bearer {site.tokens_of['ann']}"}, {"X-Auth-Token": "x"}):
        with site.http("dwave", **headers) as client:
            answer = client.get("/solvers/remote/")
            assert (answer.status_code, answer.json()["error_code"]) == (401, 401)
