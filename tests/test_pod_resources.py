"""PodResources over gRPC: a real server by grpcio in a process of its own, and everything that can listen on the socket instead."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.kubelet import ROOT
from gpudoctor.facts.pod_resources import (
    SOCKET,
    Claim,
    ClaimedDevice,
    DeviceSet,
    Pod,
    PodContainer,
    PodResources,
)
from gpudoctor.facts.raw import Answer, Gate, Question
from gpudoctor.probes import pod_resources, pod_resources_worker
from gpudoctor.probes.deadline import Deadline
from gpudoctor.sources.live import Live
from gpudoctor.sources.recorded import RecordedNode
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.redaction import redact
from gpudoctor.sources.snapshot import open_snapshot
from gpudoctor.verdicts import Unread, Why
from tests.captures import Builder
from tests.conftest import REPOSITORY, SHARED

needs_grpc = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("grpc", "google")),
    reason="grpcio and protobuf are not installed (pip install -e '.[dev]')",
)

SERVER = REPOSITORY / "tests" / "kubelet_server.py"
LIST, GET, ALLOCATABLE = (f"/v1.PodResourcesLister/{name}" for name in ("List", "Get", "GetAllocatableResources"))
VIA = f"PodResources ({ROOT}/{SOCKET})"
GPU = "nvidia.com/gpu"
FIRST, SECOND = (f"GPU-0100010{place}-0000-0000-0000-00000000000{place}" for place in (0, 1))


# messages, encoded by hand (protobuf.dev/programming-guides/encoding) ---------------------------------------------------


def varint(number: int) -> bytes:
    """A number in groups of seven bits."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def field(number: int, value: str | bytes | int) -> bytes:
    """A field: a text or message with its length, or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def devices(number: int, resource: str, *ids: str, numa: int | None = None) -> bytes:
    """ContainerDevices; node 0 is an empty message, as Go's encoder leaves zeros out."""
    node = b"" if numa is None else field(3, field(1, field(1, numa) if numa else b""))
    return field(number, field(1, resource) + b"".join(field(2, one) for one in ids) + node)


def pod(namespace: str, name: str, *containers: bytes) -> bytes:
    """PodResources as an element of a list."""
    return field(1, field(1, name) + field(2, namespace) + b"".join(field(3, one) for one in containers))


CLAIMED = field(1, field(1, "k8s.gpu.nvidia.com/device=gpu-1"))
CLAIMED += field(2, "gpu.nvidia.com") + field(3, "n1") + field(4, "gpu-1")
CLAIM = field(2, "two-gpus") + field(3, "team-a") + field(4, CLAIMED)
PODS = (
    pod("team-a", "train-0", field(1, "trainer") + devices(2, GPU, FIRST, numa=0) + field(3, bytes((2, 3)))),
    pod("team-a", "shared-1", field(1, "web"), field(1, "inference") + devices(2, GPU, f"{SECOND}::4", numa=1)),
    pod("team-b", "claims-0", field(1, "main") + field(5, CLAIM)),
    pod("default", "plain", field(1, "main")),
)
HELD = b"".join(PODS)
THERE = devices(1, GPU, FIRST, numa=0) + devices(1, GPU, SECOND, numa=1) + field(2, bytes(range(4)))
HEALTHY: Mapping[str, Any] = {LIST: HELD.hex(), ALLOCATABLE: THERE.hex()}


# a kubelet and a root ---------------------------------------------------------------------------------------------------


@contextmanager
def serving(plan: Mapping[str, Any], place: Path) -> Iterator[None]:
    """The server with its plan by socket, until the block ends."""
    file = place / "plan.json"
    file.write_text(json.dumps(plan), "utf-8")
    with subprocess.Popen(
        [sys.executable, str(SERVER), str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            assert server.stdout.readline() == "ready\n"
            yield
        finally:
            server.kill()


@pytest.fixture
def root() -> Iterator[Path]:
    """A host's root with the kubelet's directory in it, at a path that a socket's address has room for, open to all."""
    with tempfile.TemporaryDirectory(prefix="node-") as folder:
        Path(folder).chmod(0o755)
        yield made_root(Path(folder))


def made_root(place: Path) -> Path:
    """What a live look needs of a root, and the kubelet's directory."""
    for folder in ("proc", "sys", "dev", f"{ROOT}/pod-resources".lstrip("/")):
        (place / folder).mkdir(parents=True)
    return place


def socket_of(root: Path) -> str:
    """Where the kubelet's socket lies below a root."""
    return f"{root}{ROOT}/{SOCKET}"


def gathered(root: Path) -> tuple[PodResources | Unread, Recorder]:
    """The fact as a live run has it, and what was recorded."""
    recorder = Recorder(Live(Deadline(20.0), str(root)))
    return Desk(recorder, Config()).get(PodResources), recorder


def told(root: Path) -> PodResources | Unread:
    """The fact alone."""
    return gathered(root)[0]


def known(found: PodResources | Unread) -> PodResources:
    """The fact, which must be there."""
    assert isinstance(found, PodResources), found
    return found


def unknown(found: PodResources | Unread) -> tuple[Why, str]:
    """Why it is not."""
    assert isinstance(found, Unread), found
    assert found.where == VIA
    return found.why, found.detail


class Asked(RecordedNode):
    """A recording that remembers for which socket it was asked."""

    socket = ""

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """As a recording answers."""
        if name == "pod_resources":
            question = gate()
            assert isinstance(question, Question)
            self.socket = question.arguments["socket"]
        return super().answer(name, gate)


# what a kubelet answers -------------------------------------------------------------------------------------------------


@needs_grpc
def test_a_healthy_kubelet_tells_everything(root: Path, tmp_path: Path) -> None:
    with serving({socket_of(root): {"calls": HEALTHY}}, tmp_path):
        found = known(told(root))
    claimed = ClaimedDevice("gpu.nvidia.com", "n1", "gpu-1", ("k8s.gpu.nvidia.com/device=gpu-1",))
    claim = Claim("team-a", "two-gpus", (claimed,))
    assert (found.version, found.via) == ("v1", VIA)
    assert found.pods == (
        Pod("team-a", "train-0", (PodContainer("trainer", (DeviceSet(GPU, (FIRST,), (0,)),), (2, 3)),)),
        Pod(
            "team-a",
            "shared-1",
            (PodContainer("web"), PodContainer("inference", (DeviceSet(GPU, (f"{SECOND}::4",), (1,)),))),
        ),
        Pod("team-b", "claims-0", (PodContainer("main", claims=(claim,)),)),
        Pod("default", "plain", (PodContainer("main"),)),
    )
    assert found.allocatable == (DeviceSet(GPU, (FIRST,), (0,)), DeviceSet(GPU, (SECOND,), (1,)))
    assert (found.cpus, found.resources) == ((0, 1, 2, 3), (GPU,))
    (holder,) = found.pod_of(SECOND)
    assert (holder.pod.words, holder.container.name) == ("team-a/shared-1", "inference")
    assert found.pod_of(f"{SECOND}::4") == (holder,)
    assert found.pod_of(f"{SECOND}::0") == ()
    assert found.allocatable_ids(GPU) == (FIRST, SECOND)
    assert found.holding(holder).shows == f"team-a/shared-1, container inference: {GPU} {SECOND}::4"
    assert [evidence.shows for evidence in found.cite("pods", "allocatable")] == [
        "List: 4 pods, 3 with devices",
        f"GetAllocatableResources: 2 {GPU}",
    ]


@needs_grpc
def test_ten_thousand_devices(root: Path, tmp_path: Path) -> None:
    """More than grpc takes by default: 4 MiB."""
    ids = [f"{FIRST}-{'x' * 400}::{replica}" for replica in range(10_000)]
    held = pod("team-a", "many", field(1, "main") + devices(2, GPU, *ids))
    there = b"".join(devices(1, GPU, one, numa=0) for one in ids)
    assert min(len(held), len(there)) > 4 * 1024 * 1024
    with serving({socket_of(root): {"calls": {LIST: held.hex(), ALLOCATABLE: there.hex()}}}, tmp_path):
        found = known(told(root))
    assert found.allocatable == (DeviceSet(GPU, tuple(ids), (0,)),)
    assert found.pods[0].containers[0].ids(GPU) == tuple(ids)


@needs_grpc
def test_an_answer_beyond_all_bounds(root: Path, tmp_path: Path) -> None:
    ids = ["x" * 1024 for _ in range(17 * 1024)]
    there = b"".join(devices(1, GPU, one) for one in ids)
    with serving({socket_of(root): {"calls": {LIST: HELD.hex(), ALLOCATABLE: there.hex()}}}, tmp_path):
        found = known(told(root))
    assert isinstance(found.allocatable, Unread)
    assert found.allocatable.why is Why.UNREADABLE and "larger than max" in found.allocatable.detail
    assert len(found.pods) == 4


@needs_grpc
def test_an_old_kubelet_serves_v1alpha1(root: Path, tmp_path: Path) -> None:
    calls = {LIST.replace("v1.", "v1alpha1."): pod("team-a", "old", field(1, "main") + devices(2, GPU, FIRST)).hex()}
    with serving({socket_of(root): {"calls": calls}}, tmp_path):
        found = known(told(root))
    assert found.version == "v1alpha1"
    assert found.pods == (Pod("team-a", "old", (PodContainer("main", (DeviceSet(GPU, (FIRST,)),)),)),)
    assert isinstance(found.allocatable, Unread) and found.allocatable.why is Why.NOT_ANSWERED


@needs_grpc
@pytest.mark.parametrize(
    ("answer", "why", "words"),
    [
        (None, Why.NOT_ANSWERED, "UNIMPLEMENTED"),
        ({"status": "UNKNOWN", "detail": "GetAllocatableResources disabled"}, Why.NOT_ANSWERED, "disabled"),
        ({"after": 30.0}, Why.TIMED_OUT, "not answered in time"),
    ],
)
def test_what_is_held_is_known_where_what_there_is_is_not(
    root: Path, tmp_path: Path, answer: Any, why: Why, words: str
) -> None:
    """Kubelets before 1.23 have that call behind a feature gate."""
    calls = {LIST: HELD.hex()} | ({ALLOCATABLE: answer} if answer is not None else {})
    with serving({socket_of(root): {"calls": calls}}, tmp_path):
        found = known(told(root))
    assert len(found.pods) == 4
    assert isinstance(found.allocatable, Unread)
    assert found.allocatable.why is why and words in found.allocatable.detail
    assert words in found.cite("allocatable")[0].shows


@needs_grpc
def test_get_is_asked_of_pods_that_list_does_not_tell(root: Path, tmp_path: Path) -> None:
    asked = (field(1, "hidden") + field(2, "team-a")).hex()
    hidden = field(1, pod("team-a", "hidden", field(1, "main") + devices(2, GPU, SECOND))[2:])
    calls = dict(HEALTHY) | {GET: {"by_request": {asked: hidden.hex()}}}
    pods = [["team-a", "hidden"], ["team-a", "train-0"]]
    question = Question("pod_resources", {"socket": f"{ROOT}/{SOCKET}", "pods": pods})
    with serving({socket_of(root): {"calls": calls}}, tmp_path):
        answer = pod_resources.ask_pod_resources(question, Deadline(20.0), str(root))
    assert answer.error is None and "notes" not in answer.data
    assert [one["name"] for one in answer.data["pods"]] == ["train-0", "shared-1", "claims-0", "plain", "hidden"]


# what listens there instead ---------------------------------------------------------------------------------------------

FRAME = "000000040000000000"
"""An empty SETTINGS frame of HTTP/2 (RFC 9113, 6.5)."""
STRANGERS: dict[str, tuple[Any, Why, str]] = {
    "silent": ({"raw": {}}, Why.TIMED_OUT, "nothing is said on it, at List"),
    "hanging": ({"calls": {LIST: {"after": 30.0}}}, Why.TIMED_OUT, "the call was not answered in time, at List"),
    "says-only-hello": ({"raw": {"say": FRAME}}, Why.TIMED_OUT, "at List"),
    "closes-at-once": ({"raw": {"close": True}}, Why.NOT_ANSWERED, "UNAVAILABLE"),
    "hello-and-gone": ({"raw": {"say": FRAME, "close": True}}, Why.NOT_ANSWERED, "UNAVAILABLE"),
    "http1": ({"raw": {"say": b"HTTP/1.1 400 Bad Request\r\n\r\n".hex()}}, Why.UNREADABLE, "no connection of gRPC"),
    "garbage": ({"raw": {"say": "deadbeef" * 64}}, Why.UNREADABLE, "no connection of gRPC"),
    "another-version": (
        {"calls": {"/v2.PodResourcesLister/List": HELD.hex()}},
        Why.NOT_ANSWERED,
        "serves neither v1 nor v1alpha1",
    ),
    "another-service": ({"calls": {"/v1beta1.Registration/Register": ""}}, Why.NOT_ANSWERED, "serves neither"),
    "another-message": ({"calls": {LIST: "0a05ffffffffff"}}, Why.UNREADABLE, "deserializing"),
    "busy": (
        {"calls": {LIST: {"status": "RESOURCE_EXHAUSTED", "detail": "rejected by rate limit"}}},
        Why.NOT_ANSWERED,
        "rejected by rate limit",
    ),
    "refuses": ({"calls": {LIST: {"status": "PERMISSION_DENIED", "detail": "no"}}}, Why.NOT_ANSWERED, "PERMISSION"),
}


@needs_grpc
@pytest.mark.parametrize("name", STRANGERS)
def test_whoever_listens_there_is_never_waited_for(name: str, root: Path, tmp_path: Path) -> None:
    plan, why, words = STRANGERS[name]
    with serving({socket_of(root): plan}, tmp_path):
        started = time.monotonic()
        found, recorder = gathered(root)
        took = time.monotonic() - started
    assert unknown(found)[0] is why, found
    assert words in unknown(found)[1]
    assert took < pod_resources.SECONDS + 1.0
    assert replayed(recorder, tmp_path) == found


@pytest.mark.parametrize(
    "detail",
    ["failed to connect to all addresses; last error: UNAVAILABLE: unix:kubelet.sock: {0}", "Stream removed ({0})"],
)
@pytest.mark.parametrize(
    "said",
    [
        "recvmsg:Connection reset by peer (104)",
        "Delayed close due to in-progress write (sendmsg: Broken pipe (32))",
        "Delayed close due to in-progress write (Socket closed) (sendmsg: Broken pipe (32))",
        "Socket closed",
    ],
)
def test_who_ends_the_connection_has_not_answered_whenever_grpc_notices(detail: str, said: str) -> None:
    """What grpc says of it depends on whether it was writing or reading."""
    kubelet = object.__new__(pod_resources_worker.Kubelet)
    failed = kubelet._failure("UNAVAILABLE", detail.format(said))
    assert failed.why == "failed" and said in str(failed)


def test_a_queue_that_nobody_empties(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextmanager(_filled)(root, listener):
        assert unknown(told(root)) == (Why.TIMED_OUT, "whoever listens there accepts no connections, at connect")


def _filled(root: Path, listener: socket.socket) -> Iterator[None]:
    listener.bind(socket_of(root))
    listener.listen(0)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex(socket_of(root))
    yield
    for one in waiting:
        one.close()


def test_a_socket_on_which_nobody_listens(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(socket_of(root))
    assert unknown(told(root)) == (Why.NOT_ANSWERED, "nobody listens there: the kubelet that made it is gone")


def test_a_file_in_the_sockets_place(root: Path) -> None:
    Path(socket_of(root)).write_text("", "utf-8")
    assert unknown(told(root)) == (Why.UNREADABLE, "is a regular file, no socket")


ASK = """
import json, sys
from gpudoctor.facts.kubelet import ROOT
from gpudoctor.facts.pod_resources import SOCKET
from gpudoctor.facts.raw import Question
from gpudoctor.probes.deadline import Deadline
from gpudoctor.probes.pod_resources import ask_pod_resources
answer = ask_pod_resources(Question("pod_resources", {"socket": f"{ROOT}/{SOCKET}"}), Deadline(10), sys.argv[1])
print(json.dumps(answer.error))
"""
OBEY_MODES = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""
"""What it starts is bound by owners and modes, root or not (capabilities(7))."""


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files to somebody else needs root")
@pytest.mark.parametrize("shut", ["pod-resources", SOCKET])
def test_who_is_not_let_in_is_told_so(root: Path, shut: str) -> None:
    """The kubelet makes the folder for root alone."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(socket_of(root))
        listener.listen()
        place = root / ROOT.lstrip("/") / shut
        place.chmod(0o700)
        os.chown(place, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", OBEY_MODES, ASK, str(root)],
            capture_output=True,
            text=True,
            check=True,
            cwd=REPOSITORY,
        )
    assert json.loads(done.stdout)["why"] == "no-permission"


def test_permission_needs_root() -> None:
    found = replay({"why": "no-permission", "detail": "permission denied"})
    assert isinstance(found, Unread)
    assert (found.why, found.would_need) == (Why.NO_PERMISSION, "root")


def test_without_grpc_it_says_what_to_install(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_resources, "_import_paths", list)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(socket_of(root))
        listener.listen()
        found = told(root)
    assert isinstance(found, Unread)
    assert (found.why, found.would_need) == (Why.NOT_ANSWERED, "pip install 'gpudoctor-node[kubernetes]'")
    assert "No module named 'grpc'" in found.detail


def test_no_socket_no_question(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_resources, "run_child", lambda *_: pytest.fail("nobody is to be asked"))
    found = told(root)
    assert isinstance(found, Unread)
    assert found.detail == f"no kubelet is seen, and {ROOT}/{SOCKET} does not exist"
    answer = pod_resources.ask_pod_resources(
        Question("pod_resources", {"socket": f"{ROOT}/{SOCKET}"}), Deadline(9.0), str(root)
    )
    assert answer.error == {"why": "absent", "detail": "does not exist"}


# where the socket is ----------------------------------------------------------------------------------------------------


@needs_grpc
def test_a_path_longer_than_a_sockets_address(tmp_path: Path) -> None:
    """sun_path has 108 bytes (unix(7)); a root can lie anywhere."""
    root = made_root(tmp_path / ("d" * 120))
    with serving({socket_of(root): {"calls": HEALTHY}}, tmp_path):
        found = known(told(root))
    assert len(socket_of(root)) > 107 and len(found.pods) == 4


@needs_grpc
def test_a_link_in_the_root_leads_into_the_root(root: Path, tmp_path: Path) -> None:
    """/var/lib/kubelet is often a link to a bigger disk."""
    kubelet = root / ROOT.lstrip("/")
    (root / "data").mkdir()
    kubelet.rename(root / "data" / "kubelet")
    kubelet.symlink_to("/data/kubelet")
    with serving({f"{root}/data/kubelet/{SOCKET}": {"calls": HEALTHY}}, tmp_path):
        assert len(known(told(root)).pods) == 4


@pytest.mark.parametrize(
    ("comm", "arguments", "place"),
    [
        ("kubelet", ["/usr/bin/kubelet", "--root-dir=/data/kubelet"], "/data/kubelet"),
        ("kubelet", ["/usr/bin/kubelet"], ROOT),
        ("k3s-server", ["/usr/local/bin/k3s server", "--kubelet-arg", "root-dir=/data/kubelet/"], "/data/kubelet"),
        ("k3s-agent", ["/usr/local/bin/k3s agent"], ROOT),
        ("kubelite", ["/snap/microk8s/8000/kubelite"], "/var/snap/microk8s/common/var/lib/kubelet"),
    ],
)
def test_the_socket_is_below_the_kubelets_root(comm: str, arguments: list[str], place: str) -> None:
    builder = Builder()
    builder.text("/proc/1/cgroup", "0::/init.scope\n")
    builder.text("/proc/1/stat", "1 (systemd) S 0 1 1 0 -1 0" + " 0" * 12 + " 1 0\n")
    builder.text("/proc/900/cgroup", "0::/system.slice/k.service\n")
    builder.text("/proc/900/stat", f"900 ({comm}) S 1 900 900 0 -1 0" + " 0" * 12 + " 900 0\n")
    builder.text("/proc/900/cmdline", "\0".join(arguments) + "\0")
    builder.absent("/etc/rancher/k3s/config.yaml")
    node = Asked(builder.tree)
    Desk(node, Config()).get(PodResources)
    assert node.socket == f"{place}/{SOCKET}"


# recordings -------------------------------------------------------------------------------------------------------------


def replayed(recorder: Recorder, place: Path) -> PodResources | Unread:
    """The fact from a recording of the same look."""
    recorder.write(place / "snapshot", Config())
    return Desk(open_snapshot(place / "snapshot"), Config()).get(PodResources)


def replay(error: dict[str, Any] | None, **data: Any) -> PodResources | Unread:
    """The fact from an answer written by hand."""
    node = Asked(Builder().tree)
    node.answers["pod_resources"] = Answer(data=data, via=VIA, error=error)
    return Desk(node, Config()).get(PodResources)


@needs_grpc
def test_replay_equals_the_live_look(root: Path, tmp_path: Path) -> None:
    with serving({socket_of(root): {"calls": HEALTHY}}, tmp_path):
        found, recorder = gathered(root)
    assert replayed(recorder, tmp_path) == known(found)


def test_a_recording_without_the_answer() -> None:
    found = Desk(Asked(Builder().tree), Config()).get(PodResources)
    assert isinstance(found, Unread) and found.why is Why.NOT_RECORDED


@pytest.mark.parametrize(
    "answer",
    [
        Answer(data={}, via=VIA, error={"why": "on-strike"}),
        Answer(data={"pods": 7}, via=VIA),
        Answer(data={"pods": []}, via=VIA, schema=2),
    ],
)
def test_an_answer_of_another_form(answer: Answer) -> None:
    node = Asked(Builder().tree)
    node.answers["pod_resources"] = answer
    found = Desk(node, Config()).get(PodResources)
    assert isinstance(found, Unread) and found.why is Why.UNREADABLE


def test_an_answer_without_lists() -> None:
    """Whoever writes one by hand may leave out what is empty."""
    found = replay(None, pods=[{"namespace": "a", "name": "b"}])
    assert known(found).pods == (Pod("a", "b"),)


@needs_grpc
def test_a_redacted_recording_names_nobody_and_tells_the_same(root: Path, tmp_path: Path) -> None:
    with serving({socket_of(root): {"calls": HEALTHY}}, tmp_path):
        found, recorder = gathered(root)
    members = dict(recorder.members(Config()))
    members["kernel.log"] = b"[ 1.0] oom-kill: train-0 of claims-0\n"
    redacted = redact(members, b"salt").members
    text = b"".join(redacted.values()).decode()
    for name in ("train-0", "shared-1", "team-a", "team-b", "claims-0", "two-gpus", "trainer", "inference", '"n1"'):
        assert name not in text
    node = Asked(Builder().tree)
    node.answers["pod_resources"] = msgspec.json.decode(redacted["answers/pod_resources.json"], type=Answer)
    again = known(Desk(node, Config()).get(PodResources))
    assert [shape(one) for one in again.pods] == [shape(one) for one in known(found).pods]
    assert again.allocatable == known(found).allocatable
    assert again.pods[0].namespace == again.pods[1].namespace != again.pods[2].namespace
    assert again.pods[3].namespace == "default"


def shape(one: Pod) -> Any:
    """What of a pod is nobody's name."""
    return [
        (each.devices, each.cpus, [(device.driver, device.cdi) for claim in each.claims for device in claim.devices])
        for each in one.containers
    ]


# what is imported -------------------------------------------------------------------------------------------------------

MODULES = """
import json, sys
from gpudoctor.config import Config
from gpudoctor.cli import main
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.pod_resources import PodResources
from gpudoctor.probes.deadline import Deadline
from gpudoctor.sources.live import Live
main(["run", "--root", sys.argv[1], "--format", "json"])
found = Desk(Live(Deadline(9.0), sys.argv[1]), Config()).get(PodResources)
sys.stdout.flush()
print()
print(json.dumps([type(found).__name__, sorted(sys.modules)]))
"""


def modules(root: Path) -> tuple[str, set[str]]:
    """The kind of fact that a run's process gets, and all that it has imported."""
    command = [sys.executable, "-c", MODULES, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    kind, names = json.loads(done.stdout.splitlines()[-1])
    return kind, set(names)


def test_without_a_socket_nothing_of_grpc_is_imported(root: Path) -> None:
    kind, names = modules(root)
    assert kind == "Unread" and "gpudoctor.facts.pod_resources" in names
    assert names.isdisjoint({"grpc", "google.protobuf", "gpudoctor.probes.pod_resources"})


@needs_grpc
def test_with_a_socket_the_doctor_itself_imports_none_either(root: Path, tmp_path: Path) -> None:
    with serving({socket_of(root): {"calls": HEALTHY}}, tmp_path):
        kind, names = modules(root)
    assert kind == "PodResources"
    assert names.isdisjoint({"grpc", "google.protobuf"})


# the messages -----------------------------------------------------------------------------------------------------------


@needs_grpc
def test_the_messages_are_those_of_the_proto(tmp_path: Path) -> None:
    """Whichever compiler is installed makes the same of it."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed (pip install -e '.[dev]')")
    folder = REPOSITORY / "gpudoctor" / "probes" / "podresources_v1"
    out = tmp_path / "set"
    arguments = [f"--proto_path={folder}", f"--descriptor_set_out={out}", "podresources.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
    script = (
        "import sys; sys.path.append(sys.argv[1]); import podresources_pb2; from google.protobuf import descriptor_pb2\n"
        "made = descriptor_pb2.FileDescriptorSet.FromString(open(sys.argv[2], 'rb').read()).file[0]\n"
        "[one.ClearField('json_name') for message in made.message_type for one in message.field]\n"
        "ours = descriptor_pb2.FileDescriptorProto(); podresources_pb2.DESCRIPTOR.CopyToProto(ours)\n"
        "[one.ClearField('json_name') for message in ours.message_type for one in message.field]\n"
        "sys.exit(made != ours)"
    )
    assert (
        subprocess.run([sys.executable, "-W", "error", "-c", script, str(folder), str(out)], check=False).returncode
        == 0
    )


# the rig's kubelet ------------------------------------------------------------------------------------------------------


def rig() -> dict[str, dict[str, Any]]:
    """What a real kubelet 1.36 answered, by situation: in JSON, and the bytes as they came."""
    return {
        file.parent.name: json.loads(file.read_text("utf-8")) for file in SHARED.glob("rig/k8s/*/podresources.json")
    }


def expected_devices(listed: list[dict[str, Any]]) -> dict[tuple[str, str], set[str]]:
    """The ids by resource and NUMA nodes."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in listed:
        numa = ",".join(node.get("ID", "0") for node in one.get("topology", {}).get("nodes", []))
        found.setdefault((one["resource_name"], numa), set()).update(one["device_ids"])
    return found


def grouped(sets: tuple[DeviceSet, ...]) -> dict[tuple[str, str], set[str]]:
    """The same of a fact."""
    return {(one.resource, ",".join(map(str, one.numa))): set(one.ids) for one in sets}


@needs_grpc
@pytest.mark.skipif(not rig(), reason="the rig's captures are not here")
def test_the_rigs_kubelet_is_understood_in_every_situation(tmp_path: Path) -> None:
    roots: dict[str, tuple[Path, dict[str, Any]]] = {}
    for number, said in enumerate(rig().values()):
        key = json.dumps(said["wire_hex"])
        if key in roots:
            continue
        roots[key] = (made_root(tmp_path / str(number)), said)
    plan = {
        socket_of(place): {"calls": {f"/v1.PodResourcesLister/{name}": wire for name, wire in said["wire_hex"].items()}}
        for place, said in roots.values()
    }
    with serving(plan, tmp_path):
        for place, said in roots.values():
            _compare(known(told(place)), said["json"])
    assert len(roots) > 5


def _compare(found: PodResources, said: Mapping[str, Any]) -> None:
    pods = said["List"].get("pod_resources", [])
    assert [(one.namespace, one.name) for one in found.pods] == [(one["namespace"], one["name"]) for one in pods]
    for one, want in zip(found.pods, pods, strict=True):
        assert [each.name for each in one.containers] == [each["name"] for each in want["containers"]]
        for each, its in zip(one.containers, want["containers"], strict=True):
            assert grouped(each.devices) == expected_devices(its.get("devices", []))
            for held in each.ids():
                assert any(holder.pod == one for holder in found.pod_of(held))
    assert not isinstance(found.allocatable, Unread)
    assert grouped(found.allocatable) == expected_devices(said["GetAllocatableResources"].get("devices", []))
