"""What package managers and NVIDIA's installer wrote of changes: each log's form, and its lines about packages that matter for GPUs.

dpkg.log: "2026-11-29 06:12:33 upgrade nvidia-driver-550:amd64 OLD NEW" (dpkg(1), --log); dnf.rpm.log:
"2026-11-29T06:12:33+0000 SUBDEBUG Upgraded: nvidia-driver-…" (dnf, logging.py); yum.log: "Nov 29 06:12:33 Updated: …";
zypp/history: "2026-11-29 06:12:33|install|nvidia-…" (libzypp, HistoryLog.cc); pacman.log: "[2026-…] [ALPM] upgraded nvidia (…)";
apt/history.log: "Start-Date: 2026-11-29  06:12:31", then "Upgrade: NAME:ARCH (OLD, NEW), …" (apt, apt-pkg/deb/dpkgpm.cc).
All but dnf's and pacman's are in local time.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.raw import Raw, TextFile
from gpudoctor.patterns import pattern

_PACKAGE = r"(?:nvidia|libnvidia|cuda-drivers|kmod-nvidia|dkms|linux-(?:image|modules|headers|nvidia)|kernel(?:-core|-default|-devel)?[- ])"


class PackageLog(Struct, frozen=True):
    """A package manager's log: where it lies, its lines about the driver and the kernel, and the form of any line about a change."""

    path: str
    line: "re.Pattern[str]"
    change: "re.Pattern[str]"


_RPM = r"(?:\d+:)?(?P<package>\S+?)-(?P<version>[^-\s]+-[^-\s]+?)(?:\.(?:x86_64|aarch64|ppc64le|noarch|i686))?$"
LOGS = (
    PackageLog(
        "/var/log/dpkg.log",
        pattern(rf"^\S+ \S+ (?:install|upgrade|remove|purge) {_PACKAGE}"),
        pattern(
            r"^(?P<at>\S+ \S+) (?P<verb>install|upgrade|remove|purge) (?P<package>[^\s:]+)(?::\S+)? (?P<before>\S+) (?P<version>\S+)",
            re.MULTILINE,
        ),
    ),
    PackageLog(
        "/var/log/dnf.rpm.log",
        pattern(rf"(?:Installed|Upgraded?|Erased?|Removed|Reinstalled|Downgraded?): {_PACKAGE}"),
        pattern(
            rf"^(?P<at>\S+) \S+ (?P<verb>Installed|Upgraded?|Erased?|Removed|Reinstalled|Downgraded?): {_RPM}",
            re.MULTILINE,
        ),
    ),
    PackageLog(
        "/var/log/yum.log",
        pattern(rf"(?:Installed|Updated|Erased): (?:\d+:)?{_PACKAGE}"),
        pattern(rf"^(?P<at>\w{{3}} +\d+ [\d:]+) (?P<verb>Installed|Updated|Erased): {_RPM}", re.MULTILINE),
    ),
    PackageLog(
        "/var/log/zypp/history",
        pattern(rf"^[^|]+\|(?:install|remove\s*)\|{_PACKAGE}"),
        pattern(
            r"^(?P<at>[^|#\n]+)\|(?P<verb>install|remove)\s*\|(?P<package>[^|\n]+)\|(?P<version>[^|\n]*)\|",
            re.MULTILINE,
        ),
    ),
    PackageLog(
        "/var/log/pacman.log",
        pattern(r"\] (?:installed|upgraded|removed) (?:nvidia|linux)"),
        pattern(
            r"^\[(?P<at>[^\]\n]+)\] (?:\[ALPM\] )?(?P<verb>installed|upgraded|removed) (?P<package>\S+) "
            r"\((?:(?P<before>\S+) -> )?(?P<version>\S+)\)",
            re.MULTILINE,
        ),
    ),
)
APT_HISTORY = "/var/log/apt/history.log"
RUNFILE_LOG = "/var/log/nvidia-installer.log"
CREATED = "creation time:"
"""nvidia-installer writes its time at the head of its log, in local time as ctime(3) has it (nvidia-installer, log.c)."""
TURNED_OVER = ".1"
"""The log before this one, which logrotate leaves uncompressed for a while (logrotate(8), delaycompress)."""

_VERBS = {
    "install": "installed",
    "upgrade": "upgraded",
    "upgraded": "upgraded",
    "updated": "upgraded",
    "downgrade": "downgraded",
    "downgraded": "downgraded",
    "reinstall": "reinstalled",
    "remove": "removed",
    "erase": "removed",
    "erased": "removed",
    "purge": "removed",
}
VERBS = frozenset(_VERBS.values())
"""What can become of a package."""
_REPLACED = {"Upgraded": "Upgrade", "Downgraded": "Downgrade"}
"""dnf writes the new package with the first form of a verb, and with the second the old one that it replaces."""
_APT_BLOCK = pattern(r"^Start-Date: (?P<begin>[^\n]+)\n(?P<body>(?:[^\n]+\n)*[^\n]*)", re.MULTILINE)
_APT_VERB = pattern(r"^(?P<verb>Install|Upgrade|Downgrade|Reinstall|Remove|Purge): (?P<packages>[^\n]+)", re.MULTILINE)
_APT_PACKAGE = pattern(r"(?P<package>[^\s:,()]+)(?::[^\s,()]+)? \((?P<versions>[^)]*)\)")
_APT_COMMAND = pattern(r"^Commandline: ([^\n]+)", re.MULTILINE)


class Change(Struct, frozen=True):
    """A package that was changed: `at` as the log has it, `version` the one that it has since, or had where it was removed."""

    where: str
    at: str
    verb: str
    package: str
    version: str = ""
    before: str = ""
    line: str = ""
    by: str = ""


def lines_about(form: PackageLog, text: str) -> list[str]:
    """The lines about packages of the driver and the kernel, oldest first."""
    return [line.strip() for line in text.splitlines() if form.line.search(line)]


def changes(raw: Raw, form: PackageLog, wanted: "re.Pattern[str]") -> Iterator[Change]:
    """The changes of packages whose name begins as wanted, oldest first, those of the log before included."""
    for path in (form.path + TURNED_OVER, form.path):
        file = raw.read(path)
        if isinstance(file, TextFile):
            yield from _of_form(form, file, wanted)


def _of_form(form: PackageLog, file: TextFile, wanted: "re.Pattern[str]") -> Iterator[Change]:
    found = [match for match in form.change.finditer(file.text) if wanted.match(match["package"])]
    renewed = {(match["verb"], match["package"]) for match in found}
    for match in found:
        parts = match.groupdict()
        if (_REPLACED.get(parts["verb"]), parts["package"]) in renewed:
            continue
        verb = _VERBS.get(parts["verb"].lower(), parts["verb"].lower())
        before, version = parts.get("before") or "", parts["version"]
        before, version = ("" if one == "<none>" else one for one in (before, version))
        line = file.text[match.start() : file.text.find("\n", match.start()) % (len(file.text) + 1)].strip()
        gone = verb == "removed"
        yield Change(
            file.where,
            parts["at"].strip(),
            verb,
            parts["package"],
            version=(before or version) if gone else version,
            before="" if gone else before,
            line=line,
        )


def apt_changes(raw: Raw, wanted: "re.Pattern[str]") -> Iterator[Change]:
    """What apt did, and the command it was told by."""
    file = raw.read(APT_HISTORY)
    for block in _APT_BLOCK.finditer(file.text) if isinstance(file, TextFile) else ():
        command = _APT_COMMAND.search(block["body"])
        by = command[1].strip() if command is not None else ""
        for said in _APT_VERB.finditer(block["body"]):
            for one in _APT_PACKAGE.finditer(said["packages"]):
                if wanted.match(one["package"]):
                    versions = [part.strip() for part in one["versions"].split(",") if part.strip() != "automatic"]
                    yield Change(
                        APT_HISTORY,
                        " ".join(block["begin"].split()),
                        _VERBS.get(said["verb"].lower(), said["verb"].lower()),
                        one["package"],
                        version=versions[-1] if versions else "",
                        before=versions[0] if len(versions) > 1 else "",
                        by=by,
                    )
