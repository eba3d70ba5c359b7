"""The argument parser."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gpudoctor import __version__, cli_options
from gpudoctor.config import nearest
from gpudoctor.exits import ExitCode


class _Parser(argparse.ArgumentParser):
    """A usage error is 3: scripts take argparse's own 2 for a broken GPU. Slurm takes all but 0 for one."""

    usage_error = int(ExitCode.UNKNOWN)

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _formatter, **options})

    def error(self, message: str) -> NoReturn:
        """One line, then exit."""
        sys.stderr.write(f"{self.prog}: {' '.join(message.split())}\n")
        sys.exit(self.usage_error)


def _formatter(prog: str) -> argparse.HelpFormatter:
    """As wide as the terminal, but without importing shutil for it: argparse makes one for each option, and a run shows no help."""
    columns = os.environ.get("COLUMNS", "")
    try:
        width = int(columns) if columns.isdecimal() and int(columns) else os.get_terminal_size(1).columns
    except OSError:
        width = 80
    return argparse.HelpFormatter(prog, width=(width or 80) - 2)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse; `run` is the command when none is named. Exits for --help, --version and usage errors.

    Only the chosen command's parser is built: argparse takes longer to build one than the doctor to read a node.
    """
    words = list(arguments)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help", "--version")):
        words.insert(0, "run")
    if words[0] not in COMMANDS:
        return _top().parse_args(words)
    name = words.pop(0)
    parser = _Parser(
        prog=f"gpudoctor {name}",
        description=COMMANDS[name][0],
        epilog=cli_options.EXIT_CODES if name in ("run", "health", "trace") else None,
    )
    if name == "slurm":
        parser.usage_error = 0
    COMMANDS[name][1](parser)
    options = parser.parse_args(words)
    if getattr(options, "deadline", 0.0) is None:
        by_level = cli_options.DEADLINES[getattr(options, "active", 0)]
        options.deadline = cli_options.SLURM_DEADLINES.get(getattr(options, "mode", ""), by_level)
    options.command = name
    return options


def _top() -> argparse.ArgumentParser:
    """The parser for --help, --version and words that are no command."""
    width = max(len(name) for name in COMMANDS)
    listed = "\n".join(f"  {name:{width}}  {purpose}" for name, (purpose, _) in COMMANDS.items())
    parser = _Parser(
        prog="gpudoctor",
        usage="gpudoctor [COMMAND] [OPTIONS]",
        description="Which link of this node's GPU chain is broken, how do we know, and what is the next safe step?",
        epilog=f"commands (each has its own --help):\n{listed}\n\n{cli_options.EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpudoctor {__version__}")
    parser.add_argument("command", metavar="COMMAND", type=_no_command, help=argparse.SUPPRESS)
    return parser


def _no_command(word: str) -> str:
    raise argparse.ArgumentTypeError(f"there is no command {word!r}{nearest(word, tuple(COMMANDS))}")


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("diagnose this node or a recording (the default command)", cli_options.run),
    "tui": ("the same as a program to look around in: live, over a recording, or over a saved report", cli_options.tui),
    "record": ("run and keep every raw answer as a snapshot", cli_options.record),
    "render": ("show a saved report in another form", cli_options.render),
    "checks": ("list the checks", cli_options.checks),
    "explain": ("what a check asks, why, and what it is confused with", cli_options.explain),
    "trace": ("why one container, pod, job or process can or cannot use its GPU", cli_options.trace),
    "compat": (
        "which CUDA versions, images and frameworks run on this driver and its GPUs, or on others",
        cli_options.compat,
    ),
    "topo": ("how GPUs, network adapters, CPUs and memory are joined: a tree, a matrix, a drawing", cli_options.topo),
    "diff": ("what broke, healed and changed between two times of a node, or between two nodes", cli_options.diff),
    "health": ("one pass with a memory, for timers: what is new, what lasts, what healed", cli_options.health),
    "history": ("what health remembers: episodes, Xids by boot, counters", cli_options.history),
    "slurm": ("for Slurm's HealthCheckProgram, Prolog and Epilog", cli_options.slurm),
    "install": (
        "print files for systemd, cron, Slurm, Prometheus, Grafana, Kubernetes; changes nothing",
        cli_options.install,
    ),
    "completion": ("print what lets a shell complete gpudoctor's words", cli_options.completion),
    "schema": (
        "the JSON Schema of the report, of a trace, of compat, topo, diff, health, history or of a stream's lines",
        cli_options.schema,
    ),
}
"""Each command's purpose and what adds its options."""
