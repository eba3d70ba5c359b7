"""Reads what the driver itself serves through a child, so that a stuck driver costs a deadline and not the doctor."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from msgspec import Struct

from gpudoctor.probes.child import run_child
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.files import LiveFiles
from gpudoctor.probes.tasks import TaskTable

READER = Path(__file__).with_name("file_reader.py")
READER_COMM = "gpudoctor-files"
MOST_STUCK = 4
"""Readers of earlier runs that may be stuck before no more are started: a cron job must not fill a node up with them."""

DRIVER_TREE = "/proc/driver/nvidia"
SECONDS = 3.0
"""Enough for hundreds of small files; a driver that needs longer for one is stuck on its own lock."""


class DriverTree(Struct, frozen=True):
    """One object for each path that was read; `stuck_at` is the one whose reading did not return."""

    lines: tuple[dict[str, Any], ...]
    stuck_at: str | None


def read_driver_tree(root: str, deadline: Deadline, table: TaskTable) -> DriverTree:
    """Everything below /proc/driver/nvidia, up to the deadline."""
    try:
        place = LiveFiles(root).place(DRIVER_TREE, follow=True)
    except OSError:
        return DriverTree((), DRIVER_TREE)
    if not os.path.isdir(place):
        return DriverTree((), None)
    return _read([(place, DRIVER_TREE)], deadline, table)


def read_files(root: str, paths: tuple[str, ...], deadline: Deadline, table: TaskTable) -> DriverTree:
    """Single files, in order, up to the deadline; one that cannot even be found is left out."""
    files = LiveFiles(root)
    places = []
    for path in paths:
        try:
            places.append((files.place(path, follow=True), path))
        except OSError:
            continue
    return _read(places, deadline, table) if places else DriverTree((), None)


def _read(places: list[tuple[str, str]], deadline: Deadline, table: TaskTable) -> DriverTree:
    stuck = [task for task in table.named(READER_COMM, owners=(0, os.getuid())) if task.state == "D"]
    if len(stuck) >= MOST_STUCK:
        return DriverTree((), places[0][1])
    words = [word for pair in places for word in pair]
    end = run_child([sys.executable, "-I", "-S", str(READER), *words], deadline.sooner(SECONDS))
    lines = [said for line in end.stdout.split(b"\n") if (said := _decoded(line))]
    found = tuple(said for said in lines if "path" in said)
    if any("done" in said for said in lines):
        return DriverTree(found, None)
    reading = [said["reading"] for said in lines if "reading" in said]
    return DriverTree(found, reading[-1] if reading else places[0][1])


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
