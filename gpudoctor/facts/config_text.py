"""Configuration files as data, or what is wrong with them: file, line and column, as the programs that read them would say it."""

import json
import sys
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from gpudoctor.facts.raw import TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why


class Malformed(Struct, frozen=True):
    """A file that its reader refuses as a whole. `line` and `column` count from 1; 0 where the parser tells none."""

    where: str
    line: int
    column: int
    said: str
    text: str = ""

    @property
    def place(self) -> str:
        """`FILE line 3 column 7`, as much of it as is known."""
        column = f" column {self.column}" if self.column else ""
        return f"{self.where} line {self.line}{column}" if self.line else self.where

    @property
    def evidence(self) -> Evidence:
        """The line itself and what the parser says of it."""
        quoted = f": {self.text.strip()[:100]!r}" if self.text.strip() else ""
        place = self.place.removeprefix(self.where).strip()
        return Evidence(self.where, f"{place}: {self.said}{quoted}" if place else f"{self.said}{quoted}")


Document = dict[str, Any]
"""What a configuration file holds: tables by key."""

_ESCAPED_BYTE = pattern(r"\\x[0-9a-f]{2}")
"""How a byte that is not UTF-8 appears in a file's text."""
_TOML_PLACE = pattern(r" ?\(at (?:line (\d+), column (\d+)|end of document)\)$")


def well_formed(text: str) -> str:
    """JSON and YAML can spell lone surrogates, which nothing can print."""
    return text.encode("utf-8", "backslashreplace").decode()


def parse_toml(file: TextFile) -> Document | Malformed | Unread:
    """A TOML 1.0 document (toml.io/en/v1.0.0), an empty one included."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if file.truncated:
        return _only_beginning(file)
    try:
        return tomllib.loads(file.text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        place = _TOML_PLACE.search(said)
        ended = place is not None and place[1] is None
        line = len(file.text.splitlines()) if ended else int(place[1]) if place is not None else 0
        return _malformed(
            file,
            line,
            0 if place is None or ended else int(place[2]),
            _TOML_PLACE.sub(" at the end" if ended else "", said),
        )
    except (ValueError, RecursionError) as error:
        return _malformed(file, 0, 0, str(error))


def parse_toml_of(file: TextFile, fault: Callable[[Document], str | None]) -> Document | Malformed | Unread:
    """A TOML document of one program; `fault` says what that program's decoder objects to, None where to nothing."""
    document = parse_toml(file)
    said = fault(document) if isinstance(document, dict) else None
    return document if said is None else Malformed(file.where, 0, 0, well_formed(said))


def parse_json(file: TextFile) -> Document | Malformed | Unread:
    """A JSON object as Go's encoding/json takes it: no NaN, no comments; an empty file and `null` count as an empty object."""
    if file.truncated:
        return _only_beginning(file)
    text = file.text.removeprefix("\ufeff")
    if not text.strip(" \t\r\n"):
        return {}
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        if _ESCAPED_BYTE.match(text, error.pos):
            return Unread(Why.UNREADABLE, file.where, "holds bytes that are not UTF-8, which its reader may accept")
        return _malformed(file, error.lineno, error.colno, error.msg)
    except (ValueError, RecursionError) as error:
        return _malformed(file, 0, 0, str(error))
    return _table(file, {} if found is None else found, "JSON", "an object")


def parse_yaml(file: TextFile) -> Document | Malformed | Unread:
    """A YAML mapping of plain values; tags that would build objects are refused. JSON is YAML."""
    if file.truncated:
        return _only_beginning(file)
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        found = yaml.load(file.text, Loader=loader)  # noqa: S506 - both of them are the safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        return _malformed(file, line, column, error.problem or error.context or "cannot be parsed")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return _malformed(file, 0, 0, " ".join(str(error).split()))
    return _table(file, {} if found is None else found, "YAML", "a mapping")


def _no_constant(name: str) -> None:
    """Go's decoder knows no NaN and no Infinity."""
    raise ValueError(f"{name} is not JSON")


def _table(file: TextFile, found: Any, language: str, wanted: str) -> Document | Malformed:
    if isinstance(found, dict):
        return found
    return _malformed(file, 1, 1, f"holds a {language} {type(found).__name__}, not {wanted}")


def _only_beginning(file: TextFile) -> Unread:
    return Unread(Why.NOT_RECORDED, file.where, "only its beginning was kept")


def _malformed(file: TextFile, line: int, column: int, said: str) -> Malformed:
    lines = file.text.splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    return Malformed(file.where, line, column, well_formed(said), well_formed(text))
