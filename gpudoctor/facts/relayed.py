"""A source behind which another one answers: for those that watch, or join, what is asked."""

from collections.abc import Mapping

from gpudoctor.facts.raw import (
    Absent,
    Answer,
    Clocked,
    CommandOutput,
    Contents,
    Entry,
    Gate,
    Listing,
    Log,
    Raw,
    SourceKind,
    TextFile,
)
from gpudoctor.verdicts import Unread


class Relayed:
    """The raw interface, each question handed on to the source that it was made with."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw

    @property
    def kind(self) -> SourceKind:
        """That of the source behind it."""
        return self._raw.kind

    @property
    def uid(self) -> int | None:
        """That of the source behind it."""
        return self._raw.uid

    @property
    def booted(self) -> float | None:
        """That of the source behind it, if that knows."""
        return self._raw.booted if isinstance(self._raw, Clocked) else None

    def read(self, path: str) -> TextFile | Absent | Unread:
        """Hand it on."""
        return self._raw.read(path)

    def read_blocking(self, paths: tuple[str, ...], *, keep: str = "") -> Mapping[str, TextFile | Absent | Unread]:
        """Hand it on."""
        return self._raw.read_blocking(paths, keep=keep)

    def look_blocking(
        self, folders: tuple[str, ...], *, begin: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, Contents | Absent | Unread]:
        """Hand it on."""
        return self._raw.look_blocking(folders, begin=begin, names=names)

    def entry(self, path: str, *, follow: bool = False) -> Entry | Absent | Unread:
        """Hand it on."""
        return self._raw.entry(path, follow=follow)

    def listing(self, path: str, *, begin: str = "") -> Listing | Absent | Unread:
        """Hand it on."""
        return self._raw.listing(path, begin=begin)

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """Hand it on."""
        return self._raw.command(argv, seconds=seconds)

    def log(self, name: str) -> Log | Unread:
        """Hand it on."""
        return self._raw.log(name)

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """Hand it on."""
        return self._raw.answer(name, gate)
