"""The hooks of contrib/slurm under Debian's own Slurm: 64 nodes on the loopback, on some of which a GPU or the doctor is broken."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from gpudoctor.knowledge.slurm_reason import written
from gpudoctor.registry import built_in
from tests.live_root import healthy_nvml, make_root, with_nvml
from tests.slurm_cluster import CONTRIB, GPUS, Cluster, cluster, make_gpus
from tests.slurm_fakes import HEALTHY, LOST_GPU, OFF_BUS

NODES = 64
OURS = written(OFF_BUS, (LOST_GPU,), "does not answer on the bus")
INTERVAL_SECONDS = 2
RUNS = 4

SICK, ADMINS, UNSEEN, REPORTS_ONLY, HANGS = "n1", "n2", "n3", "n4", "n7"
CRASHES = {
    "n5": "kill -9 $$",
    "n6": f"exec {sys.executable} -c 'import no_such_module'",
    HANGS: "sleep 60",
    "n8": "exit 96",
    "n9": "exec /no/such/python",
    "n10": "head -c 3000000 /dev/zero; exit 2",
}
ITS_OWN, ANOTHERS, PROLOG_CRASHES, EPILOG, EPILOG_CRASHES = "n11", "n12", "n13", "n14", "n15"

_DOCTOR = """\
#!/bin/sh
# Each node of this machine is another root; SLURM_CONF leads the doctor to a gres.conf that names files as a node does.
echo "$SLURMD_NODENAME $*" >>{place}/asked
if [ -e {place}/crash.$SLURMD_NODENAME ]; then . {place}/crash.$SLURMD_NODENAME; exit 1; fi
if [ "$2" != health-check ]; then SLURM_CONF={place}/as-a-node/slurm.conf; fi
export SLURM_CONF
exec {python} -m gpudoctor "$@" --root {place}/node.$SLURMD_NODENAME --config {place}/toml.$SLURMD_NODENAME \\
	--state {place}/kept 2>>{place}/said.$SLURMD_NODENAME
"""

_HOOK = """\
#!/bin/sh
[ -e {place}/{kind}.$SLURMD_NODENAME ] || exit 0
if [ -e {place}/hangs.$SLURMD_NODENAME ]; then SECONDS_AT_MOST=2; else SECONDS_AT_MOST=20; fi
export SECONDS_AT_MOST
SLURM_CONF={conf} GPUDOCTOR={place}/doctor GPUDOCTOR_STANDIN_NVML=/nvml.json exec {hook}
"""

DRAINS = "[slurm]\ndrain = true\nprolog = true\nepilog = true\n"


class Site:
    """The cluster, with the roots that stand for its nodes."""

    def __init__(self, slurm: Cluster) -> None:
        self.slurm = slurm
        self.place = slurm.place

    def write(self, name: str, text: str) -> None:
        """A small file that the hooks look at."""
        (self.place / name).write_text(text)

    def hook(self, kind: str) -> str:
        """A program for slurm.conf that runs one of ours on the nodes that are marked for it."""
        program = self.place / f"hook-{kind}"
        conf, hook = self.place / "slurm.conf", CONTRIB / f"{kind}.sh"
        program.write_text(_HOOK.format(place=self.place, kind=kind, conf=conf, hook=hook))
        program.chmod(0o755)
        return str(program)

    def node(self, name: str, root: Path, *kinds: str, config: str = DRAINS) -> None:
        """Make a root stand for a node, and have these hooks run there."""
        (self.place / f"node.{name}").symlink_to(root)
        self.write(f"toml.{name}", config)
        for kind in kinds:
            self.write(f"{kind}.{name}", "")

    def said(self, name: str) -> str:
        """What the doctor has said on a node."""
        place = self.place / f"said.{name}"
        return place.read_text() if place.exists() else ""

    def has_said(self, name: str, words: str) -> bool:
        """Whether it has said these words."""
        return words in self.said(name)

    def has_run(self, name: str, times: int) -> bool:
        """Whether it was started so often."""
        return self.asked(name) >= times

    def asked(self, name: str) -> int:
        """How often the doctor was started on a node."""
        place = self.place / "asked"
        lines = place.read_text().splitlines() if place.exists() else []
        return sum(line.startswith(f"{name} ") for line in lines)

    def is_in(self, name: str, state: str, reason: str) -> bool:
        """Whether a node is in a state, for a reason that begins so."""
        now = self.slurm.shown(name)
        return now[0] == state and now[1].startswith(reason) and bool(now[1]) == bool(reason)


def lose(root: Path) -> None:
    """The registers of a GPU that fell off the bus read as all ones."""
    folder = (root / f"sys/bus/pci/devices/{LOST_GPU}").resolve()
    (folder / "config").write_bytes(b"\xff" * 256)
    (folder / "current_link_width").write_text("63\n")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Sixty-four idle nodes."""
    with cluster(NODES) as slurm, pytest.MonkeyPatch.context() as environment:
        one = Site(slurm)
        place = slurm.place
        # `unseen` has no NVML library, so that the driver cannot be asked.
        make_root(HEALTHY, place / "unseen")
        standin = healthy_nvml(HEALTHY)
        for name in ("well", "lost"):
            with_nvml(make_root(HEALTHY, place / name), environment, standin)
        lose(place / "lost")
        one.write("doctor", _DOCTOR.format(place=place, python=sys.executable))
        (place / "doctor").chmod(0o755)
        (place / "as-a-node").mkdir()
        (place / "as-a-node" / "gres.conf").write_text(f"Name=gpu Type=h100 File=/dev/nvidia[0-{GPUS - 1}]\n")
        settings = {
            "HealthCheckProgram": one.hook("health-check"),
            "HealthCheckInterval": str(INTERVAL_SECONDS),
            "Prolog": one.hook("prolog"),
            "Epilog": one.hook("epilog"),
            "PrologFlags": "Alloc",
        }
        slurm.start(settings, f"Name=gpu Type=h100 File={make_gpus(place)}/nvidia[0-{GPUS - 1}]\n")
        slurm.wait(f"{NODES} nodes are idle", lambda: list(slurm.states().values()) == ["idle"] * NODES)
        yield one


def send_out(site: Site) -> None:
    """Have the doctor run on the nodes whose GPU is lost or not to be seen, and break it on some."""
    lost = site.place / "lost"
    site.slurm.scontrol("update", f"nodename={ADMINS}", "state=drain", "reason=bad DIMM")
    site.slurm.scontrol("update", f"nodename={UNSEEN}", "state=drain", f"reason={OURS}")
    site.write(f"hangs.{HANGS}", "")
    for name, crash in CRASHES.items():
        site.write(f"crash.{name}", crash)
        site.node(name, lost, "health-check", config=DRAINS + "failures = 1\n")
    site.node(UNSEEN, site.place / "unseen", "health-check")
    site.node(REPORTS_ONLY, lost, "health-check", config="")
    for name in (SICK, ADMINS):
        site.node(name, lost, "health-check")


def test_a_lost_gpu_drains_its_node_and_a_cured_one_takes_it_back(site: Site) -> None:
    send_out(site)
    site.slurm.wait("the node is drained", lambda: site.is_in(SICK, "IDLE+DRAIN", OURS))
    assert "run 1 of 2" in site.said(SICK) and site.slurm.states()[SICK] == "drained"
    (site.place / f"node.{SICK}").unlink()
    (site.place / f"node.{SICK}").symlink_to(site.place / "well")
    site.slurm.wait("the node is taken back", lambda: site.is_in(SICK, "IDLE", ""))
    assert "taken back: gpudoctor:" in site.said(SICK)


def test_all_who_may_not_drain_drain_nobody(site: Site) -> None:
    """An admin's drain, a doctor that may not, one that sees nothing, and six that crash, beside each other."""
    words = {ADMINS: "left alone", UNSEEN: "not known to be well", REPORTS_ONLY: "allows no draining"}
    for name, said in words.items():
        site.slurm.wait(f"the doctor of {name} has run often", partial(site.has_run, name, RUNS))
        site.slurm.wait(f"the doctor of {name} says: {said}", partial(site.has_said, name, said))
    assert site.is_in(ADMINS, "IDLE+DRAIN", "bad DIMM")
    assert site.is_in(UNSEEN, "IDLE+DRAIN", OURS)
    assert site.is_in(REPORTS_ONLY, "IDLE", "")
    for name in CRASHES:
        assert site.asked(name) >= 1 and site.is_in(name, "IDLE", ""), name
    for name in (SICK, ADMINS, UNSEEN, REPORTS_ONLY, *CRASHES):
        (site.place / f"health-check.{name}").unlink()


def job(site: Site, node: str, gpus: int) -> str:
    """A job on one node with its first GPUs, to its end: the state it ended in, with the reason."""
    words = ("--parsable", "-w", node, f"--gres=gpu:h100:{gpus}", "--wrap", f"touch {site.place}/ran.{node}")
    done = site.slurm.command("sbatch", *words, "-o", "/dev/null")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_prolog_and_epilog_refuse_only_for_the_jobs_own_gpu(site: Site) -> None:
    """The GPU that is lost is the third: a job with three has it, one with two has not."""
    lost, place = site.place / "lost", site.place
    for name in (ITS_OWN, ANOTHERS, PROLOG_CRASHES):
        site.node(name, lost, "prolog")
    for name in (EPILOG, EPILOG_CRASHES):
        site.node(name, lost, "epilog")
    for name in (PROLOG_CRASHES, EPILOG_CRASHES):
        site.write(f"crash.{name}", "kill -9 $$")
    jobs = {
        name: job(site, name, 2 if name == ANOTHERS else 3)
        for name in (ITS_OWN, ANOTHERS, PROLOG_CRASHES, EPILOG, EPILOG_CRASHES)
    }
    site.slurm.wait("the prolog refuses", lambda: site.is_in(ITS_OWN, "IDLE+DRAIN", "Prolog error"))
    site.slurm.wait("the epilog refuses", lambda: site.is_in(EPILOG, "IDLE+DRAIN", "Epilog error"))
    for name in (ANOTHERS, PROLOG_CRASHES, EPILOG_CRASHES):
        site.slurm.wait(f"the job of {name} has run", (place / f"ran.{name}").exists)
        site.slurm.wait(f"{name} is idle again", partial(site.is_in, name, "IDLE", ""))
    assert not (place / f"ran.{ITS_OWN}").exists() and (place / f"ran.{EPILOG}").exists()
    assert (
        "launch failed requeued held"
        in site.slurm.command("squeue", "--noheader", "-j", jobs[ITS_OWN], "--format=%R").stdout
    )
    assert f"{OFF_BUS}: {LOST_GPU}" in site.said(ITS_OWN) and site.said(ANOTHERS) == ""
    site.slurm.command("scancel", *jobs.values())


def test_no_other_node_was_touched(site: Site) -> None:
    """Runs last: of 64 nodes those are drained that had to be."""
    states = site.slurm.states()
    assert {name for name, state in states.items() if state != "idle"} == {ADMINS, UNSEEN, ITS_OWN, EPILOG}
    assert len(states) == NODES


MISMATCH = "gres/gpu count reported lower than configured (0 < 8)"


def test_a_gres_mismatch_is_named_before_slurm_says_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight GPUs promised in slurm.conf, and a gres.conf without their files: slurmctld drains the node as soon as it registers."""
    if built_in().get("sharing.slurm-gres") is None:
        pytest.skip("this gpudoctor has no check sharing.slurm-gres")
    root = make_root(HEALTHY, tmp_path / "node")
    with_nvml(root, monkeypatch, healthy_nvml(HEALTHY))
    with cluster(1) as slurm:
        slurm.start({}, f"Name=gpu Type=h100 Count={GPUS}\n", only=[])
        (root / "etc/slurm").mkdir(parents=True)
        for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
            shutil.copy(slurm.place / name, root / "etc/slurm")
        wanted = root / "etc/systemd/system/multi-user.target.wants"
        wanted.mkdir(parents=True, exist_ok=True)
        (wanted / "slurmd.service").symlink_to("/lib/systemd/system/slurmd.service")
        (root / "etc/hostname").write_text(f"{socket.gethostname()}\n")
        before = subprocess.run(
            [sys.executable, "-m", "gpudoctor", "--root", root, "--check", "sharing.slurm-gres", "--format", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        (result,) = (one for one in json.loads(before.stdout)["results"] if one["check"] == "sharing.slurm-gres")
        assert result["status"] == "fail", json.dumps(result)
        assert any("gres.conf" in evidence["where"] for evidence in result["findings"][0]["evidence"])
        assert "8" in result["findings"][0]["summary"]
        slurm.start_slurmd("n1")
        slurm.wait("slurmctld drains it", lambda: slurm.shown("n1")[1] == MISMATCH)
        assert "DRAIN" in slurm.shown("n1")[0] and "INVALID_REG" in slurm.shown("n1")[0]
