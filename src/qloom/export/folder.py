"""Writing an export: its files as YAML, and a README with the commands that run it.

The YAML is just enough for workflows that people read: block style, and JSON's rules for what is quoted.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

from qloom.errors import InputError
from qloom.export.cwl import documents, main_file
from qloom.export.flow import Flow, identifier
from qloom.export.places import Places, placed, streamflow_file

FILES = "files"
_PLAIN = re.compile(r"[A-Za-z_/$][A-Za-z0-9_/$().:-]*(?<!:)")
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf", ".nan", ".inf")


def new_folder(directory: Path) -> Path:
    """A folder to export to: new or empty, so that nothing of the user's is written over."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise InputError(f"{directory} is not empty", hint="name a new folder with -o")
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{directory} is not a folder", hint="name a new folder with -o") from None
    except OSError as error:
        raise InputError(f"cannot write {directory}: {error.strerror}") from None
    return directory


def write_files(directory: Path, flow: Flow) -> dict[str, str]:
    """Put the input files beside the export; returns their paths in it."""
    for name, content in flow.files.items():
        target = directory / FILES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copy(content, target)
    return {name: f"{FILES}/{name}" for name in flow.files}


def write_cwl(directory: Path, flow: Flow, places: Places) -> list[str]:
    """A folder that `cwltool --enable-ext` and StreamFlow run; returns the names of its files."""
    flow = placed(flow, places)
    new_folder(directory)
    paths = write_files(directory, flow)
    inputs = {identifier(name): {"class": "File", "path": path} for name, path in paths.items()}
    texts: dict[str, Any] = dict(documents(flow))
    texts["inputs.yml"] = inputs
    texts["streamflow.yml"] = _with_absolute_workdirs(streamflow_file(flow, places), directory)
    for name, document in texts.items():
        target = directory / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(to_yaml(document), encoding="utf-8")
    (directory / "README.md").write_text(_readme(flow, places), encoding="utf-8")
    return [*texts, *paths.values(), "README.md"]


def _with_absolute_workdirs(file: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Steps run below the export, which is on the file system that all locations share."""
    for deployment in file["deployments"].values():
        deployment["workdir"] = str((directory / deployment["workdir"]).resolve())
    return file


def _readme(flow: Flow, places: Places) -> str:
    kinds = "only StreamFlow's own connectors" if places.stock else "the connectors of qloom-streamflow"
    steps = "".join(f"- `{step.name}` on `{step.location}`: `{' '.join(step.words())}`\n" for step in flow.steps())
    loop = f"The loop ends after {flow.max_iterations} iterations at the latest.\n" if flow.loops else ""
    return f"""# {flow.name} as a CWL workflow

Written by `qloom export cwl`. The steps call `qloom`, which has to be on the `PATH` where they run.

With StreamFlow ({kinds}), where `streamflow.yml` says:

    streamflow run streamflow.yml --outdir results

With cwltool, on this machine:

    cwltool --enable-ext --outdir results {main_file(flow)} inputs.yml

The working directories in `streamflow.yml` are absolute paths: change them if the folder is moved.
{loop}
## Steps

{steps}"""


def to_yaml(value: Any) -> str:
    """The text of a document."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(f"{_scalar(str(key))}:", item)]
    if isinstance(value, list | tuple) and value:
        return [line for item in value for line in _item(item)]
    return [_scalar(value)]


def _entry(head: str, item: Any) -> list[str]:
    if isinstance(item, dict | list | tuple) and item:
        if isinstance(item, list | tuple) and all(isinstance(part, str | int | float) for part in item):
            flow = f"{head} [{', '.join(_scalar(part, in_flow=True) for part in item)}]"
            if len(flow) < 100:
                return [flow]
        return [head, *(f"  {line}" for line in _lines(item))]
    return [f"{head} {_scalar(item)}"]


def _item(item: Any) -> list[str]:
    first, *rest = _lines(item)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def _scalar(value: Any, in_flow: bool = False) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return json.dumps(value) if in_flow and "(" in value else value
    return json.dumps(value)
