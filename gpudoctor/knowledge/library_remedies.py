"""What to do about driver libraries that are missing, of another version, or not the driver's own, from the safest step up.

Commands: dpkg-query(1), rpm(8), apt-mark(8), ldconfig(8). Cases they come from: NVIDIA/nvidia-docker#1637 (packages of two branches),
https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html (packages for forward compatibility), CUDA Installation Guide
(stubs), Fabric Manager User Guide (its version must be the driver's). Read 2026-11-30.
"""

from gpudoctor.facts.library_files import LibraryFile
from gpudoctor.knowledge.module_remedies import confirmed_by
from gpudoctor.verdicts import Action, Remedy

LOADED = "cat /proc/driver/nvidia/version"


def _owner(*files: str) -> tuple[str, ...]:
    listed = " ".join(files)
    return (
        f"dpkg -S {listed} 2>/dev/null || rpm -qf {listed}    # which package owns it; none for a runfile's or a copy",
    )


def for_library(check_id: str, files: tuple[str, ...], paths: tuple[str, ...]) -> tuple[Remedy, ...]:
    """For libraries of another version than the loaded module's; `files` are they themselves, `paths` the names that lead to them."""
    confirm = confirmed_by(check_id)
    return (
        Remedy(
            Action.NONE,
            "Find out who brought the file, and whether its package is held back.",
            run=(
                LOADED,
                *_owner(*files),
                "apt-mark showhold    # RHEL: dnf versionlock list, and exclude= in /etc/dnf/dnf.conf",
            ),
            confirm=confirm,
        ),
        Remedy(
            Action.INSTALL_PACKAGE,
            "If a package of the driver owns it, take it off hold and install that package in exactly the loaded module's version.",
            run=(
                "apt-mark unhold PACKAGE && apt-get install PACKAGE=VERSION    # RHEL: dnf reinstall PACKAGE, or dnf upgrade PACKAGE",
                "ldconfig",
            ),
            confirm=confirm,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "If no package owns it, it is left over: put it out of the loader's way, with the other files of its version beside it, and "
            "have the cache made anew. A line in /etc/ld.so.conf.d that names only such a directory goes as well. A reboot does not help.",
            run=(
                "mkdir -p /var/tmp/old-driver-libraries",
                f"mv -i {' '.join(dict.fromkeys((*paths, *files)))} /var/tmp/old-driver-libraries/",
                "ldconfig && ldconfig -p | grep -E 'libcuda|libnvidia-(ml|ptx|nvvm)'",
            ),
            interrupts="nothing that runs: programs that start from now on get the driver's own",
            confirm=confirm,
        ),
    )


def out_of_the_loaders_way(check_id: str, library: LibraryFile) -> tuple[Remedy, ...]:
    """For a stub, or a package's for forward compatibility, that the loader gives to every program.

    Its directory is named by the loader's configuration; or somebody linked to it from one that rightly is, which must stay there.
    """
    confirm = confirmed_by(check_id)
    home = library.file.rpartition("/")[0]
    if library.directory == home:
        look = "See which file of the loader's configuration names the directory."
        grep = f"grep -rn {home.rpartition('/')[0]} /etc/ld.so.conf /etc/ld.so.conf.d"
        take = f"Take {home} out of that file, or remove the package that brought both (cuda-compat-X-Y)"
        ready: tuple[str, ...] = ()
    else:
        look, grep = "See who made the link.", f"dpkg -S {library.path} 2>/dev/null || rpm -qf {library.path}"
        take = "Put the link out of the loader's way"
        ready = (f"mv -i {library.path} /var/tmp/",)
    listed = tuple(dict.fromkeys((library.directory, home)))
    return (
        Remedy(
            Action.NONE,
            look,
            run=(grep, f"ls -ld {' '.join(f'{place}/libcuda.so*' for place in listed)}"),
            confirm=confirm,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            f"{take}, and have the loader's cache made anew. Programs that want it can name its directory themselves, in "
            "LD_LIBRARY_PATH; for linking, -L is enough.",
            run=(*ready, "ldconfig", "ldconfig -p | grep libcuda.so.1    # the driver's own must be first"),
            interrupts="nothing that runs: programs that start from now on get the driver's own",
            confirm=confirm,
        ),
    )


def install_cuda(check_id: str) -> tuple[Remedy, ...]:
    """For a node without the driver's libcuda."""
    return (
        Remedy(
            Action.INSTALL_PACKAGE,
            "Install the driver's compute libraries for 64 bits, in exactly the version of the loaded module.",
            run=(
                LOADED,
                "apt-cache policy 'libnvidia-compute-*' libcuda1    # Ubuntu, Debian; RHEL: dnf list 'nvidia-driver-cuda-libs*'",
                "apt-get install --reinstall PACKAGE=VERSION && ldconfig",
            ),
            confirm=confirmed_by(check_id),
        ),
    )


def same_fabric_manager(check_id: str, driver: str) -> tuple[Remedy, ...]:
    """For a fabric manager of another version than the driver's."""
    return (
        Remedy(
            Action.INSTALL_PACKAGE,
            f"Install the fabric manager of exactly {driver}; take its package off hold if it is held.",
            run=(
                "apt-mark showhold    # RHEL: dnf versionlock list",
                "apt-cache policy 'nvidia-fabricmanager*'    # RHEL: dnf --showduplicates list nvidia-fabricmanager",
                f"apt-get install PACKAGE={driver}-REVISION",
            ),
            interrupts="CUDA programs on this node, if one runs after all",
            confirm="nv-fabricmanager --version",
        ),
        *start_fabric_manager(check_id, then=True),
    )


def start_fabric_manager(check_id: str, *, then: bool = False) -> tuple[Remedy, ...]:
    """For one of the right version that does not run; `then` is behind a step that brought it."""
    return (
        Remedy(
            Action.RESTART_SERVICE,
            "Start it, and wait until the fabric's state is Completed.",
            run=("systemctl restart nvidia-fabricmanager", "nvidia-smi -q | grep -A2 Fabric"),
            interrupts="CUDA programs on this node",
            confirm=confirmed_by(check_id),
            then=then,
        ),
    )
