"""An sos report: the node's files as they lay, and what the programs printed that sos ran.

Read in sosreport/sos at 5c7e63ee (2026-08-21): archive.py (layout, links made relative, files one after the other from version.txt
on), report/plugins/__init__.py (names of outputs, add_journal, the manifest's fields), report/__init__.py, and the plugins pci,
kernel, nvidia, logs, devices. Host files lie at their own paths; the output of a command in sos_commands/PLUGIN under its mangled
command line, or in sos_strings when only its end was kept; sos_reports/manifest.json has the exit codes.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gpudoctor.facts.kernel_log import NAME, PREVIOUS
from gpudoctor.facts.nvidia_smi import PROGRAM
from gpudoctor.facts.raw import Absent, Answer, CommandOutput, Entry, EntryType, Log, SourceKind
from gpudoctor.patterns import pattern
from gpudoctor.sources.lspci_text import DEVICES, Bus
from gpudoctor.sources.members import Members
from gpudoctor.sources.nvidia_smi_commands import nvml_answer
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Unread, Why

# The plugins whose outputs are asked for, and the host's files that are; the rest of a report can be gigabytes.
_PLUGINS = (
    "pci|kernel|nvidia|logs|devices|systemd|host|date|hardware|boot|dpkg|rpm|docker|containerd|crio|podman|kubernetes"
)
_KEPT = pattern(
    rf"sos_reports/manifest\.json$|sos_(?:commands|strings)/(?:{_PLUGINS})/|"
    r"[^/]+$|(?:etc|proc|sys|run|dev|lib|usr|boot)/|var/lib/(?:dkms|dpkg)/|"
    r"var/log/(?:dpkg\.log|dnf|yum\.log|zypp/|pacman\.log|nvidia|apt/|dmesg)"
)
_DROPPED = pattern(
    r"proc/(?:kallsyms$|\d+/|irq/|fs/|net/)|sys/(?:kernel/(?:debug|slab|tracing)/|firmware/acpi/|fs/cgroup/(?!.*nvidia))|etc/(?:pki|ssh|selinux)/"
)

_NOT_FOUND = (126, 127)
_TIMED_OUT = 124
"""timeout(1), under which sos runs every command."""

_SMI = tuple(
    f"{PROGRAM} {arguments}"
    for arguments in (
        "-q",
        "--list-gpus",
        "-q -d ECC",
        "-q -d PAGE_RETIREMENT",
        "-q -d PERFORMANCE",
        "nvlink -s",
        "nvlink -e",
    )
)
"""What plugin nvidia runs of it, as far as it tells of NVML; where there is a manifest, it has more."""

_UNAME = pattern(r"^Linux (\S+) (\S+) ")
# sos takes stderr in the same file: "lspci: Unable to load libkmod resources: error -2" (lspci.c, ls-kernel.c), "pcilib: …" (lib/init.c).
_COMPLAINT = pattern(r"^(?:lspci|pcilib): .*\n", re.MULTILINE)
_NVIDIA_MODULE = pattern(r"^filename:\s+\S*/nvidia\.ko(?:\.\w+)?$", re.MULTILINE)
_NO_MODULE = pattern(r"^modinfo: ERROR: Module nvidia not found\.$", re.MULTILINE)
# journalctl's default form: "Nov 29 12:00:00 n1 systemd-udevd[612]: …".
_JOURNAL_LINE = r"^\w{{3}} +\d+ [\d:]+ \S+ {}(?:\[\d+\])?: .*\n?"


def keeps(name: str) -> bool:
    """Whether a member's content can be asked for; the name is the one in the report."""
    return _KEPT.match(name) is not None and _DROPPED.match(name) is None


def mangled(command: str) -> str:
    """The file name that sos gives the output of a command."""
    name = re.sub(r"^/(?:usr/|)s?bin/", "", command)
    name = re.sub(r"[^\w\-./]+", "_", name)
    return name.replace("/", ".").strip(" ._-")[:255]


class _Outputs:
    """What the commands printed, by command line."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._places: dict[str, str] = {}
        for plugin in sorted(members.names("sos_commands")):
            for name in members.names(f"sos_commands/{plugin}"):
                self._places.setdefault(name, f"{plugin}/{name}")
        self._exits = dict(_exits(members))

    def text(self, command: str) -> str | None:
        """All that a command printed, stderr as well; None when it was not run or only its end was kept."""
        place = self._places.get(mangled(command))
        return self._text(f"sos_commands/{place}") if place is not None else None

    def has(self, command: str) -> bool:
        """Whether anything is known of a command: what it printed, or how it ended."""
        return mangled(command) in self._places or command in self._exits

    def end(self, command: str) -> str:
        """All that a command printed or its end: then a link leads to that (Plugin._collect_cmd_output). Empty when it was not run."""
        place = self._places.get(mangled(command))
        text = self.text(command)
        return text if text is not None else self._text(f"sos_strings/{place}.tailed") or ""

    def exit(self, command: str) -> int | None:
        """The exit status, None when it is not known to have been run."""
        return self._exits.get(command)

    @property
    def run(self) -> tuple[str, ...]:
        """The command lines that are known to have been run."""
        return tuple(self._exits)

    def named(self, form: "re.Pattern[str]") -> list[str]:
        """The names of outputs that match."""
        return [name for name in self._places if form.fullmatch(name)]

    def _text(self, name: str) -> str | None:
        try:
            return self._members.text(name)
        except OSError:
            return None


def _exits(members: Members) -> Iterator[tuple[str, int]]:
    """Each command's exit status, from the manifest; reports of sos before 4.0 have none."""
    try:
        said: Any = msgspec.json.decode(members.text("sos_reports/manifest.json") or "{}")
        for plugin in said["components"]["report"]["plugins"].values():
            for command in plugin["commands"]:
                yield str(command["exec"]), int(command["return_code"])
    except (OSError, msgspec.MsgspecError, RecursionError, ValueError, LookupError, TypeError, AttributeError):
        return


class SosReport(RecordedNode):
    """An sos report as a recorded node. Nothing but the bus is complete: sos gives a plugin up that takes too long."""

    kind = SourceKind.BUG_REPORT

    def __init__(self, members: Members) -> None:
        tree = members.tree("")
        self._outputs = _Outputs(members)
        bus = _bus(self._outputs)
        bus.put(tree)
        super().__init__(tree)
        self.listing_origins = {DEVICES: bus.listing_origin} if bus.listing_origin else {}
        self._put_uname()
        answer = self._nvml()
        if answer is not None:
            self.answers["nvml"] = answer

    def is_complete(self, path: str) -> bool:
        """lspci names every function of the bus, but not every attribute of one."""
        if path == DEVICES or not path.startswith(f"{DEVICES}/"):
            return path in self.listing_origins
        name = path.removeprefix(f"{DEVICES}/").partition("/")[0]
        return DEVICES in self.listing_origins and self.tree.lookup(f"{DEVICES}/{name}") is None

    def command(self, argv: tuple[str, ...], *, seconds: float = 10.0) -> CommandOutput | Absent | Unread:
        """The output of the same command line, which sos takes with stderr in it."""
        line = " ".join(argv)
        status = self._outputs.exit(line)
        if status in _NOT_FOUND:
            return Absent(argv[0])
        if status == _TIMED_OUT:
            return _timed_out(line)
        text = self._outputs.text(line)
        if text is not None:
            return CommandOutput(argv, exit=status or 0, stdout=text)
        return self._module(argv) if argv == ("modinfo", "nvidia") else super().command(argv)

    def log(self, name: str) -> Log | Unread:
        """A log, out of dmesg and the journal."""
        if name == NAME:
            return self._kernel_log() or super().log(name)
        if name == PREVIOUS:
            before = self._journal("kernel", "journalctl --no-pager --boot -1")
            return Log(name, before, source="journal") if before else super().log(name)
        unit = name.removeprefix("journal/").removesuffix(".service.log")
        text = self._outputs.end(f"journalctl --no-pager --unit {unit}") or self._journal(re.escape(unit))
        return Log(name, text, source="journal") if text else super().log(name)

    def _kernel_log(self) -> Log | None:
        """The ring buffer, or the journal where only that reaches back to the boot."""
        logs = [Log(NAME, text, source, _from_boot(text)) for source, text in self._kernel_texts() if text]
        return next((log for log in logs if log.from_boot), logs[0] if logs else None)

    def _kernel_texts(self) -> Iterator[tuple[str, str]]:
        yield "dmesg", self._outputs.end("dmesg")
        yield "journal", self._journal("kernel")

    def _journal(self, identifier: str, command: str = "journalctl --no-pager --boot") -> str:
        """The lines of a boot's journal, this one's, by an identifier."""
        journal = self._outputs.end(command)
        return "".join(re.findall(_JOURNAL_LINE.format(identifier), journal, re.MULTILINE))

    def _module(self, argv: tuple[str, ...]) -> CommandOutput | Absent | Unread:
        """The part about nvidia of `modinfo` for all loaded modules; of one that is not loaded it says nothing."""
        text = self._outputs.text("modinfo_ALL_MODULES") or ""
        for part in re.split(r"^(?=filename:)", text, flags=re.MULTILINE):
            if _NVIDIA_MODULE.match(part):
                return CommandOutput(argv, exit=0, stdout=part)
        missing = _NO_MODULE.search(text)
        return CommandOutput(argv, exit=1, stdout="", stderr=missing[0] + "\n") if missing else super().command(argv)

    def _nvml(self) -> Answer | Unread | None:
        """What nvidia-smi said, all its runs together."""
        others = (line for line in self._outputs.run if line.startswith(f"{PROGRAM} "))
        lines = dict.fromkeys(tuple(line.split()) for line in (*_SMI, *others))
        return nvml_answer({argv: self.command(argv) for argv in lines if self._outputs.has(" ".join(argv))})

    def _put_uname(self) -> None:
        """Host name and kernel, which sos takes from `uname -a`."""
        uname = _UNAME.match(self._outputs.text("uname -a") or "")
        for path, field in (("/proc/sys/kernel/hostname", 1), ("/proc/sys/kernel/osrelease", 2)):
            if uname is not None and self.tree.lookup(path) is None:
                entry = Entry(path, EntryType.FILE, origin="uname -a")
                self.tree.put(path, Record(entry=entry, text=uname[field] + "\n", origin="uname -a"))


def open_sos_report(members: Members) -> SosReport:
    """The node that a report was taken of."""
    return SosReport(members)


def _bus(outputs: _Outputs) -> Bus:
    """What lspci said; older versions of the plugin ran it with other options.

    Only one that is known to have ended well listed all: it exits with 2 where it left functions out (lspci.c, seen_errors).
    """
    bus = Bus()
    for name in sorted(outputs.named(re.compile(r"lspci(?:_-[a-z]+)*"))):
        command = name.replace("_", " ")
        text = outputs.text(command)
        if text is not None:
            bus.take(command, _COMPLAINT.sub("", text), whole=outputs.exit(command) == 0)
    return bus


def _timed_out(command: str) -> Unread:
    return Unread(Why.TIMED_OUT, command, "did not end before its deadline")


def _from_boot(log: str) -> bool:
    return "Linux version " in log[:4096]
