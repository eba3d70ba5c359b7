"""Slurm's files, lists of hosts, logs and answers, as text through the parsers; real captures where they are."""

import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.raw import Absent, Entry, EntryType
from gpudoctor.facts.slurm import Slurm
from gpudoctor.facts.slurm_files import read_conf
from gpudoctor.facts.slurm_gres import Promised, cores_in, counted, gres_conf, node_conf, node_name, usable
from gpudoctor.facts.slurm_ground import Delegation, delegation
from gpudoctor.facts.slurm_hostlist import MOST, lists, spelled_out, split_list
from gpudoctor.facts.slurm_log import Said, detected_in, parse_log
from gpudoctor.facts.slurm_node import Allocation, Machine, NodeState, parse_job, parse_machine, parse_node
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.sources.redaction import redact
from gpudoctor.verdicts import Unread
from tests.captures import Builder
from tests.conftest import SHARED
from tests.slurm_node import SHOWN


def node_with(**files: str) -> RecordedNode:
    """A node with files below /etc/slurm; an underscore stands for a dot."""
    builder = Builder()
    for name, text in files.items():
        builder.text(f"/etc/slurm/{name.replace('_', '.')}", text)
    return RecordedNode(builder.tree, complete=("/etc",), uid=0)


# lists of hosts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n[1-3,7],login", ("n1", "n2", "n3", "n7", "login")),
        ("n[001-003]", ("n001", "n002", "n003")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("/dev/nvidia[0,2-3]", ("/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia3")),
        ("/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[21-22]",
         ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")),
        ("", ()),
        ("n[", ("n[",)),
    ],
)  # fmt: skip
def test_list_is_spelled_out(text: str, names: tuple[str, ...]) -> None:
    assert spelled_out(text) == names
    assert all(lists(text, name) for name in names)


@pytest.mark.parametrize("name", ["n05", "n0", "n65", "m5", "n", "n5x", ""])
def test_name_that_is_not_in_a_list(name: str) -> None:
    assert not lists("n[1-64]", name)


def test_lists_of_lists_do_not_multiply() -> None:
    """Five brackets of a thousand each would be more names than there is memory; a thousand brackets, more than Python's stack."""
    began = time.process_time()
    assert len(spelled_out("n" + "[0-1023]" * 5)) == MOST
    deep = "n" + "[0-9]" * 100_000
    assert spelled_out(deep) == (deep,) and not lists(deep, "n" + "1" * 60)
    assert cores_in(",".join(["0-4096"] * 100_000)) == ()
    assert time.process_time() - began < 2


def test_list_of_a_hundred_thousand_is_not_spelled_out() -> None:
    assert lists("n[000001-100000]", "n099999") and not lists("n[000001-100000]", "n100001")
    assert len(spelled_out("n[1-100000]")) == 1024


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=4), st.integers(0, 60))
def test_finding_a_name_is_spelling_the_list_out(ranges: list[tuple[int, int]], number: int) -> None:
    text = f"n[{','.join(f'{low}-{high}' for low, high in ranges)}]x"
    assert lists(text, f"n{number}x") == (f"n{number}x" in spelled_out(text))


@given(st.text(alphabet="n[]-,0123456789 x", max_size=24))
def test_no_list_is_too_strange(text: str) -> None:
    assert len(spelled_out(text)) <= 1024
    assert lists(text, "n1") in (True, False)
    assert all(split_list(text))


# files --------------------------------------------------------------------------------------------------------------


def test_lines_are_joined_and_remarks_and_quotes_taken_away() -> None:
    text = (
        "# a remark\nClusterName=Lab # another\n"
        'NodeName=n1 Gres=gpu:2 \\\n  CPUs=64 Reason="a fan" # \\\n'
        "gRESTYPES = gpu\nSomething\\#else=1\n"
    )
    file = read_conf(node_with(slurm_conf=text), "/etc/slurm/slurm.conf")
    assert [(line.number, line.pairs) for line in file.lines] == [
        (2, (("clustername", "Lab"),)),
        (3, (("nodename", "n1"), ("gres", "gpu:2"), ("cpus", "64"), ("reason", "a fan"))),
        (5, (("grestypes", "gpu"),)),
    ]
    assert file.setting("grestypes") == ("gpu", file.lines[2])
    assert file.lines[1].evidence.shows.startswith("line 3: NodeName=n1 Gres=gpu:2 CPUs=64")


def test_long_lines_take_as_long_as_they_are() -> None:
    """What grows with the square of a line's length takes hours for one of ten megabytes."""
    began = time.process_time()
    conf = read_conf(node_with(slurm_conf="\\#" * 500_000), "/etc/slurm/slurm.conf")
    assert conf.lines == () and conf.known
    for words in ("fatal: ", "GRES core specification ", "GRES autodetected core affinity "):
        assert parse_log(words * 50_000, "x").told == ()
    said = parse_node(f"NodeName=n1 State=DOWN\n   Reason={' ' * 300_000}a{' ' * 300_000}b [bob@now] \n", "x")
    assert isinstance(said, NodeState) and (said.by, said.at, len(said.reason)) == ("bob", "now", 300_002)
    job = parse_job(f"JobId=1 JobState=RUNNING\n Nodes=n1 CPU_IDs=0 GRES={'gpu' * 100_000}\n", "n1", "x")
    assert isinstance(job, Allocation) and job.indices is None
    unit = node_with()
    path = "/etc/systemd/system/slurmd.service"
    unit.tree.put(
        path, Record(entry=Entry(path, EntryType.FILE), text=f"Delegate= a{' ' * 100_000}x{' ' * 100_000}y\n")
    )
    found = delegation(unit)
    assert isinstance(found, Delegation) and (found.value or "").startswith("a ") and len(found.evidence.shows) < 300
    assert time.process_time() - began < 5


def test_more_files_than_slurm_counts_are_not_looked_at() -> None:
    lines = "".join(f"Name=gpu File=/dev/x{at}_[0-999]\n" for at in range(500))
    records = gres_conf(read_conf(node_with(gres_conf=lines), "/etc/slurm/gres.conf"), "n1").gpus
    assert sum(len(record.files) for record in records) < MOST + len(records) and all(one.files for one in records)


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("Reason=Not responding [slurm@2026-11-29T08:01:22]", ("Not responding", "slurm", "2026-11-29T08:01:22")),
        ("Reason=see [1] and [2]", ("see [1] and [2]", "", "")),
        ("Reason=RMA [a@b] 4711 [root@2026-11-29T08:01:22] ", ("RMA [a@b] 4711", "root", "2026-11-29T08:01:22")),
        ("Reason=(null)", ("(null)", "", "")),
        ("Comment=x", ("", "", "")),
    ],
)
def test_reason_ends_with_who_set_it(printed: str, told: tuple[str, str, str]) -> None:
    found = parse_node(f"NodeName=n1 State=IDLE+DRAIN\n   {printed}\n", "x")
    assert isinstance(found, NodeState) and (found.reason, found.by, found.at) == told


def test_included_files_are_read_and_missing_ones_told() -> None:
    node = node_with(
        slurm_conf="ClusterName=Lab\ninclude nodes-%c.conf\nInclude /etc/slurm/more.conf\n",
        more_conf="GresTypes=gpu\n",
        **{"nodes-lab_conf": "NodeName=n1 Gres=gpu:8\n"},
    )
    file = read_conf(node, "/etc/slurm/slurm.conf")
    assert file.trouble is None and [line.path for line in file.lines][1:] == [
        "/etc/slurm/nodes-lab.conf",
        "/etc/slurm/more.conf",
    ]
    for wrong, said in (("gone.conf", "is included, but does not exist"), ("*.conf", "Slurm takes no wildcards there")):
        file = read_conf(node_with(slurm_conf=f"Include {wrong}\nClusterName=x\n"), "/etc/slurm/slurm.conf")
        assert isinstance(file.trouble, Unread) and said in file.trouble.detail
        assert not file.known and file.there
    assert isinstance(read_conf(node_with(), "/etc/slurm/gres.conf").trouble, Absent)


def test_file_without_end_comes_to_one() -> None:
    """What was left unread is told, so that nothing is said of it."""
    began = time.process_time()
    for text in ("NodeName=x[1-100000] CPUs=1\n" * 200_000, "Include slurm.conf\n" * 20_000, "\n" * 1_000_000):
        read = read_conf(node_with(slurm_conf=text), "/etc/slurm/slurm.conf")
        assert isinstance(read.trouble, Unread) and len(read.lines) <= 50_000
    assert time.process_time() - began < 10


def test_file_that_includes_itself_comes_to_an_end() -> None:
    file = read_conf(node_with(slurm_conf="ClusterName=x\nInclude slurm.conf\n"), "/etc/slurm/slurm.conf")
    assert isinstance(file.trouble, Unread) and len(file.lines) < 20


@given(st.text(max_size=200))
def test_no_text_is_too_strange_for_a_file(text: str) -> None:
    node = node_with(slurm_conf=text, gres_conf=text)
    file = read_conf(node, "/etc/slurm/slurm.conf")
    node_conf(file, "n1")
    gres_conf(file, "n1")
    parse_log(text, "a log")
    parse_node(text, "scontrol")
    parse_job(text, "n1", "scontrol")


def test_node_is_known_by_its_name_or_its_hosts() -> None:
    text = "NodeName=DEFAULT CPUs=4\nNodeName=gpu[1-4] NodeHostname=rack7-[01-04]\nNodeName=n[1-2]\n"
    file = read_conf(node_with(slurm_conf=text), "/etc/slurm/slurm.conf")
    assert [node_name(file, host) for host in ("rack7-03", "n2", "other")] == ["gpu3", "n2", "other"]


def test_gres_of_a_node_comes_from_its_line_or_the_default_before_it() -> None:
    text = (
        "NodeName=DEFAULT Gres=gpu:a100:4,mps:400\nNodeName=n1\nNodeName=n2 Gres=gpu:h100:2,gpu:a100:1(S:0)\n"
        "NodeName=DEFAULT Gres=gpu:8\nNodeName=n3 Gres=\nNodeName=n4 Gres=gpu\nNodeName=n5\nNodeSet=big Nodes=n[4-5]\n"
        "PartitionName=DEFAULT OverSubscribe=EXCLUSIVE\nPartitionName=a Nodes=n[1-3]\nPartitionName=b Nodes=big OverSubscribe=NO\n"
    )
    file = read_conf(node_with(slurm_conf=text), "/etc/slurm/slurm.conf")
    told = {name: node_conf(file, name) for name in ("n1", "n2", "n3", "n4", "n5", "n6")}
    assert told["n1"].gres == (Promised("a100", 4),)
    assert told["n2"].gres == (Promised("h100", 2), Promised("a100", 1))
    assert (told["n3"].promised, told["n4"].promised, told["n5"].promised) == (0, 1, 8)
    assert not told["n6"].knows_node and told["n5"].knows_node
    assert [(one.name, one.exclusive) for one in told["n1"].partitions] == [("a", True)]
    assert [(one.name, one.exclusive) for one in told["n4"].partitions] == [("b", False)]


def test_a_nodes_own_detection_beats_that_of_all() -> None:
    text = (
        "AutoDetect=nvml\nNodeName=n3 AutoDetect=off Name=gpu File=/dev/nvidia[0-3]\nNodeName=n4 AutoDetect=RSMI\n"
        "NodeName=n[5-6] Name=gpu Type=a MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[21-22] Count=1\n"
    )
    file = read_conf(node_with(gres_conf=text), "/etc/slurm/gres.conf")
    told = {name: gres_conf(file, name) for name in ("n1", "n3", "n4", "n5")}
    assert [told[name].detection.kind for name in told] == ["nvml", "off", "rsmi", "nvml"]
    assert [one.devices for one in told["n3"].gpus] == [4]
    assert [(one.devices, len(one.files)) for one in told["n5"].gpus] == [(1, 3)]
    assert told["n1"].others == 3


def test_numbers_have_suffixes_and_cores_ranges() -> None:
    assert (counted("8"), counted("4G"), counted("2k"), counted("two")) == (8, 4 << 30, 2048, -1)
    assert (cores_in("0,2-4"), cores_in("0-"), cores_in("x"), cores_in("0-999999")) == ((0, 2, 3, 4), (0,), (), ())


def test_records_are_used_up_by_what_is_promised() -> None:
    text = "Name=gpu Type=a File=/dev/nvidia[0-3]\nName=gpu Type=b File=/dev/nvidia[4-7]\n"
    records = gres_conf(read_conf(node_with(gres_conf=text), "/etc/slurm/gres.conf"), "n1").gpus
    assert usable(records, (Promised("a", 4), Promised("b", 4))) == 8
    assert usable(records, (Promised("A", 2), Promised("c", 2))) == 2
    assert usable(records, (Promised("", 6),)) == 6


# logs ---------------------------------------------------------------------------------------------------------------


def test_only_the_last_start_counts() -> None:
    first = "slurmd: error: Waiting for gres.conf file /dev/nvidia0"
    started = "slurmd: slurmd version 22.05.8 started"
    fatal = "slurmd: fatal: gres.conf duplicate records for gpu"
    ended = "slurmd: Slurmd shutdown completing"
    log = parse_log("\n".join((first, started, ended, started)), "log")
    assert (log.told, log.alive) == ((), True)
    log = parse_log("\n".join((started, ended, first, started, "slurmd: launched")), "log")
    assert [one.said for one in log.told] == [Said.WAITING] and log.alive
    log = parse_log("\n".join((first, started, ended, fatal)), "log")
    assert [(one.said, one.evidence.where) for one in log.told] == [(Said.UNSOUND, "log")] and not log.alive
    log = parse_log("\n".join((fatal, first)), "log")
    assert [(one.said, one.name) for one in log.told] == [(Said.WAITING, "/dev/nvidia0")]


def test_log_file_of_slurm_conf_comes_first() -> None:
    builder = Builder()
    builder.text("/proc/1/cgroup", "0::/init.scope\n")
    builder.text("/proc/77/cgroup", "0::/system.slice/slurmd.service\n")
    builder.text("/proc/77/stat", "77 (slurmd) S 1 77 " + "0 " * 16 + "77 0 0\n")
    builder.text("/proc/77/cmdline", "slurmd\0-Nn7\0")
    builder.text("/etc/slurm/slurm.conf", "SlurmdLogFile=/var/log/slurmd.%n.log\nNodeName=n7 Gres=gpu:1\n")
    node = RecordedNode(builder.tree, complete=("/proc", "/etc"), uid=0)
    from gpudoctor.facts.raw import CommandOutput

    argv = ("tail", "-n", "600", "/var/log/slurmd.n7.log")
    said = "[2026-11-30T15:38:31.320] fatal: gres.conf duplicate records for gpu\n"
    node.commands[argv] = CommandOutput(argv, 0, said)
    slurm = Desk(node, Config()).get(Slurm)
    assert isinstance(slurm, Slurm) and slurm.setup is not None and slurm.setup.name == "n7"
    (told,) = slurm.setup.log.told
    assert (told.evidence.where, told.evidence.at) == ("/var/log/slurmd.n7.log", "2026-11-30T15:38:31.320")
    assert told.evidence.shows == "fatal: gres.conf duplicate records for gpu"


# answers ------------------------------------------------------------------------------------------------------------


def test_node_is_read_as_scontrol_prints_it() -> None:
    reason = "   Reason=gres/gpu count reported lower than configured (0 < 8) [root@2026-11-30T15:38:22]\n"
    found = parse_node(SHOWN.format(state="UNKNOWN+DRAIN+INVALID_REG", reason=reason), "scontrol show node n1")
    assert isinstance(found, NodeState)
    assert (found.name, found.states, found.silent) == ("n1", ("UNKNOWN", "DRAIN", "INVALID_REG"), False)
    assert found.out == ("DRAIN", "INVALID_REG") and found.gres == (Promised("h100", 2),)
    assert (found.reason, found.by, found.at) == (
        "gres/gpu count reported lower than configured (0 < 8)",
        "root",
        "2026-11-30T15:38:22",
    )
    silent = parse_node(SHOWN.format(state="DOWN*", reason=""), "scontrol show node n1")
    assert isinstance(silent, NodeState) and silent.silent and silent.states == ("DOWN",)
    assert isinstance(parse_node("Node n9 not found\n", "scontrol show node n9"), Unread)


def test_machine_is_read_as_slurmd_prints_it() -> None:
    text = "NodeName=vm CPUs=128 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=2 RealMemory=24105\nUpTime=0-20:02:09\n"
    found = parse_machine(text)
    assert isinstance(found, Machine) and (found.cpus, found.cores) == (128, 64)
    assert isinstance(parse_machine("nonsense"), Unread)


JOB = """JobId=397 JobName=train
   UserId=alice(1000) GroupId=alice(1000) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   NodeList=n[1-2]
   JOB_GRES=gpu:h100:3
     Nodes=n1 CPU_IDs=0-7 Mem=0 GRES={one}
     Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:h100:1(IDX:7)
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
"""


@pytest.mark.parametrize(
    ("gres", "indices"),
    [
        ("gpu:h100:2(IDX:0-1)", (0, 1)),
        ("gpu:a100:1(IDX:0),gpu:h100:2(IDX:3,5)", (0, 3, 5)),
        ("gpu:2", None),
        ("", ()),
        ("(null)", ()),
    ],
)
def test_job_is_read_as_scontrol_prints_it(gres: str, indices: tuple[int, ...] | None) -> None:
    found = parse_job(JOB.format(one=gres), "n1", "scontrol show job -d 397")
    assert isinstance(found, Allocation) and (found.job, found.state, found.indices) == ("397", "RUNNING", indices)
    other = parse_job(JOB.format(one=gres), "n2", "scontrol")
    assert isinstance(other, Allocation) and other.indices == (7,)
    assert isinstance(parse_job(JOB.format(one=gres), "n3", "scontrol"), Unread)


def test_job_is_read_from_json_too() -> None:
    job = {
        "job_id": 5,
        "job_state": ["RUNNING"],
        "gres_detail": ["gpu:h100:8(IDX:0-7)", "gpu:h100:1(IDX:2)"],
        "job_resources": {"nodes": {"allocation": [{"name": "n1"}, {"name": "n2"}]}},
    }
    for text in (json.dumps(job), json.dumps({"jobs": [job]})):
        found = parse_job(text, "n2", "slurmrestd")
        assert isinstance(found, Allocation) and (found.state, found.indices) == ("RUNNING", (2,))
    assert isinstance(parse_job(json.dumps([1, 2]), "n2", "slurmrestd"), Unread)


# the corpus ---------------------------------------------------------------------------------------------------------


def test_every_capture_of_slurm_is_read() -> None:
    """One by one; how many there are is written down, so that none is passed over."""
    corpus = SHARED / "corpus"
    if not (corpus / "MANIFEST.tsv").is_file():
        pytest.skip("the shared corpus of real captures is not here")
    listed = sorted(corpus.glob("slurm/*")) + sorted(corpus.glob("issue-excerpts/slurmd-*"))
    manifest = (corpus / "MANIFEST.tsv").read_text()
    assert len(listed) >= 4 and all(str(place.relative_to(corpus)) in manifest for place in listed)
    job = parse_job((corpus / "slurm" / "soperator-2node-job.json").read_text(), "worker-0", "capture")
    # A job that asked for no GPU: the manifest's H100 are the cluster's.
    assert isinstance(job, Allocation) and (job.job, job.indices) == ("349", ())
    devices = 0
    for place in listed:
        text = place.read_text()
        found = detected_in(text.splitlines())
        assert len(found) == len(re.findall(r"GRES\[gpu\]", text)), place.name
        assert all(one.name == "gpu" and one.files and one.uuid for one in found)
        devices += len(found)
    assert devices >= 7


def test_mig_instances_of_the_capture_name_their_capability_nodes() -> None:
    place = SHARED / "corpus" / "issue-excerpts" / "slurmd-mig-autodetect-nvml.log"
    if not place.is_file():
        pytest.skip("the shared corpus of real captures is not here")
    first = detected_in(place.read_text().splitlines())[0]
    assert first.files == ("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap111", "/dev/nvidia-caps/nvidia-cap112")
    assert (first.type, first.uuid) == ("", "MIG-GPU-262f56a4-7c33-6633-1232-f442d1408888/12/0")


# redaction ----------------------------------------------------------------------------------------------------------


def test_lists_of_hosts_tell_nothing_of_the_site_and_still_hold_the_node() -> None:
    text = "NodeName=dgxlab-[01-16] Name=gpu File=/dev/nvidia[0-7]\nNodeName=oldtux[1-4] Name=gpu File=/dev/nvidia0\n"
    members = {
        "snapshot.json": json.dumps(
            {"format": 1, "hostname": "dgxlab-07", "recorded_at": "2026-11-29T12:00:00Z"}
        ).encode(),
        "root/proc/sys/kernel/hostname": b"dgxlab-07\n",
        "root/etc/slurm/gres.conf": text.encode(),
        "root/etc/slurm/slurm.conf": b"NodeName=dgxlab-[01-16] Gres=gpu:8\nPartitionName=a Nodes=dgxlab-[01-16],oldtux[1-4]\n",
    }
    redacted = redact(members, b"a salt").members
    said = {name: content.decode() for name, content in redacted.items()}
    assert not re.search("dgxlab|oldtux", "".join(said.values()))
    host = said["root/proc/sys/kernel/hostname"].strip()
    assert said["root/etc/slurm/gres.conf"].startswith(
        f"NodeName={host} Name=gpu File=/dev/nvidia[0-7]\nNodeName=host-"
    )
    assert f"Nodes={host}\n" in said["root/etc/slurm/slurm.conf"]
