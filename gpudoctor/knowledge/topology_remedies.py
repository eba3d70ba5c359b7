"""What to do where devices and work lie apart that belong together: NUMA nodes, CPUs, slots, bindings, from the safest up.

Sources: numactl(8), taskset(1), cpuset(7), sched_setaffinity(2); Documentation/core-api/cpu_hotplug.rst; kubernetes.io/docs/tasks/
administer-cluster/topology-manager; Slurm's gres.conf(5) and srun(1), --gpu-bind; docker run(1), --cpuset-cpus; systemd.exec(5),
CPUAffinity= and NUMAMask=. Read 2026-11-30.
"""

from gpudoctor.knowledge.reset_remedies import RESET_ALL
from gpudoctor.verdicts import Action, Remedy

TREE = "gpudoctor topo"
_REBOOT = "the whole node, at the reboot it takes"


def _confirmed(check_id: str) -> str:
    return f"gpudoctor run --check {check_id}"


def tell_numa(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For devices whose NUMA node the firmware does not tell."""
    return (
        Remedy(
            Action.NONE,
            "Until then bind jobs by hand: the board's manual tells which slot belongs to which processor.",
            run=(f"cat /sys/bus/pci/devices/{address}/numa_node", "numactl --hardware"),
            confirm="nvidia-smi topo -m",
        ),
        # The kernel takes it from _PXM of the host bridge (drivers/acpi/pci_root.c), and says that the value may be overridden by root and
        # that the firmware is to be fixed (Documentation/ABI/testing/sysfs-bus-pci, numa_node; it taints the kernel).
        Remedy(
            Action.CHANGE_CONFIG,
            "In the firmware setup undo what hides it (NUMA, SNC, NPS, L3 cache as NUMA domain), or load its defaults.",
            run=("journalctl -k -b --grep 'NUMA|SRAT|_PXM'",),
            interrupts=_REBOOT,
            confirm=_confirmed(check_id),
        ),
        Remedy(
            Action.CONTACT_VENDOR,
            "Update the firmware; if it still does not tell the node of a host bridge (ACPI _PXM), report it to the board's vendor.",
            interrupts=_REBOOT,
            confirm=_confirmed(check_id),
        ),
    )


def cpus_online(check_id: str, offline: str, nodes: str) -> tuple[Remedy, ...]:
    """For CPUs of a NUMA node that somebody took offline; `nodes` are the nodes in words."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            f"Bring the CPUs of {nodes} back: by number, each one has a file of its own.",
            run=(
                f"chcpu -e {offline}",
                "cat /sys/devices/system/cpu/online",
            ),
            interrupts="nothing; programs that are bound to CPUs keep their binding",
            confirm=_confirmed(check_id),
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Find what took them offline, so that it does not come back: a service that saves power, or maxcpus= for the kernel.",
            run=(
                "grep -oE '(maxcpus|nr_cpus|possible_cpus)=[^ ]*' /proc/cmdline",
                "journalctl -k -b --grep 'offline' | tail -5",
            ),
            confirm=_confirmed(check_id),
        ),
    )


def look_at_slot(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For a device that is plugged in elsewhere than its peers."""
    return (
        Remedy(
            Action.NONE,
            "Compare its place with those of its peers, and look for a slot whose port has no link.",
            run=(TREE, "lspci -tv", f"journalctl -k -b --grep '{address}' | tail -5"),
            confirm="the tree is the same below each switch",
        ),
        Remedy(
            Action.INSPECT_HARDWARE,
            "Drain the node at the next chance, power it off, and put the board into the slot that the server's manual names for it.",
            interrupts="the whole node",
            confirm=_confirmed(check_id),
        ),
    )


def find_adapter(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For a GPU beside which there is no network adapter, while its peers have one."""
    return (
        Remedy(
            Action.NONE,
            "See whether an adapter below the GPU's switch is there without its driver, or whether the port above its slot has no link.",
            run=(
                TREE,
                "lspci -d ::0200 -nnk; lspci -d ::0207 -nnk",
                "journalctl -k -b --grep 'mlx5_core|bnxt_en|Link Down' | tail -20",
            ),
            confirm="ls -l /sys/class/infiniband lists as many adapters as there are",
        ),
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Until it is mended, leave this GPU out of jobs that span nodes, or give them fewer GPUs: the whole job runs at its pace.",
            run=("export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH,NET    # shows which adapter each GPU was given",),
            interrupts="the jobs that are started anew",
            confirm="NCCL names the same distance for every GPU",
        ),
        Remedy(
            Action.INSPECT_HARDWARE,
            f"Drain the node at the next chance, power it off, and reseat the adapter, or put it back into the slot next to {address}.",
            interrupts="the whole node",
            confirm=_confirmed(check_id),
        ),
    )


def raise_links(check_id: str) -> tuple[Remedy, ...]:
    """For a GPU that fewer NVLinks join to its peers."""
    return (
        Remedy(
            Action.NONE,
            "See which links are down, and what the kernel said of them.",
            run=("nvidia-smi nvlink --status", "journalctl -k -b --grep 'NVRM|nvlink' | tail -20"),
            confirm="every link shows its rate",
        ),
        Remedy(
            Action.RESET_GPU,
            "Drain the node and reset all its GPUs at once: links train anew.",
            run=RESET_ALL,
            interrupts="every program that uses a GPU of this node",
            confirm=_confirmed(check_id),
        ),
        Remedy(
            Action.CONTACT_VENDOR,
            "If links stay down, reseat the bridge or the board, then ask the vendor.",
            interrupts="the whole node",
            confirm=_confirmed(check_id),
        ),
    )


def wider_slot(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For a GPU behind a hop that has fewer lanes by design than those of its peers."""
    return (
        Remedy(
            Action.NONE,
            "Compare what the ports above it can do with those above a peer.",
            run=(TREE, f"lspci -vv -s {address} | grep -E 'LnkCap:|LnkSta:'", "lspci -tv"),
            confirm="LnkCap of each port names the same width",
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "If the slot's lanes are split in the firmware setup (bifurcation, x8x8), undo it.",
            interrupts=_REBOOT,
            confirm=_confirmed(check_id),
        ),
        *look_at_slot(check_id, address)[1:],
    )


def nearer_cpus(check_id: str, *, pod: bool, job: bool, cpus: str, node: str) -> tuple[Remedy, ...]:
    """For work that may run only on CPUs, or use only memory, of another NUMA node than its GPUs'."""
    anew = "the work that is started anew"
    if pod:
        say = (
            "Let the kubelet give CPUs and GPUs of one NUMA node: cpuManagerPolicy static, and topologyManagerPolicy best-effort "
            "or stricter; then start the pod anew."
        )
        run: tuple[str, ...] = (
            "grep -E 'cpuManagerPolicy|topologyManagerPolicy|topologyManagerScope' /var/lib/kubelet/config.yaml",
        )
        interrupts = (
            "this pod; the kubelet takes a new CPU policy only after the node was drained and cpu_manager_state removed"
        )
        return (Remedy(Action.CHANGE_WORKLOAD, say, run, interrupts, _confirmed(check_id)),)
    if job:
        say = "Let Slurm give cores near the GPUs: AutoDetect=nvml or Cores= in gres.conf, and srun --gpu-bind=closest for tasks."
        run = ("scontrol show node $(hostname -s) | grep -i gres", "grep -E 'AutoDetect|Cores' /etc/slurm/gres.conf")
        return (Remedy(Action.CHANGE_WORKLOAD, say, run, anew, _confirmed(check_id)),)
    binding = (
        f"numactl --cpunodebind={node} --preferred={node} COMMAND" if node else f"taskset --cpu-list {cpus} COMMAND"
    )
    say = (
        "Start it bound to its GPU's NUMA node, each process to its own: numactl in front of the process, not of its launcher; "
        "--cpuset-cpus for docker and podman, CPUAffinity= for a unit."
    )
    return (Remedy(Action.CHANGE_WORKLOAD, say, (binding, "nvidia-smi topo -m"), anew, _confirmed(check_id)),)
