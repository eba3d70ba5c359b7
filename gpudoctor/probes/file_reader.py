"""The file reader: a program of its own that reads files and trees whose reading may never return, one JSON object a line.

The driver answers reads below /proc/driver/nvidia under its own locks, so a stuck driver can hold a reader for ever; so can the
config space of a dead device. Arguments: pairs of a place on this machine and the path to report it under.
"""

import ctypes
import errno
import json
import os
import signal
import stat
import sys
from typing import Any

NAME = b"gpudoctor-files"
PR_SET_NAME = 15
MAX_BYTES = 1 << 20


def say(**line: Any) -> None:
    """Print one line and let it out at once."""
    os.write(1, json.dumps(line).encode() + b"\n")


def error_name(error: OSError) -> str:
    """`EACCES` and the like."""
    return errno.errorcode.get(error.errno or 0, "EIO")


def _is_directory(place: str) -> bool:
    return stat.S_ISDIR(os.lstat(place).st_mode)


def read(place: str, path: str) -> None:
    """Say what is at a place, and go down into directories."""
    say(reading=path)
    try:
        status = os.lstat(place)
        if stat.S_ISDIR(status.st_mode):
            # Plain files first: what the driver says of one GPU may not come back, what it says of itself then has.
            names = sorted(os.listdir(place), key=lambda name: (_is_directory(f"{place}/{name}"), name))
            say(path=path, type="dir", mode=stat.S_IMODE(status.st_mode))
            for name in names:
                read(f"{place}/{name}", f"{path}/{name}")
        elif stat.S_ISLNK(status.st_mode):
            say(path=path, type="link", to=os.readlink(place))
        elif stat.S_ISREG(status.st_mode):
            with open(place, "rb") as file:
                text = file.read(MAX_BYTES).decode("utf-8", "backslashreplace")
            say(path=path, type="file", mode=stat.S_IMODE(status.st_mode), text=text)
    except OSError as error:
        say(path=path, error=error_name(error))


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_NAME, NAME, 0, 0, 0)
    signal.alarm(30)
    for number in range(1, len(sys.argv) - 1, 2):
        read(sys.argv[number], sys.argv[number + 1])
    say(done=True)
