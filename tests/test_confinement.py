"""SELinux, AppArmor and user namespaces: denials that count, look-alikes that do not, and what is not known."""

from pathlib import Path

import pytest

from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.facts.software import PACKAGES as ASKED
from gpudoctor.facts.software import QUERY_DPKG
from gpudoctor.report import Finding
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import diagnose
from tests.gpu_node import GIVEN, GpuNode
from tests.small_node import alarms, cited, steps
from tests.workload_node import ID, USER

SELINUX, APPARMOR, ROOTLESS = (f"toolkit.{name}" for name in ("selinux-allows", "apparmor-allows", "rootless-set-up"))
KERNEL, AUDIT = "kernel.log", "/var/log/audit/audit.log"
CONTEXT = "system_u:system_r:container_t:s0:c1,c2"
CORPUS = Path(__file__).resolve().parent.parent.parent / "shared/corpus/container-config/azdiag-selinux.bad"


def avc(
    name: str = 'name="nvidiactl"',
    *,
    pid: int = 702,
    source: str = CONTEXT,
    permissive: int = 0,
    kind: str = "chr_file",
    at: int = 1795950041,
) -> str:
    """As the kernel prints one."""
    target = "system_u:object_r:xserver_misc_device_t:s0"
    return (
        f'[ 1441.512000] audit: type=1400 audit({at}.512:881): avc:  denied  {{ read write }} for  pid={pid} comm="python3" {name} '
        f'dev="devtmpfs" ino=512 scontext={source} tcontext={target} tclass={kind} permissive={permissive}\n'
    )


def denied(
    name: str = "/dev/nvidia0", *, profile: str = "docker-default", operation: str = "open", pid: int = 702
) -> str:
    """As the kernel prints one of AppArmor's."""
    return (
        f'[ 1530.411208] audit: type=1400 audit(1795950130.411:87): apparmor="DENIED" operation="{operation}" class="file" '
        f'profile="{profile}" name="{name}" pid={pid} comm="python3" requested_mask="wr" denied_mask="wr" fsuid=0 ouid=0\n'
    )


class Confined(GpuNode):
    """A node with a container that has a GPU; the log reaches back to the boot."""

    def __init__(self, *, runs: bool = True) -> None:
        super().__init__()
        looked_through = ("/sys/fs/selinux", "/sys/module/apparmor", "/var/log/audit", "/etc/cdi", "/usr/local/nvidia")
        self.complete = [*self.complete, *looked_through, "/etc/nvidia-container-runtime"]
        self.logs[KERNEL] = ""
        self.from_boot = True
        if runs:
            self.container()
            self.rules(*GIVEN)

    def selinux(self, enforce: str = "1", **booleans: int) -> "Confined":
        """SELinux in the kernel, with booleans of its policy."""
        self.text("/sys/fs/selinux/enforce", enforce)
        for name, value in booleans.items():
            self.text(f"/sys/fs/selinux/booleans/{name}", f"{value} {value}")
        return self

    def apparmor(self, enabled: str = "Y\n") -> "Confined":
        """AppArmor in the kernel."""
        self.text("/sys/module/apparmor/parameters/enabled", enabled)
        return self

    def log(self, *lines: str) -> "Confined":
        """Messages of the kernel."""
        self.logs[KERNEL] += "".join(lines)
        return self

    def node(self) -> RecordedNode:
        """With the log as it was kept."""
        from gpudoctor.facts.raw import Log

        recorded = super().node()
        text = self.logs.pop(KERNEL, None)
        if text is not None:
            recorded.logs[KERNEL] = Log(KERNEL, text, source="kmsg", from_boot=self.from_boot)
        return recorded


# SELinux ------------------------------------------------------------------------------------------------------------


def test_a_denial_of_a_running_container_fails_with_the_line_and_the_switch() -> None:
    node = Confined().selinux(container_use_devices=0).log(avc(), avc('path="/dev/nvidia0"'))
    found = node.says(SELINUX)
    assert (found.status, found.subject.key) == (Status.FAIL, "node")
    assert "nvidiactl" in found.summary and "/dev/nvidia0" in found.summary
    assert "permissive=0" in cited(found) and "container_use_devices 0 0" in cited(found)
    assert [step.partition(" ")[0] for step in steps(found).splitlines()[:1]] == ["setsebool"]
    assert found.remedies[0].run[0] == "setsebool -P container_use_devices on"
    assert [remedy.action.value for remedy in found.remedies] == ["change-config", "change-config", "change-workload"]


def test_the_narrower_switch_is_named_where_the_policy_has_it() -> None:
    node = Confined().selinux(container_use_devices=0, container_use_xserver_devices=0).log(avc())
    assert "container_use_xserver_devices on" in steps(node.says(SELINUX))


@pytest.mark.parametrize(
    "line",
    [
        avc('name="libnvidia-ml.so.580.95.05"', kind="file"),
        avc('path="/usr/lib64/libcuda.so.1"', kind="file"),
        avc('name="nvidia-cap2"'),
        avc('name="nvidia-uvm"', source="system_u:system_r:svirt_lxc_net_t:s0:c1,c2"),
        avc(source="system_u:system_r:my_container.process:s0:c1,c2"),
    ],
)
def test_libraries_and_other_nodes_count_as_well(line: str) -> None:
    assert Confined().selinux().log(line).says(SELINUX).status is Status.FAIL


@pytest.mark.parametrize(
    "line",
    [
        avc(permissive=1),
        avc('name="nvidia-driver-notes.txt"', kind="file"),
        avc('name="gpu.log"', source="system_u:system_r:syslogd_t:s0"),
        avc('name="nvidia-modeset"', source="system_u:system_r:xdm_t:s0-s0:c0.c1023"),
        avc('name="renderD128"'),
        avc('path="/home/u1/nvidia0.txt"', kind="file"),
        "[ 1.0] audit: type=1107 audit(1795950041.1:2): USER_AVC nvidia\n",
    ],
)
def test_look_alikes_are_no_denial_of_a_gpu(line: str) -> None:
    found = Confined().selinux().log(line).says(SELINUX)
    assert found.status is Status.PASS and "/sys/fs/selinux/enforce 1" in cited(found)


def test_permissive_denies_nothing_and_says_what_it_would() -> None:
    found = Confined().selinux("0").log(avc(permissive=1)).says(SELINUX)
    assert found.status is Status.PASS and "nvidiactl" in found.summary


def test_without_selinux_there_is_nothing_to_ask() -> None:
    assert Confined().says(SELINUX).status is Status.SKIP


@pytest.mark.parametrize(
    ("line", "booleans", "first"),
    [
        (avc(), {"container_use_devices": 0}, "setsebool"),
        (avc(), {}, "ls -Z"),
        (avc('name="libcuda.so.1"', kind="file"), {"container_use_devices": 0}, "ls -Z"),
    ],
)
def test_the_switch_is_named_only_where_it_exists_and_helps(line: str, booleans: dict[str, int], first: str) -> None:
    found = Confined().selinux("1", **booleans).log(line).says(SELINUX)
    assert found.status is Status.FAIL and found.remedies[0].run[0].startswith(first)


def test_a_library_is_denied_whatever_the_switch_for_nodes_says() -> None:
    line = avc('name="libcuda.so.1"', kind="file")
    found = Confined().selinux(container_use_devices=1).log(line).says(SELINUX)
    assert found.status is Status.FAIL and "restorecon" in steps(found) and "setsebool" not in steps(found)


def test_a_policy_that_does_not_show_its_switches_is_given_the_wider_one() -> None:
    node = Confined().selinux().log(avc())
    for name in ("container_use_devices", "container_use_xserver_devices"):
        node.tree.put(f"/sys/fs/selinux/booleans/{name}", Record(error="EACCES"))
    assert "setsebool -P container_use_devices on" in steps(node.says(SELINUX))


def test_a_denial_that_is_over_is_a_remark() -> None:
    gone = Confined().selinux(container_use_devices=0).log(avc(pid=4711)).says(SELINUX)
    assert gone.status is Status.WARN and "gone" in gone.summary
    allowed = Confined().selinux(container_use_devices=1).log(avc()).says(SELINUX)
    assert allowed.status is Status.WARN and "is on now" in allowed.summary and "setsebool" not in steps(allowed)


def test_a_denial_is_all_there_is_where_no_container_runs() -> None:
    assert Confined(runs=False).selinux().log(avc(pid=4711)).says(SELINUX).status is Status.FAIL
    assert Confined(runs=False).selinux().says(SELINUX).status is Status.SKIP


def test_where_auditd_runs_its_file_tells() -> None:
    node = Confined().selinux()
    node.process(900, "/system.slice/auditd.service", comm="auditd")
    node.text(AUDIT, avc().partition("] ")[2].replace("audit: type=1400", "type=AVC msg=") + "type=SYSCALL x\n")
    found = node.says(SELINUX)
    assert found.status is Status.FAIL and AUDIT in cited(found)


def test_a_denial_of_before_the_boot_is_over() -> None:
    node = Confined().selinux()
    node.text("/proc/stat", "cpu 1\nbtime 1795948600\n")
    node.text(AUDIT, avc(at=1795940000).partition("] ")[2])
    assert node.says(SELINUX).status is Status.PASS
    node = Confined().selinux()
    node.text("/proc/stat", "cpu 1\nbtime 1795948600\n")
    node.text(AUDIT, avc().partition("] ")[2])
    assert node.says(SELINUX).status is Status.FAIL


def unseen_audit(error: str) -> Confined:
    node = Confined().selinux()
    node.process(900, "/system.slice/auditd.service", comm="auditd")
    node.tree.put(AUDIT, Record(error=error))
    return node


def test_what_may_hold_a_denial_and_is_not_seen_makes_it_unknown() -> None:
    assert unseen_audit("EACCES").says(SELINUX).status is Status.UNKNOWN
    wrapped = Confined().selinux()
    wrapped.from_boot = False
    assert wrapped.says(SELINUX).status is Status.UNKNOWN
    silent = Confined().selinux()
    del silent.logs[KERNEL]
    assert silent.says(SELINUX).status is Status.UNKNOWN
    shut = Confined()
    shut.tree.put("/sys/fs/selinux/enforce", Record(error="EACCES"))
    assert shut.says(SELINUX).status is Status.UNKNOWN


def test_an_audit_log_too_large_is_not_called_quiet() -> None:
    node = Confined().selinux()
    node.tree.put(AUDIT, Record(entry=Entry(AUDIT, EntryType.FILE, size=1 << 26)))
    assert node.says(SELINUX).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("mtime", "status"), [(1795940000.0, Status.PASS), (1795950000.0, Status.UNKNOWN), (None, Status.UNKNOWN)]
)
def test_an_audit_log_that_was_turned_over_since_the_boot_is_not_called_quiet(
    mtime: float | None, status: Status
) -> None:
    node = Confined().selinux()
    node.text("/proc/stat", "cpu 1\nbtime 1795948600\n")
    node.text(AUDIT, "")
    older = f"{AUDIT}.1"
    node.tree.put(older, Record(entry=Entry(older, EntryType.FILE, 0o400, size=8, mtime=mtime)))
    assert node.says(SELINUX).status is status


def test_an_auditd_that_keeps_its_messages_elsewhere_is_not_called_quiet() -> None:
    node = Confined().selinux()
    node.process(900, "/system.slice/auditd.service", comm="auditd")
    found = node.says(SELINUX)
    assert found.status is Status.UNKNOWN and "elsewhere" in found.summary


def test_a_policy_that_lets_containers_use_devices_passes_citing_it() -> None:
    found = Confined(runs=False).selinux(container_use_xserver_devices=1).says(SELINUX)
    assert found.status is Status.PASS and "container_use_xserver_devices 1 1" in cited(found)


def test_azures_sample_says_how_it_was_meant_and_no_more() -> None:
    if not CORPUS.is_file():
        pytest.skip(f"{CORPUS} is not there")
    node = GpuNode()
    node.text("/etc/selinux/config", CORPUS.read_text())
    (found,) = diagnose(node.node()).result(SELINUX).findings
    assert found.status is Status.UNKNOWN and "SELINUX=enforcing" in found.summary


# AppArmor -----------------------------------------------------------------------------------------------------------


def test_a_profile_that_denies_nodes_is_named() -> None:
    found = Confined().apparmor().log(denied(), denied("/dev/nvidiactl")).says(APPARMOR)
    assert (found.status, found.subject.key) == (Status.FAIL, "node")
    assert "docker-default" in found.summary and "/dev/nvidia0" in found.summary
    assert [remedy.action.value for remedy in found.remedies] == ["change-config", "change-workload"]


@pytest.mark.parametrize(
    "line",
    [
        denied(profile="my-own-profile"),
        denied(profile="cri-containerd.apparmor.d", pid=4711, name="/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"),
        denied("/usr/bin/nvidia-smi", operation="exec"),
        denied("/dev/nvidia-caps/nvidia-cap2"),
        denied(profile="snap.docker.dockerd", pid=4711),
    ],
)
def test_any_profile_of_a_process_in_a_container_counts(line: str) -> None:
    found = Confined().apparmor().log(line).says(APPARMOR)
    assert found.status is (Status.WARN if "pid=4711" in line else Status.FAIL)


@pytest.mark.parametrize(
    "line",
    [
        denied("/proc/sys/vm/max_map_count"),
        denied("/home/u1/nvidia-driver-notes.txt", profile="snap.firefox.firefox", pid=7120),
        denied(profile="/usr/bin/snmpd", pid=7120),
        denied("/dev/nvidiactl", profile="snap.firefox.firefox", pid=7120),
        denied(operation="unlink"),
        denied().replace("DENIED", "ALLOWED"),
        denied("/usr/share/nvidia/nvidia-application-profiles-580.95.05-rc", profile="libreoffice-soffice", pid=7120),
        '[ 16.2] audit: type=1400 audit(1.2:2): apparmor="STATUS" operation="profile_load" profile="unconfined" name="nvidia_modprobe"\n',
    ],
)
def test_look_alikes_are_no_denial_by_a_containers_profile(line: str) -> None:
    found = Confined().apparmor().log(line).says(APPARMOR)
    assert found.status is Status.PASS and "parameters/enabled Y" in cited(found)


def test_without_apparmor_or_containers_nothing_is_claimed() -> None:
    assert Confined().says(APPARMOR).status is Status.SKIP
    assert Confined().apparmor("N\n").says(APPARMOR).status is Status.SKIP
    assert Confined(runs=False).apparmor().says(APPARMOR).status is Status.SKIP


def test_a_log_that_is_not_seen_is_unknown() -> None:
    node = Confined().apparmor()
    del node.logs[KERNEL]
    assert node.says(APPARMOR).status is Status.UNKNOWN


NO_NAMESPACE = (
    '[ 9.1] audit: type=1400 audit(1795950130.411:87): apparmor="DENIED" operation="userns_create" class="namespace" '
    'info="User namespace creation restricted" error=-13 profile="unconfined" pid=4711 comm="{}" requested="userns_create"\n'
)
USELESS_NAMESPACE = (
    '[ 9.1] audit: type=1400 audit(1795950130.411:87): apparmor="DENIED" operation="capable" class="cap" '
    'profile="unprivileged_userns" pid=4711 comm="{}" capability=21  capname="sys_admin"\n'
)


@pytest.mark.parametrize("line", [NO_NAMESPACE, USELESS_NAMESPACE])
@pytest.mark.parametrize("comm", ["rootlesskit", "apptainer", "podman"])
def test_an_engine_that_gets_no_namespace_is_remarked(line: str, comm: str) -> None:
    found = Confined().apparmor().log(line.format(comm)).says(APPARMOR)
    assert found.status is Status.WARN and comm in found.summary
    assert "sysctl -w" in found.remedies[-1].run[0]


@pytest.mark.parametrize("comm", ["steamwebhelper", "chrome"])
def test_a_browsers_sandbox_is_nobodys_engine(comm: str) -> None:
    assert Confined().apparmor().log(NO_NAMESPACE.format(comm)).says(APPARMOR).status is Status.PASS


RESTRICTS = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"


@pytest.mark.parametrize(("value", "status"), [("0\n", Status.PASS), ("1\n", Status.WARN)])
def test_a_restriction_that_was_lifted_is_over(value: str, status: Status) -> None:
    node = Confined().apparmor().log(NO_NAMESPACE.format("podman"))
    node.text(RESTRICTS, value)
    assert node.says(APPARMOR).status is status


@pytest.mark.parametrize(("comm", "status"), [("rootlesskit", Status.PASS), ("podman", Status.WARN)])
def test_an_engine_that_runs_rootless_now_has_its_namespace_and_no_other(comm: str, status: Status) -> None:
    node = Confined().apparmor().log(NO_NAMESPACE.format(comm))
    rootless(node, {})
    assert node.says(APPARMOR).status is status


def test_two_things_that_apparmor_denies_are_two_findings() -> None:
    report = Confined().apparmor().log(denied(), NO_NAMESPACE.format("rootlesskit")).report()
    assert [found.status for found in alarms(report, APPARMOR)] == [Status.FAIL, Status.WARN]


def test_selinux_and_a_rootless_engine_are_two_root_causes() -> None:
    node = Confined().selinux().log(avc())
    rootless(node, LEGACY)
    causes = {cause.check for cause in node.report().root_causes}
    assert {SELINUX, ROOTLESS} <= causes


# user namespaces ----------------------------------------------------------------------------------------------------

SERVICE = "/user.slice/user-1000.slice/user@1000.service/app.slice/docker.service"
DAEMON_JSON = "/home/u1/.config/docker/daemon.json"
LEGACY = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
SPEC = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n"


def rootless(node: GpuNode, settings: object | None) -> None:
    """A dockerd of u1, whose range in /etc/subuid tells the name."""
    import json

    node.process(900, SERVICE, comm="dockerd", user=USER + 9)
    node.text("/proc/900/cmdline", "dockerd\0")
    node.text("/proc/900/uid_map", "         0       1000          1\n         1     100000      65536\n")
    node.text("/etc/subuid", "u2:165536:65536\nu1:100000:65536\n")
    if settings is None:
        node.absent(DAEMON_JSON)
    else:
        node.text(DAEMON_JSON, settings if isinstance(settings, str) else json.dumps(settings))


def daemon(settings: object | None, config: str | None = "", spec: int | None = None) -> Finding:
    node = Confined(runs=False)
    rootless(node, settings)
    if config is not None:
        node.text("/etc/nvidia-container-runtime/config.toml", config)
    if spec is not None:
        path = "/etc/cdi/nvidia.yaml"
        node.tree.put(path, Record(entry=Entry(path, EntryType.FILE, spec, 0, 0), text=SPEC))
    return node.says(ROOTLESS)


@pytest.mark.parametrize("config", ["", "[nvidia-container-cli]\nno-cgroups = false\n", None])
def test_a_rootless_docker_with_the_hook_needs_no_cgroups(config: str | None) -> None:
    found = daemon(LEGACY, config)
    assert (found.status, found.subject.key) == (Status.FAIL, "docker")
    assert "no-cgroups" in found.summary and DAEMON_JSON in cited(found)
    assert "cdi generate" in steps(found)


@pytest.mark.parametrize(
    ("release", "config", "works"),
    [
        ("1.18.0", "", True),
        ("1.17.8", "", False),
        ("1.20.0", '[nvidia-container-runtime]\nmode = "legacy"\n', False),
    ],
)
def test_a_runtime_that_touches_no_cgroup_is_the_first_step(release: str, config: str, works: bool) -> None:
    node = Confined(runs=False)
    rootless(node, LEGACY)
    node.text("/etc/nvidia-container-runtime/config.toml", config)
    node.text("/var/lib/dpkg/status", "")
    question = (*QUERY_DPKG, *ASKED)
    node.printed[question] = f"nvidia-container-toolkit\t{release}-1\tinstalled\n"
    found = node.says(ROOTLESS)
    assert found.status is Status.FAIL
    assert ("--runtime=nvidia" in found.remedies[0].run[0], "works without" in found.summary) == (works, works)


PODMAN_GROUP = f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"


@pytest.mark.parametrize(
    ("hidden", "expected"),
    [("", Status.PASS), ("/proc/702/status", Status.UNKNOWN), ("/proc/702/mountinfo", Status.UNKNOWN)],
)
def test_a_rootless_podman_passes_only_where_its_user_and_nodes_were_seen(hidden: str, expected: Status) -> None:
    node = Confined(runs=False)
    node.container(702, PODMAN_GROUP)
    node.rules(*GIVEN, group=PODMAN_GROUP)
    for minor in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        node.mode(f"/proc/702/root/dev/{minor}", 0o660, 0, 44)
    status = "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t44 1000\n"
    node.text("/proc/702/status", f"{status}CapEff:\t0000000000000000\n")
    if hidden:
        node.tree.put(hidden, Record(error="EACCES"))
    found = node.says(ROOTLESS)
    assert (found.status, found.subject.key) == (expected, "podman"), found.summary


def test_no_cgroups_is_right_for_it() -> None:
    found = daemon(LEGACY, "[nvidia-container-cli]\nno-cgroups = true\n")
    assert found.status is Status.PASS and "no-cgroups = true" in cited(found)


def test_by_cdi_it_needs_a_specification_that_it_may_read() -> None:
    on = {"features": {"cdi": True}}
    right = daemon(on, spec=0o644)
    assert right.status is Status.PASS and "/etc/cdi/nvidia.yaml" in cited(right)
    shut = daemon(on, spec=0o600)
    assert shut.status is Status.FAIL and "chmod 0644 /etc/cdi/nvidia.yaml" in steps(shut)
    assert daemon(on).status is Status.SKIP


@pytest.mark.parametrize("settings", [{}, {"log-driver": "json-file"}, None])
def test_a_rootless_docker_that_nobody_set_up_for_gpus_is_no_fault(settings: object | None) -> None:
    assert daemon(settings).status is Status.SKIP


def test_what_is_not_known_of_it_is_no_fault_and_no_pass() -> None:
    assert daemon("{").status is Status.UNKNOWN
    assert daemon(LEGACY, "no-cgroups = ").status is Status.UNKNOWN
    assert daemon(LEGACY, spec=0o644).status is Status.UNKNOWN
    node = Confined(runs=False)
    rootless(node, LEGACY)
    node.tree.put("/etc/subuid", Record(error="EACCES"))
    assert node.says(ROOTLESS).status is Status.UNKNOWN


def test_a_rootful_docker_is_no_rootless_one() -> None:
    node = Confined()
    node.process(901, "/system.slice/docker.service", comm="dockerd")
    assert node.says(ROOTLESS).status is Status.SKIP


@pytest.mark.parametrize(
    ("mode", "settings", "status"),
    [
        (
            0o660,
            '{"userns-remap": "default", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
            Status.WARN,
        ),
        (
            0o666,
            '{"userns-remap": "default", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
            Status.PASS,
        ),
        (0o660, '{"userns-remap": "default"}', Status.SKIP),
        (0o660, '{"userns-remap": "default", "features": {"containerd-snapshotter": true}}', Status.SKIP),
        (0o660, '{"userns-remap": "default", "registry-mirrors": ["https://nvidia.example"]}', Status.SKIP),
        (0o660, '{"userns-remap": "default", "features": {"cdi": true}}', Status.WARN),
        (0o660, '{"userns-remap": ""}', Status.SKIP),
    ],
)
def test_users_that_are_mapped_away_and_nodes_that_are_shut(mode: int, settings: str, status: Status) -> None:
    node = Confined(runs=False)
    node.process(901, "/system.slice/docker.service", comm="dockerd")
    node.text("/etc/docker/daemon.json", settings)
    for minor in (0, 1):
        node.mode(f"/dev/nvidia{minor}", mode, 0, 44)
    found = node.says(ROOTLESS)
    assert found.status is status
    if status is Status.WARN:
        assert "0660" in found.summary and "userns-remap" in cited(found)


def test_of_a_container_that_runs_another_check_tells() -> None:
    node = Confined()
    node.process(901, "/system.slice/docker.service", comm="dockerd")
    node.text("/etc/docker/daemon.json", '{"userns-remap": "default", "features": {"cdi": true}}')
    node.mode("/dev/nvidia0", 0o660, 0, 44)
    node.mode("/dev/nvidia1", 0o660, 0, 44)
    found = node.says(ROOTLESS)
    assert found.status is Status.SKIP and "workload.nodes-inside" in found.summary


def test_nothing_confined_passes_nothing() -> None:
    report = diagnose(RecordedNode(GpuNode().tree, complete=(), uid=0))
    for check in (SELINUX, APPARMOR, ROOTLESS):
        assert report.result(check).status is not Status.PASS
