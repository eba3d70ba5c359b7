"""CUDA's error codes as a node sees them: what each means, and which links of the chain can be behind it.

Meanings: the comments of cuda.h and driver_types.h (nvidia-cuda-runtime 13.5.37). 802: "Fabric Manager for NVIDIA NVSwitch Systems";
803 and 804: "CUDA Compatibility"; 805 to 810: "Multi-Process Service"; 34: "CUDA Installation Guide". 999, 304 and 100 in a container that
worked before: NVIDIA/nvidia-container-toolkit#48. A code selects candidates; what the checks find on the lowest link decides.
"""

from msgspec import Struct

from gpudoctor.chain import ORDER, Link
from gpudoctor.verdicts import Action, Remedy


class Suspect(Struct, frozen=True):
    """What can be behind a code: on which link, in words, and which checks look for it. A trace looks where there is no check."""

    link: Link
    say: str
    checks: tuple[str, ...] = ()


class CudaError(Struct, frozen=True):
    """What a code means, and its suspects, the lowest link first; none where it is the program's own affair."""

    means: str
    suspects: tuple[Suspect, ...] = ()


_GONE = Suspect(
    Link.PCIE,
    "a GPU is off the bus, or was never there",
    ("pcie.gpus-present", "pcie.gpu-responds", "pcie.power-state"),
)
_HELD = Suspect(
    Link.KERNEL_MODULE,
    "another driver holds the GPU (vfio-pci, nouveau), or the module could not initialise it",
    ("kernel-module.gpu-bound", "kernel-module.adapter-initialised", "kernel-module.gpu-not-excluded"),
)
_NODES = Suspect(
    Link.DEVICE_NODES,
    "a device node is missing, has old numbers, or may not be opened",
    ("device-nodes.gpu-node", "device-nodes.control-node", "device-nodes.modes"),
)
_UVM = Suspect(
    Link.DEVICE_NODES,
    "/dev/nvidia-uvm is missing or of a module loaded before",
    ("device-nodes.uvm-node", "device-nodes.other-nodes"),
)
_CAPABILITY = Suspect(
    Link.DEVICE_NODES,
    "a node below /dev/nvidia-caps or an IMEX channel is missing or may not be opened",
    ("device-nodes.capability-nodes", "device-nodes.imex-channels"),
)
_VERSIONS = Suspect(
    Link.DRIVER_CUDA,
    "the driver was upgraded and the module not loaded anew, or parts of it are of several versions",
    (
        "driver-cuda.nvml-answers",
        "driver-cuda.module-on-disk",
        "driver-cuda.libraries-match",
        "driver-cuda.one-installation",
    ),
)
_STUCK = Suspect(
    Link.DRIVER_CUDA,
    "the driver hangs or wants the GPU reset",
    ("driver-cuda.no-stuck-task", "driver-cuda.recovery-action"),
)
_TOO_OLD = Suspect(
    Link.DRIVER_CUDA,
    "the driver is older than the CUDA version of the program needs (`gpudoctor compat --cuda X.Y`)",
    ("workload.requirements-met",),
)
_ARCHITECTURE = Suspect(
    Link.DRIVER_CUDA,
    "the program has no code for this GPU's compute capability (`gpudoctor compat --framework NAME`)",
    ("workload.code-for-gpu",),
)
_LOADER = Suspect(
    Link.DRIVER_CUDA,
    "the node's own loader finds a stub, an older copy or no libcuda",
    ("driver-cuda.cuda-library", "driver-cuda.libraries-match"),
)
_COMPAT = Suspect(
    Link.DRIVER_CUDA,
    "libraries for forward compatibility (cuda-compat) come first, and this GPU or this driver may not use them",
    ("driver-cuda.cuda-library", "workload.library-version"),
)
_FABRIC = Suspect(
    Link.FABRIC,
    "NVSwitch systems: nvidia-fabricmanager does not run, is of another version than the driver, or has not finished (nvidia-smi -q, "
    "Fabric State); GB200 and GB300: the IMEX domain",
    ("driver-cuda.daemons-match", "device-nodes.nvswitch-nodes", "device-nodes.imex-channels"),
)
_MIG = Suspect(
    Link.SHARING,
    "MIG is on and there is no compute instance, or its capability nodes are not inside",
    ("device-nodes.capability-nodes",),
)
_MODE = Suspect(
    Link.SHARING, "the compute mode forbids it, or gives the GPU to one process, which has it (nvidia-smi -q)"
)
_MPS = Suspect(
    Link.SHARING,
    "MPS: its control daemon does not run, runs as another user, or the client has another CUDA_MPS_PIPE_DIRECTORY",
)
_LICENCE = Suspect(Link.SHARING, "vGPU: the guest has no licence (nvidia-gridd)")
_RUNTIME = Suspect(
    Link.TOOLKIT,
    "the container was started without the NVIDIA runtime, or its engine could not give it what it asked for",
    (
        "toolkit.docker-runtime",
        "toolkit.docker-loaded",
        "toolkit.containerd-runtime",
        "toolkit.crio-runtime",
        "toolkit.containers-start",
    ),
)
_SPEC = Suspect(
    Link.TOOLKIT,
    "a CDI specification of an earlier driver put old libraries or nodes into the container",
    ("toolkit.cdi-specs-current",),
)
_RULES = Suspect(
    Link.CGROUP,
    "the container's device rules do not let it open a node that is inside, often since a systemd daemon-reload",
    ("cgroup.device-rules",),
)
_WALLS = Suspect(
    Link.TOOLKIT,
    "SELinux, AppArmor or a user namespace denies the node",
    ("toolkit.selinux-allows", "toolkit.apparmor-allows", "toolkit.rootless-set-up"),
)
_INSIDE = Suspect(
    Link.WORKLOAD, "the container lacks the node, or has one with old numbers", ("workload.nodes-inside",)
)
_LIBRARY = Suspect(
    Link.WORKLOAD,
    "the container has libraries of another driver than the loaded one: its image brings them, or it is older than the upgrade",
    ("workload.library-version",),
)
_WORDS = Suspect(
    Link.WORKLOAD,
    "NVIDIA_DRIVER_CAPABILITIES does not name compute: the library was not put into the container",
    ("workload.capabilities-known",),
)
_VISIBLE = Suspect(
    Link.WORKLOAD,
    "CUDA_VISIBLE_DEVICES hides it or counts as on the host: inside of a container numbers begin at 0",
    ("workload.recipes-sound",),
)
_LIMITS = Suspect(Link.WORKLOAD, "limits of the process: locked memory, open files, /dev/shm (`gpudoctor trace`)")
_ILL = Suspect(
    Link.HEALTH,
    "the GPU reported an error: the kernel log has an Xid of that time",
    ("driver-cuda.recovery-action", "pcie.aer-errors"),
)
_PEERS = Suspect(
    Link.TOPOLOGY, "the two GPUs have no path for peers (nvidia-smi topo -p2p r); MIG has none", ("pcie.peer-traffic",)
)
_HELD_MEMORY = Suspect(
    Link.WORKLOAD,
    "other processes hold the GPU's memory, among them dead ones",
    ("workload.no-leftovers",),
)
_ENVIRONMENT = Suspect(Link.WORKLOAD, "a variable switches it off: CUDA_DISABLE_PTX_JIT, CUDA_DISABLE_JIT")
_COUNTERS = Suspect(
    Link.KERNEL_MODULE,
    "profiling counters are for administrators only (NVreg_RestrictProfilingToAdminUsers, ERR_NVGPUCTRPERM)",
)


def _error(means: str, *suspects: Suspect) -> CudaError:
    return CudaError(means, tuple(sorted(suspects, key=lambda one: ORDER[one.link])))


STEPS = (
    Remedy(
        Action.NONE,
        "Ask which of these it is, on the node, of the container or process that gets the error.",
        run=("gpudoctor", "gpudoctor trace docker:NAME    # or pod:NAMESPACE/NAME, pid:N, slurm:JOB"),
        confirm="the first broken step that the trace names",
    ),
)
"""The same for every code: it does not decide."""

_PROGRAMS_OWN = "The program's own affair: the node is not suspected."

ON_A_NODE: dict[int, CudaError] = {
    2: _error(
        "There is not enough memory on the GPU, or, from cuInit and for pinned memory, on the host.",
        _HELD_MEMORY,
        _LIMITS,
    ),
    3: _error(
        "CUDA is not initialised in this process: cuInit failed before and its error was ignored, or the process forked after it. "
        "Look for the first error of the process.",
        _UVM,
        _RULES,
    ),
    34: _error(
        "The program loaded CUDA's stub library, which is for linking only and lies in a toolkit's lib64/stubs: that folder is in "
        "LD_LIBRARY_PATH or ld.so.conf, or the driver's own library is not there.",
        _LOADER,
        _RUNTIME,
        _WORDS,
        _LIBRARY,
    ),
    35: _error(
        "The driver's library is older than the CUDA runtime of the program needs. Programs say the same where there is no library at all.",
        _LOADER,
        _TOO_OLD,
        _RUNTIME,
        _LIBRARY,
        _WORDS,
    ),
    36: _error("The driver does not have this call: it came with a later one.", _TOO_OLD, _LIBRARY),
    46: _error(
        "The GPU is there and cannot be had now: another process has it alone, it may not be used for computing, or it waits for a reset.",
        _STUCK,
        _MODE,
        _MIG,
        _RULES,
        _ILL,
    ),
    100: _error(
        "No GPU is visible to this process.", _GONE, _HELD, _NODES, _MIG, _RUNTIME, _RULES, _WALLS, _INSIDE, _VISIBLE
    ),
    101: _error("There is no GPU of this number for this process.", _GONE, _MIG, _VISIBLE),
    102: _error("The GPU has no licence for computing.", _LICENCE),
    200: _error(
        "The program's code for the GPU cannot be read: a damaged build, or one for another architecture.",
        _ARCHITECTURE,
    ),
    209: _error(
        "The program has no code that runs on this GPU, and none that the driver could translate for it.", _ARCHITECTURE
    ),
    214: _error("The GPU's memory had an error that could not be corrected.", _STUCK, _ILL),
    217: _error("These two GPUs cannot reach each other's memory.", _PEERS, _MIG),
    218: _error(
        "PTX could not be translated: it is not valid, or the compiler that came is not the driver's.",
        _LIBRARY,
        _SPEC,
        _WORDS,
    ),
    220: _error("NVLink had an error that could not be corrected.", _STUCK, _FABRIC, _ILL),
    221: _error(
        "libnvidia-ptxjitcompiler.so.1, which translates PTX, was not found.",
        _VERSIONS,
        _RUNTIME,
        _SPEC,
        _LIBRARY,
        _WORDS,
    ),
    222: _error(
        "The program's PTX is of a newer CUDA version than the driver knows. Minor-version compatibility does not cover PTX.",
        _TOO_OLD,
        _COMPAT,
    ),
    223: _error(
        "Translating PTX is switched off, and the program has nothing else for this GPU.", _ARCHITECTURE, _ENVIRONMENT
    ),
    226: _error(
        "An error was contained to this process (Xid 94): it must be started again, the GPU goes on.", _STUCK, _ILL
    ),
    302: _error("A symbol is missing in a library: libraries of several CUDA versions are mixed.", _LIBRARY),
    303: _error("A library could not be initialised: one that it needs is missing.", _LIBRARY, _WORDS),
    304: _error(
        "A call to the operating system failed inside the driver, mostly an open() of a device node that is denied.",
        _NODES,
        _UVM,
        _RULES,
        _WALLS,
        _INSIDE,
        _LIMITS,
    ),
    500: _error(
        "A name was not found: libraries of several versions are mixed, or the program looks for what is not there.",
        _LIBRARY,
    ),
    700: _error("The program read or wrote memory that is not its own (Xid 31, 13). Hardware is suspected last.", _ILL),
    702: _error("A kernel ran longer than the GPU of a display allows."),
    713: _error("Memory of the host could not be registered.", _LIMITS),
    714: _error("The GPU reports an error of its call stack.", _ILL),
    715: _error(
        "The GPU met an instruction that it does not know: damaged code, or damaged hardware.", _ARCHITECTURE, _ILL
    ),
    719: _error(
        "A kernel ended with an error, mostly of the program; the kernel log tells which (Xid 13, 31, 43, 45).",
        _STUCK,
        _ILL,
    ),
    800: _error("This is not permitted to this user or in this container.", _COUNTERS, _CAPABILITY, _RULES, _WALLS),
    801: _error(
        "This system or GPU cannot do it, for example memory shared over the fabric without IMEX.",
        _CAPABILITY,
        _LICENCE,
    ),
    802: _error(
        "The fabric between the GPUs is not ready: cuInit waits for it on every NVSwitch system.", _VERSIONS, _FABRIC
    ),
    803: _error(
        "The driver's library (libcuda) and the loaded module do not go together.", _VERSIONS, _COMPAT, _SPEC, _LIBRARY
    ),
    804: _error(
        "Libraries for forward compatibility were loaded, and this GPU cannot use them: that is for data-center GPUs. One such GPU among "
        "those visible is enough.",
        _COMPAT,
        _LIBRARY,
    ),
    805: _error("The program cannot reach the MPS control daemon.", _MPS),
    806: _error("The MPS server and its control daemon do not reach each other.", _MPS),
    807: _error("The MPS server is not ready: it recovers from a fault.", _MPS, _ILL),
    808: _error("The MPS server has as many clients as it can have.", _MPS),
    809: _error("The GPU has as many MPS connections as it can have.", _MPS),
    810: _error("The MPS server ended this client: another client made a fault.", _MPS, _ILL),
    919: _error("The fabric is not ready.", _FABRIC),
    999: _error(
        "The driver does not say. From cuInit it is mostly /dev/nvidia-uvm that is missing, old or denied; else an error of the GPU.",
        _NODES,
        _UVM,
        _STUCK,
        _VERSIONS,
        _RULES,
        _INSIDE,
        _ILL,
    ),
}
"""Codes with which a node can have to do."""

OF_PROGRAMS: dict[int, str] = {
    0: "The call did what it was asked.",
    1: "An argument is wrong.",
    4: "CUDA is shutting down: a call after the end of main().",
    201: "There is no valid context.",
    205: "A graphics resource could not be mapped.",
    219: "The graphics context is not valid.",
    300: "The source of a kernel is not valid.",
    301: "A file was not found.",
    400: "A handle is not valid.",
    600: "Work is still running: no error.",
    701: "A kernel asks for more registers, threads or shared memory than there are.",
    704: "Access between these GPUs was enabled before: no error.",
    710: "An assert() failed on the GPU.",
    716: "An address is not aligned.",
    717: "An instruction was given an address of the wrong kind of memory.",
    718: "The program counter left the program.",
    720: "A cooperative kernel is larger than what runs at once.",
    811: "Kernels started by kernels (CDP) are not supported here.",
    812: "Kernels started by kernels (CDP) of two versions are mixed.",
    909: "An operation took longer than it was allowed.",
}
"""What other codes mean in words, where the name alone does not tell."""


def error_of(code: int) -> CudaError:
    """What a code means; of one that only names itself, that it is the program's affair."""
    found = ON_A_NODE.get(code)
    if found is not None:
        return found
    words = OF_PROGRAMS.get(code)
    return CudaError(f"{words} {_PROGRAMS_OWN}" if words else _PROGRAMS_OWN)
