"""What real dockerds made of every way of asking for a GPU (the rig's docker folder): each situation as a node, judged and traced."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpudoctor.config import Config, ConfigError
from gpudoctor.facts.docker_answer import Told, ask
from gpudoctor.facts.oci_config import DockerContainer, OciConfig
from gpudoctor.facts.raw import CommandOutput
from gpudoctor.facts.workload_access import WorkloadAccess
from gpudoctor.facts.workloads import Workloads
from gpudoctor.registry import built_in
from gpudoctor.trace_run import trace
from tests.captures import crashed, fact
from tests.docker_node import INFO
from tests.rig_docker import (
    DOCKER,
    DRIVER,
    JOURNAL,
    NOW,
    RELEASES,
    SPEC,
    TOOLKIT,
    TOOLKIT_RELEASE,
    UUIDS,
    Reader,
    RigNode,
    Situation,
    alarms,
    journal,
    situations,
)
from tests.trace_node import statuses

pytestmark = pytest.mark.skipif(not DOCKER.is_dir(), reason=f"{DOCKER} is not here")

ALL = list(situations())
RUNNING = [one for one in ALL if one.has("proc.status")]
REFUSED = [one for one in ALL if not one.has("proc.status")]
GIVEN = {
    "runtime-nvidia-env": UUIDS,
    "runtime-nvidia-cudaimg": UUIDS,
    "runtime-nvidia-one": UUIDS[3:4],
    "cdi-device": UUIDS[:1],
}
"""Asked rightly: the GPUs that each of them has."""
CLIENT = {"cdi-baddev", "cdi-device", "cdi-no-spec", "cdi-stale-spec"}
"""What the client of 20.10 refuses itself: it knows no CDI, and takes such a name for a path."""


class Alarm(NamedTuple):
    """A check that speaks, its cause, and words of its summary."""

    check: str
    cause: str
    words: str


OF_DAEMONS = ("ctk.log", "dockerd.log", "info.json", "info.txt", "version.txt")
PROC = ("cgroup", "environ", "mountinfo", "status")


def by_id(one: Situation) -> str:
    """What a test is called by."""
    return one.id


NODES, RULES, STARTS = "workload.nodes-inside", "cgroup.device-rules", "toolkit.containers-start"
FAULTS = {
    "bind-dev": [
        Alarm(RULES, "node-only-mounted", "/dev/nvidia0 (195:0), /dev/nvidiactl (195:255): only mounted"),
        Alarm(NODES, "no-uvm-node", "/dev/nvidia-uvm is missing"),
    ],
    "device-cgroup-rule": [Alarm(NODES, "no-control-node", "/dev/nvidiactl is missing; /dev/nvidia-uvm is missing")],
    "raw-device": [Alarm(NODES, "no-uvm-node", "/dev/nvidia-uvm is missing: CUDA cannot start in it")],
    "runtime-nvidia-badidx": [Alarm(STARTS, "unknown-device", "by its index that this node does not have")],
    "runtime-nvidia-baduuid": [Alarm(STARTS, "unknown-device", "by its UUID that this node does not have")],
    "gpus-all": [
        Alarm("toolkit.programs-present", "missing", "nvidia-container-cli is not there"),
        Alarm(
            STARTS, "program-gone", "container gpus-all did not start: nvidia-container-cli is configured and is not"
        ),
    ],
    "cdi-baddev": [Alarm("toolkit.cdi-devices-found", "no nvidia.com/gpu=77", "asks for nvidia.com/gpu=77, which no")],
    "cdi-no-spec": [
        Alarm("toolkit.docker-cdi", "no-spec", "a container that asked for nvidia.com/gpu=0 did not start"),
        Alarm(STARTS, "cdi-unresolvable", "no CDI specification names nvidia.com/gpu=0"),
    ],
    "cdi-stale-spec": [
        Alarm("toolkit.cdi-specs-current", "stale", "libEGL_nvidia.so.570.00.00 is to be mounted and is not here"),
        Alarm(STARTS, "stale-mount", "container cdi-stale-spec did not start: the CDI specification names /usr/lib"),
    ],
}
"""What was wrong. All others are silent: they have what they asked for, asked for nothing, or left no trace on the node."""

FIRST_BROKEN = {
    "bind-dev": "nodes",
    "device-cgroup-rule": "nodes",
    "raw-device": "libraries",
    "privileged": "libraries",
    "plain": "asked",
    "runtime-nvidia-noenv": "asked",
    "cudaimg-default-runtime": "asked",
}


def prepared(one: Situation) -> RigNode:
    """The node with what was done to it: a spec of another driver, none at all, or a toolkit without its program."""
    node = one.node()
    match one.name:
        case "gpus-all":
            node.without("/usr/bin/nvidia-container-cli")
        case "cdi-no-spec":
            node.without(SPEC)
        case "cdi-stale-spec":
            spec = one.reader.text(TOOLKIT / TOOLKIT_RELEASE / "cdi.yaml")
            node.spec(spec.replace(DRIVER, "570.00.00"), files=False)
    return node


def expected(one: Situation) -> list[Alarm]:
    """What is to be told of a situation."""
    if one.release == "20.10.24" and one.name in CLIENT:
        return FAULTS["cdi-stale-spec"][:1] if one.name == "cdi-stale-spec" else []
    return FAULTS.get(one.name, [])


def test_all_situations_are_there_and_each_fault_has_one() -> None:
    assert Counter(one.release for one in ALL) == dict.fromkeys(RELEASES, 18)
    assert Counter(one.release for one in RUNNING) == {"20.10.24": 9, "26.1.5": 11}
    assert len({one.name for one in ALL}) == 18
    assert set(FAULTS) | set(FIRST_BROKEN) | set(GIVEN) <= {one.name for one in ALL}


@pytest.mark.parametrize("release", RELEASES)
def test_the_node_alone_is_silent(release: str) -> None:
    report = RigNode(Reader(), release).diagnose()
    assert crashed(report) == [] and alarms(report) == []


@pytest.mark.parametrize("one", ALL, ids=by_id)
def test_a_situation_is_told_as_what_it_was(one: Situation) -> None:
    report = prepared(one).diagnose()
    assert crashed(report) == []
    found = {(finding.id.partition("@")[0], finding.cause): finding for finding in alarms(report)}
    wanted = expected(one)
    assert len(alarms(report)) == len(found)
    assert sorted(found) == sorted((told.check, told.cause) for told in wanted), [f.summary for f in found.values()]
    for told in wanted:
        finding = found[told.check, told.cause]
        assert told.words in finding.summary, finding.summary
        assert "times)" not in finding.summary
        if told.check in (NODES, RULES):
            assert finding.subject.key == one.container[:12] and f"docker:{one.name}" in finding.summary
        assert finding.remedies and finding.evidence


@pytest.mark.parametrize("one", RUNNING, ids=by_id)
def test_a_container_is_traced_to_what_its_situation_shows(one: Situation) -> None:
    (traced,) = one.trace().traced
    said = {step.id.value: step.summary for step in traced.steps}
    assert (traced.title, traced.container_id) == (f"docker:{one.name}", one.container)
    assert (traced.first_broken.value if traced.first_broken else None) == FIRST_BROKEN.get(one.name), said
    if one.name in GIVEN:
        assert tuple(gpu.uuid for gpu in traced.gpus) == GIVEN[one.name]
        assert {name for name, status in statuses(traced).items() if status == "fail"} == set()
    if one.name == "bind-dev":
        assert "they are only mounted, and a mount gives no permission (EPERM)" in said["rules"]
    if one.name == "cudaimg-default-runtime":
        assert "its runtime took no notice of it" in said["asked"]


@pytest.mark.parametrize("one", REFUSED, ids=by_id)
def test_a_container_that_never_ran_is_no_target_and_its_error_is_told(one: Situation) -> None:
    for word in (one.name, one.container[:12]) if one.container else (one.name,):
        with pytest.raises(ConfigError) as refused:
            trace(one.node().recorded(), Config(), built_in(), f"docker:{word}", NOW)
        said = str(refused.value)
        if not one.container:
            assert f"docker:{word}: none of 0 running containers of docker" in said
            continue
        error = " ".join(one.json("config.v2.json")["State"]["Error"].split())
        assert "its last start failed with exit code" in said
        assert said.endswith(error[-200:])


@pytest.mark.parametrize("one", RUNNING, ids=by_id)
def test_the_rules_say_what_the_container_found_when_it_opened_its_nodes(one: Situation) -> None:
    """ENXIO is of the simulated driver: the kernel asks the cgroup before it looks for one."""
    opened = {path: outcome for path, outcome in one.opened().items() if "nvidia" in path}
    accesses = fact(one.node().recorded(), WorkloadAccess).by_key.get(one.container[:12])
    judged = {node.node.path: node.permission for node in accesses.nodes} if accesses is not None else {}
    assert judged == {path: outcome != "EPERM" for path, outcome in opened.items()}
    assert set(opened.values()) <= {"EPERM", "ENXIO"}


@pytest.mark.parametrize("one", RUNNING, ids=by_id)
def test_what_dockerd_keeps_of_a_container_is_what_it_tells_of_it(one: Situation) -> None:
    (inspected,) = one.json("inspect.json")
    (found,) = fact(one.node().recorded(), Workloads).containers
    host = inspected["HostConfig"]
    docker, config = found.docker, found.config
    assert isinstance(docker, DockerContainer) and isinstance(config, OciConfig)
    assert (found.engine, found.pid, found.id) == ("docker", inspected["State"]["Pid"], inspected["Id"])
    assert (docker.name, docker.image) == (inspected["Name"][1:], inspected["Config"]["Image"])
    assert (docker.runtime, docker.privileged) == (host["Runtime"], host["Privileged"])
    requests = [[request["Driver"], request["DeviceIDs"]] for request in host["DeviceRequests"] or ()]
    assert [[request.driver, list(request.device_i_ds or ())] for request in docker.requests] == requests
    raw = {device["PathOnHost"] for device in host["Devices"] or ()}
    assert not raw or {node.path for node in config.nodes} == raw
    assert config.edited is (one.name in GIVEN)


@pytest.mark.parametrize("one", REFUSED, ids=by_id)
def test_what_dockerd_keeps_of_a_refused_container_is_what_it_printed(one: Situation) -> None:
    printed, inspected = one.text("run.txt"), one.json("inspect.json")
    assert one.code in (125, 127)
    if not one.container:
        assert inspected == [] and "No such container" in one.text("logs.txt")
        return
    kept = one.json("config.v2.json")["State"]
    assert (kept["Running"], kept["Pid"], kept["ExitCode"]) == (False, 0, 128 if one.code == 125 else one.code)
    assert kept["Error"] == inspected[0]["State"]["Error"] and kept["Error"] in printed
    assert one.text("logs.txt") == ""
    requests = one.json("hostconfig.json")["DeviceRequests"] or []
    assert requests == (inspected[0]["HostConfig"]["DeviceRequests"] or [])


@pytest.mark.parametrize("one", REFUSED, ids=by_id)
def test_dockerd_logs_no_refusal_that_it_takes_for_the_callers_mistake(one: Situation) -> None:
    """Exit code 127, as well as what the client refuses, is in no journal: of the first what dockerd keeps can tell."""
    logged = f"containers/{one.container}/start returned error" in one.node().logs[JOURNAL] if one.container else False
    assert logged is (bool(one.container) and one.code == 125)


def causes(node: RigNode) -> set[tuple[str, str]]:
    """The checks that speak of starts, with cause."""
    return {
        (finding.id.partition("@")[0], finding.cause)
        for finding in alarms(node.diagnose(), "toolkit")
        if finding.subject.key == "docker"
    }


@pytest.mark.parametrize("release", RELEASES)
def test_the_whole_journal_tells_every_refusal_once(release: str) -> None:
    reader = Reader()
    node = RigNode(reader, release)
    log = reader.text(DOCKER / release / "dockerd.log")
    node.logs[JOURNAL] = journal(log)
    assert node.logs[JOURNAL].count("\n") >= log.count('time="') - 1
    cdi = {("toolkit.cdi-devices-found", "no nvidia.com/gpu=77")} if release == "26.1.5" else set()
    assert causes(node) == cdi | {(STARTS, "unknown-device")}
    summaries = [finding.summary for finding in node.diagnose().result(STARTS).findings]
    assert sorted("index" in summary for summary in summaries) == [False, True]


AFTER_FAILURES = (
    "26.1.5-cdi-device",
    "26.1.5-raw-device",
    "26.1.5-privileged",
    "26.1.5-bind-dev",
    "20.10.24-raw-device",
)
"""Started with a GPU behind those that asked for a wrong index and a wrong UUID, and running when they were captured."""


def before(one: Situation) -> str:
    """The journal up to the start of a container."""
    whole = journal(one.reader.text(DOCKER / one.release / "dockerd.log"))
    started = one.json("config.v2.json")["State"]["StartedAt"][:19]
    return "".join(line for line in whole.splitlines(keepends=True) if line[:19] < started)


@pytest.mark.parametrize("name", AFTER_FAILURES)
def test_a_failure_is_over_once_the_toolkit_gave_a_gpu_and_not_by_a_node_alone(name: str) -> None:
    one = next(one for one in RUNNING if one.id == name)
    node = one.node()
    node.logs[JOURNAL] = before(one)
    assert "ERROR_NOT_FOUND" in node.logs[JOURNAL]
    told = {cause for check, cause in causes(node) if check == STARTS}
    assert told == (set() if one.name in GIVEN else {"unknown-device"})


def test_a_node_that_came_late_is_there_for_whoever_has_a_gpu_now() -> None:
    one = next(one for one in RUNNING if one.id == "26.1.5-raw-device")
    node = one.node()
    early = 'error gathering device information while adding custom device \\"/dev/nvidia-uvm\\": no such file'
    node.logs[JOURNAL] = f'2026-11-29T17:50:20+0000 vm dockerd[8677]: level=error msg="{early}"\n'
    assert [finding for finding in alarms(node.diagnose(), "startup") if finding.cause == "too-early"] == []
    node.logs[JOURNAL] = node.logs[JOURNAL].replace("17:50:20", "17:59:20")
    assert len([finding for finding in alarms(node.diagnose(), "startup") if finding.cause == "too-early"]) == 1


@pytest.mark.parametrize("release", RELEASES)
def test_a_daemon_tells_the_same_in_both_forms(release: str) -> None:
    """`docker info` as people read it and as the doctor asks for it, and `docker version`."""
    reader = Reader()
    told: Any = ask(RigNode(reader, release).recorded(), "", "/var/lib/docker")
    assert isinstance(told, Told)
    shown = dict(re.findall(r"^ +(\w[\w ]+): +(\S.*)$", reader.text(DOCKER / release / "info.txt"), re.MULTILINE))
    assert set(shown["Runtimes"].split()) == set(told.runtimes)
    assert (shown["Default Runtime"], shown["Server Version"], shown["Docker Root Dir"]) == (
        told.default,
        told.version,
        told.root,
    )
    version = reader.text(DOCKER / release / "version.txt")
    server = version.partition("Server:")[2]
    assert re.search(r"Version: +(\S+)", server[: server.index("containerd:")])[1] == told.version  # type: ignore[index]
    for program in ("containerd", "runc"):
        commit = re.search(rf"^ {program}:\n +Version: .*\n +GitCommit: +(\S+)", server, re.MULTILINE)
        assert commit is not None and commit[1] == shown[f"{program} version"]


@pytest.mark.parametrize("release", RELEASES)
def test_what_people_read_is_no_answer_to_what_the_doctor_asks(release: str) -> None:
    """A client whose --format is ignored, as some wrappers do: unknown, and no crash."""
    reader = Reader()
    node = RigNode(reader, release)
    for name in ("info.txt", "version.txt"):
        node.commands[INFO] = CommandOutput(INFO, 0, reader.text(DOCKER / release / name))
        assert not isinstance(ask(node.recorded(), "", "/var/lib/docker"), Told)


@pytest.mark.parametrize("release", RELEASES)
def test_what_configured_the_daemon_is_what_it_has(release: str) -> None:
    reader = Reader()
    log = reader.text(DOCKER / release / "ctk.log")
    assert "Wrote updated config to /etc/docker/daemon.json" in log
    written = json.loads(reader.text(TOOLKIT / TOOLKIT_RELEASE / "docker.none.cdi_etc_docker_daemon.json"))
    told = json.loads(reader.text(DOCKER / release / "info.json"))
    assert written["runtimes"]["nvidia"]["path"] == told["Runtimes"]["nvidia"]["path"]


def read_of(one: Situation) -> set[Path]:
    """The files of a situation that the tests above read."""
    prepared(one)
    for name in ("run.txt", "inspect.json", "logs.txt"):
        one.text(name)
    return {path for path in one.reader.read if path.parent == one.folder}


def test_every_file_is_read_and_counted() -> None:
    """318 files: what the tests above read of each folder is all that there is."""
    kinds: Counter[str] = Counter()
    for one in ALL:
        assert read_of(one) == set(one.folder.iterdir())
        kinds.update(path.name for path in one.folder.iterdir())
    kept = sum(bool(one.container) for one in ALL)
    inside = ("devices.list", "ls_dev.txt", "oci-config.json", *(f"proc.{name}" for name in PROC))
    assert kinds == {
        **dict.fromkeys(("run.txt", "inspect.json", "logs.txt"), len(ALL)),
        **dict.fromkeys(("config.v2.json", "hostconfig.json"), kept),
        **dict.fromkeys(inside, len(RUNNING)),
    }
    assert sum(kinds.values()) + len(OF_DAEMONS) * len(RELEASES) == 318
