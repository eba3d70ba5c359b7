"""Recipes that do not work, and driver capabilities: in containers as engines write them down, and what must not be taken for one."""

import json
from collections.abc import Callable

import pytest

from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.report import Finding
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status
from tests.gpu_node import GIVEN, INSIDE, WHOLE_DEV, GpuNode
from tests.small_node import cited, steps
from tests.workload_node import CRI, DOCKER, ID, MOUNTINFO, POD, UID, oci

RECIPES, CAPABILITIES = "workload.recipes-sound", "workload.capabilities-known"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
LIBRARIES = (
    "92 90 8:1 /usr/lib/libcuda.so.580.95.05 /usr/lib/libcuda.so.580.95.05 ro - ext4 /dev/sda1 rw\n"
    "93 90 8:1 /usr/lib/libnvidia-ml.so.580.95.05 /usr/lib/libnvidia-ml.so.580.95.05 ro - ext4 /dev/sda1 rw\n"
)
ML_ONLY = LIBRARIES.splitlines(keepends=True)[1]


def container(*environment: str, group: str = DOCKER, mountinfo: str = MOUNTINFO + LIBRARIES) -> GpuNode:
    """A container with one GPU of two, in order but for what a test sets."""
    node = GpuNode()
    node.container(702, group, *environment, mountinfo=mountinfo)
    node.rules(*GIVEN, group=group)
    node.bundle(ID, oci(*environment, nodes=INSIDE), namespace="moby" if group == DOCKER else "k8s.io")
    return node


def recipe(node: GpuNode) -> Finding:
    return node.says(RECIPES)


# variables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("NVIDIA_MPS=on", "CUDA_MPS_PIPE_DIRECTORY"),
        ("CUDA_MAX_CONNECTIONS=4", "CUDA_DEVICE_MAX_CONNECTIONS"),
        ("NVIDIA_VISIBLE_DEVICE=0", "NVIDIA_VISIBLE_DEVICES is the name"),
        ("CUDA_VISIBLE_DEVICE=0", "CUDA_VISIBLE_DEVICES is the name"),
        ("NVIDIA_DRIVER_CAPABILITY=compute", "NVIDIA_DRIVER_CAPABILITIES is the name"),
        ("NVIDIA_DISABLE_REQUIRES=1", "NVIDIA_DISABLE_REQUIRE is the name"),
    ],
)
def test_a_variable_that_nobody_reads_is_told_with_what_is_true(line: str, words: str) -> None:
    found = recipe(container("NVIDIA_VISIBLE_DEVICES=0" if "VISIBLE_DEVICE=" not in line else "X=1", line))
    assert (found.status, found.subject.kind.value) == (Status.WARN, "container")
    assert words in found.summary and line in cited(found) and found.references


@pytest.mark.parametrize(
    "lines",
    [
        ["CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "NCCL_DEBUG=INFO"],
        ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility", "CUDA_VERSION=12.4.1"],
        ["CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"],
        ["NVIDIA_VISIBLE_DEVICE=0", "NVIDIA_VISIBLE_DEVICES=0"],
        ["LD_PRELOAD=/usr/local/vgpu/libvgpu.so", "CUDA_DEVICE_MEMORY_LIMIT_0=3000m", "NVIDIA_VISIBLE_DEVICES=0"],
    ],
)
def test_what_images_programs_and_plugins_set_passes_citing_it(lines: list[str]) -> None:
    found = recipe(container(*lines))
    assert found.status is Status.PASS and lines[0].partition("=")[0] in cited(found)


def test_two_recipes_in_one_container_are_one_finding_with_both() -> None:
    found = recipe(container("NVIDIA_MPS=on", "CUDA_VISIBLE_DEVICES=3"))
    assert found.status is Status.WARN
    assert "NVIDIA_MPS" in found.summary and "CUDA_VISIBLE_DEVICES=3" in found.summary


def test_an_environment_that_is_not_shown_is_unknown_and_not_sound() -> None:
    node = GpuNode()
    node.container()
    node.rules(*GIVEN)
    node.tree.put("/proc/702/environ", Record(error="EACCES"))
    assert recipe(node).status is Status.UNKNOWN


# an index of the node -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("0", Status.PASS),
        ("1", Status.WARN),
        ("0,1", Status.WARN),
        ("-1", Status.PASS),
        ("", Status.PASS),
        ("NoDevFiles", Status.PASS),
        ("GPU-0a0b0c0d-1111-2222-3333-444455556666", Status.PASS),
        ("MIG-5c1d0a6e-93f4-5b27-8e10-4a7f2bd9c361", Status.PASS),
    ],
)
def test_an_index_counts_what_is_inside(value: str, status: Status) -> None:
    found = recipe(container(f"CUDA_VISIBLE_DEVICES={value}"))
    assert found.status is status
    if status is Status.WARN:
        assert "from 0" in found.summary and f"CUDA_VISIBLE_DEVICES={value}" in cited(found)


def test_of_a_mig_device_an_index_says_nothing() -> None:
    node = container("CUDA_VISIBLE_DEVICES=1")
    folder = "/proc/702/root/dev/nvidia-caps"
    node.tree.put(folder, Record(entry=Entry(folder, EntryType.DIR)))
    node.char("/proc/702/root/dev/nvidia-caps/nvidia-cap12", 506, 12)
    assert recipe(node).status is Status.PASS


def test_a_container_with_the_nodes_whole_dev_is_not_counted() -> None:
    assert recipe(container("CUDA_VISIBLE_DEVICES=1", mountinfo=WHOLE_DEV)).status is not Status.WARN


# privilege ----------------------------------------------------------------------------------------------------------


def privileged(*environment: str, mountinfo: str = MOUNTINFO) -> GpuNode:
    node = GpuNode()
    node.container(702, DOCKER, *environment, nodes={**INSIDE, "nvidia1": (195, 1)}, mountinfo=mountinfo)
    node.bundle(ID, oci(*environment, privileged=True), namespace="moby")
    return node


def test_privilege_gives_nodes_and_no_libraries() -> None:
    found = recipe(privileged("NVIDIA_VISIBLE_DEVICES=all"))
    assert found.status is Status.WARN and "privileged" in found.summary and "--gpus all" in steps(found)


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(lambda: privileged("NVIDIA_VISIBLE_DEVICES=all", mountinfo=MOUNTINFO + LIBRARIES), id="libraries"),
        pytest.param(lambda: privileged("NVIDIA_VISIBLE_DEVICES=void", "CUDA_VERSION=12.4.1"), id="void"),
        pytest.param(
            lambda: privileged("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"), id="watch"
        ),
        pytest.param(lambda: privileged("CUDA_VERSION=12.4.1"), id="no-wish"),
    ],
)
def test_privilege_with_libraries_or_without_a_wish_is_no_recipe(node: Callable[[], GpuNode]) -> None:
    assert recipe(node()).status is not Status.WARN


def test_a_driver_of_its_own_is_not_called_missing() -> None:
    node = privileged("NVIDIA_VISIBLE_DEVICES=all")
    node.text("/proc/702/root/usr/lib/x86_64-linux-gnu/libcuda.so.1", "")
    node.complete = [*node.complete, "/proc/702/root/usr"]
    assert recipe(node).status is not Status.WARN


# round the device plugin --------------------------------------------------------------------------------------------


def pod(
    *environment: str,
    given: tuple[str, ...] = (),
    name: str = "trainer",
    namespace: str = "lab",
    checkpoint: str | None = "",
) -> GpuNode:
    """A pod with a GPU; the kubelet gave one to each of some pods."""
    node = GpuNode()
    node.container(702, POD, "NVIDIA_VISIBLE_DEVICES=void", mountinfo=MOUNTINFO + LIBRARIES)
    node.rules(*GIVEN, group=POD)
    annotations = CRI | {"io.kubernetes.cri.sandbox-name": name, "io.kubernetes.cri.sandbox-namespace": namespace}
    said = oci(*environment, "NVIDIA_VISIBLE_DEVICES=void", nodes=INSIDE, annotations=annotations)
    node.bundle(ID, said)
    entries = [
        {"PodUID": uid, "ContainerName": "main", "ResourceName": "nvidia.com/gpu", "DeviceIDs": {"0": ["GPU-1"]}}
        for uid in given
    ]
    if checkpoint is not None:
        node.text(CHECKPOINT, checkpoint or json.dumps({"Data": {"PodDeviceEntries": entries}, "Checksum": 1}))
    return node


ALL = "NVIDIA_VISIBLE_DEVICES=all"


def test_a_pod_that_was_given_nothing_and_has_all() -> None:
    found = recipe(pod(ALL, given=("another",)))
    assert found.status is Status.WARN
    assert "lab/trainer/main" in found.summary and "did not allocate" in found.summary
    assert CHECKPOINT in cited(found) and "NVIDIA_VISIBLE_DEVICES=all" in cited(found)
    assert [remedy.action.value for remedy in found.remedies] == ["change-workload", "change-config"]


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(lambda: pod(ALL, given=(UID,)), id="given"),
        pytest.param(lambda: pod("NVIDIA_VISIBLE_DEVICES=GPU-1"), id="by-the-plugin"),
        pytest.param(lambda: pod(ALL, name="nvidia-dcgm-exporter-x2x4p"), id="exporter"),
        pytest.param(lambda: pod(ALL, namespace="gpu-operator", name="cuda-validator"), id="operator"),
        pytest.param(lambda: pod(ALL, "NVIDIA_DRIVER_CAPABILITIES=utility"), id="watching"),
        pytest.param(lambda: pod(ALL, checkpoint=None), id="no-checkpoint"),
        pytest.param(lambda: pod(ALL, checkpoint="{"), id="cut-off"),
        pytest.param(lambda: pod(ALL, checkpoint="[]"), id="no-object"),
    ],
)
def test_a_pod_that_was_given_it_or_may_see_all_is_left_alone(node: Callable[[], GpuNode]) -> None:
    assert recipe(node()).status is Status.PASS


# capabilities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["compute,utility", "all", "utility", "compute, utility", "compute,utility,", "all,foo"]
)
def test_capabilities_that_there_are_pass(value: str) -> None:
    found = container(f"NVIDIA_DRIVER_CAPABILITIES={value}").says(CAPABILITIES)
    assert found.status is Status.PASS and f"NVIDIA_DRIVER_CAPABILITIES={value}" in cited(found)


@pytest.mark.parametrize("value", ["compute,utillity", "Compute", "gpu", "utility,foo", "none"])
def test_a_word_that_is_no_capability_is_named_with_those_that_are(value: str) -> None:
    found = container(f"NVIDIA_DRIVER_CAPABILITIES={value}").says(CAPABILITIES)
    assert found.status is Status.WARN
    assert value.rsplit(",", maxsplit=1)[-1] in found.summary and "compute, compat32, graphics" in found.summary


@pytest.mark.parametrize(
    ("lines", "means"),
    [
        (["NVIDIA_DRIVER_CAPABILITIES="], "compute and utility"),
        (["CUDA_VERSION=12.4.1", "NVIDIA_REQUIRE_CUDA=cuda>=12.4"], "compute and utility"),
        (["CUDA_VERSION=12.4.1"], "means all"),
    ],
)
def test_unset_means_compute_and_utility_and_all_for_images_without_requirements(lines: list[str], means: str) -> None:
    found = container(*lines).says(CAPABILITIES)
    assert found.status is Status.SKIP and means in found.summary


def test_a_node_that_hands_out_less_is_told_apart() -> None:
    node = container("NVIDIA_DRIVER_CAPABILITIES=compute,video")
    node.text("/etc/nvidia-container-runtime/config.toml", 'supported-driver-capabilities = "compute,utility"\n')
    found = node.says(CAPABILITIES)
    assert found.status is Status.WARN and "video is not among" in found.summary
    assert "supported-driver-capabilities" in cited(found)


def test_a_toolkit_that_hands_out_all_refuses_none() -> None:
    node = container("NVIDIA_DRIVER_CAPABILITIES=compute,video")
    node.text("/etc/nvidia-container-runtime/config.toml", 'supported-driver-capabilities = "all"\n')
    assert node.says(CAPABILITIES).status is Status.PASS


def test_utility_alone_is_remarked_only_where_cuda_is_wanted_and_libcuda_is_missing() -> None:
    alone = "NVIDIA_DRIVER_CAPABILITIES=utility"
    wanting = container(alone, "CUDA_VISIBLE_DEVICES=0", mountinfo=MOUNTINFO + ML_ONLY).says(CAPABILITIES)
    assert wanting.status is Status.WARN and "compute" in wanting.summary
    for node in (
        container(alone, mountinfo=MOUNTINFO + ML_ONLY),
        container(alone, "CUDA_VISIBLE_DEVICES=0"),
        container(alone, "CUDA_VISIBLE_DEVICES=-1", mountinfo=MOUNTINFO + ML_ONLY),
        container(alone, "CUDA_VISIBLE_DEVICES=0", mountinfo=MOUNTINFO),
    ):
        assert node.says(CAPABILITIES).status is Status.PASS


# the hook takes the variable at its word ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "status"),
    [
        ("", Status.FAIL),
        ("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n", Status.SKIP),
        (None, Status.SKIP),
    ],
)
def test_a_hook_that_takes_the_variables_word_makes_it_a_request(config: str | None, status: Status) -> None:
    node = GpuNode()
    node.container(702, DOCKER, ALL, nodes={})
    node.rules()
    hooks = {"prestart": ["/usr/bin/nvidia-container-runtime-hook"]}
    node.bundle(ID, oci(ALL, hooks=hooks), namespace="moby")
    if config is not None:
        node.text("/etc/nvidia-container-runtime/config.toml", config)
    found = node.says("workload.nodes-inside")
    assert found.status is status, found.summary
