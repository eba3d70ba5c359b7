"""dockerd by kind and release: the snap's and rootless ones beside the system's, what 29 takes and finds, and what dpkg's log tells."""

import pytest

from gpudoctor.verdicts import Status
from tests.docker_node import (
    CDI_CHECK,
    DPKG_LOG,
    LIST,
    LOADED_CHECK,
    MAIN,
    NVIDIA,
    RUNTIME_CHECK,
    SPEC,
    DockerNode,
    stamp,
)
from tests.workload_node import DOCKER, ID, OTHER, POD, UID

SNAP = "/var/snap/docker/2932/config/daemon.json"
HOME_FILE = "/home/ada/.config/docker/daemon.json"
SNAP_RUNTIME = "/snap/docker/2932/usr/bin/nvidia-container-runtime"
BASE_LIST = "/var/lib/dpkg/info/nvidia-container-toolkit-base.list"
PASSWD = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/bash\n"


def rootless_node(version: str = "5:27.5.1-1", *, toolkit: bool = True, beside: bool = False) -> DockerNode:
    """A rootless dockerd of user 1000, alone or beside the system's."""
    node = DockerNode(version, running=beside, toolkit=toolkit)
    node.text("/etc/passwd", PASSWD)
    node.daemon(820, "/usr/bin/dockerd", "--rootless", uid=1000)
    return node


def statuses(node: DockerNode, check: str) -> dict[str, str]:
    """By subject."""
    return {finding.subject.key: finding.status.value for finding in node.judge(check).findings}


def test_a_rootless_dockerd_beside_one_that_reads_the_usual_file_misses_nothing() -> None:
    node = rootless_node(beside=True)
    node.config(NVIDIA, MAIN)
    found = node.judge(LOADED_CHECK)
    assert {finding.status for finding in found.findings} == {Status.PASS}, found


@pytest.mark.parametrize(("toolkit", "status"), [(True, "warn"), (False, "fail")])
def test_what_a_rootless_dockerd_does_not_read_is_a_remark_where_gpus_come_otherwise(
    toolkit: bool, status: str
) -> None:
    node = rootless_node(toolkit=toolkit)
    node.config(NVIDIA, MAIN)
    found, said = node.said(LOADED_CHECK)
    assert (found, "the rootless dockerd reads" in said) == (status, True), said


def test_the_socket_of_a_rootless_dockerd_may_lie_elsewhere() -> None:
    node = rootless_node()
    node.config(NVIDIA, HOME_FILE)
    assert node.said(LOADED_CHECK)[0] == "pass"
    node.daemon(820, "/usr/bin/dockerd", "--rootless", "-H", "unix:///run/user/1000/docker.sock", uid=1000)
    assert "is gone" in node.said(LOADED_CHECK)[1]


@pytest.mark.parametrize(
    ("version", "path", "status"),
    [
        ("5:29.2.0-1", "/home/ada/.config/cdi/nvidia.yaml", "pass"),
        ("5:29.2.0-1", "/run/user/1000/cdi/nvidia.yaml", "pass"),
        ("5:29.1.3-1", "/home/ada/.config/cdi/nvidia.yaml", "fail"),
    ],
)
def test_a_rootless_dockerd_searches_its_owners_folders_since_29_2(version: str, path: str, status: str) -> None:
    node = rootless_node(version, toolkit=False)
    node.program("/usr/bin/nvidia-ctk")
    node.at(path, SPEC, -1000, mode=0o600)
    assert node.said(CDI_CHECK)[0] == status


@pytest.mark.parametrize(
    ("names", "there", "status", "words"),
    [
        ("nvidia-container-runtime", "", "fail", "not an executable file"),
        ("nvidia-container-runtime", SNAP_RUNTIME, "pass", ""),
        (SNAP_RUNTIME, SNAP_RUNTIME, "pass", ""),
        ("/usr/bin/nvidia-container-runtime", "", "unknown", "has another root"),
    ],
)
def test_the_snap_finds_no_runtime_of_the_node(names: str, there: str, status: str, words: str) -> None:
    node = DockerNode(running=False)
    node.daemon(810, "/snap/docker/2932/bin/dockerd", f"--config-file={SNAP}")
    node.config({"runtimes": {"nvidia": {"path": names}}}, SNAP)
    if there:
        node.program(there)
    found, said = node.said(RUNTIME_CHECK)
    assert (found, words in said) == (status, True), said


def test_a_snap_that_does_not_run_is_started_as_a_snap() -> None:
    node = DockerNode(running=False)
    node.absent("/usr/bin/dockerd")
    node.config("{", "/var/snap/docker/current/config/daemon.json")
    assert node.judge(RUNTIME_CHECK).findings[0].remedies[-1].run == ("snap restart docker",)


@pytest.mark.parametrize(
    ("version", "settings", "status"),
    [
        ("5:28.5.2-1", {"min-api-version": "1.24"}, "fail"),
        ("5:29.0.0-1", {"min-api-version": "1.24"}, "pass"),
        ("5:29.7.0-1", {"of-tomorrow": 1}, "fail"),
        ("5:29.8.0-1", {"of-tomorrow": 1}, "unknown"),
        ("5:30.0.0-1", {"debug": 1}, "fail"),
    ],
)
def test_keys_by_release(version: str, settings: dict[str, object], status: str) -> None:
    node = DockerNode(version)
    node.config({**NVIDIA, **settings})
    assert node.said(RUNTIME_CHECK)[0] == status


@pytest.mark.parametrize(
    ("settings", "asked", "status"),
    [
        ({}, "nvidia.com/gpu=all", "fail"),
        ({"features": {"cdi": True}}, "nvidia.com/gpu=all", "fail"),
        ({}, "management.nvidia.com/gpu=all", "skip"),
        ({"features": {"cdi": True}}, "management.nvidia.com/gpu=all", "warn"),
    ],
)
def test_a_container_that_did_not_start_makes_the_missing_spec_a_fault(
    settings: object, asked: str, status: str
) -> None:
    node = rootless_node("5:29.1.3-1", beside=True)
    node.config(settings)
    line = f'time="x" level=error msg="CDI device injection failed: unresolvable CDI devices {asked}"'
    node.logs["journal/dockerd.service.log"] = f"2026-11-29T10:00:00+0000 n1 dockerd[800]: {line}\n"
    found = statuses(node, CDI_CHECK)
    assert found["docker"] == status and found[f"docker@{HOME_FILE}"] == "skip"


NEW = "install nvidia-container-toolkit:amd64 <none> 1.17.4-1"
RENEWED = "upgrade nvidia-container-toolkit:amd64 1.17.4-1 1.17.5-1"
GONE = "remove nvidia-container-toolkit:amd64 1.17.4-1 <none>"


@pytest.mark.parametrize("zone", [0, 5.5, -8])
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (((1000, NEW), (9000, RENEWED)), "fail"),
        (((-1000, NEW), (9000, RENEWED)), "pass"),
        (((1000, GONE), (9000, NEW)), "pass"),
        (((9000, NEW),), "fail"),
        (((9000, "install nvidia-container-toolkit-base:amd64 <none> 1.17.5-1"),), "unknown"),
        (((-80_000, NEW),), "unknown"),
        ((), "unknown"),
    ],
)
def test_dpkgs_log_tells_what_was_there_when_dockerd_started(
    lines: tuple[tuple[float, str], ...], status: str, zone: float
) -> None:
    node = DockerNode()
    node.at(LIST, "", 9002)
    begins = f"{stamp(-99_000, zone)} install curl:amd64 <none> 8.5.0\n"
    node.at(DPKG_LOG, begins + "".join(f"{stamp(later, zone)} {line}\n" for later, line in lines), 9002)
    found, said = node.said(LOADED_CHECK)
    assert found == status, said


def test_a_log_that_was_rotated_since_is_no_proof_of_an_upgrade_alone() -> None:
    node = DockerNode()
    node.at(LIST, "", 9002)
    node.at(DPKG_LOG, f"{stamp(8000)} status installed x\n{stamp(9000)} {RENEWED}\n", 9002)
    status, said = node.said(LOADED_CHECK)
    assert status == "unknown" and "new or upgraded" in said


@pytest.mark.parametrize(
    ("version", "settings", "base", "status"),
    [
        ("5:29.2.0-1", {}, -1000, "pass"),
        ("5:29.2.0-1", {}, 60, "fail"),
        ("5:29.2.0-1", {"features": {"cdi": False}}, -1000, "fail"),
        ("5:29.1.3-1", {}, -1000, "fail"),
    ],
)
def test_with_the_cdi_hook_gpus_needs_no_other_since_29_2(
    version: str, settings: object, base: float, status: str
) -> None:
    node = DockerNode(version)
    node.config(settings)
    node.program("/usr/bin/nvidia-cdi-hook")
    node.at(BASE_LIST, "", base)
    node.at(LIST, "", 60)
    assert node.said(LOADED_CHECK)[0] == status


@pytest.mark.parametrize(
    "group",
    [
        f"{DOCKER}/init",
        POD,
        f"/docker/{ID}/docker/{OTHER}",
        f"12:devices:/kubepods/besteffort/pod{UID}/{ID}\n0::/\n",
    ],
)
def test_a_dockerd_inside_of_a_container_is_not_judged_by_the_nodes_file(group: str) -> None:
    node = DockerNode(running=False, toolkit=False)
    node.absent("/usr/bin/dockerd")
    node.process(900, group, comm="dockerd", apart=True, started=10_000)
    node.text("/proc/900/cmdline", "dockerd\0--debug\0")
    node.config({"debug": True})
    for check in (RUNTIME_CHECK, LOADED_CHECK, CDI_CHECK):
        assert "not installed" in node.said(check)[1], check


def test_the_client_of_who_asks_does_not_choose_the_daemon() -> None:
    node = DockerNode()
    node.config(NVIDIA, later=60)
    node.info("nvidia")
    node.info(socket="/run/docker.sock")
    assert node.said(LOADED_CHECK)[0] == "fail"
