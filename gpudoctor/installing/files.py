"""What `gpudoctor install` prints: files, where they belong, and how to put them there and take them away again."""

import re
from pathlib import Path

from msgspec import Struct

TEMPLATES = Path(__file__).parent / "templates"
_WORD = re.compile(r"@([A-Z_]+)@")


class File(Struct, frozen=True):
    """A file for the node; a `path` without a leading slash is relative to a directory of the reader's own."""

    path: str
    content: str
    mode: str = "0644"
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name without directories."""
        return self.path.rpartition("/")[2]


class Installation(Struct, frozen=True):
    """All files of one kind; `install` and `undo` are commands to be given by hand, in this order."""

    kind: str
    files: tuple[File, ...]
    install: tuple[str, ...]
    undo: tuple[str, ...]
    notes: tuple[str, ...] = ()


def filled(name: str, **words: str) -> str:
    """A template with each @WORD@ replaced. Raises KeyError for one without a value."""
    text = (TEMPLATES / name).read_text("utf-8")
    return _WORD.sub(lambda match: words[match[1]], text)
