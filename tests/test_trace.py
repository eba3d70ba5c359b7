"""`gpudoctor trace`: each step broken alone, two at once, look-alikes, what cannot be seen, the rig's real containers."""

import contextlib
import functools
import re

import pytest

from gpudoctor.config import Config, ConfigError
from gpudoctor.facts.loader_cache import CachedLibrary
from gpudoctor.facts.raw import Answer
from gpudoctor.registry import built_in
from gpudoctor.reports import trace_terminal
from gpudoctor.reports.look import Look
from gpudoctor.sources.loader_cache_writer import write_cache
from gpudoctor.sources.recorded import Record
from gpudoctor.trace import ESSENTIAL, StepId, Trace, Traced
from gpudoctor.trace_run import trace
from gpudoctor.verdicts import Status
from tests.captures import NOW
from tests.gpu_node import PID
from tests.rig_containers import RigContainer, needs_rig, rig_containers
from tests.trace_cases import (
    BROKEN,
    NOT_ROOT,
    ROOT,
    WARNED,
    Change,
    compat_first,
    mps,
    setting,
    with_variables,
    without_libraries,
)
from tests.trace_node import LIBRARIES, NODES, UUIDS, VERSION, TraceNode, broken, statuses
from tests.workload_node import DOCKER, ID, oci


@pytest.mark.parametrize("name", BROKEN)
def test_each_step_broken_alone_is_the_first_and_the_only_one(name: str) -> None:
    case = BROKEN[name]
    (one,) = case.node().trace(built=True).traced
    assert broken(one) == (case.step, case.follows), one.summary
    step = one.step(StepId(case.step))
    assert case.says in step.summary
    assert any(case.cites in f"{seen.where} {seen.shows}" for seen in step.evidence), step.evidence
    assert step.remedies[0].say and (case.step == "host" or step.remedies[0].confirm == "gpudoctor trace docker:web")
    assert one.summary == f"{case.step}: {step.summary}"
    unseen = [later.id.value for later in one.steps if later.status is Status.UNKNOWN]
    assert unseen in ([], ["host"]), one.steps


def test_everything_right_passes_with_evidence() -> None:
    one = TraceNode().traced()
    assert set(statuses(one).values()) == {"pass"}
    assert (one.verdict.value, one.first_broken, one.pid, one.title) == ("pass", None, PID, "docker:web")
    assert all(step.evidence for step in one.steps)
    assert [gpu.uuid for gpu in one.gpus] == list(UUIDS)


@pytest.mark.parametrize("name", WARNED)
def test_what_breaks_nothing_is_a_warning(name: str) -> None:
    case = WARNED[name]
    (one,) = case.node().trace(built=True).traced
    assert [step.id.value for step in one.steps if step.status is Status.WARN] == [case.step], statuses(one)
    step = one.step(StepId(case.step))
    assert (one.verdict.value, one.first_broken) == ("warn", None)
    assert case.says in step.summary and step.remedies
    assert any(case.cites in f"{seen.where} {seen.shows}" for seen in step.evidence), step.evidence


def test_rdma_with_little_lockable_memory_is_a_warning() -> None:
    node = TraceNode()
    node.locked = "65536"
    node.char(f"{ROOT}/dev/infiniband/uverbs0", 231, 192)
    assert node.step("limits").summary.startswith("it has InfiniBand devices, but may lock only 64 KiB")
    node = TraceNode()
    node.locked = "65536"
    assert node.step("limits").status is Status.PASS, "without such devices nobody locks memory for them"


def test_two_faults_stay_two_and_the_first_is_named_first() -> None:
    node = TraceNode()
    node.allowed = ()
    node.environment.append("CUDA_VISIBLE_DEVICES=7")
    one = node.traced()
    assert broken(one) == ("rules", {"visible": ""})
    page = trace_terminal.render(node.trace(built=True), Look())
    assert page.index("FAIL     rules:") < page.index("FAIL     visible:")


# look-alikes --------------------------------------------------------------------------------------------------------

ALIKE: dict[str, tuple[Change, ...]] = {
    "void-in-cdi-mode": (
        setting(requests=[{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]),
        with_variables("NVIDIA_VISIBLE_DEVICES=void"),
    ),
    "image-with-older-compat-beside": (
        lambda node: node.library("/usr/local/cuda-12.4/compat", "libcuda", "550.54.15", mounted=False),
    ),
    "image-with-newer-compat-on-a-data-center-gpu": (
        lambda node: node.library("/usr/local/cuda-13.4/compat", "libcuda", "615.31", mounted=False),
    ),
    "newer-compat-first-on-a-data-center-gpu": (compat_first("615.31"),),
    "beginning-of-a-uuid": (with_variables("CUDA_VISIBLE_DEVICES=GPU-AAAA"),),
    "all-by-index": (with_variables("CUDA_VISIBLE_DEVICES=1,0"),),
    "path-without-libcuda": (with_variables("LD_LIBRARY_PATH=/usr/local/nvidia/lib:/opt/lib:relative"),),
    "capabilities-all": (with_variables("NVIDIA_DRIVER_CAPABILITIES=all"),),
    "utility-only-but-cdi-brought-all": (with_variables("NVIDIA_DRIVER_CAPABILITIES=utility"),),
    "cpus-of-both-nodes": (setting(cpus="30-40,64-95"),),
    "unit-that-lists-them": (
        lambda node: node.unit(
            "/dev/char/195:0 rw", "/dev/char/195:1 rw", "/dev/char/195:255 rw", "/dev/char/507:0 rw"
        ),
    ),
    "not-root-with-open-nodes": (NOT_ROOT,),
    "mps-of-the-device-plugin": (
        mps("/mps/nvidia.com/gpu/pipe", "/run/nvidia/mps/nvidia.com/gpu/pipe"),
        lambda node: node.mounts.__setitem__(
            1, "92 91 0:71 /run/nvidia/mps/shm /dev/shm rw - tmpfs tmpfs rw,size=8388608k\n"
        ),
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_look_alikes_pass(name: str) -> None:
    node = TraceNode()
    for change in ALIKE[name]:
        change(node)
    one = node.traced()
    assert set(statuses(one).values()) <= {"pass", "skip"}, [(step.id, step.summary) for step in one.steps]


@pytest.mark.parametrize(("names", "status"), [(False, Status.PASS), (True, Status.FAIL)])
def test_an_mps_daemon_that_is_gone_is_the_affair_of_its_clients(names: bool, status: Status) -> None:
    node = TraceNode()
    node.link(
        "/etc/systemd/system/multi-user.target.wants/nvidia-mps.service", "/etc/systemd/system/nvidia-mps.service"
    )
    node.text("/etc/systemd/system/nvidia-mps.service", "[Service]\nExecStart=/usr/bin/nvidia-cuda-mps-control -f\n")
    node.environment += ["CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps"] if names else []
    host = node.step("host")
    assert host.status is status
    assert not names or "sharing.mps-daemon: nvidia-cuda-mps-control: nvidia-mps.service" in host.summary


def test_node_of_a_group_that_the_process_is_in_can_be_opened() -> None:
    node = TraceNode()
    NOT_ROOT(node)
    node.build()
    node.changed(f"{ROOT}/dev/nvidia0", mode=0o660, gid=1000)
    assert node.trace(built=True).traced[0].step(StepId.NODES).status is Status.PASS


def test_maps_say_what_is_loaded_whatever_lies_around() -> None:
    node = TraceNode()
    compat_first("550.54.15")(node)
    node.build()
    path = f"{LIBRARIES}/libcuda.so.{VERSION}"
    node.text(f"/proc/{PID}/maps", f"7f0000000000-7f0000001000 r-xp 00000000 fd:00 99    {path}\n")
    step = node.trace(built=True).traced[0].step(StepId.LIBRARIES)
    assert step.status is Status.PASS and f"PID {PID} has loaded libcuda {VERSION}" in step.summary
    node.text(
        f"/proc/{PID}/maps",
        "7f0000000000-7f0000001000 r-xp 00000000 fd:00 99    /usr/local/cuda-12.4/compat/libcuda.so.550.54.15\n",
    )
    step = node.trace(built=True).traced[0].step(StepId.LIBRARIES)
    assert step.status is Status.FAIL and "/usr/local/cuda-12.4/compat/libcuda.so.550.54.15" in step.summary


def test_mapped_runtime_counts_before_what_the_image_says() -> None:
    node = TraceNode()
    node.build()
    node.text(f"/proc/{PID}/maps", "7f00-7f01 r-xp 00000000 fd:00 99    /opt/torch/lib/libcudart.so.13.0.48\n")
    step = node.trace(built=True).traced[0].step(StepId.RUNTIME)
    assert step.status is Status.PASS and step.summary.startswith("CUDA 13 needs a driver of 580 or newer")


COMPAT = "/usr/local/cuda-13.4/compat"


def newer_compat_on_geforce() -> TraceNode:
    """The image brings a package for forward compatibility, which this card may not use."""
    node = TraceNode()
    node.names = ["NVIDIA GeForce RTX 4090"] * 2
    node.library(COMPAT, "libcuda", "615.31", mounted=False)
    return node


def cached(node: TraceNode, *folders: str) -> TraceNode:
    """The loader's cache inside gives libcuda in these folders, in this order."""
    content = write_cache(CachedLibrary("libcuda.so.1", f"{folder}/libcuda.so.1", 0x0303) for folder in folders)
    node.text(f"{ROOT}/etc/ld.so.cache", content.decode("utf-8", "backslashreplace"))
    return node


def test_newer_compat_beside_on_a_card_that_may_not_use_it_depends_on_the_loaders_cache() -> None:
    node = newer_compat_on_geforce()
    node.tree.put(f"{ROOT}/etc/ld.so.cache", Record(error="EACCES"))
    step = node.step("libraries")
    assert step.status is Status.UNKNOWN and "etc/ld.so.cache does not tell: permission denied" in step.summary
    assert newer_compat_on_geforce().step("libraries").status is Status.PASS, (
        "without a cache no folder but the loader's own"
    )
    step = cached(newer_compat_on_geforce(), COMPAT, LIBRARIES).step("libraries")
    assert step.status is Status.FAIL and "804" in step.summary and COMPAT in step.summary
    step = cached(newer_compat_on_geforce(), LIBRARIES, COMPAT).step("libraries")
    assert step.status is Status.PASS and VERSION in step.summary


def test_cache_inside_leads_to_a_folder_that_nothing_else_names() -> None:
    node = TraceNode()
    node.library("/opt/old", "libcuda", "535.183.01", mounted=False)
    step = cached(node, "/opt/old", LIBRARIES).step("libraries")
    assert step.status is Status.FAIL and "535.183.01" in step.summary and "803" in step.summary


def test_stub_that_the_cache_inside_has_first_is_broken() -> None:
    node = TraceNode()
    node.library("/usr/local/cuda/lib64/stubs", "libcuda", VERSION, mounted=False)
    step = cached(node, "/usr/local/cuda/lib64/stubs", LIBRARIES).step("libraries")
    assert step.status is Status.FAIL and "34" in step.summary


def test_several_libcuda_without_a_path_are_unknown() -> None:
    node = TraceNode()
    node.library("/usr/lib64", "libcuda", "550.54.14", mounted=False)
    step = node.step("libraries")
    assert step.status is Status.UNKNOWN and "550.54.14" in step.summary and "/etc/ld.so.cache" in step.summary


def test_library_without_the_name_that_programs_load_is_broken() -> None:
    node = TraceNode()
    node.without(f"{ROOT}{LIBRARIES}/libcuda.so.1")
    step = node.step("libraries")
    assert step.status is Status.FAIL and "ldconfig did not run in it" in step.summary


def test_privileged_container_need_not_ask() -> None:
    node = TraceNode()
    node.requests, node.environment, node.config = [], ["PATH=/bin"], oci(nodes=NODES, privileged=True)
    without_libraries(node)
    node.library(LIBRARIES, "libcuda", VERSION, mounted=False)
    step = node.step("asked")
    assert step.status is Status.PASS and "privileged" in step.summary
    assert step.evidence[0].shows == "linux.resources.devices allows everything"


def test_other_things_of_cdi_are_no_gpus() -> None:
    node = TraceNode()
    node.requests = [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/imex-channel=9"]}]
    step = node.step("asked")
    assert step.status is Status.PASS and step.summary == "docker was asked for nvidia.com/imex-channel=9"


def test_mig_device_needs_the_nodes_of_its_instances() -> None:
    node = TraceNode()
    node.environment = ["NVIDIA_VISIBLE_DEVICES=MIG-0a0b0c0d-1111-2222-3333-444455556666"]
    node.requests = []
    step = node.step("nodes")
    assert step.status is Status.FAIL and "MIG device was asked for" in step.summary
    node.char(f"{ROOT}/dev/nvidia-caps/nvidia-cap30", 506, 30, 0o444)
    assert node.trace(built=True).traced[0].step(StepId.NODES).status is Status.PASS


# what cannot be seen ------------------------------------------------------------------------------------------------


def test_container_whose_processes_all_ended_is_there_and_dead() -> None:
    node = TraceNode()
    node.process(PID, DOCKER, apart=True, state="Z")
    (one,) = node.trace(f"container:{ID[:12]}", built=True).traced
    assert (one.first_broken, one.pid) == (StepId.FOUND, 0)
    assert "none of its processes lives: PID 702 ended" in one.step(StepId.FOUND).summary
    assert set(statuses(one).values()) == {"fail", "skip"}


def test_without_root_every_step_says_what_it_needs() -> None:
    node = TraceNode()
    node.build()
    node.uid = 1000
    for path in ("environ", "mountinfo", "maps", "root", "root/dev", "ns/mnt", "ns/ipc"):
        node.without(f"/proc/{PID}/{path}")
        node.tree.put(f"/proc/{PID}/{path}", Record(error="EACCES"))
    node.tree.put("/run/containerd/io.containerd.runtime.v2.task", Record(error="EACCES"))
    found = node.trace(f"docker:{ID[:12]}", built=True)
    (one,) = found.traced
    assert (found.exit_code, one.verdict.value) == (3, "unknown")
    assert one.summary.startswith("could not tell: nodes: ")
    blind = {step.id.value: step.would_need for step in one.steps if step.status is Status.UNKNOWN}
    assert {"nodes", "libraries", "visible", "limits"} <= set(blind) and set(blind.values()) == {"root"}, blind


def test_withheld_rules_are_unknown_with_the_privilege() -> None:
    node = TraceNode()
    node.build()
    data = node.recording().answers["cgroup_devices"]
    assert not isinstance(data, Exception)
    cgroups = {f"/sys/fs/cgroup{DOCKER}": {"error": "EPERM"}}
    node.answers["cgroup_devices"] = Answer(data={"programs": {}, "cgroups": cgroups}, via="bpf(2)")
    found = node.trace(built=True)
    step = found.traced[0].step(StepId.RULES)
    assert (step.status, step.would_need, found.exit_code) == (Status.UNKNOWN, "root (CAP_SYS_ADMIN)", 3)


def test_platform_with_rules_of_its_own_is_not_judged_by_those_of_others() -> None:
    node = TraceNode()
    for number, bus in enumerate(("05", "06")):
        node.without(f"/sys/bus/pci/devices/0000:{bus}:00.0")
        node.without(f"/sys/devices/pci0000:00/0000:00:01.{number}")
    node.text("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    found = node.trace()
    step = found.traced[0].step(StepId.NODES)
    assert (step.status, found.traced[0].step(StepId.VISIBLE).status) == (Status.UNKNOWN, Status.SKIP)
    assert "WSL2 has rules of its own" in step.summary


def test_nodes_whose_mount_or_owner_is_hidden_are_unknown() -> None:
    node = TraceNode()
    node.build()
    node.tree.put(f"/proc/{PID}/mountinfo", Record(error="EACCES"))
    assert node.trace(built=True).traced[0].step(StepId.NODES).would_need == "root"
    node = TraceNode()
    node.build()
    node.changed(f"{ROOT}/dev/nvidia0", mode=0o660)
    node.tree.put(f"/proc/{PID}/status", Record(error="EACCES"))
    (one,) = node.trace(built=True).traced
    assert (one.step(StepId.NODES).status, one.verdict.value) == (Status.UNKNOWN, "unknown")


def test_no_process_recorded_is_unknown_not_absent() -> None:
    node = TraceNode()
    node.tree.children.pop("/proc")
    for path in [path for path in node.tree.records if re.match(r"/proc/\d+/", path)]:
        del node.tree.records[path]
    found = node.trace(built=True)
    (one,) = found.traced
    assert (found.exit_code, one.step(StepId.FOUND).status) == (3, Status.UNKNOWN)


def test_step_that_is_not_essential_leaves_the_verdict_alone() -> None:
    node = TraceNode()
    node.build()
    node.without(f"/proc/{PID}/status")
    node.tree.put(f"/proc/{PID}/status", Record(error="EIO"))
    (one,) = node.trace(built=True).traced
    assert one.step(StepId.NUMA).status is Status.UNKNOWN and one.verdict.value == "pass"
    assert one.summary == "nothing seen keeps it from its GPUs; not seen: numa"
    assert StepId.NUMA not in ESSENTIAL


def test_no_step_passes_on_what_it_was_not_shown() -> None:
    """Each path that a passing step cites, made unreadable and then absent: it must not pass and cite it."""
    whole = TraceNode()
    (one,) = whole.trace().traced
    cited = sorted({seen.where for step in one.steps for seen in step.evidence if seen.where.startswith("/proc/702/")})
    assert len(cited) >= 8, cited
    for where in cited:
        for error in ("EACCES", "ENOENT"):
            node = TraceNode()
            node.build()
            node.without(where)
            node.tree.put(where, Record(error=error))
            with contextlib.suppress(ConfigError):
                for traced in node.trace(built=True).traced:
                    _none_passes_on(traced, where, error)


def _none_passes_on(traced: Traced, where: str, error: str) -> None:
    for step in traced.steps:
        cites = [seen for seen in step.evidence if seen.where == where]
        assert step.status is not Status.PASS or not cites, (where, error, step)
        if error == "EACCES" and not where.startswith(f"{ROOT}/"):
            assert step.status not in (Status.FAIL, Status.WARN), (where, step)


# the rig ------------------------------------------------------------------------------------------------------------

SITUATIONS: dict[str, str | None] = {
    "bind-mounted-node-no-rule": "rules",
    "bind-mounted-node-nodev": "nodes",
    "healthy": None,
    "healthy.after-rules-lost": "rules",
    "legacy-hook-then-update": "rules",
    "missing-nvidiactl": "nodes",
    "mknod-only-rule": "rules",
    "mode-0600-nonroot": "nodes",
    "no-nodes": "nodes",
    "nodes-but-cgroup-deny": "rules",
    "privileged": None,
    "readonly-rule": "rules",
    "rules-but-no-nodes": "nodes",
    "void": "asked",
    "wildcard-195": None,
    "wrong-minor": "nodes",
    "wrong-uvm-major": "nodes",
}
"""What the name of a folder says is broken; of the others its probe tells."""
CONTAINERS = list(rig_containers())


@pytest.mark.parametrize("container", CONTAINERS, ids=[one.id for one in CONTAINERS])
def test_first_broken_step_of_the_rigs_containers_is_what_their_names_say(container: RigContainer) -> None:
    (one,) = _rig_trace(container).traced
    outcomes = set(container.opened().values())
    expected = SITUATIONS.get(container.situation, "rules" if "EPERM" in outcomes else None)
    assert broken(one)[0] == expected, one.summary
    assert not [name for name, cause in broken(one)[1].items() if not cause], "only one thing was made wrong"


def test_daemon_reload_that_takes_nodes_from_the_rigs_containers_is_foretold() -> None:
    needs_rig()
    compared = 0
    for before in CONTAINERS:
        if before.after is None:
            continue
        lost = "EPERM" in before.after.opened().values()
        (one,) = _rig_trace(before).traced
        assert (one.step(StepId.RULES).status is Status.WARN) is lost, before.id
        compared += 1
    assert compared >= 20


@functools.cache
def _rig_trace(container: RigContainer) -> Trace:
    return trace(container.node().node(), Config(), built_in(), f"pid:{container.pid}", NOW)


def test_the_rig_is_there_or_its_absence_shows() -> None:
    needs_rig()
    assert len(CONTAINERS) >= 111
