"""IQM's client and its Qiskit adapter, unmodified, through the door of a real broker to an emulated gate machine."""

from __future__ import annotations

import pytest

from tests.doors.site import DoorSite

MACHINE = {"kind": "aer", "name": "garnet", "profile": "iqm-20", "set_up_s": 0.05}


class IqmSite(DoorSite):
    """The client allows no path in its address."""

    def url(self, door: str) -> str:
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = IqmSite(tmp_path_factory.mktemp("site"), devices=[MACHINE], doors={"iqm": {"devices": ["garnet"]}})
    made.start()
    yield made
    made.stop()


@pytest.mark.slow
def test_a_first_program_with_qiskit_runs_unmodified(site):
    found = site.run("iqm", "example")
    assert (found["qubits"], found["pairs"]) == (20, 30)
    for counts, size in ((found["bell"], 2), (found["five"], 5)):
        assert set(counts) == {"0" * size, "1" * size}
        assert sum(counts.values()) == 400
        assert all(130 < count < 270 for count in counts.values())  # seven standard deviations
    assert found["cz"][0] == pytest.approx(80e-9)
    assert 0.008 < found["cz"][1] < 0.03
    assert 25e-6 < found["t1"] < 90e-6
    assert site.rows("ann")[-1]["billed_s"] == pytest.approx(0.05 + 2 * 400 * 0.431e-3)


@pytest.mark.slow
def test_the_client_measures_cancels_and_is_refused_in_its_own_form(site):
    found = site.run("iqm", "bare")
    assert found["measured"] == {"both bits": [[1, 0]] * 7}
    assert found["counts"] == {"10": 7}
    assert (found["health"], found["static"]) == ("healthy", 30)
    assert found["cancelled"] == ["cancelled"] * 2
    kind, message = found["stale"]
    assert kind == "NotFoundError"
    assert "is not the current one of garnet" in message
    assert found["unknown"][0] == "NotFoundError"
    assert site.run("iqm", "refused", user="qloom_0")[0] == "AuthenticationError"
    kind, message = site.run("iqm", "refused", user="poor")
    assert kind == "ConflictError"
    assert "budget" in message


def job(*instructions, **values):
    read = {"name": "measure", "locus": ["QB1"], "args": {"key": "m"}}
    return {"circuits": [{"name": "c", "instructions": [*instructions, read]}], "shots": 5, **values}


def prx(**values):
    return {"name": "prx", "locus": ["QB1"], "args": {"angle": 1.0, "phase": 0.5}, **values}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (job({"name": "cz", "locus": ["QB1", "QB20"], "args": {}}), "0 and 19 are not coupled"),
        (job({"name": "cz", "locus": ["QB1", "QB1"], "args": {}}), "qubit twice"),
        (job(prx(locus=["QB21"])), "no qubit 'QB21'"),
        (job(prx(args={"angle": "1", "phase": 0})), "a number for angle"),
        (job(prx(args={"angle": 1.0, "phase": 0.0, "x": 1})), "no argument 'x'"),
        (job(prx(implementation="other")), "no implementation"),
        (job({"name": "move", "locus": ["QB1", "QB2"], "args": {}}), "no operation 'move'"),
        (job({"name": "measure", "locus": ["QB2"], "args": {"key": "m"}}), "have the key 'm'"),
        (job(calibration_set_id="cd4dd889-b88b-4370-ba01-eb8262ad9c53"), "is not the current one"),
        (job(heralding_mode="zeros"), "heralding_mode"),
        (job(shots=10**7), "up to 100000"),
        (job(qubit_mapping=[{"logical_name": "a", "physical_name": "QB1"}]), "no qubit 'QB1'"),
        ({"circuits": [{"name": "c", "instructions": [prx()]}]}, "measures nothing"),
        ({"circuits": ["define void"]}, "circuits.0"),
    ],
)
def test_a_job_that_cannot_be_taken_is_one_clear_line_in_iqms_form(site, body, words):
    with site.http("iqm", Authorization=f"Bearer {site.tokens_of['ann']}") as client:
        answer = client.post("/api/v1/jobs/garnet/circuit", json=body)
        assert answer.status_code == 422
        assert words in answer.json()["message"]
        assert set(answer.json()) == {"message", "error_code", "source"}


def test_unknown_computers_sets_and_jobs_of_others_are_not_found(site):
    with site.http("iqm", Authorization=f"Bearer {site.tokens_of['ann']}") as ann:
        made = ann.post("/api/v1/jobs/garnet/circuit", json=job(prx())).json()
        for path in ("quantum-computers/other/health", "calibration-sets/garnet/x/metrics", "jobs/1", "nothing"):
            answer = ann.get(f"/api/v1/{path}")
            assert (answer.status_code, answer.json()["error_code"]) == (404, "NotFound")
        assert ann.get(f"/api/v1/jobs/{made['id']}").json()["type"] == "circuit"
    with site.http("iqm", Authorization=f"Bearer {site.tokens_of['bob']}") as bob:
        for answer in (bob.get(f"/api/v1/jobs/{made['id']}"), bob.post(f"/api/v1/jobs/{made['id']}/cancel")):
            assert answer.status_code == 404
        assert bob.get(f"/api/v1/jobs/{made['id']}/artifacts/measurements").status_code == 404
