"""Checks that are loaded only where they apply: what was written down of them, and that a run says the same with all loaded."""

import subprocess
import sys
import zlib

import pytest

from gpudoctor.facts.absence import ABSENT
from gpudoctor.facts.desk import Desk
from gpudoctor.knowledge.deferred_checks import ROWS
from gpudoctor.registry import CHECK_MODULES, built_in, loaded
from gpudoctor.report import Report, Result
from gpudoctor.testing import config_of, fixtures, node, run_node
from gpudoctor.verdicts import Status
from tools.deferred_checks import text

ONE_IN = 3
"""A third of the nodes is compared: all others are of the same kinds."""
NODES = sorted(path.name for path in fixtures().iterdir() if zlib.crc32(path.name.encode()) % ONE_IN == 0)
CHECKS = {row[0] for rows in ROWS.values() for row in rows}


def test_what_was_written_down_is_what_is_declared() -> None:
    written: dict[str, object] = {}
    exec(text(), written)  # noqa: S102 - our own words
    assert written["ROWS"] == ROWS, "run `make catalogue`"
    assert set(ROWS) == set(ABSENT) <= set(CHECK_MODULES)
    everything = built_in()
    assert [check.id for check in everything if check.id in CHECKS and (check.essential or check.isolates)] == []
    assert set(built_in(deferred=True).ids) == set(everything.ids)


def test_a_check_is_loaded_where_it_applies() -> None:
    kubernetes, bare = node("kubernetes-gpu-node-healthy"), node("slurm-jobs-unconstrained")
    check = built_in(deferred=True).get("device-plugin.registered")
    assert check is not None and check.module == "kubelet" and not check.parameters
    there = loaded(check, Desk(kubernetes, config_of(kubernetes)))
    assert there.module == "" and there.parameters
    elsewhere = loaded(check, Desk(bare, config_of(bare)))
    assert (elsewhere.id, elsewhere.link, elsewhere.needs) == (there.id, there.link, there.needs)
    assert not elsewhere.parameters


@pytest.mark.parametrize("name", NODES)
def test_a_run_says_the_same_with_all_loaded(name: str) -> None:
    """What is not loaded passes nothing and warns of nothing, and neither would it if it were."""
    quick, whole = run_node(node(name)), run_node(node(name), registry=built_in())
    assert (quick.verdict, _causes(quick)) == (whole.verdict, _causes(whole))
    odd = [
        (one.check, one.status, one.detail, other.status, other.detail)
        for one, other in zip(_sorted(quick), _sorted(whole), strict=True)
        if one.status is not other.status
        and not (one.check in CHECKS and other.status in SILENT and one.status in SILENT)
    ]
    assert odd == []


SILENT = (Status.SKIP, Status.UNKNOWN, Status.BLOCKED)


def _causes(report: Report) -> list[tuple[object, ...]]:
    return [(cause.findings, cause.summary, cause.status) for cause in report.root_causes]


def _sorted(report: Report) -> list[Result]:
    return sorted(report.results, key=lambda result: result.check)


def test_what_a_run_has_loaded_changes_no_later_run() -> None:
    """Of modules that name each other one may be loaded and the other not."""
    code = (
        "from gpudoctor.testing import node, run_node\n"
        "run_node(node('kubernetes-gpu-node-healthy'))\n"
        "print(run_node(node('slurm-jobs-unconstrained')).verdict.value)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pass\n"
