"""Xids, SXids and NVLink's error words: the generated tables against their source, and what is said of every code."""

import re
from pathlib import Path

import pytest

from gpudoctor.knowledge import nvlink4, nvlink5, nvlink5_rows, sxid_codes, sxids, xid_codes, xids
from gpudoctor.knowledge.nvlink5 import Decoded, decode
from gpudoctor.knowledge.sxids import sxid
from gpudoctor.knowledge.xid_elsewhere import SKIPPED_BY_PLUGIN
from gpudoctor.knowledge.xid_notes import NOTES
from gpudoctor.knowledge.xid_remedies import buckets, remedies_for
from gpudoctor.knowledge.xids import BUCKETS, Area, xid
from gpudoctor.verdicts import Action
from tests.conftest import SHARED
from tools import xid_tables
from tools.knowledge import XIDS, as_of

YAML = SHARED / "data" / "xid.yaml"
ADDRESS = "0000:1b:00.0"
WORDS_OF_BLAME = {"hardware", "driver", "application", "system"}

# The generated tables -------------------------------------------------------------------------------------------------


@pytest.fixture
def source() -> Path:
    """The file the tables are made of."""
    if not YAML.is_file():
        pytest.skip("the shared data about Xids is not here")
    return YAML


@pytest.mark.parametrize("place", XIDS, ids=lambda place: place.stem)
def test_a_table_is_what_its_source_makes(source: Path, place: Path) -> None:
    made = XIDS[place](xid_tables.read(source))
    committed = place.read_text("utf-8")
    assert as_of(made) <= as_of(committed)
    if as_of(made) == as_of(committed):
        assert made == committed


def test_accessors_tell_what_the_source_says(source: Path) -> None:
    told = xid_tables.read(source)
    assert list(xids.known()) == [row["code"] for row in told["xids"]]
    for row in told["xids"]:
        one = xid(row["code"])
        assert one.immediate == row["immediate"] if row["immediate"] else one.ours
        assert one.title == (row["title"] or "").replace(" / (", " (")
        assert list(one.applies) == row["applies"] and one.since == row.get("driver_header_since_branch")
        assert set(one.causes) == set(row.get("possible_causes", ()))
        assert (one.announced is not None) == ("announces_xid154_since" in row)
    assert list(sxids.known()) == [row["code"] for row in told["sxids"]]
    assert all(sxid(row["code"]).name == row["name"] for row in told["sxids"])


@pytest.mark.parametrize("module", [xid_codes, sxid_codes, nvlink5_rows], ids=lambda module: module.__name__)
def test_a_table_keeps_its_source_and_date(module: object) -> None:
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", str(getattr(module, "AS_OF", "")))
    assert "NVIDIA" in str(getattr(module, "SOURCE", ""))


def test_a_row_that_is_not_verified_is_left_out(tmp_path: Path) -> None:
    row = "{code: %d, mnemonic: M%d, title: T, applies: [], immediate: IGNORE, investigate: null%s}"
    sources = "{catalogue: of 2026-01-02, driver_header: at 515.43.04, sxid: 'names: 595.45.04'}"
    rows = ", ".join(
        (row % (1, 1, ""), row % (2, 2, ", meaning: 'something, from memory'"), row % (3, 3, ", source: unverified"))
    )
    path = tmp_path / "xid.yaml"
    path.write_text(f"sources: {sources}\nxids: [{rows}]\nsxids: []\nnvlink5_decode: []\n")
    made = xid_tables.xid_codes(xid_tables.read(path))
    assert "\n1|M1|T|IGNORE\n" in made and "M2" not in made and "M3" not in made


@pytest.mark.parametrize("text", ["", "sources: {}\n", "[1, 2]\n"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(text)
    with pytest.raises(xid_tables.BadTables, match="has no"):
        xid_tables.read(path)


# Every Xid ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", xids.known())
def test_every_xid_has_an_area_a_meaning_and_steps(code: int) -> None:
    one = xid(code)
    assert one.code == code and one.mnemonic and one.means and not one.means.endswith(".")
    assert one.blame and set(one.blame) <= WORDS_OF_BLAME and len(set(one.blame)) == len(one.blame)
    assert one.immediate in BUCKETS and (one.investigate in BUCKETS or not one.investigate)
    assert remedies_for(one.immediate, ADDRESS)
    assert one.source
    assert one.area is not Area.NOTICE or one.immediate == "IGNORE"


def test_areas_are_assigned_once_and_only_to_codes_that_exist() -> None:
    listed = [code for codes in xids._AREAS.values() for code in xids._numbers(codes)]
    assert sorted(listed) == list(xids.known())


@pytest.mark.parametrize(
    ("area", "codes"),
    [
        (Area.MEMORY, (48, 63, 64, 92, 94, 95, 140, 160, 171, 172)),
        (Area.BUS, (32, 79, 167)),
        (Area.NVLINK, (74, 136, *range(144, 151), 155)),
        (Area.APPLICATION, (13, 31, 43, 45, 68, 69, 137)),
        (Area.NOTICE, (14, 106, 107, 121)),
        (Area.DRIVER, (62, 109, 110, 119, 120, 143, 154, 158)),
    ],
)
def test_areas_of_codes_that_everybody_meets(area: Area, codes: tuple[int, ...]) -> None:
    assert {xid(code).area for code in codes} == {area}


def test_an_application_is_blamed_only_where_nvidia_blames_it() -> None:
    for code in (13, 31, 43, 45, 108, 137):
        assert xid(code).blame[0] == "application"
    for code in (48, 64, 79, 94, 95, 171, 172):
        assert "application" not in xid(code).blame and xid(code).blame[0] == "hardware"
    assert xid(32).blame[0] == "system"


def test_what_follows_another_xid_is_no_cause() -> None:
    assert {code for code in xids.known() if xid(code).follows} == {43, 45, 154, 174}


def test_an_unknown_xid_says_so_and_goes_to_support() -> None:
    one = xid(999)
    assert one.area is Area.DRIVER and "2026-07-14" in one.means and "not in NVIDIA" in one.means
    assert one.immediate == "CONTACT_SUPPORT"


def test_where_other_tools_disagree() -> None:
    assert "keeps the GPU schedulable" in xid(109).elsewhere
    assert "takes the GPU from Kubernetes" in xid(63).elsewhere and "gpud" in xid(63).elsewhere
    assert "NVSentinel" in xid(45).elsewhere and "NVSentinel" in xid(54).elsewhere
    assert all("k8s-device-plugin" not in xid(code).elsewhere for code in SKIPPED_BY_PLUGIN - {109})
    assert "Amazon EKS" in xid(63).elsewhere and "whole GPU" in xid(94).elsewhere
    assert '"PCIe Fabric Error", of PCIe' in xid(39).elsewhere, "DCGM's name for an exception of a copy engine"
    assert xid(79).elsewhere == ""


def test_notes_are_sentences_about_codes_that_exist() -> None:
    assert set(NOTES) <= set(xids.known())
    assert all(note.endswith(".") for note in NOTES.values())


# Steps ----------------------------------------------------------------------------------------------------------------


def test_there_are_steps_for_every_action_and_no_other() -> None:
    assert set(buckets()) == set(BUCKETS)


@pytest.mark.parametrize("bucket", buckets())
def test_steps_are_safe_first_say_what_they_interrupt_and_how_to_confirm(bucket: str) -> None:
    steps = remedies_for(bucket, ADDRESS)
    assert not steps[0].then
    for step in steps:
        assert step.confirm and step.say[-1] in ".?"
        if step.action in (Action.RESET_GPU, Action.REBOOT, Action.RESTART_SERVICE):
            assert step.interrupts != "nothing" and step.run
        if step.action is Action.CONTACT_VENDOR:
            assert any("nvidia-bug-report" in command for command in step.run)
            assert any("serial" in command for command in step.run) and "serial" in step.say
    severe = [_SEVERITY.index(step.action) for step in steps if step.action in _SEVERITY]
    assert severe == sorted(severe)


_SEVERITY = (Action.RESET_GPU, Action.REBOOT, Action.CONTACT_VENDOR)


def test_a_reset_names_the_gpu_and_what_a_board_with_switches_needs() -> None:
    for address in (ADDRESS, "0000:1b:00"):
        reset = next(step for step in remedies_for("RESET_GPU", address) if step.action is Action.RESET_GPU)
        assert f"nvidia-smi --gpu-reset -i {ADDRESS}" in reset.run
        assert "fabric manager" in reset.say and "together" in reset.say
        assert not any("stop" in command and "fabricmanager" in command for command in reset.run)
    whole = next(step for step in remedies_for("RESET_FABRIC", ADDRESS) if step.action is Action.RESET_GPU)
    assert "nvidia-smi --gpu-reset" in whole.run and "every process" in whole.interrupts


def test_steps_for_a_switch_do_not_ask_for_a_gpu_at_the_switch() -> None:
    for bucket in ("PORT_RESET", "RESET_FABRIC", "SWITCH_SUPPORT", "IGNORE"):
        assert not any(ADDRESS in command for step in remedies_for(bucket, ADDRESS) for command in step.run)


# NVLink 5 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", nvlink5.rows(), ids=lambda row: f"{row.code}-{row.units[1]}-{row.statuses}")
@pytest.mark.parametrize("layout", [1, 2])
@pytest.mark.parametrize("filler", ["0", "1"])
def test_every_row_decodes_to_itself(row: nvlink5.Row, layout: int, filler: str) -> None:
    branch = nvlink5.FIRST_V2 - 1 if layout == 1 else nvlink5.FIRST_V2
    for status in row.statuses or (0, 0xDEADBEEF):
        word = int(row.patterns[layout - 1].replace("-", filler), 2)
        found = decode(row.code, word, status, branch)
        assert found is not None and found.layout == layout
        # Where two rules fit the same words, as the two of Xid 150 do, they ask for the same.
        assert (found.immediate, found.investigate, found.severity) == (row.immediate, row.investigate, row.severity)
        twins = [
            one
            for one in nvlink5.rows()
            if one.code == row.code and one.patterns == row.patterns and status in one.statuses
        ]
        assert found.unit == row.units[layout - 1] or len(twins) > 1
        if row.immediate_promoted:
            promoted = decode(row.code, int(row.promoted[layout - 1].replace("-", filler), 2), status, branch)
            assert promoted is not None and promoted.immediate == row.immediate_promoted == "RESET_GPU"


# Lines of leptonai/gpud (nvlink_logs_test.go at 4a8de33a) and NVIDIA/NVSentinel (csv_test.go), whose tests say what each asks for.
@pytest.mark.parametrize(
    ("code", "words", "branch", "unit", "immediate", "severity"),
    [
        (144, (0x00000001, 0x00000001), 575, "SAW_MVB", "IGNORE", "Non-fatal"),
        (144, (0x00000001, 0x00000002), 580, "SAW_MVB", "RESET_GPU", "Fatal"),
        (145, (0x00000003, 0x80000000), 580, "RLW_CTRL", "IGNORE", "Non-fatal"),
        (145, (0x00000004, 0x00000001), 580, "RLW_REMAP", "XID_154_EVAL", "Non-fatal"),
        (145, (0x00000004, 0x00000040), 580, "RLW_REMAP", "RESET_GPU", "Fatal"),
        (145, (0x00000082, 0x00000040), 570, "RLW_REMAP", "RESET_GPU", "Fatal"),
        (145, (0x00000006, 0x00000001), 580, "RLW_RXPIPE", "IGNORE", "Non-fatal"),
        (145, (0x00000086, 0x00000001), 580, "RLW_RXPIPE", "RESET_GPU", "Non-fatal"),
        (145, (0x04082907, 0x00000008), 580, "RLW_SRC_TRACK", "XID_154_EVAL", "Non-fatal"),
        (145, (0x00000008, 0x00000002), 580, "RLW_TAGSTATE", "RESET_GPU", "Fatal"),
        (146, (0x00000009, 0x00000004), 580, "TLW_CTRL", "RESET_GPU", "Fatal"),
        (146, (0x0000000A, 0x00000001), 580, "TLW_RX_PIPE0", "IGNORE", "Non-fatal"),
        (146, (0x0000000B, 0x00000004), 580, "TLW_RX_PIPE1", "RESET_GPU", "Fatal"),
        (146, (0x0000000D, 0x00000004), 580, "TLW_TX_PIPE1", "RESET_GPU", "Fatal"),
        (146, (0x00000163, 0x00000004), 570, "TLW_TX", "RESET_GPU", "Fatal"),
        (147, (0x0000000E, 0x00000001), 580, "TREX", "IGNORE", "Non-fatal"),
        (148, (0x0000000F, 0x80000000), 580, "NVLPW", "IGNORE", "Non-fatal"),
        (149, (0x00000018, 0x00000000), 580, "NETIR_INT", "RESET_GPU", "Link Fatal"),
        (149, (0x00000013, 0x00000001), 580, "NETIR_BER_EVENT", "IGNORE", "Non-fatal"),
        (149, (0x00000014, 0x00000001), 580, "NETIR_MFDE_EVENT", "RESET_GPU", "Fatal"),
        (149, (0x00000014, 0x00000003), 580, "NETIR_MFDE_EVENT", "IGNORE", "Non-fatal"),
        (149, (0x02500011, 0x00000000), 580, "NETIR_LINK_DOWN", "RESET_GPU", "Link Fatal"),
        (149, (0x025525C6, 0x00000000), 570, "NETIR_LINK_EVT", "RESET_GPU", "Link Fatal"),
        (149, (0x004505C6, 0x00000000), 570, "NETIR_LINK_EVT", "RESET_GPU", "Link Fatal"),
        (150, (0x00000000, 0x00000000), 580, "MSE_WATCHDOG", "RESET_GPU", "Fatal"),
        (150, (0x00000000, 0xFFFFFFFF), 580, "MSE Degraded", "RESET_GPU", "Fatal"),
    ],
)
def test_lines_of_public_logs(
    code: int, words: tuple[int, int], branch: int, unit: str, immediate: str, severity: str
) -> None:
    found = decode(code, *words, branch)
    assert found is not None
    assert (found.unit, found.immediate, found.severity) == (unit, immediate, severity)


def test_the_layout_decides_and_a_line_of_the_other_one_is_not_guessed() -> None:
    assert decode(145, 0x00000082, 0x40, 570) and decode(145, 0x00000082, 0x40, 575) is None
    assert decode(145, 0x00000004, 0x40, 580) and decode(145, 0x00000004, 0x40, 570) is None


def test_without_a_branch_only_what_is_not_ambiguous_is_said() -> None:
    assert decode(145, 0x00000082, 0x40, None) == Decoded("RLW_REMAP", "RESET_GPU", "CONTACT_SUPPORT", "Fatal", 1, "HW")
    assert decode(145, 0x00000004, 0x40, None) == Decoded("RLW_REMAP", "RESET_GPU", "CONTACT_SUPPORT", "Fatal", 2, "HW")
    both = decode(150, 0, 0, None)
    assert both is not None and (both.layout, both.unit, both.immediate) == (0, "MSE_WATCHDOG", "RESET_GPU")
    # As bits of either layout this word is another unit's (0101000011 below R575: TLW_RX; 1000011 from R575: none).
    alone = decode(146, 0b0101000011, 4, None)
    assert alone is not None and (alone.unit, alone.layout) == ("TLW_RX", 1)


def test_two_layouts_that_disagree_are_not_decoded_without_a_branch() -> None:
    word = 0b0010000100
    first, second = (decode(145, word | 0b10, 1, branch) for branch in (570, 580))
    if first is not None and second is not None and first.immediate != second.immediate:
        assert decode(145, word | 0b10, 1, None) is None
    disagreeing = [
        (code, word, status)
        for code in nvlink5.CODES
        for word in range(1024)
        for status in (0, 1, 2, 4, 8, 0x80000000)
        if (v1 := decode(code, word, status, 570)) is not None
        and (v2 := decode(code, word, status, 580)) is not None
        and (v1.immediate, v1.investigate, v1.severity) != (v2.immediate, v2.investigate, v2.severity)
    ]
    assert all(decode(*words, None) is None for words in disagreeing)


@pytest.mark.parametrize(("code", "word", "status"), [(79, 1, 1), (144, 0xFFFFFFFF, 1), (144, 1, 3), (151, 0, 0)])
def test_words_no_rule_has_are_not_decoded(code: int, word: int, status: int) -> None:
    assert decode(code, word, status, 570) is None and decode(code, word, status, 580) is None


_LINE = re.compile(
    r"Xid \([^)]*\): (?P<code>1(?:4[4-9]|50)), (?:pid=.*?name=\S+, )?(?P<unit>\w+)(?:/\w+)?\s.*?"
    r"\((?P<intr>0x[0-9a-f]{8})\s+(?P<status>0x[0-9a-f]{8})"
)


def test_real_lines_name_the_unit_they_decode_to(corpus: Path) -> None:
    seen = 0
    for place in (*(corpus / "dmesg").iterdir(), *(corpus / "issue-excerpts").iterdir()):
        for line in _LINE.finditer(place.read_text("utf-8", "replace")):
            found = decode(int(line["code"]), int(line["intr"], 16), int(line["status"], 16), None)
            # Two lines of a test's own making have words that belong to another Xid.
            assert found is not None or line["intr"] in ("0x00000003", "0x00000004"), line[0]
            seen += found is not None
            assert found is None or line["unit"] in found.unit or found.unit.startswith(("TLW", "NVLPW", "NETIR")), (
                line[0]
            )
    assert seen > 50


# Xid 74 ---------------------------------------------------------------------------------------------------------------


def test_words_of_xid_74() -> None:
    # NVSentinel's csv_test.go: "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)".
    assert nvlink4.decode((0, 0, 0x10000, 0, 0, 0, 0)) == (
        "word 3 bit 16: if seen repeatedly, run field diagnostics and report it",
    )
    several = nvlink4.decode((1 << 4 | 1 << 5 | 1, 0, 0, 1 << 18, 1 << 20, 0, 1))
    assert [said.partition(":")[0] for said in several] == [
        "word 1 bit 0",
        "word 1 bits 4 and 5",
        "word 4 bit 18",
        "word 5 bit 20",
        "word 7 bit 0",
    ]
    assert "not explained" in several[-1] and "fabric must be reset" in several[2]
    assert nvlink4.decode((0,) * 7) == () == nvlink4.decode((1, 2))


def test_harmless_words_of_xid_74() -> None:
    assert nvlink4.harmless((1 << 0 | 1 << 23, 0, 0, 0, 1 << 20, 0, 0))
    assert not nvlink4.harmless((1 << 4, 0, 0, 0, 0, 0, 0)) and not nvlink4.harmless((0, 1, 0, 0, 0, 0, 0))
    assert not nvlink4.harmless((0, 0))


def test_bits_of_xid_74_are_those_of_the_source(source: Path) -> None:
    words = xid_tables.read(source)["nvlink4_words"]
    told = {
        (int(word[4:]), bit)
        for word, groups in words.items()
        if word != "note"
        for bits in groups.values()
        for bit in bits
    }
    ours = [(row.word, bit) for row in nvlink4.BITS for bit in row.bits]
    assert sorted(told) == sorted(ours)


# SXids ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sxids.known())
def test_every_sxid_has_a_meaning_and_steps(code: int) -> None:
    one = sxid(code)
    assert one.code == code and one.name.startswith("NVSWITCH_ERR_HW_") and one.means
    assert one.severity_class in ("", "non-fatal", "fatal", "always-fatal", "notable")
    assert remedies_for(one.action, ADDRESS) and one.action in BUCKETS


@pytest.mark.parametrize(
    ("code", "kind", "action"),
    [
        (12028, "non-fatal", "IGNORE"),
        (20009, "non-fatal", "IGNORE"),
        (20034, "fatal", "PORT_RESET"),
        (24007, "fatal", "PORT_RESET"),
        (22003, "always-fatal", "RESET_FABRIC"),
        (10004, "notable", "IGNORE"),
    ],
)
def test_classes_of_the_guide(code: int, kind: str, action: str) -> None:
    assert (sxid(code).severity_class, sxid(code).action) == (kind, action)


def test_the_word_of_the_line_decides_where_the_guide_is_silent() -> None:
    assert [sxid(19080, fatal=fatal).action for fatal in (True, False, None)] == [
        "PORT_RESET",
        "IGNORE",
        "SWITCH_SUPPORT",
    ]
    assert sxid(12028, fatal=True).action == "IGNORE", "the guide's class stands"


def test_numbers_that_meant_something_else_before_r550() -> None:
    # A line of an H100 with R535: "SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)".
    for branch in (None, 535):
        assert sxid(28006, branch=branch).name.endswith("MULTICASTTSTATE_CRUMBSTORE_MCTO_ERR")
    assert "OSFP_THERM" in sxid(28001).name and "multicast" in sxid(28001).before
    assert "MULTICAST" in sxid(28001, branch=535).name and "OSFP_THERM" in sxid(28001, branch=550).name
    assert "REDUCTION" in sxid(29001, branch=535).name and "MULTICAST" in sxid(29001, branch=570).name
    assert sxid(30001, branch=535).name == "" and "not in" in sxid(30001, branch=535).means


def test_codes_of_real_logs_are_known(corpus: Path) -> None:
    text = "".join(place.read_text("utf-8", "replace") for place in (corpus / "dmesg").iterdir())
    codes = {int(code) for code in re.findall(r"NVRM: Xid \([^)]*\): (\d+)", text)}
    switch_codes = {int(code) for code in re.findall(r" SXid \([^)]*\): (\d+)", text)}
    assert codes - set(xids.known()) <= {999, 99999}, "numbers that tests of other tools made up"
    assert len(codes) > 30 and switch_codes and all(sxid(code).name for code in switch_codes)


def test_an_unknown_sxid_says_so() -> None:
    one = sxid(99999)
    assert (one.name, one.severity_class) == ("", "") and one.means.startswith("not in ctrl_dev_nvswitch.h")
