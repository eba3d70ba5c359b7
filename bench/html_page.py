"""What the HTML page costs over the run itself, as multiples of A: nodes of 8 sick GPUs, and of 64.

`run --format html` minus `run --details --format json`, which has looked at the same. The nodes of 64 GPUs are made in a temporary folder
from those of 8, each of whose devices is there in eight PCI domains. Exits with 1 when a limit is exceeded, or when a page lacks a GPU.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from counting import CommandFailed, Cost, Counter
from judging import judged
from plain_venv import ROOT

YARDSTICK = Path(__file__).with_name("yardstick.py")
NODES = ("nouveau-and-broken-daemon-json", "narrow-link-at-gpu")
DOMAINS = 8
MOST_TIMES_A = 15.0
MOST_TIMES_OF_8 = 6.0
MOST_BYTES_OF_8 = 400_000

PROGRAM = """
import sys
from gpudoctor import cli
code = cli.main(["run", "--node", sys.argv[1], "--details", "--format", sys.argv[2]])
sys.exit(0 if code in (1, 2) else f"a sick node ends with 1 or 2, not with {code}")
"""


def _measure(counter: Counter, folder: Path) -> list[str]:
    yardstick = counter.cost(YARDSTICK)
    program = folder / "page.py"
    program.write_text(PROGRAM, "utf-8")
    print(f"A is {YARDSTICK.relative_to(ROOT)} in the same plain environment; work in {counter.unit}\n")
    print(f"{'the page over the run':44}{'work':>9}{'times A':>10}{'limit':>8}{'VmHWM MiB':>12}{'kB':>8}")
    problems = []
    for name in NODES:
        fixture, many = ROOT / "fixtures" / "nodes" / name, folder / name
        multiply(fixture, many)
        few = _page(counter, program, fixture, 8)
        small = few.work
        _print_row(f"8 GPUs, {name}", few, yardstick.work, MOST_TIMES_A)
        if small > MOST_TIMES_A * yardstick.work:
            problems.append(
                f"the page of {name} costs {small / yardstick.work:.1f} times A, more than {MOST_TIMES_A:g}"
            )
        if few.size > MOST_BYTES_OF_8:
            problems.append(f"the page of {name} has {few.size} bytes, more than {MOST_BYTES_OF_8}")
        large = _page(counter, program, many, 8 * DOMAINS)
        _print_row("64 GPUs of that kind", large, yardstick.work, MOST_TIMES_OF_8 * small / yardstick.work)
        if large.work > MOST_TIMES_OF_8 * small:
            problems.append(f"64 GPUs cost {large.work / small:.1f} times 8, more than {MOST_TIMES_OF_8:g} ({name})")
    return problems


class _Page:
    """What a page costs beyond its run, the peak of both, and how many bytes it has."""

    def __init__(self, run: Cost, page: Cost, size: int) -> None:
        self.work = page.work - run.work
        self.peak_kibibytes = page.peak_kibibytes
        self.size = size


def _page(counter: Counter, program: Path, node: Path, gpus: int) -> _Page:
    page = counter.output(program, str(node), "html")
    told = set(re.findall(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", page.partition('id="gpus"')[2]))
    known = {gpu["address"] for gpu in json.loads(counter.output(program, str(node), "json"))["node"]["gpus"]}
    if len(known) != gpus or not known <= told:
        raise CommandFailed(f"{node.name}: {len(known)} GPUs, of which the page tells {len(known & told)}")
    run, whole = (counter.cost(program, str(node), form) for form in ("json", "html"))
    return _Page(run, whole, len(page))


def _print_row(name: str, page: _Page, yardstick: float, limit: float) -> None:
    memory = f"{page.peak_kibibytes / 1024:.1f}"
    ratio = page.work / yardstick
    print(f"{name:44}{page.work:9.1f}{ratio:10.2f}{limit:8.1f}{memory:>12}{page.size / 1000:8.0f}", flush=True)


# The node ------------------------------------------------------------------------------------------------------------


def multiply(fixture: Path, node: Path) -> None:
    """Write a node that has each PCI device of a recorded one in several domains, and what the driver has of each GPU."""
    for place in sorted(one for one in fixture.rglob("*") if one.is_file() and one.suffix != ".md"):
        path = str(place.relative_to(fixture))
        content = place.read_bytes()
        if place.parent in (fixture, fixture / "answers"):
            content = _told(place.name, content.decode("utf-8")).encode("utf-8")
        for domain in _domains(path):
            copy = node / _also(path, domain)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def _told(name: str, text: str) -> str:
    match name:
        case "entries.jsonl":
            return _lines(text)
        case "kernel.log":
            return "".join(_also(line, domain) for line in text.splitlines(True) for domain in _domains(line))
        case "nvml.json":
            return json.dumps(_nvml(json.loads(text)))
        case _:
            return text


def _domains(text: str) -> range:
    return range(DOMAINS if "0000:" in text else 1)


def _also(text: str, domain: int) -> str:
    """The same of the device at that address in another domain, and of the GPU with another minor."""
    text = re.sub(r"\b0000(?=:[0-9a-f]{2}\b)", f"{domain:04x}", text)
    text = re.sub(r"(Device Minor:[ \\t]*)(\d+)", lambda found: f"{found[1]}{int(found[2]) + 8 * domain}", text)
    text = re.sub(r"GPU-[0-9a-f]{2}", f"GPU-{domain:02x}", text) if domain else text
    return re.sub(r"(/dev/nvidia|\.\./nvidia|/dev/char/195:|\"minor\": )([0-7])\b", _moved(domain), text)


def _moved(domain: int) -> Any:
    return lambda found: f"{found[1]}{int(found[2]) + 8 * domain}"


def _lines(text: str) -> str:
    lines: dict[str, None] = {}
    for line in text.splitlines():
        entry = json.loads(line)
        node = re.fullmatch(r"/dev/(?:nvidia|char/195:)[0-7]", entry["path"])
        for domain in range(DOMAINS if node or "0000:" in entry["path"] else 1):
            lines[_also(line, domain)] = None
    return "".join(f"{line}\n" for line in lines)


def _nvml(answer: dict[str, Any]) -> dict[str, Any]:
    """What NVML says of all of them, every two being as near to each other as the first two."""
    data = answer["data"]
    if not data.get("devices"):
        return answer
    devices = data["devices"]
    more = [
        {
            **device,
            "index": device["index"] + len(devices) * domain,
            "minor": device["minor"] + len(devices) * domain,
            "pci_bus_id": device["pci_bus_id"].replace("0000:", f"{domain:04x}:", 1),
            "uuid": f"GPU-{domain:02x}{device['uuid'][6:]}" if domain else device["uuid"],
            "serial": f"{domain}{device['serial'][1:]}",
        }
        for domain in range(DOMAINS)
        for device in devices
    ]
    data |= {"count": len(more), "devices": more}
    if pairs := data.get("system", {}).get("topology"):
        path, numbers = pairs[0]["path"], range(len(more))
        data["system"]["topology"] = [
            {"from": f"GPU{one}", "to": f"GPU{other}", "path": path}
            for one in numbers
            for other in numbers
            if one < other
        ]
    return answer


if __name__ == "__main__":
    sys.exit(judged(__doc__, _measure))
