"""Shared data is written once per run, however many processes drive it."""

from __future__ import annotations

import numpy
import pytest

from qloom import shared

VALUES = [numpy.arange(12.0).reshape(3, 4), numpy.arange(12).reshape(3, 4).T, {"labels": list(range(100))}]


@pytest.fixture(params=VALUES, ids=["array", "transposed", "pickle"])
def left(request, tmp_path):
    """A value and the file that an earlier process left of it."""
    path = shared.share(request.param, tmp_path).path
    shared._whole.clear()
    return request.param, path


def test_what_an_earlier_process_left_is_not_written_again(left, monkeypatch):
    value, path = left
    monkeypatch.setattr(shared, "write_atomically", lambda *_: pytest.fail("it is there"))
    assert shared.share(value, path.parent).path == path


@pytest.mark.parametrize("damage", ["empty", "short", "zeros"])
def test_what_a_power_cut_has_torn_is_written_again(left, damage):
    value, path = left
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "short": whole[:-20], "zeros": whole[:-20] + bytes(20)}[damage])
    shared.share(value, path.parent)
    assert path.read_bytes() == whole
