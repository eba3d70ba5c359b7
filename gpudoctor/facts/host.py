"""The node's identity: host name, kernel, distribution, boot."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.platform import OSRELEASE
from gpudoctor.facts.raw import Raw, TextFile
from gpudoctor.verdicts import Unread


class Host(Fact, frozen=True):
    """Who this node is; a field that could not be read is None, nothing is judged by it."""

    hostname: str | None
    kernel: str | None
    os: str | None
    boot_id: str | None

    @classmethod
    def gather(cls, desk: Desk) -> "Host | Unread":
        """From /proc/sys/kernel and os-release."""
        return cls(
            hostname=_line(desk.raw, "/proc/sys/kernel/hostname"),
            kernel=_line(desk.raw, OSRELEASE),
            os=_pretty_name(desk.raw),
            boot_id=_line(desk.raw, "/proc/sys/kernel/random/boot_id"),
        )


def _line(raw: Raw, path: str) -> str | None:
    file = raw.read(path)
    return file.text.strip() if isinstance(file, TextFile) else None


def _pretty_name(raw: Raw) -> str | None:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        file = raw.read(path)
        if isinstance(file, TextFile):
            for line in file.text.splitlines():
                if line.startswith("PRETTY_NAME="):
                    return line.partition("=")[2].strip("\"'")
    return None
