"""dockerd as it runs: which file it reads, what it has loaded, whether it found the toolkit, and CDI."""

import json

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.docker import Docker, Dockers
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.report import Result
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status, Why
from tests.docker_node import (
    CDI_CHECK,
    DPKG_LOG,
    HOOK,
    LIST,
    LOADED_CHECK,
    MAIN,
    NVIDIA,
    RUNTIME,
    RUNTIME_CHECK,
    SPEC,
    DockerNode,
    stamp,
)

OTHER = "/srv/docker/daemon.json"
SNAP = "/var/snap/docker/2932/config/daemon.json"
SNAP_RUNTIME = "/snap/docker/2932/usr/bin/nvidia-container-runtime"
HOME_FILE = "/home/ada/.config/docker/daemon.json"
CDI_ON = {"features": {"cdi": True}}


def dockers(node: DockerNode) -> tuple[Docker, ...]:
    """The fact."""
    found = Desk(node.recorded(), Config()).get(Dockers)
    assert isinstance(found, Dockers)
    return found.dockers


def snap_node() -> DockerNode:
    """Only the snap's dockerd runs, beside docker-ce."""
    node = DockerNode(running=False)
    node.daemon(
        810,
        "/snap/docker/2932/bin/dockerd",
        f"--config-file={SNAP}",
        "--data-root=/var/snap/docker/common/var-lib-docker",
    )
    node.config({}, SNAP)
    return node


def rootless_node() -> DockerNode:
    """A rootless dockerd of user 1000, alone."""
    node = DockerNode(running=False)
    node.text("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000::/home/ada:/bin/bash\n")
    node.daemon(820, "/usr/bin/dockerd", "--rootless", uid=1000)
    node.socket("/run/user/1000/docker.sock")
    return node


def cited(result: Result) -> str:
    """All that the findings cite."""
    return "\n".join(f"{piece.where} {piece.shows}" for finding in result.findings for piece in finding.evidence)


@pytest.mark.parametrize("mtime", [1e30, 1e17, -1e12])
def test_a_file_of_a_time_that_no_calendar_has_crashes_nothing(mtime: float) -> None:
    node = DockerNode()
    node.tree.put(MAIN, Record(entry=Entry(MAIN, EntryType.FILE, mode=0o644, mtime=mtime), text=json.dumps(NVIDIA)))
    result = node.judge(LOADED_CHECK)
    assert [finding.why for finding in result.findings if finding.why is Why.CRASHED] == []
    assert f"{mtime:g} s since 1970" in cited(result)


def test_a_daemon_that_started_after_its_file_passes_and_is_not_asked() -> None:
    node = DockerNode()
    node.config(NVIDIA)
    assert node.said(RUNTIME_CHECK)[0] == node.said(LOADED_CHECK)[0] == "pass"
    assert "runs since" in cited(node.judge(LOADED_CHECK)) and MAIN in cited(node.judge(LOADED_CHECK))
    assert dockers(node)[0].told is None


def test_a_younger_file_is_not_known_to_be_loaded_without_docker_info() -> None:
    node = DockerNode()
    node.config(NVIDIA, later=60)
    status, said = node.said(LOADED_CHECK)
    assert status == "unknown" and "changed after dockerd started" in said and "docker info" in said


def test_a_younger_file_whose_runtime_the_daemon_does_not_have_fails() -> None:
    node = DockerNode()
    node.config(NVIDIA, later=60)
    node.info()
    status, said = node.said(LOADED_CHECK)
    assert status == "fail" and "does not have runtime nvidia" in said
    assert "DefaultRuntime runc" in cited(node.judge(LOADED_CHECK))
    node.info("nvidia")
    assert node.said(LOADED_CHECK)[0] == "pass"
    node.config({**NVIDIA, "default-runtime": "nvidia"}, later=60)
    status, said = node.said(LOADED_CHECK)
    assert status == "warn" and "has default runtime 'runc'" in said


def test_another_dockerd_that_answers_tells_nothing() -> None:
    node = DockerNode()
    node.config(NVIDIA, later=60)
    node.info("nvidia", root="/var/snap/docker/common/var-lib-docker")
    status, said = node.said(LOADED_CHECK)
    assert status == "unknown" and "another daemon answers" in said


@pytest.mark.parametrize(
    ("log", "status"),
    [
        (None, "fail"),
        (f"{stamp(60)} install nvidia-container-toolkit:amd64 <none> 1.17.5-1\n", "fail"),
        (
            f"{stamp(-60)} startup packages configure\n{stamp(60)} upgrade nvidia-container-toolkit:amd64 1.17.4-1 1.17.5-1\n",
            "pass",
        ),
    ],
)
def test_a_daemon_older_than_the_toolkit_has_no_gpu_driver(log: str | None, status: str) -> None:
    node = DockerNode()
    node.at(LIST, "", 60)
    if log is not None:
        node.at(DPKG_LOG, log, 60)
    found, said = node.said(LOADED_CHECK)
    assert found == status
    assert (LIST in cited(node.judge(LOADED_CHECK))) and ("installed after dockerd" in said) == (status == "fail")


def test_a_hook_of_unknown_age_is_no_pass_and_its_folder_can_tell() -> None:
    node = DockerNode()
    node.absent(LIST)
    status, said = node.said(LOADED_CHECK)
    assert status == "unknown" and "when the toolkit was installed is not known" in said
    node.tree.put("/usr/bin", Record(entry=Entry("/usr/bin", EntryType.DIR, mtime=1_700_000_000.0)))
    assert node.said(LOADED_CHECK)[0] == "pass"


def test_gpus_needs_the_hook_alone() -> None:
    node = DockerNode()
    node.config({"log-driver": "json-file"})
    status, said = node.said(RUNTIME_CHECK)
    assert status == "skip" and "needs only the toolkit's hook" in said
    assert node.said(LOADED_CHECK)[0] == "pass"


def test_docker_beside_a_kubelet_is_left_alone() -> None:
    node = DockerNode()
    node.at(LIST, "", 60)
    node.daemon(900, "/usr/bin/kubelet", comm="kubelet")
    for check in (RUNTIME_CHECK, LOADED_CHECK, CDI_CHECK):
        assert node.judge(check).status is Status.SKIP, check


def test_a_node_without_toolkit_or_docker_is_left_alone() -> None:
    for node in (DockerNode(toolkit=False), DockerNode(running=False, toolkit=False)):
        for check in (RUNTIME_CHECK, LOADED_CHECK, CDI_CHECK):
            assert node.judge(check).status is Status.SKIP, check
    bare = DockerNode(running=False)
    bare.absent("/usr/bin/dockerd")
    assert "Docker is not installed" in bare.said(RUNTIME_CHECK)[1]


def test_the_runtime_in_a_file_that_nobody_reads() -> None:
    node = DockerNode(running=False)
    node.daemon(800, "/usr/bin/dockerd", f"--config-file={OTHER}")
    node.config({}, OTHER)
    node.config(NVIDIA)
    status, said = node.said(LOADED_CHECK)
    assert status == "fail" and f"dockerd reads {OTHER}" in said and MAIN in said
    fix = node.judge(LOADED_CHECK).findings[0].remedies[0]
    assert fix.run == (f"nvidia-ctk runtime configure --runtime=docker --config={OTHER}",)
    node.config(NVIDIA, OTHER)
    assert node.said(LOADED_CHECK)[0] == "pass" and OTHER in cited(node.judge(RUNTIME_CHECK))


def test_the_snap_reads_its_own_file() -> None:
    node = snap_node()
    node.config(NVIDIA)
    status, said = node.said(LOADED_CHECK)
    assert status == "fail" and "the snap's dockerd" in said and SNAP in said
    assert node.judge(LOADED_CHECK).findings[0].remedies[0].run[0] == "snap refresh docker"
    alone = snap_node()
    assert alone.judge(LOADED_CHECK).status is Status.SKIP


def test_two_dockerds_are_two_subjects() -> None:
    node = snap_node()
    node.daemon(800, "/usr/bin/dockerd", "-H", "fd://")
    node.config("{", MAIN)
    node.config({"runtimes": {"nvidia": {"path": SNAP_RUNTIME}}}, SNAP)
    node.program(SNAP_RUNTIME)
    found = {finding.subject.key: finding.status.value for finding in node.judge(RUNTIME_CHECK).findings}
    assert found == {"docker": "fail", f"docker@{SNAP}": "pass"}


def test_a_rootless_dockerd_reads_its_owners_file() -> None:
    node = rootless_node()
    node.config(NVIDIA, HOME_FILE)
    assert node.said(RUNTIME_CHECK)[0] == "pass" and HOME_FILE in cited(node.judge(RUNTIME_CHECK))
    node.config("{ nothing", HOME_FILE)
    status, said = node.said(RUNTIME_CHECK)
    assert status == "fail" and f"{HOME_FILE} does not parse: line 1 column 3" in said
    remedies = node.judge(RUNTIME_CHECK).findings[0].remedies
    assert remedies[-1].run == ("systemctl --user restart docker",)


def test_a_rootless_dockerd_that_has_not_loaded_its_file_is_asked_at_its_own_socket() -> None:
    node = rootless_node()
    node.config(NVIDIA, HOME_FILE, later=60)
    node.info(root="/home/ada/.local/share/docker", socket="/run/user/1000/docker.sock")
    assert node.said(LOADED_CHECK)[0] == "fail"


def test_a_home_that_is_not_known_is_no_pass() -> None:
    node = rootless_node()
    node.text("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
    status, said = node.said(RUNTIME_CHECK)
    assert status == "unknown" and "home of the user with number 1000" in said


UNIT = "/usr/lib/systemd/system/docker.service"


def test_flags_of_the_unit_beside_the_file() -> None:
    node = DockerNode(running=False)
    node.text(
        UNIT, "[Service]\nExecStart=/usr/bin/dockerd -H fd:// \\\n  --containerd=/run/containerd/containerd.sock\n"
    )
    node.config({**NVIDIA, "hosts": ["fd://"]})
    status, said = node.said(RUNTIME_CHECK)
    assert status == "fail" and "both set hosts (--host)" in said
    assert UNIT in cited(node.judge(RUNTIME_CHECK))
    node.text("/etc/systemd/system/docker.service.d/hosts.conf", "[Service]\nExecStart=\nExecStart=-/usr/bin/dockerd\n")
    assert node.said(RUNTIME_CHECK)[0] == "pass"


def test_options_of_environment_files_count() -> None:
    node = DockerNode(running=False)
    node.text(UNIT, "[Service]\nEnvironmentFile=-/etc/default/docker\nExecStart=/usr/bin/dockerd $DOCKER_OPTS\n")
    node.text(
        "/etc/default/docker",
        f'# DOCKER_OPTS="--debug"\nDOCKER_OPTS="--config-file {OTHER} --add-runtime nvidia={RUNTIME}"\n',
    )
    node.config("{", MAIN)
    node.config({"default-runtime": "nvidia"}, OTHER)
    assert node.said(RUNTIME_CHECK)[0] == "pass"
    assert dockers(node)[0].path == OTHER and dockers(node)[0].default_runtime == "nvidia"


def test_running_flags_count_and_a_named_file_must_be_there() -> None:
    node = DockerNode(running=False)
    node.daemon(800, "/usr/bin/dockerd", "-D", "--add-runtime", "nvidia=/opt/gone")
    status, said = node.said(RUNTIME_CHECK)
    assert status == "fail" and "/opt/gone, which is not an executable file" in said
    node.daemon(800, "/usr/bin/dockerd", "-D")
    node.config({"debug": True})
    assert "both set debug (--debug)" in node.said(RUNTIME_CHECK)[1]
    node.daemon(800, "/usr/bin/dockerd", "--config-file", OTHER)
    assert "does not exist, and the command line names it" in node.said(RUNTIME_CHECK)[1]


def test_a_default_runtime_that_is_gone_stops_every_container() -> None:
    node = DockerNode(toolkit=False)
    node.config({"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": RUNTIME}}})
    status, said = node.said(RUNTIME_CHECK)
    assert status == "fail" and "no container starts that names no other" in said
    run = [remedy.say for remedy in node.judge(RUNTIME_CHECK).findings[0].remedies]
    assert any("default-runtime" in say for say in run)


@pytest.mark.parametrize(
    ("version", "settings", "spec", "status", "words"),
    [
        ("20.10.24+dfsg1-1", {}, True, "skip", "knows no CDI"),
        ("5:25.0.3-1", {}, True, "skip", "has it on only where features.cdi asks"),
        ("5:25.0.3-1", CDI_ON, True, "pass", "/etc/cdi/nvidia.yaml"),
        ("5:27.5.1-1", CDI_ON, False, "warn", "no spec of nvidia.com/gpu in /etc/cdi and /var/run/cdi"),
        ("5:28.1.1-1", {}, True, "skip", "CDI is off"),
        ("5:28.2.0-1", {}, True, "pass", "/etc/cdi/nvidia.yaml"),
        ("5:29.1.3-1", {}, False, "skip", "the toolkit's hook"),
        ("5:29.1.3-1", {"features": {"cdi": False}}, True, "skip", "features.cdi is false"),
        ("5:29.1.3-1", {"cdi-spec-dirs": [""]}, True, "skip", "cdi-spec-dirs is empty"),
        ("5:29.1.3-1", {**CDI_ON, "cdi-spec-dirs": ["/opt/cdi"]}, True, "warn", "/opt/cdi"),
        ("", {}, True, "unknown", ""),
    ],
)
def test_cdi_by_release_and_setting(version: str, settings: object, spec: bool, status: str, words: str) -> None:
    node = DockerNode(version)
    node.config(settings)
    if spec:
        node.at("/etc/cdi/nvidia.yaml", SPEC, -1000)
    found, said = node.said(CDI_CHECK)
    assert (found, words in said) == (status, True), said


def test_without_hook_and_spec_docker_has_no_gpu() -> None:
    node = DockerNode("5:29.1.3-1", toolkit=False)
    node.program("/usr/bin/nvidia-ctk")
    status, said = node.said(CDI_CHECK)
    assert status == "fail" and "by CDI alone" in said and "/var/run/cdi" in said
    assert [cause.check for cause in node.diagnose().root_causes] == [CDI_CHECK]
    assert "there is nothing to load" in node.said(LOADED_CHECK)[1]
    node.config({})
    node.at("/etc/cdi/nvidia.yaml", SPEC, -1000)
    assert node.said(CDI_CHECK)[0] == node.said(LOADED_CHECK)[0] == "pass"


def test_a_spec_that_the_rootless_daemon_may_not_read() -> None:
    node = rootless_node()
    node.packages = {"docker-ce": "5:29.1.3-1"}
    node.at("/etc/cdi/nvidia.yaml", SPEC, -1000, mode=0o600)
    status, said = node.said(CDI_CHECK)
    assert status == "fail" and "may not read /etc/cdi/nvidia.yaml" in said
    fix = node.judge(CDI_CHECK).findings[0].remedies[0]
    assert fix.run == ("chmod a+rx /etc/cdi", "chmod a+r /etc/cdi/nvidia.yaml")
    assert fix.confirm == "sudo -u '#1000' head -n 1 /etc/cdi/nvidia.yaml"


def test_specs_of_others_count_for_nothing() -> None:
    node = DockerNode("5:29.1.3-1", toolkit=False)
    node.program("/usr/bin/nvidia-ctk")
    node.at("/etc/cdi/other.yaml", SPEC.replace("nvidia.com", "vendor.com"), -1000)
    node.at("/var/run/cdi/management.yaml", SPEC.replace("nvidia.com", "management.nvidia.com"), -1000)
    assert node.said(CDI_CHECK)[0] == "fail"


def test_a_socket_that_is_gone() -> None:
    node = DockerNode(running=False)
    node.daemon(800, "/usr/bin/dockerd", "-H", "unix:///run/my.sock")
    node.config(NVIDIA)
    assert "socket /run/my.sock is gone" in node.said(LOADED_CHECK)[1]
    node.socket("/run/my.sock")
    assert node.said(LOADED_CHECK)[0] == "pass"


def test_a_broken_file_and_a_missing_toolkit_of_another_daemon_are_two_causes() -> None:
    node = snap_node()
    node.daemon(800, "/usr/bin/dockerd", "-H", "fd://")
    node.config({**NVIDIA, "hosts": ["fd://"]})
    node.config({"runtimes": {"nvidia": {"path": SNAP_RUNTIME}}}, SNAP)
    causes = {
        (cause.check, subject.key)
        for cause in node.diagnose().root_causes
        for subject in cause.subjects
        if "docker" in cause.check
    }
    assert causes == {(RUNTIME_CHECK, "docker"), (RUNTIME_CHECK, f"docker@{SNAP}")}


def test_what_is_not_seen_is_no_pass() -> None:
    node = DockerNode()
    node.config(NVIDIA, later=60)
    for path in (MAIN, "/proc/800/cmdline", RUNTIME):
        node.tree.put(path, Record(error="EACCES"))
        assert node.judge(RUNTIME_CHECK).status is Status.UNKNOWN, path
        assert node.judge(LOADED_CHECK).status is not Status.PASS, path
    blind = DockerNode("5:29.1.3-1", toolkit=False)
    blind.program("/usr/bin/nvidia-ctk")
    blind.tree.put("/etc/cdi", Record(error="EACCES"))
    assert blind.judge(CDI_CHECK).status is Status.UNKNOWN
    hidden = DockerNode()
    hidden.tree.put(HOOK, Record(error="EACCES"))
    assert hidden.judge(LOADED_CHECK).status is Status.UNKNOWN


def test_settings_beside_runtimes() -> None:
    node = DockerNode()
    node.config(
        {
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "userns-remap": "default",
            "data-root": "/data/docker",
            "live-restore": True,
        }
    )
    (one,) = dockers(node)
    assert (one.cgroup_driver, one.userns_remap, one.data_root, one.live_restore) == (
        "cgroupfs",
        "default",
        "/data/docker",
        True,
    )
    node.at(LIST, "", 60)
    assert "live-restore is on" in node.judge(LOADED_CHECK).findings[0].remedies[0].interrupts
