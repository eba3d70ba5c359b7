"""Runs in the guest: starts the containers, tries their nodes and asks the doctor, before and after a daemon-reload.

All that is seen goes to RESULTS and, packed, over the second serial port: `trial.json`, and of each moment a report and a snapshot.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TRIAL = Path("/opt/trial")
RESULTS = Path("/run/results")
ROOTS = Path("/var/lib/trial")
GPU, CONTROL = (195, 0, "/dev/nvidia0"), (195, 255, "/dev/nvidiactl")
NODES = (GPU, CONTROL)
"""What each container is given."""
SECOND_GPU = (195, 1, "/dev/nvidia1")
LISTED = [f"DeviceAllow={path} rw" for *_, path in NODES]
"""What an administrator can tell systemd."""
QUESTIONS = [f"open {how} {path}" for *_, path in NODES for how in ("r", "w", "rw")]
DOCTOR = (sys.executable, "-m", "gpudoctor")
SHOWN = "Id,DevicePolicy,DeviceAllow,NeedDaemonReload,ControlGroup,Transient"
CONFIG: dict[str, Any] = {
    "ociVersion": "1.0.2",
    "process": {
        "user": {"uid": 0, "gid": 0},
        "args": ["/bin/sh", "-c", "exec /bin/probe 0<>/ask >>/answers"],
        "env": ["PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
        "cwd": "/",
    },
    "root": {"path": "rootfs"},
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    ],
    "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]},
}
HOOK = {"path": "/usr/bin/nvidia-container-runtime-hook", "args": ["nvidia-container-runtime-hook", "prestart"]}

timings: dict[str, float] = {}


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    """Writes down how long something took."""
    started = time.monotonic()
    yield
    timings[name] = round(time.monotonic() - started, 2)
    print(f"trial: {name} took {timings[name]} s", flush=True)


def called(*argv: str, log: str = "") -> str:
    """What a program printed. Raises RuntimeError with what it complained of; with `log`, both its outputs stay in that file."""
    if not log:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        said = done.stdout + done.stderr
    else:
        # A container keeps what it was started with open, and a pipe would not end before it.
        with Path(log).open("w", encoding="utf-8") as output:
            done = subprocess.run(argv, stdout=output, stderr=output, check=False, text=True, stdin=subprocess.DEVNULL)
        said = Path(log).read_text("utf-8")
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {said}")
    return said


def prepare_node() -> None:
    """The stand-ins for GPUs and driver, their nodes, a CDI specification that names them, and a place for podman's overlays."""
    Path("/var/lib/containers").mkdir(exist_ok=True)
    called("mount", "-t", "tmpfs", "containers", "/var/lib/containers")
    called("busybox", "insmod", "/opt/trial/modules/standin_pci.ko", "gpus=2")
    called("busybox", "insmod", "/opt/trial/modules/nvidia.ko")
    os.umask(0)
    for major, minor, path in (*NODES, SECOND_GPU):
        os.mknod(path, 0o20666, os.makedev(major, minor))
    os.umask(0o022)
    devices = [{"name": "0", "containerEdits": {"deviceNodes": [{"path": GPU[2]}]}}]
    everywhere = {"deviceNodes": [{"path": CONTROL[2]}]}
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": everywhere}
    Path("/etc/cdi").mkdir(exist_ok=True)
    Path("/etc/cdi/nvidia.json").write_text(json.dumps(spec), "utf-8")


def make_links() -> None:
    """What `nvidia-ctk system create-dev-char-symlinks` makes."""
    Path("/dev/char").mkdir(exist_ok=True)
    for major, minor, path in (*NODES, SECOND_GPU):
        os.symlink(f"..{path.removeprefix('/dev')}", f"/dev/char/{major}:{minor}")


def make_root(name: str) -> Path:
    """A container's file system: a shell, the probe, and the pipe by which it is asked."""
    root = ROOTS / name / "rootfs"
    for folder in ("bin", "proc", "dev", "sys", "tmp", "etc", "run"):
        (root / folder).mkdir(parents=True)
    for program, source in (("sh", "/bin/busybox"), ("probe", TRIAL / "probe")):
        os.link(source, root / "bin" / program)
    os.mkfifo(root / "ask")
    (root / "answers").touch()
    return root


def configuration(trial: dict[str, Any]) -> dict[str, Any]:
    """The OCI configuration of a container without an engine."""
    config: dict[str, Any] = json.loads(json.dumps(CONFIG))
    name, grant = trial["name"], trial["grant"]
    rules = [{"allow": False, "access": "rwm"}]
    if grant == "rules":
        rules += [{"allow": True, "type": "c", "major": a, "minor": b, "access": "rw"} for a, b, _ in NODES]
    if grant == "wildcard":
        rules += [{"allow": True, "type": "c", "major": GPU[0], "access": "rwm"}]
    if grant == "all":
        rules += [{"allow": True, "access": "rwm"}]
    if grant == "hook":
        config["hooks"] = {"prestart": [HOOK]}
    elif grant == "none":
        config["process"]["env"] = ["PATH=/bin"]
    else:
        nodes = [{"path": path, "type": "c", "major": a, "minor": b, "fileMode": 0o666} for a, b, path in NODES]
        config["linux"]["devices"] = nodes
    config["linux"]["resources"] = {"devices": rules}
    systemd = trial["manager"] == "systemd"
    config["linux"]["cgroupsPath"] = f"system.slice:trial:{name}" if systemd else f"/trial/{name}"
    return config


def start_plain(trial: dict[str, Any]) -> tuple[str, int]:
    """A container by its runtime; what the doctor calls it, and its first process."""
    name, runtime = trial["name"], trial["runtime"]
    bundle = ROOTS / name
    (bundle / "config.json").write_text(json.dumps(configuration(trial)), "utf-8")
    manager = ("--systemd-cgroup",) if trial["manager"] == "systemd" else ()
    called(runtime, *manager, "run", "--detach", "--bundle", str(bundle), name, log=str(bundle / "said"))
    return f"{runtime}:{name}", int(json.loads(called(runtime, "state", name))["pid"])


def start_podman(trial: dict[str, Any], root: Path) -> tuple[str, int]:
    """A container by podman; what the doctor calls it, and its first process."""
    name = trial["name"]
    manager = "cgroupfs" if trial["manager"] == "cgroupfs" else "systemd"
    asked = {
        "device": [argument for *_, path in NODES for argument in ("--device", path)],
        "cdi": ["--device", "nvidia.com/gpu=0"],
        "all": ["--privileged"],
    }
    podman = ("podman", "--runtime", trial["runtime"], "--cgroup-manager", manager)
    command = CONFIG["process"]["args"]
    options = ("--detach", "--network", "none", "--log-driver", "none", "--name", name, *asked[trial["grant"]])
    said = str(ROOTS / name / "said")
    called(*podman, "run", *options, "--rootfs", str(root), *command, log=said)
    container, pid = called(*podman, "inspect", "--format", "{{.Id}} {{.State.Pid}}", name).split()
    return container[:12], int(pid)


def start(trial: dict[str, Any]) -> dict[str, Any]:
    """Start a container; what it is known by."""
    root = make_root(trial["name"])
    with timed(f"start {trial['name']}"):
        key, pid = start_podman(trial, root) if trial["podman"] else start_plain(trial)
        if trial["listed"]:
            called("systemctl", "set-property", "--runtime", f"trial-{trial['name']}.scope", *LISTED)
    return {**trial, "key": key, "pid": pid, "rootfs": str(root), "said": (root.parent / "said").read_text("utf-8")}


def stop(container: dict[str, Any]) -> None:
    """Take a container away again."""
    remove = ("podman", "rm", "--time", "0") if container["podman"] else (container["runtime"], "delete")
    called(*remove, "--force", container["name"])
    shutil.rmtree(ROOTS / container["name"])


def answers(container: dict[str, Any]) -> dict[str, str]:
    """What the container's own first process gets from open(2): an errno, "0" for none."""
    root = Path(container["rootfs"])
    before = len((root / "answers").read_text("ascii").split())
    pipe = os.open(root / "ask", os.O_WRONLY | os.O_NONBLOCK)
    os.write(pipe, "".join(f"{question}\n" for question in QUESTIONS).encode())
    os.close(pipe)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        said = (root / "answers").read_text("ascii").split()[before:]
        if len(said) == len(QUESTIONS):
            return dict(zip(QUESTIONS, said, strict=True))
        time.sleep(0.02)
    raise RuntimeError(f"{container['name']} does not answer")


def surroundings(container: dict[str, Any]) -> dict[str, Any]:
    """Unit, drop-ins and programs of a container, for whoever must find out why."""
    groups = Path(f"/proc/{container['pid']}/cgroup").read_text("utf-8")
    unit = next((part for part in groups.replace("\n", "/").split("/") if part.endswith(".scope")), "")
    shown = called("systemctl", "show", f"--property={SHOWN}", unit) if unit else ""
    files = [Path("/run/systemd/transient") / unit, *Path("/run/systemd/transient").glob(f"{unit}.d/*")] if unit else []
    texts = {str(file): file.read_text("utf-8") for file in files if file.is_file()}
    return {"cgroup": groups, "unit": unit, "systemctl": shown, "files": texts, "programs": programs(groups)}


def programs(groups: str) -> dict[str, list[str]]:
    """Names of the programs attached on the way up on cgroup v2."""
    from gpudoctor.probes.bpf import Bpf

    bpf, found = Bpf(), dict[str, list[str]]()
    path = next((line[3:] for line in groups.splitlines() if line.startswith("0::")), "").strip("/")
    while path and Path("/sys/fs/cgroup/cgroup.controllers").exists():
        directory = os.open(f"/sys/fs/cgroup/{path}", os.O_RDONLY)
        attached = bpf.attached(directory, 0)
        os.close(directory)
        names = [bpf.program(number)[0][11].rstrip(b"\0").decode() for number in attached]
        found |= {f"/{path}": names} if names else {}
        path = path.rpartition("/")[0]
    return found


def opened() -> int:
    """How often one of the driver's nodes has been opened."""
    return int(Path("/sys/module/nvidia/parameters/opens").read_text("ascii"))


def look(moment: str, containers: list[dict[str, Any]]) -> dict[str, Any]:
    """All that can be seen at one moment, the doctor's opinion first, before anything is opened."""
    opens_before = opened()
    with timed(f"run {moment}"):
        report = subprocess.run([*DOCTOR, "run", "--format", "json"], capture_output=True, check=False)
    (RESULTS / f"{moment}.json").write_bytes(report.stdout)
    with timed(f"record {moment}"):
        called(*DOCTOR, "record", "--raw", "-o", str(RESULTS / moment))
    opens = opened() - opens_before
    with timed(f"probe {moment}"):
        seen = {one["name"]: {"answers": answers(one), **surroundings(one)} for one in containers}
    return {"stderr": report.stderr.decode(), "opens": opens, "containers": seen}


def run() -> dict[str, Any]:
    """The whole trial."""
    plan = json.loads((TRIAL / "plan.json").read_text("utf-8"))
    prepare_node()
    containers = [start(trial) for trial in plan["trials"] if not trial["links"]]
    make_links()
    containers += [start(trial) for trial in plan["trials"] if trial["links"]]
    moments = {"before": look("before", containers)}
    reload()
    reloaded = {container["name"]: answers(container) for container in containers}
    if plan["takes_later"]:
        start_anything()
    moments["after"] = look("after", containers)
    # There are links for all now. The hook's containers lose theirs all the same.
    again = [container for container in containers if container["loses"] and not container["links"]]
    for container in again:
        stop(container)
    others = [container for container in containers if container not in again]
    anew = [*others, *(start(container) for container in again)]
    moments["anew"] = look("anew", anew)
    reload()
    start_anything()
    moments["anew-after"] = look("anew-after", anew)
    versions = {name: called(name, "--version") for name in ("systemctl", "runc", "crun", "podman")}
    told = {"versions": versions, "mounts": Path("/proc/self/mountinfo").read_text("utf-8"), "reloaded": reloaded}
    return {"containers": containers, "anew": anew, "moments": moments, **told}


def reload() -> None:
    """What takes devices away."""
    with timed("daemon-reload"):
        called("systemctl", "daemon-reload")


def start_anything() -> None:
    """A unit in each slice that has containers, as timers start them all day."""
    for of_containers in ("system.slice", "machine.slice"):
        called("systemd-run", "--quiet", "--wait", f"--slice={of_containers}", "true")


def send() -> None:
    """Everything below RESULTS, and wait until it is out."""
    import termios

    packed = RESULTS.with_suffix(".tar.gz")
    called("tar", "-C", str(RESULTS), "-czf", str(packed), ".")
    called("busybox", "stty", "-F", "/dev/ttyS1", "raw", "-echo")
    with Path("/dev/ttyS1").open("wb") as port:
        port.write(packed.read_bytes())
        port.flush()
        termios.tcdrain(port.fileno())


def main() -> None:
    """Send what happened, a failure too."""
    import traceback

    RESULTS.mkdir()
    trial: dict[str, Any]
    try:
        trial = run()
    except Exception:  # it is the guest's only way to tell
        trial = {"failure": traceback.format_exc()}
        print(trial["failure"], flush=True)
    trial["timings"] = {**timings, "all": float(Path("/proc/uptime").read_text("ascii").split()[0])}
    (RESULTS / "trial.json").write_text(json.dumps(trial, indent=1), "utf-8")
    send()
    called("busybox", "poweroff", "-f")


if __name__ == "__main__":
    main()
