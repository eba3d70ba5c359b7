"""That an earlier run hangs, as an episode like any other: the next pass that can be made ends it."""

from msgspec.structs import replace

from gpudoctor.health.answer import Earlier, State
from gpudoctor.health.cached import LINK, NOT_ENDED
from gpudoctor.health.episodes import Episode
from gpudoctor.health.store import Past
from gpudoctor.verdicts import NODE, Status


def episode_of(past: Past, earlier: Earlier, at: float) -> Episode:
    """The episode after one more pass that found it so."""
    finding = f"{NOT_ENDED}@{NODE.id}"
    for known in past.episodes:
        if known.finding == finding:
            return replace(known, times=known.times + 1, last_at=at)
    return Episode(
        finding=finding,
        check=NOT_ENDED,
        link=LINK,
        kind=NODE.kind.value,
        key=NODE.key,
        cause="",
        status=Status.FAIL,
        worst=Status.FAIL,
        summary=f"a pass that began at {earlier.since} has not ended: it {earlier.hangs}",
        state=State.LASTING,
        follows=False,
        hard=True,
        boot=past.last.boot,
        since=at,
        first_at=at,
        last_at=at,
        elapsed=past.last.elapsed,
        told=True,
    )
