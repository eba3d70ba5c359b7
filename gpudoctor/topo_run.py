"""One run of `gpudoctor topo`: read the whole graph, join it with what NVML and the checks say of it."""

import datetime

from gpudoctor.config import Config, ConfigError
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import Raw
from gpudoctor.topo import Remark, Topo
from gpudoctor.topo_drawing import JUDGED, draw, remarks
from gpudoctor.verdicts import Unread


def topo(raw: Raw, config: Config, now: datetime.datetime, *, judge: bool = True) -> Topo:
    """The node's topology; with `judge` the checks of what is drawn are run as well. Raises ConfigError where nothing is known of it."""
    desk = Desk(raw, config)
    stamp = now.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    drawn = draw(desk, desk.get(Nvml), stamp, lambda: _judged(desk, now) if judge else ())
    if isinstance(drawn, Unread):
        raise ConfigError(f"nothing to draw: {': '.join(words for words in (drawn.where, drawn.detail) if words)}")
    return drawn


def _judged(desk: Desk, now: datetime.datetime) -> tuple[Remark, ...]:
    """What the checks of these links find."""
    from gpudoctor.registry import built_in
    from gpudoctor.run import Selection, run

    links = tuple(link.value for link in JUDGED)
    return remarks(run(desk.raw, desk.config, built_in(), Selection(links=links), now, desk=desk))
