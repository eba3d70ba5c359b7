"""Episodes: how long something has been wrong, whether it lasts, comes and goes, or was a blip; decided from pass to pass.

An episode begins when a finding turns to warn or fail (an essential one also to unknown) and ends when it is seen well again, when its
subject is gone, or with the boot. What cannot be looked at has not healed.
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.health.answer import State, Turn
from gpudoctor.verdicts import Status

MOST_OPEN = 1000
"""So many findings that are wrong are followed at the same time; a node with more has other worries."""
WAITS = "not looked at since the reboot"
LONGEST_WAIT = 30 * 86400.0
_RANK = {Status.WARN: 1, Status.UNKNOWN: 2, Status.FAIL: 3}


class Seen(Struct, frozen=True):
    """A finding that is wrong in this pass. `causes` are the findings that explain it; a `hard` one counts at once."""

    finding: str
    check: str
    link: str
    kind: str
    key: str
    status: Status
    cause: str
    summary: str
    causes: tuple[str, ...] = ()
    hard: bool = False


class Fate(str, Enum):
    """What has become of a finding that was wrong and is not among what is wrong now."""

    WELL = "seen well again"
    GONE = "what it was about is gone"
    WAIVED = "waived"
    UNASKED = "its check is no longer asked"
    REBOOT = "gone with the reboot"
    UNSEEN = "unseen"
    HIDDEN = "hidden"


class Episode(Struct):
    """One stretch of being wrong. Times `at` are seconds since 1970, `elapsed` seconds of the memory's own clock, which never steps.

    `streak` counts passes in a row in which it was seen; `bad` is whether it was so when it was last looked at. `since` reaches back over
    reboots, `boots` counts them. `told` is whether it was reported as new. `id` is its row, 0 before it has one.
    """

    finding: str
    check: str
    link: str
    kind: str
    key: str
    cause: str
    status: Status
    worst: Status
    summary: str
    state: State
    follows: bool
    hard: bool
    boot: int
    since: float
    first_at: float
    last_at: float
    elapsed: float
    unseen: str = ""
    bad: bool = True
    told: bool = False
    times: int = 1
    streak: int = 1
    boots: int = 1
    turns: int = 0
    ended_at: float | None = None
    ended: str = ""
    id: int = 0

    @property
    def counts(self) -> bool:
        """Whether it makes the verdict: not as a blip, nor while something below is down and tells of it."""
        return self.state is not State.BLIP and self.unseen != Fate.HIDDEN.value

    @property
    def counted(self) -> Status:
        """As what it counts: what comes and goes counts at its worst."""
        return self.worst if self.state is State.FLAPPING else self.status


class Rules(Struct, frozen=True):
    """How many passes in a row make something lasting; how many changes within how many seconds make it flap."""

    lasting: int = 2
    flapping_changes: int = 6
    flapping_window: float = 3600.0


class Now(Struct, frozen=True):
    """When a pass is: seconds since 1970, the memory's own clock, the boot's row; whether there was no pass before it to compare with."""

    at: float
    elapsed: float
    boot: int
    first: bool = False


class Told(Struct, frozen=True):
    """A change of one finding."""

    turn: Turn
    episode: Episode
    before: str = ""
    how: str = ""


class Ledger:
    """The episodes of a node as one pass leaves them, from those that the pass before left open."""

    def __init__(
        self,
        rules: Rules,
        now: Now,
        episodes: Iterable[Episode] = (),
        tracks: Mapping[str, tuple[float, ...]] | None = None,
    ) -> None:
        """`tracks` are the moments, by the memory's clock, at which findings turned lately."""
        self._rules = rules
        self._now = now
        known = list(episodes)
        self.open: dict[str, Episode] = {one.finding: one for one in known if one.unseen != WAITS}
        self.ended: list[Episode] = []
        self.told: list[Told] = []
        since = now.elapsed - rules.flapping_window
        recent = {name: tuple(at for at in moments if at > since) for name, moments in (tracks or {}).items()}
        self.tracks: dict[str, tuple[float, ...]] = {name: moments for name, moments in recent.items() if moments}
        self._past: dict[str, Episode] = {one.finding: one for one in known if one.unseen == WAITS}
        self.waiting: list[Episode] = []

    def reboot(self, *, forget: bool = False) -> None:
        """The boot of what is open has ended, and so has what is open: at its last sight, not now.

        With `forget` it was of another node, and is nothing to compare with.
        """
        self._past, self.open, self.tracks = {**self._past, **self.open}, {}, {}
        if forget:
            for episode in self._past.values():
                self._end_with_boot(episode)
            self._past = {}

    def take(self, seen: Iterable[Seen], fates: Mapping[str, tuple[Fate, str]]) -> None:
        """What is wrong now, and what has become of whatever was: by finding, with a word on why it cannot be seen."""
        present = {one.finding: one for one in seen}
        for finding, episode in list(self.open.items()):
            if finding not in present:
                fate, why = fates.get(finding, (Fate.GONE, ""))
                self._absent(episode, fate, why)
        for one in sorted(present.values(), key=lambda seen: -_RANK[seen.status]):
            known = self.open.get(one.finding)
            if known is not None:
                self._again(known, one)
            elif len(self.open) < MOST_OPEN or one.hard:
                self._begin(one)
        self._count_what_nobody_tells(fates)
        self._tell_what_no_cause_tells(present)
        for finding, past in self._past.items():
            fate = fates.get(finding, (Fate.GONE, ""))[0]
            recent = self._now.elapsed - past.elapsed < LONGEST_WAIT
            if finding not in present and fate in (Fate.UNSEEN, Fate.HIDDEN) and past.told and recent:
                # Whether the reboot has healed it is told by the first pass that can look.
                past.unseen = WAITS
                self.waiting.append(past)
                continue
            self._end_with_boot(past)
            if finding not in present and fate in (Fate.WELL, Fate.GONE) and past.told:
                self.told.append(Told(Turn.HEALED, past, past.status.value, Fate.REBOOT.value))

    def _end_with_boot(self, episode: Episode) -> None:
        episode.unseen, episode.ended_at, episode.ended = "", episode.last_at, Fate.REBOOT.value
        self.ended.append(episode)

    def _count_what_nobody_tells(self, fates: Mapping[str, tuple[Fate, str]]) -> None:
        """What is blocked is left to what blocks it, but not while that does not count itself, as a blip."""
        for finding, episode in self.open.items():
            if episode.unseen != Fate.HIDDEN.value:
                continue
            by = fates[finding][1].split()
            if by and not any(one in self.open and self.open[one].counts for one in by):
                episode.unseen = f"blocked by {by[0]}"

    def _tell_what_no_cause_tells(self, present: Mapping[str, Seen]) -> None:
        """What follows from something else is left to that, but not while that does not count itself, as a blip."""
        counting = [one for one in self.open.values() if one.counts]
        for episode in counting:
            if episode.follows and self._is_told_by_another(episode, present.get(episode.finding), counting):
                continue
            episode.follows = False
            if not episode.told:
                self._tell(episode, Turn.NEW)

    def _is_told_by_another(self, episode: Episode, one: Seen | None, counting: Iterable[Episode]) -> bool:
        """What explains a finding that cannot be seen now is not known: it is enough then that something as bad is told of."""
        as_bad = (other for other in counting if _RANK[other.counted] >= _RANK[episode.counted])
        return any(other.finding in one.causes if one is not None else not other.follows for other in as_bad)

    def _begin(self, one: Seen) -> None:
        now, past = self._now, self._past.get(one.finding)
        episode = Episode(
            finding=one.finding,
            check=one.check,
            link=one.link,
            kind=one.kind,
            key=one.key,
            cause=one.cause,
            status=one.status,
            worst=one.status,
            summary=one.summary,
            state=State.BLIP,
            follows=bool(one.causes),
            hard=one.hard,
            boot=now.boot,
            since=past.since if past is not None else now.at,
            first_at=now.at,
            last_at=now.at,
            elapsed=now.elapsed,
            boots=past.boots + 1 if past is not None else 1,
        )
        self.open[one.finding] = episode
        if past is None and not now.first:
            self._turned(episode)
        if past is not None and past.state is not State.BLIP:
            episode.state = State.LASTING
            self._tell(episode, Turn.STAYS, before=past.status.value, how="still there after the reboot")
        elif self._flaps(episode):
            self._flap(episode)
        elif one.hard or now.first or self._rules.lasting <= 1:
            self._lasts(episode)

    def _again(self, episode: Episode, one: Seen) -> None:
        """Seen again: whatever it was last, it is not hidden any more."""
        before = episode.status
        came_back = not episode.bad
        turned = came_back or (one.status is not before and episode.state is not State.BLIP)
        episode.times += 1
        episode.streak = 1 if came_back else episode.streak + 1
        episode.bad, episode.unseen = True, ""
        episode.last_at, episode.elapsed = self._now.at, self._now.elapsed
        # Nothing begins in the future: the clock has stepped back.
        episode.since, episode.first_at = min(episode.since, self._now.at), min(episode.first_at, self._now.at)
        episode.status, episode.summary, episode.cause = one.status, one.summary, one.cause
        episode.follows, episode.hard = bool(one.causes), one.hard
        episode.worst = max(episode.worst, one.status, key=_RANK.__getitem__)
        if turned:
            self._turned(episode)
        match episode.state:
            case State.BLIP if one.hard or episode.streak >= self._rules.lasting:
                self._lasts(episode)
            case State.LASTING if not episode.told:
                self._tell(episode, Turn.NEW)
            case State.LASTING if turned and self._flaps(episode):
                self._flap(episode)
            case State.LASTING if one.status is not before:
                worse = _RANK[one.status] > _RANK[before]
                self._tell(episode, Turn.WORSE if worse else Turn.BETTER, before=before.value)
            case State.FLAPPING if not self.tracks.get(episode.finding):
                episode.state = State.LASTING
                self._tell(episode, Turn.STAYS, before=before.value, how="no longer comes and goes: it stays")

    def _absent(self, episode: Episode, fate: Fate, why: str) -> None:
        """No longer among what is wrong. Not seeing it is no news of it."""
        if fate in (Fate.UNSEEN, Fate.HIDDEN) and not episode.bad and not self.tracks.get(episode.finding):
            # It came and went, was well when it was last looked at, and has not turned since.
            fate = Fate.WELL
        if fate in (Fate.UNSEEN, Fate.HIDDEN):
            episode.unseen = why if fate is Fate.UNSEEN else fate.value
            return
        episode.unseen = ""
        # What goes away and comes back, a container for example, comes and goes too.
        turns = fate in (Fate.WELL, Fate.GONE)
        if episode.bad and turns:
            self._turned(episode)
        episode.bad = False
        if turns and episode.state is State.FLAPPING and self.tracks.get(episode.finding):
            return
        if turns and self._flaps(episode):
            self._flap(episode)
            return
        episode.ended_at, episode.ended = self._now.at, fate.value
        # What somebody waived or switched off is no news to them.
        if episode.state is not State.BLIP and episode.told and fate in (Fate.WELL, Fate.GONE):
            self._tell(episode, Turn.HEALED, before=episode.status.value, how=fate.value)
        self.ended.append(self.open.pop(episode.finding))

    def _lasts(self, episode: Episode) -> None:
        episode.state = State.LASTING
        self._tell(episode, Turn.NEW)

    def _flap(self, episode: Episode) -> None:
        episode.state = State.FLAPPING
        window = self._rules.flapping_window / 60
        self._tell(episode, Turn.FLAPPING, how=f"{len(self.tracks[episode.finding])} changes in {window:g} minutes")

    def _flaps(self, episode: Episode) -> bool:
        return len(self.tracks.get(episode.finding, ())) >= self._rules.flapping_changes

    def _turned(self, episode: Episode) -> None:
        """It became wrong, worse, better, or well."""
        episode.turns += 1
        moments = (*self.tracks.get(episode.finding, ()), self._now.elapsed)
        self.tracks[episode.finding] = moments[-self._rules.flapping_changes :]

    def _tell(self, episode: Episode, turn: Turn, *, before: str = "", how: str = "") -> None:
        """What follows from another finding is told with that one."""
        if episode.follows and turn is not Turn.HEALED:
            return
        episode.told = True
        self.told.append(Told(turn, replace(episode), before, how))
