"""Why an MPS daemon that is wanted does not run: what its unit and its pod said last. Looked for only where it is missing."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.mps import Mps
from gpudoctor.facts.mps_units import unit_names
from gpudoctor.facts.raw import JOURNALS, Log
from gpudoctor.facts.sharing_config import SharingConfig, daemon_pod_said
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread

_STARTS = pattern(r" systemd\[1\]: Start(?:ing|ed) ")
_REASON = pattern(r"(?i)fail|error|cannot|unable|status=[1-9]|killed|already running|not found|denied")


class MpsSetup(Fact, frozen=True):
    """The last lines that tell why."""

    unit_said: tuple[Evidence, ...] = ()
    pod_said: tuple[Evidence, ...] = ()

    @classmethod
    def gather(cls, desk: Desk) -> "MpsSetup | Unread":
        """Nothing is read where a daemon runs, or none is wanted."""
        mps, config = desk.get(Mps), desk.get(SharingConfig)
        if isinstance(mps, Unread) or mps.daemons:
            return cls()
        by_plugin = isinstance(config, SharingConfig) and config.way == "mps"
        units = () if isinstance(mps.wanted, Unread) else unit_names(mps.wanted)
        return cls(
            unit_said=_said(desk, units[0]) if units and not by_plugin else (),
            pod_said=daemon_pod_said(desk.raw) if by_plugin else (),
        )


def _said(desk: Desk, unit: str) -> tuple[Evidence, ...]:
    """Of its last start: what the unit's own processes said before what systemd makes of it."""
    log = desk.raw.log(f"{JOURNALS}{unit}.log")
    if not isinstance(log, Log):
        return ()
    lines = log.text.splitlines()
    last = max((number for number, line in enumerate(lines) if _STARTS.search(line)), default=0)
    failing = [line.strip() for line in lines[last:] if _REASON.search(line)]
    own = [line for line in failing if " systemd[1]: " not in line]
    return tuple(Evidence(log.where, line.partition("]: ")[2][:300] or line[:300]) for line in (own or failing)[:2])
