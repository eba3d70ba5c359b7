"""Slurm's view of a node: recorded nodes of which one thing is wrong, or only looks so."""

import pytest

from gpudoctor.config import Config, Slurm
from gpudoctor.facts.device_access import Access, DeviceKind
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType
from gpudoctor.report import Finding
from gpudoctor.sources.recorded import Record
from gpudoctor.trace import StepId, Traced
from gpudoctor.verdicts import Status, Unread, Why
from tests.conftest import SHARED
from tests.device_shapes import Rule
from tests.gpu_node import GIVEN, WHOLE_DEV
from tests.slurm_node import CONF, GRES, NAME, SHOWN, SLURMD, STARTED, SlurmNode
from tests.small_node import cited, steps
from tests.test_cgroup_rules import OF_OTHERS
from tests.trace_cases import HOST_MOUNTS
from tests.trace_node import LIBRARIES, NODES, UUIDS, VERSION, TraceNode
from tests.workload_node import DOCKER, ID

COUNT, SOUND, DETECT = "sharing.slurm-gres", "sharing.slurm-gres-sound", "sharing.slurm-autodetect"
CONSTRAINED, OUTSIDE, STATE, UNIT = (
    "sharing.slurm-constrained",
    "sharing.slurm-outside",
    "sharing.slurm-node",
    "sharing.slurm-unit",
)
CHECKS = (COUNT, SOUND, DETECT, CONSTRAINED, OUTSIDE, STATE, UNIT)
JOB = "/system.slice/slurmstepd.scope/job_397/step_0/user/task_0"
LOWER = "gres/gpu count reported lower than configured (0 < 2) [root@2026-11-29T08:01:22]"
MPS = "Name=mps Count=100 File=/dev/nvidia0\nName=mps Count=100 File=/dev/nvidia1\n"
INVALID = "IDLE+DRAIN+INVALID_REG"


def only(node: SlurmNode, check: str, status: Status = Status.FAIL) -> Finding:
    """The one root cause, which must be this check's."""
    report = node.report()
    assert [cause.check for cause in report.root_causes] == [check], report.root_causes
    finding = report.result(check).findings[0]
    assert finding.status is status and finding.subject.id == "node:node", finding
    return finding


def test_all_is_said_of_a_healthy_node_with_what_was_read() -> None:
    report = SlurmNode().quiet()
    said = {check: report.result(check).findings[0] for check in CHECKS}
    passed = [check for check in CHECKS if said[check].status is Status.PASS]
    assert passed == [COUNT, SOUND, CONSTRAINED, STATE, UNIT]
    assert f"{CONF} line 6: NodeName=n[1-8]" in cited(said[COUNT])
    assert f"{GRES} line 1: Name=gpu Type=h100 File=/dev/nvidia[0-1]" in cited(said[COUNT])
    assert "scontrol show node n1 State=IDLE" in cited(said[STATE])
    assert report.root_causes == ()


def test_nothing_is_asked_where_no_slurmd_is() -> None:
    """A login node has the files, and no slurmd."""
    node = SlurmNode()
    node.runs = False
    node.absent("/etc/systemd/system/multi-user.target.wants/slurmd.service")
    node.gres = "Name=gpu Type=h100 File=/dev/nvidia[0-7]\n"
    report = node.quiet()
    for check in CHECKS:
        (finding,) = report.result(check).findings
        assert (finding.status, finding.summary) == (
            Status.SKIP,
            "no slurmd runs on this node, and none is started at boot",
        )


# what it is told ----------------------------------------------------------------------------------------------------


def test_vanished_file_is_named_before_slurm_says_invalid() -> None:
    node = SlurmNode()
    node.gres = "Name=gpu Type=h100 File=/dev/nvidia[0-3]\n"
    node.conf = (node.conf or "").replace("gpu:h100:2", "gpu:h100:4")
    found = only(node, COUNT)
    assert "names 4 GPUs, and 2 are on the bus" in found.summary and "the first /dev/nvidia2" in found.summary
    assert "/dev/nvidia2 does not exist" in cited(found) and f"{GRES} line 1" in cited(found)
    assert "scontrol update nodename=n1 state=drain" in steps(found) and "systemctl restart slurmd" in steps(found)


def test_instances_of_several_files_are_counted_once() -> None:
    node = SlurmNode()
    node.conf = (node.conf or "").replace("gpu:h100:2", "gpu:1g.10gb:2")
    caps = "/dev/nvidia-caps/nvidia-cap"
    node.gres = "".join(
        f"Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,{caps}{first},{caps}{first + 1}\n" for first in (66, 75)
    )
    assert "gres.conf names 2 GPUs" in only(node, COUNT).summary


def test_node_that_slurm_took_out_follows_from_the_count() -> None:
    node = SlurmNode()
    node.gres, node.state, node.reason = "Name=gpu Type=h100 Count=2\n", INVALID, LOWER
    found = only(node, COUNT)
    assert "names the file of none" in found.summary and "(0 < 2)" in found.summary
    (state,) = node.report().result(STATE).findings
    assert (state.status, state.caused_by) == (Status.FAIL, (found.id,))
    assert "root@2026-11-29T08:01:22" in cited(state)


@pytest.mark.parametrize(
    ("conf", "gres", "words"),
    [
        ("gpu:a100:2", "Name=gpu Type=h100 File=/dev/nvidia[0-1]\n", "2 of type a100, and gres.conf names h100"),
        ("gpu:h100:2", "Name=gpu File=/dev/nvidia[0-1]\n", "2 of type h100, and gres.conf names no type"),
        ("gpu:h100:2", "Name=gpu Type=h100 File=/dev/nvidia0\n", "names the files of 1"),
        ("gpu:h100:2", "# nothing\n", "names the file of none"),
        ("gpu:h100:2", "NodeName=n[2-8] Name=gpu Type=h100 File=/dev/nvidia[0-1]\n", "names the file of none"),
    ],
)
def test_too_few_by_number_or_type(conf: str, gres: str, words: str) -> None:
    node = SlurmNode()
    node.conf, node.gres = (node.conf or "").replace("gpu:h100:2", conf), gres
    found = only(node, COUNT)
    assert words in found.summary and "reported lower than configured" in found.summary
    assert cited(found).count("line ") >= 1


def test_node_of_no_gpu_is_told_though_slurm_is_content_with_it() -> None:
    node = SlurmNode()
    node.char("/dev/nvidia2", 195, 2)
    node.gres = "Name=gpu Type=h100 File=/dev/nvidia[0-2]\n"
    node.conf = (node.conf or "").replace("gpu:h100:2", "gpu:h100:3")
    found = only(node, COUNT)
    assert "/dev/nvidia2 is the node of no GPU" in found.summary and "/dev/nvidia2 character device 195:2" in cited(
        found
    )


def test_gpus_that_nobody_promised_are_worth_a_warning() -> None:
    node = SlurmNode()
    node.conf = (node.conf or "").replace(" Gres=gpu:h100:2", "")
    found = only(node, COUNT, Status.WARN)
    assert "has no Gres= for GPUs of this node" in found.summary and f"{CONF} line 6" in cited(found)
    node = SlurmNode()
    node.gres = "Name=gpu Type=h100 File=/dev/nvidia[0-1]\n"
    node.conf = (node.conf or "").replace("gpu:h100:2", "gpu:h100:1")
    assert "1 of them are passed over" in only(node, COUNT, Status.WARN).summary


@pytest.mark.parametrize(
    ("conf", "gres"),
    [
        # The example of gres.conf(5): one device is out of service.
        ("gpu:h100:1", "Name=gpu Type=h100 File=/dev/nvidia1\n"),
        ("gpu:2", "Name=gpu Type=h100 File=/dev/nvidia[0-1]\n"),
        ("gpu:2,tmpdisk:100", "Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia1\n"),
        ("gpu:H100:2", "NODENAME=n[1-8] NAME=gpu TYPE=h100 FILE=/dev/nvidia[0-1] Cores=0-31\n"),
        ("gpu:h100:2(S:0-1)", "Name=gpu Type=h100 \\\n  File=/dev/nvidia[0-1] # both\n"),
        ("gpu:h100:1,gpu:a100:1", "Name=gpu Type=h100 File=/dev/nvidia0\nName=gpu Type=a100 File=/dev/nvidia1\n"),
        ("gpu:h100:2,mps:200", f"Name=gpu Type=h100 File=/dev/nvidia[0-1]\n{MPS}"),
    ],
)
def test_sound_files_of_many_forms_are_quiet(conf: str, gres: str) -> None:
    node = SlurmNode()
    node.conf, node.gres = (node.conf or "").replace("gpu:h100:2", conf), gres
    report = node.quiet()
    assert [report.result(check).status for check in (COUNT, SOUND)] == [Status.PASS, Status.PASS]


def test_files_are_found_where_slurmd_was_told_and_controllers_send_them() -> None:
    node = SlurmNode()
    texts = (node.conf or "", node.gres or "")
    node.conf = None
    node.gres = node.cgroup = None
    node.command_line = ["slurmd", "-D", "--conf-server", "head1:6817", "-N", "n1"]
    node.link("/run/slurm/conf", "/var/spool/slurmd/conf-cache")
    for name, text in zip(("slurm.conf", "gres.conf"), texts, strict=True):
        node.text(f"/var/spool/slurmd/conf-cache/{name}", text)
    node.text("/var/spool/slurmd/conf-cache/cgroup.conf", "ConstrainDevices=yes\n")
    report = node.quiet()
    assert "/run/slurm/conf/slurm.conf" in cited(report.result(COUNT).findings[0])
    node = SlurmNode()
    node.command_line = ["slurmd", "-f", "/opt/cluster/slurm.conf"]
    node.text("/opt/cluster/slurm.conf", "Include nodes.conf\nGresTypes=gpu\n")
    node.text("/opt/cluster/nodes.conf", "NodeName=DEFAULT Gres=gpu:h100:2\nNodeName=n[1-8] CPUs=64\n")
    node.text("/opt/cluster/gres.conf", "Name=gpu Type=h100 File=/dev/nvidia[0-1]\n")
    shown = node.report().result(COUNT).findings[0]
    assert shown.status is Status.PASS and "/opt/cluster/nodes.conf line 1" in cited(shown)
    # Slurm's other programs are told of it as well.
    assert "env SLURM_CONF" not in cited(shown)


EVIL: tuple[str, ...] = ("slurmd", "-f", "/tmp/mine/slurm.conf")
SCONTROL = ("env", f"SLURM_CONF={EVIL[2]}", "scontrol", "show", "node", "n1")


def fake(node: SlurmNode, *, user: int, program: str) -> None:
    """A program that is called slurmd, with a slurm.conf of its own; what Slurm's programs would print with that."""
    node.command_line = list(EVIL)
    node.text(EVIL[2], "PluginDir=/tmp/mine\nNodeName=n1 Gres=gpu:9\nGresTypes=gpu\n")
    node.text(f"/proc/{SLURMD}/status", f"Name:\tslurmd\nUid:\t{user}\t0\t0\t0\nGid:\t0\t0\t0\t0\n")
    if program:
        node.link(f"/proc/{SLURMD}/exe", program)
    node.commands[SCONTROL] = CommandOutput(SCONTROL, 0, SHOWN.format(state="DOWN", reason=""))


@pytest.mark.parametrize(
    ("user", "program"),
    # The second is what a link slurmd to sudo runs: a program that makes itself root's.
    [(1000, "/tmp/mine/slurmd"), (0, "/usr/bin/sudo")],
)
def test_users_program_called_slurmd_names_no_files_and_no_plugins(user: int, program: str) -> None:
    """Slurm's programs load the plugins that their slurm.conf names: who may log in must not choose it for root."""
    node = SlurmNode()
    fake(node, user=user, program=program)
    report = node.report()
    said = " ".join(cited(one) for check in CHECKS for one in report.result(check).findings)
    assert EVIL[2] not in said and "DOWN" not in said
    # It may be that of the unit after all, which then has a group (SlurmdUser= of slurm.conf(5)).
    group = "/sys/fs/cgroup/system.slice/slurmd.service"
    node.tree.put(group, Record(entry=Entry(group, EntryType.DIR)))
    (running,) = node.report().result(UNIT).findings
    assert (running.status, running.summary) == (Status.PASS, "slurmd runs")
    node.tree.put("/etc/systemd/system/multi-user.target.wants/slurmd.service", Record(error="ENOENT"))
    for check in CHECKS:
        (finding,) = node.report().result(check).findings
        assert (finding.status, finding.summary) == (Status.SKIP, "what is called slurmd here is a user's own program")


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(
    ("program", "told"), [("/usr/sbin/slurmd", True), ("/usr/sbin/slurmd (deleted)", True), ("", False)]
)
def test_programs_are_given_a_slurm_conf_that_slurmd_itself_was_seen_to_name(
    program: str, told: bool, live: bool
) -> None:
    """An ordinary user may read root's command line, and not what program that is; a recording of his says the same."""
    node = SlurmNode()
    fake(node, user=0, program=program)
    if not program:
        node.tree.put(f"/proc/{SLURMD}/exe", Record(error="EACCES"))
    node.live = live
    (finding,) = node.report().result(STATE).findings
    assert (finding.status, "DOWN" in cited(finding)) == ((Status.FAIL, True) if told else (Status.UNKNOWN, False))
    assert told or (finding.why == Why.NO_PERMISSION and "slurmd itself is not seen" in finding.summary)


@pytest.mark.parametrize("live", [True, False])
def test_program_that_hides_whose_it_is_is_not_taken_for_slurmd(live: bool) -> None:
    node = SlurmNode()
    fake(node, user=0, program="/usr/sbin/slurmd")
    node.tree.put(f"/proc/{SLURMD}/status", Record(error="EACCES"))
    node.live = live
    assert EVIL[2] not in " ".join(cited(one) for check in CHECKS for one in node.report().result(check).findings)


def test_files_that_were_not_seen_are_unknown() -> None:
    node = SlurmNode()
    node.gres = None
    node.tree.put(GRES, Record(error="EACCES"))
    report = node.quiet()
    for check in (COUNT, SOUND, DETECT):
        (finding,) = report.result(check).findings
        assert (finding.status, finding.why) == (Status.UNKNOWN, Why.NO_PERMISSION)
    node = SlurmNode()
    node.conf = (node.conf or "").replace("n[1-8]", "tux[1-8]")
    (finding,) = node.quiet().result(COUNT).findings
    assert finding.status is Status.UNKNOWN and "names no such node (n1)" in finding.summary


@pytest.mark.parametrize(
    ("host", "named"), [("n1.lab.example", "n1.lab.example"), ("n1.lab.example", "n[1-8]"), ("ws7", "localhost")]
)
def test_node_is_looked_for_by_the_names_that_slurmd_tries(host: str, named: str) -> None:
    node = SlurmNode()
    node.text("/proc/sys/kernel/hostname", f"{host}\n")
    node.conf = (node.conf or "").replace("n[1-8]", named)
    (finding,) = node.quiet().result(COUNT).findings
    assert finding.status is Status.PASS and "line 6" in cited(finding), finding


# what slurmd finds itself -------------------------------------------------------------------------------------------


def test_detection_is_held_against_what_nvml_lists() -> None:
    node = SlurmNode()
    node.detects()
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    report = node.quiet()
    assert report.result(COUNT).findings[0].summary == "Slurm is told of 2 GPUs, and as many are found"
    assert report.result(DETECT).findings[0].summary == "AutoDetect=nvml has its plugin"
    node = SlurmNode()
    node.detects(promise="gpu:h100:4")
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    assert "promises 4 GPUs, and slurmd finds 2" in only(node, COUNT).summary
    node = SlurmNode()
    node.detects(promise="gpu:a100:2")
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    found = only(node, COUNT)
    assert "no GPU is of type a100: AutoDetect calls them nvidia_h100_80gb_hbm3" in found.summary


@pytest.mark.parametrize(
    ("promise", "gres"),
    [
        # Detection calls them otherwise: the files count all the same (gres_gpu.c, "config-only GPU").
        ("gpu:fast:2", "Name=gpu Type=fast File=/dev/nvidia[0-1]\n"),
        ("gpu:fast:2", "NodeName=n[1-8] Name=gpu Type=fast File=/dev/nvidia[0-1]\n"),
        # One GPU is kept from Slurm on purpose.
        ("gpu:h100:1", "Name=gpu Type=h100 File=/dev/nvidia1\n"),
    ],
)
def test_named_files_count_with_detection_too(promise: str, gres: str) -> None:
    node = SlurmNode()
    node.detects(promise=promise)
    node.gres = f"AutoDetect=nvml\n{gres}"
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    (found,) = node.quiet().result(COUNT).findings
    assert found.status is Status.PASS and f"{GRES} line 2" in cited(found), found


def test_ignored_gpus_are_told_with_slurmds_own_words() -> None:
    node = SlurmNode()
    node.detects("nvidia", promise="gpu:h100:1")
    node.plugins("gpu_generic.so", "gpu_nvidia.so")
    node.log = f"slurmd: warning: The following autodetected GPUs are being ignored:\n{STARTED}"
    found = only(node, COUNT, Status.WARN)
    assert "finds 2 GPUs, slurm.conf promises 1" in found.summary and "are being ignored" in cited(found)


def test_mig_instances_are_counted_one_by_one() -> None:
    node = SlurmNode()
    node.detects(promise="gpu:8")
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    for device in node.devices:
        device["fields"] = {"mig.current": True, "mig.pending": True}
        device["mig_devices"] = [{"index": at, "uuid": f"MIG-{at}", "profile": "1g.10gb"} for at in range(4)]
    report = node.report()
    assert report.result(COUNT).findings[0].summary == "Slurm is told of 8 GPUs, and as many are found"


@pytest.mark.parametrize(
    "line",
    [
        "slurmd: We were configured to autodetect nvml functionality, but we weren't able to find that lib when Slurm was configured.",
        "slurmd: error: cannot create gpu context for gpu/nvml",
        "",
    ],
)
def test_slurm_without_nvml_is_named(line: str) -> None:
    node = SlurmNode()
    node.detects()
    node.plugins("gpu_generic.so", *(("gpu_nvml.so",) if line else ()))
    node.log = f"{line}\n{STARTED}" if line else STARTED
    node.state, node.reason = INVALID, LOWER
    found = only(node, DETECT)
    assert "has no gpu_nvml.so, and it finds no GPU" in found.summary
    shown = cited(found)
    assert (line.removeprefix("slurmd: ") if line else "slurm-wlm/gpu_nvml.so does not exist") in shown
    assert "AutoDetect=off Name=gpu File=/dev/nvidia[0-1]" in "".join(step.say for step in found.remedies)
    assert node.report().result(STATE).findings[0].caused_by == (found.id,)


def test_named_files_make_up_for_a_missing_plugin() -> None:
    node = SlurmNode()
    node.gres = f"AutoDetect=nvml\n{node.gres}"
    node.plugins("gpu_generic.so")
    assert "only the File= lines of gres.conf count" in only(node, DETECT, Status.WARN).summary


@pytest.mark.parametrize("covered", [False, True])
def test_library_that_slurmd_could_not_open(covered: bool) -> None:
    """Older releases ask for the name without a number, which not every package of the driver brings."""
    node = SlurmNode()
    node.detects()
    node.gres = "AutoDetect=nvml\nName=gpu Type=h100 File=/dev/nvidia[0-1]\n" if covered else node.gres
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    node.log = (
        f"slurmd: We were configured with nvml functionality, but that lib wasn't found on the system.\n{STARTED}"
    )
    found = only(node, DETECT, Status.WARN if covered else Status.FAIL)
    assert "could not open libnvidia-ml.so" in found.summary and "that lib wasn't found" in cited(found)
    assert "ln -s libnvidia-ml.so.1" in steps(found) and "systemctl restart slurmd" in steps(found)
    # A later start has said nothing of the kind.
    node.log += f"\nslurmd: Slurmd shutdown completing\n{STARTED}"
    node.quiet()


def test_slurmd_that_was_started_before_the_driver_has_no_gpus() -> None:
    node = SlurmNode()
    node.detects()
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    node.log = f"slurmd: error: Failed to initialize NVML: Driver Not Loaded\n{STARTED}"
    node.state, node.reason = INVALID, LOWER
    found = only(node, UNIT)
    assert "started before the driver was there and found no GPU" in found.summary
    assert "Driver Not Loaded" in cited(found) and "systemctl restart slurmd" in steps(found)
    report = node.report()
    assert report.result(STATE).findings[0].caused_by == (found.id,)
    assert [report.result(check).status for check in (COUNT, DETECT)] == [Status.PASS, Status.PASS]


# sound --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gres", "words", "status"),
    [
        ("AutoDetect=nvml\nName=gpu\nName=gpu\n", "lines 2 and 3 are two gpu records without File=", Status.FAIL),
        ("Name=gpu Type=h100 File=/dev/nvidia0\nName=gpu Type=h100\n", "some gpu records have File=", Status.FAIL),
        (
            "Name=gpu Type=h100 File=/dev/nvidia0\nName=gpu File=/dev/nvidia1\n",
            "some gpu records have Type=",
            Status.FAIL,
        ),
        ("Name=gpu Type=h100 File=/dev/nvidia[0-1] Count=8\n", "has Count=8 for 2 files", Status.FAIL),
        ("Name=gpu Type=h100 File=/dev/nvidia[0-1] Count=two\n", "a Count= that is no number", Status.FAIL),
        ("Name=gpu Type=h100 MultipleFiles=/dev/nvidia0\n", "one file in MultipleFiles=", Status.FAIL),
        (
            "Name=gpu Type=h100 File=/dev/nvidia0 MultipleFiles=/dev/nvidia[0-1]\n",
            "which exclude each other",
            Status.FAIL,
        ),
        (
            "Name=gpu Type=h100 File=/dev/nvidia[0-1]\nName=gpu Type=h100 File=/dev/nvidia1\n",
            "/dev/nvidia1 stands in lines 1 and 2",
            Status.FAIL,
        ),
        (
            "NodeName=n1 AutoDetect=nvml\nNodeName=n1 AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia[0-1]\n",
            "different AutoDetect=: nvml and off",
            Status.FAIL,
        ),
        ("AutoDetect=yes\nName=gpu Type=h100 File=/dev/nvidia[0-1]\n", "AutoDetect=yes is no word", Status.WARN),
        ("Name=gpu Type=h100 File=/dev/nvidia[0-1] AutoDetect=nvml\n", "has no effect", Status.WARN),
    ],
)
def test_contradicting_records_are_named_by_their_lines(gres: str, words: str, status: Status) -> None:
    node = SlurmNode()
    node.gres = gres
    node.runs = node.runs if status is Status.WARN else False
    finding = next(one for one in node.report().result(SOUND).findings if one.status in (Status.FAIL, Status.WARN))
    assert words in finding.summary and finding.status is status
    assert GRES in cited(finding)
    assert {cause.check for cause in node.report().root_causes} == {SOUND}


def test_lines_for_other_nodes_are_not_judged() -> None:
    node = SlurmNode()
    node.gres = f"NodeName=n[2-8] Name=gpu\nNodeName=n[2-8] Name=gpu\n{node.gres}"
    node.quiet()


def test_types_must_be_mixed_nowhere_and_gpu_be_a_gres() -> None:
    node = SlurmNode()
    node.conf = (node.conf or "").replace("gpu:h100:2", "gpu:h100:1,gpu:1")
    assert "with and without a type" in node.report().result(SOUND).findings[0].summary
    node = SlurmNode()
    node.conf = (node.conf or "").replace("GresTypes=gpu\n", "")
    found = only(node, SOUND)
    assert "GresTypes does not list gpu" in found.summary and "sets no grestypes" in cited(found)


def test_what_slurmd_died_of_is_told_where_no_rule_finds_it() -> None:
    node = SlurmNode()
    node.runs = False
    node.log = "slurmd: fatal: Invalid GRES data for gpu, Cores=0-63 (only 32 CPUs are available)"
    found = only(node, SOUND)
    assert "slurmd ended over its files" in found.summary and "only 32 CPUs" in cited(found)
    unit = node.report().result(UNIT).findings[0]
    assert unit.caused_by == (found.id,)


def test_cores_of_no_socket_are_told() -> None:
    node = SlurmNode()
    node.log = (
        "slurmd: error: _check_core_range_matches_sock: gres/gpu GRES autodetected core affinity 0-3 on node n1 doesn't match socket "
        f"boundaries. (Socket 0 is cores 0-15). See Socket Affinity section of gres.html for more information.\n{STARTED}"
    )
    assert "not those of whole sockets" in only(node, SOUND).summary


def test_cores_that_only_the_controller_minds_are_in_its_reason() -> None:
    node = SlurmNode()
    node.gres = "Name=gpu Type=h100 File=/dev/nvidia[0-1] Cores=0-11\n"
    said = "gres/gpu GRES core specification 0-11 for node n1 doesn't match socket boundaries. (Socket 0 is cores 0-15)"
    node.state, node.reason = INVALID, f"{said} [slurm@2026-11-29T08:01:22]"
    found = only(node, SOUND)
    assert "specification 0-11 doesn't match" in found.summary and f"{GRES} line 1" in cited(found)
    assert node.report().result(STATE).findings[0].caused_by == (found.id,)


def test_cores_beyond_those_of_the_node_are_passed_over() -> None:
    """Linux counts hardware threads, Slurm cores."""
    node = SlurmNode()
    node.gres = "Name=gpu Type=h100 File=/dev/nvidia[0-1] Cores=0-15,32-47\n"
    node.quiet()
    node.conf = (node.conf or "").replace("CPUs=64", "CPUs=64 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2")
    found = only(node, SOUND, Status.WARN)
    assert "names core 47 in Cores=, and the node has 32" in found.summary
    node.printed["slurmd", "-C"] = "NodeName=n1 CPUs=96 Boards=1 SocketsPerBoard=2 CoresPerSocket=48 ThreadsPerCore=1\n"
    node.quiet()
    node = SlurmNode()
    node.log = f"slurmd: error: Invalid GRES data for gpu, Cores=0-31,64-95\n{STARTED}"
    assert "passes over the Cores=" in only(node, SOUND, Status.WARN).summary


# when it is started -------------------------------------------------------------------------------------------------


def test_slurmd_that_gave_up_before_the_nodes_were_made() -> None:
    node = SlurmNode()
    node.runs = False
    node.log = (
        "2026-11-29T08:00:01+0000 n1 slurmd[911]: error: Waiting for gres.conf file /dev/nvidia0\n"
        "2026-11-29T08:00:21+0000 n1 slurmd[911]: fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory"
    )
    found = only(node, UNIT)
    assert "/dev/nvidia0 was not there yet" in found.summary and "can't stat gres.conf file /dev/nvidia0" in cited(
        found
    )
    assert found.evidence[0].at == "2026-11-29T08:00:21+0000"
    assert "systemctl restart slurmd" in steps(found) and "50-gpus.conf" in steps(found)


def test_slurmd_that_had_to_wait_and_went_on_is_well() -> None:
    node = SlurmNode()
    node.log = f"slurmd: error: Waiting for gres.conf file /dev/nvidia0\nslurmd: gres.conf file /dev/nvidia0 now exists\n{STARTED}"
    (finding,) = node.quiet().result(UNIT).findings
    assert (finding.status, finding.summary) == (Status.PASS, "slurmd runs; it had to wait for /dev/nvidia0")


def test_slurmd_that_does_not_run_is_told() -> None:
    node = SlurmNode()
    node.runs, node.log = False, ""
    found = only(node, UNIT, Status.WARN)
    assert found.summary == "slurmd is started at boot, but does not run" and "no slurmd runs" in cited(found)


@pytest.mark.parametrize("folder", ["/opt/slurm/etc", "/usr/local/etc/slurm", "/var/spool/slurmd/conf-cache"])
def test_slurmd_that_died_is_told_wherever_its_files_are(folder: str) -> None:
    """Builds of one's own, AWS ParallelCluster's among them, do not look into /etc/slurm."""
    node = SlurmNode()
    for name, text in (("slurm.conf", node.conf), ("gres.conf", node.gres), ("cgroup.conf", node.cgroup)):
        node.text(f"{folder}/{name}", text or "")
    node.conf = node.gres = node.cgroup = None
    node.runs = False
    node.complete += ["/run/slurm", "/etc/default/slurmd", "/etc/sysconfig/slurmd"]
    found = only(node, UNIT, Status.WARN)
    assert found.summary == "slurmd is started at boot, but does not run"


def test_unit_without_delegation_is_told_on_cgroup_v2_alone() -> None:
    node = SlurmNode()
    node.text("/lib/systemd/system/slurmd.service", "[Service]\nExecStart=/usr/sbin/slurmd -D -s\n")
    node.quiet()
    node.cgroup = "CgroupPlugin=cgroup/v2\nConstrainDevices=yes\n"
    found = only(node, UNIT, Status.WARN)
    assert "has no Delegate=yes" in found.summary and "sets no Delegate=" in cited(found)
    node.text("/etc/systemd/system/slurmd.service.d/delegate.conf", "[Service]\nDelegate=yes\n")
    node.quiet()


# jobs and containers ------------------------------------------------------------------------------------------------


def test_unconfined_jobs_that_share_nodes_are_worth_a_warning() -> None:
    node = SlurmNode()
    node.cgroup = "ConstrainDevices=no\n"
    found = only(node, CONSTRAINED, Status.WARN)
    assert "jobs share nodes in partition all" in found.summary
    assert "/etc/slurm/cgroup.conf line 1: ConstrainDevices=no" in cited(found) and "PartitionName=all" in cited(found)
    node.cgroup = None
    node.absent("/etc/slurm/cgroup.conf")
    assert "/etc/slurm/cgroup.conf does not exist" in cited(only(node, CONSTRAINED, Status.WARN))
    node = SlurmNode()
    node.conf = (node.conf or "").replace("task/affinity,task/cgroup", "task/affinity")
    assert "does nothing with TaskPlugin=task/affinity" in only(node, CONSTRAINED, Status.WARN).summary
    node = SlurmNode()
    node.cgroup = "CgroupPlugin=disabled\nConstrainDevices=yes\n"
    found = only(node, CONSTRAINED, Status.WARN)
    assert "does nothing with CgroupPlugin=disabled" in found.summary
    assert "cgroup.conf line 1: CgroupPlugin=disabled" in cited(found)
    assert "jobs of Slurm all of them" in node.report().sharing[0].access


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Nodes=ALL Default=YES", "Nodes=ALL OverSubscribe=EXCLUSIVE"),
        ("PartitionName=all Nodes=ALL", "PartitionName=DEFAULT Shared=EXCLUSIVE\nPartitionName=all Nodes=n[1-8]"),
        ("SelectType=select/cons_tres", "SelectType=select/linear"),
        ("Nodes=ALL", "Nodes=tux[1-8]"),
        ("Nodes=ALL Default=YES", "Nodes=ALL Exclusive=NODE"),
    ],
)
def test_whole_nodes_have_nothing_to_keep_apart(old: str, new: str) -> None:
    node = SlurmNode()
    node.cgroup = "ConstrainDevices=no\n"
    node.conf = (node.conf or "").replace(old, new)
    (finding,) = node.quiet().result(CONSTRAINED).findings
    assert finding.status is Status.SKIP, finding.summary


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("PartitionName=all Nodes=ALL", "PartitionName=DEFAULT Nodes=ALL\nPartitionName=all"),
        ("PartitionName=all Nodes=ALL", "NodeSet=fast Nodes=n[1-4]\nPartitionName=all Nodes=tux1,fast"),
        ("PartitionName=all Nodes=ALL", "NodeSet=fast Feature=gpus\nPartitionName=all Nodes=fast"),
        (
            "PartitionName=all Nodes=ALL",
            "PartitionName=DEFAULT OverSubscribe=EXCLUSIVE\nPartitionName=DEFAULT OverSubscribe=NO\nPartitionName=all Nodes=ALL",
        ),
        (
            "SelectType=select/cons_tres",
            "SelectType=select/linear\nPartitionName=DEFAULT OverSubscribe=FORCE:4\n",
        ),
    ],
)
def test_partitions_that_share_their_nodes_are_found_by_all_their_lines(old: str, new: str) -> None:
    node = SlurmNode()
    node.cgroup = "ConstrainDevices=no\n"
    node.conf = (node.conf or "").replace("CPUs=64", "CPUs=64 Features=nvme,gpus").replace(old, new)
    assert "jobs share nodes in partition all" in only(node, CONSTRAINED, Status.WARN).summary


def test_setting_of_an_unseen_cluster_is_not_judged() -> None:
    """Whether jobs share the node stands in slurm.conf."""
    node = SlurmNode()
    node.conf, node.cgroup = None, "ConstrainDevices=no\n"
    node.tree.put(CONF, Record(error="EACCES"))
    (finding,) = node.quiet().result(CONSTRAINED).findings
    assert (finding.status, finding.why) == (Status.UNKNOWN, Why.NO_PERMISSION)


def with_job(node: SlurmNode, *variables: str) -> None:
    """Job 397, which sees the node's own /dev."""
    node.process(611, JOB)
    node.inside(611, "SLURM_JOB_ID=397", *variables, nodes=NODES, mountinfo=WHOLE_DEV)


def test_job_that_computes_on_a_gpu_it_was_not_given() -> None:
    """Who is unconfined is told as one thing with what came of it; a job that got out all the same is told by itself."""
    node = SlurmNode()
    node.cgroup = "ConstrainDevices=no\n"
    with_job(node, "SLURM_JOB_GPUS=1", "CUDA_VISIBLE_DEVICES=0")
    node.computes(0, 611)
    found = only(node, CONSTRAINED, Status.WARN)
    assert found.summary.endswith("and job 397 computes on GPU 0, while Slurm gave it GPU 1")
    assert "SLURM_JOB_GPUS=1" in cited(found) and "GPU 0: PID 611 computes" in cited(found)
    assert "scontrol requeue 397" in steps(found)
    node.cgroup = "ConstrainDevices=yes\n"
    findings = node.report().result(CONSTRAINED).findings
    assert [(one.subject.id, one.status) for one in findings] == [
        ("service:slurm:397", Status.WARN),
        ("node:node", Status.PASS),
    ]


def test_jobs_gpus_are_counted_as_slurm_counts_them() -> None:
    """With File=/dev/nvidia[2-3] the job's GPU 0 is /dev/nvidia2; MIG instances count one by one; else nothing is known of the job's."""
    node = SlurmNode()
    node.cgroup = "ConstrainDevices=no\n"
    node.gres = "Name=gpu Type=h100 File=/dev/nvidia1\nName=gpu Type=h100 File=/dev/nvidia0\n"
    with_job(node, "SLURM_JOB_GPUS=1", "CUDA_VISIBLE_DEVICES=0")
    node.computes(0, 611)
    assert "computes on GPU" not in only(node, CONSTRAINED, Status.WARN).summary
    node = SlurmNode()
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    node.detects(promise="gpu:2")
    node.cgroup = "ConstrainDevices=no\n"
    with_job(node, "SLURM_JOB_GPUS=1", "CUDA_VISIBLE_DEVICES=0")
    node.computes(0, 611)
    assert "job 397 computes on GPU 0" in only(node, CONSTRAINED, Status.WARN).summary
    node.devices[0]["fields"] = {"mig.current": True}
    (found,) = node.report().result(CONSTRAINED).findings
    assert "computes on GPU" not in found.summary


def test_jobs_are_counted_among_the_named_files_with_detection_too() -> None:
    """The job's GPU 0 is the only one that gres.conf names, /dev/nvidia1."""
    node = SlurmNode()
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    node.detects(promise="gpu:h100:1")
    node.gres = "AutoDetect=nvml\nName=gpu Type=h100 File=/dev/nvidia1\n"
    with_job(node, "SLURM_JOB_GPUS=0", "CUDA_VISIBLE_DEVICES=0")
    node.computes(1, 611)
    assert [one.status for one in node.report().result(CONSTRAINED).findings] == [Status.PASS]


@pytest.mark.parametrize("number", ["7", "1,7", "x", ""])
def test_number_that_is_no_gpu_of_the_nodes_says_nothing_of_a_job(number: str) -> None:
    node = SlurmNode()
    node.cgroup = "ConstrainDevices=no\n"
    with_job(node, f"SLURM_JOB_GPUS={number}")
    node.computes(0, 611)
    assert "computes on GPU" not in only(node, CONSTRAINED, Status.WARN).summary


def test_reason_that_only_speaks_of_gres_is_its_writers() -> None:
    node = SlurmNode()
    node.state, node.reason = "IDLE+DRAIN", "gres count is checked by bob [bob@2026-11-29T09:10:11]"
    found = node.said(STATE)
    assert found.status is Status.WARN and "gives this node no jobs" in found.summary and "by bob" in found.summary


def test_summary_of_slurmds_own_words_does_not_name_the_node() -> None:
    node = SlurmNode()
    words = (
        "gres/gpu GRES core specification 0-47 for node n1 doesn't match socket boundaries. (Socket 0 is cores 0-31)"
    )
    node.log = f"slurmd: error: {words}\n{STARTED}"
    (found,) = [one for one in node.report().result(SOUND).findings if one.status is Status.FAIL]
    assert "n1" not in found.summary and "0-47 doesn't match socket boundaries" in found.summary


def test_job_that_computes_on_its_own_gpu_is_quiet() -> None:
    """Numbers count within the job's GPUs for CUDA, and as the node does for Slurm."""
    node = SlurmNode()
    with_job(node, "SLURM_JOB_GPUS=1", "CUDA_VISIBLE_DEVICES=0")
    node.computes(1, 611)
    assert node.quiet().result(CONSTRAINED).status is Status.PASS


def test_container_that_computes_outside_of_every_job() -> None:
    node = SlurmNode()
    with_job(node, "SLURM_JOB_GPUS=1")
    node.container(702, DOCKER, "NVIDIA_VISIBLE_DEVICES=all")
    node.computes(0, 702)
    (found,) = node.report().result(OUTSIDE).findings
    assert found.status is Status.WARN and found.subject.id == f"container:{ID[:12]}"
    assert found.summary.startswith("it computes on GPU 0 outside of every job while 1 job runs here")
    assert f"/proc/702/cgroup {DOCKER}" in cited(found) and "/proc/611/cgroup" in cited(found)


def test_container_that_only_watches_is_quiet() -> None:
    node = SlurmNode()
    node.container(702, DOCKER, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility")
    (found,) = node.quiet().result(OUTSIDE).findings
    assert (found.status, found.summary) == (Status.SKIP, "it computes nothing")


def test_container_within_a_job_is_confined_by_it() -> None:
    node = SlurmNode()
    node.process(610, JOB, comm="enroot")
    node.process(702, JOB, apart=True)
    node.inside(702, "SLURM_JOB_ID=397", "NVIDIA_VISIBLE_DEVICES=1", nodes={"nvidia1": (195, 1)})
    node.computes(1, 702)
    (found,) = node.quiet().result(OUTSIDE).findings
    assert (found.status, found.summary) == (Status.PASS, "it is inside of job 397")


# what the controller thinks -----------------------------------------------------------------------------------------


def test_node_that_somebody_drained_is_told_with_who_and_when() -> None:
    node = SlurmNode()
    node.state, node.reason = "IDLE+DRAIN", "changing a fan [alice@2026-11-29T09:10:11]"
    found = only(node, STATE, Status.WARN)
    assert "by alice since 2026-11-29 09:10:11: changing a fan" in found.summary
    assert found.evidence[1].at == "2026-11-29T09:10:11" and "state=resume" in steps(found)
    assert found.remedies[0].say.startswith("Ask alice")


def test_node_that_gpudoctor_drained_names_its_check() -> None:
    node = SlurmNode()
    node.state = "IDLE+DRAIN"
    node.reason = "gpudoctor:health.recovery-action 0000:05:00.0 the driver asks for a reset [root@2026-11-29T09:10:11]"
    found = only(node, STATE, Status.WARN)
    assert "health.recovery-action had failed (the driver asks for a reset)" in found.summary
    assert "gpudoctor run --check health.recovery-action" in steps(found)


def test_node_that_is_invalid_for_its_memory_is_out_too() -> None:
    node = SlurmNode()
    node.state = INVALID
    node.reason = "Low RealMemory (reported:451012 < 100.00% of configured:515000) [slurm@2026-11-29T08:01:22]"
    assert "Low RealMemory" in only(node, STATE).summary


@pytest.mark.parametrize("state", ["DOWN*", "IDLE*", "DOWN+DRAIN"])
def test_node_that_is_not_heard_of_is_down(state: str) -> None:
    node = SlurmNode()
    node.state, node.reason = state, "Not responding [slurm@2026-11-29T09:10:11]"
    assert "Not responding" in only(node, STATE).summary


@pytest.mark.parametrize(
    "state", ["MIXED", "ALLOCATED", "IDLE+CLOUD+POWERED_DOWN", "IDLE+PLANNED", "ALLOCATED+COMPLETING"]
)
def test_node_at_work_is_well(state: str) -> None:
    node = SlurmNode()
    node.state = state
    assert node.quiet().result(STATE).status is Status.PASS


def test_controller_that_does_not_answer_leaves_the_question_open() -> None:
    node = SlurmNode()
    argv = ("scontrol", "show", "node", "n1")
    said = "slurm_load_node error: Unable to contact slurm controller (connect failure)\n"
    node.commands[argv] = CommandOutput(argv, 1, "", said)
    (finding,) = node.quiet().result(STATE).findings
    assert finding.status is Status.UNKNOWN and "Unable to contact slurm controller" in finding.summary
    node.commands[argv] = Unread(Why.TIMED_OUT, " ".join(argv), "did not end before its deadline")
    assert node.quiet().result(STATE).findings[0].why is Why.TIMED_OUT
    node.config = Config(slurm=Slurm(ask=False))
    (finding,) = node.quiet().result(STATE).findings
    assert finding.status is Status.UNKNOWN and "[slurm] ask = false" in finding.summary


# one root cause -----------------------------------------------------------------------------------------------------


def test_missing_node_of_a_gpu_is_the_cause_of_slurms_trouble() -> None:
    node = SlurmNode()
    node.absent("/dev/nvidia1")
    node.state, node.reason = "DOWN*", "Not responding [slurm@2026-11-29T09:10:11]"
    node.runs = False
    node.answers.pop("nvml", None)
    report = node.report()
    assert [cause.check for cause in report.root_causes] == ["device-nodes.gpu-node"], report.root_causes
    (found,) = report.result(COUNT).findings
    assert found.status is Status.FAIL and found.caused_by == ("device-nodes.gpu-node@gpu:0000:06:00.0",)


def test_gpu_that_nvml_lost_is_the_cause() -> None:
    node = SlurmNode()
    node.detects()
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    node.devices.pop()
    node.state, node.reason = INVALID, LOWER
    report = node.report()
    assert [cause.check for cause in report.root_causes] == ["driver-cuda.nvml-answers"], report.root_causes


def test_gpus_without_instances_are_the_cause() -> None:
    """Slurm counts instances, and there are none since the boot."""
    node = SlurmNode()
    node.detects(promise="gpu:14")
    node.plugins("gpu_generic.so", "gpu_nvml.so")
    for device in node.devices:
        device["fields"] = {"mig.current": True, "mig.pending": True}
    (unseen,) = node.quiet().result(COUNT).findings
    assert unseen.status is Status.UNKNOWN and "does not list the MIG devices" in unseen.summary
    node.answers.clear()
    for device in node.devices:
        device["mig_devices"] = []
    node.printed.clear()
    node.state, node.reason = INVALID, LOWER
    report = node.report()
    assert [cause.check for cause in report.root_causes] == ["sharing.mig-instances"], report.root_causes
    (found,) = report.result(COUNT).findings
    assert found.status is Status.FAIL and "finds 0 of them" in found.summary


def test_dead_driver_blocks_the_count() -> None:
    node = SlurmNode()
    node.gres = "Name=gpu Type=h100 File=/dev/nvidia[0-7]\n"
    node.answers["nvml"] = Answer(data={"init": 9})
    report = node.report()
    assert [cause.check for cause in report.root_causes] == ["driver-cuda.nvml-answers"]
    assert report.result(COUNT).status is Status.BLOCKED


def test_excerpts_of_real_nodes_are_diagnosed() -> None:
    place = SHARED / "corpus" / "issue-excerpts"
    if not place.is_dir():
        pytest.skip("the shared corpus of real captures is not here")
    node = SlurmNode()
    node.detects("nvidia")
    node.conf = (node.conf or "").replace(" Gres=gpu:h100:2", "")
    node.log = (place / "slurmd-autodetected-ignored-h100.log").read_text() + STARTED
    found = only(node, COUNT, Status.WARN)
    assert "no Gres=" in found.summary and "are being ignored" in cited(found)
    line, _, gres = (place / "slurmd-gres-duplicate.txt").read_text().partition("\n# gres.conf\n")
    node = SlurmNode()
    node.gres, node.log, node.runs = gres, line, False
    assert "duplicates" in only(node, SOUND).summary
    assert NAME.lower().replace(" ", "_") in (place / "slurmd-autodetected-ignored-h100.log").read_text()


# trace --------------------------------------------------------------------------------------------------------------

SHOW_JOB = ("scontrol", "show", "job", "-d", "397")


def traced_job(
    gres: str,
    *,
    minor: int = 1,
    shown: str | None = None,
    conf: str = "Name=gpu Type=h100 File=/dev/nvidia[0-1]\n",
    swapped: bool = False,
) -> Traced:
    """Job 397 with SLURM_JOB_GPUS=1, allowed one GPU by its device program; its controller tells `gres`.

    With `swapped` the minors do not follow the bus.
    """
    node = TraceNode()
    for at, place in enumerate(("05", "06")) if swapped else ():
        node.text(f"/proc/driver/nvidia/gpus/0000:{place}:00.0/information", f"Device Minor: {1 - at}\n")
    node.text("/proc/sys/kernel/hostname", "n1\n")
    node.process(1960, "/system.slice/slurmd.service", comm="slurmd")
    node.text("/proc/1960/cmdline", "slurmd\0-D\0-N\0n1\0")
    node.text("/etc/slurm/gres.conf", conf)
    node.text("/etc/slurm/slurm.conf", "GresTypes=gpu\nNodeName=n1 Gres=gpu:h100:2\nPartitionName=all Nodes=ALL\n")
    node.process(611, JOB)
    node.inside(
        611, "SLURM_JOB_ID=397", "SLURM_JOB_GPUS=1", "CUDA_VISIBLE_DEVICES=0", nodes=NODES, mountinfo=HOST_MOUNTS
    )
    for library in ("libcuda", "libnvidia-ml"):
        node.library(LIBRARIES, library, VERSION, pid=611, mounted=False)
    node.status(611)
    node.text("/proc/611/maps", "")
    node.rules(*GIVEN[1:], Rule(True, DeviceKind.CHAR, 195, minor, Access.READ | Access.WRITE), group=JOB)
    text = f"JobId=397 JobName=train\n   JobState=RUNNING Reason=None\n     Nodes=n1 CPU_IDs=0-7 Mem=0 GRES={gres}\n"
    node.printed[SHOW_JOB] = shown if shown is not None else text
    return node.trace("slurm:397", built=True).traced[0]


def test_trace_tells_which_gpus_slurm_gave_to_a_job() -> None:
    one = traced_job("gpu:h100:1(IDX:1)")
    asked = one.step(StepId.ASKED)
    assert asked.status is Status.PASS and asked.summary.endswith(f"Slurm gave it {UUIDS[1]}")
    assert asked.evidence[-1].where == " ".join(SHOW_JOB) and "GRES=gpu:h100:1(IDX:1)" in asked.evidence[-1].shows
    assert one.first_broken is None


def test_trace_finds_a_gpu_that_slurm_gave_and_the_rules_refuse() -> None:
    """The job's program allows GPU 0, and the controller gave it GPU 1."""
    one = traced_job("gpu:h100:1(IDX:1)", minor=0)
    assert one.first_broken is StepId.RULES
    step = one.step(StepId.RULES)
    assert "/dev/nvidia1" in step.summary
    said = " ".join(f"{remedy.say} {' '.join(remedy.run)}" for remedy in step.remedies)
    assert "scontrol requeue 397" in said and "sharing.slurm-gres" in said and OF_OTHERS.search(said) is None, said


@pytest.mark.parametrize(
    ("conf", "index", "minor", "told"),
    [
        # By the bus: NVML tells links, and each its own place in them (gpu_nvml.c).
        ("AutoDetect=nvml\n", 0, 1, True),
        # By the files' names, or by the bus: the one that is taken for full is not known.
        ("AutoDetect=nvidia\n", 0, 0, False),
        ("AutoDetect=full\n", 0, 0, False),
        # Of one that is named, and of those that are not.
        ("AutoDetect=nvml\nName=gpu Type=h100 File=/dev/nvidia0\n", 0, 0, False),
    ],
)
def test_trace_says_which_gpus_slurm_gave_where_their_order_is_certain(
    conf: str, index: int, minor: int, told: bool
) -> None:
    one = traced_job(f"gpu:h100:1(IDX:{index})", minor=minor, conf=conf, swapped=True)
    assert one.first_broken is None, one.step(StepId.RULES).summary
    assert ("Slurm gave" in one.step(StepId.ASKED).summary) is told


def test_trace_tells_that_a_job_may_open_more_than_it_was_given() -> None:
    node = traced_job("gpu:h100:1(IDX:0)")
    assert "it may open 1 more" in node.step(StepId.ASKED).summary


@pytest.mark.parametrize("shown", ["", "slurm_load_jobs error: Invalid job id specified\n"])
def test_trace_goes_on_where_the_controller_tells_nothing(shown: str) -> None:
    one = traced_job("", shown=shown)
    assert one.first_broken is None and "Slurm gave" not in one.step(StepId.ASKED).summary
