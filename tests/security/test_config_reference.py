"""The reference of the broker's config: made from its model, complete, and in step with it."""

from __future__ import annotations

import importlib.util
import re
import typing
from pathlib import Path

import pytest
from pydantic import BaseModel

from qloom.broker.config import BrokerConfig
from qloom.devices import factory

ROOT = Path(__file__).resolve().parents[2]


def parts(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """All tables of the config by name, found through the types of its keys."""
    found = {model.__name__: model}
    for field in model.model_fields.values():
        for kind in (field.annotation, *typing.get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= parts(kind)
    return found


KEYS = [(name, key) for name, part in parts(BrokerConfig).items() for key in part.model_fields]


@pytest.fixture(scope="module")
def make_reference():
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_in_step(make_reference):
    made = make_reference.config_reference()
    assert make_reference.CONFIG_PAGE.read_text() == made, "run: python docs/make_reference.py"


def test_every_key_is_described():
    for name, key in KEYS:
        description = parts(BrokerConfig)[name].model_fields[key].description
        assert description, f"{name}.{key} has no description"
        assert description.endswith("."), f"{name}.{key}: a description is a sentence"


def test_every_key_is_on_the_page(make_reference):
    page = make_reference.CONFIG_PAGE.read_text()
    tables, devices = page.split("\n## devices\n")
    keys = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
    assert sorted(keys.findall(tables)) == sorted(key for _, key in KEYS)
    of_devices = {key for own in factory.OWN.values() for key in own} | set(factory.COMMON)
    assert set(keys.findall(devices)) == of_devices


def test_the_guide_and_the_index_link_to_the_page():
    assert "../reference/broker-config.md" in (ROOT / "docs" / "guides" / "broker.md").read_text()
    assert "reference/broker-config.md" in (ROOT / "docs" / "index.md").read_text()
