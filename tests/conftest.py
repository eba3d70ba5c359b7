"""Shared fixtures: where the recorded nodes and the shared captures lie, and the flag that rewrites golden files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.health_passes import Passes, quick_place

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites golden files, to be read in the diff."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")


def pytest_make_parametrize_id(val: object, argname: str) -> "str | None":
    """Bytes are no part of a test's name: compressed ones hold the second they were made in, and all workers of a run
    must give a test the same name."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> "Golden":
    """Compares text with a golden file."""
    return Golden(update=bool(request.config.getoption("--update-golden")))


@pytest.fixture
def corpus() -> Path:
    """Real captures, present where the shared material is; tests that need them skip elsewhere."""
    if not (SHARED / "corpus" / "MANIFEST.tsv").is_file():
        pytest.skip("the shared corpus of real captures is not here")
    return SHARED / "corpus"


class Golden:
    """Golden files below tests/golden."""

    def __init__(self, *, update: bool) -> None:
        self._update = update

    def check(self, name: str, text: str) -> None:
        """The text must be the file's, byte for byte."""
        place = REPOSITORY / "tests" / "golden" / name
        if self._update:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8")
        assert text == place.read_text("utf-8"), f"{place} differs: look at it, then pytest --update-golden"


@pytest.fixture
def passes(capsys: pytest.CaptureFixture[str]) -> Iterator[Passes]:
    """Passes with a memory of their own."""
    with quick_place() as place:
        yield Passes(capsys, place / "state")
