"""Traces, side-cars and results: what is read, what is written, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

import pytest

from qloom.errors import InputError
from qloom.lab.load.records import read_swf, write_csv, write_results_swf, write_swf
from qloom.lab.load.run import Load, run_load
from qloom.lab.load.source import lublin, read_sidecar, write_sidecar
from qloom.lab.load.workload import (
    KINDS,
    USUAL_LIMITS_S,
    Hybrid,
    LoadJob,
    parse_mix,
    poisson,
    scaled,
    with_hybrid,
    work_node_s,
)
from qloom.site import Site

TRACE = """\
; Version: 2.2
1 0 -1 100 4 -1 -1 4 300 -1 1 7 3 -1 -1 2 -1 -1
2 50 -1 60 2 -1 -1 -1 -1 -1 1 7 -1 -1 -1 -1 -1 -1   ; no requested time, no group

3 70 -1 -1 2 -1 -1 -1 -1 -1 5 -1 -1 -1 -1 -1 -1 -1
"""


def written(tmp_path: Path, text: str, name: str = "trace.swf") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_trace_is_read_and_missing_limits_are_drawn(tmp_path):
    first, second = read_swf(written(tmp_path, TRACE), Random(0))  # job 3 was cancelled before it ran
    assert first == LoadJob(1, 0, 100, 4, 300, project=3, partition=1)
    assert (second.nodes, second.project, second.partition) == (2, 7, 0)
    assert second.limit_s in USUAL_LIMITS_S
    assert second.limit_s >= second.run_s


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 0 -1 100 4", "trace.swf, line 2: 5 fields, not 18"),
        ("1 0 -1 ten 4 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "trace.swf, line 2: 'ten' is not a number"),
        ("1 0 -1 inf 4 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "line 2: a number that is not finite"),
        ("1 -1 -1 10 4 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "line 2: job 1 has no time of submission"),
        ("1 0 -1 -1 4 -1 -1 -1 -1 -1 5 -1 -1 -1 -1 -1 -1 -1", "trace.swf has no job that ran"),
        ("\n".join(["1 0 -1 9 4 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1"] * 2), "job 1 is there twice"),
    ],
)
def test_a_broken_trace_is_refused_with_the_number_of_its_line(tmp_path, line, message):
    with pytest.raises(InputError) as refused:
        read_swf(written(tmp_path, f"; a comment\n{line}\n"), Random(0))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_trace_and_its_sidecar_can_be_written_and_read_again(tmp_path):
    jobs = with_hybrid(lublin(40, 32, Random(1)), 0.5, {"balanced": 1.0, "guessing": 1.0}, Random(2))
    write_swf(tmp_path / "t.swf", jobs, "a test")
    write_sidecar(tmp_path / "t.jsonl", jobs)
    again = read_sidecar(tmp_path / "t.jsonl", read_swf(tmp_path / "t.swf", Random(9)))
    assert [job.hybrid for job in again] == [job.hybrid for job in jobs]
    assert [(job.number, job.nodes, job.limit_s, job.project) for job in again] == [
        (job.number, job.nodes, job.limit_s, job.project) for job in jobs
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "side.jsonl, line 1: this is not JSON"),
        ('{"job": 9}', "line 1: the trace has no job 9"),
        ('{"job": 1, "hybrid": {"iterations": 0, "classical_s": 1, "quantum_s": 1}}', "hybrid.iterations"),
        (
            '{"job": 1, "hybrid": {"iterations": 1, "classical_s": 1, "quantum_s": 1, "parts": 9}}',
            "9 parts on 4 nodes",
        ),
        ('{"job": 1, "colour": "red"}', "colour is not a known key"),
    ],
)
def test_a_broken_sidecar_is_refused_with_the_number_of_its_line(tmp_path, line, message):
    jobs = read_swf(written(tmp_path, TRACE), Random(0))
    with pytest.raises(InputError) as refused:
        read_sidecar(written(tmp_path, line + "\n", "side.jsonl"), jobs)
    assert message in str(refused.value)


def test_results_of_each_job_are_written_as_swf_and_csv(tmp_path):
    jobs = [LoadJob(1, 0, 100, 4, 100), LoadJob(2, 10, 30, 4, 30), LoadJob(3, 20, 90, 4, 60)]
    records = run_load(Load(jobs, Site(nodes=4), warm_up=0.0)).records
    write_results_swf(tmp_path / "out.swf", records, "a test")
    write_csv(tmp_path / "out.csv", records)
    lines = [line.split() for line in (tmp_path / "out.swf").read_text().splitlines() if not line.startswith(";")]
    assert [line[:5] for line in lines] == [
        ["1", "0", "0", "100", "4"],
        ["2", "10", "90", "30", "4"],
        ["3", "20", "110", "60", "4"],
    ]
    assert [line[10] for line in lines] == ["1", "1", "0"]  # the last one was killed at its limit
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [float(row["turnaround_s"]) for row in rows] == [100, 120, 170]
    assert [float(row["bounded_slowdown"]) for row in rows] == [1, 4, pytest.approx(170 / 90)]


def test_the_load_factor_is_the_share_of_nodes_that_the_jobs_keep_busy():
    jobs = lublin(4000, 64, Random(3))
    for moved in (scaled(jobs, 64, 0.6), poisson(jobs, 64, 0.6, Random(4))):
        span_s = moved[-1].submit_s - moved[0].submit_s
        assert work_node_s(moved) / (64 * span_s) == pytest.approx(0.6, rel=0.05)


def test_the_model_has_the_shares_that_it_states():
    jobs = lublin(20_000, 256, Random(0))
    assert sum(job.nodes == 1 for job in jobs) / 20_000 == pytest.approx(0.244, abs=0.02)
    assert sum(job.nodes & (job.nodes - 1) == 0 for job in jobs) / 20_000 == pytest.approx(0.85, abs=0.03)
    assert all(job.run_s <= job.limit_s and 1 <= job.nodes <= 256 for job in jobs)


def test_a_job_that_becomes_hybrid_keeps_its_time_and_its_nodes():
    jobs = lublin(500, 64, Random(1))
    made = with_hybrid(jobs, 0.2, dict.fromkeys(KINDS, 1.0), Random(2), longest_s=7200)
    changed = [(old, new) for old, new in zip(jobs, made, strict=True) if new.hybrid is not None]
    assert len(changed) == 100
    for old, new in changed:
        assert isinstance(new.hybrid, Hybrid)
        assert new.hybrid.run_s == pytest.approx(old.run_s, abs=1e-3)
        assert (new.nodes, new.limit_s) == (old.nodes, old.limit_s)
        assert old.run_s <= 7200


def test_a_mix_is_kinds_and_weights():
    assert parse_mix("classical=2, quantum") == {"classical": 2.0, "quantum": 1.0}
    for wrong in ("plaid", "classical=-1", "classical=two", ""):
        with pytest.raises(InputError, match="is not part of a mix"):
            parse_mix(wrong)
