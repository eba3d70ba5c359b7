"""A real slurmd and slurmctld as second witness: what the doctor says of gres.conf before they start is what Slurm says after.

The doctor judges a recorded node with two GPUs, Slurm one with eight device nodes: `{all}`, `{part}` and `{beyond}` stand for their files.
"""

import re
import time
from collections.abc import Iterator

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.slurm import Slurm
from gpudoctor.facts.slurm_log import Said
from gpudoctor.facts.slurm_node import Allocation, NodeState, ask_job
from gpudoctor.probes.deadline import Deadline
from gpudoctor.report import Finding
from gpudoctor.sources.live import Live
from gpudoctor.verdicts import Status
from tests.slurm_cluster import Cluster, cluster, make_gpus
from tests.slurm_node import SlurmNode

RECORDED = {"dev": "/dev", "all": "[0-1]", "part": "0", "beyond": "[0-2]"}
REAL = {"all": "[0-7]", "part": "[0-3]", "beyond": "[0-8]"}
COUNT, SOUND = "sharing.slurm-gres", "sharing.slurm-gres-sound"

CASES = (
    # gres.conf; the check that fails, "" for none; what Slurm says then.
    ("Name=gpu Type=h100 File={dev}/nvidia{all}", "", "IDLE"),
    ("NodeName=n[1-4] Name=gpu Type=h100 File={dev}/nvidia{all}", "", "IDLE"),
    ("Name=gpu Type=H100 \\\n File={dev}/nvidia{all} # eight", "", "IDLE"),
    ("Name=gpu Type=h100 File={dev}/nvidia{part}", COUNT, r"count reported lower than configured \(4 < 8\)"),
    ("Name=gpu Type=h100", COUNT, r"count reported lower than configured \(0 < 8\)"),
    ("Name=gpu Type=a100 File={dev}/nvidia{all}", COUNT, r"count reported lower than configured \(0 < 8\)"),
    ("Name=gpu File={dev}/nvidia{all}", COUNT, r"count reported lower than configured \(0 < 8\)"),
    ("NodeName=n[2-4] Name=gpu Type=h100 File={dev}/nvidia{all}", COUNT, r"reported lower than configured \(0 < 8\)"),
    ("Name=gpu Type=h100 File={dev}/nvidia{beyond}", COUNT, "Waiting for gres.conf file"),
    ("Name=gpu\nName=gpu", SOUND, "gres.conf duplicate records for gpu"),
    ("Name=gpu Type=h100 File={dev}/nvidia{part}\nName=gpu Type=h100", SOUND, 'some records have "File"'),
    ("Name=gpu Type=h100 File={dev}/nvidia{part}\nName=gpu File={dev}/nvidia1", SOUND, 'some records have "Type="'),
    ("Name=gpu Type=h100 File={dev}/nvidia{all} Count=5", SOUND, "count does not match File value"),
    ("Name=gpu Type=h100 MultipleFiles={dev}/nvidia0", SOUND, "MultipleFiles does not contain multiple files"),
)


def foretold(gres: str) -> list[Finding]:
    """What the doctor says fails, before any slurmd was started with these files."""
    node = SlurmNode()
    node.runs = False
    node.log = ""
    node.gres = gres.format(**RECORDED) + "\n"
    results = node.report().results
    return [one for result in results for one in result.findings if one.status is Status.FAIL]


@pytest.fixture
def slurm() -> Iterator[Cluster]:
    with cluster(1) as one:
        yield one


def said_by(slurm: Cluster) -> str:
    """What Slurm has said so far: state and reason of the node, and slurmd's log."""
    log = slurm.place / "slurmd.n1.log"
    return "\n".join((*slurm.shown("n1"), log.read_text() if log.is_file() else ""))


@pytest.mark.parametrize(("gres", "check", "words"), CASES)
def test_slurm_says_what_the_doctor_foretold(slurm: Cluster, gres: str, check: str, words: str) -> None:
    causes = {one.id.partition("@")[0] for one in foretold(gres) if not one.caused_by}
    assert causes == ({check} if check else set())
    dev = make_gpus(slurm.place)
    slurm.start({}, gres.format(dev=dev, **REAL) + "\n")
    slurm.wait(words, lambda: re.search(words, said_by(slurm)) is not None)
    if not check:
        time.sleep(1)
        assert slurm.shown("n1")[0] == "IDLE"


def test_enough_is_compared() -> None:
    """A comparison of nothing would pass."""
    assert len(CASES) >= 12 and {check for _, check, _ in CASES} == {"", COUNT, SOUND}


def test_real_slurmd_is_read_on_the_live_node(slurm: Cluster) -> None:
    """Its command line names its files and the node; the controller is asked through them."""
    dev = make_gpus(slurm.place)
    slurm.start({}, f"Name=gpu Type=h100 File={dev}/nvidia[0-7]\n")
    slurm.wait("n1 is idle", lambda: slurm.states().get("n1") == "idle")
    desk = Desk(Live(Deadline(20)), Config())
    found = desk.get(Slurm)
    assert isinstance(found, Slurm)
    if found.setup is None or found.setup.folder != str(slurm.place):
        pytest.skip("another slurmd runs on this machine")
    setup = found.setup
    assert setup.name == "n1" and setup.conf.promised == 8 and not setup.devices.missing
    assert isinstance(setup.state, NodeState) and setup.state.states == ("IDLE",)
    assert setup.log.alive and not setup.log.of(*Said)
    slurm.scontrol("update", "nodename=n1", "state=drain", "reason=gpudoctor:pcie.link-width a b")
    again = Desk(Live(Deadline(20)), Config()).get(Slurm)
    assert isinstance(again, Slurm) and again.setup is not None and isinstance(again.setup.state, NodeState)
    assert (again.setup.state.out, again.setup.state.reason) == (("DRAIN",), "gpudoctor:pcie.link-width a b")


def test_job_of_a_real_controller_tells_its_gpus(slurm: Cluster) -> None:
    dev = make_gpus(slurm.place)
    slurm.start({}, f"Name=gpu Type=h100 File={dev}/nvidia[0-7]\n")
    slurm.wait("n1 is idle", lambda: slurm.states().get("n1") == "idle")
    job = slurm.command(
        "sbatch", "--parsable", "--gres=gpu:3", "--output=/dev/null", "--wrap", "sleep 60"
    ).stdout.strip()
    slurm.wait("the job runs", lambda: "JobState=RUNNING" in slurm.command("scontrol", "show", "job", job).stdout)
    raw = Live(Deadline(20))
    found = ask_job(raw, job, "n1", str(slurm.conf))
    assert isinstance(found, Allocation) and (found.state, found.indices) == ("RUNNING", (0, 1, 2)), found
    slurm.command("scancel", job)
