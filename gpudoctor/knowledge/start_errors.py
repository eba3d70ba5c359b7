"""What engines say when a container does not start for its GPU, and what each sentence means. Read 2026-11-30.

Sources: NVIDIA/libnvidia-container src (nvc.c, nvc_ldcache.c, nvc_mount.c, error_generic.c), NVIDIA/nvidia-container-toolkit v1.20.0
(cmd/nvidia-container-runtime-hook, internal/modifier, internal/config/image), container-device-interface pkg/cdi, moby daemon
(devices.go "could not select device driver", oci_linux.go "error gathering device information"), containerd internal/cri/server
("no runtime for … is configured"), cri-o ("failed to find runtime handler"); the issues named beside each row.
"""

from enum import Enum

from msgspec import Struct

from gpudoctor.verdicts import Action, Remedy


class Whose(str, Enum):
    """Whose fault a failed start tells of."""

    NODE = "node"
    WORKLOAD = "workload"
    ORDER = "order"


class StartError(Struct, frozen=True):
    """One sentence: its form, a regular expression, what it means in words that may quote `{0}`, its first group, and what to do."""

    name: str
    form: str
    means: str
    whose: Whose
    remedies: tuple[Remedy, ...]
    references: tuple[str, ...] = ()


_AGAIN = "start the container again and look at its engine's journal"


def _do(
    action: Action, say: str, *run: str, interrupts: str = "nothing", confirm: str = _AGAIN, then: bool = False
) -> Remedy:
    return Remedy(action, say, run=run, interrupts=interrupts, confirm=confirm, then=then)


_RECREATE = _do(
    Action.CHANGE_WORKLOAD,
    "Create the container anew with a GPU that this node has, or with all of them.",
    "nvidia-smi -L",
    interrupts="this container only",
)
_REGENERATE = _do(
    Action.CHANGE_CONFIG,
    "Write the CDI specification anew for the driver that is loaded.",
    "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml    # toolkit 1.18 and later: systemctl restart nvidia-cdi-refresh",
    confirm="nvidia-ctk cdi list",
)
_TOOLKIT_UPDATE = _do(
    Action.INSTALL_PACKAGE,
    "Install the current NVIDIA Container Toolkit: it no longer runs this step from outside the container.",
    "apt-get install nvidia-container-toolkit    # RHEL: dnf install nvidia-container-toolkit",
    confirm="nvidia-ctk --version",
)
_CDI_MODE = _do(
    Action.CHANGE_CONFIG,
    "Or let the runtime use CDI, which needs no such step.",
    "nvidia-ctk config --in-place --set nvidia-container-runtime.mode=cdi",
)
_PERSIST = _do(
    Action.RESTART_SERVICE,
    "Keep the driver initialised between containers.",
    "systemctl enable --now nvidia-persistenced",
    confirm="nvidia-smi -q -d PERFORMANCE returns within a second",
)
_LDCONFIG = _do(
    Action.CHANGE_CONFIG,
    "Name this distribution's ldconfig in config.toml: /sbin/ldconfig.real on Debian and Ubuntu where it exists, else /sbin/ldconfig.",
    "nvidia-ctk config --in-place --set nvidia-container-cli.ldconfig=@/sbin/ldconfig",
)
_REQUIREMENT = (
    _do(Action.CHANGE_WORKLOAD, "Use an image built for this driver.", interrupts="this container only"),
    _do(
        Action.CHANGE_WORKLOAD,
        "Or, where minor-version compatibility is enough, have the check skipped: NVIDIA_DISABLE_REQUIRE=true, without an S.",
        interrupts="this container only",
    ),
    _do(
        Action.INSTALL_PACKAGE,
        "Or install a driver that provides the CUDA version.",
        interrupts="every GPU workload of the node: the module must be loaded anew",
        confirm="nvidia-smi",
    ),
)
_ROOTLESS = (
    _do(
        Action.CHANGE_CONFIG,
        "Give the GPU by CDI, which needs no rule from outside.",
        "docker run --device nvidia.com/gpu=all …",
    ),
    _do(
        Action.CHANGE_CONFIG,
        "Or, only where every engine of this node is rootless, have the hook leave the rules alone.",
        "nvidia-ctk config --in-place --set nvidia-container-cli.no-cgroups=true",
    ),
)


def _error(
    name: str, form: str, means: str, remedies: tuple[Remedy, ...], *references: str, whose: Whose = Whose.NODE
) -> StartError:
    return StartError(name, form, means, whose, remedies, references)


def _issue(place: str) -> str:
    repository, _, number = place.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


# The more particular stand before the more general: the first that matches a line tells what it means.
ERRORS = (
    _error(
        "driver-not-loaded",
        r"nvml error: driver not loaded",
        "the kernel driver was not loaded at that time",
        (_do(Action.LOAD_MODULE, "Load the driver, and find out why it was not loaded.", "modprobe nvidia"),),
        _issue("NVIDIA/nvidia-docker#1393"),
        whose=Whose.ORDER,
    ),
    _error(
        "version-mismatch",
        r"nvml error: driver/library version mismatch",
        "the loaded driver and its libraries were of different versions",
        (
            _do(
                Action.REBOOT,
                "Reboot, or unload and load the module, so that both are of one version.",
                interrupts="every workload of the node",
                confirm="nvidia-smi",
            ),
        ),
    ),
    _error(
        "library-missing",
        r"load library failed: (libnvidia-ml\.so\.1|libcuda\.so\.1)",
        "the toolkit found no {0} on the host",
        (
            _do(
                Action.INSTALL_PACKAGE,
                "Install the driver's libraries, of the module's version.",
                confirm="ldconfig -p",
            ),
        ),
        _issue("NVIDIA/nvidia-container-toolkit#183"),
    ),
    _error(
        "rpc-timeout",
        r"driver (?:rpc )?error: timed out",
        "the driver took longer to start than nvidia-container-cli waits",
        (
            _PERSIST,
            _do(
                Action.INSPECT_HARDWARE,
                "Time the driver, and look for a GPU that holds it up.",
                "time nvidia-smi",
                "dmesg | grep Xid",
            ),
        ),
        _issue("NVIDIA/nvidia-docker#1657"),
    ),
    _error(
        "wsl-no-adapter",
        r"WSL environment detected but no adapters were found",
        "WSL shows no NVIDIA adapter to this distribution",
        (
            _do(
                Action.INSTALL_PACKAGE, "Update NVIDIA's driver in Windows, then WSL.", "wsl --update", "wsl --shutdown"
            ),
        ),
        _issue("NVIDIA/nvidia-container-toolkit#155"),
    ),
    _error(
        "unknown-device",
        r"device error: ([^\s:]+): unknown device|unknown device id: (\S+)",
        "it asked for a GPU that this node does not have: {0}",
        (_RECREATE,),
        _issue("NVIDIA/k8s-device-plugin#373"),
        whose=Whose.WORKLOAD,
    ),
    _error(
        "unknown-device",
        r"failed to get device handle from (UUID|index)",
        "it asked for a GPU by its {0} that this node does not have",
        (_RECREATE,),
        whose=Whose.WORKLOAD,
    ),
    _error(
        "require-cuda",
        r"unsatisfied condition: ([^,:\"\\]+)",
        "its image demands {0}, which the driver does not provide",
        _REQUIREMENT,
        _issue("NVIDIA/nvidia-container-toolkit#152"),
        whose=Whose.WORKLOAD,
    ),
    _error(
        "capabilities",
        r"unsupported capabilities found in '([^']*)'",
        "NVIDIA_DRIVER_CAPABILITIES={0} names what there is not",
        (
            _do(
                Action.CHANGE_WORKLOAD,
                "Correct the variable: compute, utility, graphics, video, display, compat32, ngx, or all.",
            ),
        ),
        whose=Whose.WORKLOAD,
    ),
    _error(
        "ldconfig-killed",
        r"process (\S*ldconfig\S*) terminated with signal (?:9|31)\b",
        "the sandbox of nvidia-container-cli killed the host's {0}: it is too old for this C library",
        (_TOOLKIT_UPDATE, _CDI_MODE),
        _issue("NVIDIA/k8s-device-plugin#1400"),
    ),
    _error(
        "ldconfig",
        r"ldcache error: (?:open failed: |process )(\S*ldconfig\S*)|could not start (\S*ldconfig)",
        "the step that runs {0} in the container failed",
        (_LDCONFIG, _TOOLKIT_UPDATE),
        _issue("NVIDIA/nvidia-container-toolkit#147"),
    ),
    _error(
        "device-rules",
        r"failed to add device rules: .*?"
        r"(bpf_prog_query\(BPF_CGROUP_DEVICE\) failed[^\"\\]*|load program: [^\"\\]*|failed to call [^\"\\]*|$)",
        "nvidia-container-cli may not change the device rules of the container: {0}",
        _ROOTLESS,
        _issue("NVIDIA/libnvidia-container#154"),
    ),
    _error(
        "mount-namespace",
        r"namespace association failed: (\S+?):? ",
        "nvidia-container-cli may not enter the container's mount namespace {0}",
        (_TOOLKIT_UPDATE, _CDI_MODE),
        _issue("NVIDIA/nvidia-container-toolkit#296"),
    ),
    _error(
        "pci-domain",
        r"mount error: .*proc/driver/nvidia/gpus/(\S+?): no such file or directory",
        "libnvidia-container looked for a GPU by a shortened PCI domain: {0}",
        (_TOOLKIT_UPDATE,),
        _issue("NVIDIA/nvidia-docker#1316"),
    ),
    _error(
        "program-gone",
        r"(?:fork/exec |exec: \\?\")([^\s\"\\:]*nvidia[^\s\"\\:]*)[\"\\: ].{0,40}(?:no such file or directory|executable file not found)",
        "{0} is configured and is not there",
        (
            _do(
                Action.INSTALL_PACKAGE,
                "Install the NVIDIA Container Toolkit again, or take its runtime out of the engine's configuration.",
                "apt-get install nvidia-container-toolkit    # RHEL: dnf install nvidia-container-toolkit",
            ),
        ),
        _issue("NVIDIA/gpu-operator#575"),
    ),
    _error(
        "no-gpu-driver",
        r"could not select device driver \\?\"(?:nvidia)?\\?\" with capabilities: \[\[\S*gpu",
        "dockerd did not find NVIDIA's hook when it started",
        (
            _do(
                Action.RESTART_SERVICE,
                "Where the toolkit is installed, restart Docker: it looks for the hook only when it starts.",
                "systemctl restart docker",
                interrupts="every running container, unless live-restore is on",
            ),
        ),
        _issue("NVIDIA/nvidia-docker#1637"),
    ),
    _error(
        "cdi-not-ready",
        r"could not select device driver \\?\"cdi\\?\"",
        "Docker had no CDI device to give when it started",
        (_REGENERATE,),
        whose=Whose.ORDER,
    ),
    _error(
        "node-missing",
        r"error gathering device information while adding custom device \\?\"(/dev/nvidia[^\s\"\\]*)",
        "{0} did not exist yet",
        (
            _do(
                Action.LOAD_MODULE,
                "Have the nodes made before engines start, then start the container again.",
                "nvidia-modprobe -c 0 -u",
                confirm="ls -l /dev/nvidia0 /dev/nvidia-uvm",
            ),
        ),
        _issue("NVIDIA/nvidia-docker#526"),
        whose=Whose.ORDER,
    ),
    _error(
        "cdi-vendor",
        r"failed to discover GPU vendor from CDI|CDI spec not found",
        "Docker found no CDI specification of NVIDIA's",
        (_REGENERATE,),
        _issue("NVIDIA/nvidia-container-toolkit#1743"),
    ),
    _error(
        "cdi-gids",
        r"unknown field \\?\"(\w+)\\?\"",
        "the engine's CDI does not know the field {0}: the specification is newer than the engine",
        (
            _do(
                Action.CHANGE_CONFIG,
                "Have the specification written without it.",
                "nvidia-ctk cdi generate --feature-flag no-additional-gids-for-device-nodes --output=/var/run/cdi/nvidia.yaml",
                confirm="nvidia-ctk cdi list",
            ),
        ),
        _issue("NVIDIA/nvidia-container-toolkit#1860"),
    ),
    _error(
        "cdi-unresolvable",
        r"unresolvable CDI devices ((?:[\w.-]*nvidia\.com/)\S+?)[:.\"\\\s,]",
        "no CDI specification names {0}",
        (_REGENERATE, _RECREATE),
        _issue("NVIDIA/nvidia-container-toolkit#146"),
    ),
    _error(
        "no-handler",
        r"no runtime for \\?\"(nvidia[\w-]*)\\?\" is configured|failed to find runtime handler (nvidia[\w-]*)",
        "the engine knows no runtime {0}",
        (
            _do(
                Action.CHANGE_CONFIG,
                "Have the toolkit write its runtime into the engine's configuration, then restart the engine.",
                "nvidia-ctk runtime configure --runtime=containerd    # or crio",
                interrupts="with the restart of containerd: no running container",
            ),
        ),
        _issue("NVIDIA/k8s-device-plugin#479"),
    ),
    _error(
        "unknown-runtime",
        r"(?:unknown or invalid runtime name: |Unknown runtime specified )(nvidia[\w-]*)",
        "the running dockerd knows no runtime {0}",
        (
            _do(
                Action.CHANGE_CONFIG,
                "Have the toolkit write its runtime into daemon.json, then restart Docker.",
                "nvidia-ctk runtime configure --runtime=docker",
                "systemctl restart docker",
                interrupts="every running container, unless live-restore is on",
            ),
        ),
        _issue("NVIDIA/nvidia-container-toolkit#150"),
    ),
    _error(
        "stale-mount",
        r"error mounting \\?\"(\S*(?:nvidia|libcuda|libEGL|libGL)\S*?\.so\.[\d.]+)\\?\"",
        "the CDI specification names {0}, which the host does not have",
        (_REGENERATE,),
    ),
    _error(
        "nvml-unknown",
        r"initialization error: nvml error: ([^:\"\\]+)",
        "NVML answered the toolkit: {0}",
        (
            _do(
                Action.INSPECT_HARDWARE,
                "See what NVML answers on the host.",
                "nvidia-smi",
                "dmesg | grep -E 'NVRM|Xid'",
            ),
        ),
    ),
    _error(
        "other",
        r"(nvidia-container-cli: [^\"\\]+|failed to create the automatic CDI modifier: [^\"\\]+)",
        "{0}",
        (_do(Action.INSPECT_HARDWARE, "Have the toolkit tell more.", "nvidia-container-cli -k -d /dev/stderr info"),),
    ),
)
"""What a line of an engine's journal can tell."""

ANCHOR = (
    r"nvidia-container|nvidia/toolkit|unsupported capabilities found|unsatisfied condition|CDI dev|CDI mod|CDI spec|GPU vendor from CDI|"
    r"could not select device driver|gathering device information|runtime name: nvidia|specified nvidia|runtime for|"
    r"runtime handler nvidia|error mounting"
)
"""What every line has that one of them can match."""
