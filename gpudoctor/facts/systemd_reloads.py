"""When systemd was last told to reload its units, as far as its own journal tells: a container may have lost its devices then."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import Log
from gpudoctor.facts.workload_access import WorkloadAccess
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

JOURNAL = "journal/init.scope.log"
"""The first process of the node lives in init.scope (systemd.special(7))."""

# "Reloading." until systemd 252, "Reloading requested from client PID 812 ('systemctl')…" since (method_reload in src/core/dbus-manager.c).
_LINE = pattern(r"^(\S*\d{4}-\d\d-\d\dT\S+|\w{3} +\d+ [\d:]+) \S+ systemd\[1\]: (Reloading(?: requested.*|\.+))$")


class SystemdReloads(Fact, frozen=True):
    """The last reload of this boot, nothing where none is known."""

    last: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "SystemdReloads | Unread":
        """Never unread itself: it only adds to what others know. Looked for only where a workload may not open a node."""
        access = desk.get(WorkloadAccess)
        if isinstance(access, Unread) or not access.any_denied:
            return cls()
        log = desk.raw.log(JOURNAL)
        lines = [_LINE.match(line) for line in log.text.splitlines()] if isinstance(log, Log) else []
        found = [line for line in lines if line is not None]
        where = log.where if isinstance(log, Log) else JOURNAL
        return cls(last=tuple(Evidence(where, line[2], at=line[1]) for line in found[-1:]))
