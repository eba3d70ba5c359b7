"""Real CDI specs: those of upstream's tests, of a real node, and of the real nvidia-ctk 1.14 to 1.20; read where they lie, or skipped."""

import re
from pathlib import Path

import pytest

from gpudoctor.facts.cdi_spec import CdiSpec, parse_spec
from gpudoctor.facts.cdi_validity import refused_by
from gpudoctor.facts.config_text import Malformed
from gpudoctor.facts.raw import Entry, EntryType, TextFile
from gpudoctor.knowledge.cdi_versions import NEWEST
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status
from tests.test_cdi import NvidiaNode

SHARED = Path(__file__).resolve().parents[2] / "shared"
CORPUS, RIG, DOCKER = SHARED / "corpus" / "container-cdi", SHARED / "rig" / "toolkit", SHARED / "rig" / "docker"
MADE = sorted(RIG.glob("*/cdi*.yaml"))
FLOOR = 12
GOOD = ("cdi-spec-minimal.json", "cdi-spec-spec-example.json", "salilkadam-cdi-575.yaml")
JUDGED = ("cdi-bad-empty.json", *GOOD)


def parsed(path: Path, text: str | None = None) -> CdiSpec | Malformed:
    """A file as we read it."""
    found = parse_spec(TextFile(str(path), path.read_text() if text is None else text))
    assert isinstance(found, CdiSpec | Malformed)
    return found


def needs(place: Path) -> None:
    """Skip where the captures are not."""
    if not place.exists():
        pytest.skip(f"{place} is not here")


def test_files_of_the_corpus_are_judged_as_their_manifest_says() -> None:
    needs(CORPUS)
    bad = parsed(CORPUS / "cdi-bad-empty.json")
    assert isinstance(bad, Malformed)
    assert bad.said == "holds nothing"
    for name in GOOD:
        good = parsed(CORPUS / name)
        assert isinstance(good, CdiSpec), good
        assert refused_by(good, NEWEST) is None


def test_what_nvidia_ctk_writes_is_taken_by_podman_of_debian_and_by_the_newest_library() -> None:
    needs(RIG)
    for path in MADE:
        spec = parsed(path)
        assert isinstance(spec, CdiSpec), (path, spec)
        assert refused_by(spec, NEWEST) is None
        assert refused_by(spec, (0, 5, 2)) is None
    assert len(MADE) >= FLOOR


@pytest.mark.parametrize("release", ["1.14.6", "1.17.8", "1.18.2", "1.20.0"])
def test_names_are_those_that_nvidia_ctk_lists(release: str) -> None:
    needs(RIG / release / "cdi-list.txt")
    spec = parsed(RIG / release / "cdi.yaml")
    assert isinstance(spec, CdiSpec)
    listed = [line for line in (RIG / release / "cdi-list.txt").read_text().splitlines() if re.match(r"\S+/\S+=", line)]
    assert sorted(spec.names) == sorted(listed)


def test_what_nvidia_ctk_writes_on_a_sick_node_is_a_spec_or_an_error() -> None:
    needs(RIG / "sick")
    outcomes = {}
    for path in sorted((RIG / "sick").glob("cdi-generate.*.txt")):
        text = path.read_text()
        if "\n---\n" not in text:
            assert "level=error" in text, path
            outcomes[path.stem.removeprefix("cdi-generate.")] = "error"
            continue
        spec = parsed(path, "---\n" + text.partition("\n---\n")[2].split("\nrc=")[0].split("\ntime=")[0])
        assert isinstance(spec, CdiSpec), (path, spec)
        outcomes[path.stem.removeprefix("cdi-generate.")] = f"{len(spec.devices)} devices"
    assert len(outcomes) >= 7, outcomes
    assert "error" in outcomes.values()


def test_a_real_spec_is_current_on_its_node_and_stale_behind_another_driver() -> None:
    needs(CORPUS)
    path = CORPUS / "salilkadam-cdi-575.yaml"
    spec = parsed(path)
    assert isinstance(spec, CdiSpec)
    uuid = next(device.name for device in spec.devices if device.name.startswith("GPU-"))
    summaries = {}
    for driver in ("575.64.03", "580.95.05"):
        node = NvidiaNode(driver=driver, uuids=(uuid,))
        node.spec("/etc/cdi/nvidia.yaml", path.read_text())
        for mount in spec.mounts:
            if driver == "575.64.03" or "575.64.03" not in mount.host_path:
                node.tree.put(mount.host_path, Record(entry=Entry(mount.host_path, EntryType.FILE, mode=0o755)))
        for hook in spec.hooks:
            node.tree.put(hook.path, Record(entry=Entry(hook.path, EntryType.FILE, mode=0o755)))
        for one in spec.nodes:
            if one.source not in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"):
                node.node(one.source, 195, 254)
        result = node.judge("toolkit.cdi-specs-current")
        summaries[driver] = (result.status, result.findings[0].summary)
    assert summaries["575.64.03"][0] is Status.PASS, summaries
    assert summaries["580.95.05"][0] is Status.FAIL
    assert "it is of driver 575.64.03, the node has 580.95.05" in summaries["580.95.05"][1]


def test_dockerd_confirms_what_is_not_found_and_what_is_stale() -> None:
    """dockerd 26.1.5: an unknown name, no spec, and a spec that mounts files of another driver."""
    place = DOCKER / "26.1.5"
    needs(place)
    said = {
        name: (place / name / "run.txt").read_text()
        for name in ("cdi-baddev", "cdi-no-spec", "cdi-stale-spec", "cdi-device")
    }
    assert "unresolvable CDI devices nvidia.com/gpu=77" in said["cdi-baddev"]
    assert "unresolvable CDI devices nvidia.com/gpu=0" in said["cdi-no-spec"]
    assert "no such file or directory" in said["cdi-stale-spec"]
    assert "rc=0" in said["cdi-device"]
