"""What `gpudoctor install` shows: files, each behind a comment that says where it belongs, and how to install and undo by hand."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudoctor.installing.files import Installation

SCHEMA = "gpudoctor.install/1"


def render(made: "Installation", given: str = "") -> str:
    """All files; a comment of one line stands before each, whatever the file's own comments look like. `given` are further options."""
    parts = [f"# ==== {file.path} (mode {file.mode})\n{file.content}" for file in made.files]
    return "\n".join((*parts, "".join(f"# {line}".rstrip() + "\n" for line in _hints(made, given))))


def hints(made: "Installation", given: str = "") -> str:
    """How to install by hand, and how to undo it."""
    return "".join(f"{line}\n" for line in _hints(made, given))


def document(made: "Installation") -> dict[str, Any]:
    """For `--format json`."""
    import msgspec

    return {"schema": SCHEMA, **msgspec.to_builtins(made)}


def _hints(made: "Installation", given: str) -> Iterator[str]:
    yield "==== to install by hand, as root; gpudoctor has changed nothing"
    printing = f"gpudoctor install --print {made.kind}{given}"
    if all(file.path.startswith("/") for file in made.files):
        for file in made.files:
            yield f"  {printing} --file {file.name} | install -D -m {file.mode} /dev/stdin {file.path}"
    else:
        yield f"  {printing} -o DIR"
        yield "  cd DIR"
    yield from (f"  {command}" for command in made.install)
    yield "==== to undo it"
    yield from (f"  {command}" for command in made.undo)
    if made.notes:
        yield "==== to be known"
        yield from (f"  {note}" for note in made.notes)
