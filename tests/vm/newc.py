"""Write cpio archives in the "newc" form that the kernel unpacks as its first root file system.

Needs no privilege: device nodes are entries of the archive, never of this machine.
The layout is in the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
"""

import stat
from pathlib import PurePosixPath
from typing import BinaryIO

MAGIC = b"070701"


class ArchiveWriter:
    """An archive being written to a binary file; several archives may follow each other in one image.

    Parents of an entry are made as it is added. All entries belong to root and have the time 0.
    """

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._inode = 0
        self._made: set[PurePosixPath] = {PurePosixPath("/")}

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Add a directory and what is missing above it; a directory that is there stays as it is."""
        where = PurePosixPath(path)
        if where in self._made:
            return
        self.directory(str(where.parent))
        self._entry(path, stat.S_IFDIR | mode, b"")
        self._made.add(where)

    def file(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Add a regular file; the first of two with the same path stays."""
        self._leaf(path, stat.S_IFREG | mode, content)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link; the first of two entries with the same path stays."""
        self._leaf(path, stat.S_IFLNK | 0o777, target.encode())

    def character_device(self, path: str, major: int, minor: int, mode: int = 0o600) -> None:
        """Add a character device node."""
        self._leaf(path, stat.S_IFCHR | mode, b"", (major, minor))

    def close(self) -> None:
        """Write the end marker; the file stays open."""
        self._entry("/TRAILER!!!", 0, b"")

    def _leaf(self, path: str, mode: int, content: bytes, device: tuple[int, int] = (0, 0)) -> None:
        where = PurePosixPath(path)
        if where in self._made:
            return
        self.directory(str(where.parent))
        self._entry(path, mode, content, device)
        self._made.add(where)

    def _entry(self, path: str, mode: int, content: bytes, device: tuple[int, int] = (0, 0)) -> None:
        self._inode += 1
        name = path.lstrip("/").encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        fields = (self._inode, mode, 0, 0, links, 0, len(content), 0, 0, *device, len(name), 0)
        header = MAGIC + b"".join(b"%08X" % field for field in fields)
        self._output.write(_padded(header + name) + _padded(content))


def _padded(raw: bytes) -> bytes:
    return raw + b"\0" * (-len(raw) % 4)
