"""Where the driver's user-space libraries lie: the distributions' directories, and the roots of drivers kept apart from the host's.

Read 2026-11-30. Debian and Ubuntu, Fedora's family and Arch: file lists of libnvidia-ml1, libnvidia-compute-580, nvidia-driver-libs and
nvidia-utils; WSL2: nvidia-container-toolkit, pkg/nvcdi/lib-wsl.go; GPU Operator: NVIDIA/gpu-operator, assets/state-driver; GKE on
Container-Optimized OS: GKE's nccl-rdma-installer (/home/kubernetes/bin/nvidia/lib64) and cos-extensions (/var/lib/nvidia); on Ubuntu nodes
of GKE the same place (GoogleCloudPlatform/container-engine-accelerators#132); NixOS: nixpkgs PR #209505; Bottlerocket:
kmod-*-nvidia.spec (%{_cross_libdir}/nvidia/tesla); Talos: siderolabs/extensions#940 (/usr/local/glibc/usr/lib) and, before 2024-10,
NVIDIA/gpu-operator#1050 (/usr/local/glibc/lib).
"""

LOADER_DIRECTORIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
)
"""Where the loader finds a library by its name alone on the distributions that NVIDIA supports."""

TRUSTED_DIRECTORIES = LOADER_DIRECTORIES[:-1]
"""Of these the loader's own, which it looks into after its cache: those of a distribution's glibc (ld.so(8)); /lib leads to /usr/lib."""

DRIVER_CONTAINER_DIRECTORIES = (
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
)
"""Where a driver container keeps it, on any distribution; the loader needs the whole path."""

DIRECTORIES_OF_SYSTEMS = {
    "cos": ("/home/kubernetes/bin/nvidia/lib64", "/var/lib/nvidia/lib64"),
    "nixos": ("/run/opengl-driver/lib",),
    "talos": ("/usr/local/glibc/usr/lib", "/usr/local/glibc/lib"),
    "bottlerocket": (
        "/x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
        "/aarch64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
    ),
}
"""Where systems that are images keep it, by the ID of os-release(5). A library that lies there counts on any system."""

APART_DIRECTORIES = (
    *DRIVER_CONTAINER_DIRECTORIES,
    *(directory for directories in DIRECTORIES_OF_SYSTEMS.values() for directory in directories),
)
LIBRARY_DIRECTORIES = LOADER_DIRECTORIES + APART_DIRECTORIES
