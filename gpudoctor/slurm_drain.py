"""One node as scontrol shows it, and the two changes that a health check may make to it."""

import itertools
from collections.abc import Callable, Sequence

from msgspec import Struct

from gpudoctor.facts.raw import Absent, CommandOutput
from gpudoctor.knowledge.slurm_reason import ours, unchanged
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Unread

Run = Callable[[tuple[str, ...]], CommandOutput | Absent | Unread]
"""Runs a command up to a deadline."""

_NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SHOWN_NAME = pattern(r"NodeName=(\S+)(?: |$)")
_STATE = pattern(r"^ +State=(\S+)(?: |$)")
_REASON = pattern(r"^ +Reason=(.*?)(?: \[[^\[\]@]*@[^\[\]]*\])?$")
_MORE_REASON = " " * 7
"""Begins the further lines of a reason (SchedMD/slurm src/api/node_info.c, slurm_sprint_node_table)."""

SERVES = frozenset({"IDLE", "ALLOCATED", "MIXED"})
"""States of a node in service; DOWN, FUTURE, UNKNOWN and ERROR are Slurm's own word against it (slurm.h, NODE_STATE_BASE)."""
HARMLESS = frozenset({"COMPLETING", "PLANNED", "RESERVED", "NOT_RESPONDING", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""Flags beside a state that say nothing against the node (slurm.h; node_state_flag_string in slurm_protocol_defs.c)."""
DRAIN = "DRAIN"


class NodeUnknownError(Exception):
    """The node's state cannot be told: then nothing may be done to it."""


class SlurmNode(Struct, frozen=True):
    """A node's state, its flags, and the reason given for them, "" for none."""

    name: str
    state: str
    flags: frozenset[str]
    reason: str

    @property
    def ours(self) -> bool:
        """Whether it is drained, and by us."""
        return DRAIN in self.flags and ours(self.reason)

    @property
    def why_not_drain(self) -> str:
        """Why it is left alone although a GPU failed; "" when it may be drained."""
        if DRAIN in self.flags:
            return "is drained already" if self.ours else f"is drained by somebody else: {self.reason or 'no reason'}"
        if self.reason and not unchanged(self.reason):
            return f"has a reason of somebody else's: {self.reason}"
        return self._why_out_of_service()

    @property
    def why_not_undrain(self) -> str:
        """Why it stays as it is although nothing is wrong any more; "" when it may be taken back into service."""
        if DRAIN not in self.flags:
            return "is not drained"
        if not self.ours:
            return f"is drained by somebody else: {self.reason or 'no reason'}"
        return self._why_out_of_service()

    def _why_out_of_service(self) -> str:
        other = sorted(self.flags - HARMLESS - {DRAIN})
        if self.state in SERVES and not other:
            return ""
        return f"is in a state of Slurm's own: {'+'.join((self.state, *other))}"


def name_is_one_node(name: str) -> bool:
    """Whether a name stands for one node: scontrol takes lists, ranges and ALL as well, and would change them all."""
    return _NAME.fullmatch(name) is not None and name.upper() != "ALL"


class Controller:
    """Slurm's controller, asked about one node and told about it by scontrol."""

    def __init__(self, node: str, run: Run) -> None:
        assert name_is_one_node(node)
        self._node = node
        self._run = run

    def look(self) -> SlurmNode:
        """The node as it is now. Raises NodeUnknownError."""
        return parse_node(self._said(("scontrol", "show", "node", self._node)), self._node)

    def drain(self, reason: str) -> None:
        """No new jobs; those that run go on. Raises NodeUnknownError when Slurm does not say that it was done."""
        assert ours(reason)
        self._said(("scontrol", "update", f"nodename={self._node}", "state=drain", f"reason={reason}"))

    def undrain(self) -> None:
        """As it was before it was drained; UNDRAIN leaves a node down that is down (scontrol(1)). Raises NodeUnknownError."""
        self._said(("scontrol", "update", f"nodename={self._node}", "state=undrain"))

    def _said(self, argv: tuple[str, ...]) -> str:
        said = self._run(argv)
        match said:
            case Absent():
                raise NodeUnknownError("scontrol is not installed here")
            case Unread():
                raise NodeUnknownError(f"{argv[0]} {argv[1]}: {said.detail}")
            case CommandOutput():
                if said.exit != 0:
                    words = " ".join((said.stderr or said.stdout).split())[:200]
                    raise NodeUnknownError(f"{argv[0]} {argv[1]} failed ({said.exit}): {words}")
                return said.stdout


def parse_node(text: str, name: str) -> SlurmNode:
    """What `scontrol show node NAME` printed: one node of that name with one state, or it is not known. Raises NodeUnknownError."""
    lines = text.splitlines()
    names = [found[1] for line in lines if (found := _SHOWN_NAME.match(line))]
    states = [found[1] for line in lines if (found := _STATE.match(line))]
    reasons = [_reason(found[1], lines[at + 1 :]) for at, line in enumerate(lines) if (found := _REASON.match(line))]
    if names != [name] or len(states) != 1 or len(reasons) > 1:
        raise NodeUnknownError(f"scontrol shows no single node {name} with a state")
    # `*`: does not respond, `-`: planned for a job (scontrol(1), NODE STATE CODES); any other sign stays and is no state known.
    state, *flags = states[0].upper().replace("*", "").rstrip("-").split("+")
    # Older and compact forms have words of their own for a state with DRAIN.
    if state in ("DRAINED", "DRAINING"):
        state, flags = "IDLE" if state == "DRAINED" else "ALLOCATED", [*flags, DRAIN]
    return SlurmNode(name, state, frozenset(flags), reasons[0] if reasons else "")


def _reason(first: str, after: Sequence[str]) -> str:
    """A reason of several lines is somebody else's, whatever the first of them says."""
    more = itertools.takewhile(lambda line: line.startswith(_MORE_REASON), after)
    return "\n".join((first.strip(), *(line.strip() for line in more)))
