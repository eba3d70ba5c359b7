"""Apptainer and Singularity as `--nv` would work: which libraries it takes from the host, or which program it calls for that."""

import re

from msgspec import Struct

from gpudoctor.facts.config_text import Malformed
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.programs import Located, any_of, locate
from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread, Why

PROGRAMS = ("/usr/bin/apptainer", "/usr/local/bin/apptainer", "/usr/bin/singularity", "/usr/local/bin/singularity")
CONFIGS = (
    "/etc/apptainer/apptainer.conf",
    "/usr/local/etc/apptainer/apptainer.conf",
    "/etc/singularity/singularity.conf",
    "/usr/local/etc/singularity/singularity.conf",
)
"""Beside the program's prefix: `--sysconfdir` of the packages, and the default of a build from source (apptainer INSTALL.md)."""
CLI = "nvidia-container-cli"

_BY_CLI, _CLI_PATH = "use nvidia-container-cli", "nvidia-container-cli path"
_SWITCHES = (_BY_CLI, "always use nv", "allow setuid")


class NvSetup(Struct, frozen=True):
    """What `--nv` does. `refused` is a value that the program does not start with.

    `by_cli` is whether it calls nvidia-container-cli, which is then looked for; else `list_file` names what it takes from the host:
    `listed` are its lines, None where there is no such file.
    """

    config: str
    refused: Malformed | None
    by_cli: bool
    always: bool
    cli: Located | None
    list_file: str
    listed: tuple[str, ...] | Unread | None
    says: Evidence


class Apptainer(Fact, frozen=True):
    """`nv` is None where neither is installed."""

    name: str
    nv: NvSetup | Unread | None

    @property
    def subject(self) -> Subject:
        """The program; it has no daemon."""
        return Subject(SubjectKind.SERVICE, self.name)

    @classmethod
    def gather(cls, desk: Desk) -> "Apptainer | Unread":
        """Only where one of them is installed is its configuration looked for."""
        program = any_of(desk.raw, PROGRAMS)
        if isinstance(program.path, Unread):
            return program.path
        name = "apptainer" if program.path is None else program.path.rpartition("/")[2]
        nv = None if program.path is None else _nv(desk.raw)
        return cls(name=name, nv=nv, read_from={"installed": program.evidence[0]})


def _nv(raw: Raw) -> NvSetup | Unread:
    for path in CONFIGS:
        file = raw.read(path)
        if isinstance(file, TextFile):
            return _judged(raw, file)
        if isinstance(file, Unread):
            return file
    return Unread(Why.NOT_ANSWERED, CONFIGS[0], "its configuration lies at none of the usual places")


def _judged(raw: Raw, file: TextFile) -> NvSetup | Unread:
    if file.truncated:
        return Unread(Why.NOT_RECORDED, file.where, "only its beginning was kept")
    told = _directives(file.text)
    by_cli = told.get(_BY_CLI, (0, "no"))[1] == "yes"
    folder = file.path.rpartition("/")[0]
    cli = locate(raw, told.get(_CLI_PATH, (0, ""))[1] or CLI) if by_cli else None
    line = f"{_BY_CLI} = {told[_BY_CLI][1]}" if _BY_CLI in told else f"does not set {_BY_CLI!r}, which is no then"
    return NvSetup(
        config=file.where,
        refused=_refused(file, told),
        by_cli=by_cli,
        always=told.get("always use nv", (0, "no"))[1] == "yes",
        cli=cli,
        list_file=f"{folder}/nvliblist.conf",
        listed=() if by_cli else _listed(raw, folder),
        says=Evidence(file.where, line),
    )


def _directives(text: str) -> dict[str, tuple[int, str]]:
    """Each directive with its line and its first value (apptainer pkg/util/apptainerconf/parser.go, GetDirectives, GetConfig)."""
    found: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = re.match(r"\s*([a-zA-Z _-]+)[ \t]*=[ \t]*(.*)$", line)
        if match is not None and match[2].strip():
            found.setdefault(match[1].strip(), (number, match[2].strip().split(",")[0]))
    return found


def _refused(file: TextFile, told: dict[str, tuple[int, str]]) -> Malformed | None:
    for name in _SWITCHES:
        number, value = told.get(name, (0, "no"))
        if value not in ("yes", "no"):
            line = file.text.splitlines()[number - 1]
            said = f"{name!r} must be yes or no, not {value!r}"
            return Malformed(file.where, number, line.find(value, line.find("=")) + 1, said, line)
    return None


def _listed(raw: Raw, folder: str) -> tuple[str, ...] | Unread | None:
    """The lines of nvliblist.conf without comments (apptainer internal/pkg/util/gpu/paths.go, gpuliblist)."""
    file = raw.read(f"{folder}/nvliblist.conf")
    if isinstance(file, Absent):
        beside = raw.listing(folder)
        known = isinstance(beside, Listing) and beside.complete
        return None if known else Unread(Why.NOT_RECORDED, f"{folder}/nvliblist.conf", "was not recorded")
    if isinstance(file, Unread):
        return file
    lines = (line.strip() for line in file.text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))
