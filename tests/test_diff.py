"""`gpudoctor diff` through the front door: what broke, healed, changed and grew, and what a side does not hold."""

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpudoctor import cli
from gpudoctor.sources.redaction import redact
from gpudoctor.sources.writing import write_snapshot
from gpudoctor.testing import fixtures
from tests.chromium import needs_chromium, open_page
from tests.conftest import Golden
from tests.diff_node import HOSTNAME, VERSION, DiffNode
from tests.page_tree import tree

HEALTHY = "h100x8"
SICK = "nouveau-and-broken-daemon-json"
LATER = "2026-11-30T12:00:00Z"
"""A day after the fixtures were recorded."""
FIRST = "0000:18:00.0"


def fixture(name: str) -> str:
    """A fixture's place."""
    return str(fixtures() / name)


@pytest.fixture
def differ(capsys: pytest.CaptureFixture[str]) -> "Differ":
    """Runs the command."""
    return Differ(capsys)


class Differ:
    """`gpudoctor diff` within this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = cli.main(["diff", *map(str, arguments)])
        out, err = self._capsys.readouterr()
        return code, out, err

    def told(self, *arguments: object) -> dict[str, Any]:
        """As JSON; its exit code is the command's."""
        code, out, _ = self(*arguments, "--format", "json")
        said: dict[str, Any] = json.loads(out)
        assert code == said["exit_code"] == (0 if said["same"] else 1)
        return said


@pytest.fixture
def later(tmp_path: Path) -> DiffNode:
    """The healthy node a day later, in the same boot."""
    node = DiffNode(HEALTHY, tmp_path / "later")
    node.manifest(recorded_at=LATER)
    return node


def changes(said: dict[str, Any], area: str = "", what: str = "") -> list[dict[str, Any]]:
    """The changes of an area, of one name."""
    return [one for one in said["changes"] if area in ("", one["area"]) and what in ("", one["what"])]


def pairs(said: dict[str, Any], area: str = "") -> dict[str, tuple[str | None, str | None]]:
    """What changed, by its name."""
    return {one["what"]: (one["a"], one["b"]) for one in changes(said, area)}


def checks(turns: list[dict[str, Any]], *, root: bool = False) -> list[str]:
    """The checks of turns."""
    return [one["check"] for one in turns if one["root"] or not root]


def counters(said: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Counters by GPU and name."""
    return {(one["subject"], one["what"]): one for one in said["counters"]}


# The same ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [HEALTHY, SICK, "nothing-recorded", "mig-config-applied", "wsl2", "jetson-orin"])
def test_a_node_is_the_same_as_itself(name: str, differ: Differ) -> None:
    said = differ.told(fixture(name), fixture(name))
    assert (said["same"], said["exit_code"]) == (True, 0)
    moved = ("broke", "healed", "found", "unseen", "seen", "changes", "counters", "identity", "gaps")
    assert {kind: said[kind] for kind in moved if said[kind]} == {}
    assert said["headline"] == "the same"


def test_two_nodes_of_the_same_hardware_differ_by_identity_only(tmp_path: Path, differ: Differ) -> None:
    other = DiffNode(HEALTHY, tmp_path / "other")
    other.renamed("n2")
    said = differ.told(fixture(HEALTHY), other.place)
    assert (said["way"], said["same"], said["headline"]) == ("nodes", True, "the same but for identity")
    assert {one["what"] for one in said["identity"]} == {"host name", "boot id", "UUID", "serial number"}
    assert not said["changes"] and not said["gaps"]


def test_a_saved_report_says_what_its_snapshot_says(tmp_path: Path, differ: Differ) -> None:
    """As JSON and as a page; of what it does not hold nothing is claimed."""
    for suffix in ("json", "html"):
        saved = tmp_path / f"saved.{suffix}"
        cli.main(["run", "--node", fixture(HEALTHY), "--format", "line", "-o", str(saved)])
        said = differ.told(saved, fixture(HEALTHY))
        assert (said["same"], said["a"]["kind"], said["a"]["facts"]) == (True, "report", False)
        assert said["headline"] == "the same, as far as both tell"
        assert {(one["side"], one["why"]) for one in said["gaps"]} == {
            ("A", "a saved report does not hold them"),
            ("A", "not known there"),
        }
        from_report = differ.told(saved, fixture(SICK))
        whole = differ.told(fixture(HEALTHY), fixture(SICK))
        for kind in ("broke", "healed", "found", "unseen", "seen", "still"):
            assert from_report[kind] == whole[kind]


@pytest.mark.parametrize(
    "name",
    [
        HEALTHY,
        SICK,
        "kubernetes-gpu-node-healthy",
        "slurm-node-explicit-file-lines",
        "holders-of-daemons-and-containers",
    ],
)
@pytest.mark.parametrize("salts", [("one",), ("one", "two")])
def test_a_redacted_recording_is_the_same(name: str, salts: tuple[str, ...], tmp_path: Path, differ: Differ) -> None:
    """As the raw one, and as one redacted with another salt."""
    folder = fixtures() / name
    members = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.name not in ("about.md", "expected.json")
    }
    places = [tmp_path / f"{salt}.tar" for salt in salts]
    for salt, place in zip(salts, places, strict=True):
        write_snapshot(place, redact(members, salt.encode()).members)
    said = differ.told(*(places if len(places) > 1 else (folder, *places)))
    assert said["same"], [said[kind] for kind in ("broke", "healed", "found", "unseen", "changes") if said[kind]]
    assert said["way"] == "times" and said["b"]["redacted"]


@pytest.mark.parametrize("turned", [False, True])
def test_hidden_words_of_the_command_line_are_no_changes(turned: bool, tmp_path: Path, differ: Differ) -> None:
    folder = fixtures() / HEALTHY
    members = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and path.name not in ("about.md", "expected.json")
    }
    entries = members["entries.jsonl"]
    words = next(one["text"] for one in map(json.loads, entries.splitlines()) if one["path"] == "/proc/cmdline").strip()
    agent = "-- --site-agent 5002 rack=blue"
    members["entries.jsonl"] = entries.replace(words.encode(), f"{words} {agent}".encode())
    raw, redacted = tmp_path / "raw.tar", tmp_path / "redacted.tar"
    write_snapshot(raw, members)
    members["entries.jsonl"] = entries.replace(
        words.encode(), f"{words} nvidia.NVreg_EnableGpuFirmware=0 {agent}".encode()
    )
    write_snapshot(redacted, redact(members, b"one").members)
    said = differ.told(*((redacted, raw) if turned else (raw, redacted)))
    told = {one["what"]: (one["a"], one["b"]) for one in said["changes"]}
    assert told == {"kernel command line nvidia.NVreg_EnableGpuFirmware": ("0", None) if turned else (None, "0")}
    (gap,) = (one for one in said["gaps"] if one["why"] == "hidden by redaction")
    assert gap["side"] == ("A" if turned else "B") and "/proc/cmdline" in gap["what"][0]


def test_equal_inputs_give_equal_bytes(differ: Differ) -> None:
    for form in ("terminal", "json", "html"):
        assert differ(fixture(HEALTHY), fixture(SICK), "--format", form) == differ(
            fixture(HEALTHY), fixture(SICK), "--format", form
        )


# What broke, what healed ---------------------------------------------------------------------------------------------


def test_what_broke_and_what_healed(differ: Differ) -> None:
    forth, back = differ.told(fixture(HEALTHY), fixture(SICK)), differ.told(fixture(SICK), fixture(HEALTHY))
    wrong = ["kernel-module.gpu-bound", "toolkit.docker-runtime"]
    assert checks(forth["broke"], root=True) == checks(back["healed"], root=True) == wrong
    assert not forth["healed"] and not back["broke"]
    first = forth["broke"][0]
    assert (first["a"], first["b"], len(first["subjects"])) == ("pass", "fail", 8)
    assert first["b_says"] == "held by nouveau, not by nvidia" and first["evidence"][0]["shows"].endswith("nouveau")
    assert "device-nodes.gpu-node" in checks(forth["unseen"]) and "device-nodes.gpu-node" in checks(back["seen"])
    blocked = {tuple(one["because"]) for one in forth["unseen"] if not one["check"].startswith("topology.")}
    assert blocked == {("kernel-module.gpu-bound",)}
    assert pairs(forth, "versions")["driver"] == ("550.163.01", "not loaded")


def test_what_is_still_wrong_is_no_difference(differ: Differ) -> None:
    said = differ.told(fixture("nouveau-holds-all-eight"), fixture(SICK))
    assert "kernel-module.gpu-bound" in checks(said["still"])
    assert checks(said["broke"], root=True) == ["toolkit.docker-runtime"]


def test_since_when_is_told_by_the_log(later: DiffNode, differ: Differ) -> None:
    later.say(
        "[86000.100000] NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    )
    said = differ.told(fixture(HEALTHY), later.place)
    (turn,) = said["broke"]
    assert (turn["check"], turn["since"]) == ("driver-cuda.xids", "86000.100000") and turn["subjects"][0][
        "key"
    ] == FIRST
    assert "since     86000 s after boot" in differ(fixture(HEALTHY), later.place)[1]
    counted = counters(said)[FIRST, "Xid 79"]
    assert (counted["a"], counted["b"], counted["growth"]) == (0.0, 1.0, 1.0)


def test_what_one_recording_does_not_hold_is_no_change(tmp_path: Path, differ: Differ) -> None:
    lacking = DiffNode(HEALTHY, tmp_path / "lacking")
    lacking.forget("/etc/docker/daemon.json")
    said = differ.told(fixture(HEALTHY), lacking.place)
    assert said["same"] and not changes(said, "files")
    gaps = {(one["area"], one["side"]): one["what"] for one in said["gaps"]}
    assert gaps["files", "B"] == ["/etc/docker/daemon.json"]
    assert "toolkit.docker-runtime" in gaps["checks", "B"]
    other_way = differ.told(lacking.place, fixture(HEALTHY))
    assert {(one["area"], one["side"]) for one in other_way["gaps"]} == {("files", "A"), ("checks", "A")}


def test_wrong_in_b_and_not_known_in_a_did_not_break(tmp_path: Path, differ: Differ) -> None:
    unseen, broken = DiffNode(HEALTHY, tmp_path / "unseen"), DiffNode(HEALTHY, tmp_path / "broken")
    unseen.forget("/etc/docker/daemon.json")
    broken.text("/etc/docker/daemon.json", "{")
    said = differ.told(unseen.place, broken.place)
    assert "toolkit.docker-runtime" in checks(said["found"]) and not said["broke"] and not said["same"]
    back = differ.told(broken.place, unseen.place)
    assert "toolkit.docker-runtime" in checks(back["unseen"]) and not back["healed"]


def test_a_waiver_heals_nothing(tmp_path: Path, differ: Differ) -> None:
    waived = DiffNode("narrow-link-at-gpu", tmp_path / "waived")
    waived.manifest(config={"waive": [{"check": "pcie.link-width", "reason": "known"}]})
    said = differ.told(fixture("narrow-link-at-gpu"), waived.place)
    assert said["same"] and [(one["a"], one["b"]) for one in said["still"]] == [("warn", "waived")]
    assert said["notes"] == ["A and B were judged under different configurations"]


def test_a_subject_that_is_gone_takes_its_finding_along(differ: Differ) -> None:
    said = differ.told(fixture("container-lost-gpu-after-reload"), fixture("container-keeps-gpu-with-char-links"))
    turn = next(one for one in said["healed"] if one["check"] == "cgroup.device-rules")
    assert (turn["a"], turn["b"], turn["b_says"]) == ("fail", "gone", "")


# Two times -----------------------------------------------------------------------------------------------------------


def test_counters_grow_at_a_rate(later: DiffNode, differ: Differ) -> None:
    later.gpu(0, pcie__replays=48, ecc__aggregate__corrected=5, clocks_event__sw_power_cap_nanoseconds=9_000_000_000)
    later.nvml(lambda data: data["devices"][1]["nvlinks"][0]["errors"].update(replay=7))
    said = differ.told(fixture(HEALTHY), later.place)
    assert (said["way"], said["hours"]) == ("times", 24.0)
    told = counters(said)
    replays = told[FIRST, "PCIe replays"]
    assert (replays["growth"], replays["per_hour"]) == (48.0, 2.0)
    assert told[FIRST, "ECC errors corrected, in all"]["growth"] == 5.0
    assert told["0000:2a:00.0", "NVLink errors (replay)"]["per_hour"] == 0.292
    held = told[FIRST, "clocks held down by the power limit"]
    assert (held["counts"], held["unit"]) == (False, "s")


def test_a_boot_in_between_starts_counters_anew(tmp_path: Path, later: DiffNode, differ: Differ) -> None:
    before = DiffNode(HEALTHY, tmp_path / "before")
    before.gpu(0, pcie__replays=90, row_remap__corrected=1)
    later.gpu(0, pcie__replays=91, row_remap__corrected=2)
    later.gpu(1, pcie__replays=4)
    before.gpu(1, pcie__replays=5)
    later.booted()
    said = differ.told(before.place, later.place)
    told = counters(said)
    replays = told[FIRST, "PCIe replays"]
    assert (replays["growth"], replays["per_hour"]) == (None, None)
    assert replays["note"] == "counts anew: the node booted in between"
    assert replays["counts"] and not told["0000:2a:00.0", "PCIe replays"]["counts"]
    rows = told[FIRST, "rows remapped for corrected errors"]
    assert (rows["growth"], rows["per_hour"], rows["note"]) == (1.0, None, "kept by the board")
    assert "the node booted in between: counters since then start anew" in said["notes"]
    assert "boot id" in {one["what"] for one in said["identity"]}


PORT_ABOVE = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0"
"""Of the first GPU."""
AER_FATAL = f"{PORT_ABOVE}/{FIRST}/aer_dev_fatal"


def test_errors_that_the_kernel_counts_of_links_grow_at_a_rate(tmp_path: Path, later: DiffNode, differ: Differ) -> None:
    before = DiffNode(HEALTHY, tmp_path / "before")
    before.text(AER_FATAL, "DLP 2\nTOTAL_ERR_FATAL 2\n")
    later.text(AER_FATAL, "DLP 14\nTOTAL_ERR_FATAL 14\n")
    later.text(f"{PORT_ABOVE}/{FIRST}/aer_dev_nonfatal", "CmpltTO 3\nTOTAL_ERR_NONFATAL 3\n")
    later.text(f"{PORT_ABOVE}/aer_dev_fatal", "SDES 24\nTOTAL_ERR_FATAL 24\n")
    told = counters(differ.told(before.place, later.place))
    fatal = told[FIRST, "AER errors, fatal"]
    assert (fatal["a"], fatal["b"], fatal["growth"], fatal["per_hour"], fatal["counts"]) == (2.0, 14.0, 12.0, 0.5, True)
    assert told[FIRST, "AER errors, not fatal"]["growth"] == 3.0
    assert told[FIRST, "AER errors of the port above, fatal"]["per_hour"] == 1.0
    assert f"{FIRST} AER errors, fatal: 2 → 14  +12, 0.5 an hour" in differ(before.place, later.place)[1]
    # The kernel counts since the boot, whatever became of the driver.
    later.say("[86000.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01")
    assert counters(differ.told(before.place, later.place))[FIRST, "AER errors, fatal"]["growth"] == 12.0
    later.booted()
    anew = counters(differ.told(before.place, later.place))[FIRST, "AER errors, fatal"]
    assert (anew["growth"], anew["note"]) == (None, "counts anew: the node booted in between")


def test_what_one_side_does_not_hold_of_aer_is_a_gap(tmp_path: Path, differ: Differ) -> None:
    lacking = DiffNode("slot-wired-x8-workstation", tmp_path / "lacking")
    for path in [one["path"] for one in lacking._entries() if "/aer_dev_" in one["path"]]:
        lacking.forget(path)
    said = differ.told(fixture("slot-wired-x8-workstation"), lacking.place)
    assert [one["what"] for one in said["gaps"] if one["area"] == "counters"] == [["AER errors"]]


def test_what_rdma_ports_count_grows_at_a_rate(tmp_path: Path, differ: Differ) -> None:
    healthy = "hgx-h100-with-eight-ib-nics"
    later = DiffNode(healthy, tmp_path / "later")
    later.manifest(recorded_at=LATER)
    paths = [one["path"] for one in later._entries() if one["path"].endswith("/ports/1/counters/symbol_error")]
    folder = next(path.rpartition("/")[0] for path in paths if "/mlx5_2/" in path)
    for name, count in {"symbol_error": 2400, "link_downed": 3, "local_link_integrity_errors": 15}.items():
        later.text(f"{folder}/{name}", f"{count}\n")
    said = differ.told(fixture(healthy), later.place)
    told = counters(said)
    symbols = told["mlx5_2", "symbol_error"]
    assert (symbols["growth"], symbols["per_hour"], symbols["counts"]) == (2400.0, 100.0, True)
    assert told["mlx5_2", "link_downed"]["per_hour"] == 0.125
    ended = told["mlx5_2", "local_link_integrity_errors"]
    assert (ended["growth"], ended["per_hour"], ended["note"]) == (15.0, None, "it has come to its end")
    later.renamed("n2")
    nodes = differ.told(fixture(healthy), later.place)
    assert nodes["way"] == "nodes" and not counters(nodes)["mlx5_2", "symbol_error"]["counts"]


def test_an_adapter_that_a_pod_may_have_to_itself_is_not_said_to_be_gone(tmp_path: Path, differ: Differ) -> None:
    healthy, mode = "hgx-h100-with-eight-ib-nics", "/sys/module/ib_core/parameters/netns_mode"
    later = DiffNode(healthy, tmp_path / "later")
    entries = later.place / "entries.jsonl"
    lines = entries.read_text("utf-8").splitlines(keepends=True)
    entries.write_text("".join(one for one in lines if "infiniband/mlx5_3" not in one), "utf-8")
    later.text(mode, "Y\n")
    said = differ.told(fixture(healthy), later.place)
    (gone,) = [one for one in changes(said, "topology") if one["what"].startswith("network adapter")]
    assert (gone["a"], gone["b"]) == ("mlx5_3", None)
    later.text(mode, "N\n")
    said = differ.told(fixture(healthy), later.place)
    assert not changes(said, "topology")
    (gap,) = [one for one in said["gaps"] if one["area"] == "topology"]
    assert (gap["side"], gap["what"]) == ("B", ["mlx5_3"]) and "a pod may have the missing one" in gap["why"]


@pytest.mark.parametrize("way", ["times", "nodes"])
def test_an_adapter_whose_bus_has_another_number_is_the_same_one(way: str, tmp_path: Path, differ: Differ) -> None:
    healthy = "hgx-h100-with-eight-ib-nics"
    later = DiffNode(healthy, tmp_path / "later")
    later.manifest(recorded_at=LATER)
    entries = later.place / "entries.jsonl"
    counter = '/mlx5_0/ports/1/counters/link_downed", "type": "file", "text": "'
    renumbered = entries.read_text("utf-8").replace("0000:19:00.0", "0000:1f:00.0")
    entries.write_text(renumbered.replace(f"{counter}0", f"{counter}24"), "utf-8")
    for folder in sorted(later.place.rglob("0000:19:00.0")):
        folder.rename(folder.with_name("0000:1f:00.0"))
    said = differ.told(fixture(healthy), later.place, "--as", way)
    (moved,) = [one for one in (*said["changes"], *said["identity"]) if one["what"] == "address of mlx5_0"]
    assert (moved["a"], moved["b"], moved["counts"]) == ("0000:19:00.0", "0000:1f:00.0", way == "times")
    assert not [one for one in said["changes"] if one["what"].startswith("network adapter")]
    assert counters(said)["mlx5_0", "link_downed"]["growth"] == (24.0 if way == "times" else None)


@pytest.mark.parametrize(("replays", "words"), [(120_000, "5,000 an hour"), (36, "1.5 an hour"), (1, "0.042 an hour")])
def test_rates_are_no_powers_of_ten(replays: int, words: str, later: DiffNode, differ: Differ) -> None:
    later.gpu(0, pcie__replays=replays)
    assert f"PCIe replays: 0 → {replays:,}  +{replays:,}, {words}" in differ(fixture(HEALTHY), later.place)[1]


def test_a_rate_too_small_to_be_told_is_not_none(later: DiffNode, differ: Differ) -> None:
    later.manifest(recorded_at="2027-11-30T12:00:00Z")
    later.gpu(0, pcie__replays=1)
    assert "+1, under 0.001 an hour" in differ(fixture(HEALTHY), later.place)[1]


def test_a_pipe_is_not_waited_for(tmp_path: Path, differ: Differ) -> None:
    os.mkfifo(tmp_path / "pipe")
    code, out, err = differ(tmp_path / "pipe", fixture(HEALTHY))
    assert (code, out) == (3, "") and "is neither a file nor a directory" in err


def test_a_boot_alone_is_identity(later: DiffNode, differ: Differ) -> None:
    later.booted()
    said = differ.told(fixture(HEALTHY), later.place)
    assert (said["same"], said["headline"]) == (True, "the same but for identity")


@pytest.mark.parametrize(
    ("lines", "from_boot", "growth", "words"),
    [
        ((), True, 3.0, ""),
        (
            ("[86000.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.163.01",),
            True,
            None,
            "counts anew: the driver was",
        ),
        ((), False, None, "no growth told: it is not known whether the driver was loaded anew"),
    ],
)
def test_a_driver_loaded_anew_is_seen_in_the_log(
    lines: tuple[str, ...], from_boot: bool, growth: float | None, words: str, later: DiffNode, differ: Differ
) -> None:
    later.gpu(0, pcie__replays=3)
    later.say(*lines)
    if not from_boot:
        later.manifest(logs={"kernel.log": {"source": "kmsg", "from_boot": False}})
    counter = counters(differ.told(fixture(HEALTHY), later.place))[FIRST, "PCIe replays"]
    assert counter["growth"] == growth and counter["note"].startswith(words)


def test_the_later_one_first_tells_no_growth(later: DiffNode, differ: Differ) -> None:
    later.gpu(0, pcie__replays=3)
    said = differ.told(later.place, fixture(HEALTHY))
    assert counters(said)[FIRST, "PCIe replays"]["note"] == "B is older than A"
    assert any("B was looked at before A" in note for note in said["notes"])


def test_a_driver_upgrade(later: DiffNode, differ: Differ) -> None:
    later.booted()
    later.text(
        VERSION,
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.195.03  Sat Sep 20 00:30:54 UTC 2025\nGCC version:  gcc 12.3.0\n",
    )
    later.nvml(
        lambda data: data.update(driver_version="570.195.03", nvml_version="12.570.195.03", cuda_driver_version=12080)
    )
    said = differ.told(fixture(HEALTHY), later.place)
    told = pairs(said, "versions")
    assert told["driver"] == ("550.163.01", "570.195.03") and told["CUDA of the driver"] == ("12.4", "12.8")
    assert not said["same"]


def test_modes_files_parameters_and_links(later: DiffNode, differ: Differ) -> None:
    later.gpu(3, compute_mode="exclusive_process", ecc__pending=False)
    later.text("/etc/modprobe.d/nvidia.conf", "options nvidia NVreg_EnableGpuFirmware=0\n")
    later.text("/proc/driver/nvidia/params", "ModifyDeviceFiles: 0\n")
    later.text("/etc/docker/daemon.json", None)
    said = differ.told(fixture(HEALTHY), later.place)
    assert pairs(said, "modes") == {
        "compute mode": ("default", "exclusive_process"),
        "ECC after the next reset": ("on", "off"),
    }
    assert pairs(said, "files") == {
        "/etc/modprobe.d/nvidia.conf": (None, "1 line"),
        "/etc/docker/daemon.json": ("15 lines", None),
    }
    assert pairs(said, "parameters")["nvidia ModifyDeviceFiles"] == ("1", "0")
    narrow = differ.told(fixture(HEALTHY), fixture("narrow-link-at-gpu"))
    assert pairs(narrow, "links") == {"PCIe width": ("x16", "x8")}
    down = differ.told(fixture(HEALTHY), fixture("nvlinks-inactive-on-one-gpu-of-eight"))
    assert changes(down, "links", "active NVLinks")[0]["note"].startswith("down: ")


def test_a_gpu_that_left_and_one_that_moved(tmp_path: Path, differ: Differ) -> None:
    said = differ.told(fixture(HEALTHY), fixture("gpu-missing-with-last-xid"))
    (gone,) = (one for one in changes(said, "gpus") if one["b"] is None)
    assert gone["what"].startswith("GPU 0000:") and "GPU-" in gone["a"]
    swapped = DiffNode(HEALTHY, tmp_path / "swapped")
    for path in (swapped.place / "answers" / "nvml.json", swapped.place / "entries.jsonl"):
        text = path.read_text("utf-8")
        first, second = "GPU-61803c11-6b95-1b34-eb4a-d48864d13bda", "GPU-cd19492f-7d0c-f9f2-c544-892c479d5462"
        path.write_text(text.replace(first, "\0").replace(second, first).replace("\0", second))
    moved = differ.told(fixture(HEALTHY), swapped.place)
    assert {(one["a"], one["b"]) for one in changes(moved, "gpus", "slot")} == {
        ("0000:18:00.0", "0000:2a:00.0"),
        ("0000:2a:00.0", "0000:18:00.0"),
    }
    assert not moved["broke"]
    as_nodes = differ.told(fixture(HEALTHY), swapped.place, "--as", "nodes")
    assert not changes(as_nodes, "gpus", "slot") and as_nodes["why"].startswith("--as nodes; it looks otherwise")


def test_two_nodes_of_other_hardware(differ: Differ) -> None:
    said = differ.told(fixture(HEALTHY), fixture("hgx-a100x8"))
    assert said["way"] == "nodes" and said["hours"] is not None
    assert pairs(said, "gpus")["model"] == ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")
    assert all(one["growth"] is None for one in said["counters"])


# Files ---------------------------------------------------------------------------------------------------------------


def test_secrets_in_files_are_not_shown(tmp_path: Path, later: DiffNode, differ: Differ) -> None:
    secrets = ("hunter2secret", "abcDEF123token", "user:pa55word")
    config = (
        'version = 2\n[plugins."io.containerd.grpc.v1.cri".registry.configs."r.example".auth]\n'
        f'  password = "{secrets[0]}"\n  identitytoken = "{secrets[1]}"\n  mirror = "https://{secrets[2]}@r.example/"\n'
    )
    before = DiffNode(HEALTHY, tmp_path / "before")
    before.text("/etc/containerd/config.toml", config.replace("hunter2", "other"))
    later.text("/etc/containerd/config.toml", config + "  more = 1\n")
    for form in ("terminal", "json", "html"):
        _, out, _ = differ(before.place, later.place, "--format", form, *(() if form != "terminal" else ("-v",)))
        assert "more = 1" in out and not any(secret in out for secret in (*secrets, "othersecret"))
    later.text("/etc/containerd/config.toml", config)
    (change,) = changes(differ.told(before.place, later.place), "files")
    assert change["note"] == "in what is not shown" and not change["diff"]


def test_long_files_are_cut(tmp_path: Path, later: DiffNode, differ: Differ) -> None:
    before = DiffNode(HEALTHY, tmp_path / "before")
    before.text("/etc/slurm/gres.conf", "".join(f"# a {number}\n" for number in range(300)))
    later.text("/etc/slurm/gres.conf", "".join(f"# b{number} {'x' * 5000}\n" for number in range(300)))
    (change,) = changes(differ.told(before.place, later.place), "files")
    assert len(change["diff"]) == 40 and change["omitted"] == 560
    assert all(len(line) < 300 for line in change["diff"])
    later.text("/etc/slurm/gres.conf", "x\n" * 50_000)
    (change,) = changes(differ.told(before.place, later.place), "files")
    assert (change["note"], change["diff"]) == ("too long to be shown", [])


# Usage and forms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "h100x8"), "no such file"),
        (("{json}", "{json}"), "not a report"),
        (("h100x8", "h100x8", "-o", "out.prom"), "diff writes terminal, json, html"),
        (("h100x8", "h100x8", "-o", "out"), "say which format"),
    ],
)
def test_usage_errors_are_one_line_and_three(
    arguments: tuple[str, ...], words: str, tmp_path: Path, differ: Differ
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema": "gpudoctor.trace/1"}')
    given = [str(broken) if one == "{json}" else fixture(one) if one == HEALTHY else one for one in arguments]
    code, out, err = differ(*given)
    assert (code, out, err.count("\n")) == (3, "", 1) and words in err


def test_this_node_is_a_side(differ: Differ) -> None:
    said = differ.told("live", fixture(HEALTHY), "--deadline", "20")
    assert (said["a"]["kind"], said["a"]["facts"], said["same"]) == ("live", True, False)


def test_other_sources_are_sides(tmp_path: Path, differ: Differ) -> None:
    """What nvidia-smi printed knows nothing of files, and is not said to differ in them."""
    said = tmp_path / "smi.txt"
    said.write_text("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-61803c11-6b95-1b34-eb4a-d48864d13bda)\n")
    told = differ.told(said, fixture(HEALTHY))
    assert told["way"] == "times" and told["a"]["at"] is None and told["hours"] is None
    assert not changes(told, "files") and not told["broke"]


def test_json_is_valid_under_its_own_schema(
    golden: Golden, later: DiffNode, differ: Differ, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert cli.main(["schema", "--of", "diff"]) == 0
    printed = capsys.readouterr().out
    golden.check("diff-1.schema.json", printed)
    schema = json.loads(printed)
    jsonschema.Draft202012Validator.check_schema(schema)
    later.gpu(0, pcie__replays=48)
    for other in (later.place, fixture(SICK), fixture("hgx-a100x8"), fixture("nothing-recorded")):
        said = differ.told(fixture(HEALTHY), other)
        jsonschema.Draft202012Validator(schema).validate(said)
        assert said["schema"] == "gpudoctor.diff/1"


def page_of(differ: Differ, *arguments: str) -> str:
    """What a terminal shows; nothing is said beside it."""
    code, out, err = differ(*arguments)
    assert err == "" and code in (0, 1)
    return out


LOOKS = [("", ()), ("-ascii", ("--ascii",)), ("-verbose", ("-v",)), ("-quiet", ("-q",))]


@pytest.mark.parametrize(("look", "options"), LOOKS)
def test_pages_of_what_broke(
    look: str, options: tuple[str, ...], tmp_path: Path, golden: Golden, differ: Differ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of reports of a few checks: another check that comes along changes nothing here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    asked = ("kernel-module.gpu-bound", "toolkit.docker-runtime", "device-nodes.gpu-node", "driver-cuda.nvml-answers")
    for name, node in (("a", HEALTHY), ("b", SICK)):
        only = [word for check in asked for word in ("--check", check)]
        cli.main(["run", "--node", fixture(node), *only, "--format", "line", "-o", f"{name}.json"])
    golden.check(f"diff/broke{look}.txt", page_of(differ, "a.json", "b.json", *options))
    if not look:
        golden.check("diff/healed.txt", page_of(differ, "b.json", "a.json", *options))


@pytest.mark.parametrize(("look", "options"), LOOKS)
def test_pages_of_what_changed(
    look: str,
    options: tuple[str, ...],
    later: DiffNode,
    golden: Golden,
    differ: Differ,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(later.place.parent)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    DiffNode(HEALTHY, Path("before"))
    later.gpu(0, pcie__replays=48, accounting_mode=True, clocks_event__sw_power_cap_nanoseconds=9_000_000_000)
    later.gpu(1, row_remap__corrected=1, accounting_mode=True)
    later.text("/etc/modules-load.d/nvidia.conf", "nvidia-uvm\n")
    config = (fixtures() / HEALTHY / "root/etc/nvidia-container-runtime/config.toml").read_text("utf-8")
    later.text("/etc/nvidia-container-runtime/config.toml", config + "# added\n")
    later.text(HOSTNAME, "n1-new\n")
    golden.check(f"diff/changed{look}.txt", page_of(differ, "before", "later", *options))
    if not look:
        golden.check("diff/same.txt", page_of(differ, "before", "before", *options))
        golden.check("diff/nodes.txt", page_of(differ, "before", "later", "--as", "nodes"))


def test_hostile_words_stay_words(tmp_path: Path, differ: Differ) -> None:
    words = "</title><script>document.title='owned'</script>\x1b]0;owned\x07\u202e<img src=x onerror=alert(1)>"
    bad = DiffNode(HEALTHY, tmp_path / "bad")
    bad.text(HOSTNAME, f"{words}\n")
    bad.text("/proc/sys/kernel/osrelease", f"{words}\n")
    bad.text("/etc/docker/daemon.json", f"{words}\n")
    bad.text(f"/etc/modprobe.d/{'x' * 20}<b>.conf", f"options nvidia {words}\n")
    code, out, err = differ(fixture(HEALTHY), bad.place, "-v")
    assert code == 1 and err == "" and not re.search("[\x00-\x09\x0b-\x1f\u202e]", out)
    _, page, _ = differ(fixture(HEALTHY), bad.place, "--format", "html")
    assert page.count("<script") == 1 and "<img" not in page and "\x1b" not in page
    assert {element.tag for element in tree(page).walk()} & {"script", "img", "b"} <= {"b", "script"}


@needs_chromium
@pytest.mark.parametrize("other", [SICK, "hgx-a100x8", HEALTHY])
def test_the_browser_has_nothing_to_say(other: str, tmp_path: Path, differ: Differ) -> None:
    place = tmp_path / "diff.html"
    differ(fixture(HEALTHY), fixture(other), "-q", "-o", place)
    document, console = open_page(place, tmp_path / "profile")
    assert console == []
    page = tree(document)
    assert len(page.all("h1")) == 1 and page.all("main") and page.all("caption")
    assert all("scope" in one.attributes for one in page.all("th"))
    said = differ.told(fixture(HEALTHY), fixture(other))
    assert said["headline"] in page.words
    assert all(one["title"] in page.words for one in said["broke"] if one["root"])
    assert all(one["what"] in page.words for one in said["changes"])
    ids = [one.attributes["id"] for one in page.walk() if "id" in one.attributes]
    links = [one.attributes["href"] for one in page.all("a")]
    assert len(ids) == len(set(ids)) and all(link.startswith("#") and link[1:] in ids for link in links)


def test_the_page_asks_for_nothing(differ: Differ) -> None:
    _, page, _ = differ(fixture(HEALTHY), fixture(SICK), "--format", "html")
    assert "default-src &#39;none&#39;" in page and page.count("<script") == 1
    assert not re.search(r'(?:href|src)="(?!#|data:)', page)
    assert page.isascii() and len(page) < 400_000
