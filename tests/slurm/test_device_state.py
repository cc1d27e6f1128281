"""Devices that are away, with a stand-in for scontrol."""

from __future__ import annotations

import os

import pytest

from qloom.slurm.device_state import set_device_state

RESERVED = "ReservationName=qloom-{} StartTime=now EndTime=then Nodes=(null) Licenses={}:8 State=ACTIVE"


@pytest.fixture
def scontrol(tmp_path, monkeypatch):
    """Prints the reservations that a test names, and logs what it is told to change."""
    script = f"""#!/bin/sh
case "$*" in
"-o show reservation") cat {tmp_path}/reservations ;;
"delete ReservationName=qloom-permission-check") echo "Requested reservation is invalid" >&2; exit 1 ;;
"-o show licenses"*) echo "LicenseName=$4 Total=8 Used=0 Free=8" ;;
*) echo "$*" >> {tmp_path}/log ;;
esac
"""
    (tmp_path / "scontrol").write_text(script)
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "log").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def test_a_reservation_is_known_by_its_whole_name(scontrol):
    (scontrol / "reservations").write_text(RESERVED.format("qpu2", "qpu2") + "\n")
    assert set_device_state("qpu", "idle", licence=True) == "licences of qpu are free to use"
    assert (scontrol / "log").read_text() == ""
    assert set_device_state("qpu", "offline", licence=True) == "licences of qpu are reserved: it is offline"
    assert "create reservation ReservationName=qloom-qpu Licenses=qpu:8" in (scontrol / "log").read_text()


def test_the_reservation_of_a_device_is_found_among_others(scontrol):
    (scontrol / "reservations").write_text("".join(RESERVED.format(name, name) + "\n" for name in ("qpu2", "qpu")))
    assert set_device_state("qpu", "offline", licence=True) == "licences of qpu are reserved already"
    assert set_device_state("qpu", "idle", licence=True) == "licences of qpu are free to use"
    assert (scontrol / "log").read_text() == "delete ReservationName=qloom-qpu\n"
