"""What a run held and used, from constructed journals, to the microsecond."""

from __future__ import annotations

import pytest

import qloom
from qloom.journal.event import event_from
from qloom.journal.history import read_history
from qloom.site import Overheads, Qpu, Site, Watts
from qloom.views.accounting import account

SECOND = 1_000_000


def journal(*events, watts=None):
    """Events as `(seconds, event, fields)`; a job is `j1` unless it is said."""
    start = {"n": 0, "at_us": 0, "event": "run_started", "version": 1, "jobs": 1, "site": {"watts": watts or {}}}
    lines = [start]
    for number, (at_s, event, fields) in enumerate(events, 1):
        own = {} if event in ("resumed", "run_ended") or event.startswith("driver_") else {"job": "j1"}
        lines.append({"n": number, "at_us": round(at_s * SECOND), "event": event, **own, **fields})
    return [event_from(line) for line in lines]


def figures(*events, job=None, **more):
    return account(read_history(journal(*events, **more)), job)


def submitted(at_s=0.0, **more):
    return (at_s, "job_submitted", more)


def granted(at_s, nodes, lease="j1.1", **more):
    return (at_s, "granted", {"lease": lease, "nodes": list(nodes), **more})


def requested(at_s, nodes, lease="j1.1", **more):
    return (at_s, "requested", {"lease": lease, "nodes": nodes, **more})


def released(at_s, lease="j1.1", **more):
    return (at_s, "released", {"lease": lease, **more})


def task(begin_s, end_s, nodes, work="w.0", state="done", **more):
    began = (begin_s, "task_started", {"work": work, "name": "t", "nodes": list(nodes), **more})
    return began, (end_s, "task_ended", {"work": work, "state": state})


def quantum(queued_s, begin_s, end_s, hold="task", work="q.0", device="q"):
    return (
        (queued_s, "quantum_queued", {"work": work, "name": "qubo", "device": device, "hold": hold}),
        (begin_s, "quantum_started", {"work": work, "device": device}),
        (end_s, "quantum_ended", {"work": work, "device": device, "state": "done"}),
    )


def ended(at_s, **more):
    return (at_s, "job_ended", {"state": "done", **more})


def test_held_from_grant_to_release_and_busy_while_a_task_runs():
    used = figures(
        submitted(), requested(0, 3), granted(2, ("n1", "n2", "n3")), *task(3, 7, ("n1",)), released(12), ended(12)
    )
    assert used.node_s_held == 30.0
    assert used.node_s_busy == 4.0
    assert used.wall_s == 10.0, "from the first start to the last end"
    assert used.turnaround_s == 12.0, "from the submission to the end"
    assert used.node_wait_s == 2.0


def test_a_task_on_several_nodes_keeps_all_of_them_busy():
    used = figures(submitted(), granted(0, ("n1", "n2")), *task(0, 5, ("n1", "n2")), released(5))
    assert used.node_s_busy == 10.0


def test_growing_and_shrinking():
    used = figures(
        submitted(),
        granted(0, ("n1",)),
        requested(1, 2, grow=True),
        (3, "grown", {"lease": "j1.1", "nodes": ["n2", "n3"]}),
        (5, "shrunk", {"lease": "j1.1", "nodes": ["n2"]}),
        released(6),
    )
    assert used.node_s_held == 6 + 2 + 3
    assert used.node_wait_s == 2.0


def test_a_node_that_another_lease_has_before_its_release_is_noted_counts_for_both():
    held = figures(
        submitted(),
        granted(0.0, ["n1"], "j1.1"),
        granted(10.2, ["n1"], "j1.2", engine_us=10 * SECOND),
        released(10.3, "j1.1", engine_us=10 * SECOND),
        released(15.0, "j1.2"),
        ended(15.0),
    )
    assert held.node_s_held == 15.0


def test_a_request_that_was_withdrawn_counts_as_waiting_only():
    used = figures(submitted(), requested(0, 2), (5, "withdrawn", {"lease": "j1.1"}), ended(5))
    assert used.node_wait_s == 5.0
    assert used.node_s_held == 0.0


def test_a_task_whose_node_is_taken_away_is_busy_no_longer_than_the_node_is_held():
    """Slurm ended the job at 3.3 s; its driver noticed at 4 s."""
    taken = released(4.1, engine_us=3_300_000)
    used = figures(submitted(), granted(0, ("n1", "n2")), *task(0, 4, ("n1",), state="failed"), taken, ended(4.1))
    assert (used.node_s_held, used.node_s_busy) == (6.6, 3.3)


def test_a_qpu_that_is_taken_away_is_busy_no_longer_than_it_is_held():
    whole = {"device": "q", "hold": "whole", "shares": 8}
    taken = released(9, engine_us=5 * SECOND)
    used = figures(submitted(), granted(0, (), **whole), *quantum(1, 2, 8, hold="whole"), taken, ended(9))
    assert (used.qpu_s_held, used.qpu_s_busy) == (5.0, 3.0)


def test_each_lease_of_a_node_cuts_its_own_tasks():
    used = figures(
        submitted(),
        granted(0, ("n1",)),
        *task(0, 2, ("n1",), work="w.0"),
        released(2.1, engine_us=1_500_000),
        granted(2.2, ("n1",), lease="j1.2", engine_us=2_300_000),
        *task(2.25, 5, ("n1",), work="w.1"),
        released(5, lease="j1.2"),
    )
    assert used.node_s_busy == used.node_s_held == pytest.approx(1.5 + 2.7)


def test_the_start_of_a_worker_and_its_imports_are_held_and_not_busy():
    begun, end = task(0, 5, ("n1", "n2"))
    used = figures(submitted(), granted(0, ("n1", "n2")), begun, (5, end[1], {**end[2], "seconds": 2.0}), released(5))
    assert (used.node_s_held, used.node_s_busy) == (10.0, 4.0)


def test_the_wall_has_what_the_driver_computes_before_between_and_after_phases():
    """It computes until 3 s, waits until 5 s, computes from 6 to 8 s with nothing held, and again at the end."""
    used = figures(
        submitted(),
        requested(3, 1),
        granted(5, ("n1",)),
        released(6),
        requested(8, 1, lease="j1.2"),
        granted(8, ("n1",), lease="j1.2"),
        released(9, lease="j1.2"),
        ended(13),
    )
    assert used.wall_s == 3 + 1 + 2 + 1 + 4
    assert used.turnaround_s == 13.0


def test_a_wall_never_counts_the_first_wait_twice_over_a_kill():
    events = (submitted(), requested(1, 1), (50, "resumed", {}), requested(51, 1), granted(52, ("n1",)), ended(60))
    assert figures(*events).wall_s == 1 + 8


def test_a_whole_qpu_is_held_also_while_it_idles():
    whole = {"device": "q", "hold": "whole", "shares": 8}
    used = figures(
        submitted(), granted(0, ("n1",), **whole), *quantum(2, 3, 7, hold="whole"), released(10), ended(10)
    )
    assert (used.qpu_s_held, used.qpu_s_busy, used.vqpu_s_held) == (10.0, 4.0, 0.0)
    assert used.qpu_wait_s == 1.0


def test_a_qpu_that_is_given_back_early_is_held_until_then():
    whole = {"device": "q", "hold": "whole", "shares": 8}
    back = (4, "qpu_released", {"lease": "j1.1", "device": "q", "shares": 8})
    used = figures(submitted(), granted(0, ("n1",), **whole), back, released(10))
    assert (used.qpu_s_held, used.node_s_held) == (4.0, 10.0)


def test_shares_are_never_added_to_qpu_seconds():
    share = {"device": "q", "hold": "share", "shares": 1}
    used = figures(submitted(), granted(0, (), **share), *quantum(1, 2, 5, hold="share"), released(10))
    assert used.vqpu_s_held == 10.0
    assert used.qpu_s_held == used.qpu_s_busy == 3.0


def test_a_task_outside_any_session_holds_the_qpu_while_it_executes():
    used = figures(submitted(), *quantum(0, 6, 9))
    assert used.qpu_s_held == used.qpu_s_busy == 3.0
    assert used.qpu_wait_s == 6.0


def test_a_quantum_task_that_never_started_uses_nothing():
    queued, _, end = quantum(0, 0, 5)
    used = figures(submitted(), queued, (5, "quantum_ended", {**end[2], "state": "cancelled"}), ended(5))
    assert used.qpu_s_held == used.qpu_s_busy == 0.0


def test_spare_work_is_busy_and_told_apart():
    used = figures(submitted(), granted(0, ("n1", "n2")), *task(0, 4, ("n2",), spare=True), released(5))
    assert used.node_s_busy == used.spare_node_s == 4.0


def test_the_engines_own_time_counts_even_if_it_is_zero():
    """Slurm bills from its own start time, also when that is the very beginning."""
    used = figures(submitted(), granted(2, ("n1",), engine_us=0), released(9, engine_us=10 * SECOND))
    assert used.node_s_held == 10.0


def test_overheads_of_a_grant_are_billed_from_the_very_first_grant_on():
    """The same overhead must not depend on when it comes: one iteration costs half of two."""
    site = Site(overheads=Overheads(grant_s=1.0))
    held = [
        account(
            read_history(
                qloom.run(
                    "phases",
                    strategy="workflow",
                    world="virtual",
                    site=site,
                    in_memory=True,
                    parameters={"iterations": number},
                ).events
            )
        ).node_s_held
        for number in (1, 2)
    ]
    assert held[1] == pytest.approx(2 * held[0])


def test_what_a_killed_run_had_open_ends_at_its_last_event():
    begun, _ = task(1, 0, ("n1",))
    history = read_history(journal(submitted(), granted(0, ("n1", "n2")), begun, requested(7, 1, lease="j1.2")))
    used = account(history)
    assert used.node_s_held == 14.0
    assert used.node_s_busy == 6.0
    assert used.turnaround_s == 7.0
    assert {interval.state for interval in history.intervals} == {"open"}


def test_nothing_is_held_between_a_kill_and_its_resumption():
    begun, _ = task(1, 0, ("n1",))
    events = (
        submitted(),
        granted(0, ("n1", "n2")),
        begun,
        (5, "called", {"call": "c", "order": 0, "kind": "classical", "names": []}),
        (100, "resumed", {}),
        granted(101, ("n1", "n2")),
        *task(101, 103, ("n1",)),
        released(104),
        ended(104),
    )
    used = figures(*events)
    assert used.node_s_held == 2 * 5 + 2 * 3
    assert used.node_s_busy == 4 + 2
    assert used.wall_s == 5 + 4, "the 95 s in which nobody ran it are left out"
    assert used.turnaround_s == 104.0, "the user waited for all of it"
    assert read_history(journal(*events)).gaps == [(5 * SECOND, 100 * SECOND)]


def handed_on(at_s, engine_id):
    return (at_s, "run_ended", {"state": "handed on", "engine_id": engine_id})


def test_the_time_in_slurm_s_queue_is_a_wait_and_not_a_kill():
    """Slurm says that the job began at 12 s; its driver goes on at 13 s and asks for what it has already."""
    events = (
        submitted(),
        handed_on(1, "45"),
        (13, "resumed", {"engine_id": "45"}),
        requested(14, 3),
        granted(14, ("n1", "n2", "n3"), engine_us=12 * SECOND, engine_id="45"),
        released(20),
        ended(20),
    )
    used = figures(*events)
    assert used.node_wait_s == 11.0
    assert used.node_s_held == 3 * used.wall_s == 24.0
    assert read_history(journal(*events)).gaps == []


def test_each_link_of_a_chain_has_waited_since_it_was_submitted():
    events = (
        submitted(),
        handed_on(0, "1"),
        (5, "resumed", {"engine_id": "1"}),
        requested(5, 1),
        granted(5, ("n1",), engine_us=4 * SECOND),
        released(8),
        handed_on(8, "2"),
        (11, "resumed", {"engine_id": "2"}),
        requested(11, 0, device="q", hold="whole"),
        granted(11, (), device="q", hold="whole", shares=8, engine_us=10 * SECOND),
        released(15),
        ended(15),
    )
    used = figures(*events)
    assert (used.node_wait_s, used.qpu_wait_s) == (4.0, 2.0)
    assert used.wall_s == 11.0, "as with one driver, a wait between two phases is part of it"


def test_a_submitted_run_that_another_driver_goes_on_with_had_stopped():
    events = (submitted(), handed_on(1, "45"), (50, "resumed", {}), requested(51, 1), granted(52, ("n1",)))
    assert read_history(journal(*events)).gaps == [(1 * SECOND, 50 * SECOND)]
    assert figures(*events).node_wait_s == 1.0


def test_a_wait_is_never_negative():
    assert figures(submitted(), requested(5, 1), granted(5, ("n1",), engine_us=3 * SECOND)).node_wait_s == 0.0


def test_a_quantum_task_that_a_kill_cut_off_is_queued_again():
    queued, begun, _ = quantum(0, 2, 0)
    used = figures(submitted(), queued, begun, (4, "resumed", {}), *quantum(10, 11, 15))
    assert used.qpu_s_busy == used.qpu_s_held == 0.0 + 4.0
    assert used.qpu_wait_s == 2.0 + 1.0


def test_each_job_has_its_own_figures_and_they_add_up():
    events = (
        submitted(0),
        submitted(1, job="j2"),
        granted(0, ("n1",)),
        requested(1, 2, lease="j2.1", job="j2"),
        granted(2, ("n2", "n3"), lease="j2.1", job="j2"),
        released(4),
        released(7, lease="j2.1", job="j2"),
        ended(4),
        ended(7, job="j2"),
    )
    first, second, total = (figures(*events, job=job) for job in ("j1", "j2", None))
    assert (first.node_s_held, second.node_s_held, total.node_s_held) == (4.0, 10.0, 14.0)
    assert (first.wall_s, second.wall_s, total.wall_s) == (4.0, 5.0, 7.0)
    assert (first.turnaround_s, second.turnaround_s, total.turnaround_s) == (4.0, 6.0, 7.0)


@pytest.mark.parametrize(
    ("wait_s", "run_s", "slowdown"), [(0, 20, 1.0), (20, 20, 2.0), (0, 1, 1.0), (4, 1, 1.0), (99, 1, 10.0)]
)
def test_slowdown_is_bounded_for_short_jobs(wait_s, run_s, slowdown):
    end_s = wait_s + run_s
    used = figures(submitted(), requested(0, 1), granted(wait_s, ("n1",)), released(end_s), ended(end_s))
    assert used.bounded_slowdown == pytest.approx(slowdown)


def test_energy_is_idle_and_busy_watts():
    watts = {"node_idle": 100.0, "node_busy": 300.0, "qpu_idle": 10_000.0, "qpu_busy": 20_000.0}
    whole = {"device": "q", "hold": "whole", "shares": 8}
    events = (
        submitted(),
        granted(0, ("n1", "n2"), **whole),
        *task(0, 5, ("n1",)),
        *quantum(5, 5, 8, hold="whole"),
        released(10),
    )
    used = figures(*events, watts=watts)
    assert used.energy_j == 300 * 5 + 100 * 15 + 20_000 * 3 + 10_000 * 7
    assert figures(*events).energy_j is None, "not told if no watts are configured"


def test_energy_of_a_run_comes_from_its_site():
    site = Site(watts=Watts(node_idle=100, node_busy=300), qpus=(Qpu(),))
    events = qloom.run("phases", world="virtual", site=site, in_memory=True).events
    assert account(read_history(events)).energy_j == pytest.approx(100 * (301.2 - 54.0) + 300 * 54.0)


def test_a_journal_without_any_work_costs_nothing():
    used = figures(submitted(3), (4, "job_ended", {"state": "failed"}))
    assert used.node_s_held == used.qpu_s_held == 0.0
    assert used.wall_s == used.turnaround_s == 1.0
    assert figures().as_dict()["wall_s"] == 0.0


def driver(at_s, nodes, **more):
    return (at_s, "driver_started", {"nodes": list(nodes), "engine_id": "7", **more})


def test_the_job_of_a_driver_counts_whether_it_is_lent_or_idle():
    events = [
        *(driver(0.5, ["n1"]), submitted(1), granted(2, ["n1", "n2"]), released(5)),
        *(
            granted(7, ["n1"], "j1.2", engine_us=7 * SECOND),
            released(8, "j1.2"),
            (10, "run_ended", {"state": "done"}),
        ),
    ]
    used = figures(*events)
    assert used.node_s_held == 9.5 + 3, "n1 from 0.5 to 10, n2 from 2 to 5"
    assert figures(*events, job="j1").node_s_held == used.node_s_held
    held = [interval for interval in read_history(journal(*events)).intervals if "n1" in interval.resources]
    assert sum(interval.seconds for interval in held) == 9.5, "no second is counted twice"


def test_what_a_driver_s_job_gives_back_is_held_no_longer():
    shrunk = [
        *(driver(0, ["n1", "n2"], device="q", hold="whole"), submitted(0), granted(1, ["n1", "n2"])),
        *((3, "driver_released", {"nodes": ["n2"]}), (3, "shrunk", {"lease": "j1.1", "nodes": ["n2"]})),
        *((4, "driver_released", {"device": "q"}), released(5), (6, "run_ended", {"state": "done"})),
    ]
    used = figures(*shrunk)
    assert used.node_s_held == 6 + 3
    assert used.qpu_s_held == 4


def test_a_core_for_the_driver_is_a_part_of_a_node_and_a_killed_driver_holds_nothing():
    killed = [driver(0, ["n1"], weight=0.25), submitted(0), granted(1, ["n2"]), ended(9), (9, "resumed", {})]
    assert figures(*killed, driver(10, ["n3"]), (12, "run_ended", {"state": "done"})).node_s_held == 9 * 0.25 + 8 + 2
