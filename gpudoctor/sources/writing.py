"""Writes a snapshot's members into a directory or an archive, all of them or nothing that looks like a snapshot."""

import datetime
import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from gpudoctor.sources.errors import SourceError

# The form of compression by the end of the name; any other name is a directory's.
_SUFFIXES = (
    (".tar.zst", "zstd"),
    (".tar.xz", "xz"),
    (".tar.gz", "gzip"),
    (".tgz", "gzip"),
    (".tar.bz2", "bzip2"),
    (".tar", None),
)


def refuse_what_exists(place: Path) -> None:
    """Raises SourceError when a snapshot could not be written to a place for what is there already."""
    try:
        if _archive_form(place) is not None:
            if os.path.lexists(place):
                raise SourceError(f"{place}: exists already; record writes a new snapshot only")
        elif place.exists() and any(place.iterdir()):
            raise SourceError(f"{place}: is not empty; record writes a new snapshot only")
    except OSError as error:
        raise _cannot(place, error) from error


def write_snapshot(place: Path, members: Mapping[str, bytes]) -> None:
    """Write a snapshot: an archive if the name ends as one's does, else a directory. Raises SourceError when it cannot be written."""
    refuse_what_exists(place)
    try:
        archive = _archive_form(place)
        if archive is None:
            _write_directory(place, members)
        else:
            stem, form = archive
            # The name of the file may be that of the machine, which a redacted recording does not tell.
            top = "snapshot" if json.loads(members["snapshot.json"]).get("redacted") else stem
            _write_archive(place, top, form, members)
    except OSError as error:
        raise _cannot(place, error) from error


def write_private(place: Path, replaced: Mapping[str, str]) -> None:
    """Write down what redaction replaced by what, readable by its owner only. Raises SourceError when it cannot be written."""
    try:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(replaced, file, indent=1, ensure_ascii=False)
            file.write("\n")
    except OSError as error:
        raise _cannot(place, error) from error


def _archive_form(place: Path) -> tuple[str, str | None] | None:
    """The name without its ending and the form of compression; None for a directory."""
    for suffix, form in _SUFFIXES:
        stem = place.name.removesuffix(suffix)
        if stem not in ("", place.name):
            return stem, form
    return None


def _write_directory(directory: Path, members: Mapping[str, bytes]) -> None:
    """The manifest comes last: without it no part of one is taken for a whole snapshot."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in sorted(members.items(), key=lambda member: member[0] == "snapshot.json"):
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _write_archive(place: Path, top: str, form: str | None, members: Mapping[str, bytes]) -> None:
    """Written beside its place and then named, readable by its owner only: it tells of a machine."""
    handle, temporary = tempfile.mkstemp(prefix=".gpudoctor-", dir=place.parent)
    try:
        with open(handle, "wb") as file:
            _pack(file, top, form, members)
        _name_new(temporary, place)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _pack(file: BinaryIO, top: str, form: str | None, members: Mapping[str, bytes]) -> None:
    """The same members give the same bytes: the order is theirs, the manifest first, and the time that of the recording."""
    import tarfile

    from gpudoctor.sources.compressed import packing

    recorded = _recorded_at(members)
    with packing(file, form) as stream, tarfile.open(fileobj=stream, mode="w|", encoding="utf-8") as tar:
        for name in sorted(members, key=lambda name: (name != "snapshot.json", name)):
            header = tarfile.TarInfo(f"{top}/{name}")
            header.size, header.mtime, header.mode = len(members[name]), recorded, 0o600
            tar.addfile(header, io.BytesIO(members[name]))


def _recorded_at(members: Mapping[str, bytes]) -> int:
    said: str = json.loads(members["snapshot.json"])["recorded_at"]
    return int(datetime.datetime.fromisoformat(said.replace("Z", "+00:00")).timestamp())


def _name_new(temporary: str, place: Path) -> None:
    """Give a finished file its name, unless something has it by now. Raises OSError."""
    try:
        os.link(temporary, place)
    except FileExistsError:
        raise
    # Not every file system has hard links.
    except OSError:
        if os.path.lexists(place):
            raise FileExistsError(17, "File exists", str(place)) from None
        os.rename(temporary, place)


def _cannot(place: Path, error: OSError) -> SourceError:
    return SourceError(f"{place}: cannot write the snapshot: {error.strerror or error}")
