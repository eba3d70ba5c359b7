"""What to do about network adapters: ports that are down, slow or gather errors, narrow PCIe links, missing device nodes.

Steps from the manuals of rdma-core (rdma-link(8), ibstat(8), ibdiagnet's bit error rates) and iproute2, NVIDIA's documentation of mlxlink
(MFT User Manual) and of DOCA-Host (RDMA and InfiniBand), and udevadm(8). Read 2026-11-30.
"""

from gpudoctor.verdicts import Action, Remedy

_MAKE_NODES = (
    "for d in /sys/class/infiniband_verbs/uverbs*; do [ -c /dev/infiniband/${d##*/} ] || "
    "mknod -m 0666 /dev/infiniband/${d##*/} c $(tr : ' ' < $d/dev); done"
)


def _confirmed(check_id: str) -> str:
    return f"gpudoctor run --check {check_id}"


def _look(device: str, number: int) -> Remedy:
    return Remedy(
        Action.NONE,
        "See what both ends say of the link: its state, the module and the cable, and what the kernel said of them.",
        run=(
            f"rdma link show {device}/{number}",
            f"mlxlink -d {device} -m    # NVIDIA's adapters, with the tools MFT or mstflint (mstlink) installed",
            "journalctl -k -b --grep 'Port module event|Link (up|down)|link becomes ready' | tail -20",
        ),
        confirm="mlxlink names a reason (Recommendation, Status Opcode), or none",
    )


def _cable(check_id: str, say: str) -> Remedy:
    return Remedy(
        Action.INSPECT_HARDWARE,
        say,
        interrupts="traffic over this adapter; jobs that use it",
        confirm=_confirmed(check_id),
    )


def port_down(check_id: str, device: str, number: int, *, ethernet: bool = False) -> tuple[Remedy, ...]:
    """For a port without a link, whose peers have one; that of an `ethernet` interface is down too while nobody switched it on."""
    say = "Look at the port of the switch at the other end, then reseat the cable or module, clean the fibre, or change it."
    switch_on = Remedy(
        Action.CHANGE_CONFIG,
        "If its interface (netdev) has not UP among its flags, nobody switched it on: do that, and mend the network's setup.",
        run=(f"rdma link show {device}/{number}", "ip -br link", "ip link set dev NAME up"),
        confirm=_confirmed(check_id),
    )
    return (
        _look(device, number),
        *((switch_on,) if ethernet else ()),
        _cable(check_id, say),
        Remedy(
            Action.CONTACT_VENDOR,
            "If another cable and another port of the switch do not help, the adapter is to be changed.",
            interrupts="the whole node",
            confirm=_confirmed(check_id),
        ),
    )


def subnet_manager(check_id: str, device: str, number: int) -> tuple[Remedy, ...]:
    """For a port whose link is up and that nobody configured."""
    return (
        Remedy(
            Action.NONE,
            "The cable is well. See whether a subnet manager answers on this port; compare it with a port that is ACTIVE.",
            run=(f"sminfo -C {device} -P {number}", f"ibstat {device} {number}"),
            confirm="sminfo prints the subnet manager's LID and its state SMINFO_MASTER",
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "If none answers, start the one of that fabric: OpenSM or UFM on its server, or the one in a managed switch. If others of the "
            "node are ACTIVE, look whether this cable ends in a switch of another fabric.",
            run=("systemctl status opensm    # on the server that runs it",),
            interrupts="nothing on this node",
            confirm=_confirmed(check_id),
        ),
    )


def slow_port(check_id: str, device: str, number: int) -> tuple[Remedy, ...]:
    """For a port that trained to less than its peers."""
    return (
        _look(device, number),
        Remedy(
            Action.CHANGE_CONFIG,
            "Compare the settings of the switch's port (speed, split, lanes, auto-negotiation) with those of a peer.",
            interrupts="traffic over this adapter, while its link trains anew",
            confirm=_confirmed(check_id),
        ),
        _cable(
            check_id,
            "Else reseat or change the cable or module: a lane that does not train halves or quarters the rate.",
        ),
    )


def errors(check_id: str, device: str, number: int) -> tuple[Remedy, ...]:
    """For a link that gathers errors or goes down again and again."""
    return (
        Remedy(
            Action.NONE,
            "See whether the counters still rise, and what the module tells of light and temperature.",
            run=(
                f"rdma link show {device}/{number}",
                f"grep . /sys/class/infiniband/{device}/ports/{number}/counters/*",
                f"mlxlink -d {device} -c -m    # NVIDIA's adapters: bit error rates, and what the module says",
            ),
            confirm="the counters stand still under traffic",
        ),
        _cable(
            check_id,
            "Drain the node, clean or reseat the cable and module at both ends, then change the cable; then the port of the switch.",
        ),
        Remedy(
            Action.CONTACT_VENDOR,
            "If the errors stay with the adapter, have it changed.",
            interrupts="the whole node",
            confirm=_confirmed(check_id),
        ),
    )


def narrow_slot(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For an adapter whose PCIe link trained to less than both ends can."""
    return (
        Remedy(
            Action.NONE,
            "Compare what both ends can do (LnkCap) with what they do (LnkSta), and look for errors.",
            run=(
                f"lspci -vv -s {address} | grep -E 'LnkCap:|LnkSta:'",
                f"journalctl -k -b --grep '{address}' | tail -20",
            ),
            confirm="LnkSta names the width and speed of LnkCap",
        ),
        Remedy(
            Action.INSPECT_HARDWARE,
            "Drain the node at the next chance, power it off and on, and reseat the adapter, its riser or cable.",
            interrupts="the whole node",
            confirm=_confirmed(check_id),
        ),
    )


def make_nodes(check_id: str, missing: str, *, stale: bool = False) -> tuple[Remedy, ...]:
    """For device nodes that are gone although the kernel has the devices, or `stale`: another device's or no node at all."""
    removed = (f"rm /dev/infiniband/{missing}    # each one that is wrong",) if stale else ()
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Make the nodes by hand with the numbers that the kernel tells, then let udev set owner and mode. It does not make nodes.",
            run=(
                *removed,
                "mkdir -p /dev/infiniband",
                _MAKE_NODES,
                "udevadm trigger --action=change --subsystem-match=infiniband_verbs",
                f"ls -l /dev/infiniband/{missing}",
            ),
            interrupts="nothing; containers that run have a /dev of their own and must be started anew",
            confirm=_confirmed(check_id),
        ),
        Remedy(
            Action.LOAD_MODULE,
            "Else drain the node and load the module anew: the kernel makes each node when its device appears (devtmpfs).",
            run=(
                "modprobe -r ib_uverbs && modprobe ib_uverbs    # refused while something uses it; then reload the adapter's driver",
            ),
            interrupts="everything that uses RDMA on this node",
            confirm=_confirmed(check_id),
        ),
        Remedy(
            Action.REBOOT,
            "Or reboot, and find what removed them.",
            interrupts="the whole node",
            confirm=_confirmed(check_id),
        ),
    )


def load_verbs(check_id: str) -> tuple[Remedy, ...]:
    """For InfiniBand without the module that gives programs access."""
    return (
        Remedy(
            Action.LOAD_MODULE,
            "Load the module that lets programs use RDMA, and have it loaded at every boot (rdma-core does).",
            run=("modprobe ib_uverbs", "ls -l /dev/infiniband"),
            confirm=_confirmed(check_id),
        ),
        Remedy(
            Action.INSTALL_PACKAGE,
            "If it is not loaded at boot, install rdma-core.",
            run=("apt-get install rdma-core    # RHEL: dnf install rdma-core",),
            confirm=_confirmed(check_id),
        ),
    )
