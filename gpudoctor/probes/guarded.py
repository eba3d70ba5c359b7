"""Reads what the driver itself serves, and what others may hold up, through a child: what gets stuck costs a deadline, not the doctor."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from gpudoctor.facts.raw import root_of
from gpudoctor.probes.child import run_child
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.files import LiveFiles
from gpudoctor.probes.tasks import TaskTable

READER = Path(__file__).with_name("file_reader.py")
READER_COMM = "gpudoctor-files"
MOST_STUCK = 4
"""Readers of earlier runs that may be stuck before no more are started: a cron job must not fill a node up with them."""

DRIVER_TREE = "/proc/driver/nvidia"
ROUNDS = 2
"""Readers of one run that may get stuck: what one process or one container holds up must not hide all others."""

SECONDS = 3.0
"""Enough for hundreds of small files; a driver that needs longer for one is stuck on its own lock."""


class DriverTree(Struct, frozen=True):
    """One object for each path that was read; `stuck_at` are those whose reading did not return, or was not begun for that."""

    lines: tuple[dict[str, Any], ...]
    stuck_at: tuple[str, ...] = ()


def read_driver_tree(root: str, deadline: Deadline, table: TaskTable) -> DriverTree:
    """Everything below /proc/driver/nvidia, up to the deadline."""
    try:
        place = LiveFiles(root).place(DRIVER_TREE, follow=True)
    except OSError:
        return DriverTree((), (DRIVER_TREE,))
    if not os.path.isdir(place):
        return DriverTree((), ())
    return _ask(("read", ""), [(place, DRIVER_TREE)], deadline, table)


def read_files(root: str, paths: tuple[str, ...], deadline: Deadline, table: TaskTable, keep: str = "") -> DriverTree:
    """Single files, in order, up to the deadline; one that cannot even be found is left out."""
    files = LiveFiles(root)
    places: list[tuple[str, ...]] = []
    for path in paths:
        try:
            places.append((files.place(path, follow=True), path))
        except OSError:
            continue
    return _ask(("read", keep), places, deadline, table)


def look_into(
    root: str, folders: tuple[str, ...], deadline: Deadline, table: TaskTable, begin: str, names: tuple[str, ...]
) -> DriverTree:
    """What lies in folders, links in a path to one not followed: below /proc/PID/root even finding one may not return."""
    above = root.rstrip("/")
    bases = ((root_of(folder), folder) for folder in folders)
    places = [((above + base) or "/", folder[len(base) :], folder) for base, folder in bases]
    return _ask(("look", begin, ",".join(names)), places, deadline, table)


def _ask(task: tuple[str, ...], places: Sequence[tuple[str, ...]], deadline: Deadline, table: TaskTable) -> DriverTree:
    """Children one after the other, each for what is left when the one before it got stuck; the path comes last in a place."""
    found: list[dict[str, Any]] = []
    stuck_at: list[str] = []
    left = list(places)
    while left and len(stuck_at) < ROUNDS and deadline.remaining > 0 and _stuck_readers(table) < MOST_STUCK:
        words = [word for place in left for word in place]
        end = run_child([sys.executable, "-I", "-S", str(READER), *task, *words], deadline.sooner(SECONDS))
        lines = [said for line in end.stdout.split(b"\n") if (said := _decoded(line))]
        found += (said for said in lines if "path" in said)
        if any("done" in said for said in lines):
            return DriverTree(tuple(found), tuple(stuck_at))
        reading = [said["reading"] for said in lines if "reading" in said]
        stuck_at.append(reading[-1] if reading else left[0][-1])
        paths = [place[-1] for place in left]
        left = left[paths.index(stuck_at[-1]) + 1 :] if stuck_at[-1] in paths else []
    return DriverTree(tuple(found), (*stuck_at, *(place[-1] for place in left)))


def _stuck_readers(table: TaskTable) -> int:
    """Readers of this run and earlier ones that sleep uninterruptibly."""
    return sum(task.state == "D" for task in table.named(READER_COMM, owners=(0, os.getuid())))


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
