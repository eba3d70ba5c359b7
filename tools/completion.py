"""Writes what `gpudoctor completion` prints, by shtab from the commands' own parsers: gpudoctor/installing/completion."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from gpudoctor.chain import Link
from gpudoctor.installing.options import SHELLS
from tools.command_tree import actions, tree

PLACE = Path(__file__).resolve().parent.parent / "gpudoctor" / "installing" / "completion"
FILES = ("FILE", "SOURCE", "REPORT", "DIR", "A", "B", "PROGRAM", "[FORMAT=]FILE", "FILE.tar.zst|DIR")
"""Metavars that stand for a path."""
CHECKS = ("ID", "CHECK-ID|CODE")


def text(shell: str) -> str:
    """The completion of one shell."""
    import shtab

    root = tree()
    for parser in _parsers(root):
        for action in actions(parser):
            _complete(action)
    first, _, rest = shtab.complete(root, shell).partition("\n")
    return f"{first}\n# Made by `make completion` from the commands' own options.\n{rest}"


def _parsers(root: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in root._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def _complete(action: argparse.Action) -> None:
    import shtab

    words = action.metavar if isinstance(action.metavar, str) else ""
    if words in FILES:
        action.complete = shtab.DIRECTORY if words == "DIR" else shtab.FILE  # type: ignore[attr-defined]
    elif words in CHECKS:
        action.complete = shtab.cmd("gpudoctor checks 2>/dev/null | cut -d' ' -f1")  # type: ignore[attr-defined]
    elif "--link" in action.option_strings and action.choices is None:
        action.choices = [link.value for link in Link]


def main() -> None:
    """Write them."""
    for shell in SHELLS:
        (PLACE / f"gpudoctor.{shell}").write_text(text(shell), "utf-8")


if __name__ == "__main__":
    main()
