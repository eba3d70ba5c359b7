"""Write down what must be known of the checks that a run loads only where they apply: gpudoctor/knowledge/deferred_checks.py."""

import subprocess
import sys
from pathlib import Path

from gpudoctor.facts.absence import ABSENT
from gpudoctor.registry import Check, built_in

PLACE = Path(__file__).resolve().parent.parent / "gpudoctor" / "knowledge" / "deferred_checks.py"

HEAD = '''"""The checks that a run loads only where they apply, by module: id, title, all links that they need, and what explains them.

Written by `make catalogue`; docs/designs/009.
"""

ROWS: dict[str, tuple[tuple[str, str, str, str], ...]] = {
'''


def text() -> str:
    """The module as it should be."""
    by_module: dict[str, list[Check]] = {module: [] for module in ABSENT}
    for check in built_in():
        module = check.function.__module__.rpartition(".")[2]
        if module in by_module:
            by_module[module].append(check)
    rows = "".join(f"{module!r}: ({''.join(map(_row, checks))}),\n" for module, checks in by_module.items())
    return f"{HEAD}{rows}}}\n"


def _row(check: Check) -> str:
    needs = " ".join(sorted(link.value for link in check.needs))
    return f"({check.id!r}, {check.title!r}, {needs!r}, {' '.join(check.explained_by)!r}),"


def main() -> None:
    """Write it, in the form of the repository."""
    PLACE.write_text(text(), "utf-8")
    subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-m", "ruff", "format", "--quiet", str(PLACE)], check=True
    )


if __name__ == "__main__":
    main()
