"""Driver releases that are known to go wrong, with where they do: the GPUs, MIG, Kubernetes.

NVIDIA/cloud-native-docs at 52dcb7b8d956 (2026-08-21), gpu-operator/release-notes.rst and platform-support.rst. What they ask of a driver
container is no word on the driver itself: the list of GPUs in open-gpu-kernel-modules has B200 from 570.86.15 on. Its lists of 570,
570.211.01 the last, have no RTX PRO 6000 Blackwell Server Edition; that of 575.57.08 has. Read 2026-11-30.
"""

from msgspec import Struct

from gpudoctor.knowledge.driver_branches import release_of
from gpudoctor.knowledge.version_numbers import numbers

AS_OF = "2026-11-30"
SOURCE = "NVIDIA/cloud-native-docs 52dcb7b8d956, gpu-operator/release-notes.rst and platform-support.rst"

_NOTES = "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/release-notes.html"
_PLATFORMS = "https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/platform-support.html"


class Scope(Struct, frozen=True):
    """Where a release goes wrong; all that is stated must hold. `device_ids`: PCI ids; `mixed_mig`: GPUs with MIG on beside whole ones.

    `parameter`: a registry key of the kernel module and its value, as in /proc/driver/nvidia/params. `driver_container`: only as a
    driver container brings it, not as the host's own packages do.
    """

    device_ids: tuple[str, ...] = ()
    mixed_mig: bool = False
    mig: bool = False
    kubernetes: bool = False
    driver_container: bool = False
    parameter: tuple[str, str] | None = None


class KnownBad(Struct, frozen=True):
    """Releases that go wrong: those of `releases`, else all from `since` to before `fixed`, the first good one if any is known."""

    key: str
    problem: str
    remedy: str
    scope: Scope
    source: str
    releases: tuple[str, ...] = ()
    since: str = ""
    fixed: str = ""


# pci.ids 2026-08-22: GB202GL, RTX PRO 6000 Blackwell Server Edition; GB100, B200; GH100, GH200; GB100, GB200.
_RTX_PRO_SERVER, _B200 = ("2bb5",), ("2901",)
_GRACE = ("2342", "2348", "2941")
# nv-reg.h of open-gpu-kernel-modules 595.45.04: the driver, not the kernel, manages memory behind the coherent link.
_CDMM = ("CoherentGPUMemoryMode", "driver")

KNOWN_BAD = (
    KnownBad(
        "mixed-mig-pending",
        "pods that ask for GPUs stay Pending where some GPUs of a node are cut into MIG slices and others are not",
        "Install 570.172.08 or later.",
        Scope(mixed_mig=True, kubernetes=True),
        "https://github.com/NVIDIA/gpu-operator/issues/1361",
        releases=("570.124.06", "570.133.20", "570.148.08", "570.158.01"),
        fixed="570.172.08",
    ),
    KnownBad(
        "rtx-pro-6000-server-mig",
        "MIG is not supported on the RTX PRO 6000 Blackwell Server Edition",
        "Install a later release.",
        Scope(device_ids=_RTX_PRO_SERVER, mig=True),
        _PLATFORMS,
        releases=("575.57.08",),
    ),
    KnownBad(
        "rtx-pro-6000-server-too-old",
        "the RTX PRO 6000 Blackwell Server Edition is not supported",
        "Install 575.57.08 or later.",
        Scope(device_ids=_RTX_PRO_SERVER),
        _PLATFORMS,
        fixed="575.57.08",
    ),
    KnownBad(
        "hgx-b200-too-old",
        "HGX B200 is not supported by the GPU Operator's driver container",
        "Install 570.133.20 or later.",
        Scope(device_ids=_B200, kubernetes=True, driver_container=True),
        _PLATFORMS,
        fixed="570.133.20",
    ),
    KnownBad(
        "cdmm-mig",
        "the GPU Operator's driver container turns coherent driver-based memory management on, which MIG does not work with",
        "Read the notes of the release to install before using MIG or GPUDirect Storage; keep the management on otherwise.",
        Scope(device_ids=_GRACE, mig=True, kubernetes=True, parameter=_CDMM),
        _NOTES,
        releases=("580.65.06",),
    ),
)
"""The last is said of 580.65.06 and later, "until a future driver update": later ones are not known to be bad, nor to be good."""


def known_bad(driver: str) -> tuple[KnownBad, ...]:
    """What is known against a release, for the caller to hold against the node's GPUs and what manages them."""
    release = release_of(driver)
    if len(release) < 2:
        return ()
    return tuple(one for one in KNOWN_BAD if _hit(one, release))


def _hit(one: KnownBad, release: tuple[int, ...]) -> bool:
    if one.releases:
        return release in {numbers(text) for text in one.releases}
    return numbers(one.since) <= release < numbers(one.fixed)
