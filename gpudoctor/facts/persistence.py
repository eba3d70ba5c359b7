"""nvidia-persistenced: whether systemd is to start it, whether it runs, and what it said last."""

import re
from collections.abc import Sequence

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.raw import Absent, Entry, EntryType, Log, Raw
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

UNIT = "nvidia-persistenced.service"
WANTED = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
"""The link that `systemctl enable` makes: the unit says WantedBy=multi-user.target (nvidia-persistenced, init/systemd)."""

MASK = f"/etc/systemd/system/{UNIT}"
JOURNAL = f"journal/{UNIT}.log"

SLICES = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice", "/sys/fs/cgroup/unified/system.slice")
"""Where systemd keeps a control group for each service that runs: cgroup v2, v1, and both (systemd, docs/CGROUP_DELEGATION.md)."""

SOCKETS = ("/run/nvidia-persistenced/socket", "/var/run/nvidia-persistenced/socket")
"""NVPD_SOCKET_PATH in nvpd_defs.h of nvidia-persistenced."""

# journalctl -o short-iso "2026-11-29T12:00:00+0000 n1 nvidia-persistenced[935]: …", and its default "Nov 29 12:00:00 n1 …".
_LINE = re.compile(r"^(\S*\d{4}-\d\d-\d\dT\S+|\w{3} +\d+ [\d:]+) \S+ [^:\[]+(?:\[\d+\])?: (.*)$")
_REASON = re.compile(
    r"[Ff]ailed(?! to initialize. Check)|unable to|[Cc]annot|error|status=[1-9]|unmet condition|exited|killed|Stopped"
)
_OF_SYSTEMD = re.compile(r"^(?:Failed to start|Stopped) |\.service: ")


class PersistenceDaemon(Fact, frozen=True):
    """`enabled` is whether systemd is to start it at boot: not where it is masked, or where its unit is gone.

    Nothing else is known of one that is not enabled; `said` is known only of one that does not run, the last words first.
    """

    enabled: bool
    running: Reading[bool]
    said: tuple[Evidence, ...]

    @property
    def subject(self) -> Subject:
        """The service."""
        return Subject(SubjectKind.SERVICE, "nvidia-persistenced")

    @classmethod
    def gather(cls, desk: Desk) -> "PersistenceDaemon | Unread":
        """The link first: without it there is no more to look at."""
        wanted, evidence = _wanted(desk.raw)
        if isinstance(wanted, Unread):
            return wanted
        if not wanted:
            return cls(enabled=False, running=False, said=(), read_from={"enabled": evidence})
        running, seen = _running(desk.raw)
        said = _said(desk.raw) if running is False else ()
        return cls(enabled=True, running=running, said=said, read_from={"enabled": evidence, "running": seen})


def _wanted(raw: Raw) -> tuple[Reading[bool], Evidence]:
    link = raw.entry(WANTED)
    if isinstance(link, Unread):
        return link, Evidence(WANTED, link.detail)
    if isinstance(link, Absent):
        return False, link.evidence
    unit = raw.entry(WANTED, follow=True)
    if isinstance(unit, Unread) and unit.why is not Why.NOT_RECORDED:
        return unit, Evidence(WANTED, unit.detail)
    if isinstance(unit, Absent):
        return False, Evidence(WANTED, f"leads to {link.to}, which does not exist")
    # systemd.unit(5): a unit file that is a link to /dev/null is masked, it cannot be started.
    mask = raw.entry(MASK)
    if isinstance(mask, Entry) and mask.to == "/dev/null":
        return False, Evidence(MASK, "-> /dev/null: masked")
    return True, Evidence(WANTED, f"-> {link.to}" if link.to else "exists")


def _running(raw: Raw) -> tuple[Reading[bool], Evidence]:
    """By its control group, or by its socket: either is there only while it runs, and both must be known not to be for it to be ended.

    A node has one kind of control groups, so that a recording need not speak of the others.
    """
    groups: list[Entry | Absent | Unread] = []
    sockets: list[Entry | Absent | Unread] = []
    for path in (*(f"{place}/{UNIT}" for place in SLICES), *SOCKETS):
        entry = raw.entry(path)
        if isinstance(entry, Entry) and entry.type in (EntryType.DIR, EntryType.SOCKET):
            return True, Evidence(path, "exists")
        (sockets if path in SOCKETS else groups).append(entry)
    for found in (groups, sockets):
        trouble = _unless_absent(found)
        if trouble is not None:
            return trouble, Evidence(trouble.where, trouble.detail)
    # A container can have the unit's link and no view of the host's services.
    if all(isinstance(raw.entry(place), Absent) for place in SLICES):
        hidden = Unread(Why.UNREADABLE, "/sys/fs/cgroup", "shows no service of systemd here", would_need="the host's")
        return hidden, Evidence(hidden.where, hidden.detail)
    gone = next(entry for entry in groups if isinstance(entry, Absent))
    return False, Evidence(gone.path, "does not exist, nor does its socket")


def _unless_absent(found: Sequence[Entry | Absent | Unread]) -> Unread | None:
    """Why it is not known that none is there; not recorded is enough where another was looked for in vain."""
    unread = [entry for entry in found if isinstance(entry, Unread)]
    refused = [entry for entry in unread if entry.why is not Why.NOT_RECORDED]
    if refused or len(unread) == len(found):
        return (refused or unread)[0]
    return None


def _said(raw: Raw) -> tuple[Evidence, ...]:
    """What tells why it ended, the daemon's own words before systemd's."""
    log = raw.log(JOURNAL)
    lines = [_LINE.match(line) for line in log.text.splitlines()] if isinstance(log, Log) else []
    reasons = [Evidence(JOURNAL, line[2].strip(), at=line[1]) for line in lines if line and _REASON.search(line[2])]
    own = [reason for reason in reasons if not _OF_SYSTEMD.search(reason.shows)]
    systemds = [reason for reason in reasons if reason not in own]
    return (*own[:-3:-1], *systemds[:-2:-1])
