"""What lets network adapters and storage reach GPU memory directly: nvidia-peermem, dma-buf, nvidia-fs.

NVIDIA driver README, "GPUDirect RDMA Peer Memory Client" (nvidia-peermem; it needs ib_register_peer_memory_client, which NVIDIA's own
ib_core of MLNX_OFED or DOCA has and the kernel's has not); GPU Operator documentation, "GPUDirect RDMA" (dma-buf: kernel 5.12, the open
kernel modules, Turing or newer); GPUDirect Storage Installation Guide (nvidia-fs, /etc/cufile.json). Read 2026-11-30.
"""

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.device_nodes import Majors
from gpudoctor.facts.driver import MODULES, NvidiaModule
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.pci import PciGpus
from gpudoctor.facts.raw import Absent, Entry, Listing, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

ADAPTERS = "/sys/class/infiniband"
VERBS = "infiniband_verbs"
MOST_ADAPTERS = 16
AT_BOOT = "/etc/modules-load.d/nvidia-peermem.conf"
PEERMEM = ("nvidia_peermem", "nv_peer_mem")
"""The driver's own, and the one it took the place of with R470 (Mellanox/nv_peer_memory)."""

DMA_BUF_KERNEL = (5, 12)
CUFILE, GDS_PACKAGE = "/etc/cufile.json", "/usr/local/cuda/gds"

_RELEASE = pattern(r"(\d+)\.(\d+)")
_MISFIT = pattern(
    r"(?:nvidia_peermem|nv_peer_mem): (?:disagrees about version of|Unknown) symbol ib_register_peer_memory_client"
)
_SYMBOL = "register_peer_memory_client"


class PeerMemory(Fact, frozen=True):
    """`adapters` are those with an active port, None where there is no adapter; of a node without one nothing else is known.

    `module` is the line of the loaded module, `dma_buf` why memory can be shared without it. `misfit` is the kernel's word that the module
    was built for another ib_core. `wanted` is what shows that GPU memory is to be reached: the module is asked for at boot, or the network
    is InfiniBand. Ethernet adapters with RDMA are in most machines, and those of clouds (EFA) need no nvidia-peermem.
    """

    adapters: Reading[tuple[Evidence, ...]] | None
    module: Evidence | None = None
    dma_buf: Cited = ()
    lacking: Cited = ()
    misfit: Evidence | None = None
    wanted: Evidence | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "PeerMemory | Unread":
        """One listing where there are GPUs; ports, modules and the log only where an adapter is."""
        gpus = desk.get(PciGpus)
        if isinstance(gpus, Unread):
            return gpus
        adapters = _adapters(desk) if gpus.gpus else None
        if not adapters or isinstance(adapters, Unread):
            return cls(adapters=adapters)
        modules = desk.raw.read(MODULES)
        if isinstance(modules, Unread):
            return modules
        module = _line(modules, PEERMEM)
        if module is not None:
            return cls(adapters=adapters, module=module)
        ways, lacking = _dma_buf(desk)
        misfit = _misfit(desk)
        wanted = misfit or _asked_for(desk.raw) or _infiniband(desk.raw, adapters)
        return cls(adapters=adapters, dma_buf=ways, lacking=lacking, misfit=misfit, wanted=wanted)


def _adapters(desk: Desk) -> Reading[tuple[Evidence, ...]] | None:
    """Ports whose `state` is `4: ACTIVE` (Documentation/ABI/stable/sysfs-class-infiniband); ib_uverbs registers the major of verbs."""
    raw, majors = desk.raw, desk.get(Majors)
    if isinstance(majors, Majors) and VERBS not in majors.by_name:
        return None
    listing = raw.listing(ADAPTERS)
    if isinstance(listing, Absent):
        return None
    if isinstance(listing, Unread):
        return listing
    found: list[Evidence] = []
    unread: Unread | None = None
    for name in listing.names[:MOST_ADAPTERS]:
        state = raw.read(f"{ADAPTERS}/{name}/ports/1/state")
        if isinstance(state, TextFile) and "ACTIVE" in state.text:
            found.append(Evidence(state.where, state.text.strip()))
        elif isinstance(state, Unread):
            unread = state
    return tuple(found) if found or unread is None else unread


def _asked_for(raw: Raw) -> Evidence | None:
    """The driver's own packages have none; whoever wants the module at boot writes one (modules-load.d(5))."""
    found = raw.entry(AT_BOOT)
    return Evidence(AT_BOOT, "exists") if isinstance(found, Entry) else None


def _infiniband(raw: Raw, adapters: tuple[Evidence, ...]) -> Evidence | None:
    """By the kind of link of an active port (sysfs-class-infiniband): InfiniBand, Ethernet, or Unspecified as EFA has."""
    for adapter in adapters:
        layer = raw.read(f"{adapter.where.removesuffix('/state')}/link_layer")
        if isinstance(layer, TextFile) and layer.text.strip() == "InfiniBand":
            return Evidence(layer.where, "InfiniBand")
    return None


def _line(modules: TextFile | Absent, names: tuple[str, ...]) -> Evidence | None:
    if isinstance(modules, Absent):
        return None
    lines = (line for line in modules.text.splitlines() if line.startswith(tuple(f"{name} " for name in names)))
    line = next(lines, None)
    return None if line is None else Evidence(MODULES, line)


def _dma_buf(desk: Desk) -> tuple[Cited, Cited]:
    """What makes it possible, and what is lacking; both empty where that is not known."""
    module, host = desk.get(NvidiaModule), desk.get(Host)
    kernel = host.kernel if isinstance(host, Host) else None
    release = _RELEASE.match(kernel or "")
    if isinstance(module, Unread) or module.is_open is None or release is None:
        return (), ()
    told = (Evidence("/proc/sys/kernel/osrelease", kernel or ""), *module.cite("is_open"))
    new = (int(release[1]), int(release[2])) >= DMA_BUF_KERNEL
    return (told, ()) if new and module.is_open else ((), told)


def _misfit(desk: Desk) -> Evidence | None:
    log = desk.get(KernelLog)
    lines = [] if isinstance(log, Unread) else log.lines(_MISFIT, _SYMBOL)
    return lines[-1] if lines else None


class DirectStorage(Fact, frozen=True):
    """`wanted` is what shows that GPUDirect Storage was set up here, None where nothing does; `module` is the loaded nvidia-fs."""

    wanted: Reading[Evidence] | None
    module: Evidence | None = None
    unloaded: Evidence | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "DirectStorage | Unread":
        """Two looks; the CUDA toolkit brings cuFile's library everywhere, its own folder only with the package gds-tools."""
        gpus = desk.get(PciGpus)
        if isinstance(gpus, Unread):
            return gpus
        wanted = _wanted(desk.raw) if gpus.gpus else None
        if not isinstance(wanted, Evidence):
            return cls(wanted=wanted)
        modules = desk.raw.read(MODULES)
        if not isinstance(modules, TextFile):
            return modules if isinstance(modules, Unread) else Unread(Why.UNREADABLE, MODULES, modules.detail)
        module = _line(modules, ("nvidia_fs",))
        return cls(wanted=wanted, module=module, unloaded=Evidence(MODULES, "no line for nvidia_fs"))


def _wanted(raw: Raw) -> Reading[Evidence] | None:
    """nvidia-fs built or installed for any kernel is what the package nvidia-gds brings; the toolkit alone brings /etc/cufile.json too."""
    source = raw.listing("/usr/src", begin="nvidia-fs-")
    if isinstance(source, Listing):
        found = next((name for name in source.names if name.startswith("nvidia-fs-")), None)
        if found is not None:
            return Evidence(f"/usr/src/{found}", "exists")
    boot = raw.entry("/etc/modules-load.d/nvidia-fs.conf")
    if isinstance(boot, Entry):
        return Evidence(boot.where, "exists")
    return source if isinstance(source, Unread) else None
