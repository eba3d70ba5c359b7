"""What nvidia-smi lists under a line for each GPU: `-L` with its MIG devices, and `nvlink` with the links."""

import re
from typing import Any

from gpudoctor.facts.nvidia_smi_device import MOST_DEVICES, Draft
from gpudoctor.facts.nvidia_smi_values import is_bus_id
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge.nvidia_smi_texts import NOT_SUPPORTED
from gpudoctor.patterns import pattern

_MARK = pattern(r"^[ \t]{0,16}GPU \d{1,4}: [^\n]{1,200}?(?:\(UUID: |\n[ \t]{1,16}Link \d|\nNVML: )", re.MULTILINE)
_GPU = pattern(r"GPU (\d{1,4}): (.{1,128}?)(?: \(UUID: ([^)]{1,96})\))?")
_MIG = pattern(r"MIG (\S{1,64}) +Device +(\d{1,4}): \(UUID: ([^)]{1,128})\)")
_LINK = pattern(r"Link (\d{1,3}): (.{1,200})")
_SPEED = pattern(r"(\d{1,6}(?:\.\d{1,6})?) GB/s")
_REMOTE = pattern(r"(?:Remote Device )?([0-9A-Fa-f:]{10,16}\.[0-7])(?:: Link \d{1,3})?")
_COUNTER = pattern(r"([A-Za-z][\w /-]{1,60}): (\d{1,20})")

# nvidia-smi nvlink -e up to Hopper, and from Blackwell on (captures of drivers 535 and 595).
_COUNTERS = {
    "replay errors": "replay",
    "recovery errors": "recovery",
    "crc errors": "crc_flit",
    "symbol errors": "symbol",
    "effective errors": "effective",
    "link recovery failed events": "link_recovery_failed",
    "local link integrity errors": "local_integrity",
}
_NONE_ACTIVE = "links are inactive"
_NO_LINKS = ("not have or support nvlink", "nvlink queries are not supported")

ACTIVE_LINKS = "nvlink.active_links"


def is_list(text: str) -> bool:
    """Whether a text holds such lines."""
    return _MARK.search(text) is not None


def from_list(text: str, *, every_gpu: bool) -> dict[str, Any]:
    """The `data` of an answer; `every_gpu` where no option chose some. How many there are only `-L` says."""
    devices: dict[int, Draft] = {}
    device: Draft | None = None
    about_links = False
    for line in text.split("\n"):
        plain = line.strip()
        if len(plain) > 512 or not plain:
            continue
        if (gpu := _GPU.fullmatch(plain)) and int(gpu[1]) < MOST_DEVICES:
            device = devices.setdefault(int(gpu[1]), Draft(index=int(gpu[1])))
            device.take("@name", gpu[2], "GPU")
            device.take("@uuid", gpu[3] or "", "UUID")
        elif device is not None and (mig := _MIG.fullmatch(plain)):
            device.mig_devices.append({"index": int(mig[2]), "uuid": mig[3], "profile": mig[1]})
        elif device is not None:
            about_links = _take_link(device, plain) or about_links
    for listed in devices.values():
        _count_links(listed)
    data: dict[str, Any] = {"count": len(devices)} if every_gpu and not about_links else {}
    return {**data, "devices": [listed.finished(all_reasons=False) for listed in devices.values()]} if devices else {}


def _take_link(device: Draft, line: str) -> bool:
    """A line about one link, or about all; gives whether it is one."""
    small = line.lower()
    if found := _LINK.fullmatch(line):
        _take_of_link(device.nvlinks.setdefault(int(found[1]), {"link": int(found[1])}), found[2].strip())
    elif _NONE_ACTIVE in small:
        device.put(ACTIVE_LINKS, 0)
    elif any(words in small for words in _NO_LINKS):
        device.put(ACTIVE_LINKS, {"error": NOT_SUPPORTED})
    else:
        return False
    return True


def _take_of_link(link: dict[str, Any], text: str) -> None:
    """`26.562 GB/s`, `<inactive>`, `Remote Device 00000000:CD:00.0: Link 25`, `Replay Errors: 0`."""
    if speed := _SPEED.fullmatch(text):
        link["active"] = True
        link["megabytes_per_second"] = round(float(speed[1]) * 1000)
    elif text == "<inactive>":
        link["active"] = False
    elif (remote := _REMOTE.fullmatch(text)) and is_bus_id(remote[1]):
        link["remote_bus_id"] = remote[1]
    elif counter := _COUNTER.fullmatch(text):
        name, count = _COUNTERS.get(counter[1].lower()), decimal(counter[2])
        if name and count is not None:
            link.setdefault("errors", {})[name] = count


def _count_links(device: Draft) -> None:
    """Links are listed by their numbers, inactive ones too; a quotation may leave some out."""
    states = [link["active"] for link in device.nvlinks.values() if "active" in link]
    if states and set(device.nvlinks) == set(range(len(states))):
        device.put(ACTIVE_LINKS, sum(states))
