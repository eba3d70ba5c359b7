"""How systemd would call dockerd: docker.service with its drop-ins and the environment files that they name.

Where units and drop-ins lie and how they add up: systemd.unit(5). ExecStart=, its prefixes, an empty one that takes back those before it,
and variables: systemd.service(5), "Command lines"; EnvironmentFile=: systemd.exec(5). Asked only where no dockerd runs, which tells itself.
"""

import re
import shlex
from collections.abc import Iterator

from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread

UNIT = "docker.service"
FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
ENVIRONMENT_FILES = ("/etc/default/docker", "/etc/sysconfig/docker")
"""Where Debian and Red Hat keep options for services; used only if the unit names them."""

_SETTING = pattern(r"^[ \t]*(ExecStart|EnvironmentFile|Environment)[ \t]*=(.*)$", re.MULTILINE)
_VARIABLE = pattern(r"\$(?:\{(\w+)\}|(\w+))")
_PREFIXES = "-@:+!"


def command_line(raw: Raw) -> tuple[tuple[str, ...], Evidence | None] | Unread:
    """The words behind the program's name and where they stand; no words where there is no unit, the reason where that is not known."""
    unit: TextFile | None = None
    for folder in FOLDERS:
        file = raw.read(f"{folder}/{UNIT}")
        if isinstance(file, Unread):
            return file
        if isinstance(file, TextFile):
            unit = file
            break
    if unit is None:
        return (), None
    settings = [(unit.where, *found) for found in _settings(unit.text)]
    for file in _drop_ins(raw):
        if isinstance(file, Unread):
            return file
        settings += [(file.where, *found) for found in _settings(file.text)]
    return _put_together(raw, settings)


def _settings(text: str) -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n", " ", text)
    return [(found[1], found[2].strip()) for found in _SETTING.finditer(joined)]


def _drop_ins(raw: Raw) -> Iterator[TextFile | Unread]:
    """By name, whatever their folder; of two with the same name the first folder's counts."""
    found: dict[str, str] = {}
    for folder in FOLDERS:
        listing = raw.listing(f"{folder}/{UNIT}.d")
        if isinstance(listing, Unread):
            yield listing
        elif isinstance(listing, Listing):
            for name in listing.names:
                if name.endswith(".conf"):
                    found.setdefault(name, f"{listing.path}/{name}")
    for _, path in sorted(found.items()):
        file = raw.read(path)
        if not isinstance(file, Absent):
            yield file


def _put_together(raw: Raw, settings: list[tuple[str, str, str]]) -> tuple[tuple[str, ...], Evidence | None] | Unread:
    command, evidence = "", None
    variables: dict[str, str] = {}
    for where, name, value in settings:
        if name == "ExecStart":
            command, evidence = value, Evidence(where, f"ExecStart={value}"[:300])
        elif name == "Environment":
            variables |= _assignments(value)
        elif value.lstrip("-") in ENVIRONMENT_FILES:
            file = raw.read(value.lstrip("-"))
            if isinstance(file, Unread):
                return file
            for line in file.text.splitlines() if isinstance(file, TextFile) else ():
                variables |= {} if line.lstrip().startswith(("#", ";")) else _assignments(line)
    expanded = _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), command.lstrip(_PREFIXES))
    return _split(expanded)[1:], evidence


def _assignments(text: str) -> dict[str, str]:
    return {name: value for name, equals, value in (word.partition("=") for word in _split(text)) if equals}


def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())
