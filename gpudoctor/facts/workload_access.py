"""Which of the driver's nodes in a workload's own /dev its cgroup lets it open."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.device_access import Access, DeviceAccess, DeviceKind, Permission
from gpudoctor.facts.device_nodes import CONTROL, UVM
from gpudoctor.facts.device_rules import CgroupRules
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.gpu_workloads import GpuWorkload, GpuWorkloads
from gpudoctor.facts.oci_config import OciConfig
from gpudoctor.facts.raw import EntryType, decimal
from gpudoctor.facts.workload_devices import Devices, NodeInside, is_job
from gpudoctor.facts.workload_rules import WorkloadRules
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

OPENED = Access.READ | Access.WRITE
"""The driver's libraries open their nodes with O_RDWR; the nodes of capabilities are made readable only (nv-caps.c, mode 0444)."""

_CAPABILITY = pattern(r"/dev/nvidia-caps/nvidia-cap(\d{1,7})")
_CHANNEL = "/dev/nvidia-caps-imex-channels/"
_MANAGING = (1, 2)
"""Minors of mig/config and mig/monitor: whoever partitions or watches GPUs opens them, no program that computes (nv-caps.c)."""


class NodeAccess(Struct, frozen=True):
    """One node and what the rules say to opening it. Without a `vital` one a program that computes does not run."""

    node: NodeInside
    asked: DeviceAccess
    permission: Permission
    vital: bool

    @property
    def words(self) -> str:
        """The node as people name it."""
        return f"{self.node.path} ({self.asked.major}:{self.asked.minor})"

    @property
    def is_gpu(self) -> bool:
        """Whether it is the node of a GPU."""
        return self.node.gpu is not None

    @property
    def evidence(self) -> Evidence:
        """Where the node lies."""
        return Evidence(self.node.entry.where, f"character device {self.asked.major}:{self.asked.minor}")


class Accesses(Struct, frozen=True):
    """The nodes of one workload under its rules; `unjudged` is why something about a vital one is not known.

    Where it has the node's whole /dev, or stands in the cgroup of a job, the nodes of GPUs are there whether or not it was given them:
    `selective` says so. Then one GPU that may be opened is as it should be, and one that was not seen (`some_hidden`) may be that; those
    that its configuration names (`given`) are judged one by one all the same.
    """

    nodes: tuple[NodeAccess, ...]
    rules: CgroupRules | Unread
    selective: bool
    unjudged: Unread | None = None
    some_hidden: bool = False
    given: frozenset[str] = frozenset()

    @property
    def allowed(self) -> tuple[NodeAccess, ...]:
        """The vital nodes that may be opened."""
        return tuple(one for one in self.nodes if one.vital and one.permission is True)

    @property
    def denied(self) -> tuple[NodeAccess, ...]:
        """The vital nodes that may not; of a selective workload those it was given by name, and all where it may open no GPU at all."""
        denied = tuple(one for one in self.nodes if one.vital and one.permission is False)
        open_gpu = any(one.is_gpu and one.permission is not False for one in self.nodes)
        if self.selective and (open_gpu or self.some_hidden):
            return tuple(one for one in denied if not one.is_gpu or one.node.path in self.given)
        return denied

    @property
    def minor_ones(self) -> tuple[NodeAccess, ...]:
        """The other nodes that may not be opened: debuggers, displays and managers want them."""
        return tuple(one for one in self.nodes if not one.vital and one.permission is False)

    @property
    def may_hide_denials(self) -> bool:
        """Whether the kernel may deny more than its list shows."""
        return isinstance(self.rules, CgroupRules) and self.rules.may_hide_denials

    def cite(self, nodes: tuple[NodeAccess, ...]) -> Cited:
        """Each node with what decides about it, nothing twice."""
        return tuple(dict.fromkeys(evidence for one in nodes for evidence in (one.evidence, *self._decided(one))))

    def _decided(self, one: NodeAccess) -> Cited:
        """By a list, or by programs of which bpf(2) told: they stand in no file of the cgroup."""
        if not isinstance(self.rules, CgroupRules):
            return ()
        return tuple(
            replace(said, where=f"bpf(2) on {said.where}") if said.where == self.rules.place.unified else said
            for said in self.rules.cite(one.asked)
        )


class WorkloadAccess(Fact, frozen=True):
    """What the members of GpuWorkloads may open, by key; of one whose /dev was not seen there is nothing to say."""

    by_key: Mapping[str, Accesses]

    @classmethod
    def gather(cls, desk: Desk) -> "WorkloadAccess | Unread":
        """Nothing is read but what the rules take."""
        concerned, rules = desk.get(GpuWorkloads), desk.get(WorkloadRules)
        if isinstance(concerned, Unread):
            return concerned
        if isinstance(rules, Unread):
            return rules
        minors, _ = gpu_minors(desk.get(DriverGpus))
        known = ((one, one.devices) for one in concerned)
        return cls(
            by_key={
                one.workload.key: _accesses(one, devices, rules.of(one.workload), minors)
                for one, devices in known
                if isinstance(devices, Devices)
            }
        )

    @property
    def any_denied(self) -> bool:
        """Whether some workload may not open a node that it needs."""
        return any(accesses.denied for accesses in self.by_key.values())


def _accesses(one: GpuWorkload, devices: Devices, rules: CgroupRules | Unread, minors: frozenset[int]) -> Accesses:
    nodes: list[NodeAccess] = []
    unjudged: Unread | None = rules if isinstance(rules, Unread) else None
    for node in sorted(devices.nodes, key=by_importance):
        asked = _asked(node)
        if isinstance(asked, Unread):
            unjudged = unjudged or (asked if is_vital(node) else None)
        elif asked is not None:
            permission = rules if isinstance(rules, Unread) else rules.allows(asked)
            nodes.append(NodeAccess(node, asked, permission, is_vital(node)))
            if isinstance(permission, Unread) and is_vital(node):
                unjudged = unjudged or permission
    selective = is_selective(one, devices)
    hidden = hidden_gpu(devices, minors) if selective else None
    config = one.workload.config
    given = config.nodes if isinstance(config, OciConfig) and not config.allows_everything else ()
    return Accesses(
        tuple(nodes),
        rules,
        selective,
        unjudged or hidden,
        some_hidden=hidden is not None,
        given=frozenset(node.path for node in given),
    )


def _asked(node: NodeInside) -> DeviceAccess | Unread | None:
    """How it is opened; None for what is no device."""
    if node.entry.type is not EntryType.CHAR:
        return None
    if node.entry.major is None or node.entry.minor is None:
        return Unread(Why.NOT_RECORDED, node.entry.path, "its device numbers were not recorded")
    access = Access.READ if _CAPABILITY.fullmatch(node.path) else OPENED
    return DeviceAccess(DeviceKind.CHAR, node.entry.major, node.entry.minor, access)


def is_vital(node: NodeInside) -> bool:
    """Whether a program that computes needs the node: not those of modeset, of debuggers (uvm-tools) and of NVSwitches."""
    if found := _CAPABILITY.fullmatch(node.path):
        return int(found[1]) not in _MANAGING
    named = node.path.removeprefix("/dev/nvidia").isdecimal() or node.path.startswith(_CHANNEL)
    return named or node.path in (CONTROL, UVM)


def by_importance(node: NodeInside) -> tuple[bool, int, str]:
    """GPUs by their minors come first, then what all GPUs share."""
    number = decimal(node.path.removeprefix("/dev/nvidia"))
    return number is None, number or 0, {CONTROL: "", UVM: "-"}.get(node.path, node.path)


def is_selective(one: GpuWorkload, devices: Devices) -> bool:
    """Whether its /dev holds nodes that nobody gave to it."""
    return is_job(one.workload) or one.workload.inside.startswith("slurm:") or devices.whole_dev


def gpu_minors(driver: DriverGpus | Unread) -> tuple[frozenset[int], bool]:
    """The minors of GPUs that are known, and whether they are those of all."""
    gpus = [] if isinstance(driver, Unread) else list(driver.gpus.values())
    known = [gpu.minor for gpu in gpus if isinstance(gpu, DriverGpu) and gpu.minor is not None]
    complete = not isinstance(driver, Unread) and driver.unlisted is None and len(known) == len(gpus)
    return frozenset(known), bool(known) and complete


def hidden_gpu(devices: Devices, minors: Iterable[int]) -> Unread | None:
    """A GPU's node that was neither seen nor looked for in vain; where there is no node at all, one name stands for all."""
    paths = [f"/dev/nvidia{minor}" for minor in sorted(minors)] if devices.nodes else []
    unseen = (path for path in paths if devices.node(path) is None and path not in devices.missing)
    path = next(unseen, None)
    return None if path is None else Unread(Why.UNREADABLE, root_of_workload(devices) + path, "could not be looked at")


def root_of_workload(devices: Devices) -> str:
    """The root of the workload's leading process, as the reader sees it."""
    return devices.read_from["nodes"].where.removesuffix("/dev")
