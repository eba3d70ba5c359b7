"""Where the command line writes: stdout, and files by their form."""

import errno
import io
import os
import sys
from pathlib import Path
from typing import TextIO

from gpudoctor.config import ConfigError
from gpudoctor.sources.errors import SourceError


def output(word: str) -> tuple[str, Path]:
    """`[FORMAT=]FILE`; without a format the file's suffix decides."""
    from gpudoctor.cli_options import FORMATS

    form, equals, path = word.partition("=")
    if equals and form in FORMATS:
        return form, Path(path)
    suffix = {".json": "json", ".txt": "terminal", ".md": "markdown", ".prom": "node-exporter", ".html": "html"}.get(
        Path(word).suffix
    )
    if suffix is None:
        raise ConfigError(f"-o {word}: say which format, as in -o json={word}; known are {', '.join(FORMATS)}")
    return suffix, Path(word)


def say(text: str) -> None:
    """On stdout."""
    must_have_stdout()
    # What a terminal of another locale is shown is ASCII.
    if not text.isascii():
        in_utf8(sys.stdout)
    sys.stdout.write(text)


def in_utf8(stream: TextIO) -> None:
    """What programs read is UTF-8 whatever the locale (RFC 8259, 8.1): `LANG=en_US` is ISO 8859-1 and has no ellipsis."""
    if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
        stream.reconfigure(encoding="utf-8")


def must_have_stdout() -> None:
    """Raises SourceError where it was closed."""
    if sys.stdout is None:
        raise SourceError("there is no stdout to write the report to; use -o")


def write(path: Path, text: str) -> None:
    """At once or not at all, and readable by all: whoever collects it must not see half of it.

    A place that is no regular file, such as /dev/stderr or a pipe, is written to as it is, unless another user has put it there: root
    writes where node_exporter's user may make what he likes, a link to a disk for example.
    """
    import tempfile

    try:
        if path.exists() and not path.is_file():
            if path.lstat().st_uid not in (0, os.geteuid()):
                raise SourceError(f"{path}: is no regular file, and another user has put it there")
            path.write_text(text, "utf-8")
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
                # By the open file: its name may lead to another by now, where others can change the directory.
                os.fchmod(file.fileno(), 0o644)
            try:
                os.replace(temporary, path)
            except OSError as error:
                # A mount point, as the /dev/termination-log of a pod, can be written to but not replaced (rename(2), EBUSY).
                if error.errno != errno.EBUSY:
                    raise
                path.write_text(text, "utf-8")
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise SourceError(f"{path}: cannot write the report: {error.strerror}") from error
