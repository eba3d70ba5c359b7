"""What the topology of a large node costs, as multiples of A: 64 GPUs, 64 network adapters and 400 PCI functions, matrix and drawing.

Makes the node in a temporary folder as files of sysfs with NVML's answer beside them, every two GPUs being joined by NVLinks. A whole
`gpudoctor topo --format svg`, its checks among it, and the graph with its matrix alone. Exits with 1 when a limit is exceeded or when
something of the node is missing in the result.
"""

import json
import sys
from pathlib import Path

from counting import CommandFailed, Cost, Counter
from judging import judged
from plain_venv import ROOT

YARDSTICK = Path(__file__).with_name("yardstick.py")
GPUS = 64
FUNCTIONS = 400
SWITCHES = 32
MOST_TIMES_A = 8.0
PEAK_LIMIT_KIBIBYTES = 60 * 1024
DRIVER = "580.95.05"

PROGRAM = """
import datetime, sys
from gpudoctor.config import Config
from gpudoctor.reports import json, topo_svg
from gpudoctor.sources.opening import open_source
from gpudoctor.topo_run import topo
judge = sys.argv[2] == "judged"
found = topo(open_source(sys.argv[1]), Config(), datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc), judge=judge)
drawn = topo_svg.render(found)
print(len(found.of_kind("gpu")), len(found.of_kind("nic")), len(found.functions), sum(len(row.cells) for row in found.matrix))
print(drawn.count('class="box gpu'), drawn.count('class="box nic'), len(drawn), len(found.nvlinks))
"""
FORMS = ("plain", "judged")


def _measure(counter: Counter, folder: Path) -> list[str]:
    yardstick = counter.cost(YARDSTICK)
    node, program = folder / "node", folder / "topo.py"
    make_node(node)
    program.write_text(PROGRAM, "utf-8")
    print(f"A is {YARDSTICK.relative_to(ROOT)} in the same plain environment; work in {counter.unit}\n")
    print(f"{'':34}{'work':>9}{'times A':>10}{'limit':>8}{'VmHWM MiB':>12}{'wall ms':>10}")
    problems = []
    for form in FORMS:
        words = counter.output(program, str(node), form).split()
        wanted = [GPUS, GPUS, FUNCTIONS, (2 * GPUS) ** 2, GPUS, GPUS]
        if [int(word) for word in words[:6]] != wanted or int(words[7]) != GPUS * (GPUS - 1) // 2:
            raise CommandFailed(f"of {wanted} it found {words}")
        cost = counter.cost(program, str(node), form)
        limit = MOST_TIMES_A if form == "plain" else None
        what = "graph, matrix and drawing" if form == "plain" else "with the checks of its links"
        _print_row(what, cost, yardstick, limit)
        if limit is not None and cost.work > limit * yardstick.work:
            problems.append(f"{what} cost {cost.work / yardstick.work:.2f} times A, more than {limit:g}")
        if cost.peak_kibibytes > PEAK_LIMIT_KIBIBYTES:
            problems.append(f"{what} take {cost.peak_kibibytes} KiB, more than {PEAK_LIMIT_KIBIBYTES}")
    return problems


def _print_row(name: str, cost: Cost, yardstick: Cost, limit: float | None) -> None:
    most = f"{limit:.1f}" if limit is not None else "-"
    memory, wall = f"{cost.peak_kibibytes / 1024:.1f}", f"{cost.wall_seconds * 1e3:.0f}"
    print(f"{name:34}{cost.work:9.1f}{cost.work / yardstick.work:10.2f}{most:>8}{memory:>12}{wall:>10}", flush=True)


# The node ------------------------------------------------------------------------------------------------------------


def make_node(node: Path) -> None:
    """Two sockets, a host bridge for each switch, below it two GPUs, two adapters and a drive, and what else a bus has."""
    sysfs, entries = _Sysfs(node), [{"path": "/sys/class/infiniband", "type": "dir"}]
    for number in range(SWITCHES):
        entries += _switch(sysfs, number)
    rest = FUNCTIONS - SWITCHES * (2 + 5 + 5)
    for number in range(rest):
        entries.append(sysfs.function(f"0001:00:{number:02x}.0", ("pci0001:00",), "088000", 0))
    for number in range(2):
        sysfs.text(f"/sys/devices/system/node/node{number}/cpulist", f"{number * 64}-{number * 64 + 63}")
        sysfs.text(f"/sys/devices/system/node/node{number}/distance", "10 21" if number == 0 else "21 10")
        for cpu in range(number * 64, number * 64 + 64):
            sysfs.text(
                f"/sys/devices/system/cpu/cpu{cpu}/topology/core_siblings_list", f"{number * 64}-{number * 64 + 63}"
            )
            sysfs.text(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", str(number))
    sysfs.text("/sys/devices/system/cpu/online", "0-127")
    sysfs.text(
        "/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Release Build"
    )
    (node / "answers").mkdir()
    answer = {"schema": 1, "via": "NVML", "data": _nvml()}
    (node / "answers" / "nvml.json").write_text(json.dumps(answer), "utf-8")
    manifest = {"format": 1, "recorded_at": "2026-11-29T12:00:00Z", "uid": 0, "complete": ["/sys", "/proc/driver"]}
    (node / "snapshot.json").write_text(json.dumps(manifest), "utf-8")
    (node / "entries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in entries), "utf-8")


class _Sysfs:
    def __init__(self, node: Path) -> None:
        self._root = node / "root"

    def text(self, path: str, text: str) -> None:
        place = self._root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n", "utf-8")

    def function(
        self, address: str, above: tuple[str, ...], code: str, numa: int, vendor: str = "8086"
    ) -> dict[str, str]:
        folder = f"/sys/devices/{'/'.join(above)}/{address}"
        values = {"class": f"0x{code}", "vendor": f"0x{vendor}", "device": "0x2330", "numa_node": str(numa)}
        for end in ("current", "max"):
            values |= {f"{end}_link_speed": "32.0 GT/s PCIe", f"{end}_link_width": "16"}
        for name, value in values.items():
            self.text(f"{folder}/{name}", value)
        return {
            "path": f"/sys/bus/pci/devices/{address}",
            "type": "link",
            "to": f"../../..{folder.removeprefix('/sys')}",
        }


def _addresses(number: int) -> tuple[str, str, str]:
    """Of a switch: its host bridge, the port above it and its own upper port."""
    bus = number * 8
    return f"pci0000:{bus:02x}", f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"


def _gpu_address(number: int) -> str:
    return f"0000:{number // 2 * 8 + 3 + number % 2:02x}:00.0"


def _switch(sysfs: _Sysfs, number: int) -> list[dict[str, str]]:
    root, port, upper = _addresses(number)
    numa, bus = number * 2 // SWITCHES, number * 8
    entries = [
        sysfs.function(port, (root,), "060400", numa),
        sysfs.function(upper, (root, port), "060400", numa, "1000"),
    ]
    kinds = (("030200", "10de"), ("030200", "10de"), ("020700", "15b3"), ("020700", "15b3"), ("010802", "144d"))
    for slot, (code, vendor) in enumerate(kinds):
        lower, end = f"0000:{bus + 2:02x}:{slot:02x}.0", f"0000:{bus + 3 + slot:02x}:00.0"
        entries.append(sysfs.function(lower, (root, port, upper), "060400", numa, "1000"))
        way = (root, port, upper, lower)
        entries.append(sysfs.function(end, way, code, numa, vendor))
        if code == "030200":
            entries.append({"path": f"/sys/bus/pci/devices/{end}/driver", "type": "link", "to": "../nvidia"})
        if code == "020700":
            name = f"mlx5_{number * 2 + slot - 2}"
            to = f"../../devices/{'/'.join(way)}/{end}/infiniband/{name}"
            entries.append({"path": f"/sys/class/infiniband/{name}", "type": "link", "to": to})
    return entries


def _nvml() -> dict[str, object]:
    devices = [
        {
            "index": number,
            "pci_bus_id": f"0000{_gpu_address(number).upper()}",
            "uuid": f"GPU-00000000-0000-0000-0000-{number:012x}",
            "name": "NVIDIA H100 80GB HBM3",
            "fields": {"nvlink.active_links": 18},
        }
        for number in range(GPUS)
    ]
    pairs = [
        {"from": f"GPU{one}", "to": f"GPU{other}", "path": "NV18"}
        for one in range(GPUS)
        for other in range(one + 1, GPUS)
    ]
    versions = {"driver_version": DRIVER, "cuda_driver_version": 13000, "init": 0, "count": GPUS}
    return {**versions, "devices": devices, "system": {"topology": pairs}}


if __name__ == "__main__":
    sys.exit(judged(__doc__, _measure))
