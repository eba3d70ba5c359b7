"""modprobe.d and the kernel command line: options, blacklists and replacements of modules."""

from collections.abc import Iterator, Mapping

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile
from gpudoctor.patterns import pattern
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
    """The configuration of module loading. `blocked` names what keeps modprobe from loading a module, by module.

    `stands_for` names the module that an alias or an install command loads in place of another. `cmdline` are the words of the kernel's
    command line. Module names have underscores.
    """

    options: Mapping[str, tuple[ModuleOption, ...]]
    blocked: Mapping[str, Evidence]
    cmdline: tuple[str, ...]
    stands_for: Mapping[str, str] = {}

    def names_of(self, module: str) -> tuple[str, ...]:
        """Under which names options for a module are given: its own, and that of the file that is loaded for it.

        Debian's file is nvidia-current.ko, or that of another branch, loaded by `install nvidia modprobe -i nvidia-current $CMDLINE_OPTS`;
        where that line is not to be seen, options for nvidia-current count. Once loaded, the module's name is nvidia.
        """
        other = self.stands_for.get(module, f"{module}_current")
        return (other, module) if other != module else (module,)

    def options_of(self, module: str) -> tuple[ModuleOption, ...]:
        """The options given to a module under any of its names: of equal ones the last counts, as $CMDLINE_OPTS comes last."""
        return tuple(option for name in self.names_of(module) for option in self.options.get(name, ()))

    @classmethod
    def gather(cls, desk: Desk) -> "ModprobeConfig | Unread":
        """Read every file that counts, in the order modprobe does."""
        options: dict[str, list[ModuleOption]] = {}
        blocked: dict[str, Evidence] = {}
        stands_for: dict[str, str] = {}
        files = _files(desk.raw)
        if isinstance(files, Unread):
            return files
        for path in files:
            file = desk.raw.read(path)
            if isinstance(file, Unread):
                return file
            if isinstance(file, TextFile):
                _take(path, file.text, options, blocked, stands_for)
        words = _cmdline(desk.raw, blocked)
        found = {name: tuple(given) for name, given in options.items()}
        return cls(options=found, blocked=blocked, cmdline=words, stands_for=stands_for)


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


def _take(
    path: str,
    text: str,
    options: dict[str, list[ModuleOption]],
    blocked: dict[str, Evidence],
    stands_for: dict[str, str],
) -> None:
    for line in _lines(text):
        seen = Evidence(path, line)
        match line.split():
            case ["options", module, *_]:
                given = [
                    ModuleOption(name=name, value=value, read_from={"value": seen})
                    for name, value in parameters(line.split(None, 2)[2:])
                ]
                options.setdefault(_plain(module), []).extend(given)
            case ["blacklist", module]:
                blocked.setdefault(_plain(module), seen)
            case ["install", module, "/bin/false" | "/bin/true" | "/usr/bin/false" | "/usr/bin/true", *_]:
                blocked[_plain(module)] = seen
            case ["install", module, *_] if loaded := _INSTEAD.search(line):
                stands_for.setdefault(_plain(module), _plain(loaded[1]))
            case ["alias", module, other]:
                stands_for.setdefault(_plain(module), _plain(other))
            case _:
                pass


# `install nvidia modprobe -i nvidia-current $CMDLINE_OPTS` (Debian, nvidia-modprobe.conf of nvidia-kernel-support).
_INSTEAD = pattern(r"\bmodprobe\s+(?:-i|--ignore-install)\s+([\w-]+)")


def parameters(rest: list[str]) -> Iterator[tuple[str, str]]:
    """Names and values in the text that modprobe hands to the kernel, as that takes it apart (lib/cmdline.c, next_arg).

    Double quotes hold blanks together; around a value or a whole word they go. modprobe itself does not look at them
    (libkmod-config.c). A name may have dashes for underscores.
    """
    for word in _WORD.findall(" ".join(rest)):
        whole = word[1:].removesuffix('"') if word.startswith('"') else word
        name, _, value = whole.partition("=")
        yield _plain(name), value[1:].removesuffix('"') if value.startswith('"') else value


_WORD = pattern(r'(?:[^\s"]|"[^"]*(?:"|$))+')


def _lines(text: str) -> Iterator[str]:
    """Logical lines without comments: a backslash goes, and a line end after it too (shared/util.c of kmod, freadline_wrapped)."""
    for line in _ESCAPED.sub(lambda escaped: "" if escaped[1] == "\n" else escaped[1], text).split("\n"):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield stripped


_ESCAPED = pattern(r"\\(.|\n|\Z)")


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
