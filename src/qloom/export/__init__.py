"""Programs of static shape for other engines (CWL, StreamFlow, plain sbatch), and runs as research objects."""

from __future__ import annotations

from qloom.export.folder import write_cwl
from qloom.export.places import Places, read_places
from qloom.export.programs import flow_of
from qloom.export.shell import write_shell

__all__ = ["Places", "flow_of", "read_places", "write_cwl", "write_shell"]
