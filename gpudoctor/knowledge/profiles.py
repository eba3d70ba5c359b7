"""What kinds of machine have: GPUs, NVSwitches and links of HGX boards, DGX systems, compute trays and cloud instance types.

Device ids: pciutils/pciids @c1c12547d626 (2026-08-22), and NVIDIA's own lists of supported GPUs (README of open-gpu-kernel-modules
595.45.04; supported-gpus.json of driver 595.71.05). All tables were read on 2026-11-29; what no source says is left out. So are
instance types with a part of a GPU (g6f, NV6ads_A10_v5, g4-standard-6): the guest sees a virtual GPU, not a count of GPUs.
"""

from collections.abc import Iterator

from msgspec import Struct


class Source(Struct, frozen=True):
    """Where a row was read, and the date of what was read."""

    where: str
    date: str


class Profile(Struct, frozen=True):
    """What one kind of machine has. None stands for what no source says, or what differs between machines of the kind.

    `device_ids` are those that its GPUs may have; `switches` counts the NVSwitches that are functions on PCI on bare metal.
    `generation` and `lanes` are the least that both ends of a GPU's link allow.
    """

    name: str
    model: str
    gpus: int
    device_ids: tuple[str, ...]
    source: Source
    switches: int | None = None
    switch_id: str = ""
    generation: int | None = None
    lanes: int | None = None


_FABRIC_MANAGER = Source(
    "NVIDIA Fabric Manager User Guide 2.3, NVSwitch-Based Systems and GPU Baseboard Topologies;"
    " links: oracle-quickstart/oci-hpc@b5285a68fa0a samples/gpu (topologies of A100 and H100 boards),"
    " mlcommons/inference_results_v4.1@a2f5d66d17e8 closed/NVIDIA/systems (H200, B200)",
    "2025-03-04",
)
_SMALL_BOARDS = Source(
    "H100: NVIDIA's list of boards for confidential computing, by number of GPUs and size of memory, as edgelesssys/contrast quotes"
    " it; A100: NVIDIA HGX Software Guide, as quoted by others; PCI ids by memory: pci.ids",
    "2026-08-22",
)
_OCI = Source(
    "oracle-quickstart/oci-hpc@b5285a68fa0a playbooks/roles/healthchecks/files/check_gpu_setup.py (counts, ids, 16 lanes),"
    " mgmt/lib/functions.py; skypilot-org/skypilot-catalog@058875118382 catalogs/v8/oci/vms.csv (from Oracle's ListShapes)",
    "2026-05-19",
)
_TRAYS = Source(
    f"{_OCI.where}; NVIDIA/ncx-infra-controller-core@a5c889d8b2bc crates/bmc-mock/src/hw (GB200: addresses, part number 2941);"
    " leptonai/gpud@4a8de33a3f02 components/accelerator/nvidia/fabric-manager/component.go (no NVSwitch on compute nodes)",
    "2026-08-22",
)
_AWS = Source(
    "aws/karpenter-provider-aws@1d927085dd81 website/content/en/docs/reference/instance-types.md (from DescribeInstanceTypes;"
    " the first p3 sizes in its v1.0); aws/aws-ofi-nccl@2daf7d303aa1 topology (device ids of p4d and p4de)",
    "2026-08-21",
)
_GCP = Source("GoogleCloudPlatform/cluster-toolkit@1047380075af pkg/config/machine_mappings.json", "2026-06-25")
_AZURE = Source(
    "MicrosoftDocs/azure-compute-docs articles/virtual-machines/sizes/gpu-accelerated (*-series.md, read as stored in 2026-08);"
    " Azure/azurehpc-health-checks@0e0a1ac26a64 conf",
    "2026-08-12",
)

_A100_40, _A100_80, _A100 = ("20b0",), ("20b2",), ("20b0", "20b2")
_H100, _H100_8, _H100_4 = ("2330",), ("2330", "2338"), ("2330", "2337", "2339")
_H200, _B200, _B300, _GB200, _GB300 = ("2335",), ("2901", "2909"), ("3182",), ("2941",), ("31c2", "31c3")
_V100_16, _V100_32 = ("1db1", "1db4"), ("1db5", "1db6")
_P100, _T4, _A10, _A10G, _L4, _L40S = ("15f8", "15f9"), ("1eb8",), ("2236",), ("2237",), ("27b8",), ("26b9",)
_RTX_PRO_4500, _RTX_PRO_6000 = ("2c3a",), ("2bb5",)

# Name, model, GPUs, device ids, source, NVSwitches on PCI and their id, PCIe generation and lanes. The second- and third-generation
# NVSwitches are functions on PCI; those of HGX B200 and B300 are not, they hide behind a ConnectX-7 (Fabric Manager User Guide).
# No source was found for the NVSwitches and links of boards with four GPUs, nor for the speed of the links of B300 and the trays.
_MACHINES = (
    ("hgx-a100-4", "A100 SXM4", 4, _A100, _SMALL_BOARDS, None, "", None, None),
    ("hgx-a100-8", "A100 SXM4", 8, _A100, _FABRIC_MANAGER, 6, "1af1", 4, 16),
    ("hgx-h100-4", "H100 SXM5", 4, _H100_4, _SMALL_BOARDS, None, "", None, None),
    ("hgx-h100-8", "H100 SXM5", 8, _H100_8, _FABRIC_MANAGER, 4, "22a3", 5, 16),
    ("hgx-h200-8", "H200 SXM", 8, _H200, _FABRIC_MANAGER, 4, "22a3", 5, 16),
    ("hgx-b200-8", "B200 SXM", 8, _B200, _FABRIC_MANAGER, 0, "", 5, 16),
    ("hgx-b300-8", "B300 SXM", 8, _B300, _FABRIC_MANAGER, 0, "", None, 16),
    ("dgx-a100", "A100 SXM4", 8, _A100, _FABRIC_MANAGER, 6, "1af1", 4, 16),
    ("dgx-h100", "H100 SXM5", 8, _H100, _FABRIC_MANAGER, 4, "22a3", 5, 16),
    ("dgx-h200", "H200 SXM", 8, _H200, _FABRIC_MANAGER, 4, "22a3", 5, 16),
    ("dgx-b200", "B200 SXM", 8, _B200, _FABRIC_MANAGER, 0, "", 5, 16),
    ("dgx-b300", "B300 SXM", 8, _B300, _FABRIC_MANAGER, 0, "", None, 16),
    ("gb200-tray", "GB200", 4, _GB200, _TRAYS, 0, "", None, 16),
    ("gb300-tray", "GB300", 4, _GB300, _TRAYS, 0, "", None, 16),
)

# Model, device ids, and names with the number of GPUs.
_AWS_TYPES = (
    ("V100 16GB", _V100_16, "p3.2xlarge 1 p3.8xlarge 4 p3.16xlarge 8"),
    ("V100 32GB", _V100_32, "p3dn.24xlarge 8"),
    ("A100 40GB", _A100_40, "p4d.24xlarge 8"),
    ("A100 80GB", _A100_80, "p4de.24xlarge 8"),
    ("H100 SXM5", _H100, "p5.4xlarge 1 p5.48xlarge 8"),
    ("H200 SXM", _H200, "p5e.48xlarge 8 p5en.48xlarge 8"),
    ("B200 SXM", _B200, "p6-b200.48xlarge 8"),
    ("B300 SXM", _B300, "p6-b300.48xlarge 8"),
    (
        "T4",
        _T4,
        "g4dn.xlarge 1 g4dn.2xlarge 1 g4dn.4xlarge 1 g4dn.8xlarge 1 g4dn.12xlarge 4 g4dn.16xlarge 1 g4dn.metal 8",
    ),
    ("T4G", ("1eb4",), "g5g.xlarge 1 g5g.2xlarge 1 g5g.4xlarge 1 g5g.8xlarge 1 g5g.16xlarge 2 g5g.metal 2"),
    (
        "A10G",
        _A10G,
        "g5.xlarge 1 g5.2xlarge 1 g5.4xlarge 1 g5.8xlarge 1 g5.12xlarge 4 g5.16xlarge 1 g5.24xlarge 4 g5.48xlarge 8",
    ),
    (
        "L4",
        _L4,
        "g6.xlarge 1 g6.2xlarge 1 g6.4xlarge 1 g6.8xlarge 1 g6.12xlarge 4 g6.16xlarge 1 g6.24xlarge 4 g6.48xlarge 8",
    ),
    ("L4", _L4, "gr6.4xlarge 1 gr6.8xlarge 1"),
    (
        "L40S",
        _L40S,
        "g6e.xlarge 1 g6e.2xlarge 1 g6e.4xlarge 1 g6e.8xlarge 1 g6e.12xlarge 4 g6e.16xlarge 1 g6e.24xlarge 4 g6e.48xlarge 8",
    ),
    (
        "RTX PRO 4500 Server",
        _RTX_PRO_4500,
        "g7.2xlarge 1 g7.4xlarge 1 g7.8xlarge 1 g7.12xlarge 2 g7.24xlarge 4 g7.48xlarge 8",
    ),
    (
        "RTX PRO 6000 Server",
        _RTX_PRO_6000,
        "g7e.2xlarge 1 g7e.4xlarge 1 g7e.8xlarge 1 g7e.12xlarge 2 g7e.24xlarge 4 g7e.48xlarge 8",
    ),
)
_GCP_TYPES = (
    ("L4", _L4, "g2-standard-12 1 g2-standard-24 2 g2-standard-48 4 g2-standard-96 8"),
    ("RTX PRO 6000 Server", _RTX_PRO_6000, "g4-standard-48 1 g4-standard-96 2 g4-standard-192 4 g4-standard-384 8"),
    ("A100 40GB", _A100_40, "a2-highgpu-1g 1 a2-highgpu-2g 2 a2-highgpu-4g 4 a2-highgpu-8g 8 a2-megagpu-16g 16"),
    ("A100 80GB", _A100_80, "a2-ultragpu-1g 1 a2-ultragpu-2g 2 a2-ultragpu-4g 4 a2-ultragpu-8g 8"),
    ("H100 SXM5", _H100, "a3-highgpu-1g 1 a3-highgpu-2g 2 a3-highgpu-4g 4 a3-highgpu-8g 8 a3-megagpu-8g 8"),
    ("H200 SXM", _H200, "a3-ultragpu-8g 8"),
    ("B200 SXM", _B200, "a4-highgpu-8g 8"),
    ("GB200", _GB200, "a4x-highgpu-4g 4"),
)
_AZURE_TYPES = (
    ("V100 16GB", _V100_16, "Standard_NC6s_v3 1 Standard_NC12s_v3 2 Standard_NC24s_v3 4 Standard_NC24rs_v3 4"),
    ("V100 32GB", _V100_32, "Standard_ND40rs_v2 8"),
    ("T4", _T4, "Standard_NC4as_T4_v3 1 Standard_NC8as_T4_v3 1 Standard_NC16as_T4_v3 1 Standard_NC64as_T4_v3 4"),
    (
        "A100 PCIe 80GB",
        ("20b5",),
        "Standard_NC24ads_A100_v4 1 Standard_NC48ads_A100_v4 2 Standard_NC96ads_A100_v4 4",
    ),
    (
        "H100 NVL",
        ("2321",),
        "Standard_NC40ads_H100_v5 1 Standard_NC80adis_H100_v5 2 Standard_NCC40ads_H100_v5 1",
    ),
    ("A100 40GB", _A100_40, "Standard_ND96asr_v4 8"),
    ("A100 80GB", _A100_80, "Standard_ND96amsr_A100_v4 8"),
    ("H100 SXM5", _H100, "Standard_ND96isr_H100_v5 8 Standard_ND96is_H100_v5 8"),
    ("H200 SXM", _H200, "Standard_ND96isr_H200_v5 8 Standard_ND96is_H200_v5 8 Standard_ND96isrf_H200_v5 8"),
    ("GB200", _GB200, "Standard_ND128isr_NDR_GB200_v6 4"),
    ("GB300", _GB300, "Standard_ND128isr_GB300_v6 4 Standard_ND128isrG5_GB300_v6 4"),
)
_OCI_SHAPES = (
    ("P100", _P100, "BM.GPU2.2 2 VM.GPU2.1 1"),
    ("V100 16GB", _V100_16, "BM.GPU3.8 8 VM.GPU3.1 1 VM.GPU3.2 2 VM.GPU3.4 4"),
    ("A10", _A10, "BM.GPU.A10.4 4 BM.GPU.T1.2 2 VM.GPU.A10.1 1 VM.GPU.A10.2 2"),
    ("A100 SXM4", _A100, "BM.GPU4.8 8 BM.GPU.B4.8 8 BM.GPU.A100-v2.8 8 VM.GPU.A100.40G.1 1 VM.GPU.A100.80G.1 1"),
    ("L40S", _L40S, "BM.GPU.L40S.4 4 BM.GPU.L40S-NC.4 4"),
    ("H100 SXM5", _H100, "BM.GPU.H100.8 8"),
    ("H200 SXM", _H200, "BM.GPU.H200.8 8"),
    ("B200 SXM", _B200, "BM.GPU.B200.8 8"),
    ("B300 SXM", _B300, "BM.GPU.B300.8 8"),
    ("GB200", _GB200, "BM.GPU.GB200.4 4 BM.GPU.GB200-v2.4 4 BM.GPU.GB200-v3.4 4"),
    ("GB300", _GB300, "BM.GPU.GB300.4 4"),
    ("RTX PRO 6000 Server", _RTX_PRO_6000, "BM.GPU.RTXPRO.8 8"),
)
_CLOUDS = ((_AWS, _AWS_TYPES), (_GCP, _GCP_TYPES), (_AZURE, _AZURE_TYPES), (_OCI, _OCI_SHAPES))

# Kernel log "Hardware name: NVIDIA DGXA100 920-23687-2530-000/DGXA100" (nouveau mailing list, 2020); "DGXH100" in
# NVIDIA/ncx-infra-controller-core@a5c889d8b2bc crates/bmc-mock/src/hw/nvidia_dgx_h100.rs. The names of later ones were not verified.
_DGX_NAMES = (("DGXA100", "dgx-a100"), ("DGXH100", "dgx-h100"))


def _cloud(name: str) -> Profile | None:
    for source, families in _CLOUDS:
        for model, device_ids, types in families:
            words = types.split()
            if name in words[::2]:
                gpus = int(words[words.index(name) + 1])
                # Oracle expects 16 lanes of every bare-metal shape (check_gpu_setup.py, check_gpu_pcie).
                lanes = 16 if name.startswith("BM.GPU") else None
                return Profile(name, model, gpus, device_ids, source, lanes=lanes)
    return None


def names() -> tuple[str, ...]:
    """The names of all profiles."""
    return tuple(row[0] for row in _MACHINES) + tuple(
        name for _, families in _CLOUDS for _, _, types in families for name in types.split()[::2]
    )


def profile(name: str) -> Profile | None:
    """The profile of a name, None when there is none."""
    return next((Profile(*row) for row in _MACHINES if row[0] == name), None) or _cloud(name)


def profiles() -> Iterator[Profile]:
    """All profiles."""
    for name in names():
        found = profile(name)
        assert found is not None
        yield found


def of_product(vendor: str, product: str) -> Profile | None:
    """The profile that a machine's own vendor and product names in DMI stand for.

    EC2's Nitro instances give their type as product name (aws-ofi-nccl, src/nccl_ofi_system.cpp); those on Xen do not.
    """
    if vendor == "Amazon EC2":
        found = _cloud(product)
        return found if found is not None and found.source is _AWS else None
    if vendor == "NVIDIA":
        return next((profile(name) for start, name in _DGX_NAMES if product.startswith(start)), None)
    return None


def of_board(device_ids: frozenset[str], switch_ids: frozenset[str], switches: int) -> Profile | None:
    """The HGX board that these GPUs and NVSwitches can only be part of, on bare metal; of both some may be missing."""
    for row in _MACHINES if device_ids else ():
        found = Profile(*row)
        if (
            found.name.startswith("hgx-")
            and found.switches
            and device_ids <= set(found.device_ids)
            and switch_ids == {found.switch_id}
            and switches <= found.switches
        ):
            return found
    return None
