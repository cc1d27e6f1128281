"""Explanations: a user learns what a run waits for, and where its time went."""

import pytest

import qloom
from qloom.journal.event import event_from
from qloom.journal.events import Resumed
from qloom.journal.intervals import WorkerStart
from qloom.journal.queries import SlurmJob
from qloom.views.explain import explain
from qloom.views.summary import divide, human_s, starts_in_words

STRATEGIES = ("coschedule", "offload", "workflow", "vqpu", "malleable", "split", "malleable+share")


def events_of(strategy, jobs=2, options=None, **parameters):
    plan = {"strategy": strategy, "world": "virtual", "jobs": jobs, "options": options or {}}
    return qloom.run("phases", in_memory=True, parameters={"iterations": 2, **parameters}, **plan).events


def until(events, at_s):
    return [event for event in events if event.at_us <= at_s * 1e6]


class Story:
    """A journal by hand."""

    def __init__(self, **start):
        site = {"nodes": 3, "qpus": [{"name": "qpu", "shares": 8}], **start.pop("site", {})}
        self.events = []
        self.add(0, "run_started", program="p", strategy="offload", world="local", jobs=1, site=site, **start)

    def add(self, at_s, event, **fields):
        line = {"n": len(self.events), "at_us": round(at_s * 1e6), "event": event, **fields}
        self.events.append(event_from(line))
        return self


@pytest.mark.parametrize("speculate", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_journal_cut_off_anywhere_is_explained(strategy, speculate):
    events = events_of(strategy, jobs=3, speculate=speculate)
    for cut in range(len(events) + 1):
        for alive in (None, False):
            lines = explain(events[:cut], alive=alive)
            assert lines
            assert all(line and "\n" not in line for line in lines)
            assert all(any(f"job {e.job}" in line for line in lines) for e in events[:cut] if e.job)
            resumed = Resumed(n=cut, at_us=10**9)
            assert cut == 0 or explain([*events[:cut], resumed, *events[cut : cut + 5]])


def test_who_holds_the_nodes_that_a_job_waits_for():
    events = events_of("offload")
    assert "job j2 has waited 12.7 s for 3 nodes: job j1 holds n1, n2, n3" in explain(
        until(events, 5), now_us=12_700_000
    )


def test_whole_device_and_share():
    lines = explain(until(events_of("coschedule"), 5))
    assert (
        "job j2 has waited 0.2 s for 3 nodes and QPU qpu: job j1 holds n1, n2, n3; job j1 holds the whole QPU"
        in lines
    )


def test_who_is_ahead_in_the_queue_of_a_qpu():
    lines = explain(until(events_of("malleable", jobs=3, options={"patience_s": 3.0}), 28.5))
    assert "job j3 has waited 17.4 s for QPU qpu: 1 quantum task is ahead of it (j2 executing for 5.4 s)" in lines
    assert "job j2 has delay executing on QPU qpu (for 5.4 s)" in lines
    assert any(
        line.startswith("job j1 waits up to its patience of 3.0 s for 2 more nodes, 0.0 s so far: job j2 holds n2")
        for line in lines
    )


def test_tasks_that_run_spare_work_and_growth_that_was_not_granted():
    events = events_of("malleable", speculate=True)
    assert explain(until(events, 5.1)) == [
        "phases, 2 jobs under malleable in world virtual: 5.0 s after it began",
        "job j1 runs 2 tasks: work on n1 (for 0.0 s), work on n3 (for 0.0 s)",
        "job j1 asked for 1 more node and went on without after 5.0 s",
        "job j2 runs 1 task: work on n2 (for 0.0 s)",
        "job j2 asked for 2 more nodes and went on without after 5.0 s",
    ]
    assert "job j1 does spare work meanwhile: work on n3 (for 0.0 s)" in explain(until(events, 13.1))


def test_idle_nodes_are_named():
    assert "job j1 holds n1, n2, n3 idle meanwhile" in explain(until(events_of("offload", jobs=1), 8))


def test_a_killed_run_says_how_to_go_on():
    events = events_of("offload")[:10]
    gone = "the run was killed or its process is gone: qloom resume last"
    assert gone in explain(events, alive=False)
    assert gone not in explain(events, alive=True)
    assert gone not in explain(events)
    assert any("qloom resume 2026" in line for line in explain(events, alive=False, run="2026"))


def test_where_the_time_of_a_finished_run_went():
    lines = explain(events_of("offload", iterations=1))
    assert lines[0] == "phases, 2 jobs under offload in world virtual: done after 50.2 s"
    for line in (
        "job j1 is done, 25.1 s after its submission",
        "job j1 computed for 13.1 s (52 %)",
        "job j1 had a QPU executing for 12.0 s (48 %)",
        "job j1 held nodes idle for 61.8 of 75.3 node-seconds (82 %)",
        "job j2 waited 25.1 s for nodes (50 %)",
    ):
        assert line in lines


def test_many_jobs_are_told_together():
    lines = explain(events_of("workflow", jobs=12))
    assert len(lines) < 8
    assert any(line.startswith("all 12 jobs together waited") for line in lines)


def test_each_moment_counts_once():
    parts = divide(0, 100, {"executing": [(10, 50)], "computing": [(0, 20), (40, 60)], "nodes": [(55, 80)]})
    assert {kind: part for kind, part in parts.items() if part} == {
        "executing": 40,
        "computing": 20,
        "nodes": 20,
        "rest": 20,
    }
    assert sum(divide(0, 0, {"executing": [(0, 5)]}).values()) == 0


def test_failure_interruption_and_advice():
    story = Story().add(0, "job_submitted", job="j1").add(0, "job_submitted", job="j2")
    error = {"message": "task t raised ValueError", "hint": "mend it"}
    story.add(2, "job_ended", job="j1", state="failed", error=error).add(
        3, "job_ended", job="j2", state="interrupted"
    )
    assert "job j1 failed after 2.0 s: task t raised ValueError (mend it)" in explain(story.events)
    lines = explain(story.add(3, "run_ended", state="interrupted").events)
    assert lines[0].endswith("was interrupted after 3.0 s")
    assert "job j2 was interrupted after 3.0 s" in lines
    assert lines[-1] == "what is done is kept; to go on: qloom resume last"


def test_candidates_say_what_was_chosen_and_why():
    story = Story().add(0, "job_submitted", job="j1")
    story.add(1, "candidate", job="j1", work="w.0", instead="c.0", choice="quantum")
    assert "job j1 chose the QPU over the classical stand-in once" in explain(story.events)
    story.add(
        2, "candidate", job="j1", work="w.1", instead="c.1", choice="classical", reason="QPU qpu is not available"
    )
    expected = "job j1 ran the classical stand-in instead of the QPU 1 of 2 times: QPU qpu is not available"
    assert expected in explain(story.events)
    story.add(3, "job_ended", job="j1", state="done").add(3, "run_ended", state="done")
    assert expected in explain(story.events)


def test_a_device_that_is_away_is_named():
    site = {"qpus": [{"name": "qpu", "shares": 8, "outages_s": [[0, 90]]}]}
    story = Story(site=site).add(0, "job_submitted", job="j1")
    story.add(5, "quantum_queued", job="j1", work="w.0", name="circuit", device="qpu", hold="task")
    assert explain(story.events, now_us=9_000_000)[-1] == (
        "job j1 has waited 4.0 s for QPU qpu: QPU qpu is away, back at 1 min 30 s"
    )


def test_a_quantum_block_that_waits_for_its_hold():
    story = Story().add(0, "job_submitted", job="j1").add(0, "job_submitted", job="j2")
    story.add(1, "granted", job="j1", lease="j1.1", nodes=[], device="qpu", hold="whole", shares=8)
    story.add(2, "called", job="j2", call="c", order=0, kind="quantum", names=["circuit"])
    assert "job j2 waits for a hold on QPU qpu: job j1 uses it" in explain(story.events)


def test_a_resumed_run_has_forgotten_what_was_open():
    story = Story().add(0, "job_submitted", job="j1")
    story.add(1, "granted", job="j1", lease="j1.1", nodes=["n1"])
    story.add(1, "task_started", job="j1", work="w.0", name="fit", nodes=["n1"])
    story.add(2, "job_ended", job="j1", state="interrupted").add(2, "run_ended", state="interrupted")
    lines = explain(story.add(202, "resumed").events)
    assert "it was resumed at 3 min 22 s, 3 min 20 s after it had stopped" in lines
    assert not any("fit" in line or "n1" in line or "interrupted" in line for line in lines)
    story.add(203, "job_ended", job="j1", state="done").add(203, "run_ended", state="done")
    assert "job j1 stood still for 3 min 20 s, killed and not yet resumed (99 %)" in explain(story.events)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (SlurmJob("45", "waits", "others are ahead"), "submitted as Slurm job 45, 8.0 s ago: others are ahead"),
        (SlurmJob("45", "holds", "it is starting"), "submitted as Slurm job 45, 8.0 s ago: it is starting"),
        (SlurmJob("45", "ended", "was cancelled"), "Slurm job 45 was to go on with it and was cancelled"),
        (SlurmJob("45", "unknown", "no answer"), "Slurm job 45 goes on with it: squeue -j 45"),
        (None, "Slurm job 45 goes on with it: squeue -j 45"),
    ],
)
def test_a_submitted_run_says_what_slurm_says(job, said):
    story = Story().add(1, "job_submitted", job="j1").add(1, "job_ended", job="j1", state="interrupted")
    story.add(2, "run_ended", state="handed on", engine_id="45")
    lines = explain(story.events, alive=False, now_us=10_000_000, slurm_job=job)
    assert lines[0].endswith(": 10.0 s after it began")
    assert said in lines
    assert not any("interrupted" in line or "killed" in line for line in lines)
    assert any("qloom resume last" in line for line in lines) == (job is not None and job.stage == "ended")


def test_a_chain_hands_on_and_is_not_interrupted():
    story = Story().add(1, "job_submitted", job="j1").add(9.7, "job_ended", job="j1", state="interrupted")
    story.add(9.7, "run_ended", state="handed on", engine_id="33").add(11.4, "resumed", engine_id="33")
    story.add(11.5, "requested", job="j1", lease="j1.1", nodes=1)
    story.add(11.5, "granted", job="j1", lease="j1.1", nodes=["n1"], engine_us=11_200_000)
    assert "handed to Slurm job 33 at 9.7 s; its driver began at 11.4 s" in explain(story.events, alive=True)
    story.add(20, "job_ended", job="j1", state="done").add(20, "run_ended", state="done")
    lines = explain(story.events)
    assert "job j1 waited 1.5 s for nodes (8 %)" in lines
    assert not any(word in line for line in lines for word in ("interrupted", "killed", "resumed"))


def test_a_run_that_was_handed_over_says_what_its_driver_waited_for():
    story = Story().add(1, "job_submitted", job="j1")
    story.add(61, "run_ended", state="handed on", engine_id="33", reason="2 nodes did not come in 60 s")
    story.add(70, "resumed", engine_id="33")
    said = "handed to Slurm job 33 at 1 min 1 s because 2 nodes did not come in 60 s; its driver began at 1 min 10 s"
    assert said in explain(story.events, alive=True)


def test_the_last_drivers_of_a_long_chain_are_named():
    story = Story()
    for link in range(20):
        story.add(link, "run_ended", state="handed on", engine_id=str(link)).add(link, "resumed", engine_id=str(link))
    lines = explain(story.events, alive=True)
    assert "it went from driver to driver 20 times; these are the last:" in lines
    assert len([line for line in lines if line.startswith("handed to")]) == 6


def test_a_run_whose_driver_lives_is_as_old_as_it_is():
    story = Story().add(0.7, "job_submitted", job="j1")
    story.add(0.7, "task_started", job="j1", work="w.0", name="fit", nodes=["n1"])
    lines = explain(story.events, alive=True, now_us=7_000_000)
    assert lines[0].endswith(": 7.0 s after it began")
    assert "job j1 runs 1 task: fit on n1 (for 6.3 s)" in lines


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0 s"), (1.23, "1.2 s"), (59.97, "1 min"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (266_400, "3 d 2 h")],
)
def test_durations_for_people(seconds, words):
    assert human_s(seconds) == words


def test_cold_and_warm_starts_are_told_apart():
    starts = [WorkerStart("c1", 6.7), WorkerStart("c1", 0.3, warm=True), WorkerStart("c2", 0.5, warm=True)]
    assert starts_in_words(starts) == ["workers started once cold, in 6.7 s and 2 times warm, in 0.4 s"]
    assert starts_in_words(starts[:1]) == []
