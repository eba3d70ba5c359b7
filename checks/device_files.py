"""Device files beside those of GPUs: do they carry the numbers that their driver has now?"""

from gpudoctor.chain import Link
from gpudoctor.facts.capabilities import Capabilities, Capability
from gpudoctor.facts.device_files import (
    MODESET,
    SWITCH_CONTROL_MINOR,
    UVM_TOOLS,
    DevDirectory,
    ImexChannels,
    NvSwitchNodes,
    OtherNodes,
)
from gpudoctor.facts.device_nodes import CommonNodes, ExpectedNode
from gpudoctor.facts.raw import Absent, Entry
from gpudoctor.knowledge.node_remedies import entering, root_of
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Action,
    Breaks,
    Cited,
    Fail,
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

A_CONTAINERS_DEV = "this /dev holds only the nodes that a container was given"


@check(
    "device-nodes.other-nodes",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    advisory=True,
    title="The other NVIDIA nodes carry their driver's numbers",
)
def other_nodes(other: OtherNodes, common: CommonNodes) -> Verdicts:
    """Graphics need /dev/nvidia-modeset, profilers and debuggers /dev/nvidia-uvm-tools, Fabric Manager /dev/nvidia-nvlink.

    Except for modeset, 195:254, their majors are given anew each time the driver is loaded, so that a node that outlived a reload, or
    was copied into a container or image, leads to another driver or to none. A missing one is no fault: whoever needs it has it made.
    Tools whose node is as stale as /dev/nvidia-uvm itself are told of there. Easily confused with a missing permission: then the
    numbers are right.
    """
    if not other.nodes:
        yield NotApplicable(NODE, "none of their drivers is loaded", other.cite("majors"))
    for node in other.nodes:
        yield _other(node, common)


def _other(node: ExpectedNode, common: CommonNodes) -> Verdict:
    evidence = (*node.cite("numbers"), node.evidence)
    if node.unseen is not None:
        return node.unseen.about(node)
    if isinstance(node.found, Absent):
        return NotApplicable(node, "not there: whoever needs it has it made", evidence)
    if node.fault is None:
        return Pass(node, f"{node.path} is {node.numbers}", evidence)
    if node.path == UVM_TOOLS and isinstance(common.uvm, Unread):
        return common.uvm.about(node)
    if node.path == UVM_TOOLS and _made_with(node.found, common.uvm):
        return NotApplicable(node, "as wrong as /dev/nvidia-uvm: judged with it", evidence)
    make = {MODESET: "nvidia-modprobe -m", UVM_TOOLS: "nvidia-modprobe -u -c 0"}.get(node.path, "nvidia-modprobe -l")
    return Warn(
        node,
        node.fault,
        evidence,
        (_anew([node], make, "gpudoctor run --check device-nodes.other-nodes"),),
        cause="wrong-node",
    )


def _made_with(tools: Entry | Absent | Unread, uvm: Entry | Absent | Unread) -> bool:
    """One make of nodes left both behind, or this one alone: nvidia-modprobe makes them together."""
    same_major = isinstance(tools, Entry) and isinstance(uvm, Entry) and tools.major in (uvm.major, None)
    return same_major or isinstance(uvm, Absent)


def _anew(wrong: list[ExpectedNode], make: str, confirm: str) -> Remedy:
    old = f"rm -d {' '.join(node.found_at for node in wrong)}"
    make = f"{entering(root_of(wrong[0].found_at) if wrong else '')}{make}"
    return Remedy(
        Action.CHANGE_CONFIG,
        "Have the driver's own helper make the nodes; containers that got a wrong one must be started anew.",
        run=(old, make) if wrong else (make,),
        confirm=confirm,
    )


@check(
    "device-nodes.nvswitch-nodes",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    explained_by=("device-nodes.gpu-node", "device-nodes.control-node"),
    advisory=True,
    title="Every NVSwitch has its device node",
)
def nvswitch_nodes(switches: NvSwitchNodes, dev: DevDirectory) -> Verdicts:
    """Fabric Manager programs the NVSwitches through their nodes; until it has, every CUDA program fails with 802, system not ready.

    /dev/nvidia-nvswitchctl and one /dev/nvidia-nvswitchN for each switch that nvidia-nvswitch holds, with the major of /proc/devices;
    Fabric Manager or `nvidia-modprobe -s` makes them. Easily confused with a Fabric Manager that does not run although its nodes are
    there. Switches that a virtual machine was given are not this node's, and from NVLink 5 on they are no functions on PCI any more.
    """
    if switches.held == 0:
        if switches.unsure is not None:
            yield switches.unsure.about(NODE)
        else:
            yield NotApplicable(NODE, "no NVSwitch is held by nvidia-nvswitch", tuple(switches.read_from.values()))
    elif not switches.nodes:
        summary = "nvidia-nvswitch holds switches, but /proc/devices does not list it"
        yield Unknown(NODE, Why.UNREADABLE, summary, tuple(switches.read_from.values()))
    else:
        yield _switches(switches, dev)


def _switches(switches: NvSwitchNodes, dev: DevDirectory) -> Verdict:
    control, *others = switches.nodes
    wrong = [node for node in switches.nodes if node.fault is not None]
    there = [node for node in others if node.right]
    unseen = [node.unseen for node in switches.nodes if node.unseen is not None]
    bound = tuple(switches.read_from.values())
    if wrong:
        summary = f"{wrong[0].fault}{_and_more(wrong)}"
        evidence = (*(node.evidence for node in wrong), *wrong[0].cite("numbers"), *bound)
        return Fail(
            NODE, summary, evidence, _make_switches(switches, wrong), Breaks.NOTHING, "wrong-node", own_fault=True
        )
    may_lack = len(there) + len([node for node in others if node.unseen]) < switches.held
    if isinstance(control.found, Absent) or may_lack:
        return _switches_missing(switches, there, dev)
    if switches.unsure or unseen:
        return (switches.unsure or unseen[0]).about(NODE)
    evidence = (control.evidence, *(node.evidence for node in there), *control.cite("numbers"), *bound)
    return Pass(NODE, f"{switches.held} NVSwitches and their control node have theirs", evidence)


def _switches_missing(switches: NvSwitchNodes, there: list[ExpectedNode], dev: DevDirectory) -> Verdict:
    missing = [node for node in switches.nodes if isinstance(node.found, Absent)]
    bound = tuple(switches.read_from.values())
    if isinstance(dev.own, Unread):
        return dev.own.about(NODE)
    if not dev.own:
        return NotApplicable(NODE, A_CONTAINERS_DEV)
    names = " and ".join(
        words
        for words in (
            f"{switches.nodes[0].path} is missing" if isinstance(switches.nodes[0].found, Absent) else "",
            f"{len(there)} of {switches.held} NVSwitches have a node" if len(there) < switches.held else "",
        )
        if words
    )
    evidence = (*(node.evidence for node in missing), *bound)
    return Fail(NODE, names, evidence, _make_switches(switches, []), Breaks.NOTHING, cause="missing")


def _make_switches(switches: NvSwitchNodes, wrong: list[ExpectedNode]) -> tuple[Remedy, ...]:
    minors = " ".join(f"-c {minor}" for minor in (SWITCH_CONTROL_MINOR, *range(switches.held)))
    return (
        _anew(wrong, f"nvidia-modprobe -s {minors}", confirm="gpudoctor run --check device-nodes.nvswitch-nodes"),
        Remedy(
            Action.RESTART_SERVICE,
            "Then have Fabric Manager use them, if it does not run or gave up.",
            run=("systemctl status nvidia-fabricmanager", "systemctl restart nvidia-fabricmanager"),
            interrupts="by default every CUDA program on the GPUs of these switches (ABORT_CUDA_JOBS_ON_FM_EXIT in fabricmanager.cfg)",
            confirm="systemctl is-active nvidia-fabricmanager",
            then=True,
        ),
    )


def _and_more(nodes: list[ExpectedNode]) -> str:
    return f" (and {len(nodes) - 1} more)" if len(nodes) > 1 else ""


@check(
    "device-nodes.capability-nodes",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    explained_by=("device-nodes.gpu-node", "device-nodes.control-node"),
    advisory=True,
    title="Every MIG capability has its device node",
)
def capability_nodes(capabilities: Capabilities, dev: DevDirectory) -> Verdicts:
    """A container gets a MIG device by the nodes of its GPU instance and its compute instance in /dev/nvidia-caps.

    The driver lists each capability with the minor and mode of its node, but makes none: nvidia-smi and nvidia-modprobe do. Where one
    is missing when a container starts, it is not created, or sees the whole GPU and no MIG device (NVIDIA/mig-parted#82,
    kubernetes-sigs/dra-driver-nvidia-gpu#787); a tool can also take the major of nvidia-caps-imex-channels for it (#304 there).
    The nodes of mig/config and mig/monitor are needed by managers only: they may be missing, but not be wrong. Modes are left to the
    administrator where the capability says DeviceFileModify: 0. Easily confused with MIG mode itself: without instances there is nothing
    to look for.
    """
    found = capabilities.capabilities
    if not capabilities.registered:
        summary = "the driver lists capabilities, but /proc/devices has no nvidia-caps"
        yield Unknown(NODE, Why.UNREADABLE, summary, capabilities.cite("all"))
    alarms = [*_wrong_capabilities(found), *_missing_capabilities(found, dev), *_other_modes(found)]
    yield from alarms
    if alarms or not capabilities.registered:
        return
    unseen = next((capability.node.unseen for capability in found if capability.node.unseen), capabilities.unread)
    there = [capability for capability in found if capability.node.right]
    if unseen is not None:
        yield unseen.about(NODE)
    elif not there:
        yield NotApplicable(NODE, "no MIG instance, and no capability node", capabilities.cite("all"))
    else:
        instances = sum(capability.is_instance for capability in there)
        evidence = tuple(seen for one in there for seen in (one.node.evidence, *one.cite("minor")))
        yield Pass(NODE, f"{len(there)} nodes as the driver says, {instances} of them of MIG instances", evidence)


def _wrong_capabilities(found: tuple[Capability, ...]) -> Verdicts:
    wrong = [capability for capability in found if capability.node.fault is not None]
    if wrong:
        nodes = [capability.node for capability in wrong]
        evidence = _listed(wrong) + nodes[0].cite("numbers")
        remedies = (_make_capabilities(wrong), _SPECIFICATION)
        yield Warn(NODE, f"{nodes[0].fault}{_and_more(nodes)}", evidence, remedies, cause="wrong-node", own_fault=True)


def _missing_capabilities(found: tuple[Capability, ...], dev: DevDirectory) -> Verdicts:
    missing = [one for one in found if one.is_instance and isinstance(one.node.found, Absent)]
    if not missing:
        return
    if isinstance(dev.own, Unread):
        yield dev.own.about(NODE)
    elif not dev.own:
        yield NotApplicable(NODE, A_CONTAINERS_DEV)
    else:
        more = _and_more([capability.node for capability in missing])
        summary = f"{missing[0].node.path} is missing{more}: a container cannot be given that MIG device"
        remedies = (_make_capabilities(missing), _SPECIFICATION)
        yield Warn(NODE, summary, _listed(missing), remedies, cause="missing")


def _other_modes(found: tuple[Capability, ...]) -> Verdicts:
    """Only of instances: who may configure MIG is a matter of policy."""
    other = [capability for capability in found if capability.is_instance and _has_other_mode(capability)]
    if other:
        first = other[0]
        assert isinstance(first.node.found, Entry) and first.node.found.mode is not None and first.mode is not None
        summary = f"{first.node.found.path} has mode {first.node.found.mode:04o}, the driver says {first.mode:04o}"
        more = _and_more([capability.node for capability in other])
        keep = Remedy(
            Action.CHANGE_CONFIG,
            "Or, where the modes are meant so, tell the driver to leave them alone: its helper puts them back.",
            run=tuple(f"echo 'DeviceFileModify: 0' > {one.path}" for one in other[:8]),
            confirm=f"grep DeviceFileModify {other[0].path}",
        )
        yield Warn(NODE, f"{summary}{more}", _listed(other), (_make_capabilities(other), keep), cause="other-mode")


def _has_other_mode(capability: Capability) -> bool:
    entry = capability.node.found
    if not capability.user_space_may_make or not capability.node.right or not isinstance(entry, Entry):
        return False
    return entry.mode is not None and capability.mode is not None and (entry.mode ^ capability.mode) & 0o777 != 0


def _listed(capabilities: list[Capability]) -> Cited:
    return tuple(seen for one in capabilities[:8] for seen in (one.node.evidence, *one.cite("minor")))


def _make_capabilities(capabilities: list[Capability]) -> Remedy:
    """nvidia-modprobe leaves a node alone whose capability says that user space must not make it."""
    helper = tuple(
        f"{entering(root_of(one.node.found_at))}nvidia-modprobe -f {one.path}"
        for one in capabilities
        if one.user_space_may_make
    )
    by_hand = tuple(
        f"mknod -m {0o444 if one.mode is None else one.mode:04o} {one.node.found_at} c {one.node.major} {one.node.minor}"
        for one in capabilities
        if not one.user_space_may_make
    )
    return Remedy(
        Action.CHANGE_CONFIG,
        "Make the nodes as the driver says; running nvidia-smi as root makes all that are missing.",
        run=(*helper[:8], *by_hand[:8]),
        confirm="gpudoctor run --check device-nodes.capability-nodes",
    )


_SPECIFICATION = Remedy(
    Action.CHANGE_CONFIG,
    "Where containers get their devices by CDI, have the specification written anew: it names the nodes that were there.",
    run=("nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml    # or whatever writes it here",),
    confirm="grep -c nvidia-cap /var/run/cdi/nvidia.yaml",
    then=True,
)


@check(
    "device-nodes.imex-channels",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    advisory=True,
    title="IMEX channels carry their driver's numbers",
)
def imex_channels(imex: ImexChannels) -> Verdicts:
    """Programs that share memory between the nodes of an NVLink domain (GB200 and later) need a channel; with a stale one CUDA says 800.

    The administrator, a container toolkit or the DRA driver makes /dev/nvidia-caps-imex-channels/channelN by the major of
    /proc/devices, which a reload of the driver changes while the file stays. Where nobody made one there is nothing to judge: a single
    tray works without, and the driver makes none unless told to. Easily confused with nvidia-caps, another driver, whose name begins
    alike.
    """
    wrong = [channel for channel in imex.channels if channel.fault is not None]
    unseen = next((channel.unseen for channel in imex.channels if channel.unseen), imex.incomplete)
    if not imex.channels:
        yield NotApplicable(NODE, "nobody made a channel here", imex.cite("channels"))
    elif wrong:
        evidence = (*wrong[0].cite("numbers"), *(channel.evidence for channel in wrong[:8]))
        yield Warn(NODE, f"{wrong[0].fault}{_and_more(wrong)}", evidence, (_channels_anew(wrong),), cause="wrong-node")
    elif unseen is not None:
        yield unseen.about(NODE)
    else:
        evidence = (*imex.channels[0].cite("numbers"), *(channel.evidence for channel in imex.channels))
        yield Pass(NODE, f"{len(imex.channels)} channels carry major {imex.channels[0].major}", evidence)


def _channels_anew(channels: list[ExpectedNode]) -> Remedy:
    """By hand, as the IMEX guide has it: nvidia-modprobe has no option for channels."""
    steps = tuple(
        step
        for channel in channels[:4]
        for step in (
            f"rm -d {channel.found_at}",
            f"mknod -m 0666 {channel.found_at} c {channel.major} {channel.minor}",
        )
    )
    return Remedy(
        Action.CHANGE_CONFIG,
        "Make the channels anew, by whatever made them (the DRA driver does when it is restarted) or by hand; restart containers that "
        "have the old ones.",
        run=steps,
        interrupts="nothing that works: programs on a stale channel have failed",
        confirm="gpudoctor run --check device-nodes.imex-channels",
    )
