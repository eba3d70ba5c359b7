"""Asks the kubelet who holds which devices, through the worker: never the doctor itself, and only where its socket is."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from gpudoctor.facts.raw import Absent, Answer, Entry, EntryType, Question, error_name
from gpudoctor.probes.child import ChildEnd, run_child
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.files import LiveFiles
from gpudoctor.verdicts import Unread, Why

WORKER = Path(__file__).with_name("pod_resources_worker.py")
SECONDS = 6.0
"""For the import of grpc on a busy node and two calls, one of which may not come back."""
EXIT_SECONDS = 0.5
"""What the worker has less than its child, to say itself what was not answered."""


def ask_pod_resources(question: Question, deadline: Deadline, root: str) -> Answer:
    """The answers behind `socket`, a path on the node; nothing is started where there is none.

    `pods` may hold pairs of a namespace and a name, of which Get is asked where List does not tell of them.
    """
    files = LiveFiles(root)
    path: str = question.arguments["socket"]
    via = f"PodResources ({path})"
    hindered = _hindrance(files.entry(path, follow=True))
    if hindered is not None:
        return Answer(data={}, via=via, error=hindered)
    until = deadline.sooner(SECONDS)
    try:
        folder, name = os.path.split(files.place(path, follow=True))
        arguments = {
            "folder": folder,
            "name": name,
            "import_paths": _import_paths(),
            "seconds": max(0.1, until.remaining - EXIT_SECONDS),
            "pods": question.arguments.get("pods", []),
        }
        end = run_child([sys.executable, "-I", "-S", str(WORKER), json.dumps(arguments)], until)
    except OSError as error:
        return Answer(
            data={},
            via=via,
            error={"why": "crashed", "detail": f"the worker could not be started: {error}"},
        )
    return _answer(end, via)


def _hindrance(entry: Entry | Absent | Unread) -> dict[str, str] | None:
    """Why there is nothing to connect to."""
    if isinstance(entry, Absent):
        return {"why": "absent", "detail": entry.detail}
    if isinstance(entry, Unread):
        why = "no-permission" if entry.why is Why.NO_PERMISSION else "failed"
        return {"why": why, "detail": f"cannot be looked at: {error_name(entry)}"}
    if entry.type is not EntryType.SOCKET:
        return {"why": "unreadable", "detail": f"is a {entry.type.words}, no socket"}
    return None


def _import_paths() -> list[str]:
    """Where grpc and protobuf lie; nothing of them is imported for it. `google` is a folder that several packages share."""
    specs = (importlib.util.find_spec("grpc"), importlib.util.find_spec("google"))
    folders = [folder for spec in specs if spec is not None for folder in spec.submodule_search_locations or ()]
    return list(dict.fromkeys(str(Path(folder).parent) for folder in folders))


def _answer(end: ChildEnd, via: str) -> Answer:
    data: dict[str, Any] = {}
    error: dict[str, Any] | None = None
    calling: str | None = None
    done = False
    for line in end.stdout.split(b"\n"):
        # The last one may be cut off.
        try:
            said = json.loads(line)
        except ValueError:
            continue
        data.update(said.get("set", {}))
        if "note" in said:
            data.setdefault("notes", {})[calling] = said["note"]
        calling = said.get("calling", calling)
        error = said.get("error", error)
        done = done or "done" in said
    if error is None and not done:
        error = {"why": "timed-out", "detail": "the worker did not end"} if end.abandoned else _crash(end)
    return Answer(data=data, via=via, error=error, stopped_at=calling if error else None)


def _crash(end: ChildEnd) -> dict[str, str]:
    said = end.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    return {"why": "crashed", "detail": f"the worker ended with {end.exit}: {said[-1][:300] if said else 'no word'}"}
