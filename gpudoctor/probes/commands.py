"""Runs commands under LC_ALL=C in children that may be abandoned."""

import os
import shutil

from gpudoctor.facts.raw import Absent, CommandOutput, Entry
from gpudoctor.probes.child import run_child
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.files import LiveFiles
from gpudoctor.verdicts import Unread, Why

PATH = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")

# An ordinary user's PATH on Debian has no sbin, where dkms, modinfo and modprobe lie (login.defs(5), ENV_PATH and ENV_SUPATH).
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def run_command(argv: tuple[str, ...], deadline: Deadline, root: str = "/") -> CommandOutput | Absent | Unread:
    """A command's output, `Absent` when it is not installed, `Unread` when it did not end in time.

    Below a root it is the node's own program, run with that root: by chroot, which takes root.
    """
    program = _find(argv[0], root)
    if program is None:
        return Absent(argv[0])
    prefix: tuple[str, ...] = ()
    if root != "/":
        chroot = shutil.which("chroot")
        if os.geteuid() != 0 or chroot is None:
            return Unread(Why.NO_PERMISSION, " ".join(argv), "running it below --root takes chroot", would_need="root")
        prefix = (chroot, root)
    try:
        end = run_child((*prefix, program, *argv[1:]), deadline, environment={**os.environ, "LC_ALL": "C"})
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


def _find(name: str, root: str) -> str | None:
    if root == "/":
        return shutil.which(name) or shutil.which(name, path=os.pathsep.join(SBIN))
    files = LiveFiles(root)
    for directory in PATH:
        entry = files.entry(f"{directory}/{name}", follow=True)
        if isinstance(entry, Entry) and entry.mode is not None and entry.mode & 0o111:
            return f"{directory}/{name}"
    return None
