"""A run as a Workflow Run RO-Crate: the program, its inputs and outputs, and every task with its times.

It follows the profiles Process, Workflow and Provenance Run Crate 0.5 (https://w3id.org/ro/wfrun), and is made from
the journal alone, so a run of any strategy in any world becomes one.
"""

from __future__ import annotations

import inspect
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

from qloom.errors import InputError, QloomError
from qloom.export.actions import Entity, actions_of, reference, time_of
from qloom.export.folder import new_folder
from qloom.journal import home
from qloom.journal.event import Event
from qloom.journal.file import FILE_NAME, ended_as, read_events, start_of
from qloom.journal.queries import job_errors
from qloom.programs.load import load_program
from qloom.version import __version__

METADATA = "ro-crate-metadata.json"
CONTEXT = ["https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"]
RO_CRATE = "https://w3id.org/ro/crate/1.1"
WORKFLOW_RO_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/provenance/0.5": ("Provenance Run Crate", "0.5"),
    WORKFLOW_RO_CRATE: ("Workflow RO-Crate", "1.0"),
}
LANGUAGES = {
    ".py": ("Python", "https://www.python.org/"),
    ".toml": ("qloom job file", "https://pypi.org/project/qloom/"),
}
QLOOM = "#qloom"
STREAMFLOW_CRATE = "crate.zip"  # in the folder of a job that StreamFlow ran


def write_crate(name: str, output: Path | None) -> Path:
    """Write the crate of a run; returns its folder."""
    run = home.find_run(name)
    events = read_events(run)
    if ended_as(events) is None:
        raise InputError(f"{run.name} has not ended", hint="qloom resume goes on with it")
    directory = new_folder(output or Path(f"crate-{run.name}"))
    graph = _Crate(run, events, directory).graph()
    text = json.dumps({"@context": CONTEXT, "@graph": graph}, indent=2)
    (directory / METADATA).write_text(text + "\n", encoding="utf-8")
    return directory


class _Crate:
    def __init__(self, run: Path, events: list[Event], directory: Path) -> None:
        self._run = run
        self._events = events
        self._start = start_of(events)
        self._directory = directory
        self._files: list[Entity] = []

    def graph(self) -> list[Entity]:
        """All entities."""
        start = self._start
        program = self._program()
        inputs, outputs = self._inputs(), self._outputs()
        parameters = [_parameter(name, value) for name, value in start.parameters.items()]
        formal = [_formal(entity) for entity in (*parameters, *inputs)]
        results = [_formal(entity) for entity in outputs]
        journal = self._add(self._run / FILE_NAME, FILE_NAME, "application/jsonl", name="the journal of the run")
        self._streamflow_crates()
        tasks = actions_of(self._events)
        ended = self._events[-1]
        state = ended_as(self._events)
        whole: Entity = {
            "@id": "#run",
            "@type": "CreateAction",
            "name": f"run {self._run.name} of {start.program} under {start.strategy}",
            "description": self._description(),
            "instrument": reference(program["@id"]),
            "object": [reference(entity["@id"]) for entity in (*parameters, *inputs)],
            "result": [reference(entity["@id"]) for entity in (*outputs, journal)],
            "startTime": time_of(start, 0),
            "endTime": time_of(start, ended.at_us),
            "actionStatus": _status(state),
            "agent": reference(QLOOM),
        }
        if state != "done":
            failed = job_errors(self._events)
            whole["error"] = failed[0]["message"] if failed else str(state)
        program["input"] = [reference(entity["@id"]) for entity in formal]
        program["output"] = [reference(entity["@id"]) for entity in results]
        program["step"] = [reference(step["@id"]) for step in tasks.steps]
        program["hasPart"] = [reference(tool["@id"]) for tool in tasks.tools]
        organised: Entity = {
            "@id": "#organise",
            "@type": "OrganizeAction",
            "name": f"qloom {start.qloom}, strategy {start.strategy}, world {start.world}",
            "instrument": reference(QLOOM),
            "object": [reference(control["@id"]) for control in tasks.controls],
            "result": reference("#run"),
            "startTime": whole["startTime"],
            "endTime": whole["endTime"],
        }
        mentions = [whole, organised, *tasks.actions]
        return [
            self._descriptor(),
            self._root(program, mentions),
            *_profiles(),
            _engine(start.qloom),
            program,
            *self._language(program),
            *(entity for entity in self._files if entity is not program),
            *parameters,
            *formal,
            *results,
            *mentions,
            *tasks.steps,
            *tasks.tools,
            *tasks.controls,
            *tasks.devices,
        ]

    def _descriptor(self) -> Entity:
        return {
            "@id": METADATA,
            "@type": "CreativeWork",
            "about": reference("./"),
            "conformsTo": [reference(RO_CRATE), reference(WORKFLOW_RO_CRATE)],
        }

    def _root(self, program: Entity, mentions: list[Entity]) -> Entity:
        start = self._start
        return {
            "@id": "./",
            "@type": "Dataset",
            "name": f"qloom run {self._run.name}",
            "description": self._description(),
            "datePublished": time_of(start, self._events[-1].at_us),
            "license": "not stated",
            "conformsTo": [reference(profile) for profile in PROFILES],
            "hasPart": [reference(entity["@id"]) for entity in self._files],
            "mainEntity": reference(program["@id"]),
            "mentions": [reference(entity["@id"]) for entity in mentions],
        }

    def _description(self) -> str:
        start = self._start
        jobs = f"{start.jobs} {'job' if start.jobs == 1 else 'jobs'}"
        where = f"{start.strategy} in the {start.world} world"
        return f"{start.program} under {where}, {jobs}, seed {start.seed}"

    def _program(self) -> Entity:
        """The program's file as the main entity; it must be there to be described."""
        source = str(self._start.program)
        try:
            loaded = load_program(source)
            path = Path(source if source.endswith(".toml") else inspect.getfile(loaded.function))
        except (QloomError, TypeError) as error:
            raise InputError(f"the program of {self._run.name} cannot be read: {error}") from None
        entity = self._add(path, path.name, LANGUAGES.get(path.suffix, LANGUAGES[".py"])[0], name=Path(source).name)
        entity["@type"] = ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]
        del entity["encodingFormat"]
        entity["programmingLanguage"] = reference("#language")
        entity["version"] = str(self._start.program_digest or self._start.qloom)
        return entity

    def _language(self, program: Entity) -> list[Entity]:
        name, url = LANGUAGES.get(Path(program["@id"]).suffix, LANGUAGES[".py"])
        return [{"@id": "#language", "@type": "ComputerLanguage", "name": name, "url": url}]

    def _inputs(self) -> list[Entity]:
        """Parameters that name files, and the files of a job file."""
        given = self._start.parameters
        named = {name: Path(value) for name, value in given.items() if isinstance(value, str)}
        paths = {f"{name}/{path.name}": path for name, path in named.items() if path.is_file()}
        if str(self._start.program).endswith(".toml"):
            from qloom.export.programs import input_files

            paths |= input_files(Path(str(self._start.program)), given)
        return [self._add(path, f"inputs/{name}") for name, path in paths.items()]

    def _outputs(self) -> list[Entity]:
        folder = self._run / "output"
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
        return [self._add(path, f"outputs/{path.relative_to(folder)}") for path in paths]

    def _streamflow_crates(self) -> None:
        """StreamFlow's own account of its runs, kept beside this one."""
        for archive in sorted((self._run / "streamflow").glob(f"*/{STREAMFLOW_CRATE}")):
            job = archive.parent.name
            self._add(archive, f"streamflow-{job}.zip", name=f"StreamFlow's own crate of {job}")

    def _add(self, path: Path, target: str, encoding: str | None = None, name: str | None = None) -> Entity:
        place = self._directory / target
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, place)
        except OSError as error:
            raise InputError(f"cannot copy {path}: {error.strerror}") from None
        kinds = {
            ".zip": "application/zip",
            ".csv": "text/csv",
            ".json": "application/json",
            ".png": "image/png",
            ".svg": "image/svg+xml",
        }
        kind = encoding or kinds.get(path.suffix, "application/octet-stream")
        entity = {
            "@id": quote(target),
            "@type": "File",
            "name": name or path.name,
            "encodingFormat": kind,
            "contentSize": str(place.stat().st_size),
        }
        self._files.append(entity)
        return entity


def _profiles() -> list[Entity]:
    return [
        {"@id": profile, "@type": "CreativeWork", "name": name, "version": version}
        for profile, (name, version) in PROFILES.items()
    ]


def _engine(version: str) -> Entity:
    return {
        "@id": QLOOM,
        "@type": "SoftwareApplication",
        "name": "qloom",
        "softwareVersion": version or __version__,
        "url": "https://pypi.org/project/qloom/",
    }


def _parameter(name: str, value: Any) -> Entity:
    text = value if isinstance(value, bool | int | float | str) else json.dumps(value)
    return {
        "@id": f"#parameter-{name}",
        "@type": "PropertyValue",
        "name": name,
        "value": text,
        "exampleOfWork": reference(f"#formal-{name}"),
    }


def _formal(entity: Entity) -> Entity:
    """The slot of the program that an input or output fills."""
    name = entity["name"] if entity["@type"] == "PropertyValue" else entity["@id"]
    kinds = {bool: "Boolean", int: "Integer", float: "Float"}
    kind = kinds.get(type(entity.get("value")), "Text") if entity["@type"] == "PropertyValue" else "File"
    formal = f"#formal-{name}"
    entity["exampleOfWork"] = reference(formal)
    return {
        "@id": formal,
        "@type": "FormalParameter",
        "name": name,
        "additionalType": kind,
        "conformsTo": reference("https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"),
        "workExample": reference(entity["@id"]),
    }


def _status(state: Any) -> str:
    done = state == "done"
    return "http://schema.org/CompletedActionStatus" if done else "http://schema.org/FailedActionStatus"
