"""What one CDI spec names of a node: the sources of its mounts, its hooks' programs, its device nodes, and its driver's version."""

from collections.abc import Iterable

from gpudoctor.facts.cdi_spec import CdiNode, CdiSpec
from gpudoctor.facts.raw import decimal
from gpudoctor.patterns import pattern

IN_CONTAINER = "startContainer"
"""Hooks of this name are looked for inside the container (runtime-spec config.md, "POSIX-platform Hooks")."""

_OWN_VERSION = pattern(
    r"/(?:lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler|nvidia-cfg|nvidia-opencl|cudadebugger|nvidia-allocator|EGL_nvidia|GLX_nvidia)\.so\."
    r"|firmware/nvidia/)(\d{3,4}\.\d+(?:\.\d+)?)(?:/|$)"
)
"""Files that carry the driver's version; libnvidia-egl-gbm.so.1.1.2 and others have one of their own."""
_HOST_VERSION = "--host-driver-version="


def mounted(spec: CdiSpec) -> dict[str, int]:
    """What is mounted of the host, each path once, with its first line."""
    found: dict[str, int] = {}
    for mount in spec.mounts:
        if mount.binds:
            found.setdefault(mount.host_path, mount.place.line)
    return found


def hook_programs(spec: CdiSpec) -> dict[str, int]:
    """The hooks' programs that lie on the host, each path once, with its first line."""
    found: dict[str, int] = {}
    for hook in spec.hooks:
        if hook.name != IN_CONTAINER and hook.path.startswith("/"):
            found.setdefault(hook.path, hook.place.line)
    return found


def distinct_nodes(spec: CdiSpec) -> Iterable[CdiNode]:
    """Of nodes that are named in several devices the first with the same numbers."""
    return {(node.source, node.numbers, node.type): node for node in reversed(spec.nodes)}.values()


def driver_version(spec: CdiSpec) -> str:
    """The driver's version that most of the files carry, or a hook is told; "" where none does."""
    versions = [found[1] for path in mounted(spec) if (found := _OWN_VERSION.search(path)) is not None]
    if not versions:
        told = (
            word.removeprefix(_HOST_VERSION)
            for hook in spec.hooks
            for word in hook.args
            if word.startswith(_HOST_VERSION)
        )
        versions = [word for word in told if decimal(word.partition(".")[0]) is not None]
    return max(sorted(set(versions)), key=versions.count, default="")
