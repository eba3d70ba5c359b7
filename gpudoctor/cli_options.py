"""The options of each command, and the forms of output that each has."""

import argparse

FORMATS = ("terminal", "json", "html", "line", "markdown", "nagios", "node-exporter", "npd")
RUN_FORMATS = (*FORMATS, "stream")
"""What `run` writes while it runs is no form of a report that is done."""
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
HEALTH_FORMATS = ("terminal", "line", "json", "nagios", "npd", "node-exporter")
HEALTH_DEADLINE = 20.0
"""A timer's pass must be over before the next one begins."""
EXIT_CODES = (
    "exit codes of run, health and trace: 0 all well, 1 something deserves attention, 2 a link is broken, "
    "3 could not tell or bad usage"
)

DEADLINE_WORDS = "30, with --active more"
ROOT_HELP = "this node, its proc, sys and dev being below DIR"


def _source_options(parser: argparse.ArgumentParser, deadline: str = DEADLINE_WORDS) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--node",
        metavar="SOURCE",
        help="diagnose a recording instead: a snapshot, a plain root directory, an sos report or a GPU Operator must-gather, "
        "each a directory or an archive, nvidia-bug-report.log[.gz], what nvidia-smi printed, or a kernel log",
    )
    source.add_argument("--root", metavar="DIR", default="/", help=ROOT_HELP)
    _live_options(parser, deadline)


def _live_options(parser: argparse.ArgumentParser, deadline: str = DEADLINE_WORDS) -> None:
    parser.add_argument(
        "--deadline", metavar="SECONDS", type=_seconds, help=f"the run is over by then (default {deadline})"
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


def run(parser: argparse.ArgumentParser) -> None:
    _source_options(parser)
    _kubeconfig_option(parser)
    _active_option(parser)
    parser.add_argument(
        "--format",
        choices=RUN_FORMATS,
        default="terminal",
        help="what stdout shows (default terminal); stream is JSON lines for programs that watch the run",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="[FORMAT=]FILE",
        action="append",
        default=[],
        help="write the report to a file as well; repeatable",
    )
    parser.add_argument(
        "--details",
        action="store_true",
        help="keep GPU data, traces of workloads, a timeline and the topology in the report as well, as a page (html) always does",
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


def tui(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "report", metavar="REPORT", nargs="?", help="show a report that was written with --format json or html instead"
    )
    _source_options(parser)
    _kubeconfig_option(parser)
    parser.add_argument(
        "--watch", metavar="SECONDS", type=_seconds, help="run again so long after each run, and mark what has changed"
    )
    parser.add_argument("--against", metavar="SOURCE", help="a saved report, or a recording, to compare with")
    parser.add_argument("--theme", metavar="NAME", help="one of textual's themes, as textual-light or ansi-dark")
    parser.add_argument("--ascii", action="store_true", help="no characters beyond ASCII")


def record(parser: argparse.ArgumentParser) -> None:
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


def render(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", metavar="REPORT", help="a report that was written with --format json or html")
    parser.add_argument("--format", choices=FORMATS, default="terminal", help="what stdout shows (default terminal)")
    _look_options(parser)


def checks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--link", action="append", default=[], help="only checks of this link; repeatable")
    parser.add_argument("--format", choices=LISTING_FORMATS, default="terminal")


def explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ids",
        metavar="CHECK-ID|CODE",
        nargs="+",
        help="a check's id, as `gpudoctor checks` lists it, or a code by number or name: nvml:N, cuda:N, xid:N, sxid:N, dcgm:N; repeatable",
    )
    parser.add_argument("--format", choices=LISTING_FORMATS, default="terminal")


def trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="pid:N, docker:NAME, containerd:ID, crio:ID, podman:NAME, pod:NAMESPACE/NAME or slurm:JOB; container:ID for any other",
    )
    _source_options(parser)
    _kubeconfig_option(parser)
    parser.add_argument("--format", choices=LISTING_FORMATS, default="terminal", help="what stdout shows")
    _look_options(parser)


def compat(parser: argparse.ArgumentParser) -> None:
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


def topo(parser: argparse.ArgumentParser) -> None:
    _source_options(parser)
    parser.add_argument(
        "--format",
        choices=TOPO_FORMATS,
        default="terminal",
        help="what stdout shows (default terminal): svg is a drawing for a browser, nccl a file for NCCL_TOPO_FILE",
    )
    _look_options(parser)


def diff(parser: argparse.ArgumentParser) -> None:
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


def slurm(parser: argparse.ArgumentParser) -> None:
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


def install(parser: argparse.ArgumentParser) -> None:
    from gpudoctor.installing.options import install_options

    install_options(parser)


def completion(parser: argparse.ArgumentParser) -> None:
    from gpudoctor.installing.options import completion_options

    completion_options(parser)


def health(parser: argparse.ArgumentParser) -> None:
    _source_options(parser, f"{HEALTH_DEADLINE:g}")
    parser.set_defaults(deadline=HEALTH_DEADLINE)
    _state_option(parser)
    parser.add_argument(
        "--format",
        choices=HEALTH_FORMATS,
        default="terminal",
        help="what stdout shows (default terminal: changes only)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="[FORMAT=]FILE",
        action="append",
        default=[],
        help="write the answer to a file as well; repeatable",
    )
    parser.add_argument("--link", action="append", default=[], help="answer for this link only; repeatable")
    parser.add_argument("--all", action="store_true", help="show all that is wrong, not only what changed")
    parser.add_argument("--ask-nvml", action="store_true", help="ask NVML even while no process holds a GPU")
    parser.add_argument("--cached", action="store_true", help="give the answer of the last pass, and look at nothing")
    _look_options(parser)


def history(parser: argparse.ArgumentParser) -> None:
    _state_option(parser)
    parser.add_argument("--check", action="append", default=[], metavar="ID", help="only this check; repeatable")
    parser.add_argument("--gpu", action="append", default=[], metavar="ADDRESS", help="only this GPU; repeatable")
    parser.add_argument(
        "--since", metavar="TIME", help="2026-11-29, 2026-11-29T12:00:00Z, or how long ago: 90m, 12h, 7d (default: all)"
    )
    parser.add_argument("--format", choices=LISTING_FORMATS, default="terminal", help="what stdout shows")
    _look_options(parser)


def _state_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        metavar="DIR",
        help="where the memory lies (default $STATE_DIRECTORY, /var/lib/gpudoctor, for a user ~/.local/state/gpudoctor)",
    )


def schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--of",
        choices=("report", "trace", "compat", "topo", "diff", "health", "history", "stream"),
        default="report",
        help="of which output (default report)",
    )
    parser.add_argument("--format", choices=("json",), default="json")
