"""What the driver said, when it was loaded last, of GPUs that its branch does not drive.

Of a GPU that a branch dropped it says by name which older one drives it, then of its address that it ignores the legacy GPU, and that no
GPU was found where all are such (nv_pci_count_devices and nv_pci_probe of nv-pci.c, nvidia_init_module of nv.c; the sentence itself is
the proprietary module's, with the same words since 173.14 and of 580 in the wild with 595 and 610). Of one that it does not know it
says that its release does not support it (rm_is_supported_device of osapi.c). open-gpu-kernel-modules 595.45.04, df1c9a3de2be.
"""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver_release import DriverRelease
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

ATTEMPT = "nvidia-nvlink: Nvlink Core is being initialized"
"""What the module prints first each time it is loaded (nvlink_linux.c, nvlink_core_init)."""

_LEGACY = pattern(
    r"The NVIDIA (.{1,80}?) GPU installed in this system is +supported through the NVIDIA (\d{2,4})[\w.-]{0,12} Legacy drivers\."
    r".{0,120}?The ([\d.]{3,20}) NVIDIA driver will +ignore +this GPU"
)
# Up to 304 the release comes before "NVIDIA Linux driver release". "Not supported by open nvidia.ko" is about the flavour.
_UNSUPPORTED = pattern(
    r"The NVIDIA GPU (\S{12,16}) \(PCI ID: [0-9a-f:]{9}\) installed in this system is not supported by the"
    r" (?:NVIDIA ([\d.]{3,20}) driver|([\d.]{3,20}) NVIDIA \w+ driver) release"
)
_IGNORED = pattern(r"NVRM: ignoring the legacy GPU (\S{12,16})")
_NONE_FOUND = pattern(r"NVRM: No NVIDIA (?:GPU found|graphics adapter found)")
_FIRST_LINES = 12
"""Within so many lines lies what is looked for of a message of five or six, other messages between them."""


class Legacy(Struct, frozen=True):
    """A GPU by its product's name that the driver ignores, and the branch that it names for it."""

    name: str
    branch: int
    evidence: Evidence


class BranchRefusals(Fact, frozen=True):
    """Each empty where nothing was said, or the log is not known; `ignored` and `unsupported` are by PCI address.

    `none_found` says that the driver found no GPU at all.
    """

    legacy: tuple[Legacy, ...]
    ignored: Mapping[str, Evidence]
    unsupported: Mapping[str, Evidence]
    none_found: Cited

    @classmethod
    def gather(cls, desk: Desk) -> "BranchRefusals | Unread":
        """Never unread itself: the tables decide where the driver said nothing. What another release said is history."""
        driver = desk.get(DriverRelease)
        log = desk.get(KernelLog) if isinstance(driver, DriverRelease) and driver.release else None
        if not isinstance(log, KernelLog) or isinstance(driver, Unread):
            return cls(legacy=(), ignored={}, unsupported={}, none_found=())
        last = log.since(ATTEMPT)
        said = list(_legacy(last))
        legacy = tuple({one.name: one for release, one in said if release == driver.release}.values())
        others = said and not legacy
        ignored = () if others else _by_address(last, _IGNORED, "ignoring the legacy GPU")
        unsupported = (
            (match[1].lower(), evidence)
            for match, evidence in _messages(last, "The NVIDIA GPU ", _UNSUPPORTED)
            if driver.release in (match[2], match[3])
        )
        return cls(
            legacy=legacy,
            ignored=dict(ignored),
            unsupported=dict(unsupported),
            none_found=tuple(last.lines(_NONE_FOUND, "No NVIDIA ")[-1:]) if legacy else (),
        )


def _legacy(log: KernelLog) -> Iterator[tuple[str, Legacy]]:
    for match, evidence in _messages(log, "GPU installed in this system is", _LEGACY):
        yield match[3].rstrip("."), Legacy(match[1], int(match[2]), evidence)


def _by_address(log: KernelLog, pattern: "re.Pattern[str]", anchor: str) -> Iterator[tuple[str, Evidence]]:
    for line in log.lines(pattern, anchor):
        match = pattern.search(line.shows)
        if match is not None:
            yield match[1].lower(), line


def _messages(log: KernelLog, anchor: str, pattern: "re.Pattern[str]") -> Iterator[tuple["re.Match[str]", Evidence]]:
    """The messages that match once their lines are one; NVRM begins each line of a message with its name."""
    firsts = iter(log.lines(re.compile(re.escape(anchor)), anchor))
    start = log.text.find(anchor)
    while start >= 0:
        begin = log.text.rfind("\n", 0, start) + 1
        whole = " ".join(_lines(log.text[begin : begin + 160 * _FIRST_LINES]))
        first, match = next(firsts), pattern.match(whole)
        if match is not None:
            yield match, Evidence(first.where, f"NVRM: {match[0]}", at=first.at)
        end = log.text.find("\n", start)
        start = log.text.find(anchor, end) if end >= 0 else -1


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines()[:_FIRST_LINES]:
        _, mark, words = line.partition("NVRM:")
        if mark:
            yield words.strip()
