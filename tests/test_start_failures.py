"""Containers that did not start for their GPU: the sentences of engines' journals, through the check."""

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Log
from gpudoctor.facts.software import DPKG, PACKAGES, QUERY_DPKG
from gpudoctor.knowledge.start_errors import ANCHOR, ERRORS
from gpudoctor.probes import journal
from gpudoctor.probes.deadline import Deadline
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.testing import node, run_node
from gpudoctor.verdicts import Status, Unread, Why
from tests.captures import Builder, diagnose
from tests.containerd_node import HEALTHY, MAIN, RUNC, RUNTIME, SOCKET, ContainerdNode
from tests.containerd_node import STARTED as ENGINES_STARTED
from tests.docker_node import STARTED, DockerNode
from tests.small_node import SmallNode, alarms, cited, steps

BuilderT = TypeVar("BuilderT", bound=Builder)
CHECK, ORDER = "toolkit.containers-start", "startup.engine-after-driver"
SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
HOOK = (
    "OCI runtime create failed: runc create failed: unable to start container process: error during container init: "
    "error running hook #0: error running hook: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\\nnvidia-container-cli: "
)

# The sentences as issues and captures quote them, and the error that each is.
SENTENCES = (
    (HOOK + "initialization error: driver rpc error: timed out: unknown", "rpc-timeout"),
    (HOOK + "device error: GPU-12345678-9abc: unknown device: unknown", "unknown-device"),
    (HOOK + "ldcache error: process /sbin/ldconfig.real failed with error code: 127: unknown", "ldconfig"),
    (HOOK + "ldcache error: process /sbin/ldconfig terminated with signal 9: unknown", "ldconfig-killed"),
    (
        HOOK + "initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object",
        "library-missing",
    ),
    (
        HOOK + "mount error: namespace association failed: /proc/18331/ns/mnt: function not implemented",
        "mount-namespace",
    ),
    (HOOK + "requirement error: unsatisfied condition: cuda>=12.8, please update your driver", "require-cuda"),
    (HOOK + "mount error: /proc/driver/nvidia/gpus/cfdd:00:00.0: no such file or directory", "pci-domain"),
    (HOOK + "initialization error: nvml error: driver/library version mismatch: unknown", "version-mismatch"),
    (HOOK + "initialization error: nvml error: unknown error: unknown", "nvml-unknown"),
    (HOOK + "mount error: stat failed: /dev/nvidiactl: no such file or directory: unknown", "other"),
    (
        (
            f"{HOOK}mount error: failed to add device rules: unable to find any existing device filters attached to the cgroup: "
            "bpf_prog_query(BPF_CGROUP_DEVICE) failed: operation not permitted: unknown"
        ),
        "device-rules",
    ),
    (
        "unsupported capabilities found in 'foo' (allowed 'compute,utility') nvidia-container-runtime-hook",
        "capabilities",
    ),
    (
        (
            "failed to create shim task: OCI runtime create failed: unable to retrieve OCI runtime error (open log.json: no such file or "
            "directory): fork/exec /usr/local/nvidia/toolkit/nvidia-container-runtime: no such file or directory: unknown"
        ),
        "program-gone",
    ),
    ('could not select device driver \\"\\" with capabilities: [[gpu]]', "no-gpu-driver"),
    ("failed to discover GPU vendor from CDI: no known GPU vendor found", "cdi-vendor"),
    ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=77.", "cdi-unresolvable"),
    ('failed to get sandbox runtime: no runtime for \\"nvidia\\" is configured', "no-handler"),
    ("failed to find runtime handler nvidia from runtime list map[crun:0xc00047e300 runc:0xc00047ef00]", "no-handler"),
    ("unknown or invalid runtime name: nvidia", "unknown-runtime"),
    (
        HOOK + "mount error: file creation failed: /var/lib/docker/overlay2/1f/merged/run/nvidia-persistenced/socket: "
        "no space left on device: unknown",
        "disk-full",
    ),
    (
        (
            "OCI runtime create failed: error running hook: exit status 2, stdout: , stderr: 2020/11/05 03:17:09 insufficient "
            "privileges to read device list from NVIDIA_VISIBLE_DEVICES envvar: unknown"
        ),
        "variable-refused",
    ),
    (
        'crun: {\\"msg\\":\\"error executing hook `/usr/bin/nvidia-cdi-hook` (exit code: 1)\\",\\"level\\":\\"error\\"}',
        "cdi-hook",
    ),
    ("container create failed: error executing hook `/usr/bin/nvidia-container-runtime-hook` (exit code: 1)", "hook"),
)
REMARKED = ("unknown-device", "require-cuda", "capabilities", "variable-refused")


def _line(message: str, at: str = "2026-11-29T10:00:00+0000") -> str:
    return f'{at} n1 dockerd[935]: time="{at}" level=error msg="{message}"\n'


def _report(log: str, unit: str = "docker.service", node: SmallNode | None = None) -> Report:
    node = node or SmallNode()
    node.logs[f"journal/{unit}.log"] = log
    return node.report()


def _alarm(log: str, node: SmallNode | None = None) -> Finding:
    (found,) = alarms(_report(log, node=node), CHECK)
    return found


@pytest.mark.parametrize(("message", "name"), SENTENCES, ids=[name for _, name in SENTENCES])
def test_each_sentence_is_told_apart(message: str, name: str) -> None:
    node = SmallNode()
    node.text("/proc/driver/nvidia/gpus/03f8cfdd:00:00.0/information", "Device Minor: 2\n")
    found = _alarm(_line(message), node)
    assert (found.cause, found.subject.key) == (name, "docker")
    assert found.evidence[0].at == "2026-11-29T10:00:00+0000"
    assert found.status is (Status.WARN if name in REMARKED else Status.FAIL)


def test_every_known_error_has_a_sentence_here_or_below() -> None:
    elsewhere = {"driver-not-loaded", "wsl-no-adapter", "cdi-not-ready", "node-missing", "cdi-gids", "stale-mount"}
    assert {error.name for error in ERRORS} == {name for _, name in SENTENCES} | elsewhere


@pytest.mark.parametrize(("message", "name"), SENTENCES, ids=[name for _, name in SENTENCES])
def test_a_live_journal_is_asked_for_each_of_them(message: str, name: str) -> None:
    assert re.search(ANCHOR, message), name


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (SENTENCES[1][0], "GPU-12345678-9abc"),
        (SENTENCES[6][0], "cuda>=12.8"),
        (SENTENCES[13][0], "/usr/local/nvidia/toolkit/nvidia-container-runtime"),
        (SENTENCES[16][0], "nvidia.com/gpu=77"),
        (
            'error mounting \\"/usr/lib/x86_64-linux-gnu/libEGL_nvidia.so.570.00.00\\" to rootfs',
            "libEGL_nvidia.so.570.00.00",
        ),
        ('CDI spec: json: unknown field \\"additionalGids\\"', "additionalGids"),
    ],
)
def test_the_summary_names_what_the_sentence_names(message: str, named: str) -> None:
    found = _alarm(_line(message))
    assert named in found.summary and named in cited(found)


def test_the_same_failure_many_times_is_one_finding_with_its_last_time() -> None:
    message = SENTENCES[0][0]
    found = _alarm("".join(_line(message, f"2026-11-29T10:0{minute}:00+0000") for minute in range(5)))
    assert "(5 times)" in found.summary and found.evidence[0].at == "2026-11-29T10:04:00+0000"


@pytest.mark.parametrize(
    "message",
    [
        "Handler for POST /images/create returned error: manifest for nvidia/cuda:12.0-base not found",
        'failed to pull image \\"nvcr.io/nvidia/pytorch:25.01-py3\\": no space left on device',
        "API listen on /run/docker.sock",
        'runtime for \\"kata\\" is slow',
        'error mounting \\"/data/models\\" to rootfs: no such file or directory',
        'PullImage \\"ghcr.io/acme/nvidia-container-toolkit:1\\" failed: failed to extract layer: write /a: no space left on device',
        "mkdir /var/lib/docker/overlay2/1f: no space left on device",
        "error executing hook `/usr/libexec/oci/hooks.d/oci-umount` (exit code: 1)",
    ],
)
def test_what_has_nothing_to_do_with_gpus_is_no_failure(message: str) -> None:
    report = _report(_line(message))
    assert alarms(report, CHECK) == []
    assert report.result(CHECK).status is Status.PASS


def test_without_journals_nothing_passes() -> None:
    assert SmallNode().report().result(CHECK).status in (Status.UNKNOWN, Status.SKIP)


def test_containers_too_early_at_boot_are_told_by_the_startup_check() -> None:
    message = (
        'error gathering device information while adding custom device \\"/dev/nvidia-uvm-tools\\": lstat: no such file'
    )
    report = _report(_line(message))
    (found,) = alarms(report, ORDER)
    assert alarms(report, CHECK) == []
    assert "/dev/nvidia-uvm-tools did not exist yet" in found.summary
    assert "docker start" in steps(found) and "nvidia-modprobe -c 0 -u" in steps(found)


def test_docker_without_cdi_devices_at_boot_is_too_early_as_well() -> None:
    (found,) = alarms(_report(_line('could not select device driver \\"cdi\\" with capabilities: [[]]')), ORDER)
    assert found.cause == "too-early"


def test_engines_journals_are_asked_for_lines_of_failures_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []

    def run_command(argv: tuple[str, ...], _deadline: Deadline) -> CommandOutput:
        ran.append(argv)
        return CommandOutput(argv, 1, "")

    monkeypatch.setattr(journal, "run_command", run_command)
    for unit in ("kubelet", "podman"):
        found = journal.read_journal(f"journal/{unit}.service.log", "/", Deadline(20.0))
        assert isinstance(found, Log) and found.text == ""
        assert ran[-1][-2:] == ("--grep", ANCHOR) and "--since" in ran[-1]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared captures are not here")
def test_what_real_engines_printed_is_recognised() -> None:
    """dockerd 20.10 and 26.1 around the simulated driver: every refused start that names the GPU, none of the others."""
    told: dict[str, set[str]] = {}
    for run in sorted(SHARED.glob("rig/docker/*/*/run.txt")):
        said = [
            line for line in run.read_text("utf-8").splitlines() if re.search("rror response from|couldn't find", line)
        ]
        if said:
            found = alarms(_report(_line(" ".join(said).replace('"', '\\"'))), CHECK)
            told.setdefault(run.parent.name, set()).add(found[0].cause if found else "")
    assert told == {
        "gpus-all": {"program-gone"},
        "privileged": {""},
        "runtime-nvidia-badidx": {"unknown-device"},
        "runtime-nvidia-baduuid": {"unknown-device"},
        "unknown-runtime": {"unknown-runtime"},
        "cdi-baddev": {"cdi-unresolvable"},
        "cdi-no-spec": {"cdi-unresolvable"},
        "cdi-stale-spec": {"stale-mount"},
    }


def test_what_the_kubelet_repeats_of_its_engine_is_told_once() -> None:
    node = SmallNode()
    node.logs["journal/containerd.service.log"] = _line(SENTENCES[3][0])
    node.logs["journal/kubelet.service.log"] = _line(SENTENCES[3][0]) + _line(SENTENCES[4][0])
    told = [(found.subject.key, found.cause) for found in alarms(node.report(), CHECK)]
    assert sorted(told) == [("containerd", "ldconfig-killed"), ("kubelet", "library-missing")]


# What else of the node bears on it ------------------------------------------------------------------------------------

KILLED = HOOK + "ldcache error: process /sbin/ldconfig.real terminated with signal 9: unknown"
SAID_AT = 1_795_946_400
"""2026-11-29 10:00:00 UTC, when the journals here speak."""
BOOTED = SAID_AT - 800
ID = "3fc28fa1c647ceede9f6b340d0b16c9f1f663698972d22a52e296f291638e014"
UUIDS = tuple(f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "ab")


def _node(kernel: str = "", ago: float = 0.0, **files: str) -> SmallNode:
    """A node whose kernel said something so many seconds before the lines of the journal."""
    node = SmallNode()
    node.text("/proc/stat", f"btime {BOOTED}\n")
    seconds = SAID_AT - BOOTED - ago
    node.logs["kernel.log"] = "".join(f"[{seconds:.6f}] {line}\n" for line in kernel.splitlines())
    for path, text in files.items():
        node.text(path, text)
    return node


def _oom(group: str, task: str, constraint: str = "CONSTRAINT_MEMCG") -> str:
    """The kernel's two lines."""
    memory = f"oom_memcg={group}," if group else ""
    head = "Memory cgroup out of memory" if group else "Out of memory"
    return (
        f"oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0,{memory}task_memcg={group or '/'},"
        f"task={task},pid=77,uid=0\n{head}: Killed process 77 ({task}) total-vm:2676kB, anon-rss:84kB, file-rss:1468kB"
    )


@pytest.mark.parametrize("task", ["ldconfig.real", "ldconfig", "nvc:[ldconfig]", "3"])
def test_an_ldconfig_killed_for_want_of_memory_is_no_matter_of_the_sandbox(task: str) -> None:
    found = _alarm(_line(KILLED), _node(_oom("/system.slice/docker.service", task)))
    assert (found.cause, found.status) == ("out-of-memory", Status.FAIL)
    assert "/system.slice/docker.service" in found.summary and "sandbox" not in found.summary
    assert f"task={task}," in cited(found) and f"Killed process 77 ({task})" in cited(found)
    assert "apt-get" not in steps(found) and "MemoryMax" in steps(found)


def test_the_limit_of_the_container_itself_is_told_from_the_nodes_memory() -> None:
    own = _alarm(_line(KILLED), _node(_oom(f"/system.slice/docker-{ID}.scope", "ldconfig")))
    assert (own.cause, own.status) == ("container-out-of-memory", Status.WARN)
    assert "docker update --memory" in steps(own)
    node = _alarm(_line(KILLED), _node(_oom("", "ldconfig", "CONSTRAINT_NONE")))
    assert node.cause == "out-of-memory" and "the memory of the node was used up" in node.summary


@pytest.mark.parametrize(
    ("kernel", "ago", "message"),
    [
        (_oom("/system.slice/docker.service", "httpd"), 0.0, KILLED),
        (_oom("/system.slice/docker.service", "my-ldconfig-watcher"), 0.0, KILLED),
        (_oom("/system.slice/docker.service", "ldconfig"), 700.0, KILLED),
        (_oom("/system.slice/docker.service", "ldconfig"), 0.0, KILLED.replace("signal 9", "signal 31")),
        ("audit: type=1326 comm=ldconfig sig=31", 0.0, KILLED),
    ],
    ids=["another process", "another name", "long before", "the filter's signal", "no kill"],
)
def test_without_the_kernels_kill_the_sandbox_stays_the_cause(kernel: str, ago: float, message: str) -> None:
    found = _alarm(_line(message), _node(kernel, ago))
    assert found.cause == "ldconfig-killed" and "sandbox" in found.summary and "oom-kill" not in cited(found)
    assert found.status is Status.FAIL


def test_an_unread_kernel_log_leaves_memory_open() -> None:
    assert "whether memory was short is not known" in _alarm(_line(KILLED)).summary


def test_whose_fault_a_kill_was_is_not_known_to_whoever_may_not_read_the_kernel_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = RecordedNode.log

    def log(node: RecordedNode, name: str) -> Log | Unread:
        return Unread(Why.NO_PERMISSION, name, "permission denied") if name == "kernel.log" else whole(node, name)

    monkeypatch.setattr(RecordedNode, "log", log)
    result = _report(_line(KILLED)).result(CHECK)
    assert (result.status, result.why) == (Status.UNKNOWN, Why.NO_PERMISSION)


def _with_uuids(node: SmallNode) -> SmallNode:
    for minor, uuid in enumerate(UUIDS):
        path = f"/proc/driver/nvidia/gpus/0000:0{5 + minor}:00.0/information"
        node.text(path, f"GPU UUID: {uuid}\nDevice Minor: {minor}\n")
    return node


def test_a_container_with_a_gpu_that_is_gone_is_named_with_those_that_there_are() -> None:
    node = _with_uuids(SmallNode())
    folder = f"/var/lib/docker/containers/{ID}"
    node.text(
        f"{folder}/config.v2.json",
        '{"Name": "/train", "Config": {"Env": ["NVIDIA_VISIBLE_DEVICES=GPU-12345678-9abc"]}}',
    )
    node.text(
        f"{folder}/hostconfig.json", '{"DeviceRequests": [{"Driver": "nvidia", "DeviceIDs": ["GPU-12345678-9abc"]}]}'
    )
    start = f"Handler for POST /v1.47/containers/{ID}/start returned error: failed to create task for container: "
    found = _alarm(_line(start + SENTENCES[1][0]), node)
    assert found.summary.startswith("container train did not start")
    assert all(uuid in found.summary and f"GPU UUID: {uuid}" in cited(found) for uuid in UUIDS)
    assert "NVIDIA_VISIBLE_DEVICES=GPU-12345678-9abc" in cited(found) and "DeviceRequests: GPU-12345678-9abc" in cited(
        found
    )
    assert "nvidia-smi -L" in steps(found) and "kubectl" in steps(found)


def test_a_gpu_that_came_back_needs_no_other_container() -> None:
    found = _alarm(_line(f"{HOOK}device error: {UUIDS[1]}: unknown device: unknown"), _with_uuids(SmallNode()))
    assert found.cause == "unknown-device" and "it is there now" in found.summary and "docker start" in steps(found)


def test_mig_devices_are_compared_with_those_that_nvml_names() -> None:
    node = SmallNode()
    mig = {"uuid": "MIG-11111111-0000-0000-0000-000000000000", "profile": "1g.10gb"}
    node.nvml = Answer({"init": 0, "count": 1, "devices": [{"index": 0, "uuid": UUIDS[0], "mig_devices": [mig]}]})
    found = _alarm(_line(f"{HOOK}device error: MIG-22222222-0000: unknown device: unknown"), node)
    assert f"there is {mig['uuid']}" in found.summary and UUIDS[0] not in found.summary


def test_what_cannot_be_looked_up_beside_it_leaves_the_sentence() -> None:
    node = SmallNode()
    for bus in ("05", "06"):
        node.tree.put(f"/proc/driver/nvidia/gpus/0000:{bus}:00.0/information", Record(error="EACCES"))
    node.tree.put("/proc/driver/nvidia/gpus", Record(error="EACCES"))
    for sentence, cause in (SENTENCES[1], SENTENCES[7]):
        found = _alarm(_line(sentence), node)
        assert found.cause == cause and len(found.evidence) == 1


def test_containers_that_fail_alike_are_each_named() -> None:
    lines = [
        f'RunPodSandbox for &PodSandboxMetadata{{Name:a,Uid:1,Namespace:ml,Attempt:0,}} failed, error=\\"{KILLED}\\"'
    ]
    lines += [f'StartContainer for \\"{ID}\\" failed, error=\\"{KILLED}\\"'] * 2
    found = _alarm("".join(map(_line, lines)))
    assert found.summary.startswith(f"pod ml/a, container {ID[:12]} did not start") and "(3 times)" in found.summary


def test_a_slow_driver_is_told_with_what_may_have_held_it_up() -> None:
    kernel = "NVRM: Xid (PCI:0000:05:00): 79, pid=1, GPU has fallen off the bus.\nNVRM: Xid (PCI:0000:06:00): 31, pid=2, MMU Fault"
    node = _node(kernel)
    node.absent("/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service")
    found = _alarm(_line(SENTENCES[0][0]), node)
    assert "nvidia-persistenced is not enabled; the kernel log tells of Xid 79" in found.summary
    assert "Xid (PCI:0000:05:00): 79" in cited(found) and "): 31," not in cited(found)


def _with_modes(*modes: bool) -> SmallNode:
    node = SmallNode()
    devices = [
        {"index": index, "pci_bus_id": f"00000000:0{5 + index}:00.0", "fields": {"persistence_mode": mode}}
        for index, mode in enumerate(modes)
    ]
    node.nvml = Answer({"init": 0, "count": len(modes), "devices": devices})
    return node


def test_persistence_is_advised_where_it_is_off_alone() -> None:
    off = _alarm(_line(SENTENCES[0][0]), _with_modes(True, False))
    assert "persistence mode is off on 1 of 2 GPUs" in off.summary and "nvidia-persistenced" in steps(off)
    on = _alarm(_line(SENTENCES[0][0]), _with_modes(True, True))
    assert "although persistence mode is on" in on.summary and "nvidia-persistenced" not in steps(on)
    assert (off.cause, on.cause) == ("rpc-timeout", "rpc-timeout") and "time nvidia-smi" in steps(on)


def test_the_versions_that_decide_are_named() -> None:
    node = SmallNode()
    node.text(DPKG, "")
    told = "libnvidia-container-tools\t1.17.8-1\tinstalled\nnvidia-container-toolkit\t1.17.8-1\tinstalled\n"
    asked = (*QUERY_DPKG, *PACKAGES)
    node.commands[asked] = CommandOutput(asked, 0, told)
    for sentence in (SENTENCES[3][0], SENTENCES[5][0]):
        found = _alarm(_line(sentence), node)
        assert "installed: libnvidia-container 1.17.8, nvidia-container-toolkit 1.17.8" in found.summary
        assert "libnvidia-container-tools 1.17.8-1" in cited(found)


def test_a_shortened_domain_is_told_from_a_gpu_that_the_driver_does_not_list() -> None:
    node = SmallNode()
    node.text("/proc/driver/nvidia/gpus/03f8cfdd:00:00.0/information", "Device Minor: 2\n")
    found = _alarm(_line(SENTENCES[7][0]), node)
    assert found.cause == "pci-domain" and "the driver lists it as 03f8cfdd:00:00.0" in found.summary
    assert "/proc/driver/nvidia/gpus/03f8cfdd:00:00.0" in cited(found)
    gone = _alarm(_line(SENTENCES[7][0].replace("cfdd:00", "0000:07")))
    assert gone.cause == "gpu-unlisted" and "lists 0000:05:00.0, 0000:06:00.0" in cited(gone)
    assert "apt-get" not in steps(gone)


@pytest.mark.parametrize("folder", ["/usr/local/nvidia", "/opt/nvidia-runtime"])
def test_what_the_operator_took_away_is_not_installed_by_hand(folder: str) -> None:
    node = SmallNode()
    node.absent(f"{folder}/toolkit/nvidia-container-runtime")
    found = _alarm(_line(SENTENCES[13][0].replace("/usr/local/nvidia", folder)), node)
    assert found.cause == "program-gone" and "apt-get" not in steps(found)
    assert [remedy.action.value for remedy in found.remedies] == ["change-config", "restart-service", "restart-service"]
    assert "default_runtime_name" in steps(found) and "systemctl restart containerd" in steps(found)
    assert f"{folder}/toolkit/nvidia-container-runtime does not exist" in cited(found)
    package = _alarm(_line(SENTENCES[13][0].replace("/usr/local/nvidia/toolkit", "/usr/bin")))
    assert package.cause == "program-gone" and "apt-get" in steps(package)


def test_a_full_file_system_is_named_and_a_full_table_of_control_groups_is_another_matter() -> None:
    found = _alarm(_line(SENTENCES[20][0]))
    assert "/var/lib/docker/overlay2/1f/merged/run/nvidia-persistenced/socket" in found.summary
    assert "no fault of the GPU's" in found.summary and "df -i" in steps(found)
    assert "nvidia-persistenced/socket: no space left on device" in cited(found)
    groups = HOOK + "mount error: mkdir /sys/fs/cgroup/devices/docker/1f: no space left on device"
    assert _alarm(_line(groups)).cause == "other"
    assert _alarm(_line(HOOK + "mount error: write error: no space left on device")).cause == "disk-full"


@pytest.mark.parametrize("quote", ['\\"', '"', '\\\\\\"'])
@pytest.mark.parametrize("wanted", ["[[gpu]]", "[[]]"])
def test_docker_without_cdi_is_recognised_however_deep_it_is_quoted(quote: str, wanted: str) -> None:
    report = _report(_line(f"could not select device driver {quote}cdi{quote} with capabilities: {wanted}"))
    (found,) = alarms(report, ORDER)
    assert alarms(report, CHECK) == [] and "CDI was off in Docker when it started" in found.summary
    hook = 'no CDI device driver registered: could not select device driver \\"\\" with capabilities: [[gpu]]'
    assert len(alarms(_report(_line(hook)), ORDER)) == 1


# What dockerd keeps of containers ------------------------------------------------------------------------------------

MISSING = (
    "failed to create task for container: error running hook: exit status 1, stderr: Auto-detected mode as 'legacy'\n"
    "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file: "
    "no such file or directory: unknown"
)
NEVER, EARLIER, LATER = "0001-01-01T00:00:00Z", "2026-11-20T08:00:00.5Z", "2026-11-29T09:59:00.123456789Z"
OTHER = "4" * 64


def _keep(
    node: BuilderT,
    state: Mapping[str, object] | None = None,
    container: str = ID,
    *,
    name: str = "train",
    created: str = LATER,
    policy: str = "no",
    by_hand: bool = False,
) -> BuilderT:
    """A container that dockerd keeps; of its state what is given is another than that of a start that failed just now."""
    failed = {"Running": False, "Error": MISSING, "ExitCode": 127, "StartedAt": NEVER, "FinishedAt": NEVER}
    told = {"Name": f"/{name}", "Created": created, "State": {**failed, **(state or {})}}
    folder = f"/var/lib/docker/containers/{container}"
    node.text(f"{folder}/config.v2.json", json.dumps({**told, "HasBeenManuallyStopped": by_hand}))
    node.text(f"{folder}/hostconfig.json", json.dumps({"RestartPolicy": {"Name": policy}}))
    return node


def test_what_the_journal_does_not_log_is_told_by_what_dockerd_keeps() -> None:
    found = _alarm("", _keep(_node()))
    assert (found.cause, found.subject.key) == ("library-missing", "docker")
    assert found.summary == "container train did not start: the toolkit found no libnvidia-ml.so.1 on the host"
    assert found.evidence[0].where == f"/var/lib/docker/containers/{ID}/config.v2.json"
    assert "load library failed: libnvidia-ml.so.1" in found.evidence[0].shows
    assert found.evidence[0].at == "2026-11-29T09:59:00+0000"


@pytest.mark.parametrize(
    ("policy", "by_hand", "told"),
    [
        ("no", False, False),
        ("always", False, True),
        ("always", True, True),
        ("on-failure", False, True),
        ("unless-stopped", False, True),
        ("unless-stopped", True, False),
    ],
)
def test_of_containers_from_before_the_boot_those_count_that_dockerd_starts(
    policy: str, by_hand: bool, told: bool
) -> None:
    node = _keep(
        _node(), {"StartedAt": EARLIER, "FinishedAt": EARLIER}, created=EARLIER, policy=policy, by_hand=by_hand
    )
    report = _report("", node=node)
    assert bool(alarms(report, CHECK)) is told
    assert told or report.result(CHECK).status is Status.PASS


@pytest.mark.parametrize("field", ["StartedAt", "FinishedAt"])
def test_one_that_ran_since_the_boot_counts(field: str) -> None:
    assert _alarm("", _keep(_node(), {field: LATER}, created=EARLIER)).cause == "library-missing"


@pytest.mark.parametrize(
    "state",
    [
        {"Error": "", "ExitCode": 137},
        {"Running": True},
        {
            "Error": "driver failed programming external connectivity: Bind for 0.0.0.0:80 failed: port is already allocated"
        },
        {"Error": 'exec: "/train.sh": stat /train.sh: no such file or directory: unknown'},
        {"Error": "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=1"},
    ],
    ids=["stopped", "runs", "port", "command", "asked in vain"],
)
def test_what_is_kept_of_others_is_no_failure(state: dict[str, object]) -> None:
    report = _report("", node=_keep(_node(), state))
    assert alarms(report, CHECK) == [] and report.result(CHECK).status is Status.PASS


def test_one_that_waits_for_its_next_try_is_told() -> None:
    assert _alarm("", _keep(_node(), {"Running": True, "Restarting": True}, policy="always")).cause == "library-missing"


@pytest.mark.parametrize(
    "begins",
    [
        f"Handler for POST /v1.47/containers/{ID}/start returned error: ",
        "Handler for POST /v1.47/containers/train/start returned error: ",
        "restartmanger wait error: ",
    ],
    ids=["by id", "by name", "by time"],
)
def test_a_failure_that_the_journal_tells_as_well_counts_once(begins: str) -> None:
    message = begins + MISSING.replace("\n", "\\\\n")
    log = _line(message, "2026-11-29T09:59:01+0000")
    found = _alarm(log, _keep(_node()))
    assert "times" not in found.summary and found.evidence[0].where.startswith("journalctl")
    twice = _alarm(log, _keep(_keep(_node()), {}, OTHER, name="other", created="2026-11-29T09:50:00Z"))
    assert "(2 times)" in twice.summary and found.cause == twice.cause == "library-missing"


def test_whoever_may_not_look_has_the_journals_word() -> None:
    node = _keep(_node())
    for path in ("", "/containers", f"/containers/{ID}/config.v2.json"):
        node.tree.put(f"/var/lib/docker{path}", Record(error="EACCES"))
    report = _report("", node=node)
    assert report.result(CHECK).status is Status.PASS


def test_without_the_journal_what_is_kept_tells_and_nothing_passes() -> None:
    node = DockerNode()
    assert node.judge(CHECK).status is Status.UNKNOWN
    now = datetime.datetime.fromtimestamp(STARTED, datetime.timezone.utc)
    _keep(node, created=f"{now:%Y-%m-%dT%H:%M:%SZ}")
    (found,) = alarms(node.diagnose(), CHECK)
    assert found.cause == "library-missing" and found.evidence[0].where.endswith("config.v2.json")


# Podman --------------------------------------------------------------------------------------------------------------

HOOK_FAILED = (
    f'Request Failed(Internal Server Error): starting container {ID}: crun: {{\\"msg\\":\\"error executing hook '
    '`/usr/bin/nvidia-cdi-hook` (exit code: 1)\\"}: OCI runtime error'
)


def _with_podman(log: str | None) -> SmallNode:
    node = SmallNode()
    node.text("/usr/bin/podman", "")
    if log is not None:
        node.logs["journal/podman.service.log"] = log
    return node


def test_podmans_service_is_read_although_it_never_runs_for_long() -> None:
    (found,) = alarms(_with_podman(_line(HOOK_FAILED) * 2).report(), CHECK)
    assert (found.cause, found.subject.key) == ("cdi-hook", "podman")
    assert "nvidia-cdi-hook failed" in found.summary and "(2 times)" in found.summary
    assert found.evidence[0].where == "journalctl -b -u podman"


@pytest.mark.parametrize("log", [None, "", _line("API service listening on /run/podman/podman.sock")])
def test_of_a_podman_that_tells_nothing_nothing_is_said(log: str | None) -> None:
    told, without = _with_podman(log).report().result(CHECK), SmallNode().report().result(CHECK)
    assert (told.status, told.why, len(told.findings)) == (without.status, without.why, len(without.findings))
    node = _with_podman(log)
    node.logs["journal/docker.service.log"] = ""
    assert [finding.subject.key for finding in node.report().result(CHECK).findings] == ["docker"]


def test_a_journal_of_podmans_without_podman_is_nobodys() -> None:
    node = SmallNode()
    node.absent("/usr/bin/podman")
    node.logs["journal/podman.service.log"] = _line(HOOK_FAILED)
    assert alarms(node.report(), CHECK) == []


# What a restart has cured -------------------------------------------------------------------------------------------

NO_HANDLER = {
    "containerd": 'failed to get sandbox runtime: no runtime for \\"nvidia\\" is configured',
    "crio": "failed to find runtime handler nvidia from runtime list map[crun:0xc00047e300 runc:0xc00047ef00]",
}
CRIO_FILE = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{RUNTIME}"\nruntime_type = "oci"\n'


def _of_kubelet(engine: str, *, said: float, config: str = "", later: float = -50.0, waiting: bool = False) -> Report:
    """A kubelet that said so many seconds after its engine started that there is no such runtime; its engine's file changed `later`.

    A GPU Operator may be waiting for the runtime.
    """
    node = ContainerdNode(kubelet=False)
    socket = {"containerd": SOCKET, "crio": "/var/run/crio/crio.sock"}[engine]
    node.daemon(1000, "kubelet", "/usr/bin/kubelet", f"--container-runtime-endpoint=unix://{socket}")
    node.tree.put(socket, Record(entry=Entry(socket, EntryType.SOCKET)))
    path = MAIN if engine == "containerd" else "/etc/crio/crio.conf"
    if engine == "crio":
        node.daemon(901, "crio", "/usr/bin/crio")
    node.config(config, path, later=later)
    if waiting:
        stage = "/run/nvidia/validations/driver-ready"
        node.text("/proc/uptime", "9000.00 1.00\n")
        node.tree.put(stage, Record(entry=Entry(stage, EntryType.FILE, mtime=ENGINES_STARTED), text=""))
    moment = datetime.datetime.fromtimestamp(ENGINES_STARTED + said, datetime.timezone.utc)
    recorded = node.recorded()
    name = "journal/kubelet.service.log"
    recorded.logs[name] = Log(name, _line(NO_HANDLER[engine], f"{moment:%Y-%m-%dT%H:%M:%S%z}"))
    return diagnose(recorded)


@pytest.mark.parametrize(("engine", "config"), [("containerd", HEALTHY), ("crio", CRIO_FILE)])
@pytest.mark.parametrize(
    ("said", "later", "cured"),
    [
        (-60.0, -50.0, True),
        # It said so of the engine that runs now.
        (60.0, -50.0, False),
        # Which of the two came first is not certain.
        (-1.0, -50.0, False),
        # The file has it since, the engine has not.
        (-60.0, 50.0, False),
    ],
)
def test_a_runtime_that_a_restart_brought_is_missed_no_more(
    engine: str, config: str, said: float, later: float, cured: bool
) -> None:
    result = _of_kubelet(engine, said=said, config=config, later=later).result(CHECK)
    (found,) = (one for one in result.findings if one.subject.key == "kubelet")
    assert found.status is (Status.PASS if cured else Status.FAIL)
    assert ("restarted since" in found.summary) is cured
    assert any("runs since" in each.shows for each in found.evidence) is cured


@pytest.mark.parametrize("engine", ["containerd", "crio"])
@pytest.mark.parametrize(
    "config", ["", HEALTHY.replace(RUNTIME, "/opt/gone"), CRIO_FILE.replace("runtimes.nvidia", "runtimes.nvidia-cdi")]
)
def test_a_restart_without_the_runtime_cures_nothing(engine: str, config: str) -> None:
    result = _of_kubelet(engine, said=-60.0, config=config).result(CHECK)
    (found,) = (one for one in result.findings if one.subject.key == "kubelet")
    assert found.status is Status.FAIL


def test_what_the_kubelet_says_of_its_engine_is_that_engines_fault() -> None:
    report = _of_kubelet("containerd", said=60.0, config=f"version = 2\n{RUNC}", waiting=True)
    causes = [cause for cause in report.root_causes if cause.check.startswith(("toolkit.", "device-plugin."))]
    assert [cause.check for cause in causes] == ["toolkit.containerd-runtime"]
    assert any(finding.startswith(CHECK) for finding in causes[0].consequence_ids)


def test_a_claim_whose_specification_is_gone_is_the_dra_drivers_affair() -> None:
    """nvidia-ctk writes no specification for k8s.gpu.nvidia.com."""
    (said,) = alarms(run_node(node("dra-claim-whose-cdi-spec-is-gone")), CHECK)
    assert "delete pod DRA-DRIVER-POD" in steps(said)
    assert "nvidia-ctk cdi generate" not in steps(said)
