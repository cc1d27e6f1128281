"""The package: sdist and wheel are whole; the wheel's demo runs in a clean environment, and has a page to see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from qloom.strategies import STRATEGIES
from tests.browser import open_page, require_browser
from tests.install.checkout import fresh_copy

WORLDS = ("local", "virtual")
BARS = """() => [...document.querySelectorAll('svg path')].flatMap(path => {
    const box = path.getBoundingClientRect(), style = getComputedStyle(path)
    const seen = box.width > 3 && box.height > 3 && style.visibility == 'visible' && style.opacity > 0.2
    return seen ? [[box.top, style.fill]] : []
})"""
NOTHING_SCROLLS_SIDEWAYS = "[...document.querySelectorAll('.wide')].every(box => box.scrollWidth <= box.clientWidth)"
JOB_COLOURS = ("rgb(0, 114, 178)", "rgb(230, 159, 0)")


def run(*words: str | Path, cwd: Path, timeout_s: float = 120, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment or None,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(kind: str, source: Path, output: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", output, cwd=source)
    (built,) = output.iterdir()
    return built


def build_both(source: Path, folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made of nothing but the sdist."""
    sdist = build("sdist", source, folder / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return sdist, build("wheel", unpacked, folder / "wheel")


def test_sdist_and_wheel_are_whole(tmp_path):
    checkout = fresh_copy(tmp_path / "qloom")
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "large").touch()
    sdist, wheel = build_both(checkout, tmp_path)
    with tarfile.open(sdist) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "constraints.txt", "scripts/demo", "tests/conftest.py"} <= kept
    assert not any(name.startswith(".venv") for name in kept)
    source = checkout / "src"
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"qloom/devices/profiles.toml", "qloom/lab/campaign/builtin/qce25.toml", "qloom/py.typed"} <= wanted
    assert {name for name in names if ".dist-info/" not in name} == wanted


@dataclass
class Demo:
    """The wheel in a clean environment, and what its demo has made."""

    python: Path
    desk: Path
    environment: dict[str, str]
    printed: str
    page: Path

    def says(self, *words: str) -> str:
        """What the Python of the environment prints."""
        return run(self.python, *words, cwd=self.desk, **self.environment)


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Demo:
    folder = tmp_path_factory.mktemp("demo")
    checkout = fresh_copy(folder / "qloom")
    _, wheel = build_both(checkout, folder)
    clean, desk = folder / "clean", folder / "desk"
    desk.mkdir()
    make = '. scripts/environment && find_python python3 && make_environment "$0" constraints.txt "$1"'
    run("bash", "-c", make, clean, f"{wheel}[plot]", cwd=checkout, timeout_s=300, **os.environ)
    alone = {"PATH": f"{clean / 'bin'}:/usr/bin:/bin", "QLOOM_HOME": str(folder / "home"), "HOME": str(desk)}
    printed = run("qloom", "demo", "--output", "demo.html", cwd=desk, timeout_s=240, **alone)
    return Demo(clean / "bin" / "python", desk, alone, printed, desk / "demo.html")


@pytest.mark.slow
def test_the_wheel_runs_its_demo_in_a_clean_environment(demo):
    whereabouts = demo.says("-c", "import qloom; print(qloom.__file__)")
    assert Path(whereabouts.strip()).is_relative_to(demo.python.parents[1])
    later = ("-m", "pip", "install", "--no-index", "--no-deps", "--dry-run", "qloom[mpi]")  # as hints say
    assert "already satisfied: qloom[mpi]" in demo.says(*later)
    for strategy in STRATEGIES:
        assert re.search(rf"^ *{re.escape(strategy)}( +\d+\.\d){{6}} *$", demo.printed, re.MULTILINE), demo.printed
    assert str(demo.page) in demo.printed
    assert "<svg" in demo.page.read_text()


@pytest.mark.slow
def test_the_page_of_the_demo_has_every_timeline(demo):
    require_browser()
    every_timeline_is_seen(demo.page)
    narrow_screens_show_the_names(demo.page)
    dark_paper_is_readable(demo.page)


def every_timeline_is_seen(path: Path) -> None:
    with open_page(path) as opened:
        titles = [f"{strategy}, {world}" for world in WORLDS for strategy in STRATEGIES]
        tops = [opened.page.locator("svg").get_by_text(title, exact=True).bounding_box()["y"] for title in titles]
        assert tops == sorted(tops)
        bars = opened.page.evaluate(BARS)
        for title, top, end in zip(titles, tops, [*tops[1:], float("inf")], strict=True):
            for colour in JOB_COLOURS:
                assert sum(top < at < end and fill == colour for at, fill in bars) >= 4, f"{title}: {colour}"
        for world in ("On this machine", "In virtual time"):
            assert opened.page.get_by_role("heading", name=world).is_visible()
        assert opened.fits_the_width()
        assert opened.page.evaluate(NOTHING_SCROLLS_SIDEWAYS)
        assert (opened.errors, opened.requests) == ([], [path.as_uri()])


def narrow_screens_show_the_names(path: Path) -> None:
    """A telephone: only tables and drawings scroll sideways, and the names of the rows stay."""
    with open_page(path, width=390) as opened:
        assert opened.fits_the_width()
        name = opened.page.get_by_role("cell", name="malleable").first
        before = name.bounding_box()["x"]
        opened.page.evaluate("document.querySelector('.wide').scrollLeft = 400")
        assert name.bounding_box()["x"] >= before - 20
        meaning = opened.page.locator("dd").first.bounding_box()
        assert meaning["width"] > 300, "what explains a sign has room for a line"


def dark_paper_is_readable(path: Path) -> None:
    for scheme in ("light", "dark"):
        with open_page(path, color_scheme=scheme) as opened:
            paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
            ink = opened.page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
            light, dark = sorted((luminance(paper), luminance(ink)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) > 4.5, f"{scheme}: {ink} on {paper}"


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
