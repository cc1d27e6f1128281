"""What can be refused before anything runs: tasks that no node of a site could ever run."""

from __future__ import annotations

from qloom.errors import NeedError
from qloom.model import Task
from qloom.site import Site


def check_task(task: Task, site: Site) -> None:
    """Raise `NeedError` for a task that asks for more than there is."""
    for asked, there_is, what in (
        (task.nodes, site.nodes, "nodes"),
        (task.cpus, site.node_cpus(), "cpus on a node"),
        (task.memory_mb, site.node_memory_mb(), "MB of memory on a node"),
    ):
        if asked > there_is:
            raise NeedError(f"task {task.name} asks for {asked} {what} and there are {there_is}", hint="ask for less")
