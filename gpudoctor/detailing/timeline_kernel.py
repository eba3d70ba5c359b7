"""What the kernel said of GPUs, in its order: errors, the driver's coming and going, the bus, and tasks that hang or are killed.

Lines are found by the words that they must have: a log can have millions of them, and is never gone through line by line.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.detailing.drafts import ALARMS, Citations, Draft
from gpudoctor.details import EventKind
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.log_stamps import split, stamped
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.pci import NvSwitches, PciGpus
from gpudoctor.facts.pci_link import GpuPlaces
from gpudoctor.facts.tasks import HUNG_TASK, IN_DRIVER
from gpudoctor.facts.xid_lines import LONGEST, SXidLine, find_placed
from gpudoctor.patterns import pattern
from gpudoctor.report import Finding
from gpudoctor.verdicts import Evidence, Unread

MOST_LINES = 20_000
"""As many lines with one word are looked at, the last ones: what says the same so often is told as one event."""
MOST_TRIES = 200
"""As many places are tried at which the words of a citation may stand."""
MOST_FURTHER = 3
MOST_IN_TURN = 3
STACK = 4000
"""Letters within which the stack of a task stands behind the line that calls it hung."""

_ADDRESS = pattern(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?\b")
_NAMED = pattern(r"nvidia|nv-|dcgm|cuda|mps")


class _Form(Struct, frozen=True):
    """Lines of one kind: a literal part of them, their form, and a name that like ones share; "" where their words tell them apart."""

    kind: EventKind
    anchor: str
    line: "re.Pattern[str]"
    name: str = ""


def _form(kind: EventKind, anchor: str, line: str | None = None, name: str = "") -> _Form:
    return _Form(kind, anchor, re.compile(line if line is not None else re.escape(anchor)), name)


# NVRM's words are of open-gpu-kernel-modules: kernel-open/nvidia/nv.c (probe, adapters, what is found), nv-frontend.c, osinit.c and
# osapi.c of arch/nvalloc/unix/src, kernel_gsp.c; those of its modules of nvlink_linux.c and uvm.c. The bus speaks by drivers/pci
# (pcie/aer.c, pcie/err.c, hotplug/pciehp_ctrl.c, pci.c, probe.c), modules by kernel/module, firmware by drivers/base/firmware_loader.
_DRIVER, _MODULE, _PCIE, _KERNEL = EventKind.DRIVER, EventKind.MODULE, EventKind.PCIE, EventKind.KERNEL
_FORMS = (
    _form(_DRIVER, "RmInitAdapter", r"NVRM: .*RmInitAdapter failed|NVRM: \S+ RmInitAdapter: Cannot", "does not start"),
    _form(_DRIVER, "rm_init_adapter failed", name="does not start"),
    _form(_DRIVER, "API mismatch: ", r"NVRM: API mismatch: ", "versions differ"),
    _form(_DRIVER, "probe routine ", r"NVRM: The NVIDIA probe routine ", "no device"),
    _form(_DRIVER, "None of the NVIDIA devices were initialized", name="no device"),
    _form(_DRIVER, "No NVIDIA GPU found", name="no device"),
    _form(_DRIVER, "No NVIDIA devices probed", name="no device"),
    _form(_DRIVER, "nvidia: probe of ", r"nvidia: probe of \S+ failed with error", "probe"),
    _form(_DRIVER, "Heartbeat timed out", r"NVRM: .*Heartbeat timed out", "GSP silent"),
    _form(_DRIVER, "WPR2 already up", r"NVRM: .*WPR2 already up", "WPR2"),
    _form(_DRIVER, "No firmware image found", r"NVRM: .*No firmware image found", "no firmware"),
    _form(_DRIVER, "Direct firmware load for nvidia", name="no firmware"),
    _form(_DRIVER, "necessary power cables", r"NVRM: .*necessary power cables", "power cables"),
    _form(_DRIVER, "nvidia: version magic ", name="vermagic"),
    _form(_DRIVER, "Module nvidia is blacklisted"),
    _form(_DRIVER, "version of symbol ", r"nvidia\S*: disagrees about version of symbol", "symbols"),
    _form(_DRIVER, "Loading of unsigned module ", name="unsigned"),
    _form(_DRIVER, "unsigned module loading is restricted", name="unsigned"),
    _form(_MODULE, "NVRM: loading NVIDIA "),
    _form(_MODULE, "Unregistered Nvlink Core", r"nvidia-nvlink: Unregistered", "unloaded"),
    _form(_MODULE, "nvidia-uvm: Loaded ", name="uvm loaded"),
    _form(_MODULE, "nvidia-uvm: Unloaded ", name="uvm unloaded"),
    _form(_MODULE, "nouveau ", r"nouveau \S+: NVIDIA ", "nouveau"),
    _form(_MODULE, "vfio-pci ", r"vfio-pci \S+: (?:enabling device|vgaarb|reset)", "vfio"),
    _form(_PCIE, "Bus Error: severity=Correct", name="corrected bus error"),
    _form(_PCIE, "Bus Error: severity=Uncorrect", r"severity=Uncorrect\w+ \(Non-Fatal\)", "non-fatal bus error"),
    _form(_PCIE, "Bus Error: severity=Uncorrect", r"severity=Uncorrect\w+ \(Fatal\)", "fatal bus error"),
    _form(_PCIE, "device recovery successful", name="recovered"),
    _form(_PCIE, "device recovery failed", name="not recovered"),
    _form(_PCIE, "AER: can't recover", name="not recovered"),
    _form(_PCIE, "pciehp: Slot", r"pciehp: Slot.*(?:Link|Card)", ""),
    _form(_PCIE, "after bus reset; ", r"not ready \d+ms after bus reset", "not ready"),
    _form(_PCIE, "change power state", r"change power state from", "power state"),
)


class Known(Struct):
    """What of the node tells whose a line is: GPUs by slot, the GPUs behind each port, switches, and names of processes that use GPUs."""

    gpus: dict[str, str]
    ports: dict[str, tuple[str, ...]]
    switches: frozenset[str]
    whole: bool
    names: set[str]

    @classmethod
    def of(cls, desk: Desk) -> "Known":
        """From the bus, and from NVML's list where that was asked."""
        gpus, places, switches = desk.get(PciGpus), desk.get(GpuPlaces), desk.get(NvSwitches)
        ports: dict[str, tuple[str, ...]] = {}
        for gpu, way in () if isinstance(places, Unread) else places.by_address.items():
            for port in () if isinstance(way, Unread) else way[:-1]:
                ports[port] = (*ports.get(port, ()), gpu)
        nvml = desk.known(Nvml)
        named = (one.name for device in nvml.devices for one in device.processes) if nvml is not None else ()
        return cls(
            gpus={} if isinstance(gpus, Unread) else {gpu.address.rpartition(".")[0]: gpu.address for gpu in gpus},
            ports=ports,
            switches=frozenset() if isinstance(switches, Unread) else frozenset(one.address for one in switches),
            whole=bool(ports),
            names={name.rpartition("/")[2][:15] for name in named if name},
        )

    def gpu_at(self, slot: str) -> str:
        """The GPU of a slot: Xids leave out the function."""
        return self.gpus.get(slot, f"{slot}.0" if slot else "")

    def whose(self, message: str) -> tuple[str, bool]:
        """The GPU that a line names, or the only one behind the port that it names; and whether it may be about one at all."""
        addresses = [found.lower() for found in _ADDRESS.findall(message)]
        for address in addresses:
            if (gpu := self.gpus.get(address.partition(".")[0])) is not None:
                return gpu, True
        for address in addresses:
            behind = self.ports.get(address, ())
            if behind:
                return (behind[0] if len(behind) == 1 else ""), True
        return "", not addresses or not self.whole or any(address in self.switches for address in addresses)


def kernel_drafts(log: KernelLog, known: Known, citations: Citations, *, previous: bool = False) -> list[Draft]:
    """The events of one boot's log, oldest first, like ones about one GPU in a row folded."""
    placed: dict[int, Draft] = dict(_errors(log, known))
    for form in _FORMS:
        for begin, draft in _of_form(log, form, known):
            placed.setdefault(begin, draft)
    for begin, draft in (*_hung(log), *_killed(log, known)):
        placed.setdefault(begin, draft)
    for begin, seen, findings in _cited(log, citations):
        alarming = any(finding.status in ALARMS for finding in findings)
        if begin not in placed and alarming and _WHOSE.match(seen.shows) is None:
            placed[begin] = _plain(log, begin, seen, known)
        if begin in placed:
            placed[begin].cited_by(findings)
    drafts = [placed[begin] for begin in sorted(placed)]
    for draft in drafts:
        draft.previous_boot = previous
    return _folded(drafts)


def _folded(drafts: list[Draft]) -> list[Draft]:
    """Like events about a GPU, with none other about it between them, are one; so are two or three that come in turn again and again."""
    turns: dict[str, _Turn] = {}
    return [draft for draft in drafts if not turns.setdefault(draft.gpu, _Turn([], [])).takes(draft)]


class _Turn(Struct):
    """The last events of one GPU, and those that come in turn, the one whose turn it is first."""

    latest: list[Draft]
    turn: list[Draft]

    def takes(self, draft: Draft) -> bool:
        """Whether an event is told with one like it before."""
        if not (self.turn and _like(self.turn[0], draft)):
            self.turn = next(
                (
                    self.latest[-period:]
                    for period in range(1, MOST_IN_TURN + 1)
                    if len(self.latest) >= period and _like(self.latest[-period], draft) and self._came_twice(period)
                ),
                [],
            )
        if not self.turn:
            self.latest = [*self.latest[1 - 2 * MOST_IN_TURN :], draft]
            return False
        self.turn[0].take(draft)
        self.turn = [*self.turn[1:], self.turn[0]]
        return True

    def _came_twice(self, period: int) -> bool:
        """Whether the last so many came twice in the same order; of one alone that is no question."""
        before, last = self.latest[-2 * period : -period], self.latest[-period:]
        return period == 1 or (len(before) == period and all(map(_like, before, last)))


def _like(one: Draft, other: Draft) -> bool:
    return one.kind is other.kind and one.alike == other.alike


def _errors(log: KernelLog, known: Known) -> Iterator[tuple[int, Draft]]:
    """Xids and SXids, and GPUs that are off the bus without a number."""
    for place, line in find_placed(log.text):
        begin = place if isinstance(line, SXidLine) or line.numbered else _message_at(log.text, place)
        if isinstance(line, SXidLine):
            if line.detail:
                continue
            fatal = "" if line.fatal is None else "fatal " if line.fatal else "non-fatal "
            says = f"{fatal}SXid {line.code} of NVSwitch {line.address}: {line.text}"
            yield begin, Draft(EventKind.SXID, says, log.where, line.at, alike=f"{line.code} {line.address}")
            continue
        if line.name:
            known.names.add(line.name)
        gpu, says = known.gpu_at(line.slot), line.message
        if line.numbered:
            said = f": {line.text}" if line.text else ""
            by = (
                f" ({line.name or 'process'}{f', PID {line.pid}' if line.pid else ''})" if line.name or line.pid else ""
            )
            says = f"Xid {line.code}, {_called(line.code)}{by}{said}"
        kind = EventKind.XID if line.numbered else EventKind.DRIVER
        instance = f"{line.gpu_instance} {line.compute_instance}" if line.gpu_instance is not None else ""
        yield begin, Draft(kind, says, log.where, line.at, gpu=gpu, alike=f"{line.code} {line.numbered} {instance}")


def _called(code: int) -> str:
    """What NVIDIA's listing calls an Xid, else what it means."""
    from gpudoctor.knowledge.xids import xid

    known = xid(code)
    return known.title.partition(" -- ")[0] or known.means


def _of_form(log: KernelLog, form: _Form, known: Known) -> Iterator[tuple[int, Draft]]:
    for begin, end in _places(log.text, form.anchor):
        at, message = split(log.text[begin : min(end, begin + LONGEST)])
        if form.line.search(message) is None:
            continue
        gpu, ours = known.whose(message)
        if ours:
            device = "" if gpu else " ".join(_ADDRESS.findall(message))
            alike = f"{form.name or message} {device}"
            says = " ".join((message, *_further(log.text, end))) if at else message
            yield begin, Draft(form.kind, says, log.where, at, gpu=gpu, alike=alike)


def _further(text: str, end: int) -> Iterator[str]:
    """The next lines of a message: NVRM breaks its sentences into lines, of which the first alone has a time."""
    for line in text[end + 1 : end + 400].split("\n")[:MOST_FURTHER]:
        if not line.strip() or stamped(line):
            return
        yield split(line)[1].removeprefix("NVRM: ").strip()


def _hung(log: KernelLog) -> Iterator[tuple[int, Draft]]:
    """Tasks that hang in NVIDIA's modules, by their stack or their name (kernel/hung_task.c)."""
    for begin, end in _places(log.text, "blocked for more than"):
        at, message = split(log.text[begin : min(end, begin + LONGEST)])
        found = HUNG_TASK.search(message)
        stack = log.text[end : end + STACK].partition("INFO: task ")[0]
        if found is not None and (IN_DRIVER.search(stack) or "nvidia" in found["comm"]):
            yield begin, Draft(EventKind.KERNEL, message, log.where, at, alike=f"hung {found['comm']} {found['pid']}")


def _killed(log: KernelLog, known: Known) -> Iterator[tuple[int, Draft]]:
    """Processes that use GPUs, as far as their names tell, killed for want of memory (mm/oom_kill.c)."""
    for begin, end in _places(log.text, " Killed process "):
        at, message = split(log.text[begin : min(end, begin + LONGEST)])
        found = _KILLED.search(message)
        if found is not None and (found[1] in known.names or _NAMED.match(found[1])):
            yield begin, Draft(EventKind.KERNEL, message, log.where, at, alike=f"killed {found[1]}")


# The names of a board, which the driver prints before its first error (facts/xid_lines.py).
_WHOSE = pattern(r"NVRM: (?:GPU at PCI:|GPU Board Serial|GPU \S+ GPU serial number)")
_KILLED = pattern(r"Killed process \d+ \(([^)]{1,16})\)")


def _plain(log: KernelLog, begin: int, seen: Evidence, known: Known) -> Draft:
    """A message that only a finding calls telling."""
    end = log.text.find("\n", begin) % (len(log.text) + 1)
    at, message = split(log.text[begin : min(end, begin + LONGEST)])
    words = " ".join((message, *_further(log.text, end))) if at else message
    words = words if seen.shows.removeprefix("NVRM: ")[:100] in words else seen.shows
    kind = EventKind.KERNEL
    if words.startswith(("NVRM", "nvidia")):
        kind = EventKind.DRIVER
    elif words.startswith("pci") or "PCIe" in words:
        kind = EventKind.PCIE
    return Draft(kind, words, log.where, at, gpu=known.whose(words)[0], alike=words)


def _cited(log: KernelLog, citations: Citations) -> Iterator[tuple[int, Evidence, list[Finding]]]:
    """Where the lines that findings cite begin."""
    for seen, findings in citations.of(log.where):
        place = _place_of(log.text, seen)
        if place is not None:
            yield place, seen, findings


def _place_of(text: str, seen: Evidence) -> int | None:
    """Where a citation's line begins; a time is found sooner than words, which a thousand lines may have."""
    words = seen.shows.rpartition(" … ")[2][:100]
    for anchor in (seen.at, words):
        for tries, (begin, end) in enumerate(_places(text, anchor or "", backwards=False)):
            if tries == MOST_TRIES:
                break
            line = text[begin : min(end, begin + LONGEST)]
            if words in line and (seen.at is None or split(line)[0] == seen.at):
                return _message_at(text, begin)
    return None


def _message_at(text: str, begin: int) -> int:
    """Where the message begins of which a line is: the one before that has a time, the line itself where none near it has."""
    place = begin
    for _ in range(MOST_FURTHER + 2):
        if stamped(text[place : place + 200].partition("\n")[0]):
            return place
        if place == 0:
            break
        place = text.rfind("\n", 0, place - 1) + 1
    return begin


def _places(text: str, words: str, *, backwards: bool = True) -> Iterator[tuple[int, int]]:
    """Where the lines begin and end in which some words occur: the last ones, or with `backwards` off all from the first on."""
    place = text.find(words) if words else -1
    if backwards and place >= 0:
        place = _late_enough(text, words, place)
    while place >= 0:
        begin, end = text.rfind("\n", 0, place) + 1, text.find("\n", place)
        end = len(text) if end < 0 else end
        yield begin, end
        place = text.find(words, end)


def _late_enough(text: str, words: str, place: int) -> int:
    """Where the last so many occurrences begin."""
    if text.count(words) <= MOST_LINES:
        return place
    found = len(text)
    for _ in range(MOST_LINES):
        found = text.rfind(words, 0, found)
    return found
