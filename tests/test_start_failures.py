"""Containers that did not start for their GPU: the sentences of engines' journals, through the check."""

import re
from pathlib import Path

import pytest

from gpudoctor.facts.raw import CommandOutput, Log
from gpudoctor.knowledge.start_errors import ANCHOR, ERRORS
from gpudoctor.probes import journal
from gpudoctor.probes.deadline import Deadline
from gpudoctor.report import Finding, Report
from gpudoctor.verdicts import Status
from tests.small_node import SmallNode, alarms, cited, steps

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
)


def _line(message: str, at: str = "2026-11-29T10:00:00+0000") -> str:
    return f'{at} n1 dockerd[935]: time="{at}" level=error msg="{message}"\n'


def _report(log: str, unit: str = "docker.service") -> Report:
    node = SmallNode()
    node.logs[f"journal/{unit}.log"] = log
    return node.report()


def _alarm(log: str) -> Finding:
    (found,) = alarms(_report(log), CHECK)
    return found


@pytest.mark.parametrize(("message", "name"), SENTENCES, ids=[name for _, name in SENTENCES])
def test_each_sentence_is_told_apart(message: str, name: str) -> None:
    found = _alarm(_line(message))
    assert (found.cause, found.subject.key) == (name, "docker")
    assert found.evidence[0].at == "2026-11-29T10:00:00+0000"
    assert found.status is (Status.WARN if name in ("unknown-device", "require-cuda", "capabilities") else Status.FAIL)


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
    found = journal.read_journal("journal/kubelet.service.log", "/", Deadline(20.0))
    assert isinstance(found, Log) and found.text == ""
    assert ran[0][-2:] == ("--grep", ANCHOR) and "--since" in ran[0]


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
