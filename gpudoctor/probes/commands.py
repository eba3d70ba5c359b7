"""Runs commands under LC_ALL=C in children that may be abandoned."""

import os
import shutil

from gpudoctor.facts.raw import Absent, CommandOutput
from gpudoctor.probes.child import run_child
from gpudoctor.probes.deadline import Deadline
from gpudoctor.verdicts import Unread, Why


def run_command(argv: tuple[str, ...], deadline: Deadline) -> CommandOutput | Absent | Unread:
    """A command's output, `Absent` when it is not installed, `Unread` when it did not end in time."""
    program = shutil.which(argv[0])
    if program is None:
        return Absent(argv[0])
    try:
        end = run_child((program, *argv[1:]), deadline, environment={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        return Unread(Why.UNREADABLE, " ".join(argv), error.strerror or str(error))
    if end.exit is None or end.abandoned is not None:
        return Unread(Why.TIMED_OUT, " ".join(argv), "did not end before its deadline")
    return CommandOutput(
        argv=argv,
        exit=end.exit,
        stdout=end.stdout.decode("utf-8", "backslashreplace"),
        stderr=end.stderr.decode("utf-8", "backslashreplace"),
        seconds=round(end.seconds, 3),
    )
