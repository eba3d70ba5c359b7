"""Whose the workloads are: for nodes that not everybody may open."""

from collections.abc import Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.process_status import ProcessStatus, read_status
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Absent, EntryType
from gpudoctor.facts.workload_devices import Devices, NodeInside
from gpudoctor.verdicts import Unread

EVERYBODY = 0o666


class WorkloadUser(Struct, frozen=True):
    """A workload's leading process; whether it is in the node's first user namespace is None where that is not known."""

    status: ProcessStatus | Absent | Unread
    in_first_namespace: bool | None

    def may_open(self, node: NodeInside) -> bool | None:
        """Whether mode and owner let it open a node for reading and writing, None where that is not known."""
        if not isinstance(self.status, ProcessStatus):
            return None
        return self.status.may_open(node.entry, in_first_namespace=self.in_first_namespace)


class WorkloadUsers(Fact, frozen=True):
    """The users by key, of those members of GpuWorkloads that have nodes with a restrictive mode."""

    by_key: Mapping[str, WorkloadUser]

    @classmethod
    def gather(cls, desk: Desk) -> "WorkloadUsers | Unread":
        """One small file for each."""
        concerned, processes = desk.get(GpuWorkloads), desk.get(Processes)
        if isinstance(concerned, Unread):
            return concerned
        if isinstance(processes, Unread):
            return processes
        restricted = [one for one in concerned if any(is_restricted(node) for node in _nodes(one))]
        return cls(
            by_key={
                one.workload.key: WorkloadUser(read_status(desk.raw, one.workload.pid), _in_first(one, processes))
                for one in restricted
            }
        )


def _nodes(one: GpuWorkload) -> tuple[NodeInside, ...]:
    return one.devices.nodes if isinstance(one.devices, Devices) else ()


def is_restricted(node: NodeInside) -> bool:
    """Whether the mode shuts somebody out."""
    mode = node.entry.mode
    return node.entry.type is EntryType.CHAR and mode is not None and mode & EVERYBODY != EVERYBODY


def _in_first(one: GpuWorkload, processes: Processes) -> bool | None:
    leading, host = one.workload.leading, processes.host
    spaces = processes.of(leading) if leading is not None else None
    return spaces.user == host.user if spaces is not None and host is not None else None
