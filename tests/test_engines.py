"""CRI-O, Podman, the kubelet's engine, Apptainer and enroot: what each really reads, and what then comes of it."""

import json
from collections.abc import Mapping

import pytest

from gpudoctor.facts.raw import CommandOutput, Entry, EntryType
from gpudoctor.facts.software import PACKAGES, QUERY_DPKG
from gpudoctor.report import Report, Result
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from gpudoctor.verdicts import Status
from tests.captures import crashed, diagnose

BOOT = 1_700_000_000
RUNTIME, HOOK = "/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime-hook"
NVIDIA = f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{RUNTIME}"\nruntime_type = "oci"\n'
CRUN = '[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n'
HOOK_FILE = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
SPEC = "---\ncdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n"


def hook(program: str = HOOK, **other: object) -> str:
    """A hook file as the toolkit writes it."""
    return json.dumps(
        {"version": "1.0.0", "hook": {"path": program}, "when": {"always": True}, "stages": ["prestart"], **other}
    )


class Node:
    """A node of which everything is known: what is not put there is not there."""

    def __init__(self, *programs: str, complete: tuple[str, ...] = ("/",)) -> None:
        self.tree, self.complete = Tree(), complete
        for program in programs:
            self.file(program)

    def file(self, path: str, text: str | None = None, mode: int = 0o755, mtime: float | None = None) -> "Node":
        """A file; a program has no text."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode=mode, mtime=mtime), text=text))
        return self

    def files(self, texts: Mapping[str, str]) -> "Node":
        """Several files with their text."""
        for path, text in texts.items():
            self.file(path, text, 0o644)
        return self

    def error(self, path: str, error: str = "EACCES") -> "Node":
        """Something that cannot be looked at."""
        self.tree.put(path, Record(error=error))
        return self

    def folder(self, path: str, mode: int) -> "Node":
        """A folder with its mode."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.DIR, mode=mode)))
        return self

    def socket(self, path: str) -> "Node":
        """A socket."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.SOCKET)))
        return self

    def process(self, pid: int, comm: str, *arguments: str, started: int = 1000) -> "Node":
        """A running daemon of the host."""
        fields = f"{pid} ({comm}) S 1 {' '.join('0' for _ in range(17))} {started} " + " ".join("0" for _ in range(30))
        self.file("/proc/stat", f"btime {BOOT}\n", 0o444)
        self.file(f"/proc/{pid}/stat", fields + "\n", 0o444)
        self.file(f"/proc/{pid}/cmdline", "\0".join((comm, *arguments)) + "\0", 0o444)
        self.file(f"/proc/{pid}/cgroup", f"0::/system.slice/{comm}.service\n", 0o444)
        return self

    def recorded_command(self, version: str) -> Result:
        """CRI-O's check where dpkg tells its version."""
        node = RecordedNode(self.tree, complete=self.complete, uid=0)
        argv = (*QUERY_DPKG, *PACKAGES)
        node.commands[argv] = CommandOutput(argv, 1, f"cri-o\t{version}\tinstalled\n", "")
        return diagnose(node).result("toolkit.crio-runtime")

    def report(self) -> Report:
        """The whole report."""
        report = diagnose(RecordedNode(self.tree, complete=self.complete, uid=0))
        assert not crashed(report), crashed(report)
        return report

    def run(self, check: str) -> Result:
        """One check of it."""
        return self.report().result(f"toolkit.{check}")


def words(result: Result) -> str:
    """All that a check says."""
    return "\n".join(
        line
        for finding in result.findings
        for line in (finding.summary, *(f"{piece.where}: {piece.shows}" for piece in finding.evidence))
    )


# CRI-O ------------------------------------------------------------------------------------------------------------


def crio(texts: Mapping[str, str], *programs: str) -> Node:
    """A node with CRI-O and these files below /etc/crio."""
    node = Node("/usr/bin/crio", "/usr/bin/crun", *(programs or (RUNTIME,))).process(1, "systemd")
    return node.files({path if path.startswith("/") else f"/etc/crio/{path}": text for path, text in texts.items()})


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"crio.conf": NVIDIA}, f"'nvidia' is {RUNTIME}, for pods of its RuntimeClass"),
        ({"crio.conf.d/99-nvidia.toml": NVIDIA, "crio.conf.d/10-crio.conf": CRUN}, "the default is 'crun'"),
        ({"crio.conf.d/99-nvidia.conf.bak": NVIDIA}, "99-nvidia.conf.bak"),
        ({"crio.conf.d/deep/er/x": NVIDIA}, "/etc/crio/crio.conf.d/deep/er/x"),
        ({"crio.conf.d/99.toml": '[crio.runtime]\ndefault_runtime="nvidia"\n' + NVIDIA}, ", the default"),
        (
            {
                "crio.conf.d/99.toml": '[crio.runtime]\ndefault_runtime="nvidia"\n' + NVIDIA,
                "crio.conf.d/99-z.toml": CRUN,
            },
            ", the default",
        ),
        (
            {"crio.conf.d/50.toml": '[crio.runtime]\ndefault_runtime="nvidia"\n' + NVIDIA, "crio.conf.d/99.toml": CRUN},
            "the default is 'crun' by /etc/crio/crio.conf.d/99.toml, over /etc/crio/crio.conf.d/50.toml",
        ),
        ({"crio.conf.d/9.toml": "[crio.runtime.runtimes.nvidia-container-runtime]\n"}, f"is {RUNTIME}"),
    ],
)
def test_a_handler_that_cri_o_reads_and_whose_program_is_there_passes(texts: dict[str, str], said: str) -> None:
    result = crio(texts).run("crio-runtime")
    assert result.status is Status.PASS, words(result)
    assert said in words(result), words(result)


@pytest.mark.parametrize(
    ("texts", "cause", "said"),
    [
        ({"crio.conf": "[crio\n"}, "syntax", "/etc/crio/crio.conf line 1 column"),
        ({"crio.conf.d/a": NVIDIA, "crio.conf.d/b~": "x = [1,\n"}, "syntax", "/etc/crio/crio.conf.d/b~ line"),
        ({"crio.conf": "[crio.runtime]\nruntimes = 5\n"}, "syntax", "runtimes is 5, not a table"),
        ({"crio.conf": "[crio.runtime.runtimes.nvidia]\nruntime_path = 5\n"}, "syntax", "runtime_path is 5"),
        ({"crio.conf": "[crio.runtime]\nhooks_dir = 'x'\n"}, "syntax", "not a list of strings"),
        ({"crio.conf": '[crio.runtime]\ndefault_runtime = "nvidia"\n'}, "default-undefined", "CRI-O does not start"),
        ({"crio.conf": NVIDIA.replace(RUNTIME, "/opt/gone")}, "program", "names /opt/gone, which is not an executable"),
        (
            {
                "crio.conf.d/10.toml": NVIDIA,
                "crio.conf.d/20.toml": "[crio.runtime.runtimes.nvidia]\nruntime_type='oci'\n",
            },
            "program",
            "the table replaces the one in /etc/crio/crio.conf.d/10.toml",
        ),
        ({"crio.conf": NVIDIA.replace('"oci"', '"io.containerd.runc.v2"')}, "type", "io.containerd.runc.v2"),
        ({"crio.conf": NVIDIA + 'monitor_path = "/opt/conmon"\n'}, "monitor", "monitor_path /opt/conmon"),
        ({"conf.d/99-nvidia.toml": NVIDIA}, "unread-drop-in", "/etc/crio/conf.d/99-nvidia.toml brings the runtime"),
        ({HOOK_FILE: hook("/opt/gone/nvidia-hook")}, "hook", "leaves the hook out"),
        ({HOOK_FILE: "{"}, "syntax", "oci-nvidia-hook.json line 1 column"),
        ({HOOK_FILE: hook(version="2")}, "syntax", "unrecognized hook version: '2'"),
    ],
)
def test_what_cri_o_refuses_leaves_out_or_does_not_read_fails(texts: dict[str, str], cause: str, said: str) -> None:
    result = crio(texts).process(700, "crio").run("crio-runtime")
    assert result.status is Status.FAIL, words(result)
    assert [(finding.cause, finding.subject.id) for finding in result.findings] == [(cause, "service:cri-o")]
    assert said in words(result), words(result)


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {"crio.conf": CRUN},
        {"conf.d/other.toml": CRUN},
        {"/usr/share/containers/oci/hooks.d/trace.json": hook("/usr/bin/crun")},
        {"/etc/containers/oci/hooks.d/oci-nvidia-hook.json": hook()},
        {"/etc/cdi/vendor.yaml": "kind: vendor.com/net\n"},
        {"/etc/cdi/management.yaml": "kind: management.nvidia.com/gpu\n"},
    ],
)
def test_a_cri_o_that_nobody_set_up_is_no_fault(texts: dict[str, str]) -> None:
    result = crio(texts).run("crio-runtime")
    assert result.status is Status.SKIP, words(result)
    assert "not set up for GPUs" in words(result)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({HOOK_FILE: hook()}, "runs /usr/bin/nvidia-container-runtime-hook"),
        ({"/srv/h/n.json": hook(), "crio.conf": "[crio.runtime]\nhooks_dir = ['/srv/h']\n"}, "/srv/h/n.json"),
        ({"/etc/cdi/nvidia.yaml": SPEC}, "nvidia.com/gpu"),
        (
            {"/var/run/cdi/p.json": '{"cdiVersion": "0.5.0", "kind": "k8s.device-plugin.nvidia.com/gpu"}'},
            "device-plugin",
        ),
        ({"/etc/cdi/nvidia.yaml": SPEC, "conf.d/99-nvidia.toml": NVIDIA}, "CDI"),
    ],
)
def test_gpus_reach_pods_without_a_handler_by_hook_or_cdi(texts: dict[str, str], said: str) -> None:
    result = crio(texts, RUNTIME, HOOK).run("crio-runtime")
    assert result.status is Status.PASS, words(result)
    assert said in words(result)


def test_options_of_the_running_cri_o_say_which_files_count() -> None:
    texts = {"/srv/crio.d/9.toml": NVIDIA, "crio.conf.d/x": "broken ["}
    node = crio(texts).process(700, "crio", "--config-dir", "/srv/crio.d")
    assert node.run("crio-runtime").status is Status.PASS
    assert crio(texts).run("crio-runtime").status is Status.FAIL
    elsewhere = crio({"crio.conf.d/99.toml": NVIDIA}).process(700, "crio", "--config-dir=/srv/none").run("crio-runtime")
    assert elsewhere.findings[0].cause == "unread-drop-in"
    flags = crio({}).process(700, "crio", "--runtimes", f"nvidia:{RUNTIME}:/run/nvidia", "--default-runtime=nvidia")
    assert ", the default" in words(flags.run("crio-runtime"))


def test_a_handler_that_inherits_has_the_program_of_the_default() -> None:
    text = CRUN + "[crio.runtime.runtimes.nvidia]\ninherit_default_runtime = true\n"
    assert crio({"crio.conf": text}).run("crio-runtime").status is Status.SKIP
    text = text.replace("/usr/bin/crun", RUNTIME)
    assert f"'nvidia' is {RUNTIME}" in words(crio({"crio.conf": text}).run("crio-runtime"))
    assert crio({"crio.conf": NVIDIA.replace(RUNTIME, "/usr/bin/crun")}).run("crio-runtime").status is Status.SKIP


def test_an_old_cri_o_takes_no_cdi_spec() -> None:
    node = crio({"/etc/cdi/nvidia.yaml": SPEC, "/var/lib/dpkg/status": ""}).recorded_command
    assert node("1.24.1-1").status is Status.PASS
    assert node("1.23.5-1").status is Status.SKIP


def test_a_cri_o_older_than_its_file_is_not_passed() -> None:
    node = crio({}).process(700, "crio")
    node.file("/etc/crio/crio.conf.d/99-nvidia.toml", NVIDIA, 0o644, mtime=BOOT + 3600)
    result = node.run("crio-runtime")
    assert result.status is Status.UNKNOWN and "runs since before" in words(result)
    node.file("/etc/crio/crio.conf.d/99-nvidia.toml", NVIDIA, 0o644, mtime=BOOT - 3600)
    assert node.run("crio-runtime").status is Status.PASS


@pytest.mark.parametrize(
    "hidden",
    ["/usr/bin/crio", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d", "/etc/crio/crio.conf.d/99-nvidia.toml", RUNTIME],
)
def test_nothing_is_said_of_a_cri_o_that_was_not_seen(hidden: str) -> None:
    node = crio({"crio.conf": CRUN, "crio.conf.d/99-nvidia.toml": NVIDIA}).error(hidden)
    result = node.run("crio-runtime")
    assert result.status is Status.UNKNOWN, words(result)


def test_an_unread_drop_in_is_no_alarm_while_the_daemon_is_not_seen() -> None:
    node = crio({"conf.d/99-nvidia.toml": NVIDIA})
    assert node.run("crio-runtime").status is Status.UNKNOWN
    node.process(700, "crio")
    assert node.run("crio-runtime").status is Status.FAIL
    node.file("/proc/700/environ", "CONTAINER_CONFIG_DIR=/etc/crio/conf.d\0HOME=/\0", 0o400)
    assert node.run("crio-runtime").status is Status.UNKNOWN
    node.error("/proc/700/environ")
    assert node.run("crio-runtime").status is Status.UNKNOWN
    node.error("/proc/700/environ", "ENOENT").error("/proc/700/cmdline")
    assert node.run("crio-runtime").status is Status.UNKNOWN


def test_without_cri_o_and_without_a_recording() -> None:
    assert Node().run("crio-runtime").status is Status.SKIP
    assert Node(complete=()).run("crio-runtime").status is Status.UNKNOWN


# Podman -----------------------------------------------------------------------------------------------------------

CONF = "/etc/containers/containers.conf"


def podman(texts: Mapping[str, str], *programs: str) -> Node:
    """A node with Podman and these files."""
    return Node("/usr/bin/podman", *programs).files(texts)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"/etc/cdi/nvidia.yaml": SPEC}, "/etc/cdi/nvidia.yaml describes nvidia.com/gpu"),
        ({"/var/run/cdi/nvidia.json": '{"kind":"nvidia.com/gpu"}'}, "/var/run/cdi/nvidia.json"),
        ({HOOK_FILE: hook()}, HOOK),
        ({HOOK_FILE: json.dumps({"hook": HOOK, "stages": ["prestart"]})}, HOOK),
        ({CONF: "[engine]\nhooks_dir=['/srv/h']\n", "/srv/h/nv.json": hook()}, "/srv/h/nv.json"),
        ({CONF: f"[engine]\nruntime='nvidia'\n[engine.runtimes]\nnvidia=['/opt/no','{RUNTIME}']\n"}, "'nvidia' is"),
        ({CONF: "[engine]\ncdi_spec_dirs=['/srv/cdi']\n", "/srv/cdi/n.yaml": SPEC}, "/srv/cdi/n.yaml"),
        ({"/etc/cdi/nvidia.yaml": SPEC, HOOK_FILE: hook("/gone/nvidia-hook")}, "describes nvidia.com/gpu"),
        (
            {
                "/usr/share/containers/containers.conf": "[engine]\nhooks_dir=['/srv/a']\n",
                f"{CONF}.d/9.conf": "[engine]\nhooks_dir=['/srv/b', {append=true}]\n",
                "/srv/a/nv.json": hook(),
            },
            "/srv/a/nv.json",
        ),
    ],
)
def test_podman_with_a_spec_or_a_hook_passes(texts: dict[str, str], said: str) -> None:
    result = podman(texts, HOOK, RUNTIME).run("podman-gpus")
    assert result.status is Status.PASS, words(result)
    assert said in words(result), words(result)


@pytest.mark.parametrize(
    ("texts", "cause", "said"),
    [
        ({CONF: "[engine\n"}, "syntax", f"{CONF} line 1 column"),
        ({f"{CONF}.d/a.conf": "a = \n"}, "syntax", f"{CONF}.d/a.conf line 1 column"),
        ({CONF: "[engine]\nhooks_dir = 5\n"}, "syntax", "not a list of strings"),
        ({CONF: "[engine.runtimes]\nnvidia = 'x'\n"}, "syntax", "not a list of paths"),
        ({CONF: "[engine]\nruntime = 'nvidia'\n"}, "program", "runtimes does not define nvidia"),
        ({CONF: "[engine]\nruntime='nvidia'\n[engine.runtimes]\nnvidia=['/no/rt']\n"}, "program", "/no/rt"),
        ({HOOK_FILE: hook("/no/nvidia-hook")}, "hook", "/no/nvidia-hook, which is gone"),
        ({HOOK_FILE: '{"version": "1.0.0",}'}, "syntax", "starts no container"),
        ({HOOK_FILE: '{"version": "1.0.0", "hook": {"path": "/bin/nvidia"}}'}, "syntax", "stages"),
        ({HOOK_FILE: hook(stages=[{}])}, "syntax", "unknown stage {}"),
    ],
)
def test_what_stops_podman_or_its_gpus_fails(texts: dict[str, str], cause: str, said: str) -> None:
    result = podman(texts).run("podman-gpus")
    assert result.status is Status.FAIL, words(result)
    assert [(finding.cause, finding.subject.id) for finding in result.findings] == [(cause, "service:podman")]
    assert said in words(result), words(result)


@pytest.mark.parametrize(
    "texts",
    [
        {},
        {f"{CONF}.d/not-a-conf.toml": "broken ["},
        {"/etc/containers/oci/hooks.d/oci-nvidia-hook.json": hook()},
        {"/etc/cdi/management.yaml": "kind: management.nvidia.com/gpu\n"},
        {"/etc/cdi/nvidia.yaml.bak": SPEC},
        {CONF: "[engine.runtimes]\nnvidia=['/no/rt']\n"},
        {"/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json.disabled": "{"},
    ],
)
def test_a_podman_that_nobody_set_up_is_no_fault(texts: dict[str, str]) -> None:
    result = podman(texts).run("podman-gpus")
    assert result.status is Status.SKIP, words(result)


@pytest.mark.parametrize("close", ["file", "folder"])
def test_a_spec_that_only_root_can_read_is_remarked(close: str) -> None:
    node = podman({}).file("/etc/cdi/nvidia.yaml", SPEC, 0o600 if close == "file" else 0o644)
    node.folder("/etc/cdi", 0o750 if close == "folder" else 0o755)
    result = node.run("podman-gpus")
    assert (result.status, result.findings[0].cause) == (Status.WARN, "unreadable-spec"), words(result)
    assert "chmod o+r /etc/cdi/nvidia.yaml" in str(result.findings[0].remedies)
    node.file("/var/run/cdi/nvidia.yaml", SPEC, 0o644)
    assert node.run("podman-gpus").status is Status.PASS


@pytest.mark.parametrize(
    "hidden", ["/usr/bin/podman", CONF, "/etc/containers/containers.conf.d", "/etc/cdi", "/etc/cdi/nvidia.yaml"]
)
def test_nothing_is_said_of_a_podman_that_was_not_seen(hidden: str) -> None:
    result = podman({"/etc/cdi/nvidia.yaml": SPEC, CONF: "[engine]\n"}).error(hidden).run("podman-gpus")
    assert result.status is Status.UNKNOWN, words(result)


def test_without_podman() -> None:
    assert Node().run("podman-gpus").status is Status.SKIP
    assert Node(complete=()).run("podman-gpus").status is Status.UNKNOWN


# The kubelet ------------------------------------------------------------------------------------------------------

CONTAINERD, K3S = "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"
WITH_NVIDIA = (
    f'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\nBinaryName = "{RUNTIME}"\n'
)
DISABLED = 'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
K3S_CONFIG = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"


def kubelet(*arguments: str) -> Node:
    """A node with containerd and a kubelet that runs with these arguments."""
    return Node(RUNTIME).socket(CONTAINERD).process(600, "containerd").process(900, "kubelet", *arguments)


def test_the_engine_of_the_kubelet_is_set_up() -> None:
    node = kubelet(f"--container-runtime-endpoint=unix:///var{CONTAINERD}").files(
        {"/etc/containerd/config.toml": WITH_NVIDIA}
    )
    result = node.run("kubelet-engine")
    assert result.status is Status.PASS, words(result)
    assert "/proc/900/cmdline" in words(result) and "containerd.runtimes.nvidia" in words(result)


@pytest.mark.parametrize(
    "files",
    [
        {
            "/var/lib/kubelet/config.yaml": f"kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix://{CONTAINERD}\n"
        },
        {"/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"},
        {"/var/lib/kubelet/config.yaml": f'{{"containerRuntimeEndpoint": "unix://{CONTAINERD}"}}'},
    ],
)
def test_the_endpoint_is_read_from_the_file_that_the_kubelet_names(files: dict[str, str]) -> None:
    node = kubelet("--config=/var/lib/kubelet/config.yaml").files({**files, "/etc/containerd/config.toml": WITH_NVIDIA})
    assert node.run("kubelet-engine").status is Status.PASS


def test_a_configuration_that_is_imported_counts() -> None:
    texts = {
        "/etc/containerd/config.toml": "version = 2\nimports = ['/etc/containerd/conf.d/*.toml']\n",
        "/etc/containerd/conf.d/99-nvidia.toml": WITH_NVIDIA,
    }
    assert kubelet().files(texts).run("kubelet-engine").status is Status.PASS
    texts["/etc/containerd/config.toml"] = "version = 2\n"
    assert kubelet().files(texts).run("kubelet-engine").status is Status.SKIP


def test_k3s_talks_to_its_own_containerd_whatever_is_configured_for_the_other() -> None:
    texts = {"/etc/containerd/config.toml": WITH_NVIDIA, K3S_CONFIG: "version = 2\n"}
    node = Node(RUNTIME).socket(CONTAINERD).socket(K3S).files(texts).process(600, "containerd")
    node.process(800, "containerd", "-c", K3S_CONFIG, "-a", K3S).process(700, "k3s-server", "server")
    result = node.run("kubelet-engine")
    assert result.status is Status.FAIL, words(result)
    assert "talks to containerd (/var/lib/rancher/k3s" in words(result)
    assert "it is containerd (/etc/containerd/config.toml) that is set up" in words(result)
    assert node.files({K3S_CONFIG: WITH_NVIDIA}).run("kubelet-engine").status is Status.PASS


def test_cri_o_is_set_up_and_the_kubelet_talks_to_containerd() -> None:
    node = kubelet().files({"/etc/containerd/config.toml": "version = 2\n", "/etc/crio/crio.conf": NVIDIA})
    node.file("/usr/bin/crio").socket("/run/crio/crio.sock").process(650, "crio")
    result = node.run("kubelet-engine")
    assert (result.status, result.findings[0].cause) == (Status.FAIL, "other-engine"), words(result)
    assert "it is cri-o that is set up" in words(result)
    node.process(900, "kubelet", "--container-runtime-endpoint", "unix:///var/run/crio/crio.sock")
    assert node.run("kubelet-engine").status is Status.PASS


def test_docker_for_people_beside_a_kubelet_without_gpus_is_no_fault() -> None:
    texts = {
        "/etc/containerd/config.toml": "version = 2\n",
        "/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "x"}}}',
    }
    assert kubelet().files(texts).process(650, "dockerd").run("kubelet-engine").status is Status.UNKNOWN
    node = kubelet(f"--container-runtime-endpoint=unix://{CONTAINERD}").files(texts).process(650, "dockerd")
    result = node.run("kubelet-engine")
    assert result.status is Status.SKIP and "docker is, for others than pods" in words(result), words(result)
    checkpoint = '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-1"]}}}'
    node.files({"/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": checkpoint})
    assert node.run("kubelet-engine").status is Status.FAIL


def test_a_socket_that_is_not_there_fails_where_it_was_named_and_only_there() -> None:
    named = (
        Node().process(900, "kubelet", "--container-runtime-endpoint=unix:///run/crio/crio.sock").run("kubelet-engine")
    )
    assert (named.status, named.findings[0].cause) == (Status.FAIL, "no-socket")
    assert Node().process(900, "kubelet").run("kubelet-engine").status is Status.UNKNOWN


def test_cdi_specs_beside_a_containerd_that_may_have_cdi_on_are_not_judged() -> None:
    """1.7 takes a file of version 2 with CDI off, 2.x with CDI on; one of version 3 is read by 2.x alone."""
    texts = {"/etc/cdi/nvidia.yaml": SPEC, "/etc/crio/crio.conf": NVIDIA}
    either = {**texts, "/etc/containerd/config.toml": "version = 2\n"}
    assert kubelet().files(either).file("/usr/bin/crio").run("kubelet-engine").status is Status.UNKNOWN
    newer = {**texts, "/etc/containerd/config.toml": "version = 3\n"}
    result = kubelet().files(newer).file("/usr/bin/crio").run("kubelet-engine")
    assert (result.status, "/etc/cdi/nvidia.yaml: is a CDI spec" in words(result)) == (Status.PASS, True), words(result)


def test_cdi_in_containerd_counts_where_it_is_on_and_a_spec_is_there() -> None:
    table = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = '
    on, off = ({"/etc/containerd/config.toml": f"{table}{value}\n"} for value in ("true", "false"))
    spec = {"/var/run/cdi/p.json": '{"cdiVersion": "0.5.0", "kind": "k8s.device-plugin.nvidia.com/gpu"}'}
    assert kubelet().files({**on, **spec}).run("kubelet-engine").status is Status.PASS
    assert kubelet().files(on).run("kubelet-engine").status is Status.SKIP
    assert kubelet().files({**off, **spec}).run("kubelet-engine").status is Status.SKIP
    assert kubelet().files(on).error("/etc/cdi").run("kubelet-engine").status is Status.UNKNOWN
    nowhere = {"/etc/containerd/config.toml": "version = 2\nenable_cdi = true\n"}
    assert kubelet().files({**nowhere, **spec}).run("kubelet-engine").status is Status.UNKNOWN


def test_nothing_is_said_of_a_kubelet_that_was_not_seen() -> None:
    texts = {"/etc/containerd/config.toml": WITH_NVIDIA}
    assert Node().process(1, "systemd").run("kubelet-engine").status is Status.SKIP
    assert Node(complete=()).run("kubelet-engine").status is Status.UNKNOWN
    for hidden in ("/proc/900/cmdline", CONTAINERD, "/etc/containerd/config.toml"):
        result = kubelet().files(texts).error(hidden).run("kubelet-engine")
        assert result.status is Status.UNKNOWN, (hidden, words(result))
    env = {
        "/var/lib/kubelet/kubeadm-flags.env": f'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix://{CONTAINERD}"\n'
    }
    assert kubelet().files({**texts, **env}).error("/proc/900/cmdline").run("kubelet-engine").status is Status.PASS


@pytest.mark.parametrize(
    ("config", "at"),
    [
        (K3S_CONFIG, K3S),
        (K3S_CONFIG.replace("k3s", "rke2"), K3S),
        ("/var/snap/microk8s/current/args/containerd.toml", "/var/snap/microk8s/common/run/containerd.sock"),
        ("/etc/k0s/containerd.toml", "/run/k0s/containerd.sock"),
    ],
)
def test_a_file_at_a_known_place_stands_for_a_containerd_that_is_not_seen(config: str, at: str) -> None:
    node = Node(RUNTIME).socket(at).process(900, "kubelet", f"--container-runtime-endpoint=unix://{at}")
    node.process(600, "containerd").files({"/etc/containerd/config.toml": WITH_NVIDIA, config: "version = 2\n"})
    result = node.run("kubelet-engine")
    assert (result.status, f"talks to containerd ({config})" in words(result)) == (Status.FAIL, True), words(result)
    assert node.files({config: WITH_NVIDIA}).run("kubelet-engine").status is Status.PASS
    assert node.error(config).run("kubelet-engine").status is Status.UNKNOWN


@pytest.mark.parametrize("hidden", [(), ("",) * 7])
def test_the_containerd_of_k3s_is_known_by_its_program_where_its_arguments_are_hidden(hidden: tuple[str, ...]) -> None:
    node = Node(RUNTIME).socket(K3S).process(600, "containerd").process(700, "k3s-agent", *hidden)
    node.process(800, "containerd", *hidden).files(
        {"/etc/containerd/config.toml": WITH_NVIDIA, K3S_CONFIG: "version = 3\n"}
    )
    program = Entry("/proc/800/exe", EntryType.LINK, to="/var/lib/rancher/k3s/data/9bd8f8f4/bin/k3s")
    node.tree.put(program.path, Record(entry=program))
    report = node.report()
    result = report.result("toolkit.kubelet-engine")
    assert (result.status, "/proc/800/cmdline" in words(result)) == (Status.FAIL, True), words(result)
    subjects = {finding.subject.key for finding in report.result("toolkit.containerd-config").findings}
    assert subjects == {"containerd", f"containerd@{K3S}"}
    assert "systemctl restart k3s" in result.findings[0].remedies[0].run[1]


def test_an_engine_that_was_set_up_in_vain_is_not_told_as_the_wrong_engine() -> None:
    """The kubelet's containerd has a runtime under a name that its release ignores: that is the fault, whatever else is set up."""
    in_vain = (
        'version = 3\n[plugins.cri.containerd.runtimes.nvidia.options]\nBinaryName = "/opt/nvidia-container-runtime"\n'
    )
    node = kubelet().files({"/etc/containerd/config.toml": in_vain, "/etc/crio/crio.conf": NVIDIA})
    report = node.file("/usr/bin/crio").report()
    result = report.result("toolkit.kubelet-engine")
    assert (result.status, "in vain" in words(result)) == (Status.SKIP, True), words(result)
    assert [cause.check for cause in report.root_causes if "containerd" in cause.check] == ["toolkit.containerd-config"]


def test_what_was_written_for_a_containerd_without_cri_was_meant_for_pods() -> None:
    """Docker's package switches CRI off in the file that nvidia-ctk writes to; the kubelet talks to another."""
    path, socket = "/etc/vendor/containerd.toml", "/run/vendor/containerd.sock"
    node = Node(RUNTIME).socket(socket).process(600, "containerd")
    node.process(610, "containerd", "--config", path, "--address", socket)
    node.process(900, "kubelet", f"--container-runtime-endpoint=unix://{socket}")
    off = f"{DISABLED}{WITH_NVIDIA}"
    report = node.files({"/etc/containerd/config.toml": off, path: "version = 2\n"}).report()
    result = report.result("toolkit.kubelet-engine")
    assert (result.status, result.findings[0].cause) == (Status.FAIL, "other-engine"), words(result)
    assert [f"--config={path}" in line for line in result.findings[0].remedies[0].run] == [True]
    node.files({"/etc/containerd/config.toml": f"{DISABLED}version = 2\n"})
    assert node.run("kubelet-engine").status is Status.SKIP


def test_a_socket_that_is_missing_because_the_engine_does_not_start_is_no_second_cause() -> None:
    named = f"--container-runtime-endpoint=unix://{CONTAINERD}"
    node = Node(RUNTIME, "/usr/bin/containerd").process(900, "kubelet", named)
    node.files({"/etc/containerd/config.toml": "version = 2\n[plugins\n"})
    report = node.report()
    assert [cause.check for cause in report.root_causes] == ["toolkit.containerd-config"]
    finding = report.result("toolkit.kubelet-engine").findings[0]
    assert (finding.cause, finding.caused_by) == ("no-socket", ("toolkit.containerd-config@service:containerd",))
    stopped = node.files({"/etc/containerd/config.toml": WITH_NVIDIA}).report()
    assert [cause.check for cause in stopped.root_causes] == ["toolkit.kubelet-engine"]


def test_a_dockerd_of_a_user_is_not_the_engine_of_pods() -> None:
    checkpoint = '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-1"]}}}'
    node = kubelet(f"--container-runtime-endpoint=unix://{CONTAINERD}").files(
        {
            "/etc/containerd/config.toml": "version = 2\n",
            "/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "x"}}}',
            "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": checkpoint,
        }
    )
    node.process(650, "dockerd")
    assert node.run("kubelet-engine").status is Status.FAIL
    node.tree.put("/proc/650", Record(entry=Entry("/proc/650", EntryType.DIR, uid=1000)))
    assert node.run("kubelet-engine").status is Status.SKIP


@pytest.mark.parametrize(
    ("arguments", "texts", "talks"),
    [
        (("--config=/k.yaml", "--config-dir=/k.d"), {"/k.d/10.conf": "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n"}, False),
        (("--config=/k.yaml", "--config-dir=/k.d"), {"/k.d/10.txt": "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n"}, True),
        (("--config=/k.yaml",), {"/k.yaml": "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n"}, False),
    ],
)  # fmt: skip
def test_the_containerd_that_the_kubelet_talks_to_is_the_same_for_all_checks(
    arguments: tuple[str, ...], texts: dict[str, str], talks: bool
) -> None:
    node = kubelet(*arguments).files({"/k.yaml": "kind: KubeletConfiguration\n", **texts})
    node.files({"/etc/containerd/config.toml": f"version = 3\n{DISABLED}"}).socket("/run/crio/crio.sock")
    config = node.run("containerd-config")
    assert (config.status is Status.FAIL) is talks, words(config)
    assert (CONTAINERD in words(node.run("kubelet-engine"))) is talks


# Apptainer and enroot ---------------------------------------------------------------------------------------------

APPTAINER, LIST = "/etc/apptainer/apptainer.conf", "/etc/apptainer/nvliblist.conf"
LISTED = "# libraries\nnvidia-smi\nlibcuda.so\nlibnvidia-ml.so\n"


@pytest.mark.parametrize(
    ("config", "listed", "programs", "status", "said"),
    [
        ("allow setuid = yes\n", LISTED, (), Status.PASS, "libcuda.so and 2 others"),
        ("always use nv = yes\n", LISTED, (), Status.PASS, "always"),
        ("#use nvidia-container-cli = yes\n", LISTED, (), Status.PASS, "does not set"),
        ("use nvidia-container-cli = yes\n", LISTED, ("/usr/bin/nvidia-container-cli",), Status.PASS, "calls /usr/bin"),
        ("use nvidia-container-cli = yes\n", LISTED, (), Status.FAIL, "is not there"),
        (
            "use nvidia-container-cli = yes\nnvidia-container-cli path = /opt/cli\n",
            LISTED,
            ("/usr/bin/nvidia-container-cli",),
            Status.FAIL,
            "is to call /opt/cli",
        ),
        ("\nuse nvidia-container-cli = maybe\n", LISTED, (), Status.FAIL, f"{APPTAINER} line 2 column 28"),
        ("allow setuid = yes\n", None, (), Status.FAIL, "nvliblist.conf is gone"),
        ("allow setuid = yes\n", "#libcuda.so\nlibnvidia-ml.so\n", (), Status.WARN, "does not list libcuda.so"),
    ],
)
def test_what_nv_takes_from_the_host(
    config: str, listed: str | None, programs: tuple[str, ...], status: Status, said: str
) -> None:
    texts = {APPTAINER: config, **({} if listed is None else {LIST: listed})}
    result = Node("/usr/bin/apptainer", *programs).files(texts).run("apptainer-libraries")
    assert result.status is status, words(result)
    assert said in words(result), words(result)


def test_apptainer_not_installed_or_not_seen() -> None:
    assert Node().run("apptainer-libraries").status is Status.SKIP
    assert Node("/usr/bin/apptainer").run("apptainer-libraries").status is Status.UNKNOWN
    for hidden in ("/usr/bin/apptainer", APPTAINER, LIST):
        node = Node("/usr/bin/apptainer").files({APPTAINER: "", LIST: LISTED}).error(hidden)
        assert node.run("apptainer-libraries").status is Status.UNKNOWN, hidden
    singularity = Node("/usr/local/bin/singularity").files({"/usr/local/etc/singularity/singularity.conf": ""})
    result = singularity.run("apptainer-libraries")
    assert [finding.subject.id for finding in result.findings] == ["service:singularity"]


ENROOT = "/etc/enroot/hooks.d/98-nvidia.sh"
SCRIPT = "#! /usr/bin/env bash\nexec nvidia-container-cli --user configure\n"


def enroot(*programs: str, mode: int = 0o755, gpu: bool = True) -> Node:
    """A node with enroot, its hook, and a GPU on the bus."""
    node = Node("/usr/bin/enroot", *programs).file(ENROOT, SCRIPT, mode)
    if gpu:
        place = "/sys/devices/pci0000:00/0000:01:00.0"
        link = Entry("/sys/bus/pci/devices/0000:01:00.0", EntryType.LINK, to="../../../devices/pci0000:00/0000:01:00.0")
        node.tree.put(link.path, Record(entry=link))
        node.files({f"{place}/vendor": "0x10de\n", f"{place}/device": "0x2330\n", f"{place}/class": "0x030200\n"})
    return node


def test_the_hook_of_enroot() -> None:
    cli = "/usr/bin/nvidia-container-cli"
    assert enroot(cli).run("enroot-hook").status is Status.PASS
    silent = enroot(cli, mode=0o644).run("enroot-hook")
    assert (silent.status, silent.findings[0].cause) == (Status.FAIL, "not-executable")
    assert enroot(cli, mode=0o750).run("enroot-hook").status is Status.WARN
    without = enroot().run("enroot-hook")
    assert (without.status, without.findings[0].cause) == (Status.FAIL, "program")
    assert enroot(gpu=False).folder("/sys/bus/pci/devices", 0o755).run("enroot-hook").status is Status.SKIP
    assert Node("/usr/bin/enroot").run("enroot-hook").status is Status.SKIP
    assert Node().run("enroot-hook").status is Status.SKIP
    for hidden in ("/usr/bin/enroot", ENROOT, cli, "/etc/enroot/enroot.conf", "/sys/bus/pci/devices"):
        assert enroot(cli).error(hidden).run("enroot-hook").status is Status.UNKNOWN, hidden


# Together ---------------------------------------------------------------------------------------------------------


def test_two_engines_with_a_fault_each_are_two_root_causes() -> None:
    node = Node("/usr/bin/crio", "/usr/bin/podman").files({"/etc/crio/crio.conf": "[", CONF: "["})
    causes = {cause.check for cause in node.report().root_causes}
    assert causes >= {"toolkit.crio-runtime", "toolkit.podman-gpus"}


def test_a_hook_that_does_not_parse_is_told_of_both_engines_that_read_it() -> None:
    report = Node("/usr/bin/crio", "/usr/bin/podman").files({HOOK_FILE: "{"}).report()
    failed = [report.result(f"toolkit.{check}").status for check in ("crio-runtime", "podman-gpus")]
    assert failed == [Status.FAIL, Status.FAIL]


def test_an_empty_node_passes_nothing() -> None:
    report = Node(complete=()).report()
    for check in ("crio-runtime", "podman-gpus", "kubelet-engine", "apptainer-libraries", "enroot-hook"):
        assert report.result(f"toolkit.{check}").status is Status.UNKNOWN


def healthy() -> dict[str, tuple[str, Node]]:
    """Nodes on which one check passes."""
    drop_in = {"crio.conf": CRUN, "crio.conf.d/99-nvidia.toml": NVIDIA}
    other = {"conf.d/99-nvidia.toml": NVIDIA, "crio.conf": "", HOOK_FILE: hook()}
    imported = {
        "/etc/containerd/config.toml": f"imports = ['/etc/containerd/conf.d/*']\n[grpc]\naddress = '{CONTAINERD}'\n",
        "/etc/containerd/conf.d/99-nvidia.toml": WITH_NVIDIA,
        "/etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
        "/var/lib/kubelet/config.yaml": f"containerRuntimeEndpoint: unix://{CONTAINERD}\n",
        "/etc/crio/crio.conf": NVIDIA,
    }
    cli = "/usr/bin/nvidia-container-cli"
    runtime = {CONF: f"[engine]\nruntime = 'nvidia'\n[engine.runtimes]\nnvidia = ['{RUNTIME}']\n"}
    return {
        "handler": ("crio-runtime", crio(drop_in).process(700, "crio")),
        "own folder": (
            "crio-runtime",
            crio({"/etc/crio/conf.d/9.toml": NVIDIA}).process(700, "crio", "--config-dir=/etc/crio/conf.d"),
        ),
        "hook": ("crio-runtime", crio(other, RUNTIME, HOOK).process(700, "crio")),
        "cdi": ("crio-runtime", crio({"/etc/cdi/nvidia.yaml": SPEC, "conf.d/99.toml": NVIDIA})),
        "spec": ("podman-gpus", podman({"/etc/cdi/nvidia.yaml": SPEC, HOOK_FILE: hook()}, HOOK)),
        "podman hook": ("podman-gpus", podman({HOOK_FILE: hook(), CONF: "[engine]\n"}, HOOK)),
        "podman runtime": ("podman-gpus", podman(runtime, RUNTIME)),
        "kubelet": (
            "kubelet-engine",
            kubelet("--config=/var/lib/kubelet/config.yaml")
            .files(imported)
            .process(650, "dockerd")
            .file("/usr/bin/crio"),
        ),
        "k3s": (
            "kubelet-engine",
            Node(RUNTIME)
            .socket(K3S)
            .files({K3S_CONFIG: WITH_NVIDIA, "/etc/containerd/config.toml": WITH_NVIDIA})
            .process(800, "containerd", "-c", K3S_CONFIG, "-a", K3S)
            .process(700, "k3s-agent", "agent"),
        ),
        "apptainer": ("apptainer-libraries", Node("/usr/bin/apptainer").files({APPTAINER: "", LIST: LISTED})),
        "by cli": (
            "apptainer-libraries",
            Node("/usr/bin/apptainer", cli).files({APPTAINER: "use nvidia-container-cli = yes\n"}),
        ),
        "enroot": ("enroot-hook", enroot(cli)),
    }


@pytest.mark.parametrize("name", healthy())
def test_whatever_cannot_be_seen_is_no_alarm_and_no_pass_cites_what_is_not_there(name: str) -> None:
    check, node = healthy()[name]
    assert node.run(check).status is Status.PASS, words(node.run(check))
    paths = [path for path, record in node.tree.records.items() if record.error is None]
    parents = {f"/{'/'.join(path.strip('/').split('/')[:depth])}" for path in paths for depth in range(1, 5)}
    for hidden in sorted({*paths, *parents}):
        blinded = healthy()[name][1]
        _hide(blinded, hidden, "EACCES")
        result = blinded.run(check)
        assert result.status not in (Status.FAIL, Status.WARN), (hidden, words(result))
        gone = healthy()[name][1]
        _hide(gone, hidden, "ENOENT")
        for finding in gone.run(check).findings:
            cited = {piece.where for piece in finding.evidence} if finding.status is Status.PASS else set()
            assert not any(f"{where}/".startswith(f"{hidden}/") for where in cited), (hidden, cited)


def _hide(node: Node, path: str, error: str) -> None:
    """A path and all below it."""
    for below in [each for each in node.tree.records if each == path or each.startswith(f"{path}/")]:
        del node.tree.records[below]
        node.error(below, error)
    node.error(path, error)
