"""Which sections of a report are read, and into what raw answers they are turned."""

from functools import partial

from gpudoctor.facts.driver import GPUS
from gpudoctor.facts.kernel_log import NAME, PREVIOUS
from gpudoctor.facts.module_file import MODINFO
from gpudoctor.facts.nvidia_smi import answer_from, together
from gpudoctor.facts.persistence import UNIT
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Log
from gpudoctor.facts.virtual_machine import DMI
from gpudoctor.sources import bug_report_kernel as kernel
from gpudoctor.sources.bug_report_collectors import Beginning, Body, BootLogs, End, Functions
from gpudoctor.sources.bug_report_head import Head, head_of
from gpudoctor.sources.bug_report_smi import answer_of_head
from gpudoctor.sources.bug_report_text import Collector
from gpudoctor.sources.lspci_text import DEVICES, Bus, Options
from gpudoctor.sources.nvidia_smi_commands import asks_for_everything
from gpudoctor.sources.recorded import Record, Tree
from gpudoctor.verdicts import Unread, Why

HEADER = "Start of NVIDIA bug report log file"
TRAILER = "End of NVIDIA bug report log file"

MOST_KEPT = 16 * 1024 * 1024
"""What the files and outputs of one report may take, each counted with some overhead."""
_OVERHEAD = 256
_MOST_OF_A_QUERY = 2 * 1024 * 1024
_MOST_QUERIES = 64

_HOST_ROOT = "/.bottlerocket/rootfs"
"""Where Bottlerocket's edition of the script finds the host's files."""
_ASKED_FOR = ("/proc/", "/sys/", "/etc/", "/run/", "/usr/lib/os-release", "/var/log/nvidia-installer.log")
"""Where the files lie that facts read; besides these the log of a build that DKMS could not finish."""
_NOBODY_ASKS_FOR = (
    "/proc/asound/", "/proc/acpi/", "/proc/interrupts", "/proc/meminfo", "/proc/mtrr", "/proc/buddyinfo",
    "/sys/class/drm/", "/sys/firmware/opal/", "/etc/X11/", "/etc/nvidia/",
)  # fmt: skip
_FAILED_BUILD = ("/var/lib/dkms/nvidia/", "/build/make.log")
_TROUBLES = {"": "", "does not exist": "ENOENT", "is not readable": "EACCES"}
"""What follows a path where the script looked in vain."""

_VERSION = ("*** /proc/driver/nvidia/version", "*** /proc/driver/nvidia/./version")
_OF_DRIVER = "*** /proc/driver/nvidia"
_GPU_SECTIONS = f"sections {GPUS}/*/information"
_DMI = (("Manufacturer", "sys_vendor"), ("Product Name", "product_name"))
_COMMANDS = ("lspci", "nvidia-smi", "modinfo", "dmidecode", "systemctl", "ls")
_OTHER_COMMANDS = ("dkms", "ldconfig", "dpkg", "dpkg-query", "rpm")
"""The script does not run these; some vendors' editions do."""
_HEXDUMP = "PCI devices configuration space dump using sysfs"
_NO_SMI = ("Skipping nvidia-smi output", "Skipping: nvidia-smi output")
_DRM = ("/sys/class/drm/", "/dev/dri/")


class Sections:
    """The sections of one report. Of two about one thing the first counts."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.answers: dict[str, Answer | Unread] = {}
        self.commands: dict[tuple[str, ...], CommandOutput] = {}
        self.listed: dict[str, str] = {}
        """Directories of which all names are known, and beginnings of paths (with a star) of which all are; with what listed them."""
        self.count = 0
        self.last = ""
        self.ended = False
        self._head = Head()
        self._bus = Bus()
        self._of_functions: list[tuple[str, Record]] = []
        """A function's own files, whose place below /sys/devices is known when all of lspci was read."""
        self._reasons: dict[str, str] = {}
        self._cut = ""
        self._room = MOST_KEPT
        self._dmesg: Body | None = None
        self._boots: dict[str, str] = {}
        self._service_logs: dict[str, Log] = {}
        self._smi: list[Answer] = []
        self._no_answer = ""
        self._driver_files = False
        self._no_vermagic = False

    def begin(self, heading: str) -> Collector | None:
        """What takes the section with this first line, None where nobody needs it."""
        self.count += 1
        self.last = heading
        self._note_place(heading)
        if heading.startswith("*** /"):
            path, _, trouble = heading.removeprefix("*** ").partition(" ")
            return self._file(path.removeprefix(_HOST_ROOT).replace("/./", "/"), _TROUBLES.get(trouble))
        if heading.startswith("*** ls: "):
            drm = any(words in heading for words in _DRM)
            return None if drm else Beginning(partial(self._take_entries, heading))
        if heading.startswith("/sys/module/"):
            return Beginning(partial(self._take_parameters, heading))
        command, _, arguments = heading.partition(" ")
        program = command.rpartition("/")[2]
        if program in _COMMANDS or program in _OTHER_COMMANDS:
            return self._command(program, arguments.strip())
        return self._prose(heading)

    def finish(self, *, whole: bool) -> None:
        """There are no more: put together what several sections say. Not `whole`: the report ended in the middle of the last."""
        if not self.ended:
            self._cut = f"the report {'ends with' if whole else 'is cut off in'} its section {self.last[:60]!r}"
        for path, record in self._of_functions:
            address, slash, name = path.removeprefix(f"{DEVICES}/").partition("/")
            place = f"{self._bus.place(address)}{slash}{name}"
            if place not in self.tree.records:
                self.tree.put(place, record)
        self._bus.put(self.tree)
        if self._bus.listing_origin:
            self.listed[DEVICES] = self._bus.listing_origin
        self._put_head()
        if self._no_vermagic and self._bus.lists_nvidia_module is False:
            said = "nvidia not found: modinfo printed nothing, and lspci names no such module"
            self.commands.setdefault(MODINFO, CommandOutput(MODINFO, 1, "", said))

    def reason(self, what: str) -> str:
        """Why the report lacks a path, log, answer or command; empty where that is not known."""
        if self._head.safe_mode and what.startswith(f"{GPUS}/"):
            return "with --safe-mode the script leaves it out"
        return self._reasons.get(what) or self._cut

    def _note_place(self, heading: str) -> None:
        """The script lists the driver's GPUs right after its version: with the next other section all of them were there."""
        if heading.startswith(_VERSION):
            self._driver_files = True
        elif self._driver_files and not heading.startswith(_OF_DRIVER) and not self._head.safe_mode:
            self.listed.setdefault(GPUS, _GPU_SECTIONS)

    def _prose(self, heading: str) -> Collector | None:
        if heading.startswith(HEADER):
            return Beginning(self._take_head)
        if heading.startswith("dmesg"):
            return End(self._take_dmesg)
        if heading.startswith("Scanning kernel log files"):
            return BootLogs(self._take_boot)
        if heading == _HEXDUMP:
            return Functions(self._bus, heading)
        if heading.startswith(_NO_SMI):
            self._no_answer = "was not found when the report was made"
        self.ended = self.ended or heading.startswith(TRAILER)
        return None

    # Files ------------------------------------------------------------------------------------------------------------

    def _file(self, path: str, trouble: str | None) -> Collector | None:
        asked_for = path.startswith(_ASKED_FOR) and not path.startswith(_NOBODY_ASKS_FOR)
        failed_build = path.startswith(_FAILED_BUILD[0]) and path.endswith(_FAILED_BUILD[1])
        if trouble is None or "*" in path or not (asked_for or failed_build):
            return None
        if trouble:
            self._put(path, Record(error=trouble))
            return None
        return Beginning(partial(self._take_file, path))

    def _take_file(self, path: str, body: Body) -> None:
        """The lines after `*** ls:` are the content."""
        if body.removed:
            self._reasons.setdefault(path, "its section was removed from the report")
        elif not body.whole:
            self._reasons.setdefault(path, "the report is cut off in its section")
        else:
            text = body.text
            if text.startswith("*** ls: "):
                text = text.partition("\n")[2]
            self._put_text(path, text, shortened=body.shortened)

    def _take_parameters(self, heading: str, body: Body) -> None:
        """`grep -Hr . /sys/module/NAME/parameters/`: a line of path and value for each."""
        values: dict[str, list[str]] = {}
        for line in f"{heading}\n{_complete_lines(body)}".split("\n"):
            path, colon, value = line.partition(":")
            if colon and path.startswith("/sys/module/"):
                values.setdefault(path, []).append(value)
        for path, lines in values.items():
            self._put_text(path, "\n".join(lines))

    def _take_entries(self, heading: str, body: Body) -> None:
        from gpudoctor.sources.bug_report_ls import entries

        for path, record in entries(f"{heading}\n{_complete_lines(body)}", "ls -l"):
            self._put(path, record)

    def _put_text(self, path: str, text: str, origin: str = "", *, shortened: bool = False) -> None:
        text = text.rstrip("\n")
        entry = Entry(path, EntryType.FILE, origin=origin)
        self._put(path, Record(entry=entry, text=f"{text}\n" if text else "", truncated=shortened, origin=origin))

    def _put(self, path: str, record: Record) -> None:
        self._room -= len(record.text or "") + _OVERHEAD
        if path in self.tree.records or self._room <= 0:
            return
        if path.startswith(f"{DEVICES}/"):
            self._of_functions.append((path, record))
        else:
            self.tree.put(path, record)

    # Commands ---------------------------------------------------------------------------------------------------------

    def _command(self, program: str, arguments: str) -> Collector | None:
        command = f"{program} {arguments}".rstrip()
        match program:
            case "lspci":
                blocks = Options(command).blocks
                return Functions(self._bus, command) if blocks else Beginning(partial(self._take_lspci, command))
            case "nvidia-smi":
                return Beginning(partial(self._take_query, arguments), _MOST_OF_A_QUERY)
            case "modinfo" if arguments.endswith("| grep vermagic"):
                return Beginning(self._take_vermagic) if arguments.startswith("nvidia ") else None
            case "dmidecode":
                return Beginning(self._take_firmware)
            case "systemctl":
                return Beginning(self._take_services) if UNIT in arguments else None
            case "ls":
                return Beginning(partial(self._take_listing, arguments))
            case _:
                return Beginning(partial(self._take_output, command))

    def _take_lspci(self, command: str, body: Body) -> None:
        if not body.removed:
            self._bus.take(command, _complete_lines(body), whole=body.whole and not body.shortened)

    def _take_query(self, arguments: str, body: Body) -> None:
        """A section goes on with other invocations of the program, each under its own command line."""
        answer = None if body.removed else answer_from(arguments, _complete_lines(body))
        if answer is not None:
            self._smi += [answer] if len(self._smi) < _MOST_QUERIES else []
        elif not body.whole and asks_for_everything(arguments):
            self._no_answer = "the report ends where it was asked, as it does when nvidia-smi hangs"

    def _take_vermagic(self, body: Body) -> None:
        """The section goes on with the other modules, each under its own command line."""
        if body.whole and not body.removed:
            self._no_vermagic = not f"\n{body.text}".partition("\n/")[0].strip()

    def _take_firmware(self, body: Body) -> None:
        """DMI type 1, as the kernel shows it in sysfs (drivers/firmware/dmi-id.c)."""
        system = body.text.partition("\nSystem Information\n")[2].partition("\n\n")[0]
        fields = dict(line.strip().split(": ", 1) for line in system.split("\n") if ": " in line)
        for name, file in _DMI:
            if fields.get(name, "Not Specified") != "Not Specified":
                self._put_text(f"{DMI}/{file}", fields[name].strip(), "dmidecode")

    def _take_services(self, body: Body) -> None:
        from gpudoctor.sources import bug_report_services as services

        if body.whole and not body.removed:
            for path, record in services.persistence_daemon(body.text, f"systemctl status {UNIT}"):
                self._put(path, record)
            if (log := services.persistence_journal(body.text)) is not None:
                self._service_logs.setdefault(log.name, log)

    def _take_listing(self, arguments: str, body: Body) -> None:
        from gpudoctor.sources import bug_report_ls as ls

        origin = f"ls {arguments}"
        operands = [word.rstrip("/") for word in arguments.split() if word.startswith("/")]
        text = "" if body.removed else _complete_lines(body)
        for path, record in ls.entries(text, origin, operands[0] if len(operands) == 1 else ""):
            self._put(path, record)
        if body.whole and not body.removed and not body.shortened:
            globs = [word for word in operands if word.find("*") == len(word) - 1]
            self.listed.update(dict.fromkeys([*globs, *ls.directories(text, operands)], origin))

    def _take_output(self, command: str, body: Body) -> None:
        if not body.whole or body.removed or body.shortened:
            return
        argv = tuple(command.split())
        failed = argv == MODINFO and "filename:" not in body.text
        self._room -= len(body.text) + _OVERHEAD
        if self._room > 0:
            said = CommandOutput(argv, 1, "", body.text) if failed else CommandOutput(argv, 0, body.text)
            self.commands.setdefault(argv, said)

    # The rest ---------------------------------------------------------------------------------------------------------

    def _take_head(self, body: Body) -> None:
        self._head = head_of(body.text)

    def _take_dmesg(self, body: Body) -> None:
        self._dmesg = self._dmesg or body

    def _take_boot(self, boot: str, lines: str) -> None:
        self._boots.setdefault(boot, lines)

    def _put_head(self) -> None:
        head = self._head
        for path, text, origin in (
            ("/proc/sys/kernel/hostname", head.hostname, "uname -a"),
            ("/proc/sys/kernel/osrelease", head.kernel, "uname -a"),
            ("/etc/os-release", head.distribution and f'PRETTY_NAME="{head.distribution}"', "the report's head"),
        ):
            if text:
                self._put_text(path, text, origin)
        answer = together(self._smi) or answer_of_head(head.gpus)
        if answer is not None:
            self.answers.setdefault("nvml", answer)
        if head.safe_mode and not self._no_answer:
            self._no_answer = "was not asked: the report was made with --safe-mode"
        if self._no_answer:
            self.answers.setdefault("nvml", Unread(Why.NOT_RECORDED, "nvidia-smi", self._no_answer))

    def log(self, name: str) -> Log | None:
        """A log, put together when somebody asks for it."""
        if name == NAME:
            dmesg = self._dmesg
            text = _complete_lines(dmesg).strip("\n") + "\n" if dmesg is not None and not dmesg.removed else ""
            broken = dmesg is not None and (dmesg.shortened or not dmesg.whole)
            return kernel.kernel_log(text, self._boots.get("0", ""), broken=broken)
        if name == PREVIOUS:
            lines = kernel.kernel_lines(self._boots.get("1", ""))
            return Log(name, "\n".join(lines) + "\n", source="journal") if lines else None
        if name in self._service_logs:
            return self._service_logs[name]
        return kernel.unit_log(name, self._boots.get("0", "")) if name in kernel.UNITS else None


def _complete_lines(body: Body) -> str:
    """The lines of which it is certain that they are whole."""
    return body.text if body.whole and not body.shortened else body.text.rpartition("\n")[0]
