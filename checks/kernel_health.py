"""The kernel itself: has it been harmed, and do tasks hang in the nvidia driver?"""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.kernel_taint import KernelTaint
from gpudoctor.facts.tasks import HUNG_TASK, IN_DRIVER, Sleeper, Tasks
from gpudoctor.knowledge.nvml_remedies import FOR_HANG
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Action,
    Breaks,
    Cited,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdicts,
    Warn,
    Why,
)

# arch/x86/kernel/dumpstack.c, arch/arm64/kernel/traps.c, lib/bug.c, kernel/watchdog.c, drivers/acpi/apei and arch/x86/kernel/cpu/mce.
_HARM = pattern(
    r"Oops(?:: | - )|BUG: (?:unable to handle|kernel NULL|soft lockup)|kernel BUG at |general protection fault|"
    r"Internal error: |\[Hardware Error\]: .*(?:Machine check|CPU \d+: Machine)|mce: \[Hardware Error\]"
)
_HARM_WORDS = ("Oops", "BUG: ", "kernel BUG at", "general protection fault", "Internal error: ", "[Hardware Error]")
_IN_NVIDIA = pattern(rf"(?:RIP: |pc : ).*{IN_DRIVER.pattern}")
_XID = pattern(r"NVRM: Xid \(PCI:")

AFTER_HARM = (
    Remedy(
        Action.NONE,
        "Keep the kernel's report of it; the maintainer of the module named in it, or the machine's vendor, will ask for it.",
        run=("journalctl -k -b --no-pager > /var/tmp/kernel-$(date +%Y%m%d-%H%M%S).log",),
        confirm="ls -l /var/tmp/kernel-*.log",
    ),
    Remedy(
        Action.REBOOT,
        "Drain the node and reboot it: after an oops the task that died may have left locks taken.",
        run=("systemctl reboot",),
        interrupts="the whole node",
        confirm="gpudoctor run --check kernel-module.kernel-unharmed",
    ),
)


@check(
    "kernel-module.kernel-unharmed",
    link=Link.KERNEL_MODULE,
    advisory=True,
    title="The kernel has not oopsed since boot",
)
def kernel_unharmed(taint: KernelTaint, log: Reading[KernelLog]) -> Verdicts:
    """After an oops, a machine check or a soft lockup a kernel runs on, with locks taken for ever or memory in doubt.

    Read from the taint flags, which last until the next boot even where the log has wrapped. The flags of the nvidia module itself, P
    (proprietary), O (out of tree) and E (unsigned), and W (a warning was printed) say nothing of health.
    """
    if not taint.harm:
        yield Pass(NODE, "no oops, machine check or soft lockup since boot", taint.cite("flags"))
        return
    said = _reports(log)
    what = ", ".join(f"{meaning} (taint {letter})" for letter, meaning in taint.harm)
    inside = ", in the nvidia driver" if any(_IN_NVIDIA.search(line.shows) for line in said) else ""
    summary = f"since boot the kernel met {what}{inside}"
    yield Warn(NODE, summary, taint.cite("flags") + said, AFTER_HARM, cause="kernel-harmed")


def _reports(log: Reading[KernelLog]) -> Cited:
    """The first lines that tell of harm, and where in the driver it happened: what follows the first is mostly its consequence."""
    if isinstance(log, Unread):
        return ()
    found = [line for words in _HARM_WORDS for line in log.lines(_HARM, words)]
    places = [line for word in ("RIP: ", "pc : ") for line in log.lines(_IN_NVIDIA, word)]
    return (*found[:2], *places[:1])


@check(
    "driver-cuda.no-stuck-task",
    link=Link.DRIVER_CUDA,
    title="No task hangs in the nvidia driver",
)
def no_stuck_task(tasks: Tasks, log: Reading[KernelLog], module: Reading[NvidiaModule]) -> Verdicts:
    """A task asleep uninterruptibly inside the driver cannot be killed, holds its locks, and others pile up behind it.

    Looks at tasks in state D whose kernel stack has a frame of one of NVIDIA's modules, and only at those that stood still while
    watched or that the kernel calls hung: a task may sleep there for a moment, and slow initialisation moves. Easily confused with
    tasks that wait for a file system or disk: their stacks have none of those frames. Reading stacks takes root.
    """
    stuck = tasks.stuck_in_driver(log)
    if stuck:
        names = ", ".join(f"{task.comm} (PID {task.pid})" for task in stuck[:4])
        more = f" and {len(stuck) - 4} more" if len(stuck) > 4 else ""
        sleep = "1 task sleeps" if len(stuck) == 1 else f"{len(stuck)} tasks sleep"
        summary = f"{sleep} uninterruptibly in the driver: {names}{more}"
        evidence = tuple(task.evidence for task in stuck[:4]) + _said_of(stuck, log)
        yield Fail(
            NODE,
            summary,
            evidence,
            FOR_HANG,
            Breaks.NODE,
            cause="stuck-in-driver",
        )
    elif isinstance(module, NvidiaModule) and not module.loaded:
        yield NotApplicable(NODE, "the nvidia module is not loaded", module.cite("loaded"))
    elif tasks.count == 0:
        yield Unknown(NODE, Why.UNREADABLE, "no task could be seen", tasks.cite("count"), would_need="/proc")
    else:
        yield _unsure(tasks) or Pass(NODE, "no task hangs in the driver", tasks.cite("count"))


def _unsure(tasks: Tasks) -> Unknown | None:
    """Why nobody stuck was found, and yet nothing can be said."""
    seen = tasks.cite("count")
    if waiting := tasks.waiting_in_driver:
        summary = f"{len(waiting)} tasks wait in the driver, not long enough to be called stuck: it may be initialising"
        return Unknown(NODE, Why.SLOW_INIT, summary, (waiting[0].evidence,), would_need="a longer --deadline")
    if not tasks.whole:
        summary = "only a part of the node's tasks can be seen from here"
        return Unknown(NODE, Why.NO_PERMISSION, summary, seen, would_need="root in the host's PID namespace")
    hidden = [task for task in tasks.sleeping if task.hidden and not task.stack]
    if hidden:
        summary = f"{len(hidden)} tasks are in state D; where they sleep only root may see"
        return Unknown(NODE, Why.NO_PERMISSION, summary, seen, would_need="root")
    if tasks.unseen:
        summary = f"{tasks.unseen} more tasks are in state D than were looked at"
        return Unknown(NODE, Why.NOT_ANSWERED, summary, seen)
    return None


def _said_of(stuck: tuple[Sleeper, ...], log: Reading[KernelLog]) -> Cited:
    """The kernel's first word about these tasks, and the last Xid before it."""
    if isinstance(log, Unread):
        return ()
    pids = {str(task.pid) for task in stuck}
    hung = [line for line in log.lines(HUNG_TASK, "blocked for more than") if _pid(line) in pids]
    return (*hung[:1], *log.lines(_XID, "NVRM: Xid")[-1:])


def _pid(line: Evidence) -> str:
    match = HUNG_TASK.search(line.shows)
    return match["pid"] if match else ""
