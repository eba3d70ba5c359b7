"""lspci's text as sysfs would show the bus: the functions, their places, links, memory regions and configuration space.

What stands where: lspci.c, ls-kernel.c, ls-caps.c, ls-ecaps.c and ls-tree.c of pciutils. Error status registers are not translated: the
kernel clears what it has counted, so that they tell nothing of its counters.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.pci_config import HEADER_BYTES
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.patterns import pattern
from gpudoctor.sources.lspci_details import Details, details_of
from gpudoctor.sources.recorded import Record, Tree

DEVICES = "/sys/bus/pci/devices"
GROUPS = "/sys/kernel/iommu_groups"
NVIDIA = "10de"
BRIDGE = "0604"

MAX_LINE = 1000
"""lspci's longest lines have some 200 characters; patterns are not tried on more."""
MAX_DEPTH = 32
"""More bridges above a function than any bus has: a path that goes on leads in circles."""
MAX_FUNCTIONS = 4096
"""As many functions of one machine are kept, virtual ones included."""

_ADDRESS = r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# "0000:65:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102GL [RTX A5000] [10de:2231] (rev a1)"; the domain is
# printed only where there is more than one, or with -D.
_HEAD = pattern(rf"^({_ADDRESS}) (\S.*)$")
_IDS = pattern(r"^.*?\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]")
# A name that is too long ends in dots, and with it the ids (pci_lookup_name in names.c): "… NVIDIA Corporation GA102 [GeFor... (rev a1)".
_CUT_IDS = r"^.*?\[([0-9a-f]{4})\]: (.*)\.\.\."
# Where lspci is missing, nvidia-bug-report.sh prints sysfs' own words: "0000:65:00.0 030000: Vendor 10de Device 2231 (rev a1)".
_DUMPED_IDS = r"^([0-9a-f]{4})([0-9a-f]{2}): Vendor ([0-9a-f]{4}) Device ([0-9a-f]{4}) "
_INTERFACE = "(prog-if "
_FUNCTION = rf"\n(?={_ADDRESS} )"

# "-+-[0000:64]-+-00.0-[65]--+-00.0": a root bus, and a bridge with the buses behind it. Older versions print the domain of both or of none.
_ROOT_OR_BRIDGE = (
    r"([0-9a-f]{2}\.[0-7])-\[(?:[0-9a-f]{4,8}:)?([0-9a-f]{2})(?:-([0-9a-f]{2}))?\]"
    r"|-\[(?:([0-9a-f]{4,8}):)?([0-9a-f]{2})\]-"
)


class Options:
    """What an lspci command prints: a tree, ids, functions as blocks of lines, drivers; and whether of a part of the bus only."""

    def __init__(self, command: str) -> None:
        """`command` is the command line without the program's folder; another program's is taken for blocks of lines."""
        words = [word for word in command.split() if word.startswith("-")]
        letters = "".join(words)
        self.tree = "t" in letters
        self.numeric = letters.count("n") > 1 or not command.startswith("lspci")
        self.verbose = "v" in letters
        self.blocks = not self.tree and (self.verbose or "x" in letters or not command.startswith("lspci"))
        self.drivers = "k" in letters
        self.filtered = any(word[1:2] in ("d", "s") for word in words)


class Ids(Struct, frozen=True):
    """What a function is; `class_code` has base, sub class and programming interface, `device` is empty where it was cut off."""

    class_code: str
    vendor: str
    device: str
    origin: str


class Bus:
    """The functions that one or several outputs of lspci of one machine tell of; the first word on each thing counts."""

    def __init__(self) -> None:
        self._ids: dict[str, Ids] = {}
        self._details: dict[str, Details] = {}
        self._bridges: dict[str, str] = {}
        self._nameless: set[str] = set()
        self._overfull = False
        self._roots_known = False
        self._groups_known = False
        self.listing_origin = ""
        """The command that listed every function of the bus; empty where none did."""

    def take(self, command: str, text: str, *, whole: bool = True) -> None:
        """Take one output of `command`, as in "lspci -nnvv"; `whole` says that nothing is missing at its end."""
        if Options(command).tree:
            self.take_tree(text)
        else:
            self.take_functions(command, text)
            self.take_end(command, whole=whole)

    def take_functions(self, command: str, text: str) -> None:
        """Take part of an output that lists functions: any number of them, each as a whole."""
        options = Options(command)
        if not options.blocks and not options.drivers:
            for line in text.split("\n"):
                self._take_head(command, line[:MAX_LINE], numeric=options.numeric)
        for block in text.split("\n\n") if options.blocks else re.split(_FUNCTION, text) if options.drivers else ():
            self._take_block(command, block.strip("\n"), options)

    def take_end(self, command: str, *, whole: bool) -> None:
        """The output ends here."""
        options = Options(command)
        lists_all = whole and not options.filtered and not self._overfull
        if lists_all and self._ids and self._nameless <= self._ids.keys():
            self.listing_origin = self.listing_origin or command
            self._groups_known = self._groups_known or options.verbose
            self._roots_known = self._roots_known or options.verbose

    def take_tree(self, text: str) -> None:
        """The output of `lspci -t` with any other options: which bridge leads to which buses."""
        domain = ""
        found: dict[str, list[tuple[int, int, str]]] = {}
        roots: dict[str, list[int]] = {}
        for match in re.finditer(_ROOT_OR_BRIDGE, text):
            if match[5]:
                domain = match[4] or "0000"
                roots.setdefault(domain, []).append(int(match[5], 16))
            elif domain:
                first, last = int(match[2], 16), int(match[3] or match[2], 16)
                found.setdefault(domain, []).append((first, -last, match[1]))
        for domain, bridges in found.items():
            self._take_bridges(domain, roots[domain], bridges)
        self._roots_known = self._roots_known or bool(roots)

    def _take_bridges(self, domain: str, roots: list[int], bridges: list[tuple[int, int, str]]) -> None:
        """A bridge is on the first bus of the narrowest range around its own, else on the root bus before it."""
        around: list[tuple[int, int]] = []
        for first, negative_last, place in sorted(bridges):
            while around and first > around[-1][1]:
                around.pop()
            above = around[-1][0] if around else max((root for root in roots if root <= first), default=0)
            self._bridges.setdefault(f"{domain}:{first:02x}", f"{domain}:{above:02x}:{place}")
            around.append((first, -negative_last))

    @property
    def lists_nvidia_module(self) -> bool | None:
        """Whether lspci found an nvidia module on disk for a GPU ("Kernel modules:"); None where it looked for none."""
        looked = [details.modules for details in self._details.values() if details.modules]
        names = {name for modules in looked for name in modules.split(", ")}
        return any(name == "nvidia" or name.startswith("nvidia_") for name in names) if looked else None

    def put(self, tree: Tree) -> None:
        """Record the bus. Nothing is recorded of a function whose vendor is not known."""
        if self.listing_origin:
            entry = Entry(DEVICES, EntryType.DIR, origin=self.listing_origin)
            tree.put(DEVICES, Record(entry=entry, origin=self.listing_origin))
        for address, ids in self._ids.items():
            base = self.place(address)
            if base != f"{DEVICES}/{address}":
                link = Entry(
                    f"{DEVICES}/{address}",
                    EntryType.LINK,
                    to=f"../../..{base.removeprefix('/sys')}",
                    origin=self._place_origin(address),
                )
                tree.put(link.path, Record(entry=link, origin=link.origin))
            _put_ids(tree, base, ids)
            if address in self._details:
                _put_details(tree, base, self._details[address])
        self._put_virtual_functions(tree)
        if self._groups_known:
            self._put_groups(tree)

    def place(self, address: str) -> str:
        """The directory that sysfs would have for a function: below the bridges above it, where those are known."""
        if not self._roots_known or address not in self._ids:
            return f"{DEVICES}/{address}"
        way = [address]
        while (bus := way[-1].rpartition(":")[0]) in self._bridges:
            way.append(self._bridges[bus])
            if len(way) > MAX_DEPTH:
                return f"{DEVICES}/{address}"
        return f"/sys/devices/pci{bus}/{'/'.join(reversed(way))}"

    def _place_origin(self, address: str) -> str:
        details = self._details.get(address)
        return details.origin if details else self._ids[address].origin

    def _take_head(self, command: str, line: str, *, numeric: bool) -> str | None:
        """Note what the first line of a function says; gives its address. Without `numeric` there may be a class, but no ids."""
        head = _HEAD.match(line)
        if head is None:
            return None
        if len(self._ids) + len(self._nameless) >= MAX_FUNCTIONS and _full(head[1]) not in self._ids:
            self._overfull = True
            return None
        address = _full(head[1])
        ids = _ids_of(head[2], command) if numeric and address not in self._ids else None
        if ids is not None:
            self._ids[address] = ids
        elif address not in self._ids and not (numeric and re.match(_CUT_IDS, head[2])):
            self._nameless.add(address)
        return address

    def _take_block(self, command: str, block: str, options: Options) -> None:
        head, _, rest = block.partition("\n")
        address = self._take_head(command, head[:MAX_LINE], numeric=options.numeric)
        if address is None or address in self._details:
            return
        ids = self._ids.get(address)
        wanted = ids is None or ids.vendor == NVIDIA or ids.class_code.startswith(BRIDGE)
        details = details_of(rest, command, wanted=wanted, shows_drivers=options.drivers)
        self._details[address] = details
        completed = _completed(ids, details.config, command)
        if completed is not None:
            self._ids[address] = completed
        if details.secondary:
            self._bridges.setdefault(f"{address.partition(':')[0]}:{details.secondary}", address)

    def _put_virtual_functions(self, tree: Tree) -> None:
        """A virtual function's routing id follows from its physical one's (PCI Express Base Specification, First VF Offset)."""
        for address, details in self._details.items():
            for virtual in _virtual_functions(address, details):
                if virtual in self._ids:
                    path = f"{self.place(virtual)}/physfn"
                    entry = Entry(path, EntryType.LINK, to=f"../{address}", origin=details.origin)
                    tree.put(path, Record(entry=entry, origin=details.origin))

    def _put_groups(self, tree: Tree) -> None:
        """Only where every function was shown: a group goes to a virtual machine as a whole."""
        for address, details in self._details.items():
            if details.iommu_group and address in self._ids:
                group = f"{GROUPS}/{details.iommu_group}"
                _put_link(tree, f"{self.place(address)}/iommu_group", group, details.origin)
                _put_link(tree, f"{group}/devices/{address}", self.place(address), details.origin)


def _full(address: str) -> str:
    """An address with its domain."""
    return address if address.count(":") == 2 else f"0000:{address}"


def _ids_of(words: str, origin: str) -> Ids | None:
    interface = words.partition(_INTERFACE)[2][:2]
    # A function that does not answer reads as all ones; sysfs keeps what it read before.
    interface = interface if interface and interface != "ff" else "00"
    if found := _IDS.match(words):
        return Ids(found[1] + interface, found[2], found[3], origin)
    if found := re.match(_DUMPED_IDS, words):
        return Ids(found[1] + found[2], found[3], found[4], origin)
    found = re.match(_CUT_IDS, words)
    nvidia = found is not None and found[2].lower().startswith("nvidia ")
    return Ids(found[1] + interface, NVIDIA, "", origin) if found is not None and nvidia else None


def _completed(ids: Ids | None, config: bytes, origin: str) -> Ids | None:
    """The ids with what was cut off or never printed, from the header of configuration space; None where it adds nothing."""
    if len(config) < HEADER_BYTES or config.startswith(b"\xff\xff") or (ids is not None and ids.device):
        return None
    vendor, device = config[1::-1].hex(), config[3:1:-1].hex()
    return Ids(ids.class_code if ids is not None else config[11:8:-1].hex(), vendor, device, origin)


def _virtual_functions(address: str, details: Details) -> Iterator[str]:
    count, offset, stride = details.virtual_functions
    domain, bus, place = address.split(":")
    device, _, function = place.partition(".")
    routing_id = int(bus, 16) << 8 | int(device, 16) << 3 | int(function)
    for number in range(min(count, 256)):
        found = routing_id + offset + stride * number & 0xFFFF
        yield f"{domain}:{found >> 8:02x}:{found >> 3 & 0x1F:02x}.{found & 7}"


def _put_ids(tree: Tree, base: str, ids: Ids) -> None:
    _put_text(tree, f"{base}/vendor", f"0x{ids.vendor}", ids.origin)
    _put_text(tree, f"{base}/class", f"0x{ids.class_code}", ids.origin)
    if ids.device:
        _put_text(tree, f"{base}/device", f"0x{ids.device}", ids.origin)
    else:
        _put(tree, f"{base}/device", Record(error=f"{ids.origin} cut its ids off", origin=ids.origin))


def _put_details(tree: Tree, base: str, details: Details) -> None:
    for name, text in details.attributes.items():
        _put_text(tree, f"{base}/{name}", text, details.origin)
    if details.config or details.nobody:
        content = details.config or b"\xff" * HEADER_BYTES
        _put_file(tree, f"{base}/config", content.decode("utf-8", "backslashreplace"), details.origin)
    if details.driver is not None:
        _put_driver(tree, base, details.driver, details.origin)


def _put_driver(tree: Tree, base: str, driver: str, origin: str) -> None:
    """The empty name stands for no driver at all."""
    path = f"{base}/driver"
    if driver:
        _put_link(tree, path, f"../../../bus/pci/drivers/{driver}", origin)
    else:
        _put(tree, path, Record(error="ENOENT", origin=origin))


def _put_link(tree: Tree, path: str, to: str, origin: str) -> None:
    _put(tree, path, Record(entry=Entry(path, EntryType.LINK, to=to, origin=origin), origin=origin))


def _put_text(tree: Tree, path: str, text: str, origin: str) -> None:
    _put_file(tree, path, text + "\n", origin)


def _put_file(tree: Tree, path: str, text: str, origin: str) -> None:
    _put(tree, path, Record(entry=Entry(path, EntryType.FILE, origin=origin), text=text, origin=origin))


def _put(tree: Tree, path: str, record: Record) -> None:
    if path not in tree.records:
        tree.put(path, record)
