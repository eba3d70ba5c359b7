"""A coverage-guided fuzzer of whatever `--node FILE` may name: a report, or one line of refusal, and nothing else.

Run by tests/test_fuzz.py for some seconds, or by hand for hours:

    python -m tests.fuzz.source_fuzzer CORPUS_DIRECTORY -max_total_time=3600
"""

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped,unused-ignore]

with atheris.instrument_imports(include=["gpudoctor.sources", "gpudoctor.facts"]):  # pyright: ignore[reportAttributeAccessIssue] - it comes from a star import
    from gpudoctor.config import Config
    from gpudoctor.registry import built_in
    from gpudoctor.run import Selection, run
    from gpudoctor.sources.errors import SourceError
    from gpudoctor.sources.opening import open_source
    from tests.captures import NOW, crashed

    built_in()

PLACE = Path(tempfile.mkdtemp(prefix="gpudoctor-fuzz-")) / "input"


def one_input(data: bytes) -> None:
    """Open and diagnose one file."""
    PLACE.write_bytes(data)
    try:
        node = open_source(str(PLACE))
    except SourceError as error:
        refusal = str(error)
    else:
        refusal = ""
        report = run(node, Config(), built_in(), Selection(), NOW)
        assert crashed(report) == [], crashed(report)
    assert "\n" not in refusal, refusal


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
