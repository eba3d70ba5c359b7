"""CDI specs through the front door: what does not load, what leads nowhere, who asks in vain, the refresh, and their look-alikes."""

import json

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.raw import CommandOutput, Entry, EntryType, Log
from gpudoctor.facts.software import LEFTOVERS, PRODUCTS, QUERY_DPKG
from gpudoctor.registry import built_in
from gpudoctor.report import Report, Result
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import NOW, Builder

UUID, OTHER = "GPU-9063a962-81ba-c7ab-4797-a39e84f946ca", "GPU-3e822df7-8c97-6a07-4487-910010a3a9fc"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01"
HOOK = "/usr/bin/nvidia-cdi-hook"
ETC, RUN = "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"
LOAD, CURRENT, FOUND, REFRESH = (
    f"toolkit.cdi-{name}" for name in ("specs-load", "specs-current", "devices-found", "refresh")
)


def spec(
    *,
    version: str = "0.5.0",
    kind: str = "nvidia.com/gpu",
    names: tuple[str, ...] = ("0", UUID, "all"),
    node: str = "path: /dev/nvidia0, major: 195",
    mounts: tuple[str, ...] = (LIBRARY,),
    hook: str = f"hookName: createContainer, path: {HOOK}",
    more: str = "",
    common: str = "{path: /dev/nvidiactl}, {path: /dev/nvidia-uvm}",
) -> str:
    """A spec as nvidia-ctk would write it, but for the style."""
    devices = "".join(f"- name: '{name}'\n  containerEdits: {{deviceNodes: [{{{node}}}]}}\n" for name in names)
    mounted = ", ".join(f"{{hostPath: {path}, containerPath: {path}, options: [ro, rbind]}}" for path in mounts)
    edits = f"{{deviceNodes: [{common}], mounts: [{mounted}], hooks: [{{{hook}}}]{more}}}"
    return f"---\ncdiVersion: {version}\nkind: {kind}\ndevices:\n{devices}containerEdits: {edits}\n"


class NvidiaNode(Builder):
    """A node with GPUs, a driver that is loaded, its nodes and one library; all of it is known unless `complete` says less."""

    def __init__(
        self, driver: str = "550.163.01", uuids: tuple[str, ...] = (UUID,), complete: tuple[str, ...] = ("/",)
    ) -> None:
        super().__init__()
        self.complete = list(complete)
        self.commands: list[CommandOutput] = []
        self.logs: dict[str, str] = {}
        self.text("/proc/modules", "nvidia 56717312 10 - Live 0x0\n")
        version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Mon Jan 1 00:00:00 UTC 2026\n"
        self.text("/proc/driver/nvidia/version", version)
        self.text(
            "/proc/devices", "Character devices:\n195 nvidia\n507 nvidia-uvm\n234 nvidia-caps\n\nBlock devices:\n"
        )
        for minor, uuid in enumerate(uuids):
            address = f"0000:{minor + 1:02x}:00.0"
            place = f"/sys/devices/pci0000:00/{address}"
            self.function(address, place, "nvidia")
            for name, value in (("vendor", "0x10de"), ("device", "0x1eb8"), ("class", "0x030200")):
                self.text(f"{place}/{name}", f"{value}\n")
            told = f"Model: \t\t T4\nGPU UUID: \t {uuid}\nVideo BIOS: \t 90.04.38.00.03\nDevice Minor: \t {minor}\n"
            self.text(f"/proc/driver/nvidia/gpus/{address}/information", told)
            self.node(f"/dev/nvidia{minor}", 195, minor)
        self.node("/dev/kmsg", 1, 11)
        self.node("/dev/nvidiactl", 195, 255)
        self.node("/dev/nvidia-uvm", 507, 0)
        self.file(LIBRARY)
        self.file(HOOK, 0o755)

    def node(self, path: str, major: int, minor: int) -> None:
        """A device node."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.CHAR, mode=0o666, major=major, minor=minor)))

    def file(self, path: str, mode: int = 0o644) -> None:
        """A file without its content."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode=mode)))

    def spec(self, path: str, text: str, mode: int = 0o644) -> "NvidiaNode":
        """A spec."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode=mode), text=text))
        return self

    def packages(self, **versions: str) -> "NvidiaNode":
        """What dpkg tells."""
        self.text("/var/lib/dpkg/status", "")
        names = [name for one in PRODUCTS for name in (*one.vendor_packages, *one.distribution_packages)]
        told = "".join(f"{name.replace('_', '-')}\t{version}\tinstalled\n" for name, version in versions.items())
        self.commands = [CommandOutput((*QUERY_DPKG, *names, *LEFTOVERS), 1, told)]
        return self

    def report(self) -> Report:
        """The whole report."""
        node = RecordedNode(self.tree, complete=self.complete, uid=0)
        node.commands.update({told.argv: told for told in self.commands})
        node.logs.update({name: Log(name, text, source="journal") for name, text in self.logs.items()})
        return run(node, Config(), built_in(), Selection(), NOW)

    def judge(self, check: str) -> Result:
        """One check of it. `--check` does not hide what the answer needs, but a node without NVML blocks what stands on it."""
        node = RecordedNode(self.tree, complete=self.complete, uid=0)
        node.commands.update({told.argv: told for told in self.commands})
        node.logs.update({name: Log(name, text, source="journal") for name, text in self.logs.items()})
        return run(node, Config(), built_in(), Selection(checks=(check,)), NOW).result(check)


def words(result: Result) -> str:
    """All that a check says."""
    return "\n".join(
        line
        for finding in result.findings
        for line in (
            f"{finding.status.value} {finding.subject.key}: {finding.summary}",
            *(f"{e.where}: {e.shows}" for e in finding.evidence),
        )
    )


# Loading ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (spec(), Status.PASS, "loads, with 3 devices of nvidia.com/gpu"),
        (spec(version="9.0.0"), Status.FAIL, "line 2 column 1: invalid version '9.0.0'"),
        (spec().replace("kind:", "\tkind:"), Status.FAIL, "line 3 column 1"),
        (spec(names=("0", "0")), Status.FAIL, "multiple device '0'"),
        (spec(more=", extra: 1"), Status.FAIL, 'unknown field "extra"'),
        (spec(version="0.3.0"), Status.FAIL, "needs cdiVersion 0.5.0, the file states 0.3.0"),
        (spec(names=()), Status.FAIL, "no devices"),
        ("", Status.FAIL, "holds nothing"),
        (spec(kind="example.com/gpu"), Status.SKIP, "another vendor's"),
        ("kind: example.com/fpga\n  bad", Status.SKIP, "another vendor's"),
    ],
)  # fmt: skip
def test_a_spec_loads_or_the_place_is_named(text: str, status: Status, said: str) -> None:
    path = ETC if "example.com" not in text else "/etc/cdi/other.yaml"
    result = NvidiaNode().spec(path, text).judge(LOAD)
    assert result.status is status, words(result)
    assert said in words(result)
    assert [finding.subject.key for finding in result.findings] == [path]


def test_a_broken_spec_behind_a_good_one_of_its_kind_is_a_remark() -> None:
    result = NvidiaNode().spec(ETC, "kind: nvidia.com/gpu\n\tx").spec(RUN, spec()).judge(LOAD)
    assert result.status is Status.WARN
    assert f"{RUN} has nvidia.com/gpu" in words(result)
    assert NvidiaNode().spec(ETC, "{[").spec(RUN, spec()).judge(LOAD).status is Status.FAIL, (
        "of what kind it was is not known"
    )


@pytest.mark.parametrize(
    ("text", "beside", "alone"),
    [
        ("[a", Status.SKIP, Status.WARN),
        ("cdiVersion: 0.5.0\nki", Status.SKIP, Status.WARN),
        ("cdiVersion: 0.5.0\nkind: example.com/nic\ndevices: [", Status.SKIP, Status.SKIP),
        ("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [", Status.WARN, Status.FAIL),
    ],
)
def test_a_broken_file_that_names_nobody_may_be_the_one_that_is_missing(
    text: str, beside: Status, alone: Status
) -> None:
    path = "/etc/cdi/other.yaml"
    for node, status in ((NvidiaNode().spec(RUN, spec()), beside), (NvidiaNode(), alone)):
        result = node.spec(path, text).judge(LOAD)
        about = [finding for finding in result.findings if finding.subject.key == path]
        assert [finding.status for finding in about] == [status], words(result)


def test_what_a_container_does_not_see_is_not_missing_on_the_node() -> None:
    node = NvidiaNode().spec(ETC, spec(hook="hookName: createContainer, path: /opt/gone"))
    node.absent("/dev/kmsg")
    assert node.judge(CURRENT).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("podman", "more", "status"),
    [
        ("4.9.3+ds1-1ubuntu0.2", ", additionalGids: [44]", Status.FAIL),
        ("5.4.2+ds1-1", ", additionalGids: [44]", Status.PASS),
        ("4.9.3+ds1-1ubuntu0.2", "", Status.FAIL),
    ],
)
def test_a_spec_of_0_7_0_needs_an_engine_that_knows_it(podman: str, more: str, status: Status) -> None:
    result = NvidiaNode().spec(ETC, spec(version="0.7.0", more=more)).packages(podman=podman).judge(LOAD)
    assert result.status is status, words(result)
    assert f"podman {podman.partition('+')[0]}" in words(result)


def test_another_engine_that_can_read_it_makes_it_a_remark() -> None:
    node = NvidiaNode().spec(ETC, spec(version="0.7.0", more=", additionalGids: [44]"))
    node.packages(**{"podman": "4.9.3-1", "docker-ce": "5:29.3.0-1~ubuntu"})
    node.file("/usr/bin/dockerd", 0o755)
    result = node.judge(LOAD)
    assert result.status is Status.WARN, words(result)


def test_docker_that_has_cdi_off_is_not_asked() -> None:
    node = (
        NvidiaNode()
        .spec(ETC, spec(version="0.7.0", more=", additionalGids: [44]"))
        .packages(**{"docker-ce": "5:25.0.5-1~ubuntu"})
    )
    node.file("/usr/bin/dockerd", 0o755)
    assert node.judge(LOAD).status is Status.PASS
    node.text("/etc/docker/daemon.json", '{"features": {"cdi": true}}')
    assert node.judge(LOAD).status is Status.FAIL


def test_what_cannot_be_read_is_not_passed() -> None:
    node = NvidiaNode()
    node.tree.put(ETC, Record(error="EACCES"))
    for check in (LOAD, CURRENT):
        assert node.judge(check).status is Status.UNKNOWN
    assert NvidiaNode(complete=("/proc", "/sys")).judge(LOAD).status is Status.UNKNOWN
    assert NvidiaNode().judge(LOAD).status is Status.SKIP


@pytest.mark.parametrize(
    ("engine", "status"),
    [("podman 5.4.2", Status.FAIL), ("docker 29.1.3 {}", Status.FAIL), ("docker 29.2.0 {}", Status.PASS)],
)
def test_a_folder_that_is_a_link_is_not_looked_into(engine: str, status: Status) -> None:
    node = with_engine(engine).spec("/srv/cdi/nvidia.yaml", spec())
    node.link("/etc/cdi", "/srv/cdi")
    result = node.judge(LOAD)
    assert result.status is status, words(result)
    assert ("/etc/cdi is a symbolic link" in words(result)) is (status is Status.FAIL)


def test_a_conflict_is_one_root_cause_of_two_files() -> None:
    result = NvidiaNode().spec(ETC, spec()).spec("/etc/cdi/copy.yaml", spec()).judge(LOAD)
    assert {(finding.subject.key, finding.cause) for finding in result.findings} == {
        (ETC, "conflict in /etc/cdi"),
        ("/etc/cdi/copy.yaml", "conflict in /etc/cdi"),
    }


# Currency -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (spec(), Status.PASS, "of driver 550.163.01, 1 names of GPUs are the driver's"),
        (
            spec(mounts=(LIBRARY, "/run/nvidia-persistenced/socket")),
            Status.FAIL,
            "/run/nvidia-persistenced/socket is to be mounted",
        ),
        (
            spec(mounts=(LIBRARY.replace("550.163.01", "550.144.03"),)),
            Status.FAIL,
            "it is of driver 550.144.03, the node has 550.163.01",
        ),
        (
            spec(hook="hookName: createContainer, path: /opt/gone"),
            Status.FAIL,
            "/opt/gone is a hook's program and is not here",
        ),
        (spec(hook="hookName: startContainer, path: /opt/inside"), Status.PASS, "are here"),
        (spec(node="path: /dev/nvidia0, major: 195, minor: 1"), Status.FAIL, "gives /dev/nvidia0 as 195:1"),
        (spec(node="path: /dev/nvidia0"), Status.PASS, "are here"),
        (spec(node="path: /dev/nvidia0, type: b"), Status.FAIL, "is to be a device node of type b and is a character"),
        (spec(node="path: /dev/nvidia0, type: c"), Status.PASS, "are here"),
        (spec(node="path: /dev/linked"), Status.FAIL, "/dev/linked is to be a device node and is a symbolic link"),
        (spec(node="path: /dev/linked, type: c, major: 195", names=("0",)), Status.PASS, "are here"),
        (spec(node="path: /dev/nvidia-uvm, type: c, major: 510"), Status.FAIL, "gives /dev/nvidia-uvm as 510:0"),
        (spec(common="{path: /dev/nvidiactl}"), Status.FAIL, "without /dev/nvidia-uvm, which is here"),
        (spec(common="{path: /dev/nvidiactl}", kind="nvidia.com/gds"), Status.PASS, "are here"),
        (spec(node="path: /dev/nvidia7"), Status.FAIL, "/dev/nvidia7 is to be a device node and is not here"),
        (spec(names=("0", OTHER)), Status.WARN, f"it names {OTHER}, which this node does not have"),
        (spec(kind="example.com/gpu", mounts=("/gone",)), Status.SKIP, "another vendor's"),
        ("{[", Status.SKIP, "does not load"),
    ],
)
def test_what_a_spec_names_is_here_or_told(text: str, status: Status, said: str) -> None:
    node = NvidiaNode().spec(ETC, text)
    node.link("/dev/linked", "/dev/nvidia0")
    result = node.judge(CURRENT)
    assert result.status is status, words(result)
    assert said in words(result)


def test_a_spec_without_uvm_is_right_where_the_node_has_none() -> None:
    node = NvidiaNode().spec(ETC, spec(common="{path: /dev/nvidiactl}"))
    node.absent("/dev/nvidia-uvm")
    assert node.judge(CURRENT).status is Status.PASS


def test_a_program_that_cannot_be_executed_is_told() -> None:
    node = NvidiaNode().spec(ETC, spec())
    node.file(HOOK, 0o644)
    assert "cannot be executed" in words(node.judge(CURRENT))


def test_a_gpu_that_no_device_brings_is_a_remark_unless_nothing_is_meant_to_bring_all() -> None:
    node = NvidiaNode(uuids=(UUID, OTHER)).spec(ETC, spec())
    assert f"no device of it brings {OTHER}" in words(node.judge(CURRENT))
    assert NvidiaNode(uuids=(UUID, OTHER)).spec(ETC, spec(names=("0", UUID))).judge(CURRENT).status is Status.PASS


def test_a_name_that_leads_to_another_gpu_is_told() -> None:
    result = NvidiaNode(uuids=(OTHER, UUID)).spec(ETC, spec(names=(UUID,))).judge(CURRENT)
    assert f"its {UUID} leads to /dev/nvidia0" in words(result)


def test_a_missing_node_of_a_gpu_that_the_driver_has_is_no_fault_of_the_spec() -> None:
    node = NvidiaNode().spec(ETC, spec())
    node.absent("/dev/nvidia0")
    assert node.judge(CURRENT).status is not Status.FAIL


def test_a_host_that_is_torn_is_not_the_specs_fault() -> None:
    """Libraries of 550, module of 580: the spec has what the host has."""
    result = NvidiaNode(driver="580.95.05").spec(ETC, spec()).judge(CURRENT)
    assert result.status is Status.SKIP
    assert "the host itself" in words(result)
    beside = NvidiaNode(driver="580.95.05").spec(ETC, spec())
    beside.file(LIBRARY.replace("550.163.01", "580.95.05"))
    assert beside.judge(CURRENT).status is Status.FAIL


def test_a_path_that_was_not_seen_is_unknown() -> None:
    node = NvidiaNode().spec(ETC, spec())
    node.tree.put(LIBRARY, Record(error="EACCES"))
    assert node.judge(CURRENT).status is Status.UNKNOWN


def test_two_faults_of_two_files_are_two_findings() -> None:
    node = (
        NvidiaNode()
        .spec(ETC, spec(mounts=("/gone",)))
        .spec("/etc/cdi/bad.yaml", spec(kind="nvidia.com/gds", version="7"))
    )
    assert node.judge(CURRENT).findings[0].subject.key == ETC
    assert {finding.subject.key for finding in node.judge(LOAD).findings if finding.status is Status.FAIL} == {
        "/etc/cdi/bad.yaml"
    }


# Requests -----------------------------------------------------------------------------------------------------------


def kept_by_docker(
    node: NvidiaNode,
    name: str,
    policy: str,
    *,
    root: str = "/var/lib/docker",
    stopped: bool = False,
    exit_code: int = 1,
) -> None:
    """A container of dockerd's that does not run."""
    folder = f"{root}/containers/{'ab' * 32}"
    host = {"RestartPolicy": {"Name": policy}, "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": [name]}]}
    node.text(f"{folder}/hostconfig.json", json.dumps(host))
    said = {"Error": "unresolvable", "ExitCode": exit_code}
    kept = {"Name": "/train", "State": said, "HasBeenManuallyStopped": stopped}
    node.text(f"{folder}/config.v2.json", json.dumps(kept))
    for pid, comm in ((1, "systemd"),):
        node.text(f"/proc/{pid}/stat", f"{pid} ({comm}) S 0 1 " + "0 " * 40)
        node.text(f"/proc/{pid}/cgroup", "0::/init.scope\n")


@pytest.mark.parametrize(
    ("name", "policy", "status", "said"),
    [
        ("nvidia.com/gpu=0", "always", Status.PASS, "is in /etc/cdi/nvidia.yaml"),
        ("nvidia.com/gpu=1", "always", Status.WARN, "of nvidia.com/gpu there is 0"),
        ("nvidia.com/gpu=1", "no", Status.SKIP, "nobody restarts it"),
    ],
)
def test_a_name_that_docker_is_to_start_with_is_looked_for(name: str, policy: str, status: Status, said: str) -> None:
    node = NvidiaNode().spec(ETC, spec())
    kept_by_docker(node, name, policy)
    result = node.judge(FOUND)
    assert result.status is status, words(result)
    assert said in words(result)
    assert result.findings[0].subject.key == "ab" * 6


def test_a_name_that_may_be_in_a_broken_file_is_not_told_twice() -> None:
    node = NvidiaNode().spec(ETC, spec(version="9"))
    kept_by_docker(node, "nvidia.com/gpu=0", "always")
    assert node.judge(FOUND).status is Status.SKIP


@pytest.mark.parametrize(
    ("policy", "stopped", "exit_code", "status"),
    [
        ("always", True, 0, Status.WARN),
        ("unless-stopped", False, 0, Status.WARN),
        ("unless-stopped", True, 137, Status.SKIP),
        ("on-failure", False, 0, Status.SKIP),
        ("on-failure", False, 128, Status.WARN),
    ],
)
def test_a_container_that_somebody_stopped_is_not_waited_for(
    policy: str, stopped: bool, exit_code: int, status: Status
) -> None:
    node = NvidiaNode().spec(ETC, spec())
    kept_by_docker(node, "nvidia.com/gpu=1", policy, stopped=stopped, exit_code=exit_code)
    assert node.judge(FOUND).status is status


def test_names_of_other_vendors_are_not_asked_for() -> None:
    node = NvidiaNode().spec(ETC, spec())
    kept_by_docker(node, "example.com/nic=1", "always")
    assert node.judge(FOUND).status is Status.SKIP


def test_containers_are_looked_for_where_dockerd_keeps_them() -> None:
    node = NvidiaNode().spec(ETC, spec())
    node.file("/usr/bin/dockerd", 0o755)
    node.text("/etc/docker/daemon.json", '{"data-root": "/data/docker"}')
    kept_by_docker(node, "nvidia.com/gpu=1", "always", root="/data/docker")
    assert node.judge(FOUND).status is Status.WARN


# Who reads what -----------------------------------------------------------------------------------------------------


def with_engine(engine: str, *, folders: str = "") -> NvidiaNode:
    """A node with this engine."""
    node = NvidiaNode()
    if engine.startswith("docker"):
        _, release, settings = engine.split(" ", 2)
        node.packages(**{"docker-ce": f"5:{release}-1~ubuntu"}).file("/usr/bin/dockerd", 0o755)
        node.text("/etc/docker/daemon.json", settings)
    elif engine.startswith("podman"):
        node.packages(podman=f"{engine.partition(' ')[2]}-1").file("/usr/bin/podman", 0o755)
        if folders:
            node.text("/etc/containers/containers.conf", f"[engine]\ncdi_spec_dirs = ['{folders}']\n")
    else:
        node.packages(**{"cri-o": "1.33.0-1"}).file("/usr/bin/crio", 0o755)
        node.text("/etc/crio/crio.conf", f'[crio.runtime]\ncdi_spec_dirs = ["{folders}"]\n')
    node.text("/proc/1/stat", "1 (systemd) S 0 1 " + "0 " * 40)
    node.text("/proc/1/cgroup", "0::/init.scope\n")
    return node


@pytest.mark.parametrize(
    ("engine", "asked", "status"),
    [
        ("docker 26.1.5 {}", False, Status.WARN),
        ("docker 26.1.5 {}", True, Status.FAIL),
        ('docker 26.1.5 {"features": {"cdi": true}}', False, Status.FAIL),
        ('docker 29.1.3 {"features": {"cdi": false}}', False, Status.WARN),
        ("docker 29.1.3 {}", False, Status.FAIL),
        ("docker 26.1.5 {", False, Status.FAIL),
        ("podman 5.4.2", False, Status.FAIL),
    ],
)
@pytest.mark.parametrize(
    ("check", "text"),
    [(CURRENT, spec(mounts=("/gone",))), (LOAD, spec(version="9.0.0")), (LOAD, "kind: nvidia.com/gpu\n\tx")],
)
def test_what_nobody_uses_is_a_remark(check: str, text: str, engine: str, asked: bool, status: Status) -> None:
    node = with_engine(engine).spec(ETC, text)
    if asked:
        kept_by_docker(node, "nvidia.com/gpu=0", "always")
    result = node.judge(check)
    assert result.status is status, words(result)
    assert ("nothing uses it now" in words(result)) is (status is Status.WARN)


@pytest.mark.parametrize(
    ("config", "status"),
    [
        ("", Status.WARN),
        ('[nvidia-container-runtime]\nmode = "legacy"\n', Status.WARN),
        ('[nvidia-container-runtime]\nmode = "cdi"\n', Status.FAIL),
        ("[[", Status.FAIL),
    ],
)
def test_the_nvidia_runtime_in_the_mode_cdi_is_a_user(config: str, status: Status) -> None:
    node = with_engine("docker 26.1.5 {}").spec(ETC, spec(mounts=("/gone",)))
    node.packages(**{"docker-ce": "5:26.1.5-1", "nvidia-container-toolkit-base": "1.17.8-1"})
    if config:
        node.text("/etc/nvidia-container-runtime/config.toml", config)
    assert node.judge(CURRENT).status is status


@pytest.mark.parametrize(
    ("engine", "folder"),
    [
        ('docker 29.1.3 {"cdi-spec-dirs": ["/opt/cdi/"]}', ""),
        ("podman 5.5.0", "/opt/cdi"),
        ("crio", "/opt/cdi"),
    ],
)
def test_folders_that_an_engine_is_told_to_search_are_searched(engine: str, folder: str) -> None:
    node = with_engine(engine, folders=folder).spec("/opt/cdi/nvidia.yaml", spec(mounts=("/gone",)))
    kept_by_docker(node, "nvidia.com/gpu=0", "always")
    assert node.judge(LOAD).findings[0].subject.key == "/opt/cdi/nvidia.yaml"
    assert node.judge(CURRENT).status is Status.FAIL
    assert node.judge(FOUND).status is Status.PASS


# Remedies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "command"),
    [
        (ETC, "nvidia.com/gpu", f"nvidia-ctk cdi generate --output={ETC}"),
        ("/etc/cdi/imex.yaml", "nvidia.com/imex-channel", "nvidia-ctk cdi generate --mode=imex --class=imex-channel --output="),
        ("/etc/cdi/gds.json", "nvidia.com/gds", "nvidia-ctk cdi generate --mode=gds --class=gds --output=/etc/cdi/gds.json"),
        ("/etc/cdi/nvidia.coherent.yaml", "nvidia.com/gpu.coherent", f"nvidia-ctk cdi generate --output={ETC}"),
        ("/etc/cdi/a.yaml", "lab.nvidia.com/gpu", "nvidia-ctk cdi generate --vendor=lab.nvidia.com --output=/etc/cdi/a.yaml"),
    ],
)  # fmt: skip
def test_a_stale_spec_is_written_anew_as_what_it_was(path: str, kind: str, command: str) -> None:
    text = spec(version="0.6.0", kind=kind, mounts=("/gone",), names=("0",))
    result = NvidiaNode().spec(path, text).judge(CURRENT)
    assert result.findings[0].remedies[0].run[-1].startswith(command)


def test_all_of_another_class_need_not_bring_each_gpu() -> None:
    text = spec(kind="nvidia.com/gds", names=("all",), node="path: /dev/nvidiactl")
    result = NvidiaNode(uuids=(UUID, OTHER)).spec("/etc/cdi/gds.yaml", text).judge(CURRENT)
    assert result.status is Status.PASS, words(result)


def test_of_two_files_in_conflict_the_one_that_is_refreshed_stays() -> None:
    result = NvidiaNode().spec(RUN, spec()).spec("/var/run/cdi/copy.yaml", spec()).judge(LOAD)
    assert {finding.remedies[0].run[0].split()[1] for finding in result.findings} == {"/var/run/cdi/copy.yaml"}


def test_one_that_is_too_new_behind_another_is_a_remark() -> None:
    node = NvidiaNode().spec(ETC, spec(version="0.7.0", more=", additionalGids: [44]")).spec(RUN, spec())
    result = node.packages(podman="4.9.3-1").judge(LOAD)
    assert [finding.status for finding in result.findings] == [Status.WARN, Status.PASS], words(result)


def test_the_package_that_is_installed_is_upgraded() -> None:
    node = with_engine('docker 25.0.5 {"features": {"cdi": true}}').spec(ETC, spec(version="1.1.0"))
    run_first = node.judge(LOAD).findings[0].remedies[0].run[0]
    assert run_first.startswith("apt-get install --only-upgrade docker-ce ")


# At boot ------------------------------------------------------------------------------------------------------------

SOUGHT = 'level=error msg="failed to start container" error="CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0"'
NO_DRIVER = (
    'level=error msg="Handler returned error" error="could not select device driver \\"cdi\\" with capabilities: [[]]"'
)
AT = 1795948612.0
"""2026-11-29T10:36:52+00:00."""


def with_journal(node: NvidiaNode, message: str) -> NvidiaNode:
    """What dockerd wrote, once."""
    node.logs["journal/docker.service.log"] = f"2026-11-29T10:36:52+00:00 n1 dockerd[9]: {message}\n"
    return node


@pytest.mark.parametrize(
    ("behind", "early"), [(18.0, True), (-1.0, True), (0.0, True), (-86400.0, False), (7200.0, False)]
)
def test_a_spec_that_came_right_behind_the_failure_is_a_race(behind: float, early: bool) -> None:
    node = with_journal(with_engine("docker 29.1.3 {}"), SOUGHT)
    entry = Entry(RUN, EntryType.FILE, mode=0o644, mtime=AT + behind)
    node.tree.put(RUN, Record(entry=entry, text=spec()))
    result = node.judge("startup.engine-after-driver")
    assert (result.status is Status.WARN) is early, words(result)


@pytest.mark.parametrize(
    ("engine", "check", "cause"),
    [
        ("docker 26.1.5 {}", "toolkit.docker-cdi", "cdi-off"),
        ("docker 24.0.9 {}", "toolkit.docker-cdi", "cdi-off"),
        ("docker 29.1.3 {}", "startup.engine-after-driver", "too-early"),
        ("docker 26.1.5 {", "startup.engine-after-driver", "too-early"),
    ],
)
def test_a_docker_that_has_cdi_off_did_not_start_too_early(engine: str, check: str, cause: str) -> None:
    report = with_journal(with_engine(engine), NO_DRIVER).spec(RUN, spec()).report()
    told = [
        (result.check, finding.cause)
        for result in report.results
        if result.check in ("toolkit.docker-cdi", "startup.engine-after-driver")
        for finding in result.findings
        if finding.status is Status.WARN
    ]
    assert told == [(check, cause)]


# Refresh --------------------------------------------------------------------------------------------------------------

UNIT = "/lib/systemd/system/nvidia-cdi-refresh.service"
STARTED = "2026-11-29T10:36:58+0000 n1 systemd[1]: Starting nvidia-cdi-refresh.service - Refresh NVIDIA CDI specification file..."
FINISHED = STARTED.replace("Starting", "Finished").removesuffix("...") + "."
FAILED = "2026-11-29T10:36:58+0000 n1 systemd[1]: nvidia-cdi-refresh.service: Failed with result 'exit-code'."
ERROR = '2026-11-29T10:36:58+0000 n1 nvidia-ctk[9]: time="x" level=error msg="failed to save CDI spec: invalid device, empty device edits"'


@pytest.mark.parametrize(
    ("lines", "written", "status", "said"),
    [
        ((STARTED, FINISHED), True, Status.PASS, "its last run worked"),
        ((STARTED, ERROR, FAILED), False, Status.FAIL, "empty device edits"),
        ((STARTED, ERROR, FINISHED), False, Status.FAIL, "empty device edits"),
        ((STARTED, ERROR, FAILED), True, Status.WARN, "of an earlier one"),
        ((STARTED, ERROR, FAILED, STARTED, FINISHED), True, Status.PASS, "its last run worked"),
        ((STARTED, FINISHED), False, Status.WARN, "somebody took it away"),
        ((), False, Status.SKIP, "tells of no run"),
        (None, True, Status.PASS, "is there"),
        (None, False, Status.UNKNOWN, "not recorded"),
    ],
)  # fmt: skip
def test_the_last_run_of_the_refresh_counts(
    lines: tuple[str, ...] | None, written: bool, status: Status, said: str
) -> None:
    node = NvidiaNode()
    for program in ("/usr/bin/nvidia-smi", "/usr/bin/nvidia-ctk"):
        node.file(program, 0o755)
    node.text(UNIT, "[Service]\n")
    node.link("/etc/systemd/system/multi-user.target.wants/nvidia-cdi-refresh.service", UNIT)
    if lines is not None:
        node.logs["journal/nvidia-cdi-refresh.service.log"] = "".join(f"{line}\n" for line in lines)
    if written:
        node.spec(RUN, spec())
    result = node.judge(REFRESH)
    assert result.status is status, words(result)
    assert said in words(result) + (result.detail or "")


def test_a_refresh_that_nobody_enabled_is_a_choice() -> None:
    node = NvidiaNode()
    node.text(UNIT, "[Service]\n")
    assert node.judge(REFRESH).status is Status.SKIP
    assert NvidiaNode().judge(REFRESH).status is Status.SKIP


def test_a_refresh_that_failed_beside_another_spec_is_a_remark() -> None:
    node = NvidiaNode().spec(ETC, spec())
    for program in ("/usr/bin/nvidia-smi", "/usr/bin/nvidia-ctk"):
        node.file(program, 0o755)
    node.text(UNIT, "[Service]\n")
    node.link("/etc/systemd/system/multi-user.target.wants/nvidia-cdi-refresh.service", UNIT)
    node.logs["journal/nvidia-cdi-refresh.service.log"] = f"{STARTED}\n{ERROR}\n{FAILED}\n"
    result = node.judge(REFRESH)
    assert result.status is Status.WARN, words(result)
    assert f"{ETC} has nvidia.com/gpu" in words(result)
