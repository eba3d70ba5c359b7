"""Opens whatever SOURCE names, recognised by its content."""

from pathlib import Path

from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.recorded import RecordedNode


def open_source(source: str) -> RecordedNode:
    """A snapshot directory, a plain root directory or a bug report. Raises SourceError with one clear line."""
    path = Path(source)
    try:
        if path.is_dir():
            from gpudoctor.sources.snapshot import open_snapshot

            return open_snapshot(path)
        if path.is_file():
            from gpudoctor.sources.bug_report import open_bug_report

            return open_bug_report(path)
    except OSError as error:
        raise SourceError(f"{source}: {error.strerror or error}") from error
    raise SourceError(
        f"{source}: {'is neither a file nor a directory' if path.exists() else 'no such file or directory'}"
    )
