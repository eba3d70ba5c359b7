"""Recorded nodes for `gpudoctor diff`: a fixture copied to a folder, at another time, after a boot, as another node."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpudoctor.testing import fixtures

BOOT_ID = "/proc/sys/kernel/random/boot_id"
HOSTNAME = "/proc/sys/kernel/hostname"
VERSION = "/proc/driver/nvidia/version"
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?=-)")


class DiffNode:
    """A copy of a fixture that can be changed file by file."""

    def __init__(self, name: str, place: Path) -> None:
        shutil.copytree(fixtures() / name, place, symlinks=True)
        self.place = place

    def manifest(self, **changes: Any) -> None:
        """Other values in snapshot.json."""
        path = self.place / "snapshot.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}))

    def text(self, path: str, text: str | None) -> None:
        """Another content of a file; None takes it away."""
        below = self.place / "root" / path.lstrip("/")
        below.unlink(missing_ok=True)
        lines = [one for one in self._entries() if one["path"] != path]
        entry = {"path": path, "error": "ENOENT"} if text is None else {"path": path, "type": "file", "text": text}
        self._write([*lines, entry])

    def forget(self, path: str) -> None:
        """As if nobody had looked at it, where the recording is not complete."""
        (self.place / "root" / path.lstrip("/")).unlink(missing_ok=True)
        self._write([one for one in self._entries() if one["path"] != path])
        manifest = json.loads((self.place / "snapshot.json").read_text("utf-8"))
        above = path.rpartition("/")[0]
        self.manifest(complete=[one for one in manifest["complete"] if not f"{path}/".startswith(f"{one}/")])
        self._write([{**one, "listed": False} if one["path"] == above else one for one in self._entries()])

    def gpu(self, index: int, **fields: Any) -> None:
        """Other fields of a GPU; dots are written as two underscores."""
        self.nvml(lambda data: data["devices"][index]["fields"].update(_dotted(fields)))

    def nvml(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Another answer of NVML."""
        path = self.place / "answers" / "nvml.json"
        answer = json.loads(path.read_text("utf-8"))
        change(answer["data"])
        path.write_text(json.dumps(answer))

    def say(self, *lines: str) -> None:
        """More lines at the end of the kernel's log."""
        with (self.place / "kernel.log").open("a", encoding="utf-8") as log:
            log.writelines(f"{line}\n" for line in lines)

    def booted(self) -> None:
        """As after another boot."""
        self.text(BOOT_ID, "11111111-2222-4333-8444-555555555555\n")
        self.text("/proc/stat", "btime 1795999999\n")

    def renamed(self, hostname: str) -> None:
        """Another node of the same hardware: another name, another boot, other UUIDs."""
        self.text(HOSTNAME, f"{hostname}\n")
        self.manifest(hostname=hostname)
        self.text(BOOT_ID, "99999999-2222-4333-8444-555555555555\n")
        self.nvml(lambda data: [one.update(serial=f"9{one['serial'][1:]}") for one in data["devices"]])
        for path in sorted(self.place.rglob("*")):
            if path.is_file() and not path.is_symlink() and b"GPU-" in (content := path.read_bytes()):
                path.write_text(_UUID.sub(lambda found: f"GPU-{found[0][:3:-1]}", content.decode("utf-8")))

    def _entries(self) -> list[dict[str, Any]]:
        lines = (self.place / "entries.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    def _write(self, entries: list[dict[str, Any]]) -> None:
        (self.place / "entries.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in entries))


def _dotted(fields: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("__", "."): value for name, value in fields.items()}
