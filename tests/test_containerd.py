"""containerd through the front door: what loads, what the kubelet gets, what the running daemon has loaded."""

import pytest

from gpudoctor.facts.containerd_glob import BadPattern, matches
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.report import Finding, Result
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import Builder, crashed
from tests.containerd_node import (
    BOOTED,
    CONFIG_CHECK,
    DROP_IN,
    HEALTHY,
    LOADED_CHECK,
    MAIN,
    RUNC,
    RUNTIME,
    RUNTIME_CHECK,
    ContainerdNode,
    default,
    runtime,
)
from tests.small_node import cited
from tests.workload_node import POD

ENGINE_CHECK = "toolkit.kubelet-engine"
CHECKS = (CONFIG_CHECK, RUNTIME_CHECK, LOADED_CHECK)
IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
DISABLED = 'disabled_plugins = ["cri"]\n'


def only(result: Result) -> Finding:
    """The one finding."""
    assert len(result.findings) == 1, result
    return result.findings[0]


def statuses(node: ContainerdNode) -> tuple[Status, ...]:
    """How the three checks end."""
    report = node.diagnose()
    assert not crashed(report), crashed(report)
    return tuple(report.result(check).status for check in CHECKS)


# Healthy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "text", "drop_in"),
    [
        ("1.7.27-1", HEALTHY, None),
        ("1.6.20~ds1-1", HEALTHY, None),
        ("2.1.4-1", HEALTHY, None),
        ("2.3.1-1", HEALTHY, None),
        ("2.1.4-1", f"version = 3\n{runtime(version=3)}", None),
        ("2.3.1-1", f"version = 3\n{IMPORTS}", f"version = 3\n{runtime(version=3)}"),
        ("2.2.1-1", f"version = 2\n{IMPORTS}", f"version = 2\n{runtime()}"),
        ("2.3.1-1", f"version = 3\n{IMPORTS}", f"version = 2\n{runtime()}"),
        ("1.7.27-1", f"version = 2\n{IMPORTS}", HEALTHY),
        ("1.6.20-1", f"{runtime('runc', '', 1)}{runtime(version=1)}", None),
        ("", HEALTHY, None),
        ("", f"version = 3\n{runtime(version=3)}", None),
        ("1.7.27-1", f"version = 2\n{default('nvidia')}{runtime()}", None),
        ("1.7.27-1", f"version = 2\n{RUNC}{runtime(binary='nvidia-container-runtime')}", None),
    ],
)
def test_what_leads_to_an_nvidia_runtime_passes(version: str, text: str, drop_in: str | None) -> None:
    node = ContainerdNode(version)
    node.config(text)
    if drop_in is not None:
        node.config(drop_in, DROP_IN)
    assert statuses(node) == (Status.PASS, Status.PASS, Status.PASS)
    finding = only(node.judge(RUNTIME_CHECK))
    assert (finding.subject.key, MAIN in cited(finding), RUNTIME in cited(finding)) == ("containerd", True, True)
    if drop_in is not None:
        assert DROP_IN in cited(only(node.judge(CONFIG_CHECK)))


def test_cdi_needs_no_runtime() -> None:
    for version, text in (
        ("2.1.4-1", "version = 3\n"),
        ("1.7.27-1", 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = true\n'),
    ):
        node = ContainerdNode(version)
        node.config(text)
        node.text("/var/run/cdi/gpus.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
        assert only(node.judge(RUNTIME_CHECK)).status is Status.PASS
        assert "/var/run/cdi/gpus.yaml" in cited(only(node.judge(RUNTIME_CHECK)))
        node.text("/var/run/cdi/gpus.yaml", "cdiVersion: 0.5.0\nkind: management.nvidia.com/gpu\n")
        assert only(node.judge(RUNTIME_CHECK)).status is Status.WARN


# Does not load ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "text", "words"),
    [
        ("1.7.27-1", "version = 2\n[plugins\n", "line 2 column"),
        ("2.1.4-1", "version = 2\nroot = /x\n", "line 2 column"),
        ("1.7.27-1", "version = 2\n[grpc]\nuid = 'x'\n", "line 3 column 1: grpc.uid is 'x', not a number"),
        ("1.7.27-1", 'version = 2\nimports = ["gone.toml"]\n', "/etc/containerd/gone.toml does not exist"),
        ("1.7.27-1", 'version = 2\nimports = ["[*"]\n', "no valid pattern"),
        ("1.7.27-1", f"version = 2\n{runtime(version=1)}", "names the plugin 'cri'"),
        ("1.7.27-1", "version = 3\n", "newer than containerd 1.7.27 knows"),
        ("2.1.4-1", "version = 4\n", "newer than containerd 2.1.4 knows"),
        ("1.7.27-1", f"version = 2\n{DISABLED}", "names the plugin 'cri'"),
        ("1.7.27-1", f"version = 2\n{RUNC}{runtime()}pod_annotations = 1\n", ""),
    ],
)
def test_what_containerd_does_not_start_with_names_file_and_place(version: str, text: str, words: str) -> None:
    node = ContainerdNode(version)
    node.config(text)
    finding = only(node.judge(CONFIG_CHECK))
    if not words:
        assert finding.status is Status.PASS
        return
    assert finding.status is Status.FAIL
    assert words in finding.summary, finding.summary
    assert "config dump" in "".join(finding.remedies[0].run)
    # A daemon that runs has loaded something else; what stands on it is not down.
    assert "does not start again" in finding.summary
    assert node.judge(RUNTIME_CHECK).status is not Status.PASS


def test_a_drop_in_that_does_not_parse_is_named() -> None:
    node = ContainerdNode()
    node.config(f"version = 2\n{IMPORTS}")
    node.config("version = 2\nx =\n", DROP_IN)
    finding = only(node.judge(CONFIG_CHECK))
    assert finding.status is Status.FAIL
    assert finding.summary.startswith(f"{DROP_IN} does not parse: line 2 column")


def test_a_broken_docker_file_and_a_broken_containerd_file_are_two_causes() -> None:
    node = ContainerdNode()
    node.config("version = 2\n[")
    node.program("/usr/bin/dockerd")
    node.text("/etc/docker/daemon.json", "{")
    roots = {
        (cause.check, cause.subjects[0].key) for cause in node.diagnose().root_causes if cause.status is Status.FAIL
    }
    assert {(CONFIG_CHECK, "containerd"), ("toolkit.docker-runtime", "docker")} <= roots


def test_a_version_is_refused_by_old_releases_only_since_they_know_better() -> None:
    node = ContainerdNode("1.6.20~ds1-1+deb12u3")
    node.config(f"version = 3\n{RUNC}{runtime()}")
    assert node.judge(CONFIG_CHECK).status is Status.PASS


def test_a_newer_drop_in_is_refused_since_2_3() -> None:
    for version, status in (("2.2.1-1", Status.FAIL), ("2.3.0-1", Status.FAIL)):
        node = ContainerdNode(version)
        node.config(f"version = 2\n{IMPORTS}{runtime()}")
        node.config("version = 3\n", DROP_IN)
        finding = only(node.judge(CONFIG_CHECK))
        assert finding.status is status
        # In 2.2 the whole counts as version 3, and nothing is converted.
        words = "under io.containerd.grpc.v1.cri" if version.startswith("2.2") else "its version 3 is higher"
        assert words in finding.summary, finding.summary


# Written in vain --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [DROP_IN, "/etc/containerd/config.d/99-nvidia.toml"])
@pytest.mark.parametrize("main", ["version = 2\n", f"version = 2\n{RUNC}", None])
def test_a_drop_in_that_nobody_imports(place: str, main: str | None) -> None:
    node = ContainerdNode()
    if main is not None:
        node.config(main)
    node.config(HEALTHY, place)
    report = node.diagnose()
    finding = only(report.result(CONFIG_CHECK))
    assert finding.status is Status.FAIL
    assert f"{place} defines runtime 'nvidia', but {MAIN} does not import it" == finding.summary
    assert f'imports = ["{place.rpartition("/")[0]}/*.toml"]' in finding.remedies[0].say
    assert [cause.check for cause in report.root_causes if cause.check.startswith("toolkit.containerd")] == [
        CONFIG_CHECK
    ]


def test_the_default_import_of_2_2_is_only_printed() -> None:
    node = ContainerdNode("2.2.1-1")
    node.config("version = 3\n")
    node.config(f"version = 3\n{runtime(version=3)}", DROP_IN)
    assert only(node.judge(CONFIG_CHECK)).status is Status.FAIL


@pytest.mark.parametrize(
    ("version", "main", "drop_in", "words"),
    [
        # A later table of the same plugin replaces the whole of it in 1.x (NVIDIA/gpu-operator#301).
        (
            "1.7.27-1",
            HEALTHY,
            'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "x"\n',
            "a later file",
        ),
        (
            "1.6.20-1",
            f"version = 2\n{RUNC}",
            f"version = 2\n{runtime(version=3)}",
            "under io.containerd.cri.v1.runtime",
        ),
        ("1.6.20-1", "", HEALTHY.removeprefix("version = 2\n"), "under io.containerd.grpc.v1.cri"),
        ("2.1.4-1", "version = 3\n", f"version = 3\n{runtime()}", "under io.containerd.grpc.v1.cri"),
        ("2.1.4-1", "", f"{runtime(version=1)}", "under cri"),
    ],
)
def test_a_runtime_that_is_read_and_lost(version: str, main: str, drop_in: str, words: str) -> None:
    node = ContainerdNode(version)
    node.config(f"{IMPORTS}{main}" if not main.startswith("version") else main.replace("\n", f"\n{IMPORTS}", 1))
    node.config(drop_in, DROP_IN)
    finding = only(node.judge(CONFIG_CHECK))
    assert (finding.status, words in finding.summary) == (Status.FAIL, True), finding.summary


def test_what_nobody_needs_is_no_alarm() -> None:
    node = ContainerdNode(kubelet=False)
    node.config("version = 2\n")
    node.config(HEALTHY, DROP_IN)
    assert node.judge(CONFIG_CHECK).status is Status.SKIP


# The runtime ------------------------------------------------------------------------------------------------------


def test_a_default_runtime_whose_program_is_gone_stops_all_pods() -> None:
    gone = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
    node = ContainerdNode()
    node.config(f"version = 2\n{default('nvidia')}{RUNC}{runtime(binary=gone)}")
    finding = only(node.judge(RUNTIME_CHECK))
    assert finding.status is Status.FAIL
    assert gone in finding.summary
    assert "stops all pods" in finding.summary
    assert "runc" in finding.remedies[0].say
    assert f"{gone} does not exist" in cited(finding)


def test_a_program_that_cannot_be_run() -> None:
    node = ContainerdNode(toolkit=False)
    node.program(RUNTIME, 0o644)
    node.config(HEALTHY)
    finding = only(node.judge(RUNTIME_CHECK))
    assert (finding.status, "mode 0644" in cited(finding)) == (Status.FAIL, True)
    assert "all pods" not in finding.summary


def test_one_of_two_programs_gone_is_a_remark() -> None:
    node = ContainerdNode()
    node.config(f"{HEALTHY}{runtime('nvidia-experimental', '/opt/gone/nvidia-container-runtime.experimental')}")
    result = node.judge(RUNTIME_CHECK)
    assert {finding.status for finding in result.findings} == {Status.PASS, Status.WARN}


@pytest.mark.parametrize(
    ("version", "text", "words"),
    [
        ("1.7.27-1", f"version = 2\n{RUNC}{runtime(kind='')}", "'nvidia' has no runtime_type"),
        ("1.7.27-1", f"version = 2\n{default('nvidia')}{RUNC}", "which runtimes does not define"),
        ("1.7.27-1", f"version = 2\n{runtime()}", "default_runtime_name is 'runc', which runtimes does not define"),
        (
            "1.7.27-1",
            f"version = 2\n{runtime('runc', '', kind='')}{runtime()}",
            "default runtime 'runc' has no runtime_type",
        ),
        (
            "1.7.27-1",
            HEALTHY + '[plugins."io.containerd.grpc.v1.cri"]\nsystemd_cgroup = true\n',
            "systemd_cgroup = true works only",
        ),
    ],
)
def test_a_runtime_table_that_cannot_work(version: str, text: str, words: str) -> None:
    node = ContainerdNode(version)
    node.config(text)
    finding = only(node.judge(RUNTIME_CHECK))
    assert (finding.status, words in finding.summary) == (Status.FAIL, True), finding.summary


def test_runc_is_built_in_for_2_x() -> None:
    node = ContainerdNode("2.1.4-1")
    node.config(f"version = 2\n{runtime('runc', '', kind='')}{runtime()}")
    assert node.judge(RUNTIME_CHECK).status is Status.PASS


def test_no_runtime_at_all() -> None:
    node = ContainerdNode()
    node.config(f"version = 2\n{RUNC}")
    finding = only(node.judge(RUNTIME_CHECK))
    assert (finding.status, 'no runtime for "nvidia"' in finding.summary) == (Status.WARN, True)
    path = "/var/lib/kubelet/device-plugins/nvidia-gpu.sock"
    node.tree.put(path, Record(entry=Entry(path, EntryType.SOCKET)))
    finding = only(node.judge(RUNTIME_CHECK))
    assert (finding.status, path in cited(finding)) == (Status.FAIL, True)


@pytest.mark.parametrize(
    ("stages", "ago", "status"),
    [
        (("driver-ready",), 3000.0, Status.FAIL),
        # The operator's toolkit container is about to set containerd up.
        (("driver-ready",), 60.0, Status.WARN),
        # What the operator has validated it does not wait for.
        (("driver-ready", "toolkit-ready"), 3000.0, Status.WARN),
        # A node for virtual machines.
        (("vfio-pci-ready",), 3000.0, Status.WARN),
    ],
)
def test_an_operator_that_waits_for_the_runtime_wants_gpus(stages: tuple[str, ...], ago: float, status: Status) -> None:
    node = ContainerdNode()
    node.config(f"version = 2\n{RUNC}")
    node.text("/proc/uptime", "9000.00 1.00\n")
    for stage in stages:
        path = f"/run/nvidia/validations/{stage}"
        node.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mtime=BOOTED + 9000 - ago), text=""))
    finding = only(node.judge(RUNTIME_CHECK))
    assert (finding.status, "/run/nvidia/validations" in cited(finding)) == (status, status is Status.FAIL)


def test_look_alikes_stay_silent() -> None:
    plain = f"version = 2\n{RUNC}"
    for node, text in (
        (ContainerdNode(toolkit=False), plain),  # the Operator has not finished yet
        (ContainerdNode(kubelet=False), plain),  # Docker's backend
        (ContainerdNode(kubelet=False), DISABLED),  # as docker's package ships it
        (ContainerdNode("2.1.4-1", kubelet=False), DISABLED),
        (
            ContainerdNode(toolkit=False),
            f"{plain}{runtime('kata-qemu-nvidia-gpu', '', kind='io.containerd.kata-qemu.v2')}",
        ),
    ):
        node.config(text)
        assert statuses(node)[1:] == (Status.SKIP, Status.SKIP), text
        assert statuses(node)[0] in (Status.PASS, Status.SKIP), text


def test_a_kubelet_needs_the_cri_plugin() -> None:
    node = ContainerdNode()
    node.config(DISABLED)
    report = node.diagnose()
    finding = only(report.result(CONFIG_CHECK))
    assert (finding.status, "switched off" in finding.summary) == (Status.FAIL, True)
    assert report.result(RUNTIME_CHECK).status is Status.SKIP


# What is loaded ---------------------------------------------------------------------------------------------------


def test_a_daemon_older_than_its_files_is_asked() -> None:
    node = ContainerdNode()
    node.config(HEALTHY, later=500)
    result = node.judge(LOADED_CHECK)
    assert (result.status, "not known" in only(result).summary) == (Status.WARN, True)
    assert node.judge(RUNTIME_CHECK).status is Status.UNKNOWN
    node.crictl({"runc": "", "nvidia": RUNTIME})
    assert (node.judge(LOADED_CHECK).status, node.judge(RUNTIME_CHECK).status) == (Status.PASS, Status.PASS)
    node.crictl({"runc": ""})
    finding = only(node.judge(LOADED_CHECK))
    assert (finding.status, finding.cause) == (Status.FAIL, "not-loaded")
    assert "crictl info" in cited(finding)
    node.crictl({"runc": "", "nvidia": RUNTIME}, socket="/run/k3s/containerd/containerd.sock")
    assert node.judge(LOADED_CHECK).status is Status.WARN


def test_a_runtime_that_was_taken_out_of_the_files() -> None:
    node = ContainerdNode()
    node.config(f"version = 2\n{RUNC}", later=500)
    assert only(node.judge(RUNTIME_CHECK)).status is Status.UNKNOWN
    node.crictl({"runc": "", "nvidia": RUNTIME})
    finding = only(node.judge(RUNTIME_CHECK))
    assert (finding.status, finding.cause, "crictl info" in cited(finding)) == (Status.WARN, "removed", True)


def test_a_drop_in_written_after_the_start() -> None:
    node = ContainerdNode()
    node.config(f"version = 2\n{IMPORTS}")
    node.config(HEALTHY, DROP_IN, later=60)
    finding = only(node.judge(LOADED_CHECK))
    assert (finding.status, finding.summary.startswith(DROP_IN)) == (Status.WARN, True)


def test_the_runtime_of_another_containerd() -> None:
    node = ContainerdNode(kubelet=False)
    node.config(HEALTHY)
    path = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    program, socket = "/var/lib/rancher/k3s/data/current/bin/containerd", "/run/k3s/containerd/containerd.sock"
    node.daemon(950, "containerd", program, "-c", path, "-a", socket)
    node.daemon(940, "k3s-server", "/usr/local/bin/k3s server", group="/system.slice/k3s.service")
    node.config(f"version = 2\n{RUNC}", path)
    node.tree.put(socket, Record(entry=Entry(socket, EntryType.SOCKET)))
    report = node.diagnose()
    finding = only(report.result(ENGINE_CHECK))
    assert (finding.status, MAIN in finding.summary, path in finding.summary) == (Status.FAIL, True, True)
    assert {finding.status for finding in report.result(LOADED_CHECK).findings} == {Status.SKIP}
    lacking = {one.subject.key: one for one in report.result(RUNTIME_CHECK).findings}[f"containerd@{socket}"]
    assert (lacking.status, lacking.caused_by) == (Status.WARN, (finding.id,))
    assert [cause.check for cause in report.root_causes] == [ENGINE_CHECK]
    node.config(HEALTHY, path)
    assert {finding.status for finding in node.judge(LOADED_CHECK).findings} == {Status.PASS, Status.SKIP}
    assert node.judge(ENGINE_CHECK).status is Status.PASS


def test_a_kubelet_in_a_container_shows_in_its_pods() -> None:
    """Talos runs the kubelet in a container, and a containerd of its own for that."""
    node = ContainerdNode(kubelet=False)
    node.config(f"version = 2\n{RUNC}{runtime(binary='/opt/gone/nvidia-container-runtime')}")
    assert only(node.judge(RUNTIME_CHECK)).status is Status.SKIP
    node.daemon(950, "containerd", "/usr/bin/containerd", "--address", "/system/run/containerd/containerd.sock")
    node.process(1200, POD, apart=True)
    found = {finding.subject.key: finding.status for finding in node.judge(RUNTIME_CHECK).findings}
    assert found["containerd"] is Status.FAIL


def test_without_knowing_the_kubelet_nothing_is_a_fault() -> None:
    for text in (
        f"version = 2\n{RUNC}{runtime(binary='/opt/gone/nvidia-container-runtime')}",
        f"version = 2\n{runtime()}",
        f"version = 2\n{RUNC}",
    ):
        node = ContainerdNode()
        node.config(text)
        node.tree.put("/proc/1000/cmdline", Record(error="EACCES"))
        finding = only(node.judge(RUNTIME_CHECK))
        assert (finding.status, "/proc/1000/cmdline" in finding.summary) == (Status.UNKNOWN, True), finding.summary


def test_dockers_own_containerd_is_left_alone() -> None:
    node = ContainerdNode(kubelet=False)
    node.daemon(950, "containerd", "containerd", "--config", "/var/run/docker/containerd/containerd.toml")
    node.config("[", "/var/run/docker/containerd/containerd.toml")
    node.config(HEALTHY)
    assert Status.FAIL not in statuses(node)


# Not seen ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [MAIN, DROP_IN, RUNTIME, "/etc/containerd/conf.d"])
@pytest.mark.parametrize("error", ["EACCES", "EIO"])
def test_what_cannot_be_read_is_no_fault_and_no_pass(path: str, error: str) -> None:
    node = ContainerdNode()
    node.config(f"version = 2\n{IMPORTS}")
    node.config(HEALTHY, DROP_IN)
    node.tree.put(path, Record(error=error))
    report = node.diagnose()
    result = report.result(RUNTIME_CHECK)
    assert result.status is Status.UNKNOWN, result
    for check in CHECKS:
        assert report.result(check).status in (Status.UNKNOWN, Status.PASS), report.result(check)


def test_nothing_is_claimed_of_a_node_without_records() -> None:
    report = ContainerdNode.__new__(ContainerdNode)
    Builder.__init__(report)
    node = RecordedNode(report.tree)
    from tests.captures import diagnose

    for check in CHECKS:
        assert diagnose(node).result(check).status is Status.UNKNOWN


def test_a_node_without_containerd() -> None:
    node = ContainerdNode("", kubelet=False)
    for name in ("stat", "cgroup", "cmdline"):
        node.absent(f"/proc/900/{name}")
    node.tree.records = {path: record for path, record in node.tree.records.items() if not path.startswith("/proc/900")}
    node.tree.children["/proc"].discard("900")
    for check in CHECKS:
        assert node.judge(check).status is Status.SKIP


def test_an_unknown_version_is_judged_only_where_it_does_not_matter() -> None:
    node = ContainerdNode("")
    node.config(f"version = 2\n{runtime()}")
    assert node.judge(RUNTIME_CHECK).status is Status.UNKNOWN
    node.config("version = 2\n[")
    assert node.judge(CONFIG_CHECK).status is Status.FAIL


# Globs ------------------------------------------------------------------------------------------------------------


def test_globs_are_those_of_go() -> None:
    builder = Builder()
    for name in ("a.toml", ".b.toml", "c.conf", "d/e.toml"):
        builder.text(f"/x/{name}", "")
    node = RecordedNode(builder.tree, complete=["/x"])
    assert matches(node, "/x/*.toml") == ("/x/.b.toml", "/x/a.toml")
    assert matches(node, "/x/[a-b]*") == ("/x/a.toml",)
    assert matches(node, "/x/[^a]*.toml") == ("/x/.b.toml",)
    assert matches(node, "/x/*/*.toml") == ("/x/d/e.toml",)
    assert matches(node, "/x/\\a.tom?") == ("/x/a.toml",)
    for bad in ("/x/[", "/x/[]", "/x/[a", "/x/[-a]*", "/x/a\\", "/nothing/[*"):
        with pytest.raises(BadPattern):
            matches(node, bad)


def test_whatever_is_hidden_raises_no_alarm_and_is_cited_by_no_pass() -> None:
    """Ablation of a node with a drop-in, a default runtime and a changed file that crictl answers for."""

    def make() -> ContainerdNode:
        node = ContainerdNode()
        node.config(f"version = 2\n{IMPORTS}", later=50)
        node.config(f"{HEALTHY}{default('nvidia')}", DROP_IN)
        node.crictl({"runc": "", "nvidia": RUNTIME}, "nvidia")
        return node

    assert statuses(make()) == (Status.PASS, Status.PASS, Status.PASS)
    for path in [path for path in make().tree.records if not path.startswith("/proc/1/")]:
        for error in ("EACCES", "ENOENT"):
            node = make()
            node.tree.put(path, Record(error=error))
            report = node.diagnose()
            assert not crashed(report), (path, error)
            for finding in (found for check in CHECKS for found in report.result(check).findings):
                said = (path, error, finding)
                assert (
                    error != "EACCES"
                    or finding.status not in (Status.WARN, Status.FAIL)
                    or "changed after" in finding.summary
                ), said
                assert finding.status is not Status.PASS or path not in [one.where for one in finding.evidence], said
