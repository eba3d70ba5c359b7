"""Nodes all of whose words are somebody's who means ill: a recorded node with such words in every text of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpudoctor.testing import fixtures

MARKUP = (
    '"\'`><script>document.title="owned";alert(1)</script></style></title></textarea>--><svg onload=alert(2)>'
    "<img src=https://x.test/ onerror=alert(3)>]]>{{ 7*7 }}{% raw %}${7*7}%s%n&lt;&#0;javascript:alert(4)"
)
CONTROLS = "\x00\x01\x07\x08\x0b\x0c\x1b[2J\x1b]0;owned\x07\x1b]8;;https://x.test\x1b\\\x7f\x80\x85\x90\x9b31m\x9d\x9f"
MARKS = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2066\u2067\u2069\ufeff\U000e0041"
FLOODS = "\U0001f469\u200d\U0001f467" * 40 + "e" + "\u0301" * 300 + "\ufdfd" * 40 + "W" * 2000
WORDS = MARKUP + CONTROLS + MARKS + FLOODS
RAW = tuple(dict.fromkeys((*CONTROLS.translate({ord(one): None for one in "[2J]0;owned8https:/x.test\\31m"}), *MARKS)))
"""What may reach neither a terminal nor a page as it is."""
LINE = 10_000_000
"""The length of the longest lines."""

_NAMING = ("pci_bus_id", "via", "argv", "path", "type", "to", "schema")
"""Strings by which one part of a recording finds another."""
_TEXTS = (
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/osrelease",
    "/proc/version",
    "/proc/cmdline",
    "/etc/hostname",
    "/etc/os-release",
    "/sys/class/dmi/id/",
    "/etc/docker/",
    "/etc/modprobe.d/",
    "/etc/cdi/",
    "/var/run/cdi/",
)
"""Where the names of a node and its configuration lie; processes' names lie below /proc too."""


class HostileNode:
    """A copy of a fixture whose texts are hostile.

    With `everything` each line of each file is, so that hardly any parser finds what it looks for; without it only what is free text.
    """

    def __init__(self, name: str, place: Path, *, everything: bool = False, words: str = WORDS) -> None:
        shutil.copytree(fixtures() / name, place, symlinks=True)
        self.place = place
        self._words = words
        self._everything = everything
        self._files()
        self._entries()
        for answer in sorted((place / "answers").glob("*.json")):
            answer.write_text(json.dumps(self._said(json.loads(answer.read_text("utf-8")))), "utf-8")
        self._commands()
        self._log()

    def _line(self, text: str) -> str:
        return "".join(f"{line}{self._words}\n" for line in text.splitlines()) if text else text

    def _text(self, path: str, text: str) -> str:
        process = path.startswith("/proc/") and path.rpartition("/")[2] in ("comm", "cmdline", "environ", "cgroup")
        return self._line(text) if self._everything or process or path.startswith(_TEXTS) else text

    def _said(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self._said(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [self._said(one, name) for one in value]
        return value + self._words if isinstance(value, str) and name not in _NAMING else value

    def _files(self) -> None:
        root = self.place / "root"
        for place in [one for one in sorted(root.rglob("*")) if one.is_file() and not one.is_symlink()]:
            text = place.read_bytes().decode("utf-8", "backslashreplace")
            place.write_text(self._text(f"/{place.relative_to(root)}", text), "utf-8", "surrogatepass")
        hidden = root / "etc" / "modprobe.d" / "<script>alert(1)<\\script>\u202e\x1b[2J'\"`.conf"
        hidden.parent.mkdir(parents=True, exist_ok=True)
        hidden.write_bytes(
            b"options nvidia NVreg_\xff\xed\xa0\x80=1\n"
            + self._words.encode("utf-8", "surrogatepass")
            + b"\nblacklist nvidia\n"
        )

    def _entries(self) -> None:
        def hostile(entry: dict[str, Any]) -> dict[str, Any]:
            if isinstance(entry.get("text"), str):
                entry["text"] = self._text(entry["path"], entry["text"])
            return entry

        self._lines(self.place / "entries.jsonl", hostile)

    def _commands(self) -> None:
        def hostile(run: dict[str, Any]) -> dict[str, Any]:
            for stream in ("stdout", "stderr"):
                if isinstance(run.get(stream), str):
                    run[stream] = self._line(run[stream]) + self._words
            return run

        self._lines(self.place / "commands.jsonl", hostile)

    def _lines(self, place: Path, hostile: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        if place.is_file():
            lines = [json.loads(line) for line in place.read_text("utf-8").splitlines() if line.strip()]
            place.write_text("".join(f"{json.dumps(hostile(line))}\n" for line in lines), "utf-8")

    def _log(self) -> None:
        """The kernel's words on GPUs, each of them with a hostile name in it, and lines of 10 MB."""
        gpu = self._gpu()
        name = self._words.replace("\n", " ")
        long = "A" * LINE
        lines = [
            f"NVRM: Xid (PCI:{gpu}): 79, pid='{name}', name={name}, GPU has fallen off the bus. {name}",
            f"NVRM: Xid (PCI:{gpu}): 31, pid=1234, name={long}, Ch 00000008, intr 10000000. MMU Fault {long}",
            f"NVRM: GPU {gpu}.0: RmInitAdapter failed! ({name})",
            f"nvidia {gpu}.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, {long}",
            f"INFO: task {name}:4711 blocked for more than 120 seconds.",
            f"NVRM: {long}",
            long,
        ]
        with (self.place / "kernel.log").open("ab") as log:
            for number, line in enumerate(lines):
                log.write(f"[90000.{number:06d}] {line}\n".encode("utf-8", "surrogatepass"))
            log.write(b"[90001.000000] NVRM: \xff\xfe\xed\xa0\x80 bytes that are no text\n")

    def _gpu(self) -> str:
        answer = self.place / "answers" / "nvml.json"
        if answer.is_file():
            devices = json.loads(answer.read_text("utf-8")).get("data", {}).get("devices", [])
            if devices:
                return str(devices[0]["pci_bus_id"])[4:].rpartition(".")[0].lower()
        return "0000:18:00"
