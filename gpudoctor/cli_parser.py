"""The argument parser."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gpudoctor import __version__
from gpudoctor.config import nearest
from gpudoctor.exits import ExitCode

FORMATS = ("terminal", "json", "html", "line", "markdown", "nagios", "node-exporter", "npd")
LISTING_FORMATS = ("terminal", "json")
"""Forms of what is no report: traces, the catalogue and its explanations."""
TOPO_FORMATS = ("terminal", "svg", "json", "nccl")
DIFF_FORMATS = ("terminal", "json", "html")
DEADLINES = {0: 30.0, 1: 180.0, 2: 900.0, 3: 3600.0, 4: 3600.0}
"""The deadline in seconds unless one is given, by --active's level: 2 takes minutes, 3 half an hour (DCGM User Guide, Diagnostics)."""
SLURM_DEADLINES = {"health-check": 20.0, "prolog": 4.0, "epilog": 4.0}
"""Slurm kills a health check after 60 s (slurmd.c, run_script_health_check), and a job waits for its prolog."""
SLURM_STATE = "/run/gpudoctor/slurm"
"""/run is empty after a boot (file-hierarchy(7)), and fails counted before a reboot say nothing of a GPU after it."""
EXIT_CODES = "exit codes of run and trace: 0 all well, 1 something deserves attention, 2 a link is broken, 3 could not tell or bad usage"

ROOT_HELP = "this node, its proc, sys and dev being below DIR"


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
        prog=f"gpudoctor {name}", description=COMMANDS[name][0], epilog=EXIT_CODES if name in ("run", "trace") else None
    )
    if name == "slurm":
        parser.usage_error = 0
    COMMANDS[name][1](parser)
    options = parser.parse_args(words)
    if getattr(options, "deadline", 0.0) is None:
        options.deadline = SLURM_DEADLINES.get(getattr(options, "mode", ""), DEADLINES[getattr(options, "active", 0)])
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
        epilog=f"commands (each has its own --help):\n{listed}\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gpudoctor {__version__}")
    parser.add_argument("command", metavar="COMMAND", type=_no_command, help=argparse.SUPPRESS)
    return parser


def _no_command(word: str) -> str:
    raise argparse.ArgumentTypeError(f"there is no command {word!r}{nearest(word, tuple(COMMANDS))}")


def _source_options(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--node",
        metavar="SOURCE",
        help="diagnose a recording instead: a snapshot, a plain root directory, an sos report or a GPU Operator must-gather, "
        "each a directory or an archive, nvidia-bug-report.log[.gz], what nvidia-smi printed, or a kernel log",
    )
    source.add_argument("--root", metavar="DIR", default="/", help=ROOT_HELP)
    _live_options(parser)


def _live_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deadline", metavar="SECONDS", type=_seconds, help="the run is over by then (default 30, with --active more)"
    )
    parser.add_argument("--config", metavar="FILE", help="a configuration file that overrides the others")


def _kubeconfig_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="also ask the API server about this node, by kubectl and with this kubeconfig; without it none is used",
    )


def _active_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--active",
        metavar="LEVEL",
        nargs="?",
        type=int,
        choices=tuple(DEADLINES)[1:],
        const=1,
        default=0,
        help="also have DCGM test the GPUs (`dcgmi diag -r LEVEL`): 1 (the default) the node's software, 2 to 4 under load, which takes "
        "minutes to hours and needs idle GPUs",
    )


def _seconds(word: str) -> float:
    seconds = float(word)
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError("must be between 0 and 3600")
    return seconds


def _run(parser: argparse.ArgumentParser) -> None:
    _source_options(parser)
    _kubeconfig_option(parser)
    _active_option(parser)
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="what stdout shows (default terminal)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="[FORMAT=]FILE",
        action="append",
        default=[],
        help="write the report to a file as well; repeatable",
    )
    parser.add_argument("--link", action="append", default=[], help="report only checks of this link; repeatable")
    parser.add_argument("--check", action="append", default=[], metavar="ID", help="report only this check; repeatable")
    parser.add_argument("--skip", action="append", default=[], metavar="ID", help="leave this check out; repeatable")
    _look_options(parser)


def _look_options(parser: argparse.ArgumentParser) -> None:
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="show evidence of every finding; -vv also identities and times",
    )
    amount.add_argument("-q", "--quiet", action="store_true", help="one line")
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="default auto: honours NO_COLOR, CLICOLOR, TERM=dumb",
    )
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def _record(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.tar.zst|DIR",
        required=True,
        help="a new archive (.tar.zst, .tar.xz, .tar.gz, .tar.bz2 or .tar), or a new or empty directory",
    )
    private = parser.add_mutually_exclusive_group()
    private.add_argument(
        "--raw",
        action="store_true",
        help="keep host, user and image names, serials, public addresses and secrets as they are; by default they are replaced",
    )
    private.add_argument(
        "--map",
        metavar="FILE",
        help="write down what was replaced by what, for yourself: a new file that only you can read",
    )
    parser.add_argument("--root", metavar="DIR", default="/", help=ROOT_HELP)
    _live_options(parser)
    _kubeconfig_option(parser)
    _active_option(parser)


def _render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", metavar="REPORT", help="a report that was written with --format json or html")
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="what stdout shows (default terminal)")
    _look_options(parser)


def _checks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--link", action="append", default=[], help="only checks of this link; repeatable")
    parser.add_argument("--format", choices=LISTING_FORMATS, default="terminal")


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids",
        metavar="CHECK-ID|CODE",
        nargs="+",
        help="a check's id, as `gpudoctor checks` lists it, or a code by number or name: nvml:N, cuda:N, xid:N, sxid:N, dcgm:N; repeatable",
    )
    parser.add_argument("--format", choices=LISTING_FORMATS, default="terminal")


def _trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="pid:N, docker:NAME, containerd:ID, crio:ID, podman:NAME, pod:NAMESPACE/NAME or slurm:JOB; container:ID for any other",
    )
    _source_options(parser)
    _kubeconfig_option(parser)
    parser.add_argument("--format", choices=LISTING_FORMATS, default="terminal", help="what stdout shows")
    _look_options(parser)


def _compat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--driver", metavar="VERSION", help="judge this driver (580.178.04) or branch (580) instead of the node's"
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME|sm_NN",
        action="append",
        default=[],
        help="judge this GPU instead of the node's; repeatable",
    )
    parser.add_argument("--cuda", metavar="VERSION", action="append", default=[], help="a CUDA version; repeatable")
    parser.add_argument(
        "--image",
        metavar="REQUIREMENTS",
        action="append",
        default=[],
        help="what an image demands: the value of its NVIDIA_REQUIRE_CUDA, or NVIDIA_REQUIRE_X=... words; repeatable",
    )
    parser.add_argument(
        "--framework",
        metavar="NAME[==VERSION]",
        action="append",
        default=[],
        help="pytorch, tensorflow, jax or vllm, as torch==2.9.1+cu128; repeatable",
    )
    _source_options(parser)
    parser.add_argument("--format", choices=LISTING_FORMATS, default="terminal", help="what stdout shows")
    _look_options(parser)


def _topo(parser: argparse.ArgumentParser) -> None:
    _source_options(parser)
    parser.add_argument(
        "--format",
        choices=TOPO_FORMATS,
        default="terminal",
        help="what stdout shows (default terminal): svg is a drawing for a browser, nccl a file for NCCL_TOPO_FILE",
    )
    _look_options(parser)


def _diff(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "exit codes: 0 the same, or the same but for identity; 1 different; 3 bad usage or a crash"
    for side in ("a", "b"):
        parser.add_argument(
            side,
            metavar=side.upper(),
            help="a report that was written with --format json or html, a SOURCE as `run --node` takes one, or `live`: this node",
        )
    parser.add_argument(
        "--as",
        dest="way",
        choices=("times", "nodes"),
        help="take them for one node at two times, or for two nodes; by default boot, GPUs and host name tell",
    )
    _live_options(parser)
    parser.add_argument(
        "--format", choices=DIFF_FORMATS, default="terminal", help="what stdout shows (default terminal)"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="[FORMAT=]FILE",
        action="append",
        default=[],
        help="write it to a file as well; repeatable",
    )
    _look_options(parser)


def _slurm(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Ends with 0 whatever happens; only prolog and epilog end with 96, and only for a GPU of the job that fails, where the "
        "configuration says so. See docs/slurm.md."
    )
    parser.add_argument(
        "mode",
        choices=("health-check", "prolog", "epilog"),
        help="health-check drains and undrains, as configured; prolog and epilog look at the job's GPUs",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--root", metavar="DIR", default="/", help=ROOT_HELP)
    parser.add_argument("--config", metavar="FILE", help="a configuration file that overrides the others")
    parser.add_argument(
        "--deadline", metavar="SECONDS", type=_seconds, help="for one look (default 20, in a prolog or epilog 4)"
    )
    parser.add_argument(
        "--state", metavar="DIR", default=SLURM_STATE, help="where fails are counted (default %(default)s)"
    )


def _schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--of",
        choices=("report", "trace", "compat", "topo", "diff"),
        default="report",
        help="of which output (default report)",
    )
    parser.add_argument("--format", choices=("json",), default="json")


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("diagnose this node or a recording (the default command)", _run),
    "record": ("run and keep every raw answer as a snapshot", _record),
    "render": ("show a saved report in another form", _render),
    "checks": ("list the checks", _checks),
    "explain": ("what a check asks, why, and what it is confused with", _explain),
    "trace": ("why one container, pod, job or process can or cannot use its GPU", _trace),
    "compat": ("which CUDA versions, images and frameworks run on this driver and its GPUs, or on others", _compat),
    "topo": ("how GPUs, network adapters, CPUs and memory are joined: a tree, a matrix, a drawing", _topo),
    "diff": ("what broke, healed and changed between two times of a node, or between two nodes", _diff),
    "slurm": ("for Slurm's HealthCheckProgram, Prolog and Epilog", _slurm),
    "schema": ("the JSON Schema of the report, of a trace, of compat, of topo or of diff", _schema),
}
"""Each command's purpose and what adds its options."""
