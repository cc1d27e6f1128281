"""Slurm's accounts as projects, and sessions only for jobs that hold a share. Outputs as Slurm 22.05 prints them."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import pwd
import time

import pytest

from qloom.broker.auth.callers import Authenticator
from qloom.broker.client.sync import SyncBrokerClient
from qloom.broker.config import config_from
from qloom.broker.members import Members
from qloom.broker.problems import Forbidden, Unavailable
from qloom.broker.queue.lines import DeviceSpec
from qloom.broker.requests import Caller
from qloom.broker.slurm import Account, SlurmSite, read_accounts, read_holdings
from qloom.broker.store.database import Database
from qloom.errors import InputError, Refused
from qloom.model import QpuHold
from tests.broker.fakes import FakeDevice, Vendor, broker_on
from tests.broker.processes import Service

ASSOCIATIONS = """\
root||1
root|root|1
chemistry||0
chemistry|daemon|parent
chemistry|nobody|1
physics||3
physics|daemon|1
"""
ME = os.getuid()
SQUEUE = {
    "1": f"1|{ME}|RUNNING|cpu=1,node=1,billing=1,gres/qpu=2|\n",
    "2": f"2|{ME}|RUNNING|cpu=1,node=1,billing=1|2|\n3|{ME}|RUNNING|cpu=1,node=1,billing=1,gres/qpu=1|2|\n",
    "4": f"4|{ME + 1}|RUNNING|cpu=1,node=1,billing=1,gres/qpu=8|\n",
    "5": f"5|{ME}|CANCELLED|cpu=1,node=1,billing=1,gres/qpu=8|\n",
    "6": f"6|{ME}|RUNNING|cpu=1,node=1,billing=1,gres/qpubits=8,gres/qpu:fast=8|N/A|\n",
    "7": f"7|{ME}|RUNNING|cpu=1,node=1,billing=1,gres/qpu=2,gres/qpu:helmi=2|N/A|\n",
    "8": f"8|{ME}|RUNNING|cpu=1,node=1,billing=1,gres/qpu=3,gres/qpu:helmi=1|N/A|\n",
    "9": f"9|{ME}|PENDING|cpu=1,node=1,billing=1,gres/qpu=1|N/A|\n",
}
WHO = Caller("me", ("physics",), uid=ME)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Stand-ins for Slurm's commands, first on the path."""
    (tmp_path / "assoc").write_text(ASSOCIATIONS)
    for job, text in SQUEUE.items():
        (tmp_path / f"job-{job}").write_text(text)
    scripts = {
        "sacctmgr": f'[ "$*" = "-nP show assoc format=account,user,fairshare" ] && cat {tmp_path}/assoc',
        # of several jobs squeue leaves out those that are not there; one that is alone it complains about
        "squeue": f'shift 4; cd {tmp_path}; echo "$1" >> asked; '
        'case "$1" in *,*) for job in $(echo "$1" | tr , " "); do cat "job-$job" 2>/dev/null; done; exit 0 ;; esac; '
        'cat "job-$1" 2>/dev/null || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }',
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return SlurmSite(timeout_s=5.0)


def test_accounts_are_projects_with_members_and_weights():
    assert read_accounts(ASSOCIATIONS) == {
        "root": Account(1.0, ("root",)),
        "chemistry": Account(0.001, ("daemon", "nobody")),
        "physics": Account(3.0, ("daemon",)),
    }
    assert read_accounts("") == {}


def shares(job, gres, device, alone=False):
    return SlurmSite(gres).shares(read_holdings(SQUEUE[job]), device, alone=alone)


def test_only_the_gres_that_was_meant_counts():
    assert [part.job for part in read_holdings(SQUEUE["2"])] == ["2", "2"]  # two components of one job
    assert read_holdings("nonsense\n\n||") == []
    assert shares("2", "qpu", "q", alone=True) == 1
    assert shares("6", "qpu", "q", alone=True) == 0
    assert shares("6", "qpu:fast", "q") == 8


def test_shares_of_one_qpu_are_not_those_of_another():
    assert shares("7", "qpu", "helmi") == 2
    assert shares("7", "qpu", "atoms") == 0
    assert shares("7", "qpu", "atoms", alone=True) == 0  # another broker may have helmi
    assert shares("1", "qpu", "atoms") == 0  # without a type nobody can tell
    assert shares("1", "qpu", "atoms", alone=True) == 2
    assert shares("8", "qpu", "qpu") == 2  # the device that is just called qpu has no type


def test_a_job_is_the_callers_own_and_runs(site):
    async def main():
        assert await site.shares_of(WHO, "1", "q", alone=True) == ("1", 2)
        assert await site.shares_of(WHO, "2", "q", alone=True) == ("2", 1)  # a job of two components
        known_by_name = Caller(getpass.getuser())  # a token
        assert await site.shares_of(known_by_name, "1", "q", alone=True) == ("1", 2)
        for job in ("4", "99"):  # somebody else's, and none at all: nobody is told which
            with pytest.raises(Forbidden, match=f"user me has no Slurm job {job}"):
                await site.shares_of(WHO, job, "q", alone=True)
        with pytest.raises(Refused, match="job 5 does not run: it is CANCELLED"):
            await site.shares_of(WHO, "5", "q", alone=True)
        with pytest.raises(Unavailable, match="job 9 does not run yet: it is PENDING"):  # perhaps it does: ask again
            await site.shares_of(WHO, "9", "q", alone=True)

    asyncio.run(main())


def test_slurm_that_does_not_answer_is_one_line(site, tmp_path):
    async def main():
        (tmp_path / "squeue").write_text(
            "#!/bin/sh\necho 'squeue: error: Unable to contact controller' >&2; exit 1\n"
        )
        with pytest.raises(Unavailable, match="squeue does not answer: squeue: error: Unable to contact"):
            await site.shares_of(WHO, "1", "q", alone=True)
        (tmp_path / "squeue").write_text("#!/bin/sh\nexec sleep 60\n")
        with pytest.raises(Unavailable, match="squeue does not answer"):
            await SlurmSite(timeout_s=0.1).shares_of(WHO, "1", "q", alone=True)

    asyncio.run(main())


async def _broker(tmp_path, names=("q",), **options):
    from qloom.broker.clock import ServiceClock

    clock = ServiceClock()
    devices = [FakeDevice(Vendor(clock), name) for name in names]
    specs = [DeviceSpec(name, shares=2) for name in names]
    broker = broker_on(devices, tmp_path / "s.db", clock, specs, **options)
    await broker.start()
    return broker


def test_a_session_holds_no_more_than_the_job_was_given(site, tmp_path):
    async def main():
        broker = await _broker(tmp_path, slurm=site)
        with pytest.raises(Refused, match="needs a Slurm job"):
            await broker.sessions.open(WHO, "q", QpuHold.SHARE)
        first = await broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="2", key="k")
        again = await broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="2", key="k")
        assert first["id"] == again["id"]
        with pytest.raises(Refused, match="job 2 holds 1 shares of QPU q, and its sessions here would hold 2"):
            await broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="2")
        await broker.sessions.close(WHO, first["id"])
        whole = await broker.sessions.open(WHO, "q", QpuHold.WHOLE, slurm_job="1")
        assert whole["state"] == "open" or (await broker.sessions.wait_open(WHO, whole["id"]))["state"] == "open"
        await broker.sessions.close(WHO, whole["id"])
        twice = [broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="2", key="same") for _ in range(2)]
        one, other = await asyncio.gather(*twice)
        assert one["id"] == other["id"]
        at_once = [broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="1") for _ in range(3)]
        came = await asyncio.gather(*at_once, return_exceptions=True)
        assert [isinstance(each, Refused) for each in came].count(True) == 1  # two shares, three wishes
        await broker.close()

    asyncio.run(main())


def test_a_session_is_on_the_qpu_that_the_job_was_given(site, tmp_path):
    async def main():
        broker = await _broker(tmp_path, ("helmi", "atoms"), slurm=site)
        await broker.sessions.open(WHO, "helmi", QpuHold.SHARE, slurm_job="7")
        with pytest.raises(Refused, match="job 7 holds 0 shares of QPU atoms, and its sessions here would hold 1"):
            await broker.sessions.open(WHO, "atoms", QpuHold.SHARE, slurm_job="7")
        await broker.close()

    asyncio.run(main())


def _asked(tmp_path):
    file = tmp_path / "asked"
    return file.read_text().split() if file.exists() else []


def test_a_session_ends_with_the_share_of_its_job(site, tmp_path):
    async def main():
        broker = await _broker(tmp_path, slurm=site)
        await broker.slurm_shares.check()
        assert _asked(tmp_path) == []  # nothing to ask
        one = await broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="1")
        other = await broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="2")
        await broker.slurm_shares.check()
        assert _asked(tmp_path) == ["1", "2", "1,2"]  # one question for all
        assert len(broker.registry.sessions) == 2
        (tmp_path / "job-2").write_text(SQUEUE["2"].replace(f"3|{ME}|RUNNING", f"3|{ME}|CANCELLED"))  # scancel 2+1
        await broker.slurm_shares.check()
        assert list(broker.registry.sessions) == [one["id"]]
        await broker.database.durable()
        with pytest.raises(Refused, match="is closed: Slurm job 2 holds no share of QPU q for it any more"):
            broker.sessions.usable(WHO, other["id"])
        (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")  # Slurm is away: nothing is known
        await broker.slurm_shares.check()
        assert list(broker.registry.sessions) == [one["id"]]
        await broker.close()

    asyncio.run(main())


def test_a_share_that_is_missing_closes_its_session_only_if_it_stays_missing(site, tmp_path):
    async def main():
        broker = await _broker(tmp_path, slurm=site)
        now_us = broker.time.now_us()
        broker.time.now_us = lambda: now_us
        one = await broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="1")

        async def look(text: str, later_s: float) -> bool:
            nonlocal now_us
            now_us += round(later_s * 1e6)
            (tmp_path / "job-1").write_text(text)
            await broker.slurm_shares.check()
            return one["id"] in broker.registry.sessions

        pending = SQUEUE["1"].replace("RUNNING", "PENDING")
        assert await look(pending, 1.0)
        assert await look(pending, 59.0)
        assert await look(SQUEUE["1"], 0.0)  # it was there all the time
        assert await look("", 10.0)
        assert await look(pending, 59.0)
        squeue = (tmp_path / "squeue").read_text()
        (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
        assert await look("", 10.0)  # another restart
        (tmp_path / "squeue").write_text(squeue)
        assert await look("", 59.0)
        assert await look("", 59.0)
        assert not await look("", 1.0)
        await broker.close()

    asyncio.run(main())


def test_a_session_goes_on_in_the_job_of_a_driver_that_is_resumed(site, tmp_path):
    async def main():
        broker = await _broker(tmp_path, slurm=site)
        first = await broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="1", key="k")
        (tmp_path / "job-1").unlink()
        again = await broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="2", key="k")
        assert again["id"] == first["id"]
        await broker.slurm_shares.check()
        assert list(broker.registry.sessions) == [first["id"]]
        with pytest.raises(Refused, match="job 2 holds 1 shares"):
            await broker.sessions.open(WHO, "q", QpuHold.SHARE, slurm_job="2")
        await broker.close()
        later = await _broker(tmp_path, slurm=site)  # also over a restart
        assert [session.job for session in later.registry.sessions.values()] == ["slurm-2"]
        await later.close()

    asyncio.run(main())


def test_projects_follow_slurm_and_outlive_it(site, tmp_path, caplog):
    config = config_from(
        {"slurm": {"projects": True}, "projects": {"physics": {"budget_s": 5.0, "members": ["ann"]}}}, "config"
    )

    async def main():
        broker = await _broker(tmp_path)
        auth = Authenticator(("peer",))
        members = Members(config, broker, auth, site)
        assert auth.members == {"physics": ("ann",)}
        await members.refresh()
        nobody = pwd.getpwuid(65534)
        assert auth.of_uid(65534).projects == ("chemistry",)
        assert auth.members["physics"] == ("ann", "daemon")
        known = broker.core.ledger.projects["physics"]
        assert (known.weight, known.budget_s) == (3.0, 5.0)
        (tmp_path / "assoc").write_text(f"physics||2\nphysics|{nobody.pw_name}|1\n")
        await members.refresh()
        assert auth.of_uid(65534).projects == ("physics",)
        (tmp_path / "sacctmgr").write_text("#!/bin/sh\nexit 1\n")
        await members.refresh()
        assert auth.of_uid(65534).projects == ("physics",)
        assert "the projects stay as they were" in caplog.text
        await broker.close()
        again = await _broker(tmp_path)
        later = Authenticator(("peer",))
        Members(config, again, later, site)
        assert later.of_uid(65534).projects == ("physics",)
        await again.close()

    asyncio.run(main())


def test_the_service_asks_slurm(site, tmp_path, monkeypatch):
    me = pwd.getpwuid(ME).pw_name
    (tmp_path / "assoc").write_text(f"physics||3\nphysics|{me}|1\n")
    slurm = {"projects": True, "require_job": True, "check_s": 0.1, "confirm_s": 0.3}
    service = Service(
        tmp_path, module="tests.broker.plain", slurm=slurm, devices=[{"kind": "annealing", "name": "q"}]
    )
    service.start()
    with SyncBrokerClient(service.address, retry_s=5.0) as client:
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        with pytest.raises(Refused, match="needs a Slurm job"):
            client.open_session("q")
        monkeypatch.setenv("SLURM_JOB_ID", "1")
        view = client.open_session("q")
        assert (view["state"], view["project"]) == ("open", "physics")
        monkeypatch.setenv("SLURM_JOB_ID", "4")
        with pytest.raises(Forbidden, match="has no Slurm job 4"):
            client.open_session("q")
        (tmp_path / "job-1").unlink()  # it has ended, and Slurm has forgotten it
        deadline_s = time.monotonic() + 30
        while client.queue()["devices"][0]["sessions_open"]:
            assert time.monotonic() < deadline_s
    assert service.stop() == 0
    store = Database(service.store)
    assert json.loads(store.get("slurm_accounts", "{}"))["physics"]["members"] == [me]
    store.close()


def test_the_config_of_slurm_is_checked():
    with pytest.raises(InputError, match=r"slurm\.gres"):
        config_from({"slurm": {"gres": "qpu=1,x"}}, "config")
    with pytest.raises(InputError, match=r"slurm\.accounts is not a known key"):
        config_from({"slurm": {"accounts": True}}, "config")
    assert list(config_from({"slurm": {"projects": True}}, "config").projects_with({})) == []
