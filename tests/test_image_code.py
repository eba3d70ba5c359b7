"""Code for the GPUs of a workload: what an image says it was built for, against the compute capability of what it was given."""

import pytest

from gpudoctor.report import Finding
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status
from tests.gpu_node import GIVEN, INSIDE, GpuNode
from tests.small_node import cited
from tests.workload_node import DOCKER, ID, oci

CHECK = "workload.code-for-gpu"
V100, H100, B200, RTX5090, ODD = "0x1db6", "0x2330", "0x2901", "0x2b85", "0xfff0"


def said(device: str, *environment: str, given: bool = True) -> Finding:
    """The finding about a container with one GPU of a model, or with none."""
    node = GpuNode()
    node.text("/sys/devices/pci0000:00/0000:00:01.0/0000:05:00.0/device", f"{device}\n")
    if device == V100:
        # Open modules do not drive it.
        node.text(
            "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Wed Sep 10\n"
        )
    inside = INSIDE if given else {}
    node.container(702, DOCKER, *environment, nodes=inside)
    if given:
        node.rules(*GIVEN, group=DOCKER)
    node.bundle(ID, oci(*environment, nodes=inside), namespace="moby")
    return node.says(CHECK)


@pytest.mark.parametrize(
    ("device", "lines", "status", "words"),
    [
        (V100, ["CUDA_VERSION=13.0.1"], Status.WARN, "CUDA 13.0 has no code for it, the last that has is 12.9"),
        (V100, ["CUDA_VERSION=12.9.1"], Status.PASS, "nothing in CUDA_VERSION leaves out compute capability 7.0"),
        (H100, ["CUDA_VERSION=11.4.3"], Status.PASS, "9.0"),
        (H100, ["CUDA_VERSION=13.0.1"], Status.PASS, "9.0"),
        (H100, ["CUDA_VERSION=nonsense"], Status.PASS, "9.0"),
        (B200, ["TORCH_CUDA_ARCH_LIST=7.0 7.5 8.0 8.6 9.0", "CUDA_VERSION=12.4.1"], Status.WARN, "10.0"),
        (B200, ["TORCH_CUDA_ARCH_LIST=7.0 7.5 8.0 8.6 9.0+PTX", "CUDA_VERSION=12.4.1"], Status.PASS, "10.0"),
        (B200, ["TORCH_CUDA_ARCH_LIST=8.0;9.0;10.0"], Status.PASS, "10.0"),
        (RTX5090, ["TORCH_CUDA_ARCH_LIST=8.0,9.0,10.0"], Status.WARN, "12.0"),
        (RTX5090, ["TORCH_CUDA_ARCH_LIST=Hopper Blackwell"], Status.PASS, "12.0"),
        (V100, ["TORCH_CUDA_ARCH_LIST=8.0 9.0", "CUDA_VERSION=12.4.1"], Status.WARN, "7.0"),
        (ODD, ["CUDA_VERSION=13.0.1"], Status.SKIP, "has no GPU whose compute capability is known"),
        (V100, ["NVIDIA_VISIBLE_DEVICES=all"], Status.SKIP, "does not say what it was built for"),
    ],
)
def test_what_an_image_says_is_held_against_its_gpu(device: str, lines: list[str], status: Status, words: str) -> None:
    found = said(device, *lines)
    assert (found.status, found.subject.kind.value) == (status, "container"), found.summary
    assert words in found.summary
    if status is Status.WARN:
        assert lines[0] in cited(found) and "209" in found.summary and "The node is well" in found.remedies[0].say


def test_a_container_without_a_gpu_is_not_judged() -> None:
    assert said(V100, "CUDA_VERSION=13.0.1", "NVIDIA_VISIBLE_DEVICES=all", given=False).status is Status.SKIP


def test_an_environment_that_is_not_shown_is_unknown() -> None:
    node = GpuNode()
    node.container()
    node.rules(*GIVEN)
    node.tree.put("/proc/702/environ", Record(error="EACCES"))
    assert node.says(CHECK).status is Status.UNKNOWN
