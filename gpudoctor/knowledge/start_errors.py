"""What engines say when a container does not start for its GPU, and what each sentence means. Read 2026-11-30.

Sources: NVIDIA/libnvidia-container src (nvc.c, nvc_ldcache.c, nvc_mount.c, error_generic.c; utils.c: "file creation failed: "),
NVIDIA/nvidia-container-toolkit v1.20.0 (cmd/nvidia-container-runtime-hook, internal/modifier, internal/config/image),
container-device-interface pkg/cdi, moby daemon (errors.go "could not select device driver", devices_nvidia_linux.go "no CDI device driver
registered", oci_linux.go "error gathering device information"), containerd internal/cri/server ("no runtime for … is configured"), cri-o
("failed to find runtime handler"), crun src/libcrun/container.c, do_hooks ("error executing hook `%s` (exit code: %d)", which leaves the
hook's own words out); the issues named beside each row.
"""

from enum import Enum

from msgspec import Struct

from gpudoctor.knowledge.start_remedies import (
    AGAIN_NOW,
    BY_POD,
    CDI_HOOK,
    CDI_MODE,
    CONTAINER_MEMORY,
    DISK,
    DOCKER_AGAIN,
    HANDLER,
    INSTALL,
    LDCONFIG,
    NO_GIDS,
    NODE_MEMORY,
    NODES,
    OPERATOR,
    PERSIST,
    RECREATE,
    REGENERATE,
    REQUIREMENT,
    ROOTLESS,
    RUNTIME,
    TIME_DRIVER,
    TOOLKIT_UPDATE,
    UNLISTED,
    VARIABLE,
    do,
)
from gpudoctor.verdicts import Action, Remedy


class Whose(str, Enum):
    """Whose fault a failed start tells of."""

    NODE = "node"
    WORKLOAD = "workload"
    ORDER = "order"


class Beside(str, Enum):
    """What else of a node bears on an error, looked up in facts/start_circumstances.py only where such a failure is told."""

    MEMORY = "whether the kernel killed ldconfig for want of memory"
    GPUS = "the GPUs that there are"
    PERSISTENCE = "whether the driver stays initialised"
    XIDS = "what the driver said of its GPUs"
    VERSIONS = "the toolkit and the runtime that are installed"
    LISTED = "how the driver lists the GPU"
    PROGRAM = "whether the program is there now"


class StartError(Struct, frozen=True):
    """One sentence: its form, a regular expression, what it means in words that may quote `{0}`, its first group, and what to do.

    What is looked up `beside` it says more, or shows that it is another error: one without a form, which no sentence tells.
    """

    name: str
    form: str
    means: str
    whose: Whose
    remedies: tuple[Remedy, ...]
    references: tuple[str, ...] = ()
    beside: tuple[Beside, ...] = ()


def _error(
    name: str,
    form: str,
    means: str,
    remedies: tuple[Remedy, ...],
    *references: str,
    whose: Whose = Whose.NODE,
    beside: tuple[Beside, ...] = (),
) -> StartError:
    return StartError(name, form, means, whose, remedies, references, beside)


def _issue(place: str) -> str:
    repository, _, number = place.partition("#")
    return f"https://github.com/{repository}/issues/{number}"


_GONE = r"(?:fork/exec |exec: \\?\")({})[\"\\: ].{{0,40}}(?:no such file or directory|executable file not found)"

# The more particular stand before the more general: the first that matches a line tells what it means.
ERRORS = (
    _error(
        "driver-not-loaded",
        r"nvml error: driver not loaded",
        "the kernel driver was not loaded at that time",
        (do(Action.LOAD_MODULE, "Load the driver, and find out why it was not loaded.", "modprobe nvidia"),),
        _issue("NVIDIA/nvidia-docker#1393"),
        whose=Whose.ORDER,
    ),
    _error(
        "version-mismatch",
        r"nvml error: driver/library version mismatch",
        "the loaded driver and its libraries were of different versions",
        (
            do(
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
            do(
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
        (PERSIST, TIME_DRIVER),
        _issue("NVIDIA/nvidia-docker#1657"),
        beside=(Beside.PERSISTENCE, Beside.XIDS),
    ),
    _error(
        "wsl-no-adapter",
        r"WSL environment detected but no adapters were found",
        "WSL shows no NVIDIA adapter to this distribution",
        (do(Action.INSTALL_PACKAGE, "Update NVIDIA's driver in Windows, then WSL.", "wsl --update", "wsl --shutdown"),),
        _issue("NVIDIA/nvidia-container-toolkit#155"),
    ),
    _error(
        "unknown-device",
        r"device error: ([^\s:]+): unknown device|unknown device id: (\S+)",
        "it asked for a GPU that this node does not have: {0}",
        (RECREATE, BY_POD),
        _issue("NVIDIA/k8s-device-plugin#373"),
        whose=Whose.WORKLOAD,
        beside=(Beside.GPUS,),
    ),
    _error(
        "unknown-device",
        r"failed to get device handle from (UUID|index)",
        "it asked for a GPU by its {0} that this node does not have",
        (RECREATE, BY_POD),
        whose=Whose.WORKLOAD,
        beside=(Beside.GPUS,),
    ),
    _error(
        "require-cuda",
        r"unsatisfied condition: ([^,:\"\\]+)",
        "its image demands {0}, which the driver does not provide",
        REQUIREMENT,
        _issue("NVIDIA/nvidia-container-toolkit#152"),
        whose=Whose.WORKLOAD,
    ),
    _error(
        "capabilities",
        r"unsupported capabilities found in '([^']*)'",
        "NVIDIA_DRIVER_CAPABILITIES={0} names what there is not",
        (
            do(
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
        (TOOLKIT_UPDATE, CDI_MODE),
        _issue("NVIDIA/k8s-device-plugin#1400"),
        beside=(Beside.MEMORY, Beside.VERSIONS),
    ),
    _error(
        "ldconfig",
        r"ldcache error: (?:open failed: |process )(\S*ldconfig\S*)|could not start (\S*ldconfig)",
        "the step that runs {0} in the container failed",
        (LDCONFIG, TOOLKIT_UPDATE),
        _issue("NVIDIA/nvidia-container-toolkit#147"),
    ),
    _error(
        "device-rules",
        r"failed to add device rules: .*?"
        r"(bpf_prog_query\(BPF_CGROUP_DEVICE\) failed[^\"\\]*|load program: [^\"\\]*|failed to call [^\"\\]*|$)",
        "nvidia-container-cli may not change the device rules of the container: {0}",
        ROOTLESS,
        _issue("NVIDIA/libnvidia-container#154"),
    ),
    # A kernel that has no more control groups has the same errno, for a path below /sys.
    _error(
        "disk-full",
        r"^(?!.*(?i:\bpull|register layer|unpack|extract)).*(?:nvidia-container-cli|nvidia-container-runtime|nvidia-cdi-hook|nvidia-ctk|"
        r"CDI dev|CDI mod|CDI spec).*?(?:(?<![\w/.-])(/(?!sys/)[^\s:\"'\\]+)\\*[\"']?|\b(?:error|failed)): no space left on device",
        "a file system is full, which is no fault of the GPU's: there was no space left for {0}",
        DISK,
        _issue("NVIDIA/nvidia-docker#1357"),
    ),
    _error(
        "variable-refused",
        r"insufficient privileges to read device list from (NVIDIA_VISIBLE_DEVICES)",
        "it only sets {0}, which this node's toolkit accepts of privileged containers alone (accept-nvidia-visible-devices-envvar-when-"
        "unprivileged = false)",
        VARIABLE,
        _issue("NVIDIA/k8s-device-plugin#203"),
        whose=Whose.WORKLOAD,
    ),
    _error(
        "cdi-hook",
        r"error executing hook `?([^\s`]*(?:nvidia-cdi-hook|nvidia-ctk))`? \(exit code: \d+\)",
        "{0} failed, and crun leaves out what it said: in a user namespace that maps no root it may not write in the container; else the "
        "specification is of another toolkit",
        CDI_HOOK,
        _issue("NVIDIA/nvidia-container-toolkit#648"),
        "https://github.com/containers/podman/issues/23016",
        beside=(Beside.VERSIONS,),
    ),
    _error(
        "hook",
        r"error executing hook `?([^\s`]*nvidia-container-(?:runtime-hook|toolkit))`? \(exit code: \d+\)",
        "{0} failed, and crun leaves out what it said: without root it may not change device rules; else the driver did not answer",
        (*ROOTLESS, TIME_DRIVER),
        _issue("NVIDIA/nvidia-container-toolkit#46"),
        beside=(Beside.VERSIONS,),
    ),
    _error(
        "mount-namespace",
        r"namespace association failed: (\S+?):? ",
        "nvidia-container-cli may not enter the container's mount namespace {0}",
        (TOOLKIT_UPDATE, CDI_MODE),
        _issue("NVIDIA/nvidia-container-toolkit#296"),
        beside=(Beside.VERSIONS,),
    ),
    _error(
        "pci-domain",
        r"mount error: .*proc/driver/nvidia/gpus/(\S+?): no such file or directory",
        "libnvidia-container looked for a GPU by a shortened PCI domain: {0}",
        (TOOLKIT_UPDATE,),
        _issue("NVIDIA/nvidia-docker#1316"),
        beside=(Beside.LISTED, Beside.VERSIONS),
    ),
    # The GPU Operator installs below INSTALL_DIR/toolkit, else /usr/local/nvidia (cmd/nvidia-ctk-installer); packages never do.
    _error(
        "program-gone",
        _GONE.format(r"/[^\s\"\\:]*/toolkit/nvidia[^\s\"\\:]*"),
        "{0}, the GPU Operator's, is configured and is not there",
        OPERATOR,
        _issue("NVIDIA/gpu-operator#575"),
        beside=(Beside.PROGRAM,),
    ),
    _error(
        "program-gone",
        _GONE.format(r"[^\s\"\\:]*nvidia[^\s\"\\:]*"),
        "{0} is configured and is not there",
        INSTALL,
        _issue("NVIDIA/gpu-operator#575"),
        beside=(Beside.PROGRAM,),
    ),
    # dockerd has a driver of that name as soon as CDI is on, whatever specifications there are (cdi.go, RegisterCDIDriver).
    _error(
        "cdi-not-ready",
        r"could not select device driver \\*\"cdi\\*\"|no CDI device driver registered",
        "CDI was off in Docker when it started",
        (REGENERATE,),
        whose=Whose.ORDER,
    ),
    _error(
        "no-gpu-driver",
        r"could not select device driver \\?\"(?:nvidia)?\\?\" with capabilities: \[\[\S*gpu",
        "dockerd did not find NVIDIA's hook when it started",
        DOCKER_AGAIN,
        _issue("NVIDIA/nvidia-docker#1637"),
    ),
    _error(
        "node-missing",
        r"error gathering device information while adding custom device \\?\"(/dev/nvidia[^\s\"\\]*)",
        "{0} did not exist yet",
        NODES,
        _issue("NVIDIA/nvidia-docker#526"),
        whose=Whose.ORDER,
    ),
    _error(
        "cdi-vendor",
        r"failed to discover GPU vendor from CDI|CDI spec not found",
        "Docker found no CDI specification of NVIDIA's",
        (REGENERATE,),
        _issue("NVIDIA/nvidia-container-toolkit#1743"),
    ),
    _error(
        "cdi-gids",
        r"unknown field \\?\"(\w+)\\?\"",
        "the engine's CDI does not know the field {0}: the specification is newer than the engine",
        NO_GIDS,
        _issue("NVIDIA/nvidia-container-toolkit#1860"),
    ),
    _error(
        "cdi-unresolvable",
        r"unresolvable CDI devices ((?:[\w.-]*nvidia\.com/)\S+?)[:.\"\\\s,]",
        "no CDI specification names {0}",
        (REGENERATE, RECREATE),
        _issue("NVIDIA/nvidia-container-toolkit#146"),
    ),
    _error(
        "no-handler",
        r"no runtime for \\?\"(nvidia[\w-]*)\\?\" is configured|failed to find runtime handler (nvidia[\w-]*)",
        "the engine knows no runtime {0}",
        HANDLER,
        _issue("NVIDIA/k8s-device-plugin#479"),
    ),
    _error(
        "unknown-runtime",
        r"(?:unknown or invalid runtime name: |Unknown runtime specified )(nvidia[\w-]*)",
        "the running dockerd knows no runtime {0}",
        RUNTIME,
        _issue("NVIDIA/nvidia-container-toolkit#150"),
    ),
    _error(
        "stale-mount",
        r"error mounting \\?\"(\S*(?:nvidia|libcuda|libEGL|libGL)\S*?\.so\.[\d.]+)\\?\"",
        "the CDI specification names {0}, which the host does not have",
        (REGENERATE,),
    ),
    _error(
        "nvml-unknown",
        r"initialization error: nvml error: ([^:\"\\]+)",
        "NVML answered the toolkit: {0}",
        (
            do(
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
        (do(Action.INSPECT_HARDWARE, "Have the toolkit tell more.", "nvidia-container-cli -k -d /dev/stderr info"),),
    ),
)
"""What a line of an engine's journal can tell."""

ANCHOR = (
    r"nvidia-container|nvidia/toolkit|unsupported capabilities found|unsatisfied condition|CDI dev|CDI mod|CDI spec|GPU vendor from CDI|"
    r"could not select device driver|gathering device information|runtime name: nvidia|specified nvidia|runtime for|"
    r"runtime handler nvidia|error mounting|executing hook|device list from NVIDIA"
)
"""What every line has that one of them can match."""


# What facts show where a sentence tells of another error ------------------------------------------------------------

CONTAINER_OUT_OF_MEMORY = _error(
    "container-out-of-memory",
    "",
    "the kernel killed the host's {0} for want of memory, within the limit of the container itself",
    CONTAINER_MEMORY,
    whose=Whose.WORKLOAD,
)
OUT_OF_MEMORY = _error("out-of-memory", "", "the kernel killed the host's {0} for want of memory", NODE_MEMORY)
PERSISTENT = _error(
    "rpc-timeout",
    "",
    "the driver took longer to answer than nvidia-container-cli waits",
    (TIME_DRIVER,),
    _issue("NVIDIA/nvidia-docker#1657"),
)
GPU_BACK = _error(
    "unknown-device",
    "",
    "it asked for a GPU that this node did not have then: {0}",
    (AGAIN_NOW,),
    whose=Whose.WORKLOAD,
)
UNLISTED_GPU = _error("gpu-unlisted", "", "the driver did not list the GPU {0} that NVML named", UNLISTED)
