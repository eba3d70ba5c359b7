"""What to do about what NVML answered, from the safest step up.

Cases they come from, as of 2026-11: lost GPUs NVIDIA/open-gpu-kernel-modules#507 and #387 (cold power cycle, reseat), version skew
after unattended upgrades lyulyul/shine-cluster#30, stuck tasks NVIDIA/nvidia-persistenced#15 and leptonai/gpud PR#117; nvml.h of
CUDA 13.5 for what each code means.
"""

from msgspec.structs import replace

from gpudoctor.knowledge import gpu_reset, nvml_errors
from gpudoctor.knowledge.module_remedies import LOAD_ANEW, confirmed_by, power
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Action, Remedy

_CONFIRM = confirmed_by("driver-cuda.nvml-answers")


def confirming(remedies: tuple[Remedy, ...], check_id: str) -> tuple[Remedy, ...]:
    """The same steps for a finding of another check: that one tells whether they helped."""
    confirm = confirmed_by(check_id)
    return tuple(replace(remedy, confirm=confirm) if _ASKS.match(remedy.confirm) else remedy for remedy in remedies)


def also_confirming(remedies: tuple[Remedy, ...], check_id: str) -> tuple[Remedy, ...]:
    """The same steps, whose own confirmation is not enough: the finding's check has to pass as well."""
    return tuple(
        replace(remedy, confirm=f"{remedy.confirm} --check {check_id}")
        if "--check" in remedy.confirm and f"--check {check_id}" not in remedy.confirm
        else remedy
        for remedy in remedies
    )


_ASKS = pattern(r"gpudoctor run --check \S+$")


def reload_or_reboot(check_id: str) -> tuple[Remedy, ...]:
    """For a loaded module that is older than the files on disk."""
    return (
        Remedy(
            Action.LOAD_MODULE,
            "Drain the node, stop what uses the GPUs, and reload the driver so that module and library are of one version. If a module "
            "that uses it is still listed, reboot instead.",
            run=("modinfo -F version nvidia    # the version a reload would bring", *LOAD_ANEW),
            interrupts="every process that uses a GPU of this node",
            confirm=confirmed_by(check_id),
        ),
        _reboot(check_id),
    )


def _reboot(check_id: str) -> Remedy:
    return Remedy(
        Action.REBOOT,
        "Drain the node and reboot it.",
        run=("systemctl reboot",),
        interrupts="the whole node",
        confirm=confirmed_by(check_id),
    )


_REBOOT = _reboot("driver-cuda.nvml-answers")
_COLLECT = Remedy(
    Action.NONE,
    "Before anything else keep the evidence: kernel log, stacks of stuck tasks, and NVIDIA's own report without NVML.",
    run=(
        "gpudoctor record --raw -o /var/tmp/gpudoctor-$(date +%Y%m%d-%H%M%S).tar.zst",
        "nvidia-bug-report.sh --safe-mode",
    ),
    confirm="ls /var/tmp/gpudoctor-*",
)
_RESEAT = Remedy(
    Action.INSPECT_HARDWARE,
    "If it comes back lost, inspect the board, its power and its slot; then ask the vendor.",
    interrupts="the whole node",
    confirm=_CONFIRM,
    then=True,
)
_BY_INDEX = gpu_reset.reset("INDEX", _CONFIRM, then=True)
_RESET = replace(_BY_INDEX, run=("nvidia-smi -L    # which INDEX the GPU has", *_BY_INDEX.run))
_REBOOT_THEN = replace(_REBOOT, then=True)
"""After the step before it, not instead of it."""


# dpkg-query lists packages that were removed with their configuration left (rc), or are only known of (un), too: those are there whose
# state is i, wanted (ii) or held (hi) (dpkg-query(1), db:Status-Abbrev).
LIST_LIBRARIES, LIST_INSTALLED = (
    f"dpkg-query -Wf '${{db:Status-Abbrev}} ${{binary:Package}}\\n' {patterns} 2>/dev/null | awk '$1 ~ /^[ih]i$/ {{print $2}}'"
    for patterns in ("'libnvidia-*' 'libcuda1'", "'libnvidia-*' 'nvidia-*' 'libcuda1'")
)
"""Commands that print the installed packages of the driver's libraries, and of all of the driver."""

_INTERRUPTS = Remedy(
    Action.NONE,
    "See whether the GPU's interrupts arrive; in a virtual machine look at the passthrough's settings on the host.",
    run=(
        "grep nvidia /proc/interrupts    # the counts must grow while the GPU works",
        "journalctl -k -b --grep 'NVRM|irq'",
    ),
    confirm=_CONFIRM,
)
_INFOROM = Remedy(
    Action.CONTACT_VENDOR,
    "Ask the board's vendor: the InfoROM holds the board's identity and the history of its errors.",
    interrupts="nothing until the board is exchanged",
    confirm=_CONFIRM,
    then=True,
)

FOR_CODE: dict[int, tuple[Remedy, ...]] = {
    nvml_errors.DRIVER_NOT_LOADED: (
        Remedy(
            Action.LOAD_MODULE,
            "Load the module, and read the kernel log if it refuses.",
            run=("modprobe nvidia", "journalctl -k -b --grep 'nvidia|NVRM' | tail -20"),
            confirm=_CONFIRM,
        ),
        _REBOOT,
    ),
    nvml_errors.LIBRARY_NOT_FOUND: (
        Remedy(
            Action.INSTALL_PACKAGE,
            "Find the loaded module's version, and install the user-space libraries of exactly that version.",
            run=(
                "cat /proc/driver/nvidia/version",
                "ldconfig -p | grep libnvidia-ml",
                "apt-cache policy 'libnvidia-compute-*' libnvidia-ml1    # Ubuntu, Debian; RHEL: dnf list 'nvidia-driver*'",
            ),
            confirm=_CONFIRM,
        ),
    ),
    nvml_errors.LIB_RM_VERSION_MISMATCH: reload_or_reboot("driver-cuda.nvml-answers"),
    nvml_errors.INSUFFICIENT_POWER: (power("driver-cuda.nvml-answers"),),
    nvml_errors.TIMEOUT: (_COLLECT, _RESET, _REBOOT),
    nvml_errors.IRQ_ISSUE: (_INTERRUPTS, _REBOOT_THEN, _RESEAT),
    nvml_errors.CORRUPTED_INFOROM: (_COLLECT, _INFOROM),
    nvml_errors.GPU_IS_LOST: (_COLLECT, _REBOOT_THEN, _RESEAT),
    nvml_errors.RESET_REQUIRED: (_COLLECT, _RESET, _REBOOT),
}
OTHERWISE: tuple[Remedy, ...] = (_COLLECT, _REBOOT_THEN)
_DRAIN = Remedy(
    Action.CHANGE_WORKLOAD,
    "Move the jobs that use peer-to-peer traffic with this GPU away; the driver asks for no more than that now.",
    interrupts="jobs over several GPUs that include this one",
    confirm=_CONFIRM,
    then=True,
)


def for_recovery(action: str) -> tuple[Remedy, ...]:
    """What the driver itself asks for, in the words of nvmlDeviceGpuRecoveryAction_t (nvml.h) or of Xid 154; else a reset."""
    action = action.lower().replace(" ", "_")
    if "reboot" in action:
        return (_COLLECT, _REBOOT_THEN)
    return (_COLLECT, _DRAIN) if action == "drain_p2p" else (_COLLECT, _RESET, _REBOOT)


FOR_PERMISSION: tuple[Remedy, ...] = (
    Remedy(
        Action.NONE,
        "Root was refused: see which security module or device cgroup did it.",
        run=("journalctl -k -b --grep 'apparmor|avc:|denied' | tail", "ls -lZ /dev/nvidia*", "cat /proc/self/cgroup"),
        confirm=_CONFIRM,
    ),
    Remedy(
        Action.CHANGE_CONFIG,
        "Allow the driver's nodes in the rule that was found.",
        interrupts="nothing that is already running",
        confirm=_CONFIRM,
        then=True,
    ),
)
FOR_CONTAINER: tuple[Remedy, ...] = (
    Remedy(
        Action.NONE,
        "Ask on the host: when NVML answers there, the driver is well and this container's device rules are the cause.",
        run=("gpudoctor run --check driver-cuda.nvml-answers    # on the host",),
        confirm="the host's report",
    ),
    Remedy(
        Action.CHANGE_WORKLOAD,
        "Recreate the container: its device rules are written anew. A restart inside of it changes nothing.",
        interrupts="this container",
        confirm=_CONFIRM,
        then=True,
    ),
    Remedy(
        Action.CHANGE_CONFIG,
        "To keep systemd from taking the GPUs away again at its next daemon-reload, let it find the nodes in /dev/char, or give the GPUs "
        "to containers through CDI.",
        run=("nvidia-ctk system create-dev-char-symlinks --create-all    # on the host, at every boot",),
        confirm=_CONFIRM,
        then=True,
    ),
)
"""NVIDIA Container Toolkit, "Troubleshooting": containers losing access to GPUs with "Failed to initialize NVML: Unknown Error"."""

FOR_INJECTED_LIBRARY: tuple[Remedy, ...] = (
    Remedy(
        Action.CHANGE_WORKLOAD,
        "Recreate the container: the runtime puts the host's present libraries into it. Remove one that the image brings itself.",
        run=("ldconfig -p | grep libnvidia-ml", "cat /proc/driver/nvidia/version"),
        interrupts="this container",
        confirm=_CONFIRM,
    ),
)


FOR_MISSING_IN_CONTAINER: tuple[Remedy, ...] = (
    Remedy(
        Action.CHANGE_WORKLOAD,
        "Start the container with the driver's libraries: NVIDIA's runtime puts them in for the capability `utility`.",
        run=("docker run --gpus all --env NVIDIA_DRIVER_CAPABILITIES=utility,compute IMAGE nvidia-smi    # Docker",),
        interrupts="this container",
        confirm=_CONFIRM,
    ),
)
FOR_DRIVER_CONTAINER: tuple[Remedy, ...] = (
    Remedy(
        Action.RESTART_SERVICE,
        "Drain the node and restart its driver pod, which loads the module of its own libraries' version.",
        run=("kubectl -n gpu-operator delete pod -l app=nvidia-driver-daemonset --field-selector spec.nodeName=NODE",),
        interrupts="every process that uses a GPU of this node",
        confirm=_CONFIRM,
    ),
)
FOR_THE_HOST: tuple[Remedy, ...] = (
    Remedy(
        Action.NONE,
        "The container has the host's new libraries; the host still has the old module loaded. See there what waits for a reload.",
        run=("gpudoctor run --link driver-cuda    # on the host",),
        confirm="the host's report",
    ),
)
FOR_LOADED_DRIVER: tuple[Remedy, ...] = (
    Remedy(
        Action.NONE,
        "The module is loaded: see whether this user, or a rule, may not open /dev/nvidiactl.",
        run=("ls -lZ /dev/nvidiactl", "cat /proc/self/cgroup", "journalctl -k -b --grep 'NVRM|avc:|denied' | tail -20"),
        confirm=_CONFIRM,
    ),
    _COLLECT,
)


def bring_the_module(version: str) -> tuple[Remedy, ...]:
    """For libraries that are newer than the module on disk: no reboot brings another module then."""
    return (
        Remedy(
            Action.NONE,
            f"Find out why no module {version} was built or installed for this kernel.",
            run=("dkms status", "modinfo -F version nvidia", "ls /var/lib/dkms/nvidia*/*/build/make.log"),
            confirm=_CONFIRM,
        ),
        Remedy(
            Action.INSTALL_PACKAGE,
            f"Install the module of {version} for this kernel, or take the libraries back to the module's version; then reload or reboot.",
            run=(
                f"{LIST_INSTALLED}    # module and libraries must be of one version",
                f"dkms install NAME/{version}    # NAME as dkms status prints it: nvidia, nvidia-srv, nvidia-current, …",
                "modinfo -F version nvidia",
            ),
            interrupts="every process that uses a GPU of this node, at the reload",
            confirm=_CONFIRM,
            then=True,
        ),
    )


FOR_STUB: tuple[Remedy, ...] = (
    Remedy(
        Action.CHANGE_CONFIG,
        "Take the toolkit's stubs, which are for linking programs only, out of the loader's sight: the link that leads to one, or the line "
        "of ld.so.conf that names their directory. ldconfig would make the link again as long as the directory is named.",
        run=("ldconfig -p | grep libnvidia-ml", "grep -rn stubs /etc/ld.so.conf /etc/ld.so.conf.d", "ldconfig"),
        interrupts="nothing that is already running",
        confirm=confirmed_by("driver-cuda.nvml-library"),
    ),
    replace(FOR_CODE[nvml_errors.LIBRARY_NOT_FOUND][0], then=True),
)
FOR_HANG: tuple[Remedy, ...] = (
    _COLLECT,
    Remedy(
        Action.REBOOT,
        "A task asleep uninterruptibly cannot be killed; drain without waiting for its pods and reboot, by force if it stalls.",
        run=("systemctl reboot", "systemctl reboot --force    # when the first stalls at stopping services"),
        interrupts="the whole node",
        confirm="gpudoctor run --check driver-cuda.no-stuck-task --check driver-cuda.nvml-answers",
        then=True,
    ),
)

FOR_CRASH: tuple[Remedy, ...] = (
    _COLLECT,
    Remedy(
        Action.INSTALL_PACKAGE,
        "Reinstall the driver's user-space libraries: a crash inside them mostly means mixed or damaged files.",
        run=(
            "ldconfig -p | grep libnvidia-ml",
            f"{LIST_LIBRARIES} > /var/tmp/nvidia-packages    # RHEL: rpm -Va '*nvidia*', then dnf reinstall",
            "xargs -r dpkg -V < /var/tmp/nvidia-packages    # names files that differ from their packages",
            "apt-get install --reinstall $(cat /var/tmp/nvidia-packages)",
        ),
        interrupts="nothing that is already running",
        confirm=_CONFIRM,
        then=True,
    ),
    _REBOOT,
)
FOR_UNLISTED: tuple[Remedy, ...] = (
    Remedy(
        Action.NONE,
        "Read why the driver could not initialise this GPU.",
        run=("journalctl -k -b --grep 'NVRM|Xid'",),
        confirm=_CONFIRM,
    ),
    _REBOOT_THEN,
    _RESEAT,
)
FOR_COPIES: tuple[Remedy, ...] = (
    Remedy(
        Action.NONE,
        "See which copy programs load, and which package each belongs to; one that no package owns is a runfile's.",
        run=(
            "ldconfig -p | grep libnvidia-ml",
            "dpkg -S '*/libnvidia-ml.so.*'    # RHEL: rpm -qf FILE",
            "cat /proc/driver/nvidia/version    # the version to keep",
        ),
        confirm=confirmed_by("driver-cuda.nvml-library"),
    ),
    Remedy(
        Action.INSTALL_PACKAGE,
        "Remove the other version by what installed it (the package, or nvidia-uninstall), and renew the loader's cache.",
        run=("ldconfig",),
        interrupts="what still loads the removed copy",
        confirm=confirmed_by("driver-cuda.nvml-library"),
        then=True,
    ),
)
FOR_QUERIES: tuple[Remedy, ...] = (
    Remedy(
        Action.NONE,
        "Ask again in a minute: a single sensor that fails once may be a passing state, and some boards never answer for one. Go on only "
        "where it stays, or where the recovery action or an Xid says so.",
        run=("nvidia-smi -q | grep -E 'Unknown Error|ERR!|Recovery Action'", "journalctl -k -b --grep 'NVRM: Xid'"),
        confirm=confirmed_by("driver-cuda.queries-answered"),
    ),
    _RESET,
)
OF_RULES: dict[int, tuple[Remedy, ...]] = {
    nvml_errors.NO_PERMISSION: FOR_PERMISSION,
    nvml_errors.OPERATING_SYSTEM: (*FOR_PERMISSION, *FOR_CONTAINER),
    nvml_errors.UNKNOWN: (_COLLECT, *FOR_CONTAINER),
}
"""For codes that a user, a container's device rules or a security module make, when nothing else is known."""
