"""Pages in a real browser: Chromium without a window, which scripts/browser-packages installs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")


def require_browser() -> None:
    """Skip a test where there is no browser."""
    if CHROMIUM is None:
        pytest.skip("PAGES ARE NOT LOOKED AT: there is no chromium (scripts/browser-packages installs it)")


@dataclass
class Opened:
    """A page, what it complained about, and what it asked for."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def fits_the_width(self) -> bool:
        """Whether the page as a whole has to be scrolled down only."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@contextmanager
def open_page(path: Path, width: int = 1280, color_scheme: str = "light") -> Iterator[Opened]:
    """The page as a user sees it who opens the file."""
    with opened_at(path.as_uri(), width, color_scheme) as opened:
        yield opened


@contextmanager
def opened_at(address: str, width: int = 1280, color_scheme: str = "light") -> Iterator[Opened]:
    """The page at an address."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=color_scheme)
            opened = Opened(context.new_page())
            opened.page.on("console", lambda said: opened.errors.append(f"{said.type}: {said.text}"))
            opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
            opened.page.on("request", lambda request: opened.requests.append(request.url))
            opened.page.goto(address)
            yield opened
        finally:
            browser.close()
