"""What StreamFlow is told about this plugin. An error here would break every `streamflow` command: keep it short."""

from __future__ import annotations

from streamflow.ext.plugin import StreamFlowPlugin

from qloom_streamflow.candidate import CandidateFilter
from qloom_streamflow.interrupt import end_on_sigterm
from qloom_streamflow.locations import refuse_unknown_locations
from qloom_streamflow.nodes import NodesConnector
from qloom_streamflow.qpu import QpuConnector
from qloom_streamflow.slurm import SlurmConnector
from qloom_streamflow.told import tell_errors_in_one_line


class QloomPlugin(StreamFlowPlugin):
    """Registers the connectors and the filter."""

    def register(self) -> None:
        """Called once, before a workflow's file is read."""
        end_on_sigterm()
        tell_errors_in_one_line()
        refuse_unknown_locations()
        self.register_connector("qpu", QpuConnector)
        self.register_connector("qloom-slurm", SlurmConnector)
        self.register_connector("qloom-nodes", NodesConnector)
        self.register_binding_filter("qpu-candidate", CandidateFilter)
