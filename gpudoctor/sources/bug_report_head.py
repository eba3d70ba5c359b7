"""The head of a report: when and where it was made, with which options, and since 570 a table of versions."""

from msgspec import Struct

_COLUMN = 35
"""The width of a component's name in the table (print_versions_table in nvidia-bug-report.sh)."""


class Head(Struct, frozen=True):
    """Empty where the head does not say it; `gpus` is what nvidia-smi printed for the table."""

    hostname: str = ""
    kernel: str = ""
    safe_mode: bool = False
    distribution: str = ""
    gpus: str = ""


def head_of(text: str) -> Head:
    """What the first section says."""
    lines = text.split("\n")
    uname = _rest(lines, "uname: Linux ").split()
    table = _table(lines)
    return Head(
        hostname=uname[0] if len(uname) > 1 else "",
        kernel=uname[1] if len(uname) > 1 else "",
        safe_mode="--safe-mode" in _rest(lines, "command line flags:").split(),
        distribution=_rest(table.get("OS Details", []), "Distribution : ").strip(),
        gpus="\n".join(table.get("NVIDIA GPU Details", ())).strip(),
    )


def _table(lines: list[str]) -> dict[str, list[str]]:
    """Rows of component, " | ", details; further lines of the details have no component."""
    table: dict[str, list[str]] = {}
    component = ""
    for line in lines:
        if line[_COLUMN : _COLUMN + 2] == " |":
            component = line[:_COLUMN].strip() or component
            table.setdefault(component, []).append(line[_COLUMN + 3 :])
    return table


def _rest(lines: list[str], words: str) -> str:
    """The rest of the first line that begins with some words, empty without one."""
    return next((line.removeprefix(words) for line in lines if line.startswith(words)), "")
