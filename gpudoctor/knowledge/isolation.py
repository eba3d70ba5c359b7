"""What each way of sharing a GPU keeps apart, and what it does not.

Sources, read 2026-11-30: NVIDIA MIG User Guide, "Introduction" and "Concepts" (each GPU instance has memory, cache and faults of its own;
compute instances within one share its memory and engines); docs.nvidia.com/deploy/mps, "Memory Protection", "Error Containment",
"Resource Limits" and "Limited Execution Resource Provisioning" (own address spaces since Volta, a fatal fault ends all clients that share
the GPU, limits only where they are set); k8s-device-plugin README.md, "Shared Access to GPUs" (time-slicing isolates neither memory nor
faults; equal turns for all processes); nvmlComputeMode_t of nvml.h (by default several contexts are allowed); NVIDIA vGPU User Guide,
"vGPU Architecture" (a frame buffer of its own for each vGPU, engines in turns); Documentation/driver-api/vfio.rst (a group has one owner).
"""

from msgspec import Struct


class Isolation(Struct, frozen=True):
    """What is kept apart, in plain words: memory, faults, and turns or parts of the processors."""

    memory: str
    faults: str
    compute: str


NOT_SHARED = Isolation("not shared", "not shared", "not shared")
BY_MIG = Isolation(
    "apart in hardware: each instance has its own",
    "apart in hardware: an error stays within its instance",
    "apart in hardware: each instance has its own slices",
)
BY_MIG_PARTS = Isolation(
    "apart in hardware between GPU instances; compute instances within one share it",
    "apart in hardware between GPU instances; compute instances within one share them",
    "apart in hardware: each instance has its own slices",
)
BY_MPS = Isolation(
    "own address spaces, but no limit: any client may take all of it",
    "none: a fatal fault of one client ends all clients on the GPU",
    "at the same time, and no part is set aside for anybody",
)
MPS_LIMITED = "own address spaces, and a limit for each client"
MPS_PARTLY_LIMITED = "own address spaces; some clients have a limit, others may take all of it"
MPS_PORTIONED = "at the same time, each client limited to a part of the threads"
IN_TURNS = Isolation(
    "none: each may take all of it, and what frameworks set as their fraction binds nobody else",
    "none: all are in one fault domain",
    "in turns, an equal one for each process",
)
VGPU_HOST = Isolation(
    "apart: each virtual machine has its own frame buffer",
    "not known from here: the guests' errors stand in the log of the Virtual GPU Manager",
    "in turns by the vGPU scheduler, or own slices where MIG is on",
)
VGPU_GUEST = Isolation(
    "apart from other virtual machines: the host set a frame buffer aside",
    "not known from within a guest",
    "not known from within a guest: other virtual machines may use the same GPU",
)
GIVEN_AWAY = Isolation(
    "not shared here: one virtual machine at a time has it, and decides within",
    "not shared here: one virtual machine at a time has it",
    "not shared here: one virtual machine at a time has it",
)
