"""The Grafana dashboard and the alert rules of contrib/ ask for metrics that a broker has."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml

from tests.broker.web import form, service

MONITORING = Path(__file__).parents[2] / "contrib" / "monitoring"
NAME = re.compile(r"\bqloom_[a-z_]+")
LABELS = re.compile(r"(qloom_[a-z_]+)\{([a-z]+)")


def board():
    return json.loads((MONITORING / "grafana-broker.json").read_text())


def rules():
    (group,) = yaml.safe_load((MONITORING / "prometheus-rules.yml").read_text())["groups"]
    return group["rules"]


def queries():
    asked = [target["expr"] for panel in board()["panels"] for target in panel["targets"]]
    return asked + [rule["expr"] for rule in rules()] + [one["query"] for one in board()["templating"]["list"]]


@pytest.fixture
def page(tmp_path):
    async def main():
        async with service(tmp_path) as (_broker, client, _app), client("ann") as ann, client() as prometheus:
            id = (await ann.post("/v1/tasks", json=form())).json()["id"]
            await ann.get(f"/v1/tasks/{id}/result?wait=5")
            return (await prometheus.get("/metrics")).text

    return asyncio.run(main())


def test_every_query_asks_for_what_there_is(page):
    there = set(NAME.findall("\n".join(line for line in page.splitlines() if not line.startswith("#"))))
    asked = {name for query in queries() for name in NAME.findall(query)}
    assert asked <= there
    without = {name for name in there - asked if not name.endswith(("_created", "_count", "_sum"))}
    assert without <= {"qloom_device_utilisation"}, "a metric that nobody looks at"
    labels = {pair for query in queries() for pair in LABELS.findall(query)}
    assert labels <= set(re.findall(r"(qloom_[a-z_]+)\{([a-z]+)", page)) | {("qloom_tasks_total", "state")}


def test_panels_and_alerts_can_be_told_apart():
    panels = board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] and panel["targets"] for panel in panels)
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    assert all(rule["annotations"]["summary"] and rule["labels"]["severity"] for rule in rules())
