"""Workloads that look as if they lacked a GPU and want none, and a name that would be a command."""

from gpudoctor.report import Finding
from gpudoctor.verdicts import Status
from tests.device_shapes import ALL, Rule
from tests.gpu_node import GIVEN, INSIDE, PID, STANDARD_LINES, WHOLE_DEV, GpuNode
from tests.small_node import steps
from tests.workload_node import CRI, DOCKER, ID, OTHER, POD, UID, USER, oci

RULES, NODES, SURVIVES = "cgroup.device-rules", "workload.nodes-inside", "cgroup.survives-reload"
ALLOW_ALL = (Rule(True, None, None, None, ALL),)
SOME = {"nvidia0": (195, 0), "nvidiactl": (195, 255)}
JOB = "/system.slice/slurmstepd.scope/job_397/step_0/user/task_0"


def spoken(node: GpuNode, *checks: str) -> list[Finding]:
    """The warns, fails and unknowns of some checks."""
    report = node.report()
    found = [finding for check in checks for finding in report.result(check).findings]
    return [finding for finding in found if finding.status in (Status.WARN, Status.FAIL, Status.UNKNOWN)]


def test_another_vendors_devices_and_channels_are_no_gpu() -> None:
    for device in ("mellanox.com/rdma=0", "intel.com/gpu=0", "nvidia.com/imex-channel=0", "nvidia.com/gds=all"):
        node = GpuNode()
        node.container(PID, POD, nodes={})
        node.rules(group=POD)
        node.unit(policy="", group=POD)
        node.bundle(ID, oci(annotations={**CRI, "cdi.k8s.io/x": device}))
        assert spoken(node, RULES, NODES) == [], device


def test_a_gpu_by_annotation_is_still_asked_for() -> None:
    for device in ("nvidia.com/gpu=0", "k8s.device-plugin.nvidia.com/gpu=all", "management.nvidia.com/gpu=all"):
        node = GpuNode()
        node.container(PID, POD, nodes={})
        node.rules(group=POD)
        node.unit(policy="", group=POD)
        node.bundle(ID, oci(annotations={**CRI, "cdi.k8s.io/x": device}))
        assert [finding.status for finding in spoken(node, NODES)] == [Status.FAIL], device


def test_a_privileged_pod_has_the_nodes_of_when_it_started_and_wants_none() -> None:
    """kube-proxy or a network plugin, started before nvidia-uvm was made, or before the driver was reloaded."""
    for nodes in (SOME, {**INSIDE, "nvidia-uvm": (508, 0)}):
        node = GpuNode()
        node.container(PID, POD, nodes=nodes)
        node.rules(*ALLOW_ALL, group=POD)
        node.unit(policy="auto", group=POD)
        node.bundle(ID, oci(annotations=CRI, privileged=True))
        assert spoken(node, RULES, NODES, SURVIVES) == []


def test_a_cpu_job_with_a_variable_of_its_users_profile_asked_nobody() -> None:
    for variable in ("CUDA_VISIBLE_DEVICES=0", "NVIDIA_VISIBLE_DEVICES=0"):
        node = GpuNode()
        node.process(PID, JOB)
        node.inside(PID, variable, nodes=INSIDE, mountinfo=WHOLE_DEV)
        node.rules(*GIVEN[1:], group=JOB)
        node.unit(policy="", group="/system.slice/slurmstepd.scope")
        assert spoken(node, RULES) == [], variable


def test_a_pod_with_the_nodes_whole_dev_and_a_variable_asked_nobody() -> None:
    node = GpuNode()
    node.container(PID, POD, "CUDA_VISIBLE_DEVICES=0", mountinfo=WHOLE_DEV)
    node.rules(group=POD)
    node.bundle(ID, oci(annotations=CRI))
    assert spoken(node, RULES, NODES) == []


def test_a_denied_container_called_pause_outside_of_pods_is_judged() -> None:
    node = GpuNode()
    node.process(PID, DOCKER, comm="pause", apart=True)
    node.inside(PID, nodes=INSIDE)
    node.rules()
    node.bundle(ID, oci(nodes=INSIDE), namespace="moby")
    assert [finding.status for finding in spoken(node, RULES)] == [Status.FAIL]


def test_an_inner_pod_without_nodes_or_variables_is_not_unknown() -> None:
    pod = f"kubelet-kubepods-pod{UID.replace('-', '_')}.slice"
    group = f"/system.slice/docker-{OTHER}.scope/kubelet.slice/kubelet-kubepods.slice/{pod}/cri-containerd-{ID}.scope"
    node = GpuNode()
    node.container(PID, group, nodes={})
    node.rules(group=group)
    assert spoken(node, RULES, NODES) == []


def test_a_sandbox_of_the_desktop_that_only_draws_needs_no_uvm() -> None:
    group = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-flatpak-com.valvesoftware.Steam-123.scope"
    node = GpuNode()
    node.process(PID, group, comm="steam", apart=True, user=USER + 9)
    node.inside(PID, nodes=SOME)
    node.absent(f"/proc/{PID}/root/dev/nvidia-uvm")
    assert spoken(node, NODES) == []


def test_a_units_name_never_becomes_a_command() -> None:
    group = "/system.slice/a;reboot;$(id)_slurmstepd.scope/job_397/step_0/task_0"
    node = GpuNode()
    node.process(PID, group)
    node.inside(PID, "SLURM_JOB_GPUS=0", nodes=INSIDE, mountinfo=WHOLE_DEV)
    node.rules(*GIVEN, group=group)
    node.rules(name="sd_devices", like_systemd=True, group=group)
    (found,) = spoken(node, RULES)
    assert "systemctl cat 'a;reboot;$(id)_slurmstepd.scope'" in steps(found)


def test_a_list_of_devices_may_be_written_with_tabs() -> None:
    node = GpuNode()
    node.container(PID, DOCKER, nodes=INSIDE)
    node.rules(*GIVEN)
    lines = ("/dev/char/195:0\trw", "/dev/char/195:255 \trw", "/dev/char/507:0\t rw")
    node.unit(*STANDARD_LINES, *lines, policy="strict")
    node.bundle(ID, oci(nodes=INSIDE), namespace="moby")
    assert spoken(node, SURVIVES) == []


def test_a_gpu_that_was_given_by_name_is_judged_though_another_may_be_opened() -> None:
    """The whole /dev of the node is mounted, nvidia1 is in the configuration, and only nvidia0 is allowed."""
    node = GpuNode()
    node.container(PID, DOCKER, nodes={**INSIDE, "nvidia1": (195, 1)}, mountinfo=WHOLE_DEV)
    node.rules(*GIVEN)
    node.bundle(ID, oci(nodes={"nvidia1": (195, 1)}), namespace="moby")
    (found,) = spoken(node, RULES)
    assert found.status is Status.FAIL and "/dev/nvidia1" in found.summary
