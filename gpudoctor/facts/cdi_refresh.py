"""nvidia-cdi-refresh: whether it is there, enabled, and what its last run came to.

NVIDIA/nvidia-container-toolkit deployments/systemd (service and path unit since 1.18.0, in /etc/systemd/system, packaged below
/lib/systemd/system since 1.20.0); the service writes the file that NVIDIA_CTK_CDI_OUTPUT_FILE_PATH names, /var/run/cdi/nvidia.yaml unless
/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env says otherwise. systemd.service(5), SuccessExitStatus=: exits that count as success.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import JOURNALS, Absent, Entry, EntryType, Listing, Log, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread

NAME = "nvidia-cdi-refresh"
SERVICE = f"{NAME}.service"
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
WANTED = tuple(f"/etc/systemd/system/multi-user.target.wants/{NAME}.{kind}" for kind in ("service", "path"))
DROP_INS = f"/etc/systemd/system/{SERVICE}.d"
ENVIRONMENT = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
OUTPUT, OUTPUT_VARIABLE = "/var/run/cdi/nvidia.yaml", "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"
SMI = ("/usr/bin/nvidia-smi", "/usr/sbin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
CTK = "/usr/bin/nvidia-ctk"

_LINE = pattern(r"^(\S+|\w{3} +\d+ [\d:]+) \S+ ([^:\[]+)(?:\[\d+\])?: (.*)$")
_ERROR = pattern(r"level=(?:error|fatal) msg=\"((?:[^\"\\]|\\.)*)\"")
_FAILED = pattern(r"Failed with result '([^']+)'|Failed to start |Start request repeated too quickly")
_SKIPPED = pattern(
    r"skipped because of an unmet condition check \(([^)]*)\)|Skipped due to 'exec-condition'|being skipped"
)


class Run(Struct, frozen=True):
    """The last run that the journal tells: an error of nvidia-ctk, that systemd calls it failed, that it was skipped, that it finished."""

    error: Evidence | None = None
    failed: Evidence | None = None
    skipped: Evidence | None = None
    finished: Evidence | None = None

    @property
    def trouble(self) -> Evidence | None:
        """The error, or else that it failed."""
        return self.error or self.failed


class CdiRefresh(Fact, frozen=True):
    """`unit` is where the service is, None where it is not installed. `enabled` are the links that start it, `masked` that it never starts.

    `tolerated` is a drop-in that calls failed runs successful; `unmet` what it waits for in vain (ConditionPathExists).
    """

    unit: Entry | None
    enabled: Cited | Unread = ()
    masked: bool = False
    output: str = OUTPUT
    written: Entry | Absent | Unread | None = None
    run: Run | Unread | None = None
    tolerated: Cited = ()
    unmet: Cited = ()

    @property
    def subject(self) -> Subject:
        """The service."""
        return Subject(SubjectKind.SERVICE, NAME)

    @classmethod
    def gather(cls, desk: Desk) -> "CdiRefresh | Unread":
        """Where there is no unit nothing else is looked at."""
        raw = desk.raw
        found = [raw.entry(f"{folder}/{SERVICE}") for folder in UNIT_FOLDERS]
        unit = next((entry for entry in found if isinstance(entry, Entry)), None)
        if unit is None:
            unread = next((entry for entry in found if isinstance(entry, Unread)), None)
            return unread or cls(unit=None, read_from={"unit": Evidence(found[0].where, "does not exist")})
        output = _output(raw)
        log = raw.log(f"{JOURNALS}{SERVICE}.log")
        return cls(
            unit=unit,
            enabled=_enabled(raw),
            masked=unit.type is EntryType.LINK and unit.to == "/dev/null",
            output=output,
            written=raw.entry(output, follow=True),
            run=last_run(log) if isinstance(log, Log) else log,
            tolerated=tuple(_tolerated(raw)),
            unmet=_unmet(raw),
            read_from={"unit": Evidence(unit.where, "exists")},
        )


def _enabled(raw: Raw) -> Cited | Unread:
    found = [raw.entry(path) for path in WANTED]
    links = tuple(Evidence(entry.where, "exists") for entry in found if isinstance(entry, Entry))
    unread = next((entry for entry in found if isinstance(entry, Unread)), None)
    return links or unread or ()


def _output(raw: Raw) -> str:
    """The last assignment that is not a comment (systemd.exec(5), EnvironmentFile=)."""
    file = raw.read(ENVIRONMENT)
    lines = file.text.splitlines() if isinstance(file, TextFile) else []
    values = [
        line.partition("=")[2].strip().strip("\"'") for line in lines if line.strip().startswith(f"{OUTPUT_VARIABLE}=")
    ]
    return values[-1] if values and values[-1].startswith("/") else OUTPUT


def _tolerated(raw: Raw) -> Iterable[Evidence]:
    listing = raw.listing(DROP_INS)
    for name in listing.names if isinstance(listing, Listing) else ():
        file = raw.read(f"{DROP_INS}/{name}") if name.endswith(".conf") else None
        for line in file.text.splitlines() if isinstance(file, TextFile) else ():
            if re.match(r"\s*SuccessExitStatus\s*=\s*\S", line):
                yield Evidence(f"{DROP_INS}/{name}", line.strip())


def _unmet(raw: Raw) -> Cited:
    """Of each condition all places, when none of them is there."""
    for paths in (SMI, (CTK,)):
        found = [raw.entry(path, follow=True) for path in paths]
        missing = tuple(entry.evidence for entry in found if isinstance(entry, Absent))
        if len(missing) == len(paths):
            return missing[:1]
    return ()


def last_run(log: Log) -> Run:
    """What the lines since the last start of the service come to."""
    run = Run()
    for line in log.text.splitlines():
        said = _LINE.match(line)
        if said is None:
            continue
        at, program, message = said.groups()
        seen = Evidence(log.where, message[:300], at=at)
        if program.startswith("systemd"):
            run = _of_systemd(run, message, seen)
        elif (error := _ERROR.search(message)) is not None:
            run = Run(error=Evidence(log.where, error[1][:300], at=at), failed=run.failed)
    return run


def _of_systemd(run: Run, message: str, seen: Evidence) -> Run:
    if _SKIPPED.search(message):
        return Run(skipped=seen)
    if message.startswith("Starting "):
        return Run()
    if _FAILED.search(message):
        return Run(error=run.error, failed=run.failed or seen)
    if message.startswith("Finished "):
        return Run(error=run.error, finished=seen)
    return run
