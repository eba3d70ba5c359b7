"""What nvidia-smi printed, in a file of its own: a node of which nothing else is known.

The GPUs that it names are put on the bus, where it saw them, so that something can be said of each; the bus is not listed completely,
and nothing else about its functions is known.
"""

from pathlib import Path
from typing import Any, BinaryIO

from gpudoctor.facts.nvidia_smi import answer_from
from gpudoctor.facts.nvml import normal_address
from gpudoctor.facts.raw import Absent, Answer, Entry, EntryType, SourceKind
from gpudoctor.sources.bug_report_text import ReportText
from gpudoctor.sources.lspci_text import DEVICES
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.verdicts import Unread, Why

MOST_BYTES = 8 * 1024 * 1024
"""As much of a file is read: for sixteen GPUs nvidia-smi prints less than one MiB, supported clocks and all."""
_FAILURE_IN = 4096
"""A file that only says that nvidia-smi failed is short, or says it at its beginning."""

# U+FEFF as PowerShell writes it before UTF-16, and as Notepad does before UTF-8.
_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))

_VENDOR = "0x10de"
_DISPLAY = "0x030000"


class SmiOutput(RecordedNode):
    """The output as a recorded node."""

    kind = SourceKind.BUG_REPORT

    def __init__(self, answer: Answer, notes: tuple[str, ...] = ()) -> None:
        """`notes` are worth telling whoever asked for it."""
        super().__init__(Tree())
        self.answers["nvml"] = answer
        self.notes = (f"holds what {answer.via} printed, and nothing else of the node", *notes)
        self._via = answer.via
        for device in answer.data.get("devices", ()):
            self._put_gpu(device)
        if self.tree.records:
            self.listing_origins = {DEVICES: answer.via}

    def unrecorded(self, path: str) -> Absent | Unread:
        """What to say of a path: nvidia-smi does not tell."""
        return Unread(Why.NOT_RECORDED, path, f"is not in what {self._via} printed")

    def _put_gpu(self, device: dict[str, Any]) -> None:
        """An NVIDIA display controller at its address: NVML knows no other kind (nvml.h, nvmlDeviceGetCount)."""
        if "pci_bus_id" not in device:
            return
        base = f"{DEVICES}/{normal_address(device['pci_bus_id'])}"
        ids = device.get("fields", {}).get("pci.device_id")
        attributes = {"vendor": _VENDOR, "class": _DISPLAY}
        # The upper half is the device's number, the lower the vendor's (nvml.h, nvmlPciInfo_t).
        attributes |= {"device": f"0x{ids >> 16:04x}"} if isinstance(ids, int) and ids >> 16 <= 0xFFFF else {}
        for name, value in attributes.items():
            path = f"{base}/{name}"
            entry = Entry(path, EntryType.FILE, origin=self._via)
            self.tree.put(path, Record(entry=entry, text=f"{value}\n", origin=self._via))


def open_smi_output(path: Path) -> SmiOutput | None:
    """The node behind a file, compressed with gzip or not; None when nvidia-smi did not print it. Raises SourceError."""
    with path.open("rb") as file:
        text, whole = _text(file, str(path))
    answer = answer_from(None, text)
    if answer is None or _only_mentions(answer, text):
        return None
    return SmiOutput(answer, () if whole else (f"only its first {MOST_BYTES >> 20} MiB are read",))


def _text(file: BinaryIO, place: str) -> tuple[str, bool]:
    """The text, and whether that is all of it."""
    pieces: list[bytes] = []
    size = 0
    for piece in ReportText(file, place).pieces():
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            break
    content = b"".join(pieces)[:MOST_BYTES]
    mark, encoding = next(((mark, name) for mark, name in _MARKS if content.startswith(mark)), (b"", "utf-8"))
    text = content[len(mark) :].decode(encoding, "backslashreplace")
    return (text, True) if size <= MOST_BYTES else (text.rpartition("\n")[0], False)


def _only_mentions(answer: Answer, text: str) -> bool:
    """Whether a long text of another kind quotes nvidia-smi somewhere, as logs do."""
    said = answer.data.get("said", "")
    return bool(said) and "devices" not in answer.data and said not in text[:_FAILURE_IN]
