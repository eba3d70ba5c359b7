"""What the words of a topology's matrix mean."""

from collections.abc import Collection

LEGEND = {
    "NV": "NVLinks, with their number",
    "PIX": "at most one PCIe bridge",
    "PXB": "several PCIe bridges, below one host bridge",
    "PHB": "a PCIe host bridge, mostly the CPU",
    "NODE": "the way between host bridges of a NUMA node",
    "SYS": "the way between NUMA nodes",
    "?": "not told",
}
"""The legend of `nvidia-smi topo -m` in other words."""


def legend(cells: Collection[str]) -> tuple[tuple[str, str], ...]:
    """The words among these cells, and their meaning."""
    known = {"NV" if cell.startswith("NV") else cell or "?" for cell in cells}
    return tuple((f"{word}#" if word == "NV" else word, words) for word, words in LEGEND.items() if word in known)
