"""The configuration: what hardware to expect, which checks are off, which findings are waived."""

import datetime
from typing import Any

import msgspec
from msgspec import Struct

_LISTED = 40
"""How many names an error message lists."""


class ConfigError(Exception):
    """The configuration cannot be used; the message names the file, the key and the nearest right one."""


class Expect(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the node should have. `profile` names a kind of machine; `gpus` wins over its count.

    The other entries are versions or the beginnings of versions: "580" stands for every 580.x.
    """

    gpus: int | None = None
    profile: str | None = None
    driver: tuple[str, ...] = ()
    driver_denied: tuple[str, ...] = ()
    vbios: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.gpus is not None and self.gpus < 0:
            raise ValueError("expect.gpus must not be negative")
        for key in ("driver", "driver_denied", "vbios"):
            if not all(any(map(str.isalnum, version)) for version in getattr(self, key)):
                raise ValueError(f"expect.{key} has an entry that is no version")


class Slurm(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What `gpudoctor slurm` may do to the node, which by default is nothing, and whether Slurm is asked about it.

    `drain` allows draining, for a fail of a check of `drain_on` (by default every check that isolates) in `failures` health checks in a
    row; `undrain` takes back what was drained so, after as many in which all is well. `prolog` and `epilog` allow ending with a failure,
    for which Slurm drains as well.
    """

    drain: bool = False
    drain_on: tuple[str, ...] | None = None
    undrain: bool = True
    failures: int = 2
    prolog: bool = False
    epilog: bool = False
    ask: bool = True

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ValueError("slurm.failures must be 1 or more")


class Health(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How `gpudoctor health` counts and how much it remembers.

    What is wrong counts when it was seen in `lasting` passes in a row; what changes `flapping_changes` times within `flapping_window`
    seconds is told once. `keep_days` and `keep_runs` bound the memory. With `ask_nvml` NVML is asked even while nobody uses a GPU.
    A cached answer is stale after `stale_after` seconds, by default after three intervals between passes, and not before ten minutes.
    """

    lasting: int = 2
    flapping_changes: int = 6
    flapping_window: float = 3600.0
    keep_days: float = 90.0
    keep_runs: int = 10_000
    ask_nvml: bool = False
    stale_after: float | None = None

    def __post_init__(self) -> None:
        for key, least, most in (("lasting", 1, 1000), ("flapping_changes", 2, 1000), ("keep_runs", 1, 100_000)):
            if not least <= getattr(self, key) <= most:
                raise ValueError(f"health.{key} must be from {least} to {most}")
        for key in ("flapping_window", "keep_days", "stale_after"):
            value = getattr(self, key)
            # NaN compares with nothing.
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"health.{key} must be more than 0")


class Waiver(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A finding known and accepted: it keeps its status and evidence but does not count until `until` has passed."""

    check: str
    reason: str
    subject: str = "*"
    until: datetime.date | None = None

    def covers(self, check_id: str, subject_key: str, today: datetime.date) -> bool:
        """Whether it applies to this finding today; `subject` is a subject's key or `*`."""
        return self.check == check_id and self.subject.lower() in ("*", subject_key.lower()) and not self.expired(today)

    def expired(self, today: datetime.date) -> bool:
        """Whether its last day is over."""
        return self.until is not None and today > self.until


class Config(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The effective configuration, as a snapshot stores it. With `advisories`, known vulnerabilities of what is installed are told.

    `thresholds` are the site's own numbers in place of those of knowledge/thresholds.py, by their names.
    """

    expect: Expect = Expect()
    thresholds: dict[str, float] = {}
    advisories: bool = False
    disable: tuple[str, ...] = ()
    waive: tuple[Waiver, ...] = ()
    slurm: Slurm = Slurm()
    health: Health = Health()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; what is at its default is left out."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def from_json(values: object, where: str, check_ids: tuple[str, ...]) -> Config:
    """Validate plain values read from `where`. Raises ConfigError."""
    if isinstance(values, dict):
        _refuse_unknown_keys(values, Config, where)
    try:
        config = msgspec.convert(values, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error
    for check_id in (*config.disable, *(waiver.check for waiver in config.waive), *(config.slurm.drain_on or ())):
        if check_ids and check_id not in check_ids:
            raise ConfigError(f"{where}: there is no check {check_id!r}{nearest(check_id, check_ids)}")
    if config.expect.profile is not None:
        _refuse_unknown_profile(config.expect.profile, where)
    if config.thresholds:
        _refuse_unknown_thresholds(config.thresholds, where)
    return config


def _refuse_unknown_thresholds(thresholds: dict[str, float], where: str) -> None:
    from gpudoctor.knowledge.thresholds import THRESHOLDS

    for name, value in thresholds.items():
        if name not in THRESHOLDS:
            raise ConfigError(f"{where}: there is no threshold {name!r}{nearest(name, tuple(sorted(THRESHOLDS)))}")
        # NaN compares with nothing, and would let every finding through or none.
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{where}: thresholds.{name} must be a number from 0 on")


def _refuse_unknown_profile(name: str, where: str) -> None:
    # The table is loaded only by a configuration that names a profile.
    from gpudoctor.knowledge.profiles import names

    if name not in names():
        raise ConfigError(f"{where}: there is no profile {name!r}{nearest(name, names())}")


def merge(layers: list[dict[str, Any]]) -> dict[str, Any]:
    """Later layers win key by key; tables merge, lists add up."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if isinstance(value, dict) and isinstance(merged.get(key), dict):
                merged[key] = merge([merged[key], value])
            elif isinstance(value, list) and isinstance(merged.get(key), list):
                merged[key] = [*merged[key], *value]
            else:
                merged[key] = value
    return merged


def nearest(word: str, known: tuple[str, ...]) -> str:
    """`; did you mean 'x'?` when something similar is known, else the first of what is known."""
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"; known are: {', '.join(known[:_LISTED])}{more}"


def _refuse_unknown_keys(table: dict[str, Any], kind: type[Struct], where: str, prefix: str = "") -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            raise ConfigError(f"{where}: unknown key {prefix + key!r}{nearest(key, tuple(fields))}")
        if isinstance(value, dict) and isinstance(fields[key], type) and issubclass(fields[key], Struct):
            _refuse_unknown_keys(value, fields[key], where, f"{prefix}{key}.")
