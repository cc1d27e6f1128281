"""The dashboard in a real browser: runs are seen as they go on, are killed, and are resumed."""

from __future__ import annotations

import json
import time

import qloom
from qloom.journal import home
from qloom.journal.events import Called, Granted, JobEnded, JobSubmitted, Requested, RunStarted, TaskStarted
from qloom.journal.file import FILE_NAME
from tests.dashboard.conftest import wait_until

DRAWN = """() => {
  const canvas = document.querySelector('canvas');
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let sum = 0;
  for (let at = 0; at < pixels.length; at += 4) {
    if (pixels[at] < 20 && pixels[at + 1] > 100 && pixels[at + 2] > 160) sum += 1;
  }
  return sum;
}"""


def open_run(page, name):
    page.click(f"a[href='#/run/{name}']", timeout=60_000)
    page.wait_for_selector("#tile-work .value:not(:text-is('-'))", timeout=60_000)


def state_is(page, state, within_s=60.0):
    page.wait_for_selector(f"h1 .badge:text-is('{state}')", timeout=1000 * within_s)


def test_a_run_is_seen_as_it_goes_on_is_killed_and_resumed(page, waiting_run):
    page = page.page
    open_run(page, waiting_run.name)
    state_is(page, "running")
    page.evaluate("window.same = true")
    before = page.inner_text("#tile-elapsed .value"), page.inner_text("#tile-nodes .value")
    page.wait_for_function(
        "([was]) => document.querySelector('#tile-elapsed .value').textContent !== was", arg=before
    )
    page.wait_for_function(
        "([, was]) => document.querySelector('#tile-nodes .value').textContent !== was", arg=before
    )
    page.wait_for_function(f"({DRAWN})() > 200", timeout=60_000)
    assert "job j1 runs 2 tasks: until on n1" in page.inner_text(".sentences")

    waiting_run.kill()
    began_s = time.monotonic()
    state_is(page, "killed", 10.0)
    assert time.monotonic() - began_s < 10.0
    assert "was killed or its process is gone" in page.inner_text(".sentences")

    waiting_run.go_on()
    page.click("#resume")
    page.click("#question-no")
    page.click("#resume")
    page.click("#question-yes")
    state_is(page, "done")
    page.wait_for_selector(".result:has-text('10')")
    assert page.evaluate("window.same"), "the page was loaded again"
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_output_of_tasks_is_followed(page, waiting_run):
    page = page.page
    open_run(page, waiting_run.name)
    page.click("#logs")
    page.wait_for_selector(".log:has-text('<b>task 4</b>')", timeout=60_000)
    added = home.runs_directory() / waiting_run.name / "logs" / "later.log"
    added.write_text("more\u202e\n")
    page.wait_for_selector(".log:has-text('later | more\\\\u202e')", timeout=60_000)
    assert page.locator(".log b").count() == 0


def test_a_run_is_stopped_from_the_page(page, waiting_run):
    page = page.page
    open_run(page, waiting_run.name)
    page.click("#cancel")
    page.click("#question-yes")
    state_is(page, "interrupted")
    assert waiting_run.process.wait(60) == 130
    assert page.is_visible("#resume")


def test_the_timeline_is_used_with_the_keyboard_and_the_pointer(page, waiting_run):
    page = page.page
    open_run(page, waiting_run.name)
    page.wait_for_function(f"({DRAWN})() > 200", timeout=60_000)
    page.focus("canvas")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert "Job j1: " in page.inner_text(".readout")
    assert "on n1" in page.inner_text(".readout")
    for key in ("+", "+", "ArrowDown", "-", "0"):
        page.keyboard.press(key)
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 34)
    assert "until on n1" in page.inner_text(".tip")


NASTY = "<img src=x onerror=alert(1)>\u202egnp.\x1b[2J"


def write_run(*events, end="\n"):
    run = home.new_run()
    lines = [json.dumps({**event.as_dict(), "n": n, "at_us": 1000 * n}) for n, event in enumerate(events)]
    (run / FILE_NAME).write_text("\n".join(lines) + end)
    return run


def test_what_users_name_is_text(dashboard, page):
    run = write_run(
        RunStarted(
            version=1, program=NASTY, strategy=NASTY, world=NASTY, site={"nodes": 1, "qpus": [{"name": NASTY}]}
        ),
        JobSubmitted(job=NASTY),
        Called(job=NASTY, call="c", kind="classical", names=[NASTY]),
        Requested(job=NASTY, lease="l", nodes=1, reason=NASTY),
        Granted(job=NASTY, lease="l", nodes=[NASTY]),
        TaskStarted(job=NASTY, work="w", name=NASTY, nodes=[NASTY]),
        JobEnded(job=NASTY, state="failed", error={"message": NASTY, "hint": NASTY}),
    )
    page = page.page
    open_run(page, run.name)
    assert page.inner_text("h1").startswith("<img src=x onerror=alert(1)>\\u202egnp.\\u001b[2J")
    assert page.locator("main img").count() == 0
    text = page.evaluate("document.body.textContent")
    assert "\u202e" not in text
    assert "\x1b" not in text
    page.focus("canvas")
    page.keyboard.press("ArrowDown")
    assert "<img" in page.inner_text(".readout")


BAD_JOURNALS = {
    '{"n":0,"at_us":0,"event":"run_started","version":99}\n': "has version 99, this qloom reads up to",
    '{"n":0,"at_us":0,"event":"run_started","version":1}\n{"n":1,"at_us"': None,  # a line that is being written
    '{"n":0,"at_us":0,"event":"run_started","version":1}\n<html>\n': "line 2: no event",
    "": "holds no run yet",
}


def test_a_journal_that_cannot_be_read_is_one_line_on_the_page(page):
    page = page.page
    for content, words in BAD_JOURNALS.items():
        run = home.new_run()
        (run / FILE_NAME).write_text(content)
        open_run(page, run.name)
        if words is None:
            state_is(page, "killed")
            assert page.locator(".problem").is_hidden()
        else:
            page.wait_for_selector(f".problem:has-text('{words}')")
        page.click(".brand")


def test_a_run_that_is_removed_while_it_is_shown_is_one_line(page, waiting_run):
    page = page.page
    open_run(page, waiting_run.name)
    (home.runs_directory() / waiting_run.name / FILE_NAME).unlink()
    page.wait_for_selector(".problem:has-text('No such file')", timeout=60_000)
    wait_until(lambda: page.locator("#cancel").is_hidden())


def test_sliders_change_the_answer(dashboard, page):
    qloom.run("phases", world="virtual", parameters={"iterations": 2})
    page = page.page
    open_run(page, home.run_names()[-1])
    page.click("#what-if")
    page.wait_for_selector("#if-costs td", timeout=60_000)
    held = "#if-costs tbody tr:nth-child(1) td:nth-child(3)"
    before = page.inner_text(held)
    page.evaluate(
        "slider => { slider.value = 1; slider.dispatchEvent(new Event('input', { bubbles: true })); }",
        page.query_selector("#if-quantum"),
    )
    page.wait_for_function("([place, was]) => document.querySelector(place).textContent !== was", arg=[held, before])
    slower = page.inner_text(held)
    assert float(slower.replace(",", "")) > float(before.replace(",", ""))
    page.select_option("#if-strategy", "coschedule")
    page.wait_for_selector(".side p:has-text('coschedule, 3 nodes')", timeout=60_000)
    assert page.locator("#if-table tbody tr").count() >= 7
    assert page.locator(".side canvas").count() == 2


def test_a_program_that_is_gone_cannot_be_replayed_and_says_so(dashboard, page, waiting_run):
    waiting_run.go_on()
    assert waiting_run.process.wait(60) == 0
    waiting_run.flag.with_name("waits.py").unlink()
    page = page.page
    open_run(page, waiting_run.name)
    page.click("#what-if")
    page.wait_for_selector("#what-if-status:has-text('waits.py')", timeout=60_000)
