"""The kubelet's managers of CPUs, memory and topology: what they were told, what they have left, and where the GPUs are.

A topology manager with the policy `restricted` or `single-numa-node` refuses pods whose CPUs and devices cannot come from the same NUMA
nodes (kubernetes.io/docs/tasks/administer-cluster/topology-manager). CPUs take part in it only under the CPU manager's `static` policy,
whose state file lists those that are left to share, `defaultCpuSet` (kubernetes pkg/kubelet/cm/cpumanager/state/checkpoint.go).
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from gpudoctor.facts.config_text import parse_json
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.kubelet import KubeletSettings, Setting
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import Absent, CommandOutput, Log, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

REFUSING = ("restricted", "single-numa-node")
NODES = "/sys/devices/system/node"
_NODE = pattern(r"node(\d{1,4})")
_NUMA = pattern(r"-?\d{1,4}")
_REFUSED = pattern(r"(?m)^.*(?:TopologyAffinityError|cannot be allocated with Topology locality).*$")
"""kubernetes pkg/kubelet/cm/topologymanager/topology_manager.go, topologyAffinityError."""
JOURNALCTL = ("journalctl", "-b", "--no-pager", "-n", "3", "-o", "short-iso", "--grep", "TopologyAffinityError")
MOST_REFUSED = 2
MOST_CPUS = 8192
"""NR_CPUS of the largest kernels (arch/x86/Kconfig, MAXSMP)."""


class CpuState(Struct, frozen=True):
    """cpu_manager_state: its policy, the CPUs that are left to share, and how many containers have CPUs of their own."""

    policy: str
    shared: frozenset[int]
    exclusive: int
    evidence: Evidence


class ResourceManagers(Fact, frozen=True):
    """`policy` is the topology manager's, None where no kubelet runs; the rest is looked at only where that policy refuses pods.

    `cpus` are the CPUs of each NUMA node, `gpus` the NUMA node of each GPU, -1 for none; `reserved` CPUs are never given to pods alone.
    `refused` are the last pods that the kubelet's journal says were refused for it.
    """

    policy: Reading[Setting | None]
    scope: str = ""
    cpu_policy: Reading[Setting | None] = None
    memory_policy: str = ""
    state: Reading[CpuState | None] = None
    cpus: Reading[Mapping[int, frozenset[int]]] = MappingProxyType({})
    gpus: Reading[Mapping[str, int]] = MappingProxyType({})
    reserved: frozenset[int] = frozenset()
    refused: tuple[Evidence, ...] = ()

    @property
    def refuses(self) -> bool:
        """Whether the topology manager refuses pods at all."""
        return isinstance(self.policy, Setting) and self.policy.value in REFUSING

    def free(self, node: int) -> frozenset[int]:
        """The CPUs of a NUMA node that a container could still get for itself."""
        if not isinstance(self.state, CpuState) or isinstance(self.cpus, Unread):
            return frozenset()
        return (self.state.shared & self.cpus.get(node, frozenset())) - self.reserved

    @classmethod
    def gather(cls, desk: Desk) -> "ResourceManagers | Unread":
        """The policy first: under most of them there is nothing to look at."""
        settings = desk.get(KubeletSettings)
        if isinstance(settings, Unread):
            return settings
        if settings.kubelet is None:
            return cls(policy=None, read_from=settings.read_from)
        policy = settings.setting("topologyManagerPolicy")
        if isinstance(policy, Unread) or policy.value not in REFUSING:
            return cls(policy=policy, read_from=settings.read_from)
        scope, memory = settings.setting("topologyManagerScope"), settings.setting("memoryManagerPolicy")
        cpu_policy = settings.setting("cpuManagerPolicy")
        static = isinstance(cpu_policy, Setting) and cpu_policy.value == "static"
        reserved = settings.setting("reservedSystemCPUs")
        return cls(
            policy=policy,
            scope=scope.value if isinstance(scope, Setting) else "",
            cpu_policy=cpu_policy,
            memory_policy=memory.value if isinstance(memory, Setting) else "",
            state=_state(desk.raw, f"{settings.root}/cpu_manager_state") if static else None,
            cpus=_cpus(desk.raw),
            gpus=_gpus(desk),
            reserved=(cpu_list(reserved.value) if isinstance(reserved, Setting) else None) or frozenset(),
            refused=tuple(_refused(desk.raw, settings.unit)),
            read_from=settings.read_from,
        )


def _refused(raw: Raw, unit: str) -> Iterator[Evidence]:
    """The journal is asked for these lines alone: what is kept of it for other questions leaves them out."""
    log = raw.log(f"journal/{unit}.log")
    lines = _REFUSED.findall(log.text) if isinstance(log, Log) else []
    where = log.where
    if not lines:
        said = raw.command((*JOURNALCTL, "-u", unit))
        lines = _REFUSED.findall(said.stdout) if isinstance(said, CommandOutput) else []
        where = f"journalctl -b -u {unit}"
    yield from (Evidence(where, line.strip()[:300]) for line in lines[-MOST_REFUSED:])


def cpu_list(text: str) -> frozenset[int] | None:
    """CPUs as `0-3,8` (cpuset(7), List format); None for anything else."""
    cpus: set[int] = set()
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.partition("-")
        low, high = decimal(first), decimal(last) if dash else decimal(first)
        if low is None or high is None or high >= MOST_CPUS:
            return None
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def cpu_words(cpus: frozenset[int]) -> str:
    """CPUs as `0-3,8`."""
    parts: list[str] = []
    for cpu in sorted(cpus):
        if cpu - 1 not in cpus:
            parts.append(str(cpu))
        elif cpu + 1 not in cpus:
            parts[-1] += f"-{cpu}"
    return ",".join(parts)


def _state(raw: Raw, path: str) -> CpuState | Unread:
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return Unread(Why.NOT_ANSWERED, path, "does not exist") if isinstance(file, Absent) else file
    document = parse_json(file)
    if not isinstance(document, dict):
        return document if isinstance(document, Unread) else Unread(Why.UNREADABLE, path, document.said)
    shared = cpu_list(str(document.get("defaultCpuSet", "")))
    if shared is None:
        return Unread(Why.UNREADABLE, path, "its defaultCpuSet is no list of CPUs")
    entries = document.get("entries")
    # By pod and container since 1.18, by container before.
    each = [len(pod) if isinstance(pod, dict) else 1 for pod in entries.values()] if isinstance(entries, dict) else []
    policy = str(document.get("policyName", ""))
    shows = f"policyName {policy}, defaultCpuSet {cpu_words(shared) or 'empty'}"
    return CpuState(policy, shared, sum(each), Evidence(file.where, shows))


def _cpus(raw: Raw) -> Mapping[int, frozenset[int]] | Unread:
    listing = raw.listing(NODES, begin="node")
    if isinstance(listing, Unread):
        return listing
    if isinstance(listing, Absent):
        # A kernel without NUMA, where all is one node (Documentation/ABI/stable/sysfs-devices-node).
        return {}
    found: dict[int, frozenset[int]] = {}
    for name in listing.names:
        if (node := _NODE.fullmatch(name)) is None:
            continue
        file = raw.read(f"{NODES}/{name}/cpulist")
        cpus = cpu_list(file.text) if isinstance(file, TextFile) else None
        if isinstance(file, Unread):
            return file
        if cpus is None:
            return Unread(Why.UNREADABLE, f"{NODES}/{name}/cpulist", "is no list of CPUs")
        found[int(node[1])] = cpus
    return found


def _gpus(desk: Desk) -> Mapping[str, int] | Unread:
    gpus = desk.get(PciGpus)
    if isinstance(gpus, Unread):
        return gpus
    found: dict[str, int] = {}
    for gpu in gpus:
        path = f"/sys/bus/pci/devices/{gpu.address}/numa_node"
        file = desk.raw.read(path)
        if isinstance(file, Unread):
            return file
        told = _NUMA.match(file.text) if isinstance(file, TextFile) else None
        found[gpu.address] = int(told[0]) if told is not None else -1
    return gpus.unlisted or found
