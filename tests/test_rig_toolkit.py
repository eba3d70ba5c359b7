"""What real nvidia-ctk 1.14 to 1.20 printed and wrote beside the files that other tests judge: logs, versions, specs of sick nodes."""

import re
from pathlib import Path

import pytest

from gpudoctor.facts.cdi_refresh import OUTPUT
from gpudoctor.facts.cdi_spec import CdiSpec
from gpudoctor.facts.nvidia_smi import answer_from, together
from gpudoctor.facts.raw import CommandOutput
from gpudoctor.facts.software import TOOLKIT as PRODUCT
from gpudoctor.facts.software import Software, Version
from gpudoctor.report import Report
from gpudoctor.verdicts import Status
from tests.captures import crashed, fact
from tests.containerd_node import CONFIG_CHECK, LOADED_CHECK, RUNTIME_CHECK, ContainerdNode
from tests.rig_docker import SPEC, TOOLKIT, UUIDS, Reader, RigNode, alarms
from tests.test_cdi_corpus import parsed

pytestmark = pytest.mark.skipif(not TOOLKIT.is_dir(), reason=f"{TOOLKIT} is not here")

RELEASES = ("1.14.6", "1.17.8", "1.18.2", "1.20.0")
SICK = TOOLKIT / "sick"
CONFIGURED = sorted(path for path in TOOLKIT.glob("*/*.log") if not path.name.startswith("cdi"))
GENERATED = sorted(TOOLKIT.glob("*/cdi*.log"))
PRINTED = sorted(SICK.glob("nvidia-smi*"))
CONTAINERDS = ("1.6.20", "2.1.9")
REFRESH = "nvidia-cdi-refresh"


def read(path: Path) -> str:
    """The content of a file."""
    return path.read_text("utf-8")


def told(report: Report) -> dict[str, str]:
    """What each alarm says, by its id."""
    assert crashed(report) == []
    return {finding.id: finding.summary for finding in alarms(report)}


# versions ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_the_toolkit_tells_its_version(release: str) -> None:
    node = RigNode(Reader())
    del node.packages["nvidia-container-toolkit"]
    argv = ("/usr/bin/nvidia-ctk", *PRODUCT.arguments)
    node.commands[argv] = CommandOutput(argv, 0, read(TOOLKIT / release / "version.txt"))
    version = fact(node.recorded(), Software).of(PRODUCT)
    assert isinstance(version, Version)
    assert ".".join(map(str, version.numbers)) == release


# nvidia-ctk runtime configure -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", CONFIGURED, ids=lambda log: f"{log.parent.name}-{log.stem}")
def test_a_log_names_the_file_that_lies_beside_it(log: Path) -> None:
    """So the paths that the other tests take from the names of the files are those that nvidia-ctk wrote to."""
    said = read(log)
    files = {path.name.removeprefix(log.stem) for path in log.parent.glob(f"{log.stem}_etc_*")}
    if "rc=1" in said:
        assert "unsupported config version: 3" in said and log.parent.name == "1.14.6"
        assert files == {"_etc_containerd_config.toml"}
        return
    (written,) = re.findall(r'Wrote updated config to (\S+)"', said)
    assert written.replace("/", "_") in files, (written, files)


def test_all_logs_are_there() -> None:
    assert (len(CONFIGURED), len(GENERATED)) == (112, 12)


# nvidia-ctk cdi generate ------------------------------------------------------------------------------------------------


def refreshed(lines: str, *, failed: bool) -> str:
    """What nvidia-ctk printed as the journal of the unit that runs it."""
    stamp = "2026-11-29T17:20:23+0000 vm"
    said = [f"{stamp} nvidia-ctk[900]: {line}\n" for line in lines.splitlines() if line.startswith("time=")]
    what = "Refresh NVIDIA CDI specification file"
    end = f"{REFRESH}.service: Failed with result 'exit-code'." if failed else f"Finished {REFRESH}.service - {what}."
    begin = f"{stamp} systemd[1]: Starting {REFRESH}.service - {what}...\n"
    return "".join((begin, *said, f"{stamp} systemd[1]: {end}\n"))


def node_with(printed: str, spec: str, *, failed: bool = False) -> RigNode:
    """A node whose only spec was made by the unit, which printed this."""
    node = RigNode(Reader())
    node.without(SPEC)
    unit = f"/etc/systemd/system/{REFRESH}.service"
    node.text(unit, "[Unit]\n")
    node.link(f"/etc/systemd/system/multi-user.target.wants/{REFRESH}.service", unit)
    node.program("/usr/bin/nvidia-smi")
    if spec:
        node.spec(spec)
        node.without(SPEC)
        node.at(OUTPUT, spec, 100)
    node.logs[f"journal/{REFRESH}.service.log"] = refreshed(printed, failed=failed)
    return node


@pytest.mark.parametrize("log", GENERATED, ids=lambda log: f"{log.parent.name}-{log.stem}")
def test_what_nvidia_ctk_prints_while_all_is_well_is_no_failure(log: Path) -> None:
    """It warns of some twenty files that most nodes do not have, and names the newest version that it knows, not the one it writes."""
    printed, spec = read(log), read(log.with_suffix(".yaml"))
    assert "level=warning" in printed
    newest, written = re.findall(
        r"(?:Generated CDI spec with version|^cdiVersion:) ([\d.]+)", printed + spec, re.MULTILINE
    )
    assert [int(number) for number in newest.split(".")] >= [int(number) for number in written.split(".")]
    report = node_with(printed, spec).diagnose()
    assert told(report) == {}
    for check in ("cdi-refresh", "cdi-specs-load", "cdi-specs-current", "docker-cdi"):
        assert report.result(f"toolkit.{check}").status is Status.PASS, check


SICK_SPECS = {
    "gpu2-ecc_uncorrectable": {},
    "gpu2-fallen_off_bus": {},
    "gpu2-lost": {},
    "missing-node3": {f"toolkit.cdi-specs-current@file:{OUTPUT}": f"no device of it brings {UUIDS[3]}"},
    "missing-uvm": {f"toolkit.cdi-specs-current@file:{OUTPUT}": "it gives GPUs without /dev/nvidia-uvm, which is here"},
}
"""What remains of a sick moment in the spec that was made in it, on the node that is whole again; a GPU's illness leaves nothing."""
REFUSED = {
    "no-nvml": "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND",
    "real-nvml-no-driver": "failed to initialize NVML: Driver Not Loaded",
}


@pytest.mark.parametrize("name", SICK_SPECS)
def test_a_spec_that_was_made_on_a_sick_node_is_judged_by_what_it_lacks(name: str) -> None:
    printed = read(SICK / f"cdi-generate.{name}.txt")
    before, _, rest = printed.partition("\n---\n")
    spec = "---\n" + rest.partition("\ntime=")[0].partition("\nrc=")[0] + "\n"
    assert isinstance(parsed(SICK, spec), CdiSpec)
    found = told(node_with(before, spec).diagnose())
    assert set(found) == set(SICK_SPECS[name]), found
    assert all(words in found[key] for key, words in SICK_SPECS[name].items()), found


@pytest.mark.parametrize("name", REFUSED)
def test_a_spec_that_could_not_be_made_is_told_with_nvidia_ctks_words(name: str) -> None:
    found = told(node_with(read(SICK / f"cdi-generate.{name}.txt"), "", failed=True).diagnose())
    assert set(found) == {f"toolkit.cdi-refresh@service:{REFRESH}", "toolkit.docker-cdi@service:docker"}
    assert REFUSED[name] in found[f"toolkit.cdi-refresh@service:{REFRESH}"]


def test_a_spec_that_was_made_before_all_nodes_were_there_is_right_as_long_as_they_are_not() -> None:
    printed = read(SICK / "cdi-generate.missing-uvm.txt")
    spec = "---\n" + printed.partition("\n---\n")[2].partition("\ntime=")[0].partition("\nrc=")[0] + "\n"
    node = node_with(printed, spec)
    node.without("/dev/nvidia-uvm")
    assert [key for key in told(node.diagnose()) if key.startswith("toolkit.")] == []


# nvidia-smi of the same moments -----------------------------------------------------------------------------------------

ARGUMENTS = {
    "nvidia-smi": "",
    "nvidia-smi-L": "-L",
    "nvidia-smi-query": "--query-gpu=index,uuid,pci.bus_id,temperature.gpu --format=csv",
}
LOST = "the GPU has fallen off the bus or is otherwise inaccessible (15)"
GPU2 = "driver-cuda.queries-answered@gpu:0000:4a:00.0"
COUNTED = "health.ecc-uncorrected@gpu:0000:4a:00.0"


@pytest.mark.parametrize("path", PRINTED, ids=lambda path: path.stem)
def test_what_nvidia_smi_printed_of_a_sick_gpu_is_judged(path: Path) -> None:
    kind, _, moment = path.stem.partition(".")
    body, _, code = read(path).rpartition("rc=")
    answer = answer_from(ARGUMENTS[kind], body, int(code))
    assert answer is not None
    node = RigNode(Reader())
    node.answers["nvml"] = answer
    found = told(node.diagnose())
    if moment == "real-nvml-no-driver":
        assert len(found) == 8
        assert all("NVML does not start (9)" in summary for summary in found.values()), found
    elif kind == "nvidia-smi-L" or moment == "gpu2-ecc_uncorrectable":
        # A list of names shows no illness, and neither do temperatures.
        assert set(found) == ({COUNTED} if kind == "nvidia-smi" else set())
        assert (answer.data["init"], len(answer.data["devices"])) == (0, 8)
    else:
        assert set(found) == {GPU2} and LOST in found[GPU2], found


@pytest.mark.parametrize("moment", ["gpu2-lost", "gpu2-fallen_off_bus", "gpu2-ecc_uncorrectable"])
def test_all_that_nvidia_smi_printed_of_one_moment_is_one_answer(moment: str) -> None:
    answers = []
    for kind, arguments in ARGUMENTS.items():
        body, _, code = read(SICK / f"{kind}.{moment}.txt").rpartition("rc=")
        answer = answer_from(arguments, body, int(code))
        assert answer is not None
        answers.append(answer)
    node, whole = RigNode(Reader()), together(answers)
    assert whole is not None
    node.answers["nvml"] = whole
    report = node.diagnose()
    assert set(told(report)) == ({COUNTED} if "ecc" in moment else {GPU2})
    answered = report.result("driver-cuda.nvml-answers").findings
    assert [finding.status for finding in answered] == [Status.PASS] * 8


# containerd's own defaults ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", CONTAINERDS)
def test_containerds_own_default_is_silent(release: str) -> None:
    node = ContainerdNode(f"{release}-1", toolkit=False)
    node.config(read(TOOLKIT / f"containerd-{release}.config-default.toml"))
    report = node.diagnose()
    assert crashed(report) == []
    checks = (CONFIG_CHECK, RUNTIME_CHECK, LOADED_CHECK)
    assert not [check for check in checks if report.result(check).status in (Status.WARN, Status.FAIL)]
    assert report.result(CONFIG_CHECK).status is Status.PASS
