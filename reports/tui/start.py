"""Starts the program: what is looked at, on which terminal, and how it ends. textual is loaded last, while the run is on already."""

import argparse
import datetime
import os
import signal
import sys
from typing import TYPE_CHECKING

from gpudoctor.exits import ExitCode
from gpudoctor.reports.look import is_unicode
from gpudoctor.reports.tui.child import Child, command
from gpudoctor.reports.tui.model import MOMENT, Shown
from gpudoctor.reports.tui.theme import chosen_theme
from gpudoctor.sources.errors import SourceError

if TYPE_CHECKING:
    from gpudoctor.details import FullReport
    from gpudoctor.report import Report

REFUSED_SECONDS = 3.0
"""How long the screen waits for a run that may refuse what it is given; a large archive takes longer to open, and is waited for there."""


def tui(options: argparse.Namespace) -> int:
    """`gpudoctor tui`. Raises SourceError where there is no terminal or no such report, and whatever the program has crashed with."""
    _demand_terminal()
    _demand_source(options)
    saved = as_full(_saved(options.report)) if options.report is not None else None
    shown = Shown(
        source=_source_words(options),
        live=saved is None and options.node is None,
        report=saved,
        passes=int(saved is not None),
        against=_against(options.against),
        against_name=options.against or "",
        node=options.node or "",
        watch=options.watch if saved is None else None,
        ascii=options.ascii or not is_unicode(sys.stderr, os.environ),
        began=datetime.datetime.now(datetime.timezone.utc).strftime(MOMENT),
    )
    run = command(["run", "--format", "stream", *_run_words(options)]) if saved is None else []
    first = _started(run) if run else None
    try:
        return _show(options, shown, run, first)
    finally:
        if first is not None:
            first.abandon()


def _show(options: argparse.Namespace, shown: Shown, run: list[str], first: Child | None) -> int:
    _prepare(options, os.environ)
    from gpudoctor.reports.tui.app import DoctorApp
    from gpudoctor.reports.tui.plain import plain_driver

    app = DoctorApp(
        shown,
        run,
        first,
        deadline=options.deadline,
        source_options=_source_words_for_record(options),
        driver_class=plain_driver() if shown.ascii else None,
    )
    if options.theme and options.theme not in app.available_themes:
        raise SourceError(f"--theme {options.theme}: there is none of that name, but {', '.join(app.available_themes)}")
    if shown.ascii:
        app.add_class("-ascii")
    if first is not None and (options.node is not None or options.config is not None):
        _demand_beginning(first)
    app.run()
    if app.crash is not None:
        raise app.crash
    if app.ended_by is not None:
        # The terminal is in order: die of the signal, as whoever sent it expects.
        signal.signal(app.ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), app.ended_by)
    return ExitCode.OK


def _started(run: list[str]) -> Child:
    try:
        return Child(run)
    except OSError as error:
        raise SourceError(f"the run cannot be started: {error.strerror or error}") from error


def _demand_beginning(run: Child) -> None:
    """What a run refuses at once, as a file that is no recording, is told as `run` tells it, before the screen is taken."""
    said = run.refusal(REFUSED_SECONDS)
    if said:
        raise SourceError(said.removeprefix("gpudoctor: "))


def as_full(report: "Report") -> "FullReport":
    """A report as one with room for details."""
    from gpudoctor.details import FullReport
    from gpudoctor.report import Report

    if isinstance(report, FullReport):
        return report
    return FullReport(**{name: getattr(report, name) for name in Report.__struct_fields__})


def _demand_terminal() -> None:
    # textual reads stdin and draws on stderr.
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None or not stream.isatty():
            raise SourceError(
                "tui needs a terminal for stdin, stdout and stderr; `gpudoctor run` writes to a pipe or a file"
            )
    if os.environ.get("TERM", "dumb") == "dumb":
        raise SourceError(
            "tui cannot draw on this terminal (TERM is dumb, or not set); `gpudoctor run` writes plain lines"
        )


def _demand_source(options: argparse.Namespace) -> None:
    """What is misspelt is told as `run` tells it, before anything is started; whatever else is wrong with a source the run says."""
    if options.report is not None and options.node is not None:
        raise SourceError("a saved report and --node are two things to look at; --against compares one with the other")
    if options.node is not None and not any(
        os.path.exists(place) for place in (options.node, options.node.rpartition(":")[0])
    ):
        from gpudoctor.sources.opening import open_source

        open_source(options.node)
    if options.config is not None and not os.path.exists(options.config):
        from gpudoctor.sources.config_files import read_config

        read_config(options.config, ())


def _prepare(options: argparse.Namespace, environment: "os._Environ[str]") -> None:
    """What textual reads when it is loaded."""
    if not environment.get("NO_COLOR"):
        environment.pop(
            "NO_COLOR", None
        )  # set but empty, it asks for nothing (no-color.org); textual asks whether it is set
    environment["TEXTUAL_THEME"] = chosen_theme(options.theme, environment)
    environment["TEXTUAL_ANIMATIONS"] = "none"


def _against(place: str | None) -> "Report | None":
    """A saved report; a recording is looked at later, by a run of its own."""
    from gpudoctor.reports.tui.named import is_report

    if place is None or (os.path.exists(place) and not is_report(place)):
        return None
    return _read(place)


def _saved(place: str) -> "Report":
    try:
        return _read(place)
    except SourceError as error:
        if not os.path.exists(place):
            raise
        raise SourceError(f"{error} (a recording is named by --node)") from error


def _read(place: str) -> "Report":
    from gpudoctor.reports.saved import read_report

    return read_report(place)


def _source_words(options: argparse.Namespace) -> str:
    if options.report is not None:
        return f"report {options.report}"
    if options.node is not None:
        return f"recording {options.node}"
    return "this node" if options.root == "/" else f"this node below {options.root}"


def _run_words(options: argparse.Namespace) -> list[str]:
    node = ["--node", options.node] if options.node is not None else _root_words(options)
    return ["--deadline", f"{options.deadline:g}", *node, *_setting_words(options)]


def _source_words_for_record(options: argparse.Namespace) -> list[str]:
    """The options by which any command looks at the same live node."""
    return [*_root_words(options), *_setting_words(options)]


def _root_words(options: argparse.Namespace) -> list[str]:
    return ["--root", options.root] if options.root != "/" else []


def _setting_words(options: argparse.Namespace) -> list[str]:
    settings = (("--config", options.config), ("--kubeconfig", options.kubeconfig))
    return [word for name, value in settings if value is not None for word in (name, value)]
