"""Files and device metadata of a live node, optionally below a root directory. Nothing but regular files is ever opened."""

import errno
import os
import stat

from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, TextFile, root_of, trouble
from gpudoctor.verdicts import Unread, Why

MAX_BYTES = 16 * 1024 * 1024
MAX_LINKS = 40

_TYPES = {
    stat.S_IFREG: EntryType.FILE,
    stat.S_IFDIR: EntryType.DIR,
    stat.S_IFLNK: EntryType.LINK,
    stat.S_IFCHR: EntryType.CHAR,
    stat.S_IFBLK: EntryType.BLOCK,
    stat.S_IFIFO: EntryType.FIFO,
    stat.S_IFSOCK: EntryType.SOCKET,
}


class LiveFiles:
    """Looks at paths as they are below `root`; absolute links resolve inside it."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def read(self, path: str) -> TextFile | Absent | Unread:
        """The text of a regular file."""
        try:
            place = self.place(path, follow=True)
            status = os.stat(place)
            if not stat.S_ISREG(status.st_mode):
                return Unread(Why.UNREADABLE, path, f"is a {kind_of(status).words}, not a file")
            content = _read_all(place)
        except OSError as error:
            return _trouble(path, error)
        return TextFile(
            path, content[:MAX_BYTES].decode("utf-8", "backslashreplace"), truncated=len(content) > MAX_BYTES
        )

    def entry(self, path: str, *, follow: bool = False) -> Entry | Absent | Unread:
        """What `lstat` says, or `stat` when links are followed."""
        try:
            place = self.place(path, follow=follow)
            status = os.stat(place) if path == root_of(path) else os.lstat(place)
            to = decoded(os.readlink(os.fsencode(place))) if stat.S_ISLNK(status.st_mode) else None
        except OSError as error:
            return _trouble(path, error)
        device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
        return Entry(
            path=path,
            type=kind_of(status),
            mode=stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            mtime=_mtime(path, status),
            major=os.major(status.st_rdev) if device else None,
            minor=os.minor(status.st_rdev) if device else None,
            to=to,
        )

    def listing(self, path: str, *, begin: str = "") -> Listing | Absent | Unread:
        """The names in a directory that begin with some letters."""
        try:
            place = self.place(path, follow=True)
            names = os.listdir(os.fsencode(place))
        except NotADirectoryError as error:
            entry = self.entry(path, follow=True)
            if isinstance(entry, Entry):
                return Unread(Why.UNREADABLE, path, f"is a {entry.type.words}, not a directory")
            return _trouble(path, error)
        except OSError as error:
            return _trouble(path, error)
        # A name that is not UTF-8 cannot be asked for again, so what it stands for stays unknown.
        complete = all(name == os.fsencode(decoded(name)) for name in names)
        return Listing(path, tuple(sorted(name for name in map(decoded, names) if name.startswith(begin))), complete)

    def links(self, path: str, *, follow: bool) -> tuple[list[tuple[str, str]], str]:
        """The links crossed on the way to a path, each with its target, and the canonical path. Raises OSError."""
        crossed: list[tuple[str, str]] = []
        base = root_of(path)
        todo = path[len(base) :].strip("/").split("/")[::-1]
        top = base.split("/")[1:]
        done = list(top)
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            if name == "..":
                del done[max(len(top), len(done) - 1) :]
                continue
            here = "/".join(["", *done, name])
            to = self._readlink(here) if todo or follow else None
            if to is None:
                done.append(name)
                continue
            crossed.append((here, to))
            if len(crossed) > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if to.startswith("/"):
                done = list(top)
            todo.extend(to.strip("/").split("/")[::-1])
        return crossed, "/" + "/".join(done)

    def place(self, path: str, *, follow: bool) -> str:
        """Where a path really lies on this machine; below /proc/PID/root the kernel would follow links out of it. Raises OSError."""
        if not self._root and not root_of(path):
            return os.path.realpath(path) if follow and os.path.islink(path) else path
        return self._root + self.links(path, follow=follow)[1]

    def _readlink(self, path: str) -> str | None:
        try:
            return decoded(os.readlink(os.fsencode(self._root + path)))
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                return None
            raise


def _mtime(path: str, status: os.stat_result) -> float | None:
    """When it was changed last; what /proc and /sys make up at each look tells nothing, nor does a directory."""
    told = not stat.S_ISDIR(status.st_mode) and not path.startswith(("/proc/", "/sys/"))
    return round(status.st_mtime, 3) if told else None


def _trouble(path: str, error: OSError) -> Absent | Unread:
    return trouble(path, errno.errorcode.get(error.errno or 0, "EIO"))


def _read_all(place: str) -> bytes:
    """Files in /proc and /sys have no size: read until there is no more, but not for ever, and without waiting for more."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        parts = []
        left = MAX_BYTES + 1
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def decoded(name: bytes) -> str:
    """A file name as text; bytes that are not UTF-8 become backslash escapes."""
    return name.decode("utf-8", "backslashreplace")


def kind_of(status: os.stat_result) -> EntryType:
    """What kind of thing a status describes."""
    return _TYPES.get(stat.S_IFMT(status.st_mode), EntryType.FILE)
