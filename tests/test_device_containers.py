"""Real containers of runc and crun on cgroup v1 and v2: what their rules say against what they can really open and make.

The packages are runc and crun; where one is missing, its tests skip and say so.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from gpudoctor.facts.cgroup_paths import parse_groups
from gpudoctor.facts.cgroup_places import CgroupMounts
from gpudoctor.facts.device_access import Access, DeviceAccess, DeviceKind
from gpudoctor.facts.device_rules import CgroupRules, DeviceRules
from tests.cgroup_stage import ALLOWED, Loader, StageNode, Trier, compiled, compiled_probe, needs_root, removed, started
from tests.device_shapes import ALL, RW, Rule, runc

SHIM = Path(__file__).with_name("memlock_shim.c")
CAP_SYS_RESOURCE = 24
LOCAL = 120
"""A major number for local use, in the place of 195: no driver has it, so that nothing happens when it is opened."""

# What a namespace shows below /sys/fs/cgroup: cgroup v2 alone, or every hierarchy of v1, of which runc misses none, and `devices` where it
# is in none. In a tmpfs of its own, as runtimes make directories there; without cgroup v2 beside it, as crun refuses v1 where cgroup v2
# has controllers.
VIEWS = {
    "v2": "mount -t cgroup2 none /sys/fs/cgroup",
    "v1": """
mount -t tmpfs none /sys/fs/cgroup
for controllers in $(cut -d: -f2 /proc/self/cgroup) devices; do
	mkdir "/sys/fs/cgroup/$controllers" 2>/dev/null || continue
	mount -t cgroup -o "$controllers" none "/sys/fs/cgroup/$controllers" 2>/dev/null || rmdir "/sys/fs/cgroup/$controllers"
done
""",
}
VIEW = "set -e\n{commands}\necho ready\nexec cat\n"


class View(NamedTuple):
    """A mount namespace with one view of the cgroups, kept by a process that waits."""

    pid: int
    hierarchy: str
    probe: Path
    shim: Path

    @property
    def root(self) -> str:
        """Leads into it."""
        return f"/proc/{self.pid}/root"


class Situation(NamedTuple):
    """A container: what its configuration allows, which node it gets, and what becomes of opening that for r, w and rw.

    The rules are (major, minor, access) of character devices; None is any. `node` is None without one, else its mode.
    """

    rules: tuple[tuple[int | None, int | None, str], ...]
    outcome: tuple[str, str, str]
    node: int | None = 0o666
    uid: int = 0
    nodev: bool = False
    lost: bool = False


EVERYTHING = ((None, None, "rwm"),)
ENXIO, EPERM = ("ENXIO", "ENXIO", "ENXIO"), ("EPERM", "EPERM", "EPERM")
EACCES, ENOENT = ("EACCES", "EACCES", "EACCES"), ("ENOENT", "ENOENT", "ENOENT")
SITUATIONS = {
    "allowed": Situation(((LOCAL, 0, "rw"),), ENXIO),
    "denied": Situation((), EPERM),
    "read-only": Situation(((LOCAL, 0, "r"),), ("ENXIO", "EPERM", "EPERM")),
    "write-only": Situation(((LOCAL, 0, "w"),), ("EPERM", "ENXIO", "EPERM")),
    "mknod-only": Situation(((LOCAL, 0, "m"),), EPERM),
    "wildcard": Situation(((LOCAL, None, "rwm"),), ENXIO),
    "missing-node": Situation(((LOCAL, 0, "rwm"),), ENOENT, node=None),
    "wrong-minor": Situation(((LOCAL, 1, "rwm"),), EPERM),
    "wrong-major": Situation(((LOCAL + 1, 0, "rwm"),), EPERM),
    "mode-0600": Situation(((LOCAL, 0, "rwm"),), EACCES, node=0o600, uid=1000),
    "nodev-mount": Situation(((LOCAL, 0, "rwm"),), EACCES, nodev=True),
    "denied-and-nodev": Situation((), EACCES, nodev=True),
    "rules-lost": Situation(((LOCAL, 0, "rw"),), ENXIO, lost=True),
    "privileged": Situation(EVERYTHING, ENXIO),
}


@pytest.fixture(scope="module", params=sorted(VIEWS))
def view(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[View]:
    """A view of the cgroups in a namespace of its own."""
    needs_root()
    directory = tmp_path_factory.mktemp("view")
    probe, shim = compiled_probe(directory), compiled(SHIM, directory / "shim.so", "-shared", "-fPIC", "-ldl")
    script = VIEW.format(commands=VIEWS[request.param])
    keeper = started(["unshare", "--mount", "--propagation", "private", "sh", "-c", script])
    try:
        assert keeper.stdout is not None
        if keeper.stdout.readline().strip() != "ready":
            pytest.skip(f"needs a mount namespace with cgroup {request.param}")
        mounts = CgroupMounts.parsed(Path(f"/proc/{keeper.pid}/mountinfo").read_text("utf-8"))
        if request.param == "v1" and not mounts.devices:
            pytest.skip("needs the cgroup v1 controller devices: it could not be mounted")
        yield View(keeper.pid, request.param, probe, shim)
    finally:
        keeper.communicate(timeout=10)


@pytest.fixture(scope="module", params=["crun", "runc"])
def runtime(request: pytest.FixtureRequest) -> str:
    """Where a runtime lies."""
    name = str(request.param)
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name} (Debian: {name}; tests/install-packages.sh)")
    return found


def configuration(situation: Situation, bundle: Path, cgroup: str) -> dict[str, Any]:
    """The container in the words of the OCI runtime specification 1.0.2."""
    capabilities = ["CAP_MKNOD"] if situation.uid == 0 else []
    devices: list[dict[str, Any]] = [{"allow": False, "access": "rwm"}]
    for major, minor, access in situation.rules:
        numbers = {"major": major, "minor": minor}
        given = {name: number for name, number in numbers.items() if number is not None}
        devices.append({"allow": True, "type": "c" if given else "a", "access": access, **given})
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
    ]
    nodes = []
    if situation.nodev:
        options = ["bind", "nodev"]
        mounts.append({"destination": "/dev/gpu0", "type": "bind", "source": f"{bundle}/gpu0", "options": options})
    elif situation.node is not None:
        numbers_of_node = {"type": "c", "major": LOCAL, "minor": 0, "uid": 0, "gid": 0}
        nodes.append({"path": "/dev/gpu0", "fileMode": situation.node, **numbers_of_node})
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": situation.uid, "gid": situation.uid},
            "args": ["/probe"],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        },
        "root": {"path": "rootfs"},
        "mounts": mounts,
        "linux": {
            "cgroupsPath": f"/{cgroup}",
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
            "resources": {"devices": devices},
            "devices": nodes,
        },
    }


class Container(NamedTuple):
    """A running one: its process that tries nodes, and its rules as they can be read now."""

    trier: Trier
    view: View
    pid: int

    def rules(self) -> CgroupRules:
        """By the process's own cgroups, in the view's mounts; in the hierarchy that the view hides it stays at the root."""
        mounts = CgroupMounts.parsed(Path(f"/proc/{self.view.pid}/mountinfo").read_text("utf-8"))
        where = f"/proc/{self.pid}/cgroup"
        groups = parse_groups(Path(where).read_text("utf-8"))
        place = mounts.place(groups.unified, groups.devices, where)
        hidden = "devices" if self.view.hierarchy == "v2" else "unified"
        place = msgspec.structs.replace(place, **{hidden: None})
        return DeviceRules.read(StageNode(self.view.root), [place]).by_place[place]

    @property
    def directory(self) -> str:
        """Of its cgroup, from outside of the namespace."""
        place = self.rules().place
        found = place.unified if self.view.hierarchy == "v2" else place.devices
        assert isinstance(found, str)
        return f"{self.view.root}{found}"


@contextmanager
def running(runtime: str, view: View, name: str, situation: Situation, bundle: Path) -> Iterator[Container]:
    """The container, for as long as it is needed."""
    cgroup = f"gpudoctor-test-{os.getpid()}-{name}"
    rootfs = bundle / "rootfs"
    for directory in ("proc", "dev"):
        (rootfs / directory).mkdir(parents=True)
    shutil.copy(view.probe, rootfs / "probe")
    os.mknod(bundle / "gpu0", 0o020666, os.makedev(LOCAL, 0))
    (bundle / "config.json").write_text(json.dumps(configuration(situation, bundle, cgroup)), "utf-8")
    base = ["nsenter", f"--mount=/proc/{view.pid}/ns/mnt", "--", *_shimmed(runtime, view), runtime]
    argv = [*base, "--root", str(bundle / "state")]
    with (bundle / "errors").open("w", encoding="utf-8") as errors:
        child = started([*argv, "run", "--bundle", str(bundle), cgroup], errors=errors)
    trier = Trier(child)
    try:
        try:
            trier.ask("pid")
        except AssertionError:
            pytest.fail(f"{runtime} could not start it: {(bundle / 'errors').read_text('utf-8')}")
        state = subprocess.run([*argv, "state", cgroup], capture_output=True, text=True, check=True)
        yield Container(trier, view, int(json.loads(state.stdout)["pid"]))
    finally:
        trier.end()
        subprocess.run([*argv, "delete", "--force", cgroup], capture_output=True, check=False)
        _swept(view, cgroup)


def _shimmed(runtime: str, view: View) -> list[str]:
    """crun on v2 raises the limit of locked memory, which takes CAP_SYS_RESOURCE."""
    status = Path("/proc/self/status").read_text("ascii")
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    if runtime.endswith("crun") and not int(effective.split()[1], 16) >> CAP_SYS_RESOURCE & 1:
        return ["env", f"LD_PRELOAD={view.shim}"]
    return []


def _swept(view: View, cgroup: str) -> None:
    """What the runtime has left of its cgroups."""
    for place in (f"{view.root}/sys/fs/cgroup", *_controllers(view)):
        if os.path.isdir(f"{place}/{cgroup}"):
            removed(f"{place}/{cgroup}")


def _controllers(view: View) -> list[str]:
    base = f"{view.root}/sys/fs/cgroup"
    return [f"{base}/{name}" for name in os.listdir(base)] if view.hierarchy == "v1" else []


def compared(container: Container) -> dict[str, str]:
    """What becomes of each access to the node; where mode, mount and path let it through, the rules must have said so."""
    rules = container.rules()
    outcomes = {access.letters: container.trier.open("/dev/gpu0", access) for access in (Access.READ, Access.WRITE, RW)}
    for letters, outcome in outcomes.items():
        access = {"r": Access.READ, "w": Access.WRITE, "rw": RW}[letters]
        asked = DeviceAccess(DeviceKind.CHAR, LOCAL, 0, access)
        assert outcome in (*ALLOWED, "EPERM", "EACCES", "ENOENT"), outcome
        if outcome not in ("EACCES", "ENOENT"):
            assert rules.allows(asked) is (outcome != "EPERM"), (asked.words, outcome, rules.cite(asked))
    return outcomes


def made(container: Container) -> int:
    """mknod(2) of several devices, as the rules say; how many were compared."""
    rules = container.rules()
    asked = [
        DeviceAccess(kind, major, minor, Access.MKNOD)
        for kind in DeviceKind
        for major, minor in ((LOCAL, 0), (LOCAL, 1), (LOCAL + 1, 0), (1, 3))
    ]
    for one in asked:
        outcome = container.trier.make(one, "/dev/made")
        assert outcome in ("0", "EPERM")
        assert rules.allows(one) is (outcome == "0"), (one.words, outcome, rules.cite(one))
    return len(asked)


@pytest.mark.parametrize("name", SITUATIONS)
def test_containers_can_what_their_rules_say(view: View, runtime: str, name: str) -> None:
    situation = SITUATIONS[name]
    with (
        tempfile.TemporaryDirectory(prefix="gpudoctor-test-") as bundle,
        running(runtime, view, name, situation, Path(bundle)) as container,
    ):
        outcomes = compared(container)
        assert tuple(outcomes.values()) == situation.outcome
        if situation.uid == 0:
            assert made(container) == 8
        rules = container.rules()
        if name.startswith("denied"):
            assert rules.allows(DeviceAccess(DeviceKind.CHAR, LOCAL, 0, RW)) is False
        elif situation.outcome in (EACCES, ENOENT):
            assert rules.allows(DeviceAccess(DeviceKind.CHAR, LOCAL, 0, RW)) is True
        if view.hierarchy == "v2":
            # The programs ruled, not the absence of any.
            assert isinstance(rules.applied, tuple)
            assert [applied.attached_to for applied in rules.applied][-1:] == [rules.place.unified]
        if situation.lost:
            lost(container)


def lost(container: Container) -> None:
    """Take the device away from the running container, as a reload of systemd does."""
    null_only = runc([Rule(True, DeviceKind.CHAR, 1, 3, ALL), Rule(True, None, None, None, Access.MKNOD)])
    asked = DeviceAccess(DeviceKind.CHAR, LOCAL, 0, RW)
    if container.view.hierarchy == "v2":
        with Loader().attached(container.directory, null_only, name="sd_devices") as number:
            assert set(compared(container).values()) == {"EPERM"}
            (evidence,) = container.rules().cite(asked)
            assert evidence.shows == f"program sd_devices #{number} denies {asked.words}"
        assert set(compared(container).values()) == {"ENXIO"}
    else:
        Path(container.directory, "devices.deny").write_text(f"c {LOCAL}:0 rw", "ascii")
        assert set(compared(container).values()) == {"EPERM"}
        (evidence,) = container.rules().cite(asked)
        assert evidence.shows.startswith(f"no rule allows {asked.words}")
