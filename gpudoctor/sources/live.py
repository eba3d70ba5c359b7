"""The live node, optionally below a root directory that holds the host's proc, sys and dev."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor.facts.kernel_log import NAME, PREVIOUS
from gpudoctor.facts.kubernetes_api import NOT_ASKED
from gpudoctor.facts.raw import (
    Absent,
    Answer,
    CommandOutput,
    Contents,
    Entry,
    Gate,
    Listing,
    Log,
    Question,
    SourceKind,
    TextFile,
    trouble,
)
from gpudoctor.probes.commands import run_command
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.files import LiveFiles
from gpudoctor.probes.guarded import DRIVER_TREE, DriverTree, look_into, read_driver_tree, read_files
from gpudoctor.probes.journal import JOURNALS, read_journal
from gpudoctor.probes.kernel_log import read_kernel_log, read_previous_log
from gpudoctor.probes.nvml import ask_nvml
from gpudoctor.probes.processes import look_at_processes
from gpudoctor.probes.sleepers import look_at_sleepers, look_for_holders
from gpudoctor.probes.tasks import TaskTable
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.verdicts import Unread, Why


class Live:
    """The raw interface over a running node."""

    def __init__(self, deadline: Deadline, root: str = "/", kubeconfig: str | None = None) -> None:
        """Only with a `kubeconfig` the API server is asked. Raises SourceError when `root` does not hold a host's proc, sys and dev."""
        self.kubeconfig = kubeconfig
        self.root = root if root == "/" else str(Path(root).resolve())
        for needed in ("proc", "sys", "dev") if self.root != "/" else ():
            if not Path(self.root, needed).is_dir():
                raise SourceError(
                    f"{root}: has no {needed}: --root needs a directory that holds the host's proc, sys and dev"
                )
        self.kind = SourceKind.LIVE if self.root == "/" else SourceKind.ROOT
        self.uid: int | None = os.geteuid()
        self.deadline = deadline
        self.files = LiveFiles(self.root)
        self._driver_tree: RecordedNode | None = None
        # The doctor's own children are always below its own /proc, whatever root it looks at.
        self._own_tasks = TaskTable()
        self._tasks = self._own_tasks if self.root == "/" else TaskTable(f"{self.root}/proc")

    def read(self, path: str) -> TextFile | Absent | Unread:
        """The text of a file."""
        return self._reader(path).read(path)

    def read_blocking(self, paths: tuple[str, ...], *, keep: str = "") -> Mapping[str, TextFile | Absent | Unread]:
        """Files read in one child, up to a deadline of their own."""
        if not paths:
            return {}
        node = _GuardedNode(read_files(self.root, paths, self.deadline, self._own_tasks, keep), complete=paths)
        return {path: node.read(path) for path in paths}

    def look_blocking(
        self, folders: tuple[str, ...], *, begin: str, names: tuple[str, ...] = ()
    ) -> Mapping[str, Contents | Absent | Unread]:
        """Folders looked into in one child, up to a deadline of their own."""
        if not folders:
            return {}
        seen = look_into(self.root, folders, self.deadline, self._own_tasks, begin, names)
        node = _GuardedNode(seen, complete=folders)
        return node.look_blocking(folders, begin=begin, names=names)

    def entry(self, path: str, *, follow: bool = False) -> Entry | Absent | Unread:
        """What is at a path."""
        return self._reader(path).entry(path, follow=follow)

    def listing(self, path: str, *, begin: str = "") -> Listing | Absent | Unread:
        """The names in a directory."""
        return self._reader(path).listing(path, begin=begin)

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """A command of this node, below a root the one that lies there."""
        return run_command(argv, self.deadline.sooner(seconds), self.root)

    def log(self, name: str) -> Log | Unread:
        """The kernel log of this boot or of the one before, or the journal of a unit."""
        if name == NAME:
            return read_kernel_log(self.root, self.deadline)
        if name == PREVIOUS:
            return read_previous_log(self.root, self.deadline)
        if name.startswith(JOURNALS):
            return read_journal(name, self.root, self.deadline)
        return Unread(Why.NOT_RECORDED, name, "this gpudoctor does not read it live")

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """What an API answers, behind its gate. A closed gate is an answer too: a recording must hold it."""
        question = gate()
        if isinstance(question, Unread):
            return Answer(data={}, error={"why": "withheld", "detail": question.detail})
        match name:
            case "nvml":
                return ask_nvml(question, self.deadline, self.root, self._own_tasks)
            case "tasks":
                return look_at_sleepers(question, self.deadline, self._tasks)
            case "processes":
                return look_at_processes(self._tasks)
            case "holders":
                return look_for_holders(self._tasks, self.root, self.deadline, self._own_tasks)
            case "cgroup_devices":
                # Only where containers run.
                from gpudoctor.probes.bpf import look_at_device_programs

                return look_at_device_programs(question, self.root)
            case "pod_resources" | "kubernetes":
                return self._of_kubernetes(question)
            case _:
                raise KeyError(name)

    def _of_kubernetes(self, question: Question) -> Answer | Unread:
        """The kubelet where one runs, the API server where a kubeconfig was named: the means are loaded only there."""
        if question.name == "pod_resources":
            from gpudoctor.probes.pod_resources import ask_pod_resources

            return ask_pod_resources(question, self.deadline, self.root)
        if self.kubeconfig is None:
            return Unread(Why.NOT_RECORDED, question.name, NOT_ASKED)
        from gpudoctor.probes.kube_api import ask_kubernetes

        return ask_kubernetes(question, self.deadline, self.kubeconfig)

    @property
    def driver_tree(self) -> RecordedNode:
        """What the driver serves below /proc/driver/nvidia, read once in a child."""
        if self._driver_tree is None:
            self._driver_tree = _GuardedNode(
                read_driver_tree(self.root, self.deadline, self._own_tasks), complete=(DRIVER_TREE,)
            )
        return self._driver_tree

    def _reader(self, path: str) -> LiveFiles | RecordedNode:
        return self.driver_tree if path == DRIVER_TREE or path.startswith(DRIVER_TREE + "/") else self.files


class _GuardedNode(RecordedNode):
    """Files as the reader child saw them; what it did not reach was not readable in time."""

    def __init__(self, seen: DriverTree, complete: tuple[str, ...]) -> None:
        tree = Tree()
        for said in seen.lines:
            tree.put(said["path"], _record(said))
        for path in seen.stuck_at:
            tree.put(path, Record(error="ETIMEDOUT"))
        super().__init__(tree, complete=() if seen.stuck_at else complete)

    def unrecorded(self, path: str) -> Absent | Unread:
        """The reader never came to it."""
        return trouble(path, "ETIMEDOUT")


_ENTRY_FIELDS = ("path", "type", "mode", "uid", "gid", "major", "minor", "to")


def _record(said: dict[str, Any]) -> Record:
    if "error" in said:
        return Record(error=said["error"])
    fields = {name: said[name] for name in _ENTRY_FIELDS if name in said}
    return Record(entry=msgspec.convert(fields, Entry), text=said.get("text"))
