"""The members of a recording, by name: the same questions to a directory and to an archive."""

from collections.abc import Iterable
from typing import BinaryIO, Protocol

from gpudoctor.facts.raw import EntryType
from gpudoctor.sources.recorded import Record, Tree

MAX_FILE_BYTES = 64 * 1024 * 1024
"""As much of one member is kept."""


class Members(Protocol):
    """Names are relative, without `.`, `..` or a slash at either end; `""` is the recording itself."""

    @property
    def place(self) -> str:
        """What messages call the recording."""
        ...

    def kind(self, name: str) -> EntryType | None:
        """What a member is, links not followed; None when there is none."""
        ...

    def names(self, folder: str) -> Iterable[str]:
        """The names in a folder; none when it is no folder."""
        ...

    def text(self, name: str) -> str | None:
        """A file's text, undecodable bytes as backslash escapes; None when there is none. Raises OSError for anything else."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A file's bytes. Raises OSError."""
        ...

    def tree(self, folder: str) -> Tree:
        """The members below a folder as a node's paths."""
        ...

    def refuse_what_no_snapshot_holds(self) -> None:
        """Raises SourceError for members that are dangerous or meaningless in a snapshot."""
        ...


class FileTree(Tree):
    """Recorded paths plus a recording's files. An entry wins over the file of its path; content is the entry's, else the file's."""

    def __init__(self) -> None:
        super().__init__()
        # Finding a path looks at its last part, and reading it looks once more: that need not read the file twice.
        self._last: tuple[str, Record | None] = ("", None)

    def put(self, path: str, record: Record) -> None:
        """Record a path."""
        self._last = ("", None)
        super().put(path, record)

    def lookup(self, path: str) -> Record | None:
        """What is recorded of a path, links not followed."""
        if path != self._last[0] or not path:
            self._last = (path, self._look(path))
        return self._last[1]

    def _look(self, path: str) -> Record | None:
        noted = self.records.get(path)
        if noted is not None and (
            noted.entry is None or noted.entry.type is not EntryType.FILE or noted.text is not None
        ):
            return noted
        return self.kept(path, noted) or noted or super().lookup(path)

    def kept(self, path: str, noted: Record | None) -> Record | None:
        """What was kept at a path, described by its entry where there is one; None for nothing."""
        raise NotImplementedError
