"""NVLinks by product: how many each GPU has, how fast one is, and whether a bridge brings them or the baseboard does.

Seen in what machines printed (nvidia-smi nvlink -s, topo -m): V100-SXM2 6 (Azure/azhpc-diagnostics#73), A100-SXM4 12 of 25 GB/s
(NVIDIA/nccl-tests#228), H100 18 on boards with switches and on boards of four, NV6 to each (NVIDIA/nccl#1264, #1617), H200 and B200 18.
GA102 (A40, RTX A6000, RTX 3090): four links of 14.0625 GB/s a direction (its whitepaper). H800 400 GB/s both ways, H20 900 GB/s
(deepseek-ai/DeepSeek-V3#28, deepseek-ai/DeepEP#16). The other rows are sums of data sheets, both directions, divided by 50 GB/s: A100
PCIe, H100 PCIe and H100 NVL 600, H200 NVL 900, A800 and the cards of H800 400, A30 200, Quadro RTX 6000 and 8000 and RTX 2080 Ti 100,
Quadro RTX 5000 and RTX 2080 50; P100 4 of 20 GB/s. No machine with those was looked at. That all bridges of a pair belong together, and
that adjacent pairs are bridged, is the advice of the product briefs of A100 PCIe and H100 PCIe, not read again here. Read 2026-11-30.
"""

from msgspec import Struct

from gpudoctor.patterns import pattern


class NvLinkSku(Struct, frozen=True):
    """`links` of which each should be active; `megabytes` of one link a direction; `bridged` where bridges bring them, which may be absent.

    `pairs` tells cards of which NVIDIA wants every adjacent pair bridged.
    """

    links: int
    megabytes: int
    bridged: bool = False
    pairs: bool = False


_ROWS = (
    (r"P100-SXM2", NvLinkSku(4, 20_000)),
    (r"V100-DGXS", NvLinkSku(4, 25_000)),
    (r"V100-SXM[23]", NvLinkSku(6, 25_000)),
    (r"A800-SXM", NvLinkSku(8, 25_000)),
    (r"A100-SXM", NvLinkSku(12, 25_000)),
    (r"A100.*PCIe", NvLinkSku(12, 25_000, bridged=True, pairs=True)),
    (r"H100 (?:NVL|PCIe)", NvLinkSku(12, 25_000, bridged=True, pairs=True)),
    (r"H200 NVL", NvLinkSku(18, 25_000, bridged=True, pairs=True)),
    (r"A800.*(?:PCIe|Active)|H800 (?:NVL|PCIe)", NvLinkSku(8, 25_000, bridged=True)),
    (r"H800(?: 80GB HBM3)?$", NvLinkSku(8, 25_000)),
    (r"H(?:100|200|20)(?:-3e)?(?: \d+GB HBM3\w?| SXM5.*)?$", NvLinkSku(18, 25_000)),
    (r"\bG?B[123]00(?: SXM6.*)?$", NvLinkSku(18, 50_000)),
    (r"\bA30$", NvLinkSku(4, 25_000, bridged=True, pairs=True)),
    (r"\bA40$", NvLinkSku(4, 14_000, bridged=True, pairs=True)),
    (r"RTX A(?:4500|5000|5500|6000)$|RTX 3090", NvLinkSku(4, 14_000, bridged=True)),
    (r"(?:Quadro|GeForce|TITAN) (?:RTX [68]000|RTX 2080 Ti|RTX)$", NvLinkSku(2, 25_000, bridged=True)),
    (r"Quadro RTX 5000$|RTX 2080(?: SUPER)?$", NvLinkSku(1, 25_000, bridged=True)),
)
_FORMS = tuple((pattern(f"(?i:{form})"), sku) for form, sku in _ROWS)

HGX_NVLINK5 = pattern(r"(?i:\bB[123]00(?: SXM6.*)?$)")
"""Products whose switches are joined on the node's own baseboard and managed there by NVLSM (Fabric Manager User Guide)."""
HGX_NVLINK5_IDS = frozenset(("2901", "2909", "3182"))
"""Their PCI device ids, for where NVML tells no name (pci.ids 2026-08-22: B200, HGX B200 168GB, B300 SXM6 AC)."""


def sku(name: str | None) -> NvLinkSku | None:
    """The NVLinks of a product by the name that NVML gives, None for one that is not in the table."""
    return next((found for form, found in _FORMS if form.search(name)), None) if name else None
