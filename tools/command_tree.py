"""All of gpudoctor's commands as one tree of argparse's, from which completion and man pages are made."""

import argparse
from collections.abc import Iterator

from gpudoctor.cli_options import EXIT_CODES
from gpudoctor.cli_parser import COMMANDS

PURPOSE = "Which link of this node's GPU chain is broken, how do we know, and what is the next safe step?"


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command, as `gpudoctor NAME` builds it."""
    parser = argparse.ArgumentParser(
        prog=f"gpudoctor {name}", description=COMMANDS[name][0], epilog=EXIT_CODES if name in ("run", "trace") else None
    )
    COMMANDS[name][1](parser)
    return parser


def tree() -> argparse.ArgumentParser:
    """`gpudoctor` with each command below it."""
    top = argparse.ArgumentParser(prog="gpudoctor", description=PURPOSE)
    top.add_argument("--version", action="version", version="", help="show the version, and end")
    below = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (purpose, _) in COMMANDS.items():
        parent = command_parser(name)
        child = below.add_parser(name, help=purpose, description=purpose, add_help=False, parents=[parent])
        child.epilog = parent.epilog
    return top


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """What a command takes, in the order of its help."""
    yield from (action for action in parser._actions if action.help != argparse.SUPPRESS)
