"""nvidia-bug-report.log[.gz]: what NVIDIA's own script collected, as raw answers of the same interface.

The script (nvidia-bug-report.sh) writes sections separated by lines of underscores. A section is a file (`*** PATH`, then what
`ls -l` says, then the content), a command (its line, then the output), or prose. What a report lacks is not recorded.
"""

import gzip
import re
import zlib
from pathlib import Path

from gpudoctor.facts.nvidia_smi import answer_from_query
from gpudoctor.facts.raw import Entry, EntryType, Log, SourceKind
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.recorded import Record, RecordedNode, Tree

MARK = "Start of NVIDIA bug report log file"
MAX_BYTES = 512 * 1024 * 1024
"""A report holds a few MB of text; more than this is something else, or a bomb."""

MAX_LINE = 1000
"""lspci's longest lines have some 200 characters; patterns are not tried on more."""

_SEPARATOR = re.compile(r"^_{20,}\n", re.MULTILINE)
_FILE = re.compile(r"^\*\*\* (/\S{1,4095})$")
_NO_FILE = re.compile(r"^\*\*\* (/\S{1,4095}) does not exist$")
_UNAME = re.compile(r"^uname: Linux (\S+) (\S+) ", re.MULTILINE)
_COMMAND = re.compile(r"^(?:/\S*/)?(lspci|nvidia-smi)( .*)?$")
_TRIMMED = "[section body removed"

# "0000:65:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102GL [RTX A5000] [10de:2231] (rev a1)"; the domain is
# printed only where there is more than one, or with -D.
_FUNCTION = re.compile(
    r"^((?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*?\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]"
)
# Older versions cut long names off, and with them the ids.
_CUT_FUNCTION = re.compile(r"^((?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*?\[([0-9a-f]{4})\]: NVIDIA ")
_VERBOSE_HEAD = re.compile(r"^((?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) \S")
_DRIVER_IN_USE = re.compile(r"^[ \t]+Kernel driver in use: (\S+)", re.MULTILINE)
_VERBOSE = re.compile(r"\s-\w*v{1,3}x*\b|\s-v\b")
_FLAGS_LINE = re.compile(r"^[ \t]+(?:Flags|Control):", re.MULTILINE)


class BugReport(RecordedNode):
    """A bug report as a recorded node."""

    kind = SourceKind.BUG_REPORT


def open_bug_report(path: Path) -> BugReport:
    """Read a report, compressed or not. Raises SourceError when it is none."""
    text = _text(path)
    if MARK not in text[: 1 << 16]:
        raise SourceError(f"{path}: not an nvidia-bug-report log: it lacks the line {MARK!r}")
    return read_bug_report(text)


def read_bug_report(text: str) -> BugReport:
    """The recorded node that a report's text holds."""
    reader = _Reader()
    for section in _SEPARATOR.split(text):
        reader.take(section)
    return reader.node()


def _text(path: Path) -> str:
    content = path.read_bytes()
    if not content:
        raise SourceError(f"{path}: is empty")
    if content.startswith(b"\x1f\x8b"):
        try:
            with gzip.open(path) as file:
                content = file.read(MAX_BYTES + 1)
        except EOFError as error:
            raise SourceError(f"{path}: the gzip file is cut off: collect or copy it again") from error
        except (OSError, zlib.error) as error:
            raise SourceError(f"{path}: damaged gzip file: {error}") from error
    if len(content) > MAX_BYTES:
        raise SourceError(f"{path}: more than {MAX_BYTES >> 20} MiB of text: not an nvidia-bug-report log")
    return content.decode("utf-8", "backslashreplace")


class _Reader:
    """Collects raw answers section by section; the first of two sections about one thing wins."""

    def __init__(self) -> None:
        self._tree = Tree()
        self._functions: dict[str, tuple[str, str, str]] = {}
        self._drivers: dict[str, str | None] = {}
        self._driver_origin = ""
        self._listing_origin = ""
        self._dmesg: str | None = None
        self._node = BugReport(self._tree)

    def take(self, section: str) -> None:
        """Take what a section holds; one nobody knows is ignored."""
        body = section.strip("\n")
        heading, _, rest = body.partition("\n")
        if heading.startswith("Start of NVIDIA bug report"):
            self._take_header(body)
        elif missing := _NO_FILE.match(heading):
            self._put(missing[1], Record(error="ENOENT"))
        elif file := _FILE.match(heading):
            self._take_file(file[1], rest)
        elif heading == "dmesg:":
            self._dmesg = self._dmesg or rest.lstrip("\n")
        elif command := _COMMAND.match(heading.strip()):
            self._take_command(command[1], command[2] or "", rest)

    def node(self) -> BugReport:
        """The node with all that was found."""
        node = BugReport(self._tree, complete=self._complete())
        node.answers = self._node.answers
        for address, function in self._functions.items():
            self._put_function(address, *function)
        if self._listing_origin:
            self._tree.put("/sys/bus/pci/devices", Record(entry=Entry("/sys/bus/pci/devices", EntryType.DIR)))
            node.listing_origins = {"/sys/bus/pci/devices": self._listing_origin}
        if self._dmesg is not None and not self._dmesg.startswith(_TRIMMED):
            from_boot = "] Linux version " in self._dmesg[:4096]
            node.logs["kernel.log"] = Log("kernel.log", self._dmesg, source="dmesg", from_boot=from_boot)
        return node

    def _complete(self) -> tuple[str, ...]:
        """`lspci -nn` lists the whole bus."""
        return ("/sys/bus/pci/devices",) if self._listing_origin else ()

    def _take_header(self, body: str) -> None:
        if uname := _UNAME.search(body):
            self._put_text("/proc/sys/kernel/hostname", uname[1], origin="uname -a")
            self._put_text("/proc/sys/kernel/osrelease", uname[2], origin="uname -a")

    def _take_file(self, path: str, rest: str) -> None:
        """The lines after `*** ls:` are the content; a report that was trimmed says so in their place."""
        lines = rest.split("\n")
        if lines and lines[0].startswith("*** ls: "):
            del lines[0]
        text = "\n".join(lines)
        if not text.startswith(_TRIMMED):
            self._put_text(path.replace("/./", "/"), text)

    def _take_command(self, program: str, arguments: str, rest: str) -> None:
        output = rest.strip("\n")
        if output.startswith(_TRIMMED):
            return
        command = f"{program}{arguments}"
        if program == "nvidia-smi" and arguments.strip() in ("--query", "-q", "-q -a"):
            self._take_query(command, output)
        elif program == "lspci" and arguments.strip() == "-nn":
            self._take_functions(command, output)
        elif program == "lspci" and _VERBOSE.search(arguments):
            self._take_verbose(command, output)

    def _take_query(self, command: str, output: str) -> None:
        """The section goes on with other invocations of nvidia-smi, each under its own command line."""
        own = re.split(r"^/\S*/nvidia-smi ", output, maxsplit=1, flags=re.MULTILINE)[0]
        answer = answer_from_query(own, command)
        if answer is not None:
            self._node.answers.setdefault("nvml", answer)

    def _take_functions(self, command: str, output: str) -> None:
        for line in output.splitlines():
            if function := _FUNCTION.match(line[:MAX_LINE]):
                self._functions.setdefault(_full(function[1]), (function[2], function[3], function[4]))
            elif cut := _CUT_FUNCTION.match(line[:MAX_LINE]):
                self._functions.setdefault(_full(cut[1]), (cut[2], "10de", ""))
        if self._functions:
            self._listing_origin = command

    def _take_verbose(self, command: str, output: str) -> None:
        """Each function is a block; one that shows its flags also shows the driver in use, if there is one."""
        for block in re.split(r"\n(?=\S+ \S)|\n\n", output):
            head = _VERBOSE_HEAD.match(block)
            if head and _FLAGS_LINE.search(block):
                driver = _DRIVER_IN_USE.search(block)
                self._drivers.setdefault(_full(head[1]), driver[1] if driver else None)
                self._driver_origin = command

    def _put_function(self, address: str, class_code: str, vendor: str, device: str) -> None:
        base = f"/sys/bus/pci/devices/{address}"
        self._put_text(f"{base}/vendor", f"0x{vendor}", origin=self._listing_origin)
        if device:
            self._put_text(f"{base}/device", f"0x{device}", origin=self._listing_origin)
        else:
            self._put(f"{base}/device", Record(error=f"{self._listing_origin} cut its ids off"))
        self._put_text(f"{base}/class", f"0x{class_code}00", origin=self._listing_origin)
        path = f"{base}/driver"
        driver = self._drivers.get(address)
        if address not in self._drivers:
            self._put(path, Record(error="lspci -v did not show it"))
        elif driver is None:
            self._put(path, Record(error="ENOENT", origin=self._driver_origin))
        else:
            link = Entry(path, EntryType.LINK, to=f"../../bus/pci/drivers/{driver}", origin=self._driver_origin)
            self._put(path, Record(entry=link))

    def _put_text(self, path: str, text: str, origin: str = "") -> None:
        self._put(path, Record(entry=Entry(path, EntryType.FILE, origin=origin), text=text + "\n", origin=origin))

    def _put(self, path: str, record: Record) -> None:
        if path not in self._tree.records:
            self._tree.put(path, record)


def _full(address: str) -> str:
    """An address with its domain."""
    return address if address.count(":") == 2 else f"0000:{address}"
