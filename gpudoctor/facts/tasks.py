"""Tasks stuck in the driver, and who holds it: from what /proc showed of them."""

from typing import TypeVar

import msgspec
from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import Answer, Question, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

OWN = ("gpudoctor-nvml", "gpudoctor-files")
"""Children that an earlier run had to leave behind: the checks that wait for them speak of them."""

# kernel/hung_task.c, check_hung_task.
HUNG_TASK = pattern(r"INFO: task (?P<comm>.{1,64}):(?P<pid>\d{1,10}) blocked for more than \d+ seconds")
# NVIDIA's modules as the kernel names them behind a function; nvidia_fs is not among them: it waits for storage.
IN_DRIVER = pattern(r"\[nvidia(?:_(?:uvm|drm|modeset|peermem|vgpu_vfio))?\]")

STUCK_AFTER_SECONDS = 10.0
"""A client may wait as long for a GPU that another initialises: nv.c holds the GPU's lock across rm_init_adapter."""


class Sleeper(Struct, frozen=True):
    """A task in state D: its kernel stack (text of /proc/PID/stack), and for how long nothing about it changed.

    `still` says that it had not moved when the watching ended, however short that was.
    """

    pid: int
    comm: str
    state: str = "D"
    stack: str = ""
    unchanged_seconds: float = 0.0
    still: bool = False
    hidden: bool = False

    @property
    def in_driver(self) -> bool:
        """Whether a frame of its stack lies in one of NVIDIA's modules; the kernel prints a module's name behind its functions."""
        return IN_DRIVER.search(self.stack) is not None

    @property
    def evidence(self) -> Evidence:
        """The task and its stack, frames joined."""
        frames = (line.strip().removeprefix("[<0>] ") for line in self.stack.splitlines())
        where = f"/proc/{self.pid}/stack"
        return Evidence(where, f"{self.comm}, PID {self.pid} in state {self.state}: {'; '.join(frames)}")


_DataT = TypeVar("_DataT")


class _Tasks(Struct):
    """The `data` of answers/tasks.json."""

    tasks: int = 0
    whole: bool = True
    unseen: int = 0
    sleeping: tuple[Sleeper, ...] = ()


class Tasks(Fact, frozen=True):
    """How many tasks there are, and those in uninterruptible sleep.

    Not `whole` means that a PID namespace or hidepid hides others; `unseen` sleepers were too many to look at.
    """

    count: int
    whole: bool
    unseen: int
    sleeping: tuple[Sleeper, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "Tasks | Unread":
        """One look at every process, and at the threads that the kernel's log calls hung."""
        log = desk.get(KernelLog)
        hung = hung_pids(log) if isinstance(log, KernelLog) else ()
        answer = desk.raw.answer("tasks", lambda: Question("tasks", {"also": list(hung)}))
        data = _data(answer, _Tasks, "tasks")
        if isinstance(data, Unread):
            return data
        # How many tasks there are, and sleep for a moment, is no news and never the same twice.
        said = "no task in state D stands still in one of NVIDIA's modules"
        return cls(
            count=data.tasks,
            whole=data.whole,
            unseen=data.unseen,
            sleeping=tuple(task for task in data.sleeping if task.comm not in OWN),
            read_from={"count": Evidence("tasks (/proc/*/stat)", said if data.tasks else "shows no task")},
        )

    def stuck_in_driver(self, log: KernelLog | Unread) -> tuple[Sleeper, ...]:
        """Those that sleep in the driver and do not move, by their stack or by the kernel's word."""
        said = hung_pids(log) if isinstance(log, KernelLog) else ()
        inside = (task for task in self.sleeping if task.in_driver and task.state == "D")
        return tuple(task for task in inside if task.unchanged_seconds >= STUCK_AFTER_SECONDS or task.pid in said)

    @property
    def waiting_in_driver(self) -> tuple[Sleeper, ...]:
        """Those that sleep in the driver and had not moved yet when the watching ended."""
        return tuple(task for task in self.sleeping if task.in_driver and task.state == "D" and task.still)


def hung_pids(log: KernelLog) -> tuple[int, ...]:
    """The tasks that the kernel has reported as hung, whether or not they still are."""
    found = (HUNG_TASK.search(line.shows) for line in log.lines(HUNG_TASK, "blocked for more than"))
    return tuple(sorted({int(match["pid"]) for match in found if match is not None}))


class Holder(Struct, frozen=True):
    """A process that has nodes of the driver open, or mapped while none is open.

    `unit` is its systemd unit or container, "" when it has none; `cgroup` is the text of /proc/PID/cgroup, `state` as in its stat.
    """

    pid: int
    comm: str
    nodes: tuple[str, ...] = ()
    unit: str = ""
    mapped: tuple[str, ...] = ()
    cgroup: str = ""
    state: str = ""
    parent: int = 0

    @property
    def evidence(self) -> Evidence:
        """The process and what it holds."""
        where = f" ({self.unit})" if self.unit else ""
        if self.nodes:
            return Evidence(f"/proc/{self.pid}/fd", f"{self.comm}{where} has {', '.join(self.nodes)} open")
        return Evidence(f"/proc/{self.pid}/maps", f"{self.comm}{where} has {', '.join(self.mapped)} mapped")


class HeldNodes(Struct):
    """The `data` of answers/holders.json: `hidden` processes do not show their files, `unmapped` ones did not show their maps in time."""

    holders: tuple[Holder, ...] = ()
    hidden: int = 0
    unmapped: int = 0


class DriverHolders(Fact, frozen=True):
    """Who keeps the driver in use. Looked for only where another version waits on disk, or where NVML does not answer."""

    holders: tuple[Holder, ...] = ()
    use_count: Cited = ()
    hidden: int = 0

    @classmethod
    def gather(cls, desk: Desk) -> "DriverHolders | Unread":
        """Never unread itself: it only adds to what others know."""
        if not (waits_for_reload(desk) or _hangs(desk)):
            return cls()
        data = held_nodes(desk)
        known = HeldNodes() if isinstance(data, Unread) else data
        return cls(holders=known.holders, use_count=_use_count(desk), hidden=known.hidden)

    @property
    def evidence(self) -> Cited:
        """The module's use count and the first few holders."""
        unseen = (
            (Evidence("tasks (/proc/*/fd)", f"{self.hidden} processes may be seen by root only"),)
            if self.hidden
            else ()
        )
        return self.use_count + tuple(holder.evidence for holder in self.holders[:6]) + unseen


def held_nodes(desk: Desk) -> HeldNodes | Unread:
    """One look at the open files of every process."""
    return _data(desk.raw.answer("holders", lambda: Question("holders")), HeldNodes, "holders")


def _hangs(desk: Desk) -> bool:
    """Whether NVML was asked and did not answer in time."""
    nvml = desk.known(Nvml)
    return nvml is not None and nvml.failure == "timed-out"


def waits_for_reload(desk: Desk) -> bool:
    """Whether the loaded module is of another version than the one on disk."""
    module, file = desk.get(NvidiaModule), desk.get(ModuleFile)
    if isinstance(module, Unread) or isinstance(file, Unread):
        return False
    return module.version is not None and file.exists and module.version != file.version


def _use_count(desk: Desk) -> Cited:
    """The third and fourth word of the module's line: use count and what uses it (proc(5), /proc/modules)."""
    modules = desk.raw.read("/proc/modules")
    lines = modules.text.splitlines() if isinstance(modules, TextFile) else ()
    found = [line.split() for line in lines if line.startswith("nvidia ")]
    return tuple(
        Evidence("/proc/modules", f"nvidia: use count {words[2]}, used by {words[3].rstrip(',')}")
        for words in found
        if len(words) > 3
    )


def _data(answer: Answer | Unread, kind: type[_DataT], name: str) -> _DataT | Unread:
    if isinstance(answer, Unread):
        return answer
    try:
        return msgspec.convert(answer.data, kind)
    except msgspec.ValidationError as error:
        return Unread(Why.UNREADABLE, f"answers/{name}.json", str(error))
