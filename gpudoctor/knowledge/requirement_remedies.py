"""What to do about images that require another driver, and about driver capabilities that do not exist.

Sources: NVIDIA/cloud-native-docs container-toolkit/docker-specialized.md; NVIDIA/nvidia-container-toolkit @d34b3046758c
internal/config/image/capabilities.go and cmd/nvidia-container-runtime-hook/container_config.go; knowledge/cuda_compatibility.py.
"""

import re

from gpudoctor.knowledge.cuda_compatibility import PACKAGES, numbers
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Action, Remedy

REQUIREMENTS = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
CAPABILITIES = ("compute", "compat32", "graphics", "utility", "video", "display", "ngx")
"""SupportedDriverCapabilities of the toolkit; besides them `all`."""

_ANEW = "this container: it must be created anew"
_MET, _KNOWN = "gpudoctor run --check workload.requirements-met", "gpudoctor run --check workload.capabilities-known"
_CUDA = pattern(r"cuda>=?(\d{1,3}(?:\.\d{1,3})?)", re.IGNORECASE)
_AT_LEAST = pattern(r"(?:cuda|driver)>=?[0-9.]+", re.IGNORECASE)
_MINOR_SINCE = 11
"""The first CUDA whose minor versions work on a driver of an earlier one (CUDA Compatibility, "Minor Version Compatibility")."""


def for_requirement(condition: str, cuda: str | None) -> tuple[Remedy, ...]:
    """An older image, a newer driver, or, where CUDA's minor versions work together, a word that this is enough."""
    if _AT_LEAST.fullmatch(condition) is None:
        return (_another_image(),)
    wanted = _CUDA.match(condition)
    branch = branch_for(wanted[1]) if wanted is not None else None
    drivers = f"of branch {branch} or later" if branch is not None else "that meets it"
    steps = [
        Remedy(
            Action.CHANGE_WORKLOAD,
            f"Use an image made for an earlier CUDA{f', {cuda} or older' if cuda else ''}.",
            interrupts=_ANEW,
            confirm=_MET,
        )
    ]
    if wanted is not None and cuda is not None and _same_major(wanted[1], cuda):
        steps.append(
            Remedy(
                Action.CHANGE_WORKLOAD,
                "Or set NVIDIA_DISABLE_REQUIRE=true: within one major version of CUDA programs run on an older driver, except for PTX "
                "that must be compiled by it and features that only the newer driver has.",
                run=("docker run -e NVIDIA_DISABLE_REQUIRE=true …",),
                interrupts=_ANEW,
                confirm=_MET,
            )
        )
    steps.append(
        Remedy(
            Action.INSTALL_PACKAGE,
            f"Or install a driver {drivers}.",
            interrupts="every process that uses a GPU of this node, until the new driver is loaded",
            confirm=_MET,
        )
    )
    return tuple(steps)


def _same_major(one: str, other: str) -> bool:
    return numbers(one)[:1] == numbers(other)[:1] >= (_MINOR_SINCE,)


def _another_image() -> Remedy:
    """For what no newer driver meets: another GPU, an older driver."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Use an image that allows this driver and these GPUs, or let it see only GPUs that meet the condition.",
        interrupts=_ANEW,
        confirm=_MET,
    )


def branch_for(cuda: str) -> int | None:
    """The first driver branch that offers a CUDA version, None where the table does not tell."""
    wanted = (*numbers(cuda), 0, 0)[:2]
    return next((branch for branch, offered in sorted(PACKAGES.items()) if numbers(offered)[:2] >= wanted), None)


def spell_requirement() -> Remedy:
    """For what no evaluator reads."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Write each condition as cuda, driver, arch or brand, a comparison and a value, with a comma for and, a blank for or.",
        interrupts=_ANEW,
        confirm=_MET,
    )


def known_capabilities() -> Remedy:
    """For a slip of the pen."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        f"Name capabilities that there are ({', '.join(CAPABILITIES)}), or all.",
        run=("docker run -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …",),
        interrupts=_ANEW,
        confirm=_KNOWN,
    )


def handed_out() -> tuple[Remedy, ...]:
    """For a node that was told to hand out less."""
    return (
        Remedy(
            Action.CHANGE_WORKLOAD,
            "Drop the capability, if the container does without it.",
            interrupts=_ANEW,
            confirm=_KNOWN,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Or let the toolkit hand it out again: supported-driver-capabilities in its config.toml names all by default.",
            run=("grep -n supported-driver-capabilities /etc/nvidia-container-runtime/config.toml",),
            interrupts="nothing that runs: containers started afterwards get it",
            confirm=_KNOWN,
        ),
    )


def with_compute() -> Remedy:
    """For CUDA without libcuda."""
    return Remedy(
        Action.CHANGE_WORKLOAD,
        "Add compute, or unset the variable, which then means compute and utility.",
        run=("docker run -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …",),
        interrupts=_ANEW,
        confirm=_KNOWN,
    )
