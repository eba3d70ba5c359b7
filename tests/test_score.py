"""How often gpudoctor is right over the corpus and the recorded nodes, and that the corpus' key can be trusted."""

import subprocess
import sys
from pathlib import Path

from gpudoctor.registry import built_in
from tests.conftest import REPOSITORY
from tests.pieces import builder_of
from tests.scoring import counted_paths, gate, key, problems, score_corpus, score_fixtures


def test_the_key_speaks_once_of_every_capture_that_counts(corpus: Path) -> None:
    assert sorted(row.path for row in key()) == sorted(counted_paths(corpus))


def test_the_key_names_checks_that_exist() -> None:
    named = {check for row in key() if row.is_a == "fault" for check in row.words}
    assert len(named) >= 5
    assert named <= set(built_in().ids)


def test_what_the_key_calls_unread_is_not_read_and_all_else_but_later_links_is() -> None:
    """A form that becomes readable makes its rows count."""
    for row in key():
        if row.is_a != "later":
            assert (builder_of(row.path) is None) is (row.is_a == "unread"), row.path


def test_captures_are_diagnosed_no_worse_than_the_gate_says(corpus: Path) -> None:
    cases = score_corpus(corpus)
    assert len(cases) >= 430
    assert list(problems("corpus", cases, gate()["corpus"])) == []


def test_recorded_nodes_are_diagnosed_no_worse_than_the_gate_says() -> None:
    assert list(problems("fixtures", score_fixtures(), gate()["fixtures"])) == []


def test_without_the_corpus_the_score_says_so_and_writes_nothing(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "accuracy.md").read_bytes()
    command = [sys.executable, "-m", "bench.score", "--write", "--corpus", str(tmp_path)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert f"no corpus of real captures in {tmp_path}" in run.stdout and "recorded nodes of ours" in run.stdout
    assert (run.returncode, run.stderr) == (1, "score: without the corpus nothing is written\n")
    assert (REPOSITORY / "docs" / "accuracy.md").read_bytes() == page
