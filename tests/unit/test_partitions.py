"""The line for nodes and QPU shares: all at once or nothing, first come first served per partition."""

from __future__ import annotations

import os
import random

from hypothesis import given, settings
from hypothesis import strategies as some

from qloom.model import QpuHold
from qloom.world import Request
from qloom.worlds.partitions import Partitions, lease_of

NODES = ["n1", "n2", "n3", "n4"]


def ask(name, nodes=0, qpu=QpuHold.TASK, device=None, most=None):
    return Request(name, name, nodes, nodes if most is None else most, qpu, device)


def enter(partitions, *requests):
    for request in requests:
        partitions.enter(request)
    return [grant.request.id for grant in partitions.schedule()]


def test_granted_in_the_order_they_came():
    line = Partitions(NODES, {})
    assert enter(line, ask("a", 2), ask("b", 3), ask("c", 1)) == ["a"], "c may not overtake b"
    line.give_back(["n1"])
    assert [grant.request.id for grant in line.schedule()] == ["b"]
    line.give_back(NODES)
    assert [grant.request.id for grant in line.schedule()] == ["c"]


def test_who_waits_for_a_qpu_does_not_stop_who_only_wants_nodes():
    line = Partitions(NODES, {"q": 2})
    whole = ask("a", qpu=QpuHold.WHOLE, device="q")
    assert enter(line, whole, ask("b", qpu=QpuHold.SHARE, device="q"), ask("c", 1)) == ["a", "c"]


def test_who_waits_for_both_holds_neither_and_keeps_its_place_in_both_lines():
    line = Partitions(NODES, {"q": 2, "r": 2})
    (owner,) = enter(line, ask("owner", qpu=QpuHold.WHOLE, device="q"))
    assert owner == "owner"
    assert enter(line, ask("both", 2, QpuHold.SHARE, "q")) == []
    assert line.free_nodes == 4, "nothing is taken by who has to wait"
    assert enter(line, ask("later", 1)) == [], "who came before has the first right to the nodes"
    assert enter(line, ask("elsewhere", qpu=QpuHold.SHARE, device="r")) == ["elsewhere"]
    line.give_back([], "q", 2)
    assert [grant.request.id for grant in line.schedule()] == ["both", "later"]


def test_a_whole_device_is_all_its_shares():
    line = Partitions(NODES, {"q": 3})
    assert enter(line, ask("s", qpu=QpuHold.SHARE, device="q"), ask("w", qpu=QpuHold.WHOLE, device="q")) == ["s"]
    assert enter(line, ask("t", qpu=QpuHold.SHARE, device="q")) == [], "behind the whole"
    line.give_back([], "q", 1)
    (grant,) = line.schedule()
    assert (grant.request.id, grant.shares) == ("w", 3)
    line.give_back([], "q", 3)
    assert [grant.request.id for grant in line.schedule()] == ["t"]


def test_growing_takes_what_there_is():
    line = Partitions(NODES, {})
    enter(line, ask("a", 3))
    line.enter(ask("b", 1, most=3))
    (grant,) = line.schedule()
    assert grant.nodes == ("n4",)


def test_nodes_come_in_their_order():
    line = Partitions(NODES, {})
    enter(line, ask("a", 4))
    line.give_back(["n3"])
    line.give_back(["n1"])
    line.enter(ask("b", 2))
    (grant,) = line.schedule()
    assert grant.nodes == ("n1", "n3")


def test_leaving_the_line():
    line = Partitions(NODES, {})
    big, small = ask("big", 4), ask("small", 1)
    enter(line, ask("a", 1))
    assert enter(line, big, small) == []
    assert line.leave(big) is True
    assert line.leave(big) is False
    assert [grant.request.id for grant in line.schedule()] == ["small"]
    assert line.leave(small) is False, "too late: it is granted"


def test_at_once_only_past_nobody():
    line = Partitions(NODES, {"q": 1})
    assert line.try_at_once(ask("a", 3)) is not None
    line.enter(ask("b", 2))
    line.schedule()
    assert line.try_at_once(ask("c", 1)) is None, "b was first"
    assert line.try_at_once(ask("d", qpu=QpuHold.SHARE, device="q")) is not None
    assert line.try_at_once(ask("e", qpu=QpuHold.SHARE, device="q")) is None, "no share is left"


def test_a_lease_names_a_device_only_if_it_holds_some_of_it():
    line = Partitions(NODES, {"q": 2})
    line.enter(ask("a", 1, QpuHold.TASK, "q"))
    (grant,) = line.schedule()
    lease = lease_of(grant)
    assert (lease.nodes, lease.device, lease.shares) == (["n1"], None, 0)


@settings(max_examples=int(os.environ.get("QLOOM_EXAMPLES", "300")), deadline=None)
@given(seed=some.integers(0, 2**32), steps=some.integers(1, 80), shares=some.integers(1, 4))
def test_never_more_than_there_is_never_past_anyone_and_all_comes_back(seed, steps, shares):
    rng = random.Random(seed)
    devices = {"q": shares, "r": 2}
    line = Partitions(NODES, devices)
    held: dict[str, tuple] = {}
    arrived: list[Request] = []  # who waits, in the order they came

    def wants(request):
        uses_qpu = request.qpu is not QpuHold.TASK and request.device is not None
        return ({request.device} if uses_qpu else set()) | ({"nodes"} if request.least_nodes else set())

    def take(grant):
        request = grant.request
        assert request.id not in held
        assert request.least_nodes <= len(grant.nodes) <= request.most_nodes, "all of it at once"
        whole = devices[request.device] if request.device else 0
        assert grant.shares == {QpuHold.WHOLE: whole, QpuHold.SHARE: 1, QpuHold.TASK: 0}[request.qpu]
        held[request.id] = (grant.nodes, request.device, grant.shares)

    def check():
        nodes = [node for granted, _, _ in held.values() for node in granted]
        assert len(nodes) == len(set(nodes)), "a node with two holders"
        assert line.free_nodes == len(NODES) - len(nodes)
        for device, there_are in devices.items():
            assert sum(number for _, name, number in held.values() if name == device) <= there_are
        assert [request.id for request in line.waiting] == [request.id for request in arrived]

    def schedule():
        for grant in line.schedule():
            ahead = arrived[: arrived.index(grant.request)]
            assert not [other.id for other in ahead if wants(other) & wants(grant.request)], "overtook somebody"
            arrived.remove(grant.request)
            take(grant)
        for place, request in enumerate(arrived):  # whoever still waits has a reason to
            used = sum(number for _, name, number in held.values() if name == request.device)
            enough = line.free_nodes >= request.least_nodes
            free_shares = devices[request.device] - used if request.device else 0
            fits = enough and (not request.device or free_shares >= line.shares_of(request))
            blocked = any(wants(other) & wants(request) for other in arrived[:place])
            assert blocked or not fits, f"{request.id} could have been granted"

    for number in range(steps):
        match rng.choice(["ask", "ask", "give", "leave", "at once"]):
            case "ask" | "at once" as how:
                nodes = rng.randint(0, 4)
                qpu = rng.choice(list(QpuHold))
                device = rng.choice(["q", "r"]) if qpu is not QpuHold.TASK else None
                if not nodes and device is None:
                    continue
                request = ask(f"x{number}", nodes, qpu, device, rng.randint(nodes, 4) if nodes else 0)
                if how == "ask":
                    arrived.append(request)
                    line.enter(request)
                elif (grant := line.try_at_once(request)) is not None:
                    assert not any(wants(other) & wants(request) for other in arrived), "overtook somebody"
                    take(grant)
            case "give" if held:
                nodes, device, number_of = held.pop(rng.choice(list(held)))
                line.give_back(nodes, device, number_of)
            case "leave" if arrived:
                gone = arrived.pop(rng.randrange(len(arrived)))
                assert line.leave(gone)
        schedule()
        check()
    while arrived or held:
        assert held, "nobody holds anything and somebody waits"
        line.give_back(*held.pop(next(iter(held))))
        schedule()
        check()
    assert line.all_free()


def behind(name, lease, nodes):
    request = ask(name, nodes)
    request.after = lease
    return request


def test_who_comes_after_a_lease_keeps_its_place_but_blocks_nobody_until_that_has_ended():
    line = Partitions(NODES, {})
    line.enter(ask("first", 3))
    (grant,) = line.schedule()
    lease = lease_of(grant)
    assert enter(line, behind("second", lease, 1)) == [], "a node is free, but the one before has not ended"
    assert not line.nodes_are_short()
    assert line.try_at_once(behind("third", lease, 1)) is None
    assert line.try_at_once(ask("small", 1)) is not None
    assert enter(line, ask("later", 4)) == []
    line.give_back(["n4"])
    line.give_back(lease.nodes[1:])
    assert line.schedule() == [], "a lease that has shrunk has not ended"
    lease.ended = True
    line.give_back(lease.nodes[:1])
    assert [grant.request.id for grant in line.schedule()] == ["second"], "it came before the large one"
    assert [request.id for request in line.waiting] == ["later"]


def test_who_is_not_yet_eligible_can_leave_and_is_never_granted():
    line = Partitions(NODES, {})
    line.enter(ask("first", 4))
    (grant,) = line.schedule()
    lease = lease_of(grant)
    second = behind("second", lease, 1)
    line.enter(second)
    assert [request.id for request in line.waiting] == ["second"]
    assert line.leave(second)
    assert not line.leave(second)
    lease.ended = True
    line.give_back(lease.nodes)
    assert line.schedule() == []
    assert line.waiting == []
