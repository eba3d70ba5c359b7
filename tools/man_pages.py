"""Writes the man pages into a directory: gpudoctor(1), one for each command, gpudoctor-checks(7), gpudoctor.toml(5).

`python -m tools.man_pages DIR`. They say what --help, `gpudoctor explain` and the configuration's own types say; none is kept here.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpudoctor import __version__
from gpudoctor.chain import Link
from gpudoctor.cli_parser import COMMANDS
from gpudoctor.config import Config, Expect, Health, Slurm, Waiver
from gpudoctor.knowledge import TABLES_DATE
from gpudoctor.knowledge.thresholds import THRESHOLDS
from gpudoctor.registry import built_in
from tools.command_tree import PURPOSE, actions, command_parser
from tools.roff import bold, entry, example, heading, italic, page, paragraphs, prose, subheading

SOURCE = (f"gpudoctor {__version__}", TABLES_DATE)
STATUSES = {
    "0": "All well, or, for commands that judge nothing, done.",
    "1": "Something deserves attention. For `gpudoctor diff`: the two differ.",
    "2": "A link of the chain is broken.",
    "3": "It could not tell, was called wrongly, or failed itself.",
}
FILES = {
    "/etc/gpudoctor/config.toml, /etc/gpudoctor/conf.d/*.toml": "The configuration: gpudoctor.toml(5).",
    "/etc/gpudoctor/checks.d/*.py": "Checks of the site's own; they must belong to root and be writable by nobody else.",
    "/var/lib/gpudoctor": "What `gpudoctor health` remembers.",
}
VARIABLES = {
    "NO_COLOR, CLICOLOR, CLICOLOR_FORCE": "Whether the terminal report is coloured, unless --color says so.",
    "STATE_DIRECTORY": "Where `gpudoctor health` remembers; systemd sets it.",
    "GPUDOCTOR_DEBUG": "Shows where gpudoctor itself failed.",
}


def pages() -> dict[str, str]:
    """Each page by the name of its file."""
    made = {"gpudoctor.1": page("gpudoctor", 1, "find the broken link of a node's GPU chain", _overview(), SOURCE)}
    for name, (purpose, _) in COMMANDS.items():
        made[f"gpudoctor-{name}.1"] = page(f"gpudoctor-{name}", 1, purpose, _command(name), SOURCE)
    made["gpudoctor-checks.7"] = page(
        "gpudoctor-checks", 7, "what gpudoctor asks of each link, and why", _checks(), SOURCE
    )
    made["gpudoctor.toml.5"] = page("gpudoctor.toml", 5, "configuration of gpudoctor", _configuration(), SOURCE)
    return made


def _overview() -> Iterator[str]:
    yield heading("SYNOPSIS")
    yield f"{bold('gpudoctor')} [{italic('COMMAND')}] [{italic('OPTION')}...]"
    yield heading("DESCRIPTION")
    yield prose(PURPOSE)
    yield ".PP"
    yield prose(
        "It looks at one node, live or from a recording, from PCIe up to the containers, and changes nothing. Without a command it is "
        "`gpudoctor run`."
    )
    yield heading("COMMANDS")
    for name, (purpose, _) in COMMANDS.items():
        yield entry(f"{bold(f'gpudoctor-{name}')}(1)", _sentence(purpose))
    yield heading("EXIT STATUS")
    yield from (entry(bold(status), text) for status, text in STATUSES.items())
    yield heading("ENVIRONMENT")
    yield from (entry(bold(name), text) for name, text in VARIABLES.items())
    yield heading("FILES")
    yield from (entry(italic(name), text) for name, text in FILES.items())
    yield heading("SEE ALSO")
    yield f"{bold('gpudoctor-checks')}(7), {bold('gpudoctor.toml')}(5)"


def _command(name: str) -> Iterator[str]:
    parser = command_parser(name)
    taken = tuple(actions(parser))
    yield heading("SYNOPSIS")
    words = (_usage(action) for action in taken if not isinstance(action, argparse._HelpAction))
    yield " ".join((bold(f"gpudoctor {name}"), *words))
    yield heading("DESCRIPTION")
    yield prose(_sentence(COMMANDS[name][0]))
    for title, positional in (("ARGUMENTS", True), ("OPTIONS", False)):
        listed = [action for action in taken if positional == (not action.option_strings)]
        if listed:
            yield heading(title)
            yield from (_entry(parser, action) for action in listed)
    if parser.epilog:
        yield heading("NOTES")
        yield prose(parser.epilog)
    yield heading("SEE ALSO")
    yield f"{bold('gpudoctor')}(1), {bold('gpudoctor-checks')}(7), {bold('gpudoctor.toml')}(5)"


def _usage(action: argparse.Action) -> str:
    flag = bold(action.option_strings[-1]) if action.option_strings else ""
    text = " ".join(part for part in (flag, _value(action)) if part)
    needed = action.required or (not action.option_strings and action.nargs != "?")
    return text if needed else f"[{text}]"


def _value(action: argparse.Action) -> str:
    """What an option takes, "" for a switch."""
    if action.option_strings and action.nargs == 0:
        return ""
    name = action.metavar if isinstance(action.metavar, str) else None
    if name is None and action.choices is not None:
        return "|".join(bold(str(choice)) for choice in action.choices)
    word = italic(name or action.dest.upper())
    return f"[{word}]" if action.nargs == "?" else f"{word}..." if action.nargs in ("+", "*") else word


def _entry(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    names = ", ".join(bold(option) for option in action.option_strings)
    text = (action.help or "") % {"default": action.default, "prog": parser.prog}
    return entry(" ".join(part for part in (names, _value(action)) if part), _sentence(text) if text else "As it says.")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":")) else ".")


def _checks() -> Iterator[str]:
    registry = tuple(built_in())
    yield heading("DESCRIPTION")
    yield prose(f"The {len(registry)} checks in the order of the chain. `gpudoctor explain ID` prints the same text.")
    for link in Link:
        checks = [check for check in registry if check.link is link]
        if checks:
            yield heading(link.value.upper())
        for check in checks:
            yield subheading(check.id)
            yield f"{prose(check.title + '.')}{' (essential)' if check.essential else ''}"
            yield from paragraphs(check.doc)
    yield heading("SEE ALSO")
    yield f"{bold('gpudoctor')}(1), {bold('gpudoctor-explain')}(1)"


def _configuration() -> Iterator[str]:
    yield heading("SYNOPSIS")
    places = ("/etc/gpudoctor/config.toml", "/etc/gpudoctor/conf.d/*.toml", "~/.config/gpudoctor/config.toml")
    yield "\n.br\n".join(italic(path) for path in places)
    yield heading("DESCRIPTION")
    yield prose(
        "TOML files, read in this order, then that of --config; later ones win key by key, and lists add up. An unknown key is an error."
    )
    tables = ((Config, ""), (Expect, "expect."), (Slurm, "slurm."), (Health, "health."), (Waiver, "waive."))
    for kind, prefix in tables:
        yield heading(f"[{prefix.rstrip('.')}]" if prefix else "KEYS")
        yield from paragraphs(kind.__doc__ or "")
        for field in msgspec.structs.fields(kind):
            if not _is_table(field.type):
                yield entry(bold(prefix + field.encode_name), _field(field))
    yield heading("[thresholds]")
    for threshold in THRESHOLDS.values():
        yield entry(
            bold(threshold.name), f"{_sentence(threshold.unit)} By default {threshold.default:g} ({threshold.source})."
        )
    yield heading("EXAMPLE")
    yield example(
        'expect.gpus = 8\nexpect.driver = ["580"]\n\n[[waive]]\ncheck = "kernel-module.gpu-bound"\nreason = "passed through"'
    )
    yield heading("SEE ALSO")
    yield f"{bold('gpudoctor')}(1)"


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _field(field: Any) -> str:
    kind = _KINDS.get(str(field.type), "")
    if kind == "":
        kind = "list of tables" if "Waiver" in str(field.type) else str(field.type)
    if field.default is msgspec.NODEFAULT:
        return f"A {kind}; {'must be given' if field.default_factory is msgspec.NODEFAULT else 'empty by default'}."
    shown = {"True": "true", "False": "false", "None": "not set", "()": "empty"}.get(repr(field.default), field.default)
    return f"A {kind}; by default {shown}."


_KINDS = {
    "<class 'bool'>": "truth value",
    "<class 'int'>": "whole number",
    "<class 'float'>": "number",
    "<class 'str'>": "string",
    "int | None": "whole number",
    "float | None": "number",
    "str | None": "string",
    "datetime.date | None": "date",
    "tuple[str, ...]": "list of strings",
    "tuple[str, ...] | None": "list of strings",
    "dict[str, float]": "table of numbers",
}


def main() -> None:
    """Write them into the directory that is named."""
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (place / name).write_text(text, "utf-8")
    print(f"{len(pages())} man pages in {place}")


if __name__ == "__main__":
    main()
