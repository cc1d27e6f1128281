"""`broker.toml`: what is refused, in one line each."""

from __future__ import annotations

from pathlib import Path

import pytest

from qloom.broker.config import config_from, read_config
from qloom.device import Description
from qloom.errors import InputError


def device(name="q"):
    return Description(name, "fake", 8, ("test",))


def refused(**values) -> str:
    with pytest.raises(InputError) as error:
        config_from(values, "broker.toml")
    assert "\n" not in error.value.message
    return error.value.message


def test_the_usual_config_listens_where_only_this_machine_reaches_it():
    config = read_config(None)
    assert config.addresses[0].startswith("unix:")
    assert config.spec(device()).shares == 8


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"colour": 1}, "broker.toml: colour is not a known key"),
        ({"limits": {"max_byte": 1}}, "broker.toml: limits.max_byte is not a known key"),
        ({"projects": {"p": {"budget": 1}}}, "broker.toml: projects.p.budget is not a known key"),
        ({"policy": "lottery"}, "broker.toml: policy: there is none called 'lottery'"),
        ({"listen": ["nowhere"]}, "broker.toml: listen: 'nowhere' is neither unix:PATH nor HOST:PORT"),
        ({"listen": ["tcp:[::1]:7117"]}, "broker.toml: listen: 'tcp:[::1]:7117' is neither unix:PATH nor HOST:PORT"),
        ({"devices": []}, "broker.toml: devices: a broker needs at least one"),
        ({"poll_s": -1}, "broker.toml: poll_s: input should be greater than 0"),
        ({"auth": {"methods": ["magic"]}}, "broker.toml: auth.methods.0: input should be 'token'"),
    ],
)
def test_what_is_wrong_is_named(values, said):
    assert refused(**values).startswith(said)


@pytest.mark.parametrize("address", ["0.0.0.0:7117", "[::]:7117", "192.0.2.1:80", "broker.example.org:80"])
@pytest.mark.parametrize("methods", [["none"], ["peer"], ["token", "none"], []])
def test_any_other_address_needs_authentication(address, methods):
    assert "can be reached from elsewhere" in refused(listen=[address], auth={"methods": methods})
    assert config_from({"listen": [address], "auth": {"methods": ["token"]}}, "x").addresses == (address,)


@pytest.mark.parametrize("address", ["127.0.0.1:7117", "[::1]:7117", "localhost:1", "unix:/run/q.sock"])
def test_this_machine_only_needs_none(address):
    assert config_from({"listen": [address], "auth": {"methods": ["none"]}}, "x").addresses == (address,)


def test_shares_follow_from_the_promised_wait():
    promise = {"longest_s": 10.0, "promised_wait_s": 60.0, "outside_limit": 2}
    config = config_from({"promise": promise, "promises": {"slow": {"shares": 3}}}, "x")
    assert (config.spec(device()).shares, config.spec(device("slow")).shares) == (5, 3)
    assert config.spec(device()).promised_wait_s() == 60.0
    with pytest.raises(InputError, match="cannot promise a wait under policy fair"):
        config_from({"policy": "fair", "promise": promise}, "x").spec(device())


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot read the config"):
        read_config(tmp_path / "none.toml")
    Path(tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(InputError, match="is not TOML"):
        read_config(tmp_path / "bad.toml")
