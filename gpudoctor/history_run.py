"""`gpudoctor history`: what the memory of `gpudoctor health` holds, read and left as it is."""

import argparse
import datetime
import os
import re
import sys

from gpudoctor.config import ConfigError, nearest
from gpudoctor.health.history import Wish, history_of
from gpudoctor.health.places import DATABASE, NoPlaceError, state_directory
from gpudoctor.health.store import CannotKeepError, Store
from gpudoctor.sources.errors import SourceError

_AGO = re.compile(r"(\d{1,6})([mhdw])")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def history(options: argparse.Namespace) -> str:
    """The history as the options want it shown. Raises ConfigError for what is wrong with them, SourceError without a memory."""
    wish = Wish(tuple(options.check), tuple(map(_address, options.gpu)), _since(options.since))
    _refuse_unknown_checks(wish.checks)
    try:
        path = state_directory(options.state, os.environ, os.geteuid()) / DATABASE
        if not path.is_file():
            raise SourceError(f"{path.parent}: nothing is remembered there: `gpudoctor health` makes a memory")
        store = Store(path, change=False)
        try:
            told = history_of(store, wish)
        finally:
            store.close()
    except (NoPlaceError, CannotKeepError) as error:
        raise SourceError(str(error)) from error
    if options.format == "json":
        from gpudoctor.reports import json

        return json.render(told)
    from gpudoctor.reports import history_terminal
    from gpudoctor.reports.look import Look

    return history_terminal.render(told, Look.chosen(options, sys.stdout, file=False))


def _since(word: str | None) -> float | None:
    """A moment, or how long ago, in seconds since 1970."""
    if word is None:
        return None
    ago = _AGO.fullmatch(word)
    now = datetime.datetime.now(datetime.timezone.utc)
    if ago is not None:
        return now.timestamp() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        moment = datetime.datetime.fromisoformat(word.replace("Z", "+00:00"))
    except ValueError as error:
        raise ConfigError(
            f"--since {word}: neither a time such as 2026-11-29T12:00:00Z nor one such as 12h or 7d"
        ) from error
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.timezone.utc)).timestamp()


def _address(word: str) -> str:
    """As sysfs writes it, whatever NVML's or the kernel's way of writing was copied."""
    from gpudoctor.facts.nvml import normal_address

    for written in (word, f"{word}.0"):
        try:
            return normal_address(written)
        except ValueError:
            continue
    raise ConfigError(f"--gpu {word}: not a PCI address such as 0000:18:00.0")


def _refuse_unknown_checks(checks: tuple[str, ...]) -> None:
    if not checks:
        return
    from gpudoctor.health.cached import NOT_ENDED
    from gpudoctor.registry import built_in

    known = (*built_in(deferred=True).ids, NOT_ENDED)
    for check in checks:
        if check not in known:
            raise ConfigError(f"there is no check {check!r}{nearest(check, known)}")
