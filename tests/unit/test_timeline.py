"""Timelines: what a user looks for is in the picture, and the files can be kept and compared."""

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import qloom
from qloom.errors import InputError
from qloom.journal.event import event_from
from qloom.journal.events import Resumed
from qloom.site import site_from
from qloom.views.page import draw_timeline, page
from qloom.views.timeline import panel

STRATEGIES = ("coschedule", "offload", "workflow", "vqpu", "malleable", "split")


def events_of(strategy, jobs=2, **parameters):
    parameters = {"iterations": 2, **parameters}
    return qloom.run(
        "phases", strategy=strategy, world="virtual", jobs=jobs, in_memory=True, parameters=parameters
    ).events


def renamed(events, name):
    lines = json.dumps([event.as_dict() for event in events]).replace('"name": "work"', f'"name": {json.dumps(name)}')
    return [event_from(line) for line in json.loads(lines)]


@pytest.fixture(scope="module")
def six():
    return [(strategy, events_of(strategy, speculate=True)) for strategy in STRATEGIES]


def rows_of(events):
    return {(row.label, place): row.bars for place, row in enumerate(panel(("a run", events)).rows)}


def styles(events, label):
    return {bar.style for (name, _), bars in rows_of(events).items() for bar in bars if name == label}


def test_svg_names_every_run_job_node_and_qpu(six, tmp_path):
    draw_timeline(six, tmp_path / "six.svg")
    texts = [element.text for element in ElementTree.parse(tmp_path / "six.svg").iter() if element.text]
    for name in (*STRATEGIES, "job j1", "job j2", "n1", "n2", "n3", "qpu", "held but idle", "spare work runs"):
        assert name in texts, name
    assert texts.count("n1") == texts.count("qpu") == 6


def test_same_input_same_bytes(six, tmp_path):
    for suffix in ("svg", "png", "html"):
        draw_timeline(six[:2], tmp_path / f"a.{suffix}")
        draw_timeline(six[:2], tmp_path / f"b.{suffix}")
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes(), suffix


def test_user_style_does_not_change_the_picture(six, tmp_path):
    import matplotlib

    draw_timeline(six[:1], tmp_path / "a.svg")
    with matplotlib.rc_context({"font.size": 30, "axes.grid": True, "svg.fonttype": "path"}):
        draw_timeline(six[:1], tmp_path / "b.svg")
        assert matplotlib.rcParams["font.size"] == 30
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_held_but_idle_is_told_from_busy():
    # malleable alone: n1 computes 7.7 s, waits 12 s for the QPU, scores 5.4 s; n2 works 0.2 s and then idles
    bars = rows_of(events_of("malleable", jobs=1, iterations=1))
    first = [(bar.style, bar.begin_s, bar.end_s) for bar in sorted(bars["n1", 0], key=lambda bar: bar.begin_s)]
    assert first == [("busy", 0, 7.7), ("idle", 7.7, 19.7), ("busy", 19.7, 25.1)]
    second = [(bar.style, bar.begin_s, bar.end_s) for bar in sorted(bars["n2", 1], key=lambda bar: bar.begin_s)]
    assert second == [("busy", 0, 0.2), ("idle", 0.2, 7.7)]


def test_each_way_to_hold_a_qpu_shows():
    assert styles(events_of("coschedule"), "qpu") == {"busy", "idle"}
    assert styles(events_of("offload"), "qpu") == {"busy"}
    assert styles(events_of("vqpu"), "vQPU shares") == {"share"}
    assert styles(events_of("malleable"), "waiting") == {"waiting"}
    assert "spare" in styles(events_of("offload", speculate=True), "n1")


def test_who_waits_has_a_bar_from_request_to_grant():
    (bar,) = rows_of(events_of("offload", iterations=1))["waiting", 3]
    assert (bar.job, bar.begin_s, bar.end_s) == ("j2", 0, 25.1)


def test_bars_lie_within_the_run_and_do_not_overlap(six):
    for _, events in six:
        shown = panel(("a run", events))
        for row in shown.rows:
            lanes = {}
            for bar in sorted(row.bars, key=lambda bar: bar.begin_s):
                assert 0 <= bar.begin_s < bar.end_s <= shown.end_s
                for lane in range(bar.lanes) if bar.style == "idle" else [bar.lane]:
                    assert bar.begin_s >= lanes.get(lane, 0)
                    lanes[lane] = bar.end_s


def test_unused_nodes_have_a_row():
    site = site_from({"nodes": 12})
    events = qloom.run("phases", strategy="workflow", world="virtual", in_memory=True, site=site).events
    assert [row.label for row in panel(("a run", events)).rows if row.label != "waiting"] == [
        *(f"n{number}" for number in range(1, 13)),
        "qpu",
    ]


def test_any_journal_that_was_cut_off_can_be_drawn(tmp_path):
    events = events_of("split", speculate=True)
    for cut in (1, 2, 5, len(events) // 2):
        draw_timeline([("cut", events[:cut])], tmp_path / "cut.svg")
        assert "n1" in "".join(ElementTree.parse(tmp_path / "cut.svg").getroot().itertext())


def test_a_break_between_kill_and_resume_shows(tmp_path):
    events = events_of("offload")[:20]
    resumed = Resumed(n=20, at_us=events[-1].at_us + 60_000_000)
    draw_timeline([("resumed", [*events, resumed])], tmp_path / "resumed.svg")
    assert "killed, then resumed" in (tmp_path / "resumed.svg").read_text()


def test_page_stands_alone_and_escapes(tmp_path):
    runs = [("<script>alert(1)</script>", renamed(events_of("coschedule"), "<script>alert(2)</script>"))]
    draw_timeline(runs, tmp_path / "page.html", title='<script>alert(3)</script> & "quotes"')
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(3)" in text
    assert not re.search(r"https?:|//[a-z]|@import|src=|<link|<iframe", text)
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', text))
    assert re.findall(r"url\((?!#)", text) == []
    for words in ("wall time", "node-seconds", "QPU-seconds", "wait for nodes", "How to read this", "Job by job"):
        assert words in text


def test_page_shows_the_tables_it_is_given(six):
    tables = [("Local", [{"strategy": "split", "wall_s": 12.34}]), ("Virtual", [{"strategy": "a<b", "wall_s": 1234}])]
    text = page("demo", tables, six[:1])
    for words in ("<h2>Local</h2>", "<h2>Virtual</h2>", ">12.3<", ">1,234.0<", "a&lt;b"):
        assert words in text
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6].replace("xlink:", ""))


def test_a_column_whose_figures_read_the_same_has_no_bars():
    rows = [{"wall_s": 10.0, "bounded_slowdown": 1.001}, {"wall_s": 5.0, "bounded_slowdown": 1.004}]
    assert re.findall(r"--part:(\d+)%", page("figures", [("held", rows)], [])) == ["100", "0", "50", "0"]


@pytest.mark.parametrize("name", ["$x^2", "a_{b", "日本 \N{SNOWMAN}", "x" * 300, "100 % & more"])
def test_any_task_name_can_be_drawn(name, tmp_path):
    for suffix in ("png", "svg"):
        draw_timeline([(name, renamed(events_of("offload", iterations=1), name))], tmp_path / f"x.{suffix}")
    ElementTree.parse(tmp_path / "x.svg")


@pytest.mark.slow
def test_long_runs_are_drawn_whole(tmp_path):
    draw_timeline([("long", events_of("workflow", jobs=12, iterations=40))], tmp_path / "long.svg")
    text = "".join(ElementTree.parse(tmp_path / "long.svg").getroot().itertext())
    assert "j12" in text


@pytest.mark.parametrize("name", ["timeline.pdf", "timeline"])
def test_other_kinds_of_file_are_refused(six, tmp_path, name):
    with pytest.raises(InputError, match=r"svg, \.png or \.html"):
        draw_timeline(six[:1], tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_no_directory_no_run_no_matplotlib(six, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="there is no directory"):
        draw_timeline(six[:1], tmp_path / "missing" / "x.svg")
    with pytest.raises(InputError, match="no run"):
        draw_timeline([], tmp_path / "x.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'qloom\[plot\]'"):
        draw_timeline(six[:1], Path(tmp_path / "x.svg"))
