"""An earlier run of the doctor's that has not ended: whether it is still that process, its state and where it waits in the kernel.

Its command line is not read: that can block on the memory lock of a stuck task (proc_pid_cmdline(5)).
"""

import time

from msgspec import Struct

from gpudoctor.probes.tasks import StackWatch

STILL_SECONDS = 2.5
"""How long a sleeper is watched before it is called stuck, as an earlier run's NVML worker is."""
SAMPLE_SECONDS = 0.25
CLOCK_SLACK = 2.0
"""The start of a process is told in ticks after boot, and the time of boot moves with the clock (psutil, Process.create_time)."""


class EarlierRun(Struct, frozen=True):
    """The process as it is now. `stuck` is one in uninterruptible sleep that did not move for as long as it was watched."""

    state: str
    stack: str
    stuck: bool


def look_at_run(pid: int, seconds_ago: float) -> EarlierRun | None:
    """The process of a run that began so long ago, None where it cannot be seen from here: gone, or in another PID namespace."""
    import psutil

    try:
        process = psutil.Process(pid)
        age = time.time() - process.create_time()
        state = process.status()
    except psutil.Error:
        return None
    # A process that began after the run took its number.
    if age + CLOCK_SLACK < seconds_ago:
        return None
    watch = StackWatch(pid)
    task = watch.look()
    until = time.monotonic() + STILL_SECONDS
    while task is not None and task.state == "D" and time.monotonic() < until:
        time.sleep(SAMPLE_SECONDS)
        task = watch.look()
    if task is None:
        return None
    stuck = task.state == "D" and watch.unchanged_seconds >= STILL_SECONDS - 2 * SAMPLE_SECONDS
    return EarlierRun(task.state or state, task.stack, stuck)
