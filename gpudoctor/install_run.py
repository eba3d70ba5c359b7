"""`gpudoctor install`: the files of one kind for a node, made from what the node has; nothing is installed."""

import argparse
import json
import shlex
from collections.abc import Callable
from pathlib import Path

from gpudoctor.config import ConfigError, nearest
from gpudoctor.exits import ExitCode
from gpudoctor.facts.raw import Raw, SourceKind
from gpudoctor.installing.command import running_command
from gpudoctor.installing.files import File, Installation
from gpudoctor.installing.grafana import grafana
from gpudoctor.installing.kubernetes import kubernetes
from gpudoctor.installing.node import COMMAND, InstallNode, look
from gpudoctor.installing.npd import npd
from gpudoctor.installing.prometheus import prometheus_rules
from gpudoctor.installing.slurm import slurm
from gpudoctor.installing.units import cron, node_exporter, systemd
from gpudoctor.outputs import say
from gpudoctor.probes.deadline import Deadline
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.live import Live

SECONDS = 10.0
SHELL_FILES = Path(__file__).parent / "installing" / "completion"

KINDS: dict[str, Callable[[InstallNode], Installation]] = {
    "systemd": systemd,
    "cron": cron,
    "npd": npd,
    "slurm": slurm,
    "node-exporter": node_exporter,
    "prometheus-rules": prometheus_rules,
    "grafana": grafana,
    "kubernetes": kubernetes,
}


def installation(raw: Raw, kind: str, command: str | None, file: str | None = None) -> Installation:
    """The files of a kind, or the one of them that is named. Raises ConfigError for a command or a file that cannot be."""
    import msgspec

    place, notes = (command, ()) if command is not None else running_command()
    if command is None and raw.kind is not SourceKind.LIVE:
        place, notes = (
            COMMAND,
            (f"where the doctor will lie on this host is not known: {COMMAND} is taken; --command names another",),
        )
    if not place.startswith("/") or not place.isprintable():
        raise ConfigError(f"--command {place!r}: an absolute path is needed, without control characters")
    made = KINDS[kind](look(raw, place, notes))
    if file is None:
        return made
    wanted = tuple(one for one in made.files if file in (one.path, one.name))
    if not wanted:
        names = tuple(one.name for one in made.files)
        raise ConfigError(f"--file {file}: {kind} has {', '.join(names)}{nearest(file, names)}")
    return msgspec.structs.replace(made, files=wanted)


def write_files(place: Path, made: Installation, hints: str) -> tuple[Path, ...]:
    """Write them below a new or empty directory, each at its path there; `hints` is INSTALL.txt. Raises SourceError when it cannot be."""
    try:
        if place.exists() and any(place.iterdir()):
            raise SourceError(f"{place}: is not empty; install writes into a new or empty directory only")
        written = tuple(_write(place, file) for file in (*made.files, File("INSTALL.txt", hints)))
    except OSError as error:
        raise SourceError(f"{place}: cannot write the files: {error.strerror}") from error
    return written


def _write(place: Path, file: File) -> Path:
    target = place / file.path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Exclusive: what appeared there meanwhile is another's.
    with open(target, "x", encoding="utf-8") as opened:
        opened.write(file.content)
    target.chmod(int(file.mode, 8))
    return target


def install_command(options: argparse.Namespace) -> int:
    """`gpudoctor install`."""
    from gpudoctor.reports import installation as forms

    if options.output is not None and (options.file is not None or options.format == "json"):
        raise ConfigError("-o DIR writes all files; --file and --format json say what stdout shows")
    raw = Live(Deadline(SECONDS), options.root)
    made = installation(raw, options.kind, options.program, options.file)
    words = (("--command", options.program), ("--root", options.root if options.root != "/" else None))
    given = "".join(f" {name} {shlex.quote(word)}" for name, word in words if word is not None)
    if options.output is not None:
        for path in write_files(Path(options.output), made, forms.hints(made, given)):
            print(path)
        return ExitCode.OK
    if options.format == "json":
        text = json.dumps(forms.document(made), indent=1) + "\n"
    else:
        text = made.files[0].content if options.file is not None else forms.render(made, given)
    say(text)
    return ExitCode.OK


def completion_command(options: argparse.Namespace) -> int:
    """`gpudoctor completion`."""
    say((SHELL_FILES / f"gpudoctor.{options.shell}").read_text("utf-8"))
    return ExitCode.OK
