"""Who keeps a GPU in use: the processes that hold the driver's nodes, each with the workload it belongs to.

A GPU is reset, and a module unloaded, only when nobody holds its nodes (nvidia-smi(1), --gpu-reset; delete_module(2)).
"""

from msgspec import Struct

from gpudoctor.facts.cgroup_paths import GroupKind, Identity, identify_all, parse_groups
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.raw import Absent, decimal
from gpudoctor.facts.tasks import Holder, held_nodes
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workloads import Workloads
from gpudoctor.verdicts import Evidence, Unread


class GpuHolder(Struct, frozen=True):
    """One process that holds nodes of the driver; `workload` is None outside of all containers, jobs and units."""

    process: Holder
    identity: Identity
    workload: Workload | None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes it has open or mapped."""
        return self.process.nodes or self.process.mapped

    @property
    def minors(self) -> tuple[int, ...]:
        """The minors of the GPUs it holds, by the names of their nodes as the process sees them."""
        names = (decimal(path.removeprefix("/dev/nvidia")) for path in self.nodes)
        return tuple(sorted({minor for minor in names if minor is not None}))

    @property
    def zombie(self) -> bool:
        """Whether its first thread has ended: what is left of it cannot be killed once more (proc_pid_stat(5), Z)."""
        return self.process.state == "Z"

    @property
    def stuck(self) -> bool:
        """Whether it sleeps uninterruptibly."""
        return self.process.state == "D"

    @property
    def outside(self) -> bool:
        """Whether it belongs to no container, pod or job."""
        return self.identity.kind not in (GroupKind.CONTAINER, GroupKind.POD, GroupKind.JOB) and not self.contained

    @property
    def contained(self) -> bool:
        """Whether its namespaces make it part of a container."""
        return self.workload is not None and self.workload.kind is GroupKind.CONTAINER

    @property
    def leftover(self) -> bool:
        """Whether its container is gone: its control group was removed, or it cannot end while the engine's files of it are gone."""
        if self.identity.deleted:
            return True
        ends = self.zombie or self.stuck
        return ends and self.workload is not None and self.contained and isinstance(self.workload.config, Absent)

    @property
    def evidence(self) -> Evidence:
        """The process and what it holds."""
        return self.process.evidence


class GpuHolders(Fact, frozen=True):
    """All holders; `hidden` processes did not show their open files and `unmapped` ones their maps: then there may be more."""

    holders: tuple[GpuHolder, ...]
    hidden: int = 0
    unmapped: int = 0

    @classmethod
    def gather(cls, desk: Desk) -> "GpuHolders | Unread":
        """Looked for only while the driver is loaded, or may be: without it no node can be open."""
        module = desk.get(NvidiaModule)
        if isinstance(module, NvidiaModule) and module.loaded is False:
            return cls(holders=(), read_from={"holders": module.read_from["loaded"]})
        held = held_nodes(desk)
        if isinstance(held, Unread):
            return held
        workloads = desk.get(Workloads)
        by_pid = {} if isinstance(workloads, Unread) else workloads.by_pid
        known: dict[str, Identity] = {}
        found = [
            GpuHolder(one, identify_all(parse_groups(one.cgroup), known), by_pid.get(one.pid)) for one in held.holders
        ]
        shows = f"{len(found)} processes hold nodes of the driver"
        return cls(
            holders=tuple(found),
            hidden=held.hidden,
            unmapped=held.unmapped,
            read_from={"holders": Evidence("holders (/proc/*/fd)", shows)},
        )

    def of(self, minor: int) -> tuple[GpuHolder, ...]:
        """Those that hold the node of one GPU."""
        return tuple(one for one in self.holders if minor in one.minors)
