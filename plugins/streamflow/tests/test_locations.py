"""Workflow files that name locations which are not there."""

from __future__ import annotations

import pytest

from qloom_streamflow.locations import problems

DEPLOYMENTS = {
    "here": {"type": "local", "config": {}},
    "site": {"type": "qloom-slurm", "wraps": "here", "config": {"services": {"compute": {}}}},
}


def file(target, **deployments):
    bindings = [{"step": "/add", "target": target}]
    return {"workflows": {"w": {"bindings": bindings}}, "deployments": {**DEPLOYMENTS, **deployments}}


@pytest.mark.parametrize(
    "target",
    [{"deployment": "here"}, {"deployment": "site", "service": "compute"}, [{"deployment": "here"}]],
)
def test_known_locations_are_fine(target):
    assert list(problems("w", file(target))) == []


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            file({"deployment": "moon"}),
            "step /add is put on 'moon', and there is no such deployment: known are",
        ),
        (file([{"deployment": "here"}, {"deployment": "moon"}]), "'moon'"),
        (
            file({"deployment": "site", "service": "moon"}),
            "'moon' of site, which is not there: it has compute",
        ),
        (file({"deployment": "here"}, far={"type": "slurm", "wraps": "moon"}), "deployment far wraps 'moon'"),
        (file({"deployment": "here"}, far={"wraps": {"deployment": "moon"}}), "deployment far wraps 'moon'"),
    ],
)
def test_an_unknown_one_is_named_in_one_line(config, why):
    (problem,) = problems("w", config)
    assert why in problem
    assert "\n" not in problem
