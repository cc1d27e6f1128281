"""The documentation is run: its programs, its commands, what they print, its links and its references.

In a page, one after the other, in a directory of its own:
- `python`: run; what it prints is the `text` that follows at once. A first line `# name.py` makes it a file
  instead: written into the directory, or compared with the file of that name in the checkout.
- `toml`: a file, named in its first line.
- `console`: `$ command` lines; what follows each is what it prints, `...` stands for anything. A command may
  only fail if the output that is shown says so: a line that begins with `qloom: `, or JSON with `errors`.
- `sh`: the scripts of this project, which are tested elsewhere: they only have to be there.

`QLOOM_DOCS_UPDATE=1 pytest tests/unit/test_docs.py` writes what was really printed into the pages.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import qloom
from qloom.cli.main import run as qloom_main
from qloom.journal import events  # noqa: F401  makes EVENTS complete
from qloom.journal.event import EVENTS
from qloom.lab.load.records import JobRecord
from qloom.strategies import STRATEGIES, options_of

ROOT = Path(__file__).resolve().parents[2]
ALL_PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
OWN_EXAMPLES = ("docs/guides/job-files.md", "docs/tutorials/")  # tested with what they describe
PAGES = [page for page in ALL_PAGES if not str(page.relative_to(ROOT)).startswith(OWN_EXAMPLES)]
LONG_EXAMPLES = (
    "docs/guides/advise.md",
    "docs/guides/campaigns.md",
    "docs/guides/load.md",
    "docs/results/papers.md",
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KNOWN_FENCES = ("python", "toml", "console", "sh", "text", "json")
UPDATE = bool(os.environ.get("QLOOM_DOCS_UPDATE"))


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", ALL_PAGES, ids=page_name)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Where the examples of a page run: it looks like the top of the checkout."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "docs" / "img").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = list(STRATEGIES)
    yield tmp_path
    for added in set(STRATEGIES) - set(known):
        del STRATEGIES[added]


def run_qloom(words: list[str]) -> tuple[int, str]:
    """The command line, in this process, with both outputs in one."""
    output = io.StringIO()
    before = sys.argv
    sys.argv = ["qloom", *words]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            qloom_main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.argv = before
    return code, output.getvalue()


def run_command(line: str) -> tuple[int, str]:
    words = shlex.split(line, comments=True)
    if words[0] == "qloom" and not any(word in ("|", ">", "&&") for word in words):
        return run_qloom(words[1:])
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout + done.stderr


def plain(text: str, directory: Path) -> list[str]:
    """What is printed without what differs from run to run: ids, places, blank ends."""
    text = text.replace(str(directory), ".").replace(str(ROOT), ".").replace(os.environ["QLOOM_HOME"], "$QLOOM_HOME")
    text = re.sub(r"\d{8}-\d{6}-\d{6}", "20260101-120000-000000", text)
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Whether the lines are the same; a line `...` stands for any lines or none, `...` in a line for any text."""
    patterns = [
        r"(?:.*\n)*" if line == "..." else re.escape(line).replace(re.escape("..."), ".*") + r"\n" for line in shown
    ]
    return re.fullmatch("".join(patterns), "".join(f"{line}\n" for line in printed)) is not None


class Page:
    """One page whose examples are run in order; corrections are kept until the end."""

    def __init__(self, path: Path, directory: Path) -> None:
        self.path = path
        self.text = path.read_text()
        self.directory = directory
        self.names = {"__name__": "docs_example"}
        self.corrections: list[tuple[int, int, str]] = []

    def run(self) -> None:
        blocks = list(FENCE.finditer(self.text))
        for block, after in itertools.zip_longest(blocks, blocks[1:]):
            kind, content = block.groups()
            assert kind in KNOWN_FENCES, f"{self.path}: a fence must say what it is, not {kind!r}"
            named = re.match(r"# ([\w/.-]+\.(?:py|toml))\n", content)
            if named and kind in ("python", "toml"):
                self.file(named[1], content.removeprefix(named[0]))
            elif kind == "python":
                follows = after is not None and not self.text[block.end() : after.start()].strip()
                self.python(content, after if follows and after[1] == "text" else None)
            elif kind == "console":
                self.console(content, block.start(2))
            elif kind == "sh":
                for line in content.splitlines():
                    assert os.access(ROOT / line.split()[0], os.X_OK), f"{self.path}: {line} is not there"
        if UPDATE and self.corrections:
            text = self.text
            for start, end, printed in sorted(self.corrections, reverse=True):
                text = text[:start] + printed + text[end:]
            self.path.write_text(text)

    def file(self, name: str, content: str) -> None:
        if (ROOT / name).exists():
            assert content.strip() == (ROOT / name).read_text().strip(), f"{self.path} shows another {name}"
        else:
            (self.directory / name).write_text(content)

    def python(self, content: str, output: re.Match[str] | None) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(content, f"{self.path.name} (example)", "exec"), self.names)
        if output is not None:
            self.compare("the example", output[2], output.start(2), output.end(2), printed.getvalue())

    def console(self, content: str, offset: int) -> None:
        prompts = [match.start() for match in re.finditer(r"^\$ ", content, re.MULTILINE)]
        assert prompts, f"{self.path}: a console example without a command"
        assert prompts[0] == 0, f"{self.path}: a console example begins with a command"
        for start, end in zip(prompts, [*prompts[1:], len(content)], strict=True):
            line, _, shown = content[start:end].partition("\n")
            code, printed = run_command(line[2:])
            if shown.strip():
                self.compare(line, shown, offset + start + len(line) + 1, offset + end, printed)
            expects_failure = bool(re.search(r'^(qloom: |{"errors")', shown, re.MULTILINE))
            assert (code != 0) == expects_failure, f"{page_name(self.path)}, {line}, exit code {code}\n{printed}"

    def compare(self, what: str, shown: str, start: int, end: int, printed: str) -> None:
        lines = plain(printed, self.directory)
        if agrees(plain(shown, self.directory), lines):
            return
        if not UPDATE:
            pytest.fail(f"{page_name(self.path)}, {what}\nshown:\n{shown}\nprinted:\n" + "\n".join(lines))
        self.corrections.append((start, end, "\n".join(lines) + "\n"))


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page_name(page) in LONG_EXAMPLES else page for page in PAGES],
    ids=page_name,
)
def test_examples_run_and_print_what_is_shown(page, directory):
    Page(page, directory).run()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_give_the_same_under_every_strategy(example, directory):
    site = qloom.Site(qpus=(qloom.Qpu("gates", "superconducting"), qloom.Qpu("annealer", "annealer")))
    results = [
        qloom.run(str(example), strategy=strategy, world="virtual", site=site, in_memory=True).result
        for strategy in STRATEGIES
    ]
    assert results == [results[0]] * len(results)
    assert page_name(example) in "".join(page.read_text() for page in PAGES), "no page speaks of this example"


@every_page
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", name):
            continue
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), f"{page_name(page)}: {target}"
        if anchor and found.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", FENCE.sub("", found.read_text()), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in anchors, f"{page_name(page)}: {target}"


@every_page
def test_pages_name_no_machine_and_promise_nothing(page):
    text = page.read_text()
    for unwanted in ("../shared", "/home/", "/root/", "/tmp/", "TODO", "FIXME", "TBD"):
        assert unwanted not in text, f"{page_name(page)} says {unwanted}"


def test_every_page_can_be_reached_from_the_index():
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        ahead += [
            (page.parent / target).resolve()
            for target in re.findall(r"\]\(([^)\s#:]+)", page.read_text())
            if (page.parent / target).exists()
        ]
    assert [page_name(page) for page in PAGES if page not in seen] == []


def test_the_public_face_is_sorted_and_there():
    assert list(qloom.__all__) == sorted(qloom.__all__)
    for name in qloom.__all__:
        assert getattr(qloom, name) is not None


def test_the_references_of_the_command_line_and_of_the_api_are_in_step():
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.reference(), "run: python docs/make_reference.py"
    assert module.API_PAGE.read_text() == module.api_reference(), "run: python docs/make_reference.py"
    named = {part.__name__ for parts in module.API.values() for part in parts}
    assert set(qloom.__all__) <= named | {"__version__"}, "a name of qloom is missing in API of make_reference.py"


def documented_events() -> dict[str, list[str]]:
    """Event -> fields, from the tables of the page."""
    text = (ROOT / "docs" / "reference" / "journal.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", text, re.MULTILINE)
    return {event: re.findall(r"`(\w+)`", fields) for event, fields in rows}


def test_every_event_and_field_of_a_journal_is_documented():
    own_lines = {"job_over": set(JobRecord._fields)}
    known = {name: own_lines.get(name, set(kind.own_fields)) for name, kind in EVENTS.items()}
    assert {name: set(fields) for name, fields in documented_events().items()} == known


def test_every_figure_and_error_is_documented():
    from qloom import errors
    from qloom.views.accounting import Figures

    accounting = (ROOT / "docs" / "reference" / "accounting.md").read_text()
    assert [name for name in vars(Figures()) if f"`{name}`" not in accounting] == []
    text = (ROOT / "docs" / "reference" / "errors.md").read_text()
    kinds = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert [name for name in kinds if f"`{name}`" not in text] == []


def test_every_strategy_and_decision_is_listed():
    strategies = (ROOT / "docs" / "guides" / "strategies.md").read_text()
    readme = (ROOT / "README.md").read_text()
    for name in STRATEGIES:
        assert f"| `{name}` |" in readme
        assert f"\n## {name}\n" in strategies
        assert all(f"`{option}`" in strategies for option in options_of(name))
    decisions = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("0*.md"))
    assert [int(name[:4]) for name in decisions] == list(range(1, len(decisions) + 1))


def test_every_folder_of_tests_is_listed():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    folders = sorted({path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")})
    assert [folder for folder in folders if f"| `tests/{folder}` |" not in contributing] == []


def names_in(file: Path) -> set[str]:
    """What a module defines, at whatever depth: functions, classes, constants, `Class.method`, `Class.attribute`."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            named = getattr(inner, "name", None) or getattr(getattr(inner, "target", None), "id", None)
            found.add(f"{node.name}.{named}")
    return found


def test_what_the_architecture_names_is_there():
    """Files, `file.py: name`, "`file.py`, `name`", "`name` (`file.py`" and classes with their methods."""
    text = FENCE.sub("", (ROOT / "docs/architecture.md").read_text())
    files = {
        str(file.relative_to(ROOT)): file for folder in ("src", "tests") for file in (ROOT / folder).rglob("*.py")
    }
    everywhere = {name for file in files.values() for name in names_in(file)}

    def named(path: str) -> set[str]:
        """The names in all files that a path, perhaps without its folders, may stand for."""
        meant = [file for name, file in files.items() if f"/{name}".endswith(f"/{path}")]
        return set().union(*(names_in(file) for file in meant), {""}) if meant else set()

    wrong = [path for path in re.findall(r"`([\w/]+\.py)[`:]", text) if not named(path)]
    pairs = re.findall(r"`([\w/]+\.py): ([\w.]+)`", text) + re.findall(r"`([\w/]+\.py)`,\s`([\w.]+)[`(]", text)
    pairs += [(path, name) for name, path in re.findall(r"`([\w.]+)`\s\(`([\w/]+\.py)`", text)]
    wrong += [f"{path}: {name}" for path, name in pairs if not name.endswith(".py") and name not in named(path)]
    wrong += [name for name in re.findall(r"`([A-Z]\w+\.\w+)[`(]", text) if name not in everywhere]
    assert not wrong, ", ".join(wrong)


def test_dependencies_are_explained():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readme = (ROOT / "README.md").read_text()
    wanted = [*project["dependencies"], *project["optional-dependencies"]["plot"]]
    assert [name for name in (re.split(r"[<>=\[]", text)[0] for text in wanted) if f"| {name} |" not in readme] == []


def test_the_citation_can_be_read():
    text = (ROOT / "CITATION.cff").read_text()
    try:
        import yaml  # not a dependency of this project
    except ImportError:
        assert "\t" not in text
        for key in ("cff-version", "message", "title", "authors", "references"):
            assert re.search(rf"^{key}:", text, re.MULTILINE), key
    else:
        citation = yaml.safe_load(text)
        assert citation["cff-version"] == "1.2.0"
        assert all("title" in reference for reference in citation["references"])
    assert 'version: "0.1.0"' in text
