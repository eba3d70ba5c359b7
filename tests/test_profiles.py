"""Expected hardware and versions: the table of profiles, what a machine tells of itself, and the checks that compare."""

import datetime
import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from gpudoctor.config import Config, ConfigError, from_json
from gpudoctor.facts.expectations import Expectations
from gpudoctor.facts.pci_link import SPEEDS, WIDTHS
from gpudoctor.facts.raw import Entry, EntryType
from gpudoctor.knowledge import profiles
from gpudoctor.knowledge.architectures import Flavour, architecture
from gpudoctor.report import Finding, Report, Result
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.sources.snapshot import Snapshot
from gpudoctor.testing import node, run_node
from gpudoctor.verdicts import Status, Why
from tests.blinding import BlindedNode, whole_node
from tests.captures import Builder, fact
from tests.conftest import SHARED
from tests.sweeping import recorded_nodes, thinned
from tests.test_ablation import _candidates, _still_citing, ablation

PRESENT, HARDWARE, VERSIONS = "pcie.gpus-present", "pcie.hardware-profile", "driver-cuda.expected-versions"
DMI = "/sys/class/dmi/id"
DEVICES = "/sys/bus/pci/devices"
SUPPORTED = SHARED / "corpus" / "driver-support" / "nvidia-open-supported-devices-595.txt"

EIGHT_GPU_BOARDS = {
    "h100x8": "hgx-h100-8",
    "h100x8-minors-shuffled": "hgx-h100-8",
    "modes-restricted-by-policy": "hgx-h100-8",
    "hgx-a100x8": "dgx-a100",
    "h200-hgx-x8": "hgx-h200-8",
}
"""Healthy nodes that tell what they are."""


def config(**expect: object) -> Config:
    """A configuration that expects something."""
    return from_json({"expect": expect}, "test", ())


def changed(name: str, texts: Mapping[str, str | None]) -> Snapshot:
    """A recorded node with other texts at some paths; None removes what was there."""
    recorded = node(name)
    for path, text in texts.items():
        place = recorded._resolve(path, follow=text is not None)
        assert isinstance(place, str), path
        gone = Record(error="ENOENT")
        recorded.tree.put(place, gone if text is None else Record(entry=Entry(place, EntryType.FILE), text=text))
    recorded._resolved = {"": ""}
    return recorded


def result(check: str, recorded: Snapshot, expect: Config | None = None) -> Result:
    """How a check ends, nothing being expected unless it is said."""
    return run_node(recorded, Config() if expect is None else expect).result(check)


def only(found: Result) -> Finding:
    """The single finding."""
    assert len(found.findings) == 1, [finding.summary for finding in found.findings]
    return found.findings[0]


def cited(finding: Finding) -> str:
    """All evidence as one text."""
    return "\n".join(f"{evidence.where}: {evidence.shows}" for evidence in finding.evidence)


def machine(
    gpus: Mapping[str, str],
    *,
    vendor: str = "",
    product: str = "",
    switches: tuple[str, ...] = (),
    guest: bool | None = None,
    port: tuple[str, str] | None = ("16", "32.0 GT/s PCIe"),
) -> RecordedNode:
    """A node with these GPUs (device id by bus number), each below a root port of its own that allows these lanes and this speed."""
    builder = Builder()
    functions = [(bus, device, "0x030200") for bus, device in gpus.items()]
    functions += [(f"{0xE0 + at:02x}", device, "0x068000") for at, device in enumerate(switches)]
    for at, (bus, device, class_code) in enumerate(functions):
        above = f"/sys/devices/pci0000:00/0000:00:{at:02x}.0"
        place = f"{above}/0000:{bus}:00.0" if port else f"/sys/devices/pci0000:{bus}/0000:{bus}:00.0"
        builder.function(f"0000:{bus}:00.0", place, "nvidia")
        ids = {"vendor": "0x10de", "device": f"0x{device}", "class": class_code, "power/runtime_status": "active"}
        link = {"max_link_width": "16", "max_link_speed": "32.0 GT/s PCIe", "current_link_width": "16"}
        for attribute, text in (ids | link).items():
            builder.text(f"{place}/{attribute}", f"{text}\n")
        if port:
            builder.link(f"{DEVICES}/0000:00:{at:02x}.0", f"../../..{above.removeprefix('/sys')}")
            for attribute, text in {"vendor": "0x8086", "class": "0x060400", "max_link_width": port[0]}.items():
                builder.text(f"{above}/{attribute}", f"{text}\n")
            builder.text(f"{above}/max_link_speed", f"{port[1]}\n")
    builder.text("/proc/sys/kernel/osrelease", "6.8.0-1021-generic\n")
    for name, text in (("sys_vendor", vendor), ("product_name", product)):
        if text:
            builder.text(f"{DMI}/{name}", f"{text}\n")
    if guest is not None:
        builder.text("/proc/cpuinfo", f"processor\t: 0\nflags\t\t: fpu vme{' hypervisor' if guest else ''}\n")
    return RecordedNode(builder.tree, complete=(DEVICES, "/sys/devices"))


def diagnosed(recorded: RecordedNode, expect: Config | None = None) -> Report:
    """The whole report on a built node."""
    from gpudoctor.registry import built_in
    from gpudoctor.run import Selection, run

    now = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
    return run(recorded, Config() if expect is None else expect, built_in(), Selection(), now)


def eight(device: str, count: int = 8) -> dict[str, str]:
    """GPUs of one kind by bus number."""
    return {f"{0x10 + at:02x}": device for at in range(count)}


# The table --------------------------------------------------------------------------------------------------------


def test_every_profile_is_valid_and_has_a_dated_source() -> None:
    known = list(profiles.profiles())
    assert len(known) >= 140
    for profile in known:
        assert profile.source.where and datetime.date.fromisoformat(profile.source.date).year >= 2025, profile
        assert 1 <= profile.gpus <= 16 and profile.model, profile
        assert profile.device_ids and all(re.fullmatch(r"[0-9a-f]{4}", each) for each in profile.device_ids), profile
        assert all(architecture(device_id) is not None for device_id in profile.device_ids), profile
        assert (profile.switch_id != "") == bool(profile.switches), profile
        assert profile.lanes is None or profile.lanes in WIDTHS, profile
        assert profile.generation is None or 1 <= profile.generation <= len(SPEEDS), profile


def test_names_of_profiles_are_unique_also_without_regard_to_case() -> None:
    names = profiles.names()
    assert len({name.lower() for name in names}) == len(names)
    assert all(profiles.profile(name) is not None for name in names)
    assert profiles.profile("hgx-h100-9") is None


def test_an_instance_type_counts_only_with_its_own_vendor() -> None:
    p5 = profiles.of_product("Amazon EC2", "p5.48xlarge")
    assert p5 is not None and (p5.gpus, p5.device_ids) == (8, ("2330",))
    assert profiles.of_product("QEMU", "p5.48xlarge") is None
    assert profiles.of_product("Amazon EC2", "a3-highgpu-8g") is None
    # A part of a GPU, and a type that is in no table.
    assert profiles.of_product("Amazon EC2", "g6f.xlarge") is None
    assert profiles.of_product("Amazon EC2", "p9.48xlarge") is None


@pytest.mark.skipif(not SUPPORTED.is_file(), reason="the corpus is not here")
def test_every_gpu_that_the_driver_supports_has_an_architecture() -> None:
    ids = re.findall(r"^0x([0-9A-F]{4}) ", SUPPORTED.read_text(), re.MULTILINE)
    assert len(ids) > 500
    assert [device_id for device_id in ids if architecture(device_id) is None] == []


def test_grace_hopper_is_told_from_hopper_and_blackwell_ultra_needs_open_modules() -> None:
    assert architecture("2345") == ("Grace Hopper", Flavour.OPEN)
    assert architecture("2335") == ("Hopper", Flavour.EITHER)
    assert architecture("31c3") == ("Blackwell Ultra", Flavour.OPEN)
    assert architecture("2c3a") == ("Blackwell", Flavour.OPEN)


# The configuration ------------------------------------------------------------------------------------------------


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no profile 'hgx-h100x8'; did you mean 'hgx-h100-8'\?"):
        config(profile="hgx-h100x8")
    with pytest.raises(ConfigError, match=r"did you mean 'Standard_ND96isr_H100_v5'\?"):
        config(profile="ND96isr_H100_v5")
    with pytest.raises(ConfigError, match=r"known are: hgx-a100-4, .* and \d+ more$"):
        config(profile="~~~")


@pytest.mark.parametrize("expect", [{"driver": [""]}, {"vbios": ["."]}, {"driver_denied": [" "]}, {"driver": "580"}])
def test_versions_must_be_lists_of_versions(expect: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"expect\.driver|expect\.vbios"):
        from_json({"expect": expect}, "test", ())


def test_the_configuration_survives_a_snapshot() -> None:
    whole = config(profile="dgx-b200", driver=["580"], driver_denied=["570.86"], vbios=["97.00"], gpus=7)
    assert from_json(whole.to_json(), "snapshot.json", ()) == whole


def test_the_table_is_loaded_only_when_a_profile_is_named() -> None:
    script = (
        "import sys\nfrom gpudoctor.config import from_json\n"
        "from_json({'expect': {'gpus': 8, 'driver': ['580']}}, 'x', ())\n"
        "print('gpudoctor.knowledge.profiles' in sys.modules)\n"
        "from_json({'expect': {'profile': 'hgx-h100-8'}}, 'x', ())\n"
        "print('gpudoctor.knowledge.profiles' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_expect_gpus_wins_over_the_profile() -> None:
    from gpudoctor.facts.desk import Desk

    desk = Desk(node("h100x8"), config(profile="hgx-h100-8", gpus=7))
    expected = desk.get(Expectations)
    assert isinstance(expected, Expectations)
    assert expected.gpus == 7 and expected.cite("gpus")[0].shows == "expect.gpus = 7"
    assert "8 H100 SXM5 (10de:2330, 10de:2338), 4 NVSwitches (10de:22a3)" in expected.cite("profile")[0].shows


# Present ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "profile"), EIGHT_GPU_BOARDS.items())
def test_a_whole_board_passes_and_offers_its_profile(name: str, profile: str) -> None:
    finding = only(result(PRESENT, node(name)))
    assert finding.status is Status.PASS
    assert finding.summary == f"8 GPUs on the PCI bus; looks like {profile} (expect.profile)"


@pytest.mark.parametrize("name", ["dgx-b200x8", "gb200-tray", "v100x8", "l40s-x4", "t4-cloud-guest", "l4-cloud-guest"])
def test_a_machine_that_tells_nothing_passes_without_an_offer(name: str) -> None:
    finding = only(result(PRESENT, node(name)))
    assert finding.status is Status.PASS and "looks like" not in finding.summary


def test_seven_of_eight_beside_four_switches_warn_and_name_the_switches() -> None:
    report = run_node(node("seven-of-eight-expected"), Config())
    finding = only(report.result(PRESENT))
    assert (finding.status, finding.subject.key) == (Status.WARN, "node")
    assert finding.cause == "fewer-than-the-machine-has"
    assert finding.summary == "7 GPUs on the PCI bus; this looks like hgx-h100-8, which has 8"
    assert cited(finding).count("0x22a3") == 4 and "/proc/cpuinfo: no flag hypervisor" in cited(finding)
    assert any("expect.gpus = 7" in line for remedy in finding.remedies for line in remedy.run)
    assert [cause.check for cause in report.root_causes] == [PRESENT]


def test_a_gpu_held_back_on_purpose_is_silenced_by_saying_so() -> None:
    finding = only(result(PRESENT, node("seven-of-eight-expected"), config(gpus=7)))
    assert (finding.status, finding.summary) == (Status.PASS, "7 GPUs on the PCI bus, as expected")


def test_the_profiles_count_is_expected() -> None:
    finding = only(result(PRESENT, node("seven-of-eight-expected"), config(profile="hgx-h100-8")))
    assert (finding.status, finding.summary) == (Status.FAIL, "7 of 8 expected GPUs on the PCI bus")
    assert "expect.profile = 'hgx-h100-8': 8 GPUs" in cited(finding)


def test_the_last_words_of_the_missing_gpu_are_cited() -> None:
    finding = only(result(PRESENT, node("gpu-missing-with-last-xid"), Config()))
    assert finding.status is Status.WARN and "Xid" in cited(finding)


def test_in_a_virtual_machine_switches_tell_nothing() -> None:
    guest = "processor\t: 0\nflags\t\t: fpu hypervisor\n"
    finding = only(result(PRESENT, changed("seven-of-eight-expected", {"/proc/cpuinfo": guest})))
    assert (finding.status, finding.summary) == (Status.PASS, "7 GPUs on the PCI bus")


def test_where_nobody_tells_whether_it_is_a_virtual_machine_switches_tell_nothing() -> None:
    finding = only(diagnosed(machine(eight("2330", 7), switches=("22a3",) * 4)).result(PRESENT))
    assert (finding.status, finding.summary) == (Status.PASS, "7 GPUs on the PCI bus")


def test_one_switch_left_still_tells_of_a_board() -> None:
    finding = only(diagnosed(machine(eight("20b2", 6), switches=("1af1",), guest=False)).result(PRESENT))
    assert (finding.status, finding.summary) == (
        Status.WARN,
        "6 GPUs on the PCI bus; this looks like hgx-a100-8, which has 8",
    )


@pytest.mark.parametrize(
    ("gpus", "switches"),
    [
        (eight("20b2", 12), ("1af1",) * 12),  # two boards
        (eight("230e", 7), ("22a3",) * 4),  # H20 NVL16, of which no profile is known
        (eight("2330", 6) | {"80": "2335"}, ("22a3",) * 4),  # no board carries both
        (eight("2331", 2), ()),  # PCIe boards
    ],
)
def test_what_no_known_board_carries_is_not_judged(gpus: dict[str, str], switches: tuple[str, ...]) -> None:
    finding = only(diagnosed(machine(gpus, switches=switches, guest=False)).result(PRESENT))
    assert (finding.status, finding.summary) == (Status.PASS, f"{len(gpus)} GPUs on the PCI bus")


def test_an_ec2_instance_with_fewer_gpus_than_its_type_warns_and_cites_dmi() -> None:
    built = machine(eight("2330", 7), vendor="Amazon EC2", product="p5.48xlarge", guest=True)
    finding = only(diagnosed(built).result(PRESENT))
    assert (finding.status, finding.summary) == (
        Status.WARN,
        "7 GPUs on the PCI bus; this looks like p5.48xlarge, which has 8",
    )
    assert f"{DMI}/product_name: p5.48xlarge" in cited(finding)
    assert any("Stop the instance" in remedy.say for remedy in finding.remedies)


@pytest.mark.parametrize(
    ("product", "count", "said"),
    [
        ("g4dn.metal", 8, "8 GPUs on the PCI bus; looks like g4dn.metal (expect.profile)"),
        ("g5.xlarge", 1, "1 GPU on the PCI bus; looks like g5.xlarge (expect.profile)"),
        ("g5.xlarge", 2, "2 GPUs on the PCI bus"),
        ("g6f.xlarge", 1, "1 GPU on the PCI bus"),
        ("p99.48xlarge", 3, "3 GPUs on the PCI bus"),
    ],
)
def test_ec2_instances_that_have_what_they_should_pass(product: str, count: int, said: str) -> None:
    finding = only(diagnosed(machine(eight("1eb8", count), vendor="Amazon EC2", product=product)).result(PRESENT))
    assert (finding.status, finding.summary) == (Status.PASS, said)


def test_a_dgx_with_a_dead_gpu_warns_by_its_name() -> None:
    built = machine(eight("2330", 7), vendor="NVIDIA", product="DGXH100", guest=False)
    finding = only(diagnosed(built).result(PRESENT))
    assert finding.summary == "7 GPUs on the PCI bus; this looks like dgx-h100, which has 8"
    guest = machine(eight("2330", 4), vendor="NVIDIA", product="DGXH100", guest=True)
    assert only(diagnosed(guest).result(PRESENT)).status is Status.PASS


def test_a_partial_listing_raises_no_alarm() -> None:
    built = machine(eight("2330", 7), vendor="Amazon EC2", product="p5.48xlarge", guest=True)
    partial = RecordedNode(built.tree, complete=("/sys/devices",))
    finding = only(diagnosed(partial).result(PRESENT))
    assert (finding.status, finding.summary) == (Status.PASS, "7 GPUs on the PCI bus, perhaps more")


# Hardware ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "profile", "said"),
    [
        ("h100x8", "hgx-h100-8", "H100 SXM5; 4 NVSwitches on PCI; links allow x16 at 32.0 GT/s"),
        ("h100x8", "dgx-h100", "H100 SXM5; 4 NVSwitches on PCI; links allow x16 at 32.0 GT/s"),
        ("h100x8", "BM.GPU.H100.8", "H100 SXM5; links allow x16"),
        ("hgx-a100x8", "hgx-a100-8", "A100 SXM4; 6 NVSwitches on PCI; links allow x16 at 16.0 GT/s"),
        ("hgx-a100x8", "BM.GPU.A100-v2.8", "A100 SXM4; links allow x16"),
        ("dgx-b200x8", "dgx-b200", "B200 SXM; no NVSwitches on PCI; links allow x16 at 32.0 GT/s"),
        ("gb200-tray", "gb200-tray", "GB200; no NVSwitches on PCI; links allow x16"),
        ("gb300-tray", "gb300-tray", "GB300; no NVSwitches on PCI; links allow x16"),
        ("h200-hgx-x8", "hgx-h200-8", "H200 SXM; 4 NVSwitches on PCI; links allow x16 at 32.0 GT/s"),
        ("a10g-aws-g5", "g5.xlarge", "A10G"),
        ("l4-cloud-guest", "g2-standard-12", "L4"),
        ("t4-cloud-guest", "Standard_NC4as_T4_v3", "T4"),
        ("a100-pcie-mig", "Standard_NC48ads_A100_v4", "A100 PCIe 80GB"),
        ("l40s-x4", "BM.GPU.L40S.4", "L40S; links allow x16"),
        ("v100x8", "Standard_ND40rs_v2", "V100 32GB"),
    ],
)
def test_healthy_nodes_match_their_profile(name: str, profile: str, said: str) -> None:
    before, report = run_node(node(name), Config()), run_node(node(name), config(profile=profile))
    finding = only(report.result(HARDWARE))
    assert (finding.status, finding.summary) == (Status.PASS, f"{profile}: {said}")
    assert report.result(PRESENT).status is Status.PASS
    assert (report.verdict, report.exit_code) == (before.verdict, before.exit_code)


@pytest.mark.parametrize("name", thinned(recorded_nodes()))
def test_without_a_profile_nothing_is_said(name: str) -> None:
    assert result(HARDWARE, node(name)).status is Status.SKIP
    assert result(VERSIONS, node(name)).status is Status.SKIP


def test_another_model_fails_and_names_both() -> None:
    finding = only(result(HARDWARE, node("h100x8"), config(profile="hgx-h200-8")))
    assert (finding.status, finding.cause) == (Status.FAIL, "other-model")
    assert finding.summary.startswith("8 of 8 GPUs: 10de:2330, the profile has 8 H200 SXM (10de:2335)")
    assert "device: 0x2330" in cited(finding)


def test_one_board_of_another_model_is_named() -> None:
    built = machine(eight("2330", 7) | {"80": "2331"})
    finding = only(diagnosed(built, config(profile="p5.48xlarge")).result(HARDWARE))
    assert finding.status is Status.FAIL
    assert finding.summary.startswith("1 of 8 GPUs (0000:80:00.0): 10de:2331")


def test_a_missing_nvswitch_fails() -> None:
    built = machine(eight("2330"), switches=("22a3",) * 3, guest=False)
    report = diagnosed(built, config(profile="hgx-h100-8"))
    finding = only(report.result(HARDWARE))
    assert (finding.status, finding.cause) == (Status.FAIL, "missing-switches")
    assert finding.summary == "3 of 4 NVSwitches (10de:22a3) on the PCI bus"
    assert report.result(PRESENT).status is Status.PASS


def test_a_guest_is_not_asked_for_nvswitches_and_links() -> None:
    built = machine(eight("2330"), guest=True, port=("1", "2.5 GT/s PCIe"))
    finding = only(diagnosed(built, config(profile="hgx-h100-8")).result(HARDWARE))
    assert (finding.status, finding.summary) == (Status.PASS, "hgx-h100-8: H100 SXM5")


def test_more_nvswitches_than_the_profile_has_warn() -> None:
    built = machine(eight("2901"), switches=("22a3",) * 4, guest=False)
    finding = only(diagnosed(built, config(profile="hgx-b200-8")).result(HARDWARE))
    assert (finding.status, finding.cause) == (Status.WARN, "more-switches")


@pytest.mark.parametrize("port", [("8", "32.0 GT/s PCIe"), ("16", "16.0 GT/s PCIe")])
def test_a_slot_that_allows_less_warns(port: tuple[str, str]) -> None:
    built = machine(eight("2335"), switches=("22a3",) * 4, guest=False, port=port)
    report = diagnosed(built, config(profile="hgx-h200-8"))
    finding = only(report.result(HARDWARE))
    assert (finding.status, finding.cause) == (Status.WARN, "lesser-links")
    assert "8 of 8 GPUs do not allow x16 at 32.0 GT/s" in finding.summary
    assert port[0 if port[0] == "8" else 1] in cited(finding)


def test_a_link_below_what_it_could_do_is_another_checks_finding() -> None:
    report = run_node(node("narrow-link-at-gpu"), config(profile="hgx-h100-8"))
    assert report.result(HARDWARE).status is Status.PASS
    assert [cause.check for cause in report.root_causes] == ["pcie.link-width"]


def test_a_bare_metal_board_whose_nature_nobody_tells_is_unknown() -> None:
    built = machine(eight("2330"), switches=("22a3",) * 4)
    finding = only(diagnosed(built, config(profile="hgx-h100-8")).result(HARDWARE))
    assert finding.status is Status.UNKNOWN and "virtual machine" in finding.summary
    # A profile that counts neither switches nor lanes need not know.
    assert diagnosed(built, config(profile="p5.48xlarge")).result(HARDWARE).status is Status.PASS


def test_links_that_tell_nothing_are_unknown() -> None:
    built = machine(eight("2330"), switches=("22a3",) * 4, guest=False, port=None)
    finding = only(diagnosed(built, config(profile="hgx-h100-8")).result(HARDWARE))
    assert (finding.status, finding.why) == (Status.UNKNOWN, Why.UNREADABLE)


def test_without_gpus_there_is_nothing_to_compare() -> None:
    report = run_node(node("no-nvidia-on-pci"), config(profile="hgx-h100-8"))
    assert report.result(HARDWARE).status is Status.SKIP
    assert report.result(PRESENT).status is Status.FAIL


# Versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ["550.163.01", "550.163", "550.", "550"])
def test_a_version_and_its_beginnings_are_expected(entry: str) -> None:
    finding = only(result(VERSIONS, node("h100x8"), config(driver=["580", entry])))
    assert (finding.status, finding.summary) == (Status.PASS, "driver 550.163.01")
    assert "/proc/driver/nvidia/version" in cited(finding)


@pytest.mark.parametrize("entry", ["55", "550.16", "550.163.0", "580", "550.163.01.1"])
def test_another_version_warns(entry: str) -> None:
    finding = only(result(VERSIONS, node("h100x8"), config(driver=[entry])))
    assert (finding.status, finding.cause) == (Status.WARN, "other-driver")
    assert finding.summary == f"driver 550.163.01, expected {entry}"


def test_a_denied_version_fails_and_breaks_nothing() -> None:
    report = run_node(node("h100x8"), config(driver=["550"], driver_denied=["550.163"]))
    finding = only(report.result(VERSIONS))
    assert (finding.status, finding.cause) == (Status.FAIL, "driver-denied")
    assert "550.163.01" in finding.summary and "expect.driver_denied = ('550.163',)" in cited(finding)
    assert report.result("toolkit.docker-runtime").status is Status.PASS
    assert result(VERSIONS, node("h100x8"), config(driver_denied=["550.90"])).status is Status.PASS


def test_vbios_of_every_gpu_is_compared_and_the_others_are_named() -> None:
    expect = config(vbios=["96.00.89.00"])
    assert only(result(VERSIONS, node("h100x8"), expect)).summary == "VBIOS of 8 GPUs"
    path = "/proc/driver/nvidia/gpus/0000:2a:00.0/information"
    text = node("h100x8").read(path)
    other = changed("h100x8", {path: text.text.replace("96.00.89.00.01", "96.00.A5.00.01")})  # type: ignore[union-attr]
    finding = only(result(VERSIONS, other, expect))
    assert (finding.status, finding.cause) == (Status.WARN, "other-vbios")
    assert finding.summary == "VBIOS 96.00.A5.00.01 on 1 of 8 GPUs (0000:2a:00.0), expected 96.00.89.00"
    assert result(VERSIONS, other, config(vbios=["96.00.89", "96.00.a5"])).status is Status.PASS


def test_both_are_judged_side_by_side() -> None:
    found = result(VERSIONS, node("h100x8"), config(driver=["580"], vbios=["96"]))
    assert [finding.status for finding in found.findings] == [Status.WARN, Status.PASS]


def test_no_module_no_version() -> None:
    assert result(VERSIONS, node("module-not-loaded"), config(driver=["580"], vbios=["96"])).status is Status.SKIP


def test_an_unread_version_is_unknown() -> None:
    hidden = BlindedNode("h100x8", "/proc/driver/nvidia/version")
    finding = only(diagnosed(hidden, config(driver=["550"])).result(VERSIONS))
    assert (finding.status, finding.why) == (Status.UNKNOWN, Why.NO_PERMISSION)


def test_the_fact_keeps_question_marks_out() -> None:
    from gpudoctor.facts.driver import DriverGpu, DriverGpus

    gpus = fact(node("rminit-failed-wpr2"), DriverGpus).gpus.values()
    told = [gpu.vbios for gpu in gpus if isinstance(gpu, DriverGpu)]
    assert None in told and all(vbios is None or "?" not in vbios for vbios in told)


# Blind ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expect"),
    [
        ("h100x8", config(profile="hgx-h100-8", driver=["550"], driver_denied=["580"], vbios=["96"])),
        ("seven-of-eight-expected", Config()),
    ],
)
def test_blinding_neither_alarms_nor_leaves_a_claim(name: str, expect: Config) -> None:
    whole = whole_node(name)
    checks = (PRESENT, HARDWARE, VERSIONS)

    def alarms(report: Report) -> set[str]:
        found = (finding for check in checks for finding in report.result(check).findings)
        return {f"{finding.id} {finding.cause}" for finding in found if finding.status in (Status.FAIL, Status.WARN)}

    before = alarms(diagnosed(BlindedNode(name), expect))
    for hidden in _candidates(ablation(name)):
        for error in ("EACCES", "ENOENT"):
            after = diagnosed(BlindedNode(name, hidden, error), expect)
            assert error == "ENOENT" or alarms(after) <= before, hidden
            claims = [claim for claim in _still_citing(after, hidden, whole) if claim.startswith(checks)]
            assert claims == []
