"""What to do about an NVLink fabric: its services, its registration, its links, and what exports memory over it.

Steps from NVIDIA's Fabric Manager User Guide (Installation; Managing the Fabric Manager Service; Error Handling), the IMEX guide
(Getting Started; IMEX Channels), the GPUDirect RDMA and GPUDirect Storage documentation and NCCL's manual of environment variables.
Read 2026-11-30.
"""

from gpudoctor.knowledge.module_remedies import confirmed_by as confirmed
from gpudoctor.knowledge.reset_remedies import RESET_ALL
from gpudoctor.verdicts import Action, Remedy

STATE = "nvidia-smi -q | grep -A3 Fabric"
FM = "nvidia-fabricmanager"


def start_manager(check_id: str, driver: str, *, installed: bool, nvlsm: bool = False) -> tuple[Remedy, ...]:
    """For a fabric manager that does not run: installed or not."""
    install = Remedy(
        Action.INSTALL_PACKAGE,
        f"Install the fabric manager of exactly the driver's version{f', {driver}' if driver else ''}"
        f"{', and nvlsm' if nvlsm else ''}.",
        run=(
            f"apt-cache policy '{FM}*'    # RHEL: dnf --showduplicates list {FM}",
            f"apt-get install {FM}-BRANCH=VERSION{' nvlsm' if nvlsm else ''}",
        ),
        confirm="nv-fabricmanager --version",
    )
    start = Remedy(
        Action.RESTART_SERVICE,
        "Start it now and at every boot, and wait until the fabric's state is Completed.",
        run=(f"systemctl enable --now {FM}    # where it is masked after systemctl unmask {FM}", STATE),
        interrupts="nothing: no CUDA program can start before that",
        confirm=confirmed(check_id),
        then=not installed,
    )
    read = Remedy(
        Action.NONE,
        "If it ends again, its log says what it missed.",
        run=(f"journalctl -b -u {FM} --no-pager | tail -50", "tail -50 /var/log/fabricmanager.log"),
        confirm=confirmed(check_id),
        then=True,
    )
    return (start, read) if installed else (install, start, read)


def restart_manager(check_id: str) -> tuple[Remedy, ...]:
    """For one that ended after the GPUs had joined."""
    return (
        Remedy(
            Action.RESTART_SERVICE,
            "Drain the node, then start it again.",
            run=(f"systemctl start {FM}", STATE),
            interrupts="CUDA programs of this node, if any are left",
            confirm=confirmed(check_id),
        ),
        *register_anew(check_id, then=True),
    )


def register_anew(check_id: str, *, then: bool = False) -> tuple[Remedy, ...]:
    """All GPUs of a fabric are reset together, between the end and the start of the fabric manager."""
    return (
        Remedy(
            Action.RESET_GPU,
            "Stop all GPU programs and the fabric manager, reset all GPUs together, and start it again.",
            run=(*RESET_ALL, STATE),
            interrupts="all GPU programs of this node",
            confirm=confirmed(check_id),
            then=then,
        ),
        _reboot(check_id),
    )


def _reboot(check_id: str) -> Remedy:
    return Remedy(
        Action.REBOOT,
        "If that does not help, drain the node and reboot it.",
        run=("systemctl reboot",),
        interrupts="the whole node",
        confirm=confirmed(check_id),
        then=True,
    )


def ask_host(check_id: str) -> tuple[Remedy, ...]:
    """For a guest, whose host has the NVSwitches (Fabric Manager User Guide, Virtualization Models)."""
    return (
        Remedy(
            Action.NONE,
            "Ask whoever runs the host: its fabric manager gives a guest its partition before that starts. Then start this one anew.",
            run=(STATE,),
            interrupts="the whole virtual machine, when it is started anew",
            confirm=confirmed(check_id),
        ),
    )


def join_rack(check_id: str) -> tuple[Remedy, ...]:
    """For a GPU of a rack whose switch trays run the fabric's services."""
    return (
        Remedy(
            Action.NONE,
            "Look at the NVLink domain from its switch trays: the controller's services, the partition, and this tray's GPUs.",
            run=(
                "nv show cluster apps    # on the switch tray",
                "nv show sdn partition    # on the switch tray",
                STATE,
            ),
            confirm=confirmed(check_id),
        ),
        Remedy(
            Action.RESET_GPU,
            "If the domain is well, drain the node and reset its GPUs together.",
            run=(*RESET_ALL, STATE),
            interrupts="all GPU programs of this node",
            confirm=confirmed(check_id),
            then=True,
        ),
        _reboot(check_id),
    )


def wait_for(check_id: str, *, rack: bool) -> tuple[Remedy, ...]:
    """For a recovery that is under way; in a rack nobody on the node manages the fabric."""
    return (
        Remedy(
            Action.NONE,
            "Wait a minute and look again; start no new work on this GPU meanwhile.",
            run=(STATE,),
            confirm=confirmed(check_id),
        ),
        *(join_rack(check_id) if rack else register_anew(check_id, then=True)),
    )


def inspect_links(check_id: str, *, bridge: bool = False) -> tuple[Remedy, ...]:
    """For links that do not come up, or come up slow."""
    seat = "the bridge" if bridge else "the GPU's baseboard, its connectors or the switch"
    # Cards with bridges have no fabric manager that would have to be stopped for a reset, and a reset seats no bridge.
    anew = () if bridge else register_anew(check_id, then=True)
    return (
        Remedy(
            Action.NONE,
            "Keep what the driver says of the links, before anything is reset.",
            run=("nvidia-smi nvlink -s", "nvidia-smi nvlink -e", "journalctl -k -b | grep -iE 'xid|sxid|nvlink'"),
            confirm="nvidia-smi nvlink -s",
        ),
        *anew,
        Remedy(
            Action.INSPECT_HARDWARE,
            f"If they stay down after a cold boot: {seat} has to be reseated or replaced; open a case with the machine's vendor.",
            run=("nvidia-bug-report.sh",),
            interrupts="the whole node",
            confirm=confirmed(check_id),
            then=True,
        ),
    )


def allow_nvlink(check_id: str) -> tuple[Remedy, ...]:
    """For NVLinks that were switched off."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "If nobody wants it off: take NVreg_NvLinkDisable out of the module's options, and reload the driver or reboot.",
            run=(
                "grep -rn NvLinkDisable /etc/modprobe.d /proc/cmdline",
                "update-initramfs -u    # RHEL: dracut -f",
                "systemctl reboot",
            ),
            interrupts="the whole node, at the reboot",
            confirm=confirmed(check_id),
        ),
    )


def without_multicast(check_id: str) -> tuple[Remedy, ...]:
    """For NVLink SHARP that cannot be set up."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Until then have NCCL do without NVLink SHARP.",
            run=("export NCCL_NVLS_ENABLE=0",),
            confirm="the job gets past its first all-reduce",
        ),
        *register_anew(check_id, then=True),
    )


def bind_switches(check_id: str) -> tuple[Remedy, ...]:
    """For NVSwitches that the driver does not hold, or that are gone."""
    return (
        Remedy(
            Action.NONE,
            "Look what the kernel says of the switches.",
            run=("lspci -nnk -d 10de: | grep -A3 0680", "journalctl -k -b | grep -i nvswitch"),
            confirm=confirmed(check_id),
        ),
        _reboot(check_id),
        Remedy(
            Action.CONTACT_VENDOR,
            "If a switch stays away after a cold boot, its baseboard has a fault: open a case.",
            run=("nvidia-bug-report.sh",),
            confirm=confirmed(check_id),
            then=True,
        ),
    )


def start_nvlsm(check_id: str, *, installed: bool, medium: bool) -> tuple[Remedy, ...]:
    """For NVLSM that does not run: a program of its own package that the fabric manager's start script brings up."""
    steps = (
        ()
        if medium
        else (
            Remedy(
                Action.LOAD_MODULE,
                "Load the module through which it speaks to the switches, now and at every boot.",
                run=("modprobe ib_umad", "echo ib_umad > /etc/modules-load.d/ib_umad.conf"),
                confirm="gpudoctor run --check fabric.subnet-manager",
            ),
        )
    )
    package = (
        ()
        if installed
        else (
            Remedy(
                Action.INSTALL_PACKAGE,
                "Install nvlsm.",
                run=("apt-get install nvlsm    # RHEL: dnf install nvlsm",),
                confirm="ls /opt/nvidia/nvlsm/sbin/nvlsm",
                then=bool(steps),
            ),
        )
    )
    start = Remedy(
        Action.RESTART_SERVICE,
        "Restart the fabric manager, which starts it first.",
        run=(f"systemctl restart {FM}", STATE),
        interrupts="CUDA programs of this node",
        confirm=confirmed(check_id),
        then=bool(steps or package),
    )
    return (*steps, *package, start)


def start_imex(check_id: str, *, nodes: bool) -> tuple[Remedy, ...]:
    """For the IMEX daemon; `nodes` is whether it knows its peers."""
    fill = (
        ()
        if nodes
        else (
            Remedy(
                Action.CHANGE_CONFIG,
                "Write the address of every node of the domain into its list, one a line, the same list on all of them.",
                run=("$EDITOR /etc/nvidia-imex/nodes_config.cfg",),
                confirm="cat /etc/nvidia-imex/nodes_config.cfg",
            ),
        )
    )
    return (
        *fill,
        Remedy(
            Action.RESTART_SERVICE,
            "Read why it ended, correct that, and start it.",
            run=(
                "journalctl -b -u nvidia-imex --no-pager | tail -30",
                "tail -30 /var/log/nvidia-imex.log",
                "systemctl restart nvidia-imex",
            ),
            interrupts="jobs over several nodes of this domain",
            confirm="nvidia-imex-ctl -N",
            then=not nodes,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Or, where Kubernetes' compute domains or a job's prolog bring their own, disable the node's.",
            run=("systemctl disable --now nvidia-imex",),
            confirm=confirmed(check_id),
        ),
    )


def wake_peers(check_id: str) -> tuple[Remedy, ...]:
    """For an IMEX domain of which another node is not ready."""
    return (
        Remedy(
            Action.NONE,
            "Look at the daemon of each node that is named: whether it runs there, and has the same version and list of nodes.",
            run=(
                "nvidia-imex-ctl -N",
                "systemctl status nvidia-imex    # on that node",
                "sha256sum /etc/nvidia-imex/nodes_config.cfg    # on that node and here",
            ),
            confirm="nvidia-imex-ctl -N",
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "Start it there; a node that is gone for good comes out of the list, on all nodes, before their daemons are restarted.",
            run=("systemctl restart nvidia-imex    # on that node",),
            interrupts="jobs over several nodes that use that node",
            confirm=confirmed(check_id),
            then=True,
        ),
    )


def make_channel(check_id: str, major: int) -> tuple[Remedy, ...]:
    """For a node without an IMEX channel."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Have the driver make channel 0 at every boot.",
            run=(
                "echo 'options nvidia NVreg_CreateImexChannel0=1' > /etc/modprobe.d/nvidia-imex.conf",
                "update-initramfs -u    # RHEL: dracut -f",
            ),
            interrupts="nothing before the driver is loaded anew",
            confirm="cat /proc/driver/nvidia/params | grep CreateImexChannel0, after the next boot",
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "And make it now by hand.",
            run=(
                "mkdir -p /dev/nvidia-caps-imex-channels",
                f"mknod -m 0666 /dev/nvidia-caps-imex-channels/channel0 c {major} 0",
            ),
            confirm=confirmed(check_id),
            then=True,
        ),
    )


def load_peermem(check_id: str, *, rebuild: bool) -> tuple[Remedy, ...]:
    """For GPUDirect RDMA without the module it needs."""
    anew = (
        (
            Remedy(
                Action.INSTALL_PACKAGE,
                "Build the driver's modules anew now that the network adapter's software is installed: both must know the same ib_core.",
                run=("dkms status nvidia", "dkms install --force nvidia/VERSION -k $(uname -r)"),
                confirm="modinfo nvidia-peermem",
            ),
        )
        if rebuild
        else ()
    )
    return (
        *anew,
        Remedy(
            Action.LOAD_MODULE,
            "Load it now and at every boot.",
            run=("modprobe nvidia-peermem", "echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf"),
            confirm="gpudoctor run --check fabric.peer-memory",
            then=rebuild,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Or, where the adapter's driver is the kernel's own: change to the open kernel modules, whose memory dma-buf can share.",
            run=("modinfo -F license nvidia",),
            interrupts="the whole node, while the driver is exchanged",
            confirm=confirmed(check_id),
        ),
    )


def load_storage(check_id: str) -> tuple[Remedy, ...]:
    """For GPUDirect Storage without its module."""
    return (
        Remedy(
            Action.LOAD_MODULE,
            "Load it, and have it built for the running kernel if it is not there.",
            run=("modprobe nvidia-fs", "dkms status nvidia-fs"),
            confirm="gpudoctor run --check fabric.gpudirect-storage && /usr/local/cuda/gds/tools/gdscheck.py -p",
        ),
        Remedy(
            Action.NONE,
            "Or do nothing where no program needs it: cuFile then goes through the CPU's memory (its compatibility mode).",
            confirm=confirmed(check_id),
        ),
    )


def apart(check_id: str) -> tuple[Remedy, ...]:
    """For two ranks of one job on one GPU."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Have each rank take its own GPU, by its LOCAL_RANK, and start no more ranks than the job was given GPUs.",
            run=(
                "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))    # in the program, before its first CUDA call",
            ),
            interrupts="this job",
            confirm=confirmed(check_id),
        ),
    )
