"""From the troubles that the kernel log tells of a GPU to a verdict: what happened, to whom, what NVIDIA asks for, is it over."""

from enum import Enum

from msgspec import Struct

from gpudoctor.checks.xid_actions import IGNORE, action, decoded, fatal_link, for_trouble, useless_until_done
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.gpu_errors import GpuErrors
from gpudoctor.facts.log_moments import in_words
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.raw import decimal
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.facts.xid_events import Fold, Trouble
from gpudoctor.facts.xid_lines import FALLEN, XidLine
from gpudoctor.knowledge.nvml_remedies import also_confirming
from gpudoctor.knowledge.reset_remedies import IMEX_DOMAIN, recover
from gpudoctor.knowledge.xid_remedies import remedies_for
from gpudoctor.knowledge.xids import BUCKETS, Area
from gpudoctor.verdicts import (
    AboutSubject,
    Breaks,
    Cited,
    Evidence,
    Fail,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Warn,
    Why,
)

HOUR = 3600.0
MOST_NAMED = 3


class State(Enum):
    """What NVML says of the GPU now."""

    WELL = "since then the driver asks for nothing"
    LESS = "by now the driver asks for less"
    ASKED = "the driver still asks for it"
    SILENT = "NVML does not answer for it"
    UNTOLD = "whether that was done this driver does not tell"
    UNSEEN = "whether that was done is not known: NVML was not read"


def is_unseen(nvml: Unread, *, bus_seen: bool, old: bool) -> bool:
    """Whether nobody knows how a GPU is now, rather than that it is silent.

    Who may not ask does not know, nor does a recording that has the bus and not NVML; a log alone is all there is. Where NVML is left
    alone, as on an idle node, nothing says that what is old was not cured since.
    """
    if nvml.why is Why.WITHHELD:
        return old
    return nvml.why is Why.NO_PERMISSION or (nvml.why is Why.NOT_RECORDED and bus_seen)


class Judge(Struct, frozen=True):
    """One run's kernel log with what else bears on it."""

    check: str
    errors: GpuErrors
    nvml: Reading[Nvml]
    limits: Thresholds
    bus_seen: bool

    def verdict(self, about: AboutSubject, trouble: Trouble) -> Verdict | None:
        """What there is to say of one trouble; None where nothing has to be done about it."""
        folds = self.pressing(trouble)
        if not folds and not (trouble.recovery is not None and trouble.recovery.action):
            return None
        wanted = for_trouble(trouble, [self._action(fold, trouble.address) for fold in folds])
        useless = useless_until_done(trouble, wanted)
        if not (useless or fatal_link(folds)):
            cured = trouble.recovery is not None and trouble.recovery.action == 0
            return self._warn(about, trouble, wanted, State.WELL.value if cured else "")
        old = self.errors.age(trouble.last) >= self.limits.of("xid_recent_hours") * HOUR
        state = self._state(trouble, old=old)
        if state in (State.WELL, State.LESS) or (old and (state is State.UNTOLD or not useless)):
            return self._warn(about, trouble, wanted, state.value)
        if (
            state is not State.UNSEEN
            and isinstance(self.errors.uptime, Unread)
            and (state is State.UNTOLD or not useless)
        ):
            words = f"{self.summary(trouble, wanted)}; how long ago is not known"
            uptime = self.errors.uptime
            return Unknown(about, uptime.why, words, self.evidence(trouble), uptime.would_need)
        if state is State.UNSEEN:
            assert isinstance(self.nvml, Unread), "it was not read"
            summary = f"{self.summary(trouble, wanted)}; {state.value}"
            return Unknown(about, self.nvml.why, summary, self.evidence(trouble), self.nvml.would_need)
        return Fail(
            about,
            self.summary(trouble, wanted),
            self.evidence(trouble),
            self.remedies(trouble, wanted),
            Breaks.SUBJECT,
            cause=self.cause(trouble),
        )

    def headline(self, trouble: Trouble) -> str:
        """The summary with what NVIDIA asks for."""
        return self.summary(
            trouble, for_trouble(trouble, [self._action(one, trouble.address) for one in trouble.folds])
        )

    def earlier(self, about: AboutSubject, trouble: Trouble) -> Warn | None:
        """Of the boot before only a warning, whatever it was: the reboot may have cured it."""
        folds = self.pressing(trouble)
        if not folds:
            return None
        wanted = for_trouble(trouble, [self._action(fold, trouble.address) for fold in folds])
        summary = f"none since boot, but in the boot before {self.summary(trouble, wanted)}"
        return Warn(about, summary, self.evidence(trouble), self.remedies(trouble, wanted), cause=self.cause(trouble))

    def _warn(self, about: AboutSubject, trouble: Trouble, wanted: str, more: str) -> Warn:
        summary = "; ".join(part for part in (self.summary(trouble, wanted), more) if part)
        steps = self.remedies(trouble, wanted)
        return Warn(about, summary, self.evidence(trouble), steps, cause=self.cause(trouble))

    def pressing(self, trouble: Trouble) -> tuple[Fold, ...]:
        """The Xids of a trouble that ask for something."""
        return tuple(fold for fold in trouble.folds if self._action(fold, trouble.address) != IGNORE)

    def ignorable(self, trouble: Trouble) -> int:
        """How many lines of it ask for nothing."""
        return sum(fold.count for fold in trouble.folds if self._action(fold, trouble.address) == IGNORE)

    def _action(self, fold: Fold, address: str) -> str:
        return action(fold, hopper=self._is_hopper(address), branch=self._branch(fold))

    # What NVML adds -------------------------------------------------------------------------------------------------

    def _branch(self, fold: Fold) -> int | None:
        """Of the driver that wrote the lines: the one that the log saw loaded before them, else the one that answers now."""
        loaded = self.errors.branch_at(fold.last)
        if loaded is not None:
            return loaded
        version = None if isinstance(self.nvml, Unread) else self.nvml.driver_version
        return decimal((version or "").partition(".")[0])

    def _is_hopper(self, address: str) -> bool:
        device = None if isinstance(self.nvml, Unread) else self.nvml.device(address)
        return device is not None and device.fields.get("architecture") == "hopper"

    def _state(self, trouble: Trouble, *, old: bool) -> State:
        if isinstance(self.nvml, Unread):
            return State.UNSEEN if is_unseen(self.nvml, bus_seen=self.bus_seen, old=old) else State.SILENT
        device = self.nvml.device(trouble.address)
        if device is None or device.error is not None or self.nvml.failure is not None:
            return State.SILENT
        if device.recovery or device.fields.get("reset_required") is True:
            return State.LESS if _is_less(device, trouble) else State.ASKED
        told = device.fields.get("recovery_action") == "none" or (
            device.fields.get("reset_required") is False and trouble.area is not Area.NVLINK
        )
        if told or (trouble.recovery is not None and trouble.recovery.action == 0):
            return State.WELL
        return State.UNTOLD

    # In words -------------------------------------------------------------------------------------------------------

    def summary(self, trouble: Trouble, wanted: str) -> str:
        """The Xid, its meaning, whom it hit, what came with it, what NVIDIA asks for, and how it fits in with others."""
        lead = next(iter(self.pressing(trouble)), trouble.lead)
        others = [_times(fold) for fold in trouble.folds if fold is not lead]
        wake = [_times(fold) for fold in trouble.aftermath]
        parts = [
            f"{_times(lead)}{self._when(lead)}: {lead.xid.means}",
            *decoded(lead, hopper=self._is_hopper(trouble.address), branch=self._branch(lead))[:2],
            self._hit(trouble, lead),
            f"with it {', '.join(others[:4])}" if others else "",
            f"in its wake {', '.join(wake[:3])}" if wake else "",
            *self._patterns(trouble, lead),
            self._wanted(trouble, wanted),
            self._serial(trouble),
        ]
        return "; ".join(part for part in parts if part)

    def _when(self, fold: Fold) -> str:
        at = in_words(fold.last.at)
        return "" if not at else f" (last {at})" if fold.count > 1 else f" ({at})"

    def _hit(self, trouble: Trouble, lead: Fold) -> str:
        hits = lead.hits or tuple(hit for fold in (*trouble.folds, *trouble.aftermath) for hit in fold.hits)
        words = [self.errors.owners[hit].words for hit in reversed(hits) if hit in self.errors.owners]
        distinct = list(dict.fromkeys(words))
        more = f" and {len(distinct) - 2} more" if len(distinct) > 2 else ""
        return f"it hit {', '.join(distinct[:2])}{more}" if distinct else ""

    def _patterns(self, trouble: Trouble, lead: Fold) -> list[str]:
        """Again after a reboot, again and again, on several GPUs at once."""
        said = []
        if any((trouble.address, code) in self.errors.again for code in trouble.codes):
            said.append("the boot before saw it on this GPU too")
        if trouble.area is not Area.APPLICATION and len(trouble.starts) >= self.limits.of("xid_repeats"):
            said.append(f"it came {len(trouble.starts)} separate times")
        others = [one for one in self._group(trouble) if one != trouble.address]
        if others:
            named = ", ".join(others[:MOST_NAMED]) + (f" and {len(others) - MOST_NAMED} more" if others[3:] else "")
            said.append(f"at the same time as {named}: look for what they share (power, a PCIe switch, the host)")
        return said

    def _group(self, trouble: Trouble) -> tuple[str, ...]:
        return self.errors.together.get((trouble.address, trouble.area), ())

    def _wanted(self, trouble: Trouble, wanted: str) -> str:
        if trouble.recovery is not None and trouble.recovery.action:
            return f"the driver asks for: {trouble.recovery.word}"
        return f"NVIDIA: {BUCKETS.get(wanted, wanted)}"

    def _serial(self, trouble: Trouble) -> str:
        """For a replacement of a GPU that cannot be asked any more."""
        board = self.errors.identity(trouble.address)
        lost = FALLEN in trouble.codes or trouble.area is Area.MEMORY
        return f"board serial number {board.serial}" if board is not None and board.serial and lost else ""

    def cause(self, trouble: Trouble) -> str:
        """GPUs that it befell at once have one cause; an application's error is one wherever the program ran."""
        group = self._group(trouble)
        if group:
            return f"at-once-{group[0]}"
        names = {hit.name for fold in trouble.folds for hit in fold.hits if hit.name}
        return f"application-{min(names)}" if trouble.area is Area.APPLICATION and len(names) == 1 else ""

    def evidence(self, trouble: Trouble) -> Cited:
        """The first and last line of the cause, the last of what came with it, the board, the process, and the catalogue's row."""
        lead = next(iter(self.pressing(trouble)), trouble.lead)
        lines: list[XidLine] = [lead.first, lead.last]
        lines += [fold.last for fold in trouble.folds if fold is not lead][:MOST_NAMED]
        lines += [fold.last for fold in trouble.aftermath][:1]
        lines += [trouble.recovery.line] if trouble.recovery is not None else []
        told = dict.fromkeys(self.errors.evidence(line) for line in lines)
        board = self.errors.identity(trouble.address)
        identity = (
            () if board is None else tuple(Evidence(self.errors.where, said, at or None) for at, said in board.lines)
        )
        owners = (self.errors.owners[hit] for hit in lead.hits[-2:] if hit in self.errors.owners)
        living = tuple(piece for owner in owners for piece in owner.evidence)
        return (*told, *identity, *living, catalogue(lead))

    def remedies(self, trouble: Trouble, wanted: str) -> tuple[Remedy, ...]:
        """What the driver itself asks for, else NVIDIA's catalogue."""
        if trouble.recovery is not None and trouble.recovery.action:
            return recover(trouble.recovery.word, self.check)
        return also_confirming(remedies_for(wanted, trouble.address), self.check)


def _is_less(device: NvmlDevice, trouble: Trouble) -> bool:
    """Whether what the driver asks for has nothing to do with a trouble that wants a reset: it asks for the most of all (gpu.c)."""
    if device.fields.get("reset_required") is True:
        return False
    return device.recovery == IMEX_DOMAIN or (device.recovery == "drain_p2p" and trouble.area is not Area.NVLINK)


def _times(fold: Fold) -> str:
    """`Xid 48 twice on GPU instance 5`."""
    times = "" if fold.count == 1 else " twice" if fold.count == 2 else f" {fold.count} times"
    place = f" on {fold.instance}" if fold.instance else ""
    name = "off the bus without an Xid" if not fold.first.numbered else f"Xid {fold.code}"
    return f"{name}{times}{place}"


def catalogue(fold: Fold) -> Evidence:
    """NVIDIA's word on an Xid and who can be to blame, where that is from, and who sees it otherwise."""
    known = fold.xid
    parts = [
        f"Xid {known.code}{f' {known.mnemonic}' if known.mnemonic else ''}: {known.immediate or 'no action'}",
        f"then {known.investigate}" if known.investigate else "",
        f"blame: {' or '.join(known.blame)}" if known.blame else "",
        f"the action is ours: {known.ours}" if known.ours else "",
        known.elsewhere,
    ]
    return Evidence(known.source, "; ".join(part for part in parts if part))
