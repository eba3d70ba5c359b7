"""What to do about MPS, time-slicing and GPUs that are shared too closely, from the safest step up.

Sources, read 2026-11-30: docs.nvidia.com/deploy/mps ("Appendix: Common Tasks", "Troubleshooting Guide", "Appendix: Environment Variables");
nvidia-cuda-mps-control(1) of driver 580 (get_server_list, set_default_device_pinned_mem_limit, quit -t); NVIDIA/k8s-device-plugin @1b826acc
README.md ("Shared Access to GPUs") and deployments/helm/nvidia-device-plugin (daemonset of the MPS daemon, nvidia.com/mps.capable);
docs.nvidia.com/datacenter/tesla/mig-user-guide ("CUDA Multi-Process Service").
"""

from msgspec import Struct

from gpudoctor.knowledge.module_remedies import confirmed_by
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Action, Remedy

MPS_GUIDE = "https://docs.nvidia.com/deploy/mps/index.html"
TROUBLESHOOTING = "https://docs.nvidia.com/deploy/mps/latest/troubleshooting.html"
SHARED_ACCESS = "https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus"

_DEFAULT = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA has it
_PLAIN = pattern(r"[\w@%+=:,./-]+")
_PLUGIN_PODS = "kubectl get pods -A -o wide --field-selector spec.nodeName=$(hostname) | grep -i device-plugin"


class Reached(Struct, frozen=True):
    """A daemon as commands reach it: its pipes, its PID where it lives in a container, its servers."""

    pipes: str = ""
    container: int = 0
    servers: tuple[int, ...] = ()

    @property
    def _control(self) -> str:
        """The program with what tells it which daemon is meant."""
        named = self.pipes and self.pipes != _DEFAULT and _PLAIN.fullmatch(self.pipes)
        return f"{f'CUDA_MPS_PIPE_DIRECTORY={self.pipes} ' if named else ''}nvidia-cuda-mps-control"

    def ask(self, words: str) -> str:
        """A command that asks the daemon; of one in a container within its mounts (nsenter(1))."""
        command = f"echo {words} | {self._control}"
        return f"nsenter -m -p -t {self.container} sh -c '{command}'" if self.container else command

    def start(self, *options: str) -> str:
        """The command that starts one by hand."""
        return " ".join((self._control, "-d", *options))


def start_unit(check_id: str, unit: str) -> tuple[Remedy, ...]:
    """For a daemon that systemd should have started."""
    return (
        Remedy(
            Action.RESTART_SERVICE,
            "Read why the unit ended, and start it again.",
            run=(f"journalctl -b --no-pager -n 30 -u {unit}", f"systemctl restart {unit}"),
            interrupts="nobody: no client has a daemon now; programs that run without MPS go on so",
            confirm=f"systemctl is-active {unit}; {confirmed_by(check_id)}",
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Or, where MPS is wanted no longer, take the unit away; GPUs that it left in exclusive mode then need the default mode back.",
            run=(f"systemctl disable {unit}", "nvidia-smi -q -d COMPUTE", "nvidia-smi -c DEFAULT"),
            confirm=confirmed_by(check_id),
        ),
    )


def start_daemon(check_id: str, pipes: str) -> tuple[Remedy, ...]:
    """For clients whose daemon is gone."""
    plain = pipes if _PLAIN.fullmatch(pipes) else "DIRECTORY"
    return (
        Remedy(
            Action.RESTART_SERVICE,
            "Start the daemon with the pipe directory that the clients name, as root where clients of several users come; then start the "
            "clients again: a program looks for the daemon only when it begins to use CUDA.",
            run=(f"CUDA_MPS_PIPE_DIRECTORY={plain} nvidia-cuda-mps-control -d",),
            interrupts="nobody; the clients have to be started again",
            confirm=f"echo get_server_list | CUDA_MPS_PIPE_DIRECTORY={plain} nvidia-cuda-mps-control",
        ),
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Or, where MPS is not wanted, start the program without CUDA_MPS_PIPE_DIRECTORY.",
            interrupts="the program that is started again",
            confirm=confirmed_by(check_id),
        ),
    )


def plugins_daemon(check_id: str) -> tuple[Remedy, ...]:
    """For a daemon that the device plugin's own pods should have started."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "See whether the DaemonSet of the MPS control daemon has a pod on this node, and what it says: it comes only to nodes with the "
            "label nvidia.com/mps.capable=true, which gpu-feature-discovery sets.",
            run=(
                f"{_PLUGIN_PODS}    # one of them is the mps-control-daemon",
                "kubectl get node $(hostname) --show-labels | tr , '\\n' | grep -E 'mps.capable|sharing-strategy'",
                "kubectl -n NAMESPACE logs POD -c mps-control-daemon-ctr",
            ),
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "When the cause is mended, delete the pod of the daemon, then that of the plugin: each comes back at once.",
            run=("kubectl -n NAMESPACE delete pod MPS-DAEMON-POD", "kubectl -n NAMESPACE delete pod PLUGIN-POD"),
            interrupts="clients of the daemon, if there are any: their CUDA calls fail",
            confirm=confirmed_by(check_id),
            then=True,
        ),
    )


def without_plugins_daemon(check_id: str) -> tuple[Remedy, ...]:
    """For pods that the device plugin set up as clients when it shared by MPS, which it does no longer."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Make the pods anew: the device plugin shares by MPS no longer, and they keep the variables that it gave them then.",
            run=("kubectl -n NAMESPACE delete pod POD",),
            interrupts="the pods that are made anew",
            confirm=confirmed_by(check_id),
        ),
    )


def end_clients(check_id: str, daemon: Reached) -> tuple[Remedy, ...]:
    """For a server that takes no clients before those it has are gone."""
    servers = daemon.servers or ("SERVER-PID",)
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "End the clients that the fault has reached, all of that GPU: the server makes its context anew when they have gone. Their "
            "CUDA calls fail already.",
            run=(
                daemon.ask("get_server_list"),
                f"{daemon.ask(f'get_client_list {servers[0]}')}    # PIDs of clients, to be ended by their own means",
            ),
            interrupts="the clients that share the GPU; those on other GPUs of the server go on",
            confirm=confirmed_by(check_id),
        ),
        _quit(check_id, daemon),
    )


def restart_servers(check_id: str, daemon: Reached) -> tuple[Remedy, ...]:
    """For servers that die as they start, or died."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "See what holds the GPU: in the mode exclusive process the server is to be the only process on it. See the kernel's log for an "
            "Xid, and whether the daemon's libcuda is that of the loaded driver.",
            run=(
                "nvidia-smi",
                "journalctl -k -b --no-pager | grep -i xid | tail -n 5",
                "cat /proc/driver/nvidia/version",
            ),
            confirm=confirmed_by(check_id),
        ),
        _quit(check_id, daemon),
    )


def _quit(check_id: str, daemon: Reached) -> Remedy:
    again = ("kubectl -n NAMESPACE delete pod MPS-DAEMON-POD    # or start its container anew",)
    return Remedy(
        Action.RESTART_SERVICE,
        "Or start the daemon anew, by the unit or pod that started it, else by hand.",
        run=again if daemon.container else (daemon.ask("quit -t 10"), daemon.start()),
        interrupts="every client of this daemon",
        confirm=confirmed_by(check_id),
    )


def fewer_clients(check_id: str) -> tuple[Remedy, ...]:
    """For a GPU that has as many clients as it can have."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Let fewer processes share the GPU: end those that idle, or spread them over more GPUs. What counts are CUDA contexts.",
            run=("nvidia-smi    # M+C are clients of MPS",),
            interrupts="the processes that are ended",
            confirm=confirmed_by(check_id),
        ),
    )


def join_pipes(check_id: str, pipes: str, *, contained: bool) -> tuple[Remedy, ...]:
    """For a client that does not find its daemon."""
    plain = pipes if _PLAIN.fullmatch(pipes) else "DIRECTORY"
    mounted = f"docker run --ipc=host -v {plain}:{plain} -e CUDA_MPS_PIPE_DIRECTORY={plain} …"
    inside = "Start it with the daemon's pipe directory mounted and named by CUDA_MPS_PIPE_DIRECTORY, and its /dev/shm or IPC namespace."
    outside = "Start it with CUDA_MPS_PIPE_DIRECTORY naming the directory of the daemon that runs."
    run = (mounted,) if contained else (f"export CUDA_MPS_PIPE_DIRECTORY={plain}",)
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            inside if contained else outside,
            run=run,
            interrupts="the workload, which is started again",
            confirm="nvidia-smi    # clients of MPS are M+C",
        ),
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Or, where MPS is not wanted, start it without CUDA_MPS_PIPE_DIRECTORY.",
            interrupts="the workload, which is started again",
            confirm=confirmed_by(check_id),
        ),
    )


def one_user(check_id: str, daemon: Reached) -> tuple[Remedy, ...]:
    """For clients of several users."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Wait until the clients of the other user have ended, or run all of them as one user.",
            interrupts="nothing",
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.RESTART_SERVICE,
            "Or start the daemon as root for several users at once: then a fault of one user's program ends those of others, too.",
            run=(daemon.ask("quit -t 10"), daemon.start("-multiuser-server")),
            interrupts="every client of this daemon",
            confirm=confirmed_by(check_id),
        ),
    )


def free_exclusive(check_id: str, address: str, pid: int) -> tuple[Remedy, ...]:
    """For a process that has a GPU to itself which clients of MPS are to share."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Let the server in beside the process: the default mode works with MPS, too.",
            run=(f"nvidia-smi -i {address} -c DEFAULT",),
            interrupts="nobody",
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Or end the process and start it again as a client of MPS: in exclusive mode the server must be the only process on the GPU.",
            run=(f"ps -o pid,user,args -p {pid}",),
            interrupts=f"PID {pid}",
            confirm=confirmed_by(check_id),
        ),
    )


def share_memory(check_id: str) -> tuple[Remedy, ...]:
    """For a client in a container that is apart from its server's shared memory."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Start the container in the IPC namespace of the daemon (`--ipc=host` where that runs on the host), or with the daemon's "
            "/dev/shm mounted as its own; in Kubernetes let the device plugin do it (sharing.mps).",
            run=("docker run --ipc=host …",),
            interrupts="the container, which is started again",
            confirm=confirmed_by(check_id),
        ),
    )


def mig_or_mps(check_id: str, strategy: str) -> tuple[Remedy, ...]:
    """For a plugin that is told to share by MPS what MIG has divided."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            f"Choose one: share MIG devices in time (sharing.timeSlicing, which works with migStrategy {strategy or 'single'}), or leave "
            "sharing out: each MIG device has memory and faults of its own already.",
            run=(
                "kubectl get configmaps -A | grep -i -E 'device-plugin|plugin-config'",
                "kubectl -n NAMESPACE edit configmap NAME",
                "kubectl -n NAMESPACE rollout restart daemonset NAME    # the plugin's",
            ),
            interrupts="no running pod; pods that ask for GPUs wait until the plugin has registered",
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Or switch MIG off on the GPUs that are to be shared by MPS, when nobody uses them; up to Ampere that takes a reset.",
            run=("nvidia-smi -i GPU -mig 0",),
            interrupts="everything that runs on the GPU's MIG devices",
            confirm=confirmed_by(check_id),
        ),
    )


def mend_sharing(check_id: str, say: str) -> tuple[Remedy, ...]:
    """For a configuration that the plugin does not take, or takes otherwise."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            say,
            run=(
                "kubectl get configmaps -A | grep -i -E 'device-plugin|plugin-config'",
                "kubectl -n NAMESPACE edit configmap NAME",
                "kubectl -n NAMESPACE rollout restart daemonset NAME    # the plugin's",
            ),
            interrupts="no running pod; pods that ask for GPUs wait until the plugin has registered",
            confirm=confirmed_by(check_id),
        ),
    )


def one_replica(check_id: str) -> tuple[Remedy, ...]:
    """For a container with several replicas of one GPU."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Let the pod ask for one: a second replica is no second GPU, and gives neither more time nor more memory.",
            interrupts="the pod, which is made anew",
            confirm=confirmed_by(check_id),
        ),
        *mend_sharing(check_id, "And have such requests refused: failRequestsGreaterThanOne: true."),
    )


def relieve_memory(check_id: str, address: str) -> tuple[Remedy, ...]:
    """For a GPU whose memory several workloads fill that nothing keeps apart."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Find who has how much, and lower what the programs take for themselves: vLLM --gpu-memory-utilization, JAX "
            "XLA_PYTHON_CLIENT_MEM_FRACTION, PyTorch set_per_process_memory_fraction. These are each program's own promise, no limit.",
            run=(f"nvidia-smi -i {address} --query-compute-apps=pid,used_memory,name --format=csv",),
            interrupts="the programs that are started again",
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Or give each its share for good: MIG where the GPU has it (memory and faults are kept apart), or MPS with "
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT (memory is limited, a fault still ends all clients).",
            interrupts="everything that runs on the GPU",
            confirm=confirmed_by(check_id),
        ),
    )
