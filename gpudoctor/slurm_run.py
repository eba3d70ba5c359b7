"""`gpudoctor slurm health-check | prolog | epilog`: for Slurm's own hooks, which drain a node for anything but exit 0.

Whatever goes wrong here ends with 0. In a prolog or epilog scontrol is never called (Slurm's Prolog and Epilog Guide: it may deadlock):
there the exit status is the only means.
"""

import argparse
import contextlib
import datetime
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from gpudoctor.config import Config
from gpudoctor.facts.raw import Absent, CommandOutput
from gpudoctor.probes.deadline import Deadline
from gpudoctor.registry import Registry, built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.slurm_judging import essential_checks, judge, marked_checks
from gpudoctor.sources.live import Live
from gpudoctor.verdicts import SubjectKind, Unread, Why

OK = 0
REFUSES = 96
"""How a prolog or epilog ends for a job's GPU that fails: a status that no shell, interpreter, signal or `timeout` ends with by itself."""

SCONTROL_SECONDS = 5.0
LOOKS = 2
"""What fails in a prolog or epilog is looked at once more before a job and a node pay for it."""

SYSLOG = "/dev/log"
WARNING = 3 * 8 + 4
"""Facility daemon, severity warning (RFC 5424, 6.2.1)."""

SLURMS = frozenset({"scontrol", "sinfo", "squeue", "sacct", "sacctmgr", "slurmd", "srun", "scancel"})


def slurm(options: argparse.Namespace) -> int:
    """Run one mode."""
    from gpudoctor.sources.config_files import load_config

    say = _saying(options.mode, os.environ.get("SLURMD_NODENAME", ""))
    registry = built_in()
    config = load_config(options.root, registry.ids, options.config)
    marks = marked_checks(config, registry)
    if not marks:
        return OK
    if options.mode == "health-check":
        return _health_check(options, config, registry, marks, say)
    return _of_job(options, config, registry, marks, say)


def _health_check(
    options: argparse.Namespace, config: Config, registry: Registry, marks: Sequence[str], say: Callable[[str], None]
) -> int:
    from gpudoctor.probes.commands import run_command
    from gpudoctor.slurm_drain import Controller, name_is_one_node
    from gpudoctor.slurm_health import HealthCheck
    from gpudoctor.slurm_memory import CannotRememberError, remembered

    node = os.environ.get("SLURMD_NODENAME", "")
    if not name_is_one_node(node):
        say(f"SLURMD_NODENAME={node!r} names no node: this is for slurmd to run, as HealthCheckProgram")
        return OK
    if "SLURM_JOB_ID" in os.environ:
        say(
            "SLURM_JOB_ID is set: this is no health check but a job, or a prolog or epilog, where scontrol must not be called"
        )
        return OK

    if os.environ.get("SLURM_CLUSTERS"):
        say("SLURM_CLUSTERS is set: scontrol would change a node of that name in another cluster")
        return OK

    def scontrol(argv: tuple[str, ...]) -> CommandOutput | Absent | Unread:
        return run_command(argv, Deadline(SCONTROL_SECONDS))

    essential = essential_checks(registry)
    asked = (*marks, *essential)
    check = HealthCheck(config.slurm, Controller(node, scontrol), say, dry_run=options.dry_run)
    try:
        with remembered(options.state, node) as memory:
            check.run(memory, lambda: look(options, config, registry, asked), marks, essential)
    except CannotRememberError as error:
        say(f"nothing is done to the node: {error}")
    return OK


def _of_job(
    options: argparse.Namespace, config: Config, registry: Registry, marks: Sequence[str], say: Callable[[str], None]
) -> int:
    """Whether one of the job's own GPUs fails, and does so again when it is looked at once more."""
    from gpudoctor.slurm_gpus import GpusUnknownError, addresses_of_job, asked_for, numbers_of_job, read_gres

    try:
        numbers = numbers_of_job(os.environ)
        if not numbers:
            return OK
        gres = read_gres(Live(Deadline(options.deadline)), os.environ)
        fails: dict[str, str] = {}
        for again in range(LOOKS):
            report = look(options, config, registry, (*marks, *asked_for(gres)))
            own = addresses_of_job(numbers, gres, report)
            now = _fails_of(report, marks, own)
            fails = {check: words for check, words in now.items() if not again or check in fails}
            if not fails:
                return OK
    except GpusUnknownError as error:
        say(f"could not tell which GPUs are the job's, so nothing is said: {error}")
        return OK
    told = "; ".join(f"{check}: {words}" for check, words in fails.items())
    allowed = config.slurm.drain and (config.slurm.prolog if options.mode == "prolog" else config.slurm.epilog)
    if not allowed or options.dry_run:
        say(f"a GPU of the job fails: {told}; the configuration lets it pass (slurm.drain and slurm.{options.mode})")
        return OK
    say(f"a GPU of the job fails, and Slurm is told so by exit {REFUSES}: {told}")
    return REFUSES


def _fails_of(report: Report, marks: Sequence[str], gpus: frozenset[str]) -> dict[str, str]:
    """The marked checks that some of these GPUs fail, with words."""
    fails: dict[str, str] = {}
    for check, findings in judge(report, marks).fails.items():
        own = [one for one in findings if one.subject.kind is SubjectKind.GPU and one.subject.key in gpus]
        if own:
            fails[check] = f"{', '.join(one.subject.key for one in own)}: {own[0].summary}"
    return fails


class BesideSlurm(Live):
    """The live node without Slurm's own commands: in its hooks they may wait for the very daemon that waits for the hook."""

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """Any other command of this node."""
        if os.path.basename(argv[0]) in SLURMS:
            return Unread(Why.WITHHELD, " ".join(argv), "not asked from within Slurm's own hooks")
        return super().command(argv, seconds=seconds)


def look(options: argparse.Namespace, config: Config, registry: Registry, asked: Sequence[str]) -> Report:
    """Some checks, and those they stand on, over this node."""
    raw = BesideSlurm(Deadline(options.deadline), options.root)
    quiet = msgspec.structs.replace(config, slurm=msgspec.structs.replace(config.slurm, ask=False))
    now = datetime.datetime.now(datetime.timezone.utc)
    return run(raw, quiet, registry, Selection(checks=tuple(asked)), now)


def _saying(mode: str, node: str) -> Callable[[str], None]:
    def say(words: str) -> None:
        tell(f"slurm {mode}{f' on {node}' if node else ''}: {words}")

    return say


def tell(words: str) -> None:
    """One line to the system's log and to stderr, where somebody listens: Slurm drops what its hooks print."""
    line = "".join(letter if letter.isprintable() else " " for letter in words).encode("ascii", "backslashreplace")
    # A log daemon that hangs must not hold up the hook.
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as log:
        stamp = time.strftime("%b %e %H:%M:%S").encode()
        log.sendto(b"<%d>%s gpudoctor[%d]: %s" % (WARNING, stamp, os.getpid(), line[:2000]), SYSLOG)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"gpudoctor {line.decode()}\n")
        sys.stderr.flush()
