"""The node's identity: host name, kernel, distribution, boot."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.platform import OSRELEASE
from gpudoctor.facts.raw import Raw, SourceKind, TextFile
from gpudoctor.verdicts import Unread


class Host(Fact, frozen=True):
    """Who this node is; a field that could not be read is None, nothing is judged by it."""

    hostname: str | None
    kernel: str | None
    os: str | None
    os_id: str | None
    boot_id: str | None

    @classmethod
    def gather(cls, desk: Desk) -> "Host | Unread":
        """From /proc/sys/kernel and os-release."""
        return cls(
            hostname=_hostname(desk.raw),
            kernel=_line(desk.raw, OSRELEASE),
            os=_of_release(desk.raw, "PRETTY_NAME"),
            os_id=_of_release(desk.raw, "ID"),
            boot_id=_line(desk.raw, "/proc/sys/kernel/random/boot_id"),
        )


def _hostname(raw: Raw) -> str | None:
    """The kernel answers with the name of whoever reads the file: below a root in a container, with the container's (uts_namespaces(7))."""
    asked = None if raw.kind is SourceKind.ROOT else _line(raw, "/proc/sys/kernel/hostname")
    return asked or _line(raw, "/etc/hostname")


def _line(raw: Raw, path: str) -> str | None:
    file = raw.read(path)
    return file.text.strip() if isinstance(file, TextFile) else None


def _of_release(raw: Raw, name: str) -> str | None:
    """A value of os-release(5)."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        file = raw.read(path)
        if isinstance(file, TextFile):
            for line in file.text.splitlines():
                if line.startswith(f"{name}="):
                    return line.partition("=")[2].strip("\"'")
    return None
