"""Configs, projects and problems that `qloom broker` and `qloom qpu` are given."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.typed import refused, write

AS_DEVICES_TAKE_IT = {"linear": [["a", -1.0], ["b", 0.0]], "quadratic": [["a", "b", 2.0]], "offset": 0.0}


def test_check_refuses_what_serve_refuses(cli):
    write("broker.toml", '[[devices]]\nkind = "anealing"\n')
    refused(cli("broker", "check", "--config", "broker.toml"), "unknown kind of device 'anealing'", "annealing")
    write("broker.toml", "[promises.nothing]\nshares = 2\n")
    refused(cli("broker", "check", "--config", "broker.toml"), "promises.nothing: there is no such device")


def test_an_unknown_project_may_be_in_a_config(cli):
    refused(cli("broker", "token", "ann", "--project", "physics"), "unknown project physics", "--config broker.toml")


class Desk:
    """In the place of a broker: keeps what it is sent."""

    def __init__(self):
        self.sent = []

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def submit(self, form, **_options):
        self.sent.append(form)
        return {"id": "t1"}

    def status(self, id):
        return {"id": id}


@pytest.mark.parametrize(
    "problem",
    [
        AS_DEVICES_TAKE_IT,
        {"linear": {"a": -1}, "quadratic": [["a", "b", 2]], "offset": 0},
        {"linear": {"a": -1}, "quadratic": [["a", "b", 2]]},
    ],
)
def test_a_qubo_in_either_form(cli, monkeypatch, problem):
    desk = Desk()
    monkeypatch.setattr("qloom.cli.qpu.connected", lambda: desk)
    assert cli("qpu", "submit", write("p.json", json.dumps(problem)), "--quiet").out == "t1\n"
    assert desk.sent[0]["body"] == AS_DEVICES_TAKE_IT


def test_a_qubo_without_variables(cli):
    refused(cli("qpu", "submit", write("p.json", "{}")), "p.json is no QUBO: it has no variables")
