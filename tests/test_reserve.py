"""What is not read of a sleeping GPU or a stuck driver makes verdicts unknown; what was read is quoted as it is."""

import pytest

from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.testing import node, run_check
from gpudoctor.verdicts import Status
from tests.captures import Builder, diagnose

GPU = "0000:05:00.0"
PORT = "/sys/devices/pci0000:00/0000:00:01.0"
PLACE = f"{PORT}/{GPU}"
DEVICES = "/sys/bus/pci/devices"


def _node(runtime_status: str | None = "active") -> tuple[Builder, RecordedNode]:
    """One H100 of eight lanes where sixteen are possible, held by the open module."""
    builder = Builder()
    builder.function(GPU, PLACE, "nvidia")
    builder.function("0000:00:01.0", PORT, "pcieport")
    for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200"), ("current_link_width", "8")):
        builder.text(f"{PLACE}/{name}", f"{value}\n")
    for place, name in ((PLACE, "max_link_width"), (PORT, "max_link_width"), (PORT, "current_link_width")):
        builder.text(f"{place}/{name}", "16\n")
    for name, value in (("vendor", "0x8086"), ("device", "0x352a"), ("class", "0x060400")):
        builder.text(f"{PORT}/{name}", f"{value}\n")
    if runtime_status is not None:
        builder.text(f"{PLACE}/power/runtime_status", f"{runtime_status}\n")
    builder.text("/proc/modules", "nvidia 1000 0 - Live 0x0\n")
    return builder, RecordedNode(builder.tree, complete=(DEVICES,))


@pytest.mark.parametrize("status", ["active", None])
def test_a_narrow_link_of_a_gpu_that_is_awake_or_only_recorded_is_found(status: str | None) -> None:
    (finding,) = diagnose(_node(status)[1]).result("pcie.link-width").findings
    assert (finding.status, finding.subject.key) == (Status.WARN, GPU)
    assert "8 of 16 lanes" in finding.summary


def test_the_link_of_a_sleeping_gpu_is_not_judged() -> None:
    (finding,) = diagnose(_node("suspended")[1]).result("pcie.link-width").findings
    assert (finding.status, finding.subject.key, finding.why) == (Status.UNKNOWN, GPU, "withheld")


@pytest.mark.parametrize("check", ["kernel-module.flavour-fits", "kernel-module.gsp-firmware"])
def test_a_loaded_module_that_does_not_say_its_version_is_not_taken_for_none(check: str) -> None:
    builder, recorded = _node()
    builder.tree.put("/proc/driver/nvidia/version", Record(error="not read: the doctor was out of time"))
    result = diagnose(recorded).result(check)
    assert result.status is Status.UNKNOWN
    assert "/proc/driver/nvidia/version" in result.detail


def test_the_first_bytes_of_config_space_are_quoted_as_bytes() -> None:
    first = run_check("pcie.gpu-responds", node("h100x8")).findings[0]
    assert first.evidence[0].shows.startswith("begins with de 10 30 23")
