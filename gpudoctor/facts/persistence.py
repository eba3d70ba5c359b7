"""nvidia-persistenced: whether systemd is to start it, whether it runs, and what it said last."""

from collections.abc import Sequence

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.raw import Absent, Entry, EntryType, Log, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

UNIT = "nvidia-persistenced.service"
WANTED = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
"""The link that `systemctl enable` makes: the unit says WantedBy=multi-user.target (nvidia-persistenced, init/systemd)."""

MASK = f"/etc/systemd/system/{UNIT}"
JOURNAL = f"journal/{UNIT}.log"

SLICES = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice", "/sys/fs/cgroup/unified/system.slice")
"""Where systemd keeps a control group for each service that runs: cgroup v2, v1, and both (systemd, docs/CGROUP_DELEGATION.md)."""

SOCKETS = ("/run/nvidia-persistenced/socket", "/var/run/nvidia-persistenced/socket")
"""NVPD_SOCKET_PATH in nvpd_defs.h of nvidia-persistenced."""

PID_FILES = ("/run/nvidia-persistenced/nvidia-persistenced.pid", "/var/run/nvidia-persistenced/nvidia-persistenced.pid")
"""NVPD_PID_FILE, same place."""
COMM = "nvidia-persiste"
"""Its name as the kernel keeps it, 15 letters of it (proc_pid_comm(5))."""

# journalctl -o short-iso "2026-11-29T12:00:00+0000 n1 nvidia-persistenced[935]: …", and its default "Nov 29 12:00:00 n1 …".
_LINE = pattern(r"^(\S*\d{4}-\d\d-\d\dT\S+|\w{3} +\d+ [\d:]+) \S+ [^:\[]+(?:\[\d+\])?: (.*)$")
_REASON = pattern(
    r"[Ff]ailed(?! to initialize. Check)|unable to|[Cc]annot|error|status=[1-9]|unmet condition|exited|killed|Stopped"
)
_OF_SYSTEMD = pattern(r"^(?:Failed to start|Stopped) |\.service: ")


class PersistenceDaemon(Fact, frozen=True):
    """`enabled` is whether systemd is to start it at boot: not where it is masked, or where its unit is gone.

    Nothing else is known of one that is not enabled; `said` is known only of one that does not run, the last words first.
    `left_behind` is what is known of its socket then.
    """

    enabled: bool
    running: Reading[bool]
    said: tuple[Evidence, ...]
    left_behind: Cited = ()

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
        return cls(
            enabled=True,
            running=running,
            said=said,
            left_behind=seen[1:],
            read_from={"enabled": evidence, "running": seen[0]},
        )


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
        return False, Evidence(link.where, f"leads to {link.to}, which does not exist")
    # systemd.unit(5): a unit file that is a link to /dev/null is masked, it cannot be started.
    mask = raw.entry(MASK)
    if isinstance(mask, Entry) and mask.to == "/dev/null":
        return False, Evidence(mask.where, "-> /dev/null: masked")
    return True, Evidence(link.where, f"-> {link.to}" if link.to else "exists")


def _running(raw: Raw) -> tuple[Reading[bool], Cited]:
    """By its control group, or where those are not in view by its socket; a socket alone may have been left behind by a killed daemon.

    A node has one kind of control groups, so that a recording need not speak of the others.
    """
    groups, sockets = _look(raw, tuple(f"{place}/{UNIT}" for place in SLICES)), _look(raw, SOCKETS)
    group, socket = (_there(found, kind) for found, kind in ((groups, EntryType.DIR), (sockets, EntryType.SOCKET)))
    if group is not None:
        return True, (Evidence(group.where, "exists"),)
    unseen = _unless_absent(groups)
    # A container can have the unit's link and no view of the host's services.
    in_view = _there(_look(raw, SLICES), EntryType.DIR) is not None
    if socket is not None and (unseen is not None or not in_view):
        return True, (Evidence(socket.where, "exists"),)
    unseen = unseen or (_unless_absent(sockets) if socket is None else None)
    if unseen is None and not in_view:
        unseen = Unread(Why.UNREADABLE, "/sys/fs/cgroup", "shows no service of systemd here", would_need="the host's")
    if unseen is not None:
        return unseen, (Evidence(unseen.where, unseen.detail),)
    gone = next(entry.evidence for entry in groups if isinstance(entry, Absent))
    if socket is None:
        absent = next(entry.evidence for entry in sockets if isinstance(entry, Absent))
        return False, (gone, absent)
    return _by_its_pid(raw, gone, Evidence(socket.path, "exists"))


def _look(raw: Raw, paths: tuple[str, ...]) -> list[Entry | Absent | Unread]:
    return [raw.entry(path) for path in paths]


def _there(found: Sequence[Entry | Absent | Unread], kind: EntryType) -> Entry | None:
    return next((entry for entry in found if isinstance(entry, Entry) and entry.type is kind), None)


def _by_its_pid(raw: Raw, gone: Evidence, socket: Evidence) -> tuple[Reading[bool], Cited]:
    """Beside a socket, one that somebody started by hand runs outside the unit: the process that its PID file names."""
    for path in PID_FILES:
        file = raw.read(path)
        if isinstance(file, Unread) and file.why is not Why.NOT_RECORDED:
            return file, (Evidence(path, file.detail),)
        pid = decimal(file.text.strip()) if isinstance(file, TextFile) else None
        if pid is not None:
            comm = raw.read(f"/proc/{pid}/comm")
            if isinstance(comm, Unread):
                return comm, (Evidence(comm.where, comm.detail),)
            if isinstance(comm, TextFile) and comm.text.strip() == COMM:
                return True, (Evidence(f"/proc/{pid}/comm", COMM),)
    return False, (gone, Evidence(socket.where, "exists: left behind"))


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
    where = log.where if isinstance(log, Log) else JOURNAL
    reasons = [Evidence(where, line[2].strip(), at=line[1]) for line in lines if line and _REASON.search(line[2])]
    own = [reason for reason in reasons if not _OF_SYSTEMD.search(reason.shows)]
    systemds = [reason for reason in reasons if reason not in own]
    return (*own[:-3:-1], *systemds[:-2:-1])
