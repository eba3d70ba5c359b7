"""Opens the two sides of `gpudoctor diff`: a saved report, a recording of any kind, or this node."""

import datetime
import os
import sys
import time
from pathlib import Path

from gpudoctor.config import Config, from_json
from gpudoctor.differing.party import Party
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.raw import Raw, SourceKind
from gpudoctor.registry import Registry
from gpudoctor.run import Selection, run
from gpudoctor.sources.errors import SourceError

LIVE = "live"
HEAD = 4096
MOST_BYTES = 64 * 1024 * 1024
"""No saved report is larger."""


def opened(letter: str, given: str, registry: Registry, config: str | None, deadline: float) -> Party:
    """A side, looked at. Raises SourceError and ConfigError."""
    if given != LIVE and _is_report(given):
        from gpudoctor.reports.saved import read_report

        if os.path.getsize(given) > MOST_BYTES:
            raise SourceError(f"{given}: larger than any report")
        report = read_report(given)
        return Party(letter, given, report, None, _moment(report.started_at))
    now = datetime.datetime.now(datetime.timezone.utc)
    raw, settings, at, redacted = _live(registry, config, deadline, now) if given == LIVE else _recorded(given)
    if config is not None and given != LIVE:
        from gpudoctor.sources.config_files import read_config

        settings = read_config(config, registry.ids)
    desk = Desk(raw, settings, time.monotonic)
    report = run(raw, settings, registry, Selection(), at or now, desk=desk)
    return Party(letter, given, report, desk, at, redacted)


def _is_report(given: str) -> bool:
    """By content: JSON of one of our schemas, or a page. What nvidia-smi prints is XML, not HTML.

    A pipe is no file: its beginning can be read only once, and nobody may ever write to it.
    """
    if not os.path.isfile(given):
        return False
    try:
        with open(given, "rb") as file:
            head = file.read(HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return False
    if head.startswith(b"{"):
        return b'"gpudoctor.' in head
    return head[:15].lower() in (b"<!doctype html>", b"<!doctype html ") or head[:5].lower() == b"<html"


def _moment(stamp: str) -> datetime.datetime | None:
    try:
        moment = datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return None
    return moment.replace(tzinfo=datetime.timezone.utc)


_Opened = tuple[Raw, Config, datetime.datetime | None, bool]


def _live(registry: Registry, config: str | None, deadline: float, now: datetime.datetime) -> _Opened:
    from gpudoctor.probes.deadline import Deadline
    from gpudoctor.sources.config_files import load_config
    from gpudoctor.sources.live import Live

    return Live(Deadline(deadline), "/"), load_config("/", registry.ids, config), now, False


def _recorded(given: str) -> _Opened:
    """A bug report and a plain directory do not tell when they were made."""
    from gpudoctor.sources.opening import open_source
    from gpudoctor.sources.snapshot import Snapshot

    if not Path(given.rpartition(":")[0] or given).exists() and not Path(given).exists():
        raise SourceError(f"{given}: no such file or directory ({LIVE!r} is this node)")
    node = open_source(given)
    for note in node.notes:
        print(f"gpudoctor: {given}: {note}", file=sys.stderr)
    if isinstance(node, Snapshot) and node.manifest is not None:
        manifest = node.manifest
        at = manifest.recorded_at
        at = at.replace(tzinfo=datetime.timezone.utc) if at.tzinfo is None else at.astimezone(datetime.timezone.utc)
        return node, from_json(manifest.config, f"{given}/snapshot.json", ()), at, manifest.redacted
    assert node.kind in SourceKind
    return node, Config(), None, False
