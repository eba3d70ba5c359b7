"""Which CDI library reads which spec, and which engine has which library.

Libraries: the tags v0.3.0 to v1.1.0 of cncf-tags/container-device-interface, read 2026-11-30 (specs-go/config.go, specs-go/version.go or
pkg/cdi/version.go, pkg/cdi/spec.go, pkg/cdi/qualified-device.go, pkg/parser/parser.go). Engines: go.mod (moby: vendor.mod) at each release
tag of containers/podman up to v5.8.2, moby/moby up to v29, containerd/containerd up to v2.3.4, cri-o/cri-o up to v1.36.3 and
NVIDIA/nvidia-container-toolkit up to v1.20.0, read the same day. A distribution may build a package with a newer library.
"""

from typing import TypeAlias

from msgspec import Struct

Release: TypeAlias = tuple[int, ...]

NEWEST: Release = (1, 1, 0)
"""The newest library that is known here: what it refuses, every engine refuses."""

SPEC_VERSIONS: dict[str, Release] = {
    "0.1.0": (0, 3, 0),
    "0.2.0": (0, 3, 0),
    "0.3.0": (0, 3, 0),
    "0.4.0": (0, 4, 0),
    "0.5.0": (0, 5, 0),
    "0.6.0": (0, 6, 0),
    "0.7.0": (0, 7, 0),
    "0.8.0": (0, 8, 0),
    "1.0.0": (1, 0, 0),
    "1.1.0": (1, 1, 0),
}
"""The versions of the specification, and the library from which on each is valid."""


class Feature(Struct, frozen=True):
    """Something a spec can hold: the field, the version of specification and library that brought it, and the one that dropped it."""

    field: str
    since: Release = (0, 3, 0)
    until: Release | None = None
    words: str = ""

    @property
    def version(self) -> str:
        """The cdiVersion that a spec with it must state at least."""
        return ".".join(map(str, self.since))


MOUNT_TYPE = Feature("type", (0, 4, 0), words="a mount's type")
HOST_PATH = Feature("hostPath", (0, 5, 0), words="a device node's hostPath")
DIGIT_NAME = Feature("name", (0, 5, 0), words="a device name that begins with a digit")
ANNOTATIONS = Feature("annotations", (0, 6, 0), words="annotations")
DOTTED_CLASS = Feature("kind", (0, 6, 0), words="a dot in the class of a kind")
INTEL_RDT = Feature("intelRdt", (0, 7, 0), words="intelRdt")
ADDITIONAL_GIDS = Feature("additionalGids", (0, 7, 0), words="additionalGids")
ENABLE_CMT = Feature("enableCMT", (0, 7, 0), until=(1, 1, 0), words="enableCMT")
ENABLE_MBM = Feature("enableMBM", (0, 7, 0), until=(1, 1, 0), words="enableMBM")
NET_DEVICES = Feature("netDevices", (1, 1, 0), words="netDevices")
SCHEMATA = Feature("schemata", (1, 1, 0), words="intelRdt's schemata")
ENABLE_MONITORING = Feature("enableMonitoring", (1, 1, 0), words="intelRdt's enableMonitoring")

MINIMUM_CHECKED_SINCE: Release = (0, 5, 4)
"""From here on a spec must state a version as new as what it holds, and may write it with a leading v (MinimumRequiredVersion)."""
NO_DEVICES_SINCE: Release = (1, 0, 0)
"""From here on a spec without devices is invalid."""


class Built(Struct, frozen=True):
    """From this release of an engine on, this library."""

    since: Release
    library: Release


ENGINES: dict[str, tuple[Built, ...]] = {
    "podman": (
        Built((4, 1, 0), (0, 4, 0)),
        Built((4, 3, 0), (0, 5, 2)),
        Built((4, 4, 0), (0, 5, 3)),
        Built((4, 5, 0), (0, 5, 4)),
        Built((4, 7, 0), (0, 6, 1)),
        Built((4, 8, 0), (0, 6, 2)),
        Built((5, 1, 0), (0, 7, 2)),
        Built((5, 2, 0), (0, 8, 0)),
        Built((5, 5, 0), (1, 0, 1)),
    ),
    "docker": (
        Built((25, 0, 0), (0, 6, 2)),
        Built((25, 0, 17), (0, 8, 1)),
        Built((26, 0, 0), (0, 6, 2)),
        Built((26, 1, 0), (0, 7, 1)),
        Built((26, 1, 1), (0, 7, 2)),
        Built((27, 4, 0), (0, 8, 0)),
        Built((28, 0, 1), (0, 8, 1)),
        Built((28, 1, 0), (1, 0, 1)),
        Built((29, 2, 0), (1, 1, 0)),
    ),
    "containerd": (
        Built((1, 7, 0), (0, 5, 4)),
        Built((1, 7, 12), (0, 6, 1)),
        Built((1, 7, 13), (0, 6, 2)),
        Built((1, 7, 16), (0, 7, 2)),
        Built((1, 7, 27), (0, 8, 1)),
        Built((2, 0, 0), (0, 8, 0)),
        Built((2, 0, 3), (0, 8, 1)),
        Built((2, 0, 5), (1, 0, 0)),
        Built((2, 1, 0), (1, 0, 1)),
        Built((2, 2, 1), (1, 1, 0)),
    ),
    "cri-o": (
        Built((1, 24, 0), (0, 3, 2)),
        Built((1, 25, 0), (0, 5, 0)),
        Built((1, 25, 2), (0, 5, 2)),
        Built((1, 25, 5), (0, 5, 4)),
        Built((1, 26, 0), (0, 5, 3)),
        Built((1, 27, 0), (0, 5, 4)),
        Built((1, 28, 0), (0, 6, 0)),
        Built((1, 29, 0), (0, 6, 2)),
        Built((1, 30, 0), (0, 7, 2)),
        Built((1, 31, 0), (0, 8, 0)),
        Built((1, 32, 2), (0, 8, 1)),
        Built((1, 33, 0), (1, 0, 1)),
        Built((1, 35, 0), (1, 1, 0)),
    ),
    "nvidia-container-toolkit": (
        Built((1, 12, 0), (0, 5, 4)),
        Built((1, 14, 0), (0, 6, 0)),
        Built((1, 14, 5), (0, 6, 2)),
        Built((1, 15, 0), (0, 7, 1)),
        Built((1, 16, 0), (0, 8, 0)),
        Built((1, 17, 5), (0, 8, 1)),
        Built((1, 18, 0), (1, 0, 1)),
        Built((1, 18, 2), (1, 1, 0)),
    ),
}
"""By the name of the product (facts/software.py). Releases before the first row read no CDI specs, or with a library that has no tag."""

DOCKER_FOLLOWS_LINKS_SINCE: Release = (29, 2, 0)
"""dockerd looks behind a folder that is a symbolic link from here on (moby daemon/cdi.go, RegisterCDIDriver); no library here does."""


def library_of(engine: str, release: Release) -> Release | None:
    """The library of a release of an engine, None where it reads no specs or that is not known."""
    found = [built.library for built in ENGINES.get(engine, ()) if built.since <= release]
    return found[-1] if found else None
