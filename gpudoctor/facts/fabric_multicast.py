"""What the fabric manager's log says of multicast teams, and how often it was started since the boot.

A start of the fabric manager makes older lines history: what it does not know now it refuses again. So does a GPU that registers anew:
"GPU probe request received from node Id 0 and module Id 7" (journal of an HGX B200, bottlerocket-os/bottlerocket-kernel-kit#142).

Its lines, as leptonai/gpud keeps them: "[Sep 17 2024 06:01:46] [ERROR] [tid 1230079] failed to find the GPU handle 5410063385821516767
in the multicast team request setup 6130285411925746235.", and of a healthy one "multicast group 0 is allocated.", "successfully setup
multicast team". The file is LOG_FILE_NAME of fabricmanager.cfg by default (Fabric Manager User Guide, Config Options); it grows with every
job, so that only its end is read. Read 2026-11-30.
"""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.fabric_manager import JOURNAL, FabricManager
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, Log, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

LOG = "/var/log/fabricmanager.log"
MOST_LINES = 1000
TAIL = ("tail", "-n", str(MOST_LINES), LOG)

_LINE = pattern(r"^(?:\[([^\]]{1,40})\] )?(?:\[\w+\] \[tid \d+\] )?(.*)$")
_REFUSED = "failed to find the GPU handle"
_SET_UP = ("successfully setup multicast team", " is allocated.")
_ANEW = ("Successfully configured all the available NVSwitches", "GPU probe request received")
_STARTED = "systemd[1]: Started "


class Multicast(Fact, frozen=True):
    """The last refusal of a team, and what proves it cured: a team that was set up after it, or handles that were given anew.

    `log` is None where there is no log to read.
    """

    log: Evidence | Unread | None
    refused: Evidence | None = None
    cured: Evidence | None = None
    restarts: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "Multicast | Unread":
        """Only where the GPUs are joined by NVSwitches, and the file is there."""
        manager = desk.get(FabricManager)
        if isinstance(manager, Unread):
            return manager
        if isinstance(manager.needed, Unread):
            return cls(log=manager.needed)
        if not manager.needed:
            return cls(log=None, read_from={"needed": manager.read_from["needed"]})
        entry = desk.raw.entry(LOG, follow=True)
        if not isinstance(entry, Entry):
            return cls(log=None, read_from={"log": entry.evidence}) if isinstance(entry, Absent) else cls(log=entry)
        output = desk.raw.command(TAIL, seconds=3.0)
        if isinstance(output, CommandOutput) and output.exit == 0:
            return _parse(output.stdout, " ".join(TAIL), desk)
        if not isinstance(output, Unread):
            return cls(log=Unread(Why.UNREADABLE, LOG, "tail cannot read it"))
        # A recording that has the file has no need of the command.
        file = desk.raw.read(LOG) if output.why is Why.NOT_RECORDED else output
        return _parse(file.text, LOG, desk) if isinstance(file, TextFile) else cls(log=output)


def _parse(text: str, where: str, desk: Desk) -> Multicast:
    lines = text.splitlines()[-MOST_LINES:]
    refused = next((at for at in range(len(lines) - 1, -1, -1) if _REFUSED in lines[at]), None)
    log = Evidence(where, f"{len(lines)} lines, the last: {lines[-1].strip()[:160]}" if lines else "is empty")
    if refused is None:
        return Multicast(log=log)
    after = next((line for line in lines[refused:] if any(words in line for words in (*_SET_UP, *_ANEW))), None)
    return Multicast(
        log=log,
        refused=_evidence(where, lines[refused]),
        cured=None if after is None else _evidence(where, after),
        restarts=_restarts(desk),
    )


def _evidence(where: str, line: str) -> Evidence:
    found = _LINE.match(line.strip())
    return Evidence(where, line.strip()) if found is None else Evidence(where, found[2], at=found[1])


def _restarts(desk: Desk) -> Cited:
    """Every start but the first of this boot."""
    log = desk.raw.log(JOURNAL)
    started = [line.strip() for line in log.text.splitlines() if _STARTED in line] if isinstance(log, Log) else []
    return tuple(Evidence(log.where, line) for line in started[1:][-1:]) if isinstance(log, Log) else ()
