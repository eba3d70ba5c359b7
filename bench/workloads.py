"""What a run over the workloads of a full node costs, as multiples of A, and whether twice as many cost about twice as much.

Makes a recorded node of so many containers in a temporary folder, in the two forms there are: as gpudoctor records one, and as files of
/proc alone, the way a node is written by hand. A whole run, every check and the report as JSON, in the same plain environment as
`make bench`; that each container with a GPU was judged by its eBPF program is checked.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from counting import CommandFailed, Cost, Counter
from judging import judged
from plain_venv import ROOT

YARDSTICK = Path(__file__).with_name("yardstick.py")
SIZES = (500, 1000)
PROCESSES_EACH = 6
WITH_GPU = 8
"""One in so many containers has a GPU."""
MOST_TIMES_A = 30.0
MOST_GROWTH = 2.2
PEAK_LIMIT_KIBIBYTES = 80 * 1024
FORMS = ("answer", "files")

PROGRAM = """
import datetime, sys, time
from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.workloads import Workloads
from gpudoctor.registry import built_in
from gpudoctor.reports.json import render
from gpudoctor.run import Selection, run
from gpudoctor.sources.opening import open_source
started = time.perf_counter()
desk = Desk(open_source(sys.argv[1]), Config())
found = desk.get(Workloads)
now = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.timezone.utc)
report = run(desk.raw, desk.config, built_in(), Selection(), now, desk=desk)
whole = len(render(report))
judged = [finding for finding in report.result("cgroup.device-rules").findings if finding.status.value == "pass"]
print(len(found.containers), sum(len(one.pids) for one in found), len(judged), time.perf_counter() - started)
"""

NODE_WITH_RULES = ROOT / "fixtures" / "nodes" / "kubernetes-pod-gpu-healthy"
HOST, SPACES = (4026531841, 4026531836, 4026531837), 4026532000
DEFAULTS = ("null", "zero", "full", "random", "urandom", "tty")
LIBRARIES = (
    "libcuda",
    "libnvidia-ml",
    "libnvidia-ptxjitcompiler",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-cfg",
)
DRIVER = "550.163.01"


def _measure(counter: Counter, folder: Path) -> list[str]:
    yardstick = counter.cost(YARDSTICK)
    program = folder / "workloads.py"
    program.write_text(PROGRAM, "utf-8")
    print(f"A is {YARDSTICK.relative_to(ROOT)} in the same plain environment; work in {counter.unit}\n")
    print(f"{'':24}{'work':>9}{'times A':>10}{'VmHWM MiB':>12}{'seconds':>10}")
    problems = []
    for form in FORMS:
        costs = [_cost(counter, program, folder, form, size, yardstick) for size in SIZES]
        growth = costs[1].work / costs[0].work
        print(f"{'':24}{growth:9.2f} times the work for twice as many")
        if costs[0].work > MOST_TIMES_A * yardstick.work:
            problems.append(
                f"{SIZES[0]} containers cost {costs[0].work / yardstick.work:.1f} times A, over {MOST_TIMES_A}"
            )
        if growth > MOST_GROWTH:
            problems.append(f"twice as many containers cost {growth:.2f} times as much, over {MOST_GROWTH}")
        if costs[0].peak_kibibytes > PEAK_LIMIT_KIBIBYTES:
            problems.append(f"{SIZES[0]} containers take {costs[0].peak_kibibytes} KiB, over {PEAK_LIMIT_KIBIBYTES}")
    return problems


def _cost(counter: Counter, program: Path, folder: Path, form: str, size: int, yardstick: Cost) -> Cost:
    node = folder / f"{form}-{size}"
    make_node(node, size, form)
    said = counter.output(program, str(node)).split()
    if said[:2] != [str(size), str(size * (PROCESSES_EACH + 1) + 1)] or int(said[2]) < size // WITH_GPU:
        raise CommandFailed(f"of {size} containers it found {said}")
    cost = counter.cost(program, str(node))
    name, memory = f"{size} containers, {form}", f"{cost.peak_kibibytes / 1024:.1f}"
    print(f"{name:24}{cost.work:9.1f}{cost.work / yardstick.work:10.2f}{memory:>12}{float(said[3]):10.2f}", flush=True)
    return cost


# The node -----------------------------------------------------------------------------------------------------------


def make_node(node: Path, size: int, form: str) -> None:
    """Pods of one container and its sandbox each, some with a GPU, on a node with the usual processes around them."""
    entries: list[dict[str, object]] = [{"path": "/dev/nvidiactl", "type": "char", "major": 195, "minor": 255}]
    rows: list[list[object]] = [[1, 0, 1, "systemd", "S", 0, 0]]
    cgroups, spaces = ["0::/init.scope\n"], [list(HOST)]
    for number in range(size):
        pid = 1000 + number * (PROCESSES_EACH + 1)
        for sandbox in (True, False):
            own = pid if sandbox else pid + 1
            cgroups.append(f"0::{_cgroup(number, sandbox=sandbox)}\n")
            spaces.append([SPACES + own, SPACES + pid, HOST[2]])
            count = 1 if sandbox else PROCESSES_EACH
            comm = "pause" if sandbox else "python3"
            rows += ([own + at, 1, own + at, comm, "S", len(cgroups) - 1, len(spaces) - 1] for at in range(count))
            _write(node, _bundle(number, sandbox=sandbox), json.dumps(_config(number, sandbox=sandbox)))
        _write(node, f"/proc/{pid + 1}/environ", _environ(number))
        _write(node, f"/proc/{pid + 1}/mountinfo", _mountinfo(number))
        entries += _dev(pid + 1, number)
    if form == "answer":
        data = {"processes": rows, "cgroups": cgroups, "namespaces": spaces, "whole": True, "hidden": 0}
        place = node / "answers" / "processes.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps({"schema": 1, "via": "/proc", "data": data}), "utf-8")
    else:
        entries += _as_files(node, rows, cgroups, spaces)
    _write_rules(node, [_cgroup(number, sandbox=False) for number in range(size) if _has_gpu(number)])
    manifest = {
        "format": 1,
        "recorded_at": "2026-11-29T12:00:00Z",
        "uid": 0,
        "complete": ["/proc"] if form == "files" else [],
    }
    (node / "snapshot.json").write_text(json.dumps(manifest), "utf-8")
    (node / "entries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in entries), "utf-8")


def _write_rules(node: Path, groups: list[str]) -> None:
    """One program of systemd's for all: 500 containers of one runtime differ in nothing that it tests."""
    program = json.loads((NODE_WITH_RULES / "answers" / "cgroup_devices.json").read_text("utf-8"))["data"]["programs"]
    # The one that names devices of a GPU has more to test than those of containers without.
    name = max(program, key=lambda number: len(program[number]["insns"]))
    cgroups: dict[str, dict[str, object]] = {
        group: {"effective": [], "attached": [], "error": None} for group in ("/sys/fs/cgroup", *_above(groups))
    }
    cgroups |= {
        f"/sys/fs/cgroup{group}": {"effective": [int(name)], "attached": [int(name)], "error": None} for group in groups
    }
    answer = {"schema": 1, "via": "bpf(2)", "data": {"programs": {name: program[name]}, "cgroups": cgroups}}
    place = node / "answers" / "cgroup_devices.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(answer), "utf-8")
    _write(
        node,
        "/proc/1/mountinfo",
        "25 23 0:22 / /sys rw - sysfs sysfs rw\n30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    )


def _above(groups: list[str]) -> list[str]:
    parents = {parent for group in groups for parent in (group.rpartition("/")[0], "/kubepods.slice")}
    return [f"/sys/fs/cgroup{parent}" for parent in sorted({*parents, "/kubepods.slice/kubepods-burstable.slice"})]


def _as_files(
    node: Path, rows: list[list[object]], cgroups: list[str], spaces: list[list[int]]
) -> Iterator[dict[str, object]]:
    """The same processes as /proc shows them."""
    for pid, parent, started, comm, state, cgroup, space in rows:
        assert isinstance(cgroup, int) and isinstance(space, int)
        _write(node, f"/proc/{pid}/cgroup", cgroups[cgroup])
        _write(node, f"/proc/{pid}/stat", f"{pid} ({comm}) {state} {parent} " + "0 " * 17 + f"{started} 0 0\n")
        for name, number in zip(("mnt", "pid", "user"), spaces[space], strict=True):
            yield {"path": f"/proc/{pid}/ns/{name}", "type": "link", "to": f"{name}:[{number}]"}


def _write(node: Path, path: str, text: str) -> None:
    place = node / "root" / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, "utf-8")


def _uid(number: int) -> str:
    return f"2c48913c-b29f-11e7-9350-{number:012x}"


def _id(number: int, *, sandbox: bool) -> str:
    return hashlib.sha256(f"{number} {sandbox}".encode()).hexdigest()


def _cgroup(number: int, *, sandbox: bool) -> str:
    slice_ = f"kubepods-burstable-pod{_uid(number).replace('-', '_')}.slice"
    scope = f"cri-containerd-{_id(number, sandbox=sandbox)}.scope"
    return f"/kubepods.slice/kubepods-burstable.slice/{slice_}/{scope}"


def _bundle(number: int, *, sandbox: bool) -> str:
    return f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{_id(number, sandbox=sandbox)}/config.json"


def _has_gpu(number: int) -> bool:
    return number % WITH_GPU == 0


def _config(number: int, *, sandbox: bool) -> dict[str, object]:
    """As large as a real one: some 12 kB."""
    given = _has_gpu(number) and not sandbox
    capabilities = [f"CAP_{name}" for name in ("CHOWN", "KILL", "SETGID", "SETUID", "NET_RAW", "MKNOD", "SYS_CHROOT")]
    mounts = [{"destination": f"/etc/some/file{at}", "type": "bind", "source": f"/var/lib/kubelet/pods/{_uid(number)}/v{at}"}
              for at in range(20)]  # fmt: skip
    nodes = [("nvidia1", 195, 1), ("nvidiactl", 195, 255), ("nvidia-uvm", 506, 0)] if given else []
    return {
        "ociVersion": "1.2.1",
        "process": {
            "args": ["python3", "serve.py"],
            "env": [f"SOME_VARIABLE_{at}=some value of it" for at in range(40)] + _variables(number),
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        },
        "mounts": mounts,
        "annotations": {
            "io.kubernetes.cri.container-type": "sandbox" if sandbox else "container",
            "io.kubernetes.cri.sandbox-name": f"pod-{number}",
            "io.kubernetes.cri.sandbox-namespace": "default",
            **({} if sandbox else {"io.kubernetes.cri.container-name": "main"}),
        },
        "linux": {
            "devices": [
                {"path": f"/dev/{name}", "type": "c", "major": major, "minor": minor} for name, major, minor in nodes
            ],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "seccomp": {"syscalls": [{"names": [f"syscall_{at}" for at in range(300)], "action": "SCMP_ACT_ALLOW"}]},
        },
    }


def _variables(number: int) -> list[str]:
    return [f"NVIDIA_VISIBLE_DEVICES=GPU-01000100-0000-0000-0000-{number % 8:012x}"] if _has_gpu(number) else []


def _environ(number: int) -> str:
    return "".join(f"{line}\0" for line in _variables(number))


def _mountinfo(number: int) -> str:
    lines = [f"{100 + number} 90 0:53 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/containerd/snapshots/1/fs"]
    lines += [
        f"101 100 0:{at} / /proc/some/path{at} ro,nosuid,nodev,noexec,relatime - proc proc rw" for at in range(25)
    ]
    lines += ["102 100 0:70 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755"]
    folder = "/usr/lib/x86_64-linux-gnu"
    for name in LIBRARIES if _has_gpu(number) else ():
        path = f"{folder}/{name}.so.{DRIVER}"
        lines.append(f"103 100 254:0 {path} {path} ro,nosuid,nodev,relatime - ext4 /dev/vda rw")
    return "".join(f"{line}\n" for line in lines)


def _dev(pid: int, number: int) -> Iterator[dict[str, object]]:
    folder = f"/proc/{pid}/root/dev"
    yield {"path": folder, "type": "dir"}
    if not _has_gpu(number):
        yield {"path": f"{folder}/nvidiactl", "error": "ENOENT"}
        return
    for name, major, minor in (("nvidia1", 195, 1), ("nvidiactl", 195, 255), ("nvidia-uvm", 506, 0)):
        yield {
            "path": f"{folder}/{name}",
            "type": "char",
            "major": major,
            "minor": minor,
            "mode": "0666",
            "uid": 0,
            "gid": 0,
        }


if __name__ == "__main__":
    sys.exit(judged(__doc__, _measure))
