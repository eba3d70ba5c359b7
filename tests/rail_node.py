"""A server with eight rails: below each PCIe switch a GPU and an InfiniBand adapter, four switches on each of two sockets."""

from collections.abc import Iterable
from typing import Any

from gpudoctor.facts.raw import Answer, Entry, EntryType, Log
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import DEVICES, Builder, diagnose

BUSES = ("10", "20", "30", "40", "80", "90", "a0", "b0")
GPUS = tuple(f"0000:{bus[0]}4:00.0" for bus in BUSES)
ADAPTERS = tuple(f"0000:{bus[0]}3:00.0" for bus in BUSES)
NAMES = tuple(f"mlx5_{number}" for number in range(8))
COUNTERS = (
    "link_downed",
    "symbol_error",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
COMPLETE = (
    DEVICES,
    "/dev",
    "/sys/class/infiniband",
    "/sys/class/infiniband_verbs",
    "/sys/devices/system/node",
    "/sys/devices/system/cpu",
    "/proc/driver/nvidia",
)
BOOT = 36000.0


class RailNode(Builder):
    """Everything is right until a test changes it. `rails` of the eight have an adapter; `per_switch` GPUs are below each."""

    def __init__(self, rails: Iterable[int] = range(8), *, layer: str = "InfiniBand", gpus: int = 8) -> None:
        super().__init__()
        self.log = ""
        self.complete = list(COMPLETE)
        self.topology: list[dict[str, Any]] = []
        self.devices: list[dict[str, Any]] = []
        for at in range(gpus):
            self.switch(at)
            self.gpu(at)
        for at in rails:
            self.adapter(at, layer=layer)
        self.numa(0, "0-31")
        self.numa(1, "32-63")
        self.text("/sys/devices/system/node/has_memory", "0-1\n")
        self.text("/sys/devices/system/cpu/present", "0-63\n")
        self.text("/sys/devices/system/cpu/online", "0-63\n")
        self.text("/sys/devices/system/cpu/offline", "\n")
        for first, cpus in ((0, "0-31"), (32, "32-63")):
            folder = f"/sys/devices/system/cpu/cpu{first}/topology"
            self.text(f"{folder}/core_siblings_list", f"{cpus}\n")
            self.text(f"{folder}/physical_package_id", f"{first // 32}\n")
        self.text("/proc/uptime", f"{BOOT:.2f} 1000.00\n")
        self.text("/proc/cpuinfo", "flags\t\t: fpu vme\n")
        self.text("/proc/devices", "Character devices:\n195 nvidia\n231 infiniband_verbs\n\nBlock devices:\n")
        self.char("/dev/kmsg", 1, 11)

    def place(self, address: str) -> str:
        """Where a function lies below /sys/devices."""
        record = self.tree.records[f"{DEVICES}/{address}"]
        assert record.entry is not None and record.entry.to is not None
        return f"/sys{record.entry.to.removeprefix('../../..')}"

    def put(self, address: str, place: str, driver: str | None, numa: int, **files: str) -> None:
        """A function with its link of sixteen lanes."""
        self.function(address, place, driver)
        widths = {"current_link_width": "16", "max_link_width": "16"}
        speeds = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
        for name, value in {"numa_node": str(numa), **widths, **speeds, **files}.items():
            self.text(f"{place}/{name}", f"{value}\n")

    def switch(self, at: int) -> None:
        """A root port, and a switch with a port for an adapter and one for a GPU."""
        bus = BUSES[at]
        root, upper = f"0000:{bus}:01.0", f"0000:{bus[0]}1:00.0"
        top = f"/sys/devices/pci0000:{bus}/{root}"
        places = [(root, top), (upper, f"{top}/{upper}")]
        places += [(f"0000:{bus[0]}2:0{n}.0", f"{top}/{upper}/0000:{bus[0]}2:0{n}.0") for n in range(2)]
        for address, place in places:
            self.put(address, place, "pcieport", at // 4, vendor="0x1000", device="0xc030", **{"class": "0x060400"})

    def below(self, at: int, port: int) -> str:
        """The place of a lower port of a switch."""
        return self.place(f"0000:{BUSES[at][0]}2:0{port}.0")

    def gpu(self, at: int) -> None:
        """The GPU below a switch."""
        ids = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}
        address = GPUS[at]
        self.put(address, f"{self.below(at, 1)}/{address}", "nvidia", at // 4, **ids)
        self.text(f"{self.place(address)}/power/runtime_status", "active\n")

    def adapter(self, at: int, name: str = "", address: str = "", *, layer: str = "InfiniBand", below: str = "") -> str:
        """An adapter below a switch, or elsewhere, its port, and the device node that programs open."""
        name, address = name or NAMES[at], address or ADAPTERS[at]
        ids = {"vendor": "0x15b3", "device": "0x1021", "class": "0x020700"}
        self.put(address, f"{below or self.below(at, 0)}/{address}", "mlx5_core", at // 4, **ids)
        place = self.place(address)
        self.link(f"/sys/class/infiniband/{name}", f"../../{place.removeprefix('/sys/')}/infiniband/{name}")
        folder = f"{place}/infiniband/{name}"
        self.text(f"{folder}/board_id", "MT_0000000838\n")
        port = f"{folder}/ports/1"
        told = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": layer}
        for file, value in {**told, **{f"counters/{counter}": "0" for counter in COUNTERS}}.items():
            self.text(f"{port}/{file}", f"{value}\n")
        number = int(name.removeprefix("mlx5_"))
        verbs = f"uverbs{number}"
        self.link(
            f"/sys/class/infiniband_verbs/{verbs}", f"../../{place.removeprefix('/sys/')}/infiniband_verbs/{verbs}"
        )
        self.text(f"{place}/infiniband_verbs/{verbs}/dev", f"231:{192 + number}\n")
        self.char(f"/dev/infiniband/{verbs}", 231, 192 + number)
        return address

    def port(self, at: int, **files: str) -> "RailNode":
        """Other words in the files of an adapter's port; `counters` by their own names."""
        for name, value in files.items():
            path = f"counters/{name}" if name in COUNTERS else name
            self.text(f"{self.place(ADAPTERS[at])}/infiniband/{NAMES[at]}/ports/1/{path}", f"{value}\n")
        return self

    def down(self, at: int) -> "RailNode":
        """A port without a link."""
        return self.port(at, state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")

    def function_file(self, address: str, **files: str) -> "RailNode":
        """Other words in the files of a function."""
        for name, value in files.items():
            self.text(f"{self.place(address)}/{name}", f"{value}\n")
        return self

    def numa(self, number: int, cpus: str) -> None:
        """A NUMA node with its CPUs."""
        folder = f"/sys/devices/system/node/node{number}"
        self.text(f"{folder}/cpulist", f"{cpus}\n")
        self.text(f"{folder}/distance", "10 21\n" if number == 0 else "21 10\n")

    def char(self, path: str, major: int, minor: int) -> None:
        """A character device."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.CHAR, 0o666, 0, 0, major=major, minor=minor)))

    def removed(self, beginning: str) -> "RailNode":
        """Whatever lies at and below a path, and whatever else begins with the same letters, is gone."""
        for path in [path for path in self.tree.records if path.startswith(beginning)]:
            self.tree.records.pop(path)
        for names in [names for folder, names in self.tree.children.items() if beginning.startswith(folder)]:
            names.clear()
        for path, record in list(self.tree.records.items()):
            self.tree.put(path, record)
        for folder in [folder for folder in self.tree.children if folder.startswith(beginning)]:
            self.tree.children.pop(folder)
        return self

    def hidden(self, path: str) -> "RailNode":
        """Something that the reader may not see."""
        self.tree.put(path, Record(error="EACCES"))
        return self

    def process(self, pid: int, gpu: int, cpus: str, memory: str = "0-1") -> "RailNode":
        """A process that NVML lists on a GPU."""
        self.text(f"/proc/{pid}/status", f"Name:\tpython\nCpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{memory}\n")
        self.answer()
        running = {"pid": pid, "kind": "compute", "used_bytes": 1 << 30, "name": "python"}
        self.devices[gpu]["processes"].append(running)
        return self

    def answer(self) -> "RailNode":
        """NVML answers for every GPU."""
        self.devices = self.devices or [
            {"index": at, "pci_bus_id": f"0000{address.upper()}", "uuid": f"GPU-{at}", "minor": at, "processes": []}
            for at, address in enumerate(GPUS)
        ]
        return self

    def nvlinks(self, path: str = "NV18", **others: str) -> "RailNode":
        """All pairs joined alike, but those of a GPU that is named: `GPU3="NV16"`."""
        self.answer()
        for one in range(8):
            for other in range(one + 1, 8):
                word = others.get(f"GPU{one}") or others.get(f"GPU{other}") or path
                self.topology.append({"from": f"GPU{one}", "to": f"GPU{other}", "path": word})
        return self

    def recorded(self) -> RecordedNode:
        """The node."""
        recorded = RecordedNode(self.tree, complete=tuple(self.complete), uid=0)
        recorded.logs["kernel.log"] = Log("kernel.log", self.log, source="kmsg", from_boot=True)
        if self.devices:
            data = {"init": 0, "count": 8, "devices": self.devices, "system": {"topology": self.topology}}
            recorded.answers["nvml"] = Answer(data=data)
        return recorded

    def report(self) -> Report:
        """What the doctor says."""
        return diagnose(self.recorded())

    def findings(self, check: str) -> list[Finding]:
        """All findings of a check, which must not have crashed."""
        result = self.report().result(check)
        assert result.why != "crashed", result.detail
        return list(result.findings)

    def warned(self, check: str) -> list[Finding]:
        """Its warns and fails."""
        return [one for one in self.findings(check) if one.status in (Status.WARN, Status.FAIL)]

    def alarmed(self) -> list[str]:
        """The ids of all warns and fails about the topology."""
        return [
            finding.id
            for result in self.report().results
            if result.check.startswith("topology.")
            for finding in result.findings
            if finding.status in (Status.WARN, Status.FAIL)
        ]
