"""A flow as CWL v1.2: a tool for each step, a workflow for one iteration, and one around it.

The loop is cwltool's extension (`cwltool:Loop`), which StreamFlow knows too. No expression needs JavaScript: the step
that judges an iteration writes its typed outputs itself, in `cwl.output.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from qloom.export.flow import Flow, Step, identifier, made_by

Document = dict[str, Any]

HEAD = {"cwlVersion": "v1.2", "$namespaces": {"cwltool": "http://commonwl.org/cwltool#"}}
JUDGE = "judge"
JUDGED = {"proceed": "boolean", "next": "int", "iteration_out": "int"}
ITERATION = "$(inputs.iteration)"


def documents(flow: Flow) -> dict[str, Document]:
    """All CWL files by their names; the workflow itself is `NAME.cwl`."""
    return _Writer(flow).write()


def main_file(flow: Flow) -> str:
    """The name of the workflow's file."""
    return f"{identifier(flow.name)}.cwl"


def out(name: str) -> str:
    """The output port of a file: ports of both directions share their names."""
    return f"{identifier(name)}_out"


@dataclass
class _Scope:
    """A workflow that is being written: where each file comes from, and whether it is always there."""

    iteration: str | None = None  # the source of its number, if the workflow knows it
    sources: dict[str, str] = field(default_factory=dict)
    optional: dict[str, None] = field(default_factory=dict)
    steps: Document = field(default_factory=dict)


class _Writer:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._documents: dict[str, Document] = {}
        self._maybe: dict[str, None] = {}  # a loop, as CWL sees it, may not run at all

    def _results(self) -> list[str]:
        flow = self._flow
        return list(flow.results) or made_by((*flow.before, *flow.body, *flow.after))

    def _wanted_later(self) -> list[str]:
        """Files of the loop that something outside it uses."""
        readers = [step for phase in self._flow.after for step in phase]
        if any(step.reads is None for step in readers):
            return made_by(self._flow.body)
        return [*self._results(), *(name for step in readers for name in step.reads or ())]

    def write(self) -> dict[str, Document]:
        flow = self._flow
        scope = _Scope(sources={name: identifier(name) for name in flow.files})
        self._phases(scope, flow.before, "0")
        if flow.loops:
            self._loop(scope)
        else:
            self._phases(scope, flow.body, "1")
        self._phases(scope, flow.after, None)
        workflow: Document = {
            **HEAD,
            "class": "Workflow",
            "label": flow.name,
            **({"requirements": {"SubworkflowFeatureRequirement": {}}} if flow.loops else {}),
            "inputs": {identifier(name): "File" for name in flow.files},
            "steps": scope.steps,
            "outputs": {
                out(name): {"type": "File?" if name in self._maybe else "File", "outputSource": scope.sources[name]}
                for name in self._results()
            },
        }
        if flow.loops:  # StreamFlow counts a loop as cancelled if it is not waited for to its last port
            workflow["outputs"].update(
                {name: {"type": f"{kind}?", "outputSource": f"loop/{name}"} for name, kind in JUDGED.items()}
            )
        return {main_file(flow): workflow, **self._documents}

    def _phases(self, scope: _Scope, phases: Sequence[Sequence[Step]], iteration: str | None) -> None:
        """Steps of one phase do not see each other's files."""
        for phase in phases:
            for step in phase:
                self._step(scope, step, iteration)
            for step in phase:
                for name in step.outputs:
                    scope.sources[name] = f"{identifier(step.name)}/{out(name)}"
                    scope.optional.pop(name, None)

    def _step(self, scope: _Scope, step: Step, iteration: str | None) -> None:
        words = [_text(word, iteration) for word in step.words()]
        outputs = {name: _text(name, iteration) for name in step.outputs}
        reads = [name for name in scope.sources if step.reads is None or name in step.reads]
        numbered = any(ITERATION in text for text in (*words, *outputs.values()))
        tool = identifier(step.name)
        self._documents[f"tools/{tool}.cwl"] = {
            "cwlVersion": "v1.2",
            "class": "CommandLineTool",
            "label": step.name,
            "requirements": {
                "InitialWorkDirRequirement": {"listing": [_staged(name, step) for name in reads]},
                "ResourceRequirement": {"coresMin": step.cpus, "ramMin": max(step.memory_mb, 64)},
            },
            "arguments": words,
            "inputs": {
                **({"iteration": "int"} if numbered else {}),
                **{identifier(name): "File?" if name in scope.optional else "File" for name in reads},
            },
            "outputs": {
                out(name): {"type": "File", "outputBinding": {"glob": glob}} for name, glob in outputs.items()
            },
        }
        if not reads:
            del self._documents[f"tools/{tool}.cwl"]["requirements"]["InitialWorkDirRequirement"]
        sources = {identifier(name): scope.sources[name] for name in reads}
        if numbered:
            sources = {"iteration": scope.iteration or "iteration", **sources}
        scope.steps[tool] = {"run": f"tools/{tool}.cwl", "in": sources, "out": [out(name) for name in outputs]}

    def _loop(self, scope: _Scope) -> None:
        """What an iteration makes is there in the next one; in the first, only if something made it before."""
        flow = self._flow
        carried = _carried(flow)
        made = [name for name in made_by(flow.body) if name in carried or name in self._wanted_later()]
        inner = _Scope("iteration", {name: identifier(name) for name in dict.fromkeys((*scope.sources, *carried))})
        inner.optional = {name: None for name in carried if name not in scope.sources}
        types = {identifier(name): "File?" if name in inner.optional else "File" for name in inner.sources}
        empty = {identifier(name): {"default": None} for name in inner.optional}
        self._phases(inner, flow.body, None)
        self._judge(inner)
        self._documents["iteration.cwl"] = {
            "cwlVersion": "v1.2",
            "class": "Workflow",
            "label": f"one iteration of {flow.name}",
            "inputs": {"iteration": "int", **types},
            "steps": inner.steps,
            "outputs": {
                **{out(name): {"type": "File", "outputSource": inner.sources[name]} for name in made},
                **{name: {"type": kind, "outputSource": f"{JUDGE}/{name}"} for name, kind in JUDGED.items()},
            },
        }
        again = {"iteration": "next", "proceed": "proceed", **{identifier(name): out(name) for name in carried}}
        first = {identifier(name): source for name, source in scope.sources.items()}
        self._maybe.update(dict.fromkeys(made))
        scope.steps["loop"] = {
            "run": "iteration.cwl",
            "in": {"iteration": {"default": 1}, "proceed": {"default": True}, **first, **empty},
            "out": [*(out(name) for name in made), *JUDGED],
            "requirements": {
                "cwltool:Loop": {"loopWhen": "$(inputs.proceed)", "loop": again, "outputMethod": "last"}
            },
        }
        scope.iteration = "loop/iteration_out"
        scope.sources.update((name, f"loop/{out(name)}") for name in made)

    def _judge(self, scope: _Scope) -> None:
        """The step that ends an iteration."""
        until = self._flow.until
        seen = [until.file] if until is not None else []
        self._documents[f"tools/{JUDGE}.cwl"] = {
            "cwlVersion": "v1.2",
            "class": "CommandLineTool",
            "label": "decides whether there is another iteration",
            "requirements": {
                **({"InitialWorkDirRequirement": {"listing": [f"$(inputs.{identifier(seen[0])})"]}} if seen else {}),
                "ResourceRequirement": {"coresMin": 1, "ramMin": 64},
            },
            "arguments": [_text(word, None) for word in self._flow.judge_words("{iteration}")],
            "inputs": {"iteration": "int", **{identifier(name): "File" for name in seen}},
            "outputs": dict(JUDGED),
        }
        # A judge with no file to look at must still wait for the iteration's end.
        waits = made_by(self._flow.body[-1:]) if until is None else seen
        sources = {identifier(name): scope.sources[name] for name in waits}
        if until is None:
            self._documents[f"tools/{JUDGE}.cwl"]["inputs"].update(dict.fromkeys(sources, "File"))
        scope.steps[JUDGE] = {
            "run": f"tools/{JUDGE}.cwl",
            "in": {"iteration": "iteration", **sources},
            "out": list(JUDGED),
        }


def _carried(flow: Flow) -> list[str]:
    """Files of the loop that an iteration reads before it makes them: the next one is given them."""
    carried: dict[str, None] = {}
    made: dict[str, None] = {}
    for phase in flow.body:
        for name in made_by(flow.body):
            if name not in made and any(step.reads is None or name in step.reads for step in phase):
                carried[name] = None
        made.update(dict.fromkeys(made_by([phase])))
    return list(carried)


def _staged(name: str, step: Step) -> Any:
    """A file in the step's folder: under its own name, and a separate copy if the step writes it anew."""
    reference = f"$(inputs.{identifier(name)})"
    if name in step.outputs:
        return {"entry": reference, "writable": True}
    return {"entryname": name, "entry": reference} if "/" in name else reference


def _text(text: str, iteration: str | None) -> str:
    """A word of a command as CWL reads it; `iteration` None leaves its number to be filled in."""
    quoted = text.replace("$(", "\\$(").replace("${", "\\${")
    return quoted.replace("{iteration}", ITERATION if iteration is None else iteration)
