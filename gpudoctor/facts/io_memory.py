"""Who owns a range of the machine's I/O memory, where the driver says that somebody else does."""

import re

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.raw import TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

IOMEM = "/proc/iomem"

# kernel-open/nvidia/nv-pci.c, nv_pci_probe: "request_mem_region failed for 16M @ 0xfb000000".
CLAIMED = pattern(r"NVRM: request_mem_region failed for \d+M @ (0x[0-9a-fA-F]+)")
_LINE = pattern(r"^(\s*)([0-9a-f]+)-([0-9a-f]+) : (.+)$", re.MULTILINE)
_BUS = pattern(r"PCI Bus .*|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|PCI ECAM.*|System RAM")


class ClaimedRegions(Fact, frozen=True):
    """The lines of /proc/iomem that name an owner, by the address at which the driver was refused; empty where it was not."""

    by_start: dict[int, Cited]

    @classmethod
    def gather(cls, desk: Desk) -> "ClaimedRegions | Unread":
        """Read only where the kernel log has the driver's complaint; never unread itself."""
        log = desk.get(KernelLog)
        said = () if isinstance(log, Unread) else log.lines(CLAIMED, "request_mem_region failed")
        starts = {int(match[1], 16) for line in said if (match := CLAIMED.search(line.shows))}
        file = desk.raw.read(IOMEM) if starts else None
        text = file.text if isinstance(file, TextFile) else ""
        return cls(by_start={start: _owners(text, start) for start in starts})

    def behind(self, words: str) -> Cited:
        """Who owns the range that a message of the driver names."""
        match = CLAIMED.search(words)
        return self.by_start.get(int(match[1], 16), ()) if match else ()


def _owners(text: str, start: int) -> Cited:
    """The lines around an address that name no bus and no function, but a driver. Without root all addresses read as zero."""
    found = (match for match in _LINE.finditer(text) if int(match[2], 16) <= start <= int(match[3], 16))
    lines = (match for match in found if int(match[3], 16) and not _BUS.fullmatch(match[4]))
    return tuple(Evidence(IOMEM, match[0].strip()) for match in lines)
