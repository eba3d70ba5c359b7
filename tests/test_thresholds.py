"""The numbers that decide: each has a source, a site can set its own, and a wrong name or number is refused."""

import math

import pytest

from gpudoctor.config import Config, ConfigError, from_json
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.thresholds import Thresholds
from gpudoctor.knowledge.thresholds import THRESHOLDS
from gpudoctor.sources.recorded import RecordedNode, Tree
from gpudoctor.testing import node, run_node
from gpudoctor.verdicts import Status

CONFIG = "config.toml"


def thresholds(config: Config) -> Thresholds:
    """The fact under a configuration."""
    found = Desk(RecordedNode(Tree()), config).get(Thresholds)
    assert isinstance(found, Thresholds)
    return found


def test_every_threshold_has_a_number_a_unit_and_a_source() -> None:
    assert len(THRESHOLDS) >= 20
    for name, row in THRESHOLDS.items():
        assert name == row.name and math.isfinite(row.default) and row.default >= 0
        assert row.unit and row.source, name


def test_the_sites_number_wins_and_the_evidence_says_whose_it_is() -> None:
    own = thresholds(from_json({"thresholds": {"straggler_celsius": 25}}, CONFIG, ()))
    assert own.of("straggler_celsius") == 25
    assert own.cite("straggler_celsius")[0].where == "configuration"
    stock = thresholds(Config())
    assert stock.of("straggler_celsius") == THRESHOLDS["straggler_celsius"].default
    assert THRESHOLDS["straggler_celsius"].source in stock.cite("straggler_celsius")[0].shows


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"stragler_celsius": 25}, "did you mean 'straggler_celsius'"),
        ({"straggler_celsius": -1}, "must be a number from 0 on"),
        ({"straggler_celsius": float("nan")}, "must be a number from 0 on"),
        ({"straggler_celsius": float("inf")}, "must be a number from 0 on"),
        ({"straggler_celsius": "hot"}, "Expected `float`"),
    ],
)
def test_a_wrong_name_or_number_is_refused(value: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_json({"thresholds": value}, CONFIG, ())


def test_a_finding_goes_with_its_number() -> None:
    recorded = node("power-limit-below-default")
    assert run_node(recorded).result("health.power-limit").status is Status.WARN
    lax = from_json({"thresholds": {"power_limit_percent": 1}}, CONFIG, ())
    assert run_node(recorded, lax).result("health.power-limit").status is Status.PASS
