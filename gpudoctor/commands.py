"""The commands of the command line, each a function from parsed options to an exit code."""

import argparse
import datetime
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.cli_options import DIFF_FORMATS
from gpudoctor.config import Config, ConfigError, from_json, nearest
from gpudoctor.exits import ExitCode
from gpudoctor.facts.raw import Raw
from gpudoctor.outputs import must_have_stdout, output, say, write
from gpudoctor.sources.errors import SourceError

if TYPE_CHECKING:
    from gpudoctor.diff import Diff
    from gpudoctor.explaining import Explanation
    from gpudoctor.registry import Check, Registry
    from gpudoctor.report import Report
    from gpudoctor.run import Selection


def run_command(options: argparse.Namespace) -> int:
    """`gpudoctor run`."""
    from gpudoctor.registry import built_in
    from gpudoctor.run import Selection

    registry = built_in(deferred=True)
    outputs = [output(word) for word in options.output]
    source = _source(options, registry.ids)
    selection = Selection(tuple(options.link), tuple(options.check), tuple(options.skip))
    durations: dict[str, float] = {}
    report = _run(options, source, registry, selection, durations, {options.format, *(form for form, _ in outputs)})
    if options.verbose > 1:
        for name, seconds in sorted(durations.items(), key=lambda item: -item[1]):
            print(f"gpudoctor: {name} read in {seconds * 1000:.1f} ms", file=sys.stderr)
    for form, path in outputs:
        write(path, _render(report, form, options, file=True))
    if options.format != "stream":
        say(_render(report, options.format, options, file=False))
    if options.format == "npd":
        from gpudoctor.reports.npd import exit_code

        return exit_code(report)
    return report.exit_code


def _run(
    options: argparse.Namespace,
    source: tuple[Raw, Config, datetime.datetime],
    registry: "Registry",
    selection: "Selection",
    durations: dict[str, float],
    forms: set[str],
) -> "Report":
    """With details where they were asked for, or where a form shows them."""
    raw, config, now = source
    if "stream" in forms:
        from gpudoctor.stream_run import stream

        must_have_stdout()
        place = options.node or ("this node" if options.root == "/" else options.root)
        source_of = (raw, config, registry, selection, now)
        return stream(sys.stdout, place, *source_of, durations, active=options.active)
    if options.details or "html" in forms:
        from gpudoctor.details_run import run_in_full

        return run_in_full(raw, config, registry, selection, now, durations, active=options.active)
    from gpudoctor.run import run

    return run(raw, config, registry, selection, now, durations, active=options.active)


def render_command(options: argparse.Namespace) -> int:
    """`gpudoctor render`: the exit code says that it was done, not what the report says."""
    from gpudoctor.reports.saved import read_report

    report = read_report(options.report)
    say(_render(report, options.format, options, file=False))
    return ExitCode.OK


def tui_command(options: argparse.Namespace) -> int:
    """`gpudoctor tui`: the exit code says nothing of the node."""
    from gpudoctor.reports.tui.start import tui

    return tui(options)


def record_command(options: argparse.Namespace) -> int:
    """`gpudoctor record`."""
    from gpudoctor.details_run import run_in_full
    from gpudoctor.facts.cuda_toolkits import CudaToolkits
    from gpudoctor.facts.desk import Desk
    from gpudoctor.probes.deadline import Deadline
    from gpudoctor.registry import built_in
    from gpudoctor.run import Selection
    from gpudoctor.sources.config_files import load_config
    from gpudoctor.sources.live import Live
    from gpudoctor.sources.recorder import Recorder
    from gpudoctor.sources.writing import refuse_what_exists, write_private, write_snapshot

    place, map_place = Path(options.output), Path(options.map) if options.map else None
    refuse_what_exists(place)
    if map_place is not None and map_place.exists():
        raise SourceError(f"{map_place}: exists already; --map writes a new file only")
    registry = built_in(deferred=True)
    config = load_config(options.root, registry.ids, options.config)
    recorder = Recorder(Live(Deadline(options.deadline), options.root, options.kubeconfig))
    # With details, for `gpudoctor topo`, `trace` and a page read the same of a recording; no check asks for toolkits, as `compat` does.
    report = run_in_full(recorder, config, registry, Selection(), recorder.recorded_at, active=options.active)
    Desk(recorder, config).get(CudaToolkits)
    members = recorder.members(config)
    if not options.raw:
        from gpudoctor.sources.redaction import redact, site_salt

        redacted = redact(members, site_salt(options.root))
        members = redacted.members
        if map_place is not None:
            write_private(map_place, redacted.replaced)
    write_snapshot(place, members)
    kept = "as it is" if options.raw else "names, serials, public addresses and secrets replaced"
    print(f"gpudoctor: wrote {place} ({kept}; verdict: {report.verdict.value})", file=sys.stderr)
    return ExitCode.OK


def checks_command(options: argparse.Namespace) -> int:
    """`gpudoctor checks`."""
    from gpudoctor.registry import built_in
    from gpudoctor.run import Selection

    registry = built_in()
    wanted = Selection(links=tuple(options.link)).wanted(registry)
    chosen = [check for check in registry if check.id in wanted]
    if options.format == "json":
        _print_json([_catalogue_entry(check) for check in chosen])
        return ExitCode.OK
    width = max((len(check.id) for check in chosen), default=0)
    for check in chosen:
        marks = [word for word, marked in (("essential", check.essential), ("isolates", check.isolates)) if marked]
        sys.stdout.write(f"{check.id:{width}}  {check.title}{'  (' + ', '.join(marks) + ')' if marks else ''}\n")
    return ExitCode.OK


def explain_command(options: argparse.Namespace) -> int:
    """`gpudoctor explain`: nothing is explained where one of several things is not known."""
    import msgspec

    from gpudoctor.explaining import WIDTH, Explanation

    told = [_explained(word) for word in options.ids]
    if options.format == "json":
        entries = [msgspec.to_builtins(one) if isinstance(one, Explanation) else _catalogue_entry(one) for one in told]
        _print_json(entries if len(entries) > 1 else entries[0])
    else:
        texts = [one.text if isinstance(one, Explanation) else _check_text(one) for one in told]
        sys.stdout.write(f"\n{'-' * WIDTH}\n\n".join(texts))
    return ExitCode.OK


def trace_command(options: argparse.Namespace) -> int:
    """`gpudoctor trace`."""
    from gpudoctor.registry import built_in
    from gpudoctor.trace_run import trace

    registry = built_in(deferred=True)
    raw, config, now = _source(options, registry.ids)
    traced = trace(raw, config, registry, options.target, now)
    if options.format == "json":
        from gpudoctor.reports import json

        say(json.render(traced))
    else:
        from gpudoctor.reports.look import Look
        from gpudoctor.reports.trace_terminal import render

        say(render(traced, Look.chosen(options, sys.stdout, file=False)))
    return traced.exit_code


def compat_command(options: argparse.Namespace) -> int:
    """`gpudoctor compat`: the exit code says that it was done, not what runs."""
    from gpudoctor.compat_run import Asked, compat

    raw, config, now = _source(options, ())
    words = (tuple(options.cuda), tuple(options.gpu), tuple(options.image), tuple(options.framework))
    result = compat(raw, config, Asked(options.driver, *words), now)
    if options.format == "json":
        from gpudoctor.reports import json

        say(json.render(result))
    else:
        from gpudoctor.reports.compat_terminal import render
        from gpudoctor.reports.look import Look

        say(render(result, Look.chosen(options, sys.stdout, file=False)))
    return ExitCode.OK


def topo_command(options: argparse.Namespace) -> int:
    """`gpudoctor topo`: the exit code says that it was done, not what is wrong."""
    from gpudoctor.topo_run import topo

    raw, config, now = _source(options, ())
    result = topo(raw, config, now, judge=options.format != "nccl")
    if options.format == "terminal":
        from gpudoctor.reports.look import Look
        from gpudoctor.reports.topo_terminal import render

        say(render(result, Look.chosen(options, sys.stdout, file=False)))
        return ExitCode.OK
    name = {"svg": "topo_svg", "nccl": "topo_nccl"}.get(options.format, "json")
    say(importlib.import_module(f"gpudoctor.reports.{name}").render(result))
    return ExitCode.OK


def diff_command(options: argparse.Namespace) -> int:
    """`gpudoctor diff`."""
    from gpudoctor.diff import Way
    from gpudoctor.diff_opening import opened
    from gpudoctor.diff_run import diff
    from gpudoctor.registry import built_in

    registry = built_in(deferred=True)
    outputs = [output(word) for word in options.output]
    if wrong := next((form for form, _ in outputs if form not in DIFF_FORMATS), None):
        raise ConfigError(f"-o {wrong}: diff writes {', '.join(DIFF_FORMATS)}")
    a, b = (
        opened(letter, given, registry, options.config, options.deadline)
        for letter, given in (("A", options.a), ("B", options.b))
    )
    result = diff(a, b, Way(options.way) if options.way else None)
    for form, path in outputs:
        write(path, _render_diff(result, form, options, file=True))
    say(_render_diff(result, options.format, options, file=False))
    return result.exit_code


def _render_diff(result: "Diff", form: str, options: argparse.Namespace, *, file: bool) -> str:
    if form == "terminal":
        from gpudoctor.reports import diff_terminal, look

        return diff_terminal.render(result, look.Look.chosen(options, sys.stdout, file=file))
    if form == "html":
        from gpudoctor.reports.html.diff_page import page

        return page(result)
    from gpudoctor.reports import json

    return json.render(result)


def health_command(options: argparse.Namespace) -> int:
    """`gpudoctor health`."""
    from gpudoctor.health_run import health

    return health(options, _source)


def history_command(options: argparse.Namespace) -> int:
    """`gpudoctor history`: the exit code says that it was done, not what was wrong."""
    from gpudoctor.history_run import history

    say(history(options))
    return ExitCode.OK


def schema_command(options: argparse.Namespace) -> int:
    """`gpudoctor schema`."""
    places = {"report": "details", "stream": "stream_run", "health": "health.answer", "history": "health.history"}
    module = places.get(options.of, options.of)
    described = importlib.import_module(f"gpudoctor.{module}")
    _print_json(described.json_schema())
    return ExitCode.OK


def install_command(options: argparse.Namespace) -> int:
    """`gpudoctor install`."""
    from gpudoctor import install_run

    return install_run.install_command(options)


def completion_command(options: argparse.Namespace) -> int:
    """`gpudoctor completion`."""
    from gpudoctor import install_run

    return install_run.completion_command(options)


def _explained(word: str) -> "Explanation | Check":
    """What a word names: a code or a check; a usage error with what there is instead of it."""
    from gpudoctor.explaining import explain_code

    code = explain_code(word)
    if isinstance(code, str):
        raise ConfigError(code)
    if code is not None:
        return code
    from gpudoctor.registry import built_in

    registry = built_in()
    check = registry.get(word)
    if check is None:
        raise ConfigError(f"there is nothing to explain under {word!r}{nearest(word, registry.ids)}")
    return check


def _check_text(check: "Check") -> str:
    needs = ", ".join(sorted(link.value for link in check.needs)) or "nothing"
    over = check.over.__name__ if check.over else "the node"
    head = f"{check.id}\n{check.title}\n\nlink: {check.link.value}   asked over: {over}   presupposes: {needs}"
    return f"{head}\n\n{check.doc}\n"


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run_command,
    "tui": tui_command,
    "record": record_command,
    "render": render_command,
    "checks": checks_command,
    "explain": explain_command,
    "trace": trace_command,
    "compat": compat_command,
    "topo": topo_command,
    "diff": diff_command,
    "health": health_command,
    "history": history_command,
    "install": install_command,
    "completion": completion_command,
    "schema": schema_command,
}


def _source(options: argparse.Namespace, check_ids: tuple[str, ...]) -> tuple[Raw, Config, datetime.datetime]:
    """The source, the configuration in force for it, and its *now*. Without ids the configuration may name any check."""
    now = datetime.datetime.now(datetime.timezone.utc)
    if options.node is None:
        from gpudoctor.probes.deadline import Deadline
        from gpudoctor.sources.config_files import load_config
        from gpudoctor.sources.live import Live

        return (
            Live(Deadline(options.deadline), options.root, getattr(options, "kubeconfig", None)),
            load_config(options.root, check_ids, options.config),
            now,
        )
    if getattr(options, "kubeconfig", None) is not None:
        raise ConfigError(
            "--kubeconfig is for this node: what the API server said of a recorded one is in its recording"
        )
    from gpudoctor.sources.opening import open_source
    from gpudoctor.sources.snapshot import Snapshot

    node = open_source(options.node)
    for note in node.notes:
        print(f"gpudoctor: {options.node}: {note}", file=sys.stderr)
    config = Config()
    if isinstance(node, Snapshot) and node.manifest is not None:
        now = node.manifest.recorded_at
        config = from_json(node.manifest.config, f"{options.node}/snapshot.json", ())
    if options.config is not None:
        from gpudoctor.sources.config_files import read_config

        config = read_config(options.config, check_ids)
    return node, config, now


def _render(report: "Report", form: str, options: argparse.Namespace, *, file: bool) -> str:
    if form != "terminal":
        module = importlib.import_module(f"gpudoctor.reports.{form.replace('-', '_')}")
        text: str = module.render(report)
        return text
    from gpudoctor.reports import look, terminal

    return terminal.render(report, look.Look.chosen(options, sys.stdout, file=file))


def _print_json(value: object) -> None:
    import json

    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def _catalogue_entry(check: "Check") -> dict[str, object]:
    return {
        "id": check.id,
        "link": check.link.value,
        "title": check.title,
        "essential": check.essential,
        "isolates": check.isolates,
        "over": check.over.__name__ if check.over else None,
        "needs": sorted(link.value for link in check.needs),
        "explained_by": list(check.explained_by),
        "facts": [need.fact.__name__ for need in check.parameters],
        "explanation": check.doc,
    }
