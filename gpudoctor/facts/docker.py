"""Docker's daemon.json: does it parse, and which runtimes does it name."""

from collections.abc import Mapping
from typing import Any

from gpudoctor.facts.config_text import Document, Malformed, parse_json, well_formed
from gpudoctor.facts.desk import Citable, Desk, Fact, Reading
from gpudoctor.facts.raw import Absent, Entry, EntryType, Raw, TextFile
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread

DAEMON_JSON = "/etc/docker/daemon.json"

DAEMON_BINARIES = ("/usr/bin/dockerd", "/usr/local/bin/dockerd", "/usr/sbin/dockerd")
TOOLKIT_RUNTIME = "nvidia-container-runtime"

DAEMON_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Where dockerd finds a runtime given by bare name: systemd's default PATH for services
(systemd.exec(5), "Environment Variables Set or Propagated by the Service Manager")."""


class DockerRuntime(Citable, frozen=True):
    """One entry of `runtimes`: the program it names and whether that is an executable file.

    `refused` is why dockerd would not start with this entry; then nothing else is known of it. `searched` is what was seen of the program.
    """

    name: str
    program: str | None
    executable: Reading[bool]
    refused: str | None = None
    searched: Cited = ()


class DockerConfig(Fact, frozen=True):
    """daemon.json as dockerd would read it.

    `installed` is whether a dockerd was found; `syntax_error` is set when the file is no JSON object, then nothing else is known of it.
    `searched` is what was seen of the toolkit's runtime.
    """

    installed: Reading[bool]
    present: bool
    syntax_error: Reading[str | None]
    runtimes: Mapping[str, DockerRuntime]
    default_runtime: str | None
    toolkit_runtime: Reading[str | None]
    searched: Cited = ()

    @property
    def subject(self) -> Subject:
        """The Docker service: what stands on this file."""
        return Subject(SubjectKind.SERVICE, "docker")

    @classmethod
    def gather(cls, desk: Desk) -> "DockerConfig | Unread":
        """Read the default location. An empty file counts as an empty object, as dockerd takes it."""
        raw = desk.raw
        file = raw.read(DAEMON_JSON)
        if isinstance(file, Unread):
            return file
        installed, installed_evidence = _installed(raw)
        toolkit, searched = _find_program(raw, TOOLKIT_RUNTIME)
        evidence = {"installed": installed_evidence}
        if isinstance(file, Absent):
            evidence["file"] = file.evidence
            return cls(
                installed=installed,
                present=False,
                syntax_error=None,
                runtimes={},
                default_runtime=None,
                toolkit_runtime=toolkit,
                searched=searched,
                read_from=evidence,
            )
        settings, error = _parse(file)
        said = error if isinstance(error, str) else _abridged(file.text)
        evidence["file"] = Evidence(DAEMON_JSON, well_formed(said))
        default = settings.get("default-runtime")
        return cls(
            installed=installed,
            present=True,
            syntax_error=error,
            runtimes={} if error is not None else _runtimes(raw, settings.get("runtimes")),
            default_runtime=well_formed(default) if isinstance(default, str) else None,
            toolkit_runtime=toolkit,
            searched=searched,
            read_from=evidence,
        )


def _parse(file: TextFile) -> tuple[Document, Reading[str | None]]:
    """The settings, and what dockerd objects to."""
    found = parse_json(file)
    if isinstance(found, Unread):
        return {}, found
    if isinstance(found, Malformed):
        return {}, found.evidence.shows
    return found, _wrong_type(found)


def _wrong_type(settings: Document) -> str | None:
    """What Go's decoder refuses in the settings that are read here."""
    default, runtimes = settings.get("default-runtime"), settings.get("runtimes")
    if default is not None and not isinstance(default, str):
        return f"default-runtime is {default!r}, not a string"
    if runtimes is not None and not isinstance(runtimes, dict):
        return f"runtimes is a JSON {type(runtimes).__name__}, not an object"
    if "runc" in (runtimes or {}):
        return "runtimes defines runc, a name that dockerd keeps for itself"
    for name, entry in (runtimes or {}).items():
        if entry is not None and not isinstance(entry, dict):
            return f"runtimes.{well_formed(name)} is {entry!r}, not an object"
        for key, kind in (("path", str), ("runtimeType", str), ("options", dict), ("runtimeArgs", list)):
            value = (entry or {}).get(key)
            if value is not None and not isinstance(value, kind):
                return f"runtimes.{well_formed(name)}.{key} is {value!r}, not a {kind.__name__}"
    return None


def _abridged(text: str) -> str:
    return " ".join(text.split())[:300] or "is empty"


def _runtimes(raw: Raw, table: dict[str, Any] | None) -> dict[str, DockerRuntime]:
    entries = ((well_formed(name), entry or {}) for name, entry in (table or {}).items())
    return {name: _runtime(raw, name, entry) for name, entry in entries}


def _runtime(raw: Raw, name: str, entry: dict[str, Any]) -> DockerRuntime:
    """A runtime is a program at `path`, or since Docker 23 a shim by `runtimeType` whose options may name the program.

    What dockerd refuses: moby, daemon/runtime_unix.go, setupRuntimes.
    """
    path, shim, options = entry.get("path"), entry.get("runtimeType"), entry.get("options") or {}
    refused = None
    if not path and not shim:
        refused = "names neither a path nor a runtimeType"
    elif path and shim:
        refused = "names both a path and a runtimeType"
    elif path and options:
        refused = "gives options to a path"
    binary = options.get("BinaryName")
    program = well_formed(path or (binary if isinstance(binary, str) else "")) or None
    says = Evidence(DAEMON_JSON, f"runtimes.{name} names {program or shim or 'no program'}")
    if refused is not None or program is None:
        return DockerRuntime(name=name, program=None, executable=False, refused=refused, read_from={"program": says})
    found, searched = _find_program(raw, program)
    return DockerRuntime(
        name=name,
        program=program,
        executable=found if isinstance(found, Unread) else found is not None,
        searched=searched,
        read_from={"program": says},
    )


def _installed(raw: Raw) -> tuple[Reading[bool], Evidence]:
    unread: Unread | None = None
    for path in DAEMON_BINARIES:
        entry = raw.entry(path, follow=True)
        if isinstance(entry, Entry):
            return True, Evidence(path, "exists")
        if isinstance(entry, Unread):
            unread = entry
    if unread is not None:
        return unread, Evidence(unread.where, unread.detail)
    return False, Evidence(DAEMON_BINARIES[0], "does not exist, nor does a dockerd elsewhere")


def _find_program(raw: Raw, program: str) -> tuple[Reading[str | None], Cited]:
    """Where a program is, searched as dockerd would; an entry that is no executable file does not count."""
    candidates = [program] if "/" in program else [f"{folder}/{program}" for folder in DAEMON_PATH]
    unread: Unread | None = None
    for path in candidates:
        entry = raw.entry(path, follow=True)
        if isinstance(entry, Unread):
            unread = entry
        elif isinstance(entry, Entry) and entry.type is EntryType.FILE and (entry.mode is None or entry.mode & 0o111):
            return path, (Evidence(path, "exists, executable" if entry.mode is not None else "exists"),)
    if unread is not None:
        return unread, (Evidence(unread.where, unread.detail),)
    return None, tuple(Evidence(path, "no executable file there") for path in candidates)
