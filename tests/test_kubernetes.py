"""The manifests: what docs/kubernetes.md says of them, and what the doctor does when their containers run over a made host."""

import fcntl
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import __version__
from gpudoctor.cli_parser import parse
from tests.live_root import healthy_nvml, make_root
from tests.pods import Runtime, pod_config, runtime
from tests.standin.build import NoCompiler, build_nvml, write_node
from tests.test_packaging import ROOT

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

MANIFESTS = ROOT / "packaging" / "kubernetes"
DOCUMENT = ROOT / "docs" / "kubernetes.md"
PRIVILEGED_NAMESPACE = {"pod-security.kubernetes.io/enforce": "privileged"}


def manifest(name: str) -> dict[str, Any]:
    """The only document of a file."""
    loaded: dict[str, Any] = yaml.safe_load((MANIFESTS / f"{name}.yaml").read_text("utf-8"))
    return loaded


def pod(name: str) -> dict[str, Any]:
    """The pod that a manifest makes."""
    spec: dict[str, Any] = manifest(name)["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    """Its only container."""
    (only,) = pod(name)["containers"]
    found: dict[str, Any] = only
    return found


def doctors_words(name: str) -> list[str]:
    """The arguments with which the doctor is called."""
    if "args" in container(name):
        words: list[str] = container(name)["args"]
        return words
    script = container(name)["command"][2]
    (line,) = (line for line in script.splitlines() if line.strip().startswith("gpudoctor "))
    return shlex.split(line)[1:]


PODS = ("job", "daemonset")


@pytest.mark.parametrize("name", PODS)
def test_the_host_is_mounted_read_only_below_the_root_that_the_doctor_is_told(name: str) -> None:
    mounts = {mount["name"]: mount for mount in container(name)["volumeMounts"]}
    volumes = {volume["name"]: volume["hostPath"] for volume in pod(name)["volumes"]}
    assert mounts["host"] == {
        "name": "host",
        "mountPath": "/host",
        "readOnly": True,
        "mountPropagation": "HostToContainer",
    }
    assert volumes["host"] == {"path": "/", "type": "Directory"}
    assert parse(doctors_words(name)).root == "/host"
    assert {volume for volume, mount in mounts.items() if not mount.get("readOnly")} <= {"textfile", "dev"}


@pytest.mark.parametrize("name", PODS)
def test_it_goes_to_sick_nodes_and_asks_for_no_gpu(name: str) -> None:
    assert pod(name)["tolerations"] == [{"operator": "Exists"}]
    assert "nvidia.com/gpu" not in json.dumps(manifest(name))
    assert pod(name)["hostPID"] is True
    assert pod(name)["automountServiceAccountToken"] is False
    assert container(name)["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert container(name)["image"].rpartition(":")[2] == __version__


def test_the_job_ends_in_time_and_is_not_repeated() -> None:
    spec, options = manifest("job")["spec"], parse(doctors_words("job"))
    assert spec["backoffLimit"] == 0 and pod("job")["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] >= 2 * options.deadline
    assert (options.format, options.output) == ("json", ["line=/dev/termination-log"])


def test_the_daemonset_writes_for_prometheus_and_nowhere_else() -> None:
    """The API server refuses activeDeadlineSeconds here."""
    spec = manifest("daemonset")["spec"]
    assert "activeDeadlineSeconds" not in pod("daemonset")
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert parse(doctors_words("daemonset")).output == ["node-exporter=/textfile/gpudoctor.prom"]
    writable = [mount["mountPath"] for mount in container("daemonset")["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["/textfile"]


def test_both_live_where_such_pods_are_admitted() -> None:
    namespace = manifest("namespace")["metadata"]
    assert namespace["labels"] == PRIVILEGED_NAMESPACE
    assert {manifest(name)["metadata"]["namespace"] for name in PODS} == {namespace["name"]}


def test_the_document_speaks_of_what_is_there() -> None:
    text = DOCUMENT.read_text("utf-8")
    for path in MANIFESTS.iterdir():
        assert path.name in text, path.name
    snippets = [yaml.safe_load(snippet) for snippet in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    assert snippets and all(isinstance(snippet, dict) for snippet in snippets)
    for line in re.findall(r"^gpudoctor .*", text, re.MULTILINE):
        parse(shlex.split(line, comments=True)[1:])


# In containers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def alone_with_its_workers() -> Iterator[None]:
    """With the host's PIDs, a run waits for the workers of others: one such test at a time on a machine, as in test_live.py."""
    with open(Path(tempfile.gettempdir()) / "gpudoctor-live-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """A runtime, where there is one."""
    return runtime(tmp_path_factory.mktemp("runc"))


@pytest.fixture
def log(tmp_path: Path, alone_with_its_workers: None) -> Path:
    """The file that the kubelet mounts for the termination message."""
    place = tmp_path / "termination-log"
    place.touch()
    return place


def _host(name: str, place: Path) -> Path:
    """A made host whose NVML answers as the recorded node's did."""
    host = make_root(name, place)
    library = host / "usr/lib/x86_64-linux-gnu"
    try:
        build_nvml(library)
    except NoCompiler as error:
        pytest.skip(str(error))
    write_node(healthy_nvml("h100x8"), host / "nvml.json")
    (host / "dev/shm").mkdir(exist_ok=True)
    return host


VARIABLES = {"GPUDOCTOR_STANDIN_NVML": "/nvml.json"}


def _inventory(folder: Path) -> dict[str, tuple[int, int, float]]:
    """Everything below a folder, with what a change would change."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {str(path): (status.st_mode, status.st_size, status.st_mtime) for path, status in found.items()}


@pytest.mark.parametrize(
    ("name", "code", "causes"),
    [
        ("h100x8", 0, set()),
        ("nouveau-and-broken-daemon-json", 2, {"kernel-module.gpu-bound", "toolkit.docker-runtime"}),
    ],
)
def test_the_job_tells_of_its_host_and_changes_nothing_on_it(
    name: str, code: int, causes: set[str], pods: Runtime, log: Path, tmp_path: Path
) -> None:
    """The verdict in the termination message, the report on stdout, the exit code as the command's."""
    host = _host(name, tmp_path / "host")
    before = _inventory(host)
    ended = pods.run(f"job-{name}", pod_config(pod("job"), host, VARIABLES, log))
    pods.remove(f"job-{name}")
    assert ended.returncode == code, ended.stderr
    report = json.loads(ended.stdout)
    assert report["node"]["source"] == "root" and len(report["node"]["gpus"]) == 8
    assert {cause["check"] for cause in report["root_causes"]} == causes
    (line,) = log.read_text().splitlines()
    assert line.startswith(f"{report['verdict'].upper()} ")
    assert _inventory(host) == before


def test_what_the_document_proposes_without_privileges_does_what_it_says(
    pods: Runtime, log: Path, tmp_path: Path
) -> None:
    """The kernel's log is not seen, nor NVML, and both are said not to be; the rest passes."""
    host, unprivileged = _host("h100x8", tmp_path / "host"), pod("job")
    (snippet,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    unprivileged["containers"][0].update(yaml.safe_load(snippet))
    ended = pods.run("unprivileged", pod_config(unprivileged, host, VARIABLES, log))
    pods.remove("unprivileged")
    report = json.loads(ended.stdout)
    assert (ended.returncode, report["verdict"]) == (3, "unknown"), ended.stderr
    unseen = {(entry["what"].partition(":")[0], entry["why"]) for entry in report["not_seen"]}
    assert ("kernel log", "no-permission") in unseen
    statuses = {result["check"]: result["status"] for result in report["results"]}
    answers = next(result for result in report["results"] if result["check"] == "driver-cuda.nvml-answers")
    assert (answers["status"], answers["why"]) == ("unknown", "no-permission") and "/dev/nvidiactl" in answers["detail"]
    assert statuses["kernel-module.gpu-bound"] == "pass"


def test_the_daemonset_writes_metrics_again_and_again_and_ends_when_told(
    pods: Runtime, log: Path, tmp_path: Path
) -> None:
    host, watch = _host("h100x8", tmp_path / "host"), pod("daemonset")
    metrics = host / "var/lib/node_exporter/textfile/gpudoctor.prom"
    script = watch["containers"][0]["command"][2]
    assert "sleep 300 &" in script
    watch["containers"][0]["command"][2] = script.replace("sleep 300", "sleep 0.2")
    running = pods.start("watch", pod_config(watch, host, VARIABLES, log))
    try:
        first = _appeared(metrics, running)
        metrics.unlink()
        second = _appeared(metrics, running)
        pods.signal("watch", "TERM")
        assert running.wait(10) == 0
    finally:
        pods.remove("watch")
        running.kill()
        running.wait()
    assert "gpudoctor_verdict 0\n" in first and "gpudoctor_gpus 8\n" in second
    assert metrics.stat().st_mode & 0o777 == 0o644


def _appeared(place: Path, running: "subprocess.Popen[str]") -> str:
    deadline = time.monotonic() + 30
    while not place.exists():
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    return place.read_text()


def test_a_report_is_written_into_a_file_that_is_a_mount_point(log: Path, tmp_path: Path) -> None:
    """Nothing can be renamed over one: such is the /dev/termination-log of a pod."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare (Debian: util-linux)")
    source = tmp_path / "kubelets-file"
    source.touch()
    node = ROOT / "fixtures" / "nodes" / "nouveau-and-broken-daemon-json"
    mount = 'mount --bind "$1" "$2" || exit 77; shift 2; exec "$@"'
    doctor = [sys.executable, "-m", "gpudoctor", "run", "--node", str(node), "--format", "json", "-o", f"line={log}"]
    argv = ["unshare", "--mount", "sh", "-c", mount, "sh", str(source), str(log), *doctor]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    if ended.returncode == 77 or "unshare" in ended.stderr:
        pytest.skip(f"nothing can be mounted here: {ended.stderr.strip()[-200:]}")
    assert ended.returncode == 2, ended.stderr
    assert json.loads(ended.stdout)["verdict"] == "fail"
    assert source.read_text().startswith("FAIL ") and log.read_text() == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kubelets-file", "termination-log"]
