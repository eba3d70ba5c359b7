"""What this process may see of the node, look by look: run as a program with less and less capabilities, to tell what each is for.

`python -m tests.capability_view PID FILE`: PID is a process of another user, FILE one that only another user may read. Prints JSON.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from gpudoctor.facts.raw import Question
from gpudoctor.probes.bpf import look_at_device_programs
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.kernel_log import read_kernel_log
from gpudoctor.probes.nvml_worker import enter
from gpudoctor.sources.live import Live
from gpudoctor.verdicts import Unread


def looks(pid: int, private: str) -> dict[str, Callable[[], object]]:
    """Each look by its name; it saw when what it gives is true."""
    live = Live(Deadline(20))
    return {
        "kernel log": lambda: not isinstance(read_kernel_log("/", Deadline(5)), Unread),
        "PCI registers": lambda: any(len(_start(path)) > 64 for path in DEVICES),
        "device programs": _sees_programs,
        "kernel stack": lambda: "0x" in getattr(live.read(f"/proc/{pid}/stack"), "text", ""),
        "files of others": lambda: "secret" in getattr(live.read(private), "text", ""),
        "environment": lambda: hasattr(live.read(f"/proc/{pid}/environ"), "text"),
        "open files": lambda: _sees_links(f"/proc/{pid}/fd"),
        "namespaces": lambda: _sees_links(f"/proc/{pid}/ns"),
        "files in a container": lambda: not isinstance(live.entry(f"/proc/{pid}/root/etc"), Unread),
        "driver in a container": lambda: enter("/") is None,
    }


def _start(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(256)


def _sees_links(folder: str) -> bool:
    try:
        return all(os.readlink(f"{folder}/{name}") for name in os.listdir(folder))
    except PermissionError:
        return False


def _sees_programs() -> bool:
    group = next(str(path) for path in GROUPS if (path / "cgroup.controllers").exists())
    answer = look_at_device_programs(Question("cgroup_devices", {"cgroups": [group]}))
    return answer.data["cgroups"][group]["error"] is None


DEVICES = tuple(Path("/sys/bus/pci/devices").glob("*/config"))
GROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


def main() -> None:
    """Print what is seen."""
    seen = {name: bool(look()) for name, look in looks(int(sys.argv[1]), sys.argv[2]).items()}
    sys.stdout.write(json.dumps(seen, indent=1) + "\n")


if __name__ == "__main__":
    os.chdir("/")
    main()
