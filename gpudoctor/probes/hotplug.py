"""GPUs and NVSwitches that come or go while somebody watches: `python -m gpudoctor.probes.hotplug` prints a JSON line for each.

It listens to the kernel's own uevents, which need neither udevd nor a privilege (NETLINK_KOBJECT_UEVENT, lib/kobject_uevent.c), opens no
device and asks for nothing. Lines have a `kind`: `watching` once, `event` with `action`, `address` and `device`, `lost` where events came
faster than they were read, and `unavailable` with `why`, after which it ends.
"""

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

NVIDIA = "10DE"
ACTIONS = ("add", "remove", "bind", "unbind")
"""A device comes and goes, and a driver takes and leaves it (drivers/base/core.c, dd.c)."""
# PCI classes as PCI_CLASS has them, in hex without leading zeros (pci_uevent, drivers/pci/pci-driver.c): display controllers are 03xxxx,
# NVSwitches bridges of another kind, 0680xx.
_KINDS = (("3", 5, "GPU"), ("680", 5, "NVSwitch"))
LOOK_SECONDS = 1.0
"""How often it is looked whether the one who reads is still there."""
UID_MAP = "/proc/self/uid_map"


class Device(Protocol):
    """What is read of pyudev's devices."""

    @property
    def action(self) -> str | None:
        """What happened to it."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """The words of the uevent."""
        ...


class Monitor(Protocol):
    """What is used of pyudev's monitors."""

    def poll(self, timeout: float | None = None) -> Device | None:
        """The next event, None when the time is over."""
        ...


class Unavailable(Exception):
    """Nothing can be noticed here, and why."""


def open_monitor(subsystem: str = "pci", uid_map: str = UID_MAP) -> Monitor:
    """The kernel's uevents of a subsystem. Raises Unavailable."""
    if why := _elsewhere(uid_map):
        raise Unavailable(why)
    try:
        import pyudev
    except ImportError as error:
        raise Unavailable(f"libudev cannot be loaded: {error}") from error
    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        monitor.filter_by(subsystem)
        monitor.start()
    except OSError as error:
        raise Unavailable(f"the kernel's events cannot be listened to: {error.strerror or error}") from error
    opened: Monitor = monitor
    return opened


def _elsewhere(uid_map: str) -> str:
    """Uevents reach only network namespaces of the first user namespace (uevent_net_init, lib/kobject_uevent.c)."""
    try:
        with open(uid_map, encoding="ascii") as file:
            whole = file.read().split() == ["0", "0", "4294967295"]
    except OSError:
        return ""
    return "" if whole else "the kernel sends its events to no user namespace of a container"


def told(device: Device) -> dict[str, Any] | None:
    """An event as it is printed; None for what is no GPU or NVSwitch that came or went.

    What somebody wrote to a `uevent` file, as `udevadm trigger` does at boot, happened to nobody: it has a SYNTH_UUID
    (Documentation/ABI/testing/sysfs-uevent).
    """
    words = device.properties
    if device.action not in ACTIONS or "SYNTH_UUID" in words:
        return None
    if words.get("PCI_ID", "").partition(":")[0].upper() != NVIDIA:
        return None
    code = words.get("PCI_CLASS", "")
    kind = next((name for begins, length, name in _KINDS if code.startswith(begins) and len(code) == length), None)
    if kind is None:
        return None
    address = words.get("PCI_SLOT_NAME", "").lower()
    return {
        "kind": "event",
        "action": device.action,
        "address": address,
        "device": kind,
        "driver": words.get("DRIVER", ""),
    }


def events(monitor: Monitor, wanted: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """What happens, as long as it is wanted."""
    while wanted():
        try:
            device = monitor.poll(LOOK_SECONDS)
        except OSError as error:
            # The socket's buffer ran over (netlink(7)): a node that boots its GPUs anew says much at once.
            if error.errno != errno.ENOBUFS:
                yield {"kind": "unavailable", "why": f"listening failed: {error.strerror or error}"}
                return
            yield {"kind": "lost"}
            continue
        if device is not None and (event := told(device)) is not None:
            yield event


def main() -> int:
    """Print until nobody reads any more."""
    parent = os.getppid()
    try:
        monitor = open_monitor()
    except Unavailable as error:
        _say({"kind": "unavailable", "why": str(error)})
        return 0
    try:
        _say({"kind": "watching"})
        for event in events(monitor, lambda: os.getppid() == parent):
            _say({**event, "at": time.time()})
    except BrokenPipeError:
        # Nobody reads: Python must not complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _say(words: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
