"""PCIe: are the ways between GPUs and CPU, and between GPUs, as fast as the hardware allows?"""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.pci_link import GpuLinks, PciLink, UplinkDoubts
from gpudoctor.facts.pci_peers import AccessControl, Isolation, PeerPaths, PeerPort
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    Action,
    Cited,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

# __pcie_print_link_status and pcie_failed_link_retrain in drivers/pci.
_LIMITED = pattern(r"available PCIe bandwidth, limited by|retraining .*link|2\.5GT/s downstream link speed restriction")

NCCL_ON_ACS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/gpu_troubleshooting.html"
CUDA_ON_IOMMU = (
    "https://docs.nvidia.com/cuda/cuda-programming-guide/03-advanced/multi-gpu-systems.html"
    "#host-iommu-hardware-pci-access-control-services-and-vms"
)


@check(
    "pcie.link-speed",
    link=Link.PCIE,
    over=PciGpus,
    advisory=True,
    title="Every GPU's PCIe link is as fast as both ends allow",
)
def link_speed(gpus: PciGpus, links: GpuLinks, doubts: UplinkDoubts, log: Reading[KernelLog]) -> Verdicts:
    """A link that came up at a lower speed than it could halves the bandwidth for each generation it lacks.

    Compares `current_link_speed` with the `max_link_speed` of both ends, so that a fast GPU in an old slot is not accused. Only
    links above a switch can be faulted: no driver lowers them while they idle. A GPU's own link proves something only when it is
    fast; its driver lowers it to save power, and a slow one looks the same. The uplinks of boards with two GPUs are raised by the
    driver (Plx_Pex8747_ChangeUpstreamBusSpeed in open-gpu-kernel-modules), so without it they are not judged. Ports in a virtual
    machine and tunnels over USB4 or Thunderbolt tell speeds that are not theirs. The firmware, too, can hold a slot at a lower speed.
    """
    for gpu in gpus:
        path = links.by_address[gpu.address]
        if isinstance(path, Unread):
            yield path.about(gpu)
        elif not path:
            yield NotApplicable(gpu, "no port above it is visible")
        elif slow := [link for link in path[1:] if link.slow]:
            yield _judge_slow(gpu, slow, doubts, log)
        else:
            yield _judge_speeds(gpu, path)


def _judge_slow(gpu: PciGpu, slow: list[PciLink], doubts: UplinkDoubts, log: Reading[KernelLog]) -> Verdict:
    doubt = doubts.by_address.get(gpu.address)
    if isinstance(doubt, Unread):
        return doubt.about(gpu)
    if doubt is not None:
        return NotApplicable(gpu, doubt.reason, doubt.cite("reason"))
    if isinstance(gpu.driver, Unread):
        return gpu.driver.about(gpu)
    if gpu.driver != "nvidia":
        reason = f"held by {gpu.driver or 'no driver'}: the nvidia driver has not set the links up"
        return NotApplicable(gpu, reason, gpu.cite("driver"))
    narrowest = min(slow, key=lambda link: link.throughput)
    below, above = narrowest.below, narrowest.above
    speeds = f"{below.current_speed:g} of {narrowest.allowed_speed:g} GT/s"
    others = tuple(seen for link in slow if link is not narrowest for seen in link.below.cite("current_speed"))
    return Warn(
        gpu,
        f"the link {above.address} to {below.address} runs at {speeds}",
        _compared(narrowest) + others + _lines_about(gpu, narrowest, log),
        _retrain(narrowest),
        cause=f"slow-{below.address}",
    )


def _judge_speeds(gpu: PciGpu, path: tuple[PciLink, ...]) -> Verdict:
    """No link above the GPU's own is known to be slow."""
    own = path[0]
    mute = [link for link in path if link.slow is None]
    if len(mute) == len(path):
        return NotApplicable(gpu, "the ports above it do not tell their speed")
    if mute:
        seen = tuple(seen for link in mute for seen in _compared(link))
        return Unknown(
            gpu, Why.UNREADABLE, f"{len(mute)} of {len(path)} links on its way do not tell their speed", seen
        )
    if made_up := [link for link in path if link.impossible]:
        reason = f"{made_up[0].above.address} tells a speed that cannot be its own, as ports of a virtual machine do"
        return NotApplicable(gpu, reason, _compared(made_up[0]))
    if own.slow:
        speeds = f"{own.below.current_speed:g} of {own.allowed_speed:g} GT/s"
        reason = f"its own link runs at {speeds}, which idle GPUs do to save power"
        return NotApplicable(gpu, reason, _compared(own))
    return Pass(gpu, f"{own.below.current_speed:g} GT/s", tuple(seen for link in path for seen in _compared(link)))


def _compared(link: PciLink) -> Cited:
    return link.below.cite("current_speed", "max_speed") + link.above.cite("max_speed")


def _lines_about(gpu: PciGpu, link: PciLink, log: Reading[KernelLog]) -> Cited:
    """The last words of the kernel about either end, of this GPU where there are any."""
    if isinstance(log, Unread):
        return ()
    lines = [line for end in (link.above, link.below) for line in log.lines(_LIMITED, end.address)]
    return tuple(([line for line in lines if gpu.address in line.shows] or lines)[-1:])


def _retrain(link: PciLink) -> tuple[Remedy, ...]:
    confirm = "gpudoctor run --check pcie.link-speed"
    ends = (link.above.address, link.below.address)
    return (
        Remedy(
            Action.NONE,
            "Compare what both ends can do (LnkCap), are told to do (LnkCtl2) and do (LnkSta), and look for errors of either.",
            run=(
                *(f"lspci -vv -s {end} | grep -E 'LnkCap:|LnkCtl2:|LnkSta:'" for end in ends),
                f"journalctl -k -b --grep '{'|'.join(ends)}'",
            ),
            confirm="LnkSta names the speed of LnkCap",
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "If LnkCtl2's target speed is the low one, the firmware asks for it: set the speed of this slot to automatic in its setup.",
            interrupts="the whole node, at the reboot it takes",
            confirm=confirm,
        ),
        Remedy(
            Action.INSPECT_HARDWARE,
            "Else drain the node at the next chance, power it off and on, and reseat the board, riser or cable of this link.",
            interrupts="the whole node",
            confirm=confirm,
        ),
    )


@check(
    "pcie.peer-traffic",
    link=Link.PCIE,
    over=PciGpus,
    explained_by=("pcie.gpu-responds", "pcie.power-state"),
    advisory=True,
    title="GPUs below one switch may talk without going up to the CPU",
)
def peer_traffic(gpus: PciGpus, paths: PeerPaths) -> Verdicts:
    """Access Control Services (ACS) can make a PCIe switch send up to the CPU what one GPU says to the next, which is slow or hangs.

    NCCL's guide says to turn ACS off on bare metal and to leave it on for virtual machines (troubleshooting, PCI Access Control
    Services). The kernel turns it on wherever an IOMMU is in use (pci_request_acs in drivers/pci/pci.c). Looks at request and
    completion redirection in the control register of those switch ports where the ways of two GPUs part; elsewhere it changes
    nothing. GPUs joined by NVLink talk there, but what they say to network cards below the switch goes the same way. A node that
    gives devices to virtual machines needs ACS, and where translated requests may pass directly (DirectTrans) it does not bind
    GPUs that use ATS.
    """
    for gpu in gpus:
        ports = paths.ports[gpu.address]
        if isinstance(ports, Unread):
            yield ports.about(gpu)
        elif not ports:
            yield NotApplicable(gpu, "shares no switch with another GPU")
        elif isinstance(paths.isolation, Isolation):
            yield NotApplicable(gpu, paths.isolation.reason, paths.isolation.evidence)
        else:
            yield _judge_ports(gpu, ports, paths)


def _judge_ports(gpu: PciGpu, ports: tuple[PeerPort, ...], paths: PeerPaths) -> Verdict:
    controls = [(port, paths.controls[port.address]) for port in ports]
    redirecting = [
        (port, control) for port, control in controls if isinstance(control, AccessControl) and control.redirects
    ]
    evidence = paths.cite(*(port.address for port, _ in redirecting or controls))
    binding = [port for port, control in redirecting if not control.lets_translated_pass]
    unread = next((control for _, control in controls if isinstance(control, Unread)), None)
    if binding and isinstance(paths.isolation, Unread):
        return paths.isolation.about(gpu)
    if binding:
        port = binding[0]
        return Warn(
            gpu,
            f"ACS at {port.address} sends its traffic to {_listed(port.peers)} below the same switch up to the CPU",
            evidence + paths.translation.get(gpu.address, ()),
            _turn_off(paths),
            cause="acs-redirection",
            references=(NCCL_ON_ACS, CUDA_ON_IOMMU),
        )
    if redirecting:
        return NotApplicable(gpu, "redirection is on, but translated requests pass directly (DirectTrans)", evidence)
    if unread is not None:
        return unread.about(gpu)
    peers = sum(len(port.peers) for port in ports)
    return Pass(
        gpu,
        f"nothing redirects what it says to {peers} {'other' if peers == 1 else 'others'} below the switch",
        evidence,
    )


def _listed(addresses: tuple[str, ...]) -> str:
    return addresses[0] if len(addresses) == 1 else f"{len(addresses)} GPUs"


def _turn_off(paths: PeerPaths) -> tuple[Remedy, ...]:
    """From what the next boot undoes to what it takes a boot to do."""
    ports = [
        address
        for address, control in paths.controls.items()
        if isinstance(control, AccessControl) and control.redirects and not control.lets_translated_pass
    ]
    confirm = "gpudoctor run --check pcie.peer-traffic"
    reboot = "the whole node, at the reboot it takes"
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "If the node gives no device to a virtual machine, clear both redirect bits at these ports. The next boot sets them again.",
            run=tuple(f"setpci -s {port} ECAP_ACS+6.w=0000:000c" for port in ports),
            interrupts="nothing; devices below the switch are no longer kept apart from each other",
            confirm=confirm,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "To keep it so, add this to the kernel's command line: it then does it at boot, before it makes IOMMU groups. Bus numbers "
            "change when boards are added or removed, and a boot loader may want the semicolons quoted.",
            run=(f"echo 'pci=disable_acs_redir={';'.join(ports)}'", "grep -o 'pci=[^ ]*' /proc/cmdline"),
            interrupts=reboot,
            confirm=confirm,
            then=True,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            _FIRMWARE_AND_IOMMU if any(paths.translation.values()) else _FIRMWARE,
            run=("grep -oE '[a-z_.]*iommu[^ ]*' /proc/cmdline",),
            interrupts=reboot,
            confirm=confirm,
        ),
    )


_FIRMWARE = "In the firmware setup turn ACS off, or IO virtualisation (VT-d, AMD-Vi) if nothing on the node needs it."
_FIRMWARE_AND_IOMMU = (
    "The IOMMU translates as well, which CUDA does not support between GPUs on bare metal: turn IO virtualisation (VT-d, AMD-Vi) off "
    "in the firmware setup, or have the IOMMU pass addresses through (iommu=pt)."
)
