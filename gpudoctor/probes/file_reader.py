"""The file reader: a program of its own that reads files and trees whose reading may never return, one JSON object a line.

The driver answers reads below /proc/driver/nvidia under its own locks, so a stuck driver can hold a reader for ever; so can the
config space of a dead device, the environment of a process that is stuck with its memory locked, and a file system that a container
has mounted. Arguments: `read KEEP`, then pairs of a place on this machine and the path to report it under; of such files only lines and
variables in which the regular expression KEEP is found are said. Or `look BEGIN NAMES`, then for each folder the place of a root, the
folder below it, and the path to report: its entries whose names begin so, and which of NAMES are not there. Nothing below such a root
is opened but folders, and no link is followed.
"""

import ctypes
import errno
import json
import os
import re
import signal
import stat
import sys
from typing import Any

NAME = b"gpudoctor-files"
PR_SET_NAME = 15
MAX_BYTES = 1 << 20
MAX_KEPT = 1 << 24
"""Of a file of which only some lines are kept, as much is looked through: the maps of a process that has many."""
TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFCHR: "char",
    stat.S_IFBLK: "block",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


def say(**line: Any) -> None:
    """Print one line and let it out at once."""
    os.write(1, json.dumps(line).encode() + b"\n")


def error_name(error: OSError) -> str:
    """`EACCES` and the like."""
    return errno.errorcode.get(error.errno or 0, "EIO")


def _is_directory(place: str) -> bool:
    return stat.S_ISDIR(os.lstat(place).st_mode)


def kept(text: str, keep: str) -> str:
    """The variables or lines in which `keep` is found: as gpudoctor.facts.raw has it, which cannot be imported here."""
    end = "\0" if "\0" in text else "\n"
    return "".join(part + end for part in text.split(end) if part and re.search(keep, part)) if keep else text


def read(place: str, path: str, keep: str = "") -> None:
    """Say what is at a place, and go down into directories."""
    say(reading=path)
    try:
        status = os.lstat(place)
        if stat.S_ISDIR(status.st_mode):
            # Plain files first: what the driver says of one GPU may not come back, what it says of itself then has.
            names = sorted(os.listdir(place), key=lambda name: (_is_directory(f"{place}/{name}"), name))
            say(path=path, type="dir", mode=stat.S_IMODE(status.st_mode))
            for name in names:
                read(f"{place}/{name}", f"{path}/{name}", keep)
        elif stat.S_ISLNK(status.st_mode):
            say(path=path, type="link", to=os.readlink(place))
        elif stat.S_ISREG(status.st_mode):
            with open(place, "rb") as file:
                text = file.read(MAX_KEPT if keep else MAX_BYTES).decode("utf-8", "backslashreplace")
            say(path=path, type="file", mode=stat.S_IMODE(status.st_mode), text=kept(text, keep))
    except OSError as error:
        say(path=path, error=error_name(error))


def look(root: str, folder: str, path: str, begin: str, names: list[str]) -> None:
    """Say what lies in a folder below a root."""
    say(reading=path)
    try:
        descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in folder.strip("/").split("/"):
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        _look_at(descriptor, path, begin, names)
        os.close(descriptor)
    except OSError as error:
        say(path=path, error=error_name(error))


def _look_at(folder: int, path: str, begin: str, names: list[str]) -> None:
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    there = os.listdir(listed)
    os.close(listed)
    say(path=path, type="dir", mode=stat.S_IMODE(os.fstat(folder).st_mode))
    found = sorted(name for name in there if name.startswith(begin))
    for name in found:
        _say_entry(folder, name, path)
    for name in names if found else names[:1]:
        if name not in there:
            say(path=f"{path}/{name}", error="ENOENT")


def _say_entry(folder: int, name: str, path: str) -> None:
    """What lstat says of a name, never more: opening a device node can make the kernel load a module."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        said: dict[str, Any] = {"type": TYPES.get(stat.S_IFMT(status.st_mode), "file")}
        if said["type"] in ("char", "block"):
            said |= {"major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
        elif said["type"] == "link":
            said["to"] = os.readlink(name, dir_fd=folder)
        said |= {"mode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid}
    except OSError as error:
        said = {"error": error_name(error)}
    say(path=f"{path}/{name}", **said)


def main(task: str, first: str, *rest: str) -> None:
    """Read files, or look into folders."""
    if task == "look":
        names = [name for name in rest[0].split(",") if name]
        for root, folder, path in zip(rest[1::3], rest[2::3], rest[3::3], strict=True):
            look(root, folder, path, first, names)
    else:
        for place, path in zip(rest[::2], rest[1::2], strict=True):
            read(place, path, first)
    say(done=True)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_NAME, NAME, 0, 0, 0)
    signal.alarm(30)
    main(*sys.argv[1:])
