"""modprobe.d and the kernel command line: options, blacklists and replacements of modules."""

from collections.abc import Iterator, Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile
from gpudoctor.verdicts import Evidence, Unread, Why

DIRECTORIES = (
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
)
"""In order of priority: a file hides one of the same name further down (modprobe.d(5))."""

CMDLINE = "/proc/cmdline"


class ModuleOption(Citable, frozen=True):
    """One `NAME=VALUE` that a file gives to a module."""

    name: str
    value: str


class ModprobeConfig(Fact, frozen=True):
    """The configuration of module loading. `blocked` names what keeps modprobe from loading a module, by module."""

    options: Mapping[str, tuple[ModuleOption, ...]]
    blocked: Mapping[str, Evidence]
    cmdline: tuple[str, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "ModprobeConfig | Unread":
        """Read every file that counts, in the order modprobe does."""
        options: dict[str, list[ModuleOption]] = {}
        blocked: dict[str, Evidence] = {}
        files = _files(desk.raw)
        if isinstance(files, Unread):
            return files
        for path in files:
            file = desk.raw.read(path)
            if isinstance(file, Unread):
                return file
            if isinstance(file, TextFile):
                _take(path, file.text, options, blocked)
        words = _cmdline(desk.raw, blocked)
        return cls(options={name: tuple(found) for name, found in options.items()}, blocked=blocked, cmdline=words)


def _files(raw: Raw) -> list[str] | Unread:
    """The files in force; a directory that could not be listed may hide others, one that nobody recorded is taken as empty."""
    chosen: dict[str, str] = {}
    for directory in DIRECTORIES:
        listing = raw.listing(directory)
        if isinstance(listing, Unread) and (listing.why is not Why.NOT_RECORDED or directory == DIRECTORIES[0]):
            return listing
        if isinstance(listing, Listing):
            for name in listing.names:
                if name.endswith(".conf"):
                    chosen.setdefault(name, f"{directory}/{name}")
    return [chosen[name] for name in sorted(chosen)]


def _take(path: str, text: str, options: dict[str, list[ModuleOption]], blocked: dict[str, Evidence]) -> None:
    for line in _lines(text):
        seen = Evidence(path, line)
        match line.split():
            case ["options", module, *settings]:
                for setting in settings:
                    name, _, value = setting.partition("=")
                    option = ModuleOption(name=name, value=value, read_from={"value": seen})
                    options.setdefault(_plain(module), []).append(option)
            case ["blacklist", module]:
                blocked.setdefault(_plain(module), seen)
            case ["install", module, "/bin/false" | "/bin/true" | "/usr/bin/false" | "/usr/bin/true", *_]:
                blocked[_plain(module)] = seen
            case _:
                pass


def _lines(text: str) -> Iterator[str]:
    """Comments go, a backslash at the end joins lines (modprobe.d(5))."""
    for line in text.replace("\\\n", " ").splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield stripped


def _cmdline(raw: Raw, blocked: dict[str, Evidence]) -> tuple[str, ...]:
    file = raw.read(CMDLINE)
    if isinstance(file, (Absent, Unread)):
        return ()
    words = tuple(file.text.split())
    for word in words:
        name, _, value = word.partition("=")
        if name in ("module_blacklist", "modprobe.blacklist"):
            for module in value.split(","):
                blocked[_plain(module)] = Evidence(CMDLINE, word)
    return words


def _plain(module: str) -> str:
    """Module names do not tell dash from underscore."""
    return module.replace("-", "_")
