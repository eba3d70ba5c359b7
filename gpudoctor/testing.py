"""Public helpers for authors of checks: recorded nodes by name, and one check over one node.

result = run_check("kernel-module.gpu-bound", node("nouveau-holds-all-eight"))
assert result.status is Status.FAIL
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from gpudoctor.config import Config, from_json
from gpudoctor.registry import Registry, built_in
from gpudoctor.report import Report, Result
from gpudoctor.run import Selection, run
from gpudoctor.sources.snapshot import Snapshot, open_snapshot

if TYPE_CHECKING:
    from gpudoctor.details import FullReport


def fixtures() -> Path:
    """The folder of recorded nodes: GPUDOCTOR_FIXTURES, or the repository's. Raises FileNotFoundError."""
    named = os.environ.get("GPUDOCTOR_FIXTURES")
    place = Path(named) if named else Path(__file__).resolve().parent.parent / "fixtures" / "nodes"
    if not place.is_dir():
        raise FileNotFoundError(f"{place}: no recorded nodes there; set GPUDOCTOR_FIXTURES")
    return place


def node(name: str) -> Snapshot:
    """A recorded node by the name of its folder. Raises SourceError when there is none."""
    return open_snapshot(fixtures() / name)


def config_of(recorded: Snapshot) -> Config:
    """The configuration a recorded node was recorded under."""
    return from_json(recorded.manifest.config, "snapshot.json", ()) if recorded.manifest else Config()


@overload
def run_node(recorded: Snapshot, config: Config | None = None, registry: Registry | None = None) -> Report: ...


@overload
def run_node(
    recorded: Snapshot, config: Config | None = None, registry: Registry | None = None, *, details: Literal[True]
) -> "FullReport": ...


def run_node(
    recorded: Snapshot, config: Config | None = None, registry: Registry | None = None, *, details: bool = False
) -> "Report | FullReport":
    """The whole report on a recorded node, with details where they are asked for."""
    assert recorded.manifest is not None
    settings = config_of(recorded) if config is None else config
    checks = built_in(deferred=True) if registry is None else registry
    if not details:
        return run(recorded, settings, checks, Selection(), recorded.manifest.recorded_at)
    from gpudoctor.details_run import run_in_full

    return run_in_full(recorded, settings, checks, Selection(), recorded.manifest.recorded_at)


def run_check(check_id: str, recorded: Snapshot, config: Config | None = None) -> Result:
    """How one check ends on a recorded node, everything it needs being run too. Raises KeyError for an unknown id."""
    return run_node(recorded, config).result(check_id)
