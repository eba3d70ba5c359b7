"""What is left and still holds a GPU: processes of containers that are gone, and those that ended but for a thread."""

from enum import Enum

from msgspec import Struct

from gpudoctor.facts.cgroup_paths import GroupKind, Identity
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.gpu_holders import GpuHolder, GpuHolders
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.processes import ENDED, Process, Processes
from gpudoctor.facts.raw import Absent
from gpudoctor.verdicts import Evidence, Unread, Why

ENGINES = ("docker", "containerd", "podman", "cri-o")
"""Engines whose containers have a monitor of their own, containerd-shim or conmon: it takes over what loses its parent
(PR_SET_CHILD_SUBREAPER), so that only what has lost the monitor as well belongs to the first process."""


class Remains(str, Enum):
    """Why something counts as dead."""

    GROUP_GONE = "group-gone"
    CONTAINER_GONE = "container-gone"
    ENDED = "ended"


class Leftover(Struct, frozen=True):
    """A holder that is left of something."""

    holder: GpuHolder
    remains: Remains


class Leftovers(Fact, frozen=True):
    """Those among the holders of the driver's nodes. `hidden` processes did not show what they hold."""

    dead: tuple[Leftover, ...]
    hidden: int = 0
    unlisted: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "Leftovers | Unread":
        """Who holds what is asked only where some process has ended, or has lost its container."""
        module = desk.get(NvidiaModule)
        if isinstance(module, NvidiaModule) and module.loaded is False:
            return cls(dead=(), read_from={"dead": module.read_from["loaded"]})
        processes = desk.get(Processes)
        if isinstance(processes, Processes) and not any(_suspect(one, processes) for one in processes.processes):
            said = "none has ended or has lost its container"
            seen = Evidence("processes (/proc/*/stat)", said)
            return cls(dead=(), unlisted=processes.unlisted, read_from={"dead": seen})
        holders = desk.get(GpuHolders)
        if isinstance(holders, Unread):
            nothing = isinstance(processes, Unread) and holders.why is Why.NOT_RECORDED
            return processes if nothing and isinstance(processes, Unread) else holders
        found = ((one, _remains(one)) for one in holders.holders)
        dead = tuple(Leftover(one, remains) for one, remains in found if remains is not None)
        return cls(
            dead=dead,
            hidden=holders.hidden + holders.unmapped,
            unlisted=processes.unlisted if isinstance(processes, Processes) else None,
            read_from={"dead": holders.read_from["holders"]},
        )


def _suspect(process: Process, processes: Processes) -> bool:
    """Whether it may be left of something, as far as its state, its parent and its control group tell."""
    identity: Identity | None = processes.identities[process.cgroup] if process.cgroup >= 0 else None
    if process.state in ENDED or identity is None:
        return process.state in ENDED
    orphan = identity.kind is GroupKind.CONTAINER and identity.engine in ENGINES and process.parent == 1
    return orphan or identity.deleted


def _remains(one: GpuHolder) -> Remains | None:
    """What a holder is left of, None for one that lives and belongs to somebody.

    To sleep uninterruptibly is no sign of death: whoever reads from a disk does for a moment.
    """
    if one.identity.deleted:
        return Remains.GROUP_GONE
    if _forgotten(one):
        return Remains.CONTAINER_GONE
    return Remains.ENDED if one.zombie else None


def _forgotten(one: GpuHolder) -> bool:
    """Whether it runs on although its engine and its monitor are done with its container."""
    of = one.workload
    if of is None or not one.contained or of.engine not in ENGINES or one.process.parent != 1:
        return False
    if of.engine == "docker":
        return isinstance(of.docker, Absent) and not isinstance(of.config, OciConfig)
    return isinstance(of.config, Absent)
