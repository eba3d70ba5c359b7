"""Asks NVML through the worker and turns its lines into an answer, whole or partial."""

import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpudoctor.facts.raw import Absent, Answer, Question
from gpudoctor.knowledge.driver_places import APART_DIRECTORIES, LIBRARY_DIRECTORIES, LOADER_DIRECTORIES
from gpudoctor.probes.child import Abandoned, ChildEnd, run_child
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.files import LiveFiles
from gpudoctor.probes.tasks import StackWatch, Task, TaskTable

WORKER = Path(__file__).with_name("nvml_worker.py")
WORKER_COMM = "gpudoctor-nvml"
STILL_SECONDS = 2.5
"""How long an earlier run's worker is watched before it is called stuck; longer than what a fact calls hung."""


def ask_nvml(question: Question, deadline: Deadline, root: str, table: TaskTable) -> Answer:
    """NVML's answers by the deadline, less the second that the rest of the run needs."""
    deadline = Deadline(max(0.1, deadline.remaining - 1.0))
    while True:
        stuck = _earlier_worker(deadline, table)
        if stuck is not None:
            return stuck
        try:
            arguments = _arguments(question, deadline, root)
            if isinstance(arguments, Answer):
                return arguments
            end = run_child([sys.executable, "-I", "-S", str(WORKER), json.dumps(arguments)], deadline)
        except OSError as error:
            return _failure("unavailable", f"the worker could not be started: {error}")
        lines = _lines(end.stdout)
        if not any("busy" in line for line in lines):
            return _answer(end, lines)
        table = TaskTable()


def _arguments(question: Question, deadline: Deadline, root: str) -> dict[str, Any] | Answer:
    binding = importlib.util.find_spec("pynvml")
    if binding is None or binding.origin is None:
        return _failure("unavailable", "the Python module pynvml is not installed")
    # What NVML is to see as its root: below --root, and there below a driver container's.
    within = f"{root.rstrip('/')}{question.arguments.get('within', '')}" or "/"
    libraries = _libraries(root, within)
    if not libraries:
        said = f"libnvidia-ml.so.1 is in none of {', '.join(LIBRARY_DIRECTORIES)} below {within}"
        return Answer(data={"init": 12, "said": said.removesuffix(" below /")})
    return {
        **question.arguments,
        "package_path": str(WORKER.parents[2]),
        "import_paths": [str(Path(binding.origin).parent)],
        "seconds": deadline.remaining,
        "root": within,
        "libraries": libraries,
    }


def _libraries(root: str, within: str) -> list[str]:
    """What the worker is to load, the first that can be: for this node itself the loader's own search, then drivers kept apart."""
    if within != root:
        apart = _library_below(within, LOADER_DIRECTORIES)
        return [apart] if apart is not None else []
    if root == "/":
        apart = _library_below(root, APART_DIRECTORIES)
        return ["libnvidia-ml.so.1", *([apart] if apart is not None else [])]
    found = _library_below(root, LIBRARY_DIRECTORIES)
    return [found] if found is not None else []


def _library_below(root: str, directories: Sequence[str]) -> str | None:
    files = LiveFiles(root)
    for directory in directories:
        path = f"{directory}/libnvidia-ml.so.1"
        if not isinstance(files.entry(path, follow=True), Absent):
            return files.place(path, follow=True)
    return None


def _failure(why: str, detail: str) -> Answer:
    return Answer(data={}, error={"why": why, "detail": detail})


def _earlier_worker(deadline: Deadline, table: TaskTable) -> Answer | None:
    """Wait for a worker of another run; None when there is none any more, an answer when it is stuck or does not end."""
    watches: dict[int, StackWatch] = {}
    while True:
        alive = table.named(WORKER_COMM, owners=(0, os.getuid()))
        if not alive:
            return None
        for task in alive:
            watch = watches.setdefault(task.pid, StackWatch(task.pid))
            watch.look()
            still = task.state == "D" and watch.unchanged_seconds >= STILL_SECONDS
            if still or deadline.remaining <= 0:
                return Answer(
                    data={},
                    error={"why": "timed-out"},
                    stopped_at="an earlier run's worker",
                    worker=_worker(Abandoned(task, watch.unchanged_seconds), earlier=True),
                )
        time.sleep(min(0.2, max(0.01, deadline.remaining)))


def _worker(abandoned: Abandoned, *, earlier: bool) -> dict[str, Any]:
    task: Task = abandoned.task
    return {
        "pid": task.pid,
        "state": task.state,
        "stack": task.stack,
        "stack_unchanged_seconds": abandoned.stack_unchanged_seconds,
        "earlier": earlier,
    }


def _answer(end: ChildEnd, lines: list[dict[str, Any]]) -> Answer:
    data = _data(lines)
    calling: str | None = None
    error: dict[str, Any] | None = None
    done = False
    for line in lines:
        calling = line.get("calling", calling)
        error = line.get("error", error)
        done = done or "done" in line
    if end.abandoned is not None:
        # A worker that has said everything can still hang in closing the device nodes.
        stopped_at = "its exit" if done or error else calling
        worker = _worker(end.abandoned, earlier=False)
        return Answer(data, error={"why": "timed-out"}, stopped_at=stopped_at, worker=worker)
    if error is not None or done:
        return Answer(data=data, error=error)
    return Answer(data, error={"why": "crashed", **_how_it_ended(end)}, stopped_at=calling)


def _data(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What was answered, merged from the lines in their order."""
    data: dict[str, Any] = {}
    devices: dict[str, dict[str, Any]] = {}
    for line in lines:
        data.update(line.get("set", {}))
        if "device" in line:
            devices.setdefault(line["device"]["pci_bus_id"], {}).update(line["device"])
        if "fields" in line:
            devices[line["of"]].setdefault("fields", {}).update(line["fields"])
        if "system" in line:
            data.setdefault("system", {}).update(line["system"])
        if "note" in line:
            data.setdefault("notes", []).append(line["note"])
    # A device of which nothing was answered yet is not listed: the call that was running tells about it.
    if answered := [device for device in devices.values() if len(device) > 1]:
        data["devices"] = answered
    return data


def _how_it_ended(end: ChildEnd) -> dict[str, Any]:
    said = end.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    detail = {"detail": said[-1]} if said else {}
    if end.exit is not None and end.exit < 0:
        return {"signal": _signal_name(-end.exit), **detail}
    return {"exit": f"exit status {end.exit}", **detail}


def _signal_name(number: int) -> str:
    """Real-time signals have no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _lines(output: bytes) -> list[dict[str, Any]]:
    """The worker's lines; one cut off by its end is dropped, and so is what a library printed."""
    lines = []
    for line in output.split(b"\n"):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            lines.append(said)
    return lines
