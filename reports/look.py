"""How a terminal report should look: width, colour, character set, amount."""

import argparse
import os
import re
from collections.abc import Mapping
from typing import TextIO

from msgspec import Struct

PIPE_WIDTH = 80
NARROWEST = 30
WIDEST = 1000
_COLUMNS = re.compile(r"[1-9][0-9]{0,5}")
_IN_ASCII = str.maketrans({"\u00b0": "", "\u2026": "."})
"""Characters of our own sentences, `88 \u00b0C` and words that were cut, as what is no wider: so no line grows."""


class Look(Struct, frozen=True):
    """Everything that the surroundings decide about a terminal report."""

    width: int = PIPE_WIDTH
    color: bool = False
    ascii: bool = False
    verbose: int = 0
    quiet: bool = False

    @classmethod
    def chosen(cls, options: argparse.Namespace, stream: TextIO, *, file: bool) -> "Look":
        """From options, environment and the stream; a report written to a file looks as in a pipe."""
        is_terminal = stream.isatty() and not file
        return cls(
            width=_width(is_terminal, os.environ),
            color=use_color("never" if file else options.color, is_terminal, os.environ),
            ascii=options.ascii or not (file or is_unicode(stream, os.environ)),
            verbose=options.verbose,
            quiet=options.quiet,
        )

    def written(self, text: str) -> str:
        """A text as it may be written: where only ASCII may, what lies beyond as escapes."""
        return text.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode() if self.ascii else text


def use_color(wish: str, is_terminal: bool, environment: Mapping[str, str]) -> bool:
    """The option wins, then NO_COLOR (no-color.org), CLICOLOR_FORCE, CLICOLOR (bixense.com/clicolors), then the terminal."""
    if wish != "auto":
        return wish == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    if environment.get("CLICOLOR") == "0" or environment.get("TERM") == "dumb":
        return False
    return is_terminal


def _width(is_terminal: bool, environment: Mapping[str, str]) -> int:
    if not is_terminal:
        columns = environment.get("COLUMNS", "")
        return min(max(NARROWEST, int(columns)), WIDEST) if _COLUMNS.fullmatch(columns) else PIPE_WIDTH
    import shutil

    return min(max(NARROWEST, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns), WIDEST)


def is_unicode(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether the locale, and what Python makes of it, is UTF-8.

    Python's own encoding is not enough: under LC_ALL=C it writes UTF-8 all the same (PEP 538, PEP 540).
    """
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    # Under the C locale Python itself sets LC_CTYPE to a UTF-8 one, so that alone says nothing.
    language = environment.get("LANG") or "C"
    coerced = language in ("C", "POSIX") and environment.get("LC_CTYPE", "").startswith(("C.", "UTF-8"))
    locale = environment.get("LC_ALL") or ("C" if coerced else environment.get("LC_CTYPE") or language)
    told = environment.get("PYTHONUTF8") == "1" or bool(environment.get("PYTHONIOENCODING"))
    return encoding.startswith("utf") and (told or "utf8" in locale.lower().replace("-", ""))
