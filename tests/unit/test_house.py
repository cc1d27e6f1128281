"""The rules of the house, read from the source: names, import cycles, ports, owners of tasks, lengths, words.

Each rule has a list of offences that were there before it, with their number. Lists only ever get shorter: a rule
fails for a new offence, and also when a listed one has been mended; `python -m tests.unit.test_house` strikes it out.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src"
PORTS = {
    *("allocation", "broker", "clock", "cluster", "device", "dispatcher", "forecast"),
    *("job", "journal", "lease", "line", "store", "strategy", "world"),
}
OWNERS_OF_TASKS = {"qloom.aio"}
MOST_LINES = 280
VAGUE = re.compile(r"\b(?:told|tells?)\b(?! (?:\w+ )?apart\b)", re.IGNORECASE)

Sources = Mapping[str, ast.Module]  # by the dotted name of the module; a package has the name of its folder
Offences = dict[str, list[str]]  # the places of each
Rule = Callable[[Sources], Offences]


def read_sources(root: Path) -> dict[str, ast.Module]:
    """Parse every module below a directory."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text(), str(path))
    return found


# The rules. Offences are named so that a list survives modules and functions that are renamed.


def shared_class_names(sources: Sources) -> Offences:
    """No two classes have one name, private and nested ones included."""
    found: Offences = defaultdict(list)
    for module, place, node in nodes(sources):
        if isinstance(node, ast.ClassDef):
            found[node.name].append(f"{module}.{place}")
    return {name: places for name, places in found.items() if len(places) > 1}


def module_cycles(sources: Sources) -> Offences:
    """No modules import each other while they are being imported.

    An import inside a function or under `TYPE_CHECKING` does not happen then and makes no such cycle.
    """
    graph = {name: set(imports(name, tree, sources, deferred=False)) for name, tree in sources.items()}
    return {" <-> ".join(cycle): cycle[:1] for cycle in cycles(graph)}


def package_cycles(sources: Sources) -> Offences:
    """No packages side by side import each other, be it through modules beside them.

    Imports inside functions count: they are a dependency at run time like any other. Imports under `TYPE_CHECKING` do
    not: a port is named in an annotation by the room that is given it, which couples nothing.
    """
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, tree in sources.items():
        for other in imports(name, tree, sources, deferred=True):
            ours, theirs = name.split("."), other.split(".")
            depth = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
            if depth is not None:  # one is not the package of the other
                graphs[".".join(ours[:depth])][ours[depth]].add(theirs[depth])
    found: Offences = defaultdict(list)
    for container, graph in graphs.items():
        for cycle in cycles(graph):
            if any(name.startswith(f"{container}.{child}.") for name in sources for child in cycle):
                found[f"in {container}"].append(" <-> ".join(cycle))
    return found


def untyped_ports(sources: Sources) -> Offences:
    """No port is annotated `Any`, and no attribute of a port is looked up by a string."""
    found: Offences = defaultdict(list)
    for module, place, node in nodes(sources):
        if isinstance(node, ast.arg) and is_any(node.annotation):
            port = node.arg
        elif isinstance(node, ast.AnnAssign) and is_any(node.annotation):
            port = last_name(node.target)
        elif is_property(node) and is_any(node.returns):
            port = node.name
        elif isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "hasattr", "setattr") and node.args:
            port = last_name(node.args[0])
        else:
            continue
        if is_port(port):
            found[f"{room(module)}: {port}"].append(f"{module}.{place}")
    return found


def tasks_without_owner(sources: Sources) -> Offences:
    """No function starts a task of asyncio that no scope waits for."""
    found: Offences = defaultdict(list)
    for module, place, node in nodes(sources):
        if module in OWNERS_OF_TASKS or not isinstance(node, ast.Call):
            continue
        called = last_name(node.func)
        receiver = last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if called == "ensure_future" or (called == "create_task" and "group" not in receiver.lower()):
            found[room(module)].append(f"{module}.{place}")
    return found


def swallowed_cancellations(sources: Sources) -> Offences:
    """No function calls `asyncio.wait_for`, which in Python 3.11 loses a cancellation at the moment of its success.

    A task that is cancelled once, as scopes and groups do, would never end; `asyncio.timeout` has no such moment.
    """
    found: Offences = defaultdict(list)
    for module, place, node in nodes(sources):
        if isinstance(node, ast.Attribute) and node.attr == "wait_for" and last_name(node.value) == "asyncio":
            found[room(module)].append(f"{module}.{place}")
    return found


def long_modules(sources: Sources) -> Offences:
    """No module is longer than 280 lines: a chapter that grows beyond that is two."""
    found: Offences = defaultdict(list)
    for module, tree in sources.items():
        if tree.body and (tree.body[-1].end_lineno or 0) > MOST_LINES:
            found[room(module)].append(module)
    return found


def vague_words(sources: Sources) -> Offences:
    """No docstring or message says "told" or "tells": functions return and raise, views show, users are asked."""
    found: Offences = defaultdict(list)
    for module, place, node in nodes(sources):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found[room(module)] += [f"{module}.{place}" for _ in VAGUE.findall(node.value)]
    return {name: places for name, places in found.items() if places}


# How they read the source.


def imports(name: str, tree: ast.Module, sources: Sources, *, deferred: bool) -> Iterator[str]:
    """The modules of the project that a module imports when it is imported, or (with `deferred`) at run time."""
    for node in executed(tree, deferred):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in sources and alias.name != name)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                target = whole if whole in sources else node.module
                if target in sources and target != name:
                    yield target


def executed(node: ast.AST, deferred: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for other in child.orelse:
                yield other
                yield from executed(other, deferred)
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not deferred:
            continue
        yield child
        yield from executed(child, deferred)


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of more than one node (Tarjan), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def nodes(sources: Sources) -> Iterator[tuple[str, str, ast.AST]]:
    """Every node with its module and the class and function around it."""

    def walk(node: ast.AST, place: tuple[str, ...]) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            inner = (*place, child.name) if named else place  # type: ignore[attr-defined]
            yield ".".join(inner), child
            yield from walk(child, inner)

    for module, tree in sources.items():
        for place, node in walk(tree, ()):
            yield module, place, node


def room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def is_property(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and "property" in map(last_name, node.decorator_list)


def is_port(name: str) -> bool:
    return name.strip("_") in PORTS or name.strip("_").removesuffix("s") in PORTS


def is_any(annotation: ast.expr | None) -> bool:
    """Whether an annotation is `Any`, an optional one or several in a row. A mapping is data: a line of JSON."""
    if isinstance(annotation, ast.Subscript):
        in_a_row = last_name(annotation.value) in ("Sequence", "Iterable", "Collection", "list", "tuple", "set")
        return in_a_row and is_any(annotation.slice)
    if isinstance(annotation, ast.Tuple):
        return any(is_any(part) for part in annotation.elts)
    if isinstance(annotation, ast.BinOp):
        return is_any(annotation.left) or is_any(annotation.right)
    return annotation is not None and last_name(annotation) == "Any"


# What was there before the rules: how often.

KNOWN: dict[Rule, dict[str, int]] = {
    shared_class_names: {},
    module_cycles: {},
    package_cycles: {},
    untyped_ports: {},
    tasks_without_owner: {},
    swallowed_cancellations: {},
    long_modules: {
        "qloom.model": 1,
    },
    vague_words: {},
}


@pytest.fixture(scope="module")
def sources() -> dict[str, ast.Module]:
    return read_sources(ROOT)


@pytest.mark.parametrize("rule", KNOWN, ids=lambda rule: rule.__name__)
def test_nothing_new_breaks_the_rule_and_what_was_mended_is_struck_out(rule, sources):
    new, mended = compare(rule(sources), KNOWN[rule])
    assert not new, rule.__doc__.splitlines()[0]
    assert not mended, "strike them out with `python -m tests.unit.test_house`"


def compare(found: Offences, known: Mapping[str, int]) -> tuple[Offences, list[str]]:
    new = {name: places for name, places in found.items() if len(places) > known.get(name, 0)}
    return new, [name for name, number in known.items() if len(found.get(name, ())) < number]


def test_lists_neither_grow_nor_keep_what_was_mended():
    assert compare({"Line": ["a", "b"], "Row": ["c", "d", "e"]}, {"Line": 2, "Row": 2}) == (
        {"Row": ["c", "d", "e"]},
        [],
    )
    assert compare({"Line": ["a", "b"]}, {"Line": 3, "Row": 2}) == ({}, ["Line", "Row"])


def source(**modules: str) -> dict[str, ast.Module]:
    """Modules by name; `__` stands for the dot."""
    packages = {name.rpartition("__")[0] for name in modules} - {""}
    texts = {**dict.fromkeys(packages, ""), **modules}
    return {name.replace("__", "."): ast.parse(text) for name, text in texts.items()}


def test_two_classes_of_one_name_are_found():
    modules = source(a="class Line: ...\nclass Other: ...", b="def f():\n  class Line: ...")
    assert shared_class_names(modules) == {"Line": ["a.Line", "b.f.Line"]}


def test_modules_that_import_each_other_are_found():
    assert module_cycles(source(q__a="from q import b", q__b="import q.c", q__c="from q.a import f")) == {
        "q.a <-> q.b <-> q.c": ["q.a"]
    }


@pytest.mark.parametrize("later", ["def f():\n  from q import a", "if TYPE_CHECKING:\n  from q import a"])
def test_what_is_imported_later_or_for_types_alone_makes_no_cycle_of_modules(later):
    assert not module_cycles(source(q__a="from q import b", q__b=later))


@pytest.mark.parametrize("back", ["from q.left.a import f", "def f():\n  import q.left.a"])
def test_packages_that_import_each_other_are_found(back):
    modules = source(q__left__a="from q.right.b import g", q__left__c="", q__right__d=back, q__right__b="")
    assert package_cycles(modules) == {"in q": ["left <-> right"]}


def test_a_port_named_in_an_annotation_alone_couples_no_packages():
    modules = source(q__left__a="from q.right.b import g", q__right__b="if TYPE_CHECKING:\n  from q.left import a")
    assert not package_cycles(modules)


@pytest.mark.parametrize(
    "text",
    [
        "def f(world: Any): ...",
        "def f(*, _clock: Any | None = None): ...",
        "class A:\n  devices: Sequence[Any]",
        "def f(self):\n  self.line: typing.Any = 1",
        "class A:\n  @property\n  def broker(self) -> Any: ...",
        "def f(self):\n  return getattr(self._world, 'x', None)",
        "def f(devices: list[Any]): ...",
    ],
)
def test_a_port_without_a_type_is_found(text):
    assert len(untyped_ports(source(a=text))) == 1


@pytest.mark.parametrize("text", ["def f(strategy: Strategy[Any], line: dict[str, Any]): ...", "getattr(plan, 'x')"])
def test_a_port_with_a_type_is_none_of_them(text):
    assert not untyped_ports(source(a=text))


@pytest.mark.parametrize(
    "text",
    [
        "async def f():\n  asyncio.ensure_future(g())",
        "async def f():\n  asyncio.create_task(g())",
        "async def f():\n  asyncio.get_running_loop().create_task(g())",
        "async def f():\n  loop.create_task(g())",
        "async def f():\n  create_task(g())",
    ],
)
def test_a_task_without_an_owner_is_found(text):
    assert tasks_without_owner(source(a=text)) == {"a": ["a.f"]}


def test_a_task_of_a_group_has_an_owner():
    assert not tasks_without_owner(
        source(a="async def f():\n  async with TaskGroup() as group: group.create_task(g())")
    )


def test_a_wait_that_may_lose_a_cancellation_is_found():
    assert swallowed_cancellations(source(a="async def f():\n  await asyncio.wait_for(g(), 1)")) == {"a": ["a.f"]}
    assert not swallowed_cancellations(source(a="wait_for(lambda: ready, 1)"))


def test_a_module_of_more_than_a_chapter_is_found():
    chapter = "\n" * (MOST_LINES - 1) + "x = 1"
    assert long_modules(source(a="\n" + chapter, b=chapter)) == {"a": ["a"]}


@pytest.mark.parametrize("text", ['"""Tells it."""', 'raise Error(f"{x} was told")', 'help="What they tell."'])
def test_a_vague_word_is_found(text):
    assert vague_words(source(a=text)) == {"a": ["a."]}


def test_a_vague_word_in_code_is_none():
    assert not vague_words(source(a="told = untold  # it tells"))
    assert not vague_words(source(a='"""Nobody can tell them apart."""'))


def test_no_comment_and_no_page_has_a_vague_word():
    root = ROOT.parent
    comments = [
        (path, token.start[0], token.string)
        for path in ROOT.rglob("*.py")
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.COMMENT
    ]
    lines = [
        (path, number, line)
        for path in (*root.glob("*.md"), *(root / "docs").rglob("*.md"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
    ]
    assert [f"{path}:{number}: {text}" for path, number, text in comments + lines if VAGUE.search(text)] == []


def strike_out_mended() -> None:
    """Write the lists of this file anew, without what has been mended."""
    text = Path(__file__).read_text()
    head, start, rest = text.partition("KNOWN: dict[Rule, dict[str, int]] = {\n")
    _, end, tail = rest.partition("\n}\n")
    lines = []
    for rule, known in KNOWN.items():
        found = rule(read_sources(ROOT))
        left = {name: min(number, len(found.get(name, ()))) for name, number in known.items()}
        entries = [f'        "{name}": {number},' for name, number in sorted(left.items()) if number]
        print(f"{rule.__name__}: {sum(left.values())} of {sum(known.values())} left")
        lines += [f"    {rule.__name__}: {{", *entries, "    },"] if entries else [f"    {rule.__name__}: {{}},"]
    Path(__file__).write_text(head + start + "\n".join(lines) + end + tail)


if __name__ == "__main__":
    sys.exit(strike_out_mended())
