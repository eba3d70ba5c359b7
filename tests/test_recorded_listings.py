"""A directory that was listed: what a recording says of its names, and nothing of what lies below them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.raw import Absent, Entry, Listing
from gpudoctor.probes.deadline import Deadline
from gpudoctor.sources.archive import read_archive
from gpudoctor.sources.live import Live
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.redaction import redact
from gpudoctor.sources.snapshot import Snapshot, open_snapshot, read_snapshot
from gpudoctor.sources.writing import write_snapshot
from gpudoctor.verdicts import Unread, Why
from tests.test_sources import opened

PODS = "/var/log/pods"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with two pods' logs."""
    for folder in ("proc", "sys", "dev", "var/log/pods/a_b_c/main", "var/log/pods/d_e_f/main", "var/log/pods/empty"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    for pod in ("a_b_c", "d_e_f"):
        (tmp_path / "root/var/log/pods" / pod / "main/0.log").write_text("x\n")
    return tmp_path / "root"


def recorder_of(root: Path) -> Recorder:
    """What remembers the look at a host below a root."""
    return Recorder(Live(Deadline(20.0), str(root)))


def replayed(recorder: Recorder, place: Path) -> Snapshot:
    """The recording, written and opened."""
    recorder.write(place, Config())
    return open_snapshot(place) if place.is_dir() else read_snapshot(read_archive(place))


@pytest.mark.parametrize("name", ["snapshot", "snapshot.tar.gz"])
def test_a_listing_is_as_complete_in_replay_whatever_was_entered(name: str, root: Path, tmp_path: Path) -> None:
    recorder = recorder_of(root)
    live = [recorder.listing(path) for path in (PODS, f"{PODS}/a_b_c", f"{PODS}/a_b_c/main")]
    node = replayed(recorder, tmp_path / name)
    assert live[0] == Listing(PODS, ("a_b_c", "d_e_f", "empty"), complete=True)
    assert [node.listing(path) for path in (PODS, f"{PODS}/a_b_c", f"{PODS}/a_b_c/main")] == live


def test_what_was_not_entered_stays_unknown(root: Path, tmp_path: Path) -> None:
    recorder = recorder_of(root)
    recorder.listing(PODS)
    node = replayed(recorder, tmp_path / "snapshot")
    assert node.listing(f"{PODS}/d_e_f") == Listing(f"{PODS}/d_e_f", (), complete=False)
    for path in (f"{PODS}/d_e_f/main", f"{PODS}/d_e_f/main/0.log", "/var/log/syslog", "/var/logs"):
        found = node.entry(path)
        assert isinstance(found, Unread) and found.why is Why.NOT_RECORDED
    assert isinstance(node.entry(f"{PODS}/g_h_i"), Absent)
    assert isinstance(node.read(f"{PODS}/g_h_i/main/0.log"), Absent)


def test_a_look_at_some_names_does_not_make_a_listing(root: Path, tmp_path: Path) -> None:
    recorder = recorder_of(root)
    recorder.listing(PODS, begin="a")
    node = replayed(recorder, tmp_path / "snapshot")
    assert node.listing(PODS) == Listing(PODS, ("a_b_c",), complete=False)
    assert isinstance(node.entry(f"{PODS}/d_e_f"), Unread)


def test_names_that_cannot_be_told_leave_a_listing_open(root: Path, tmp_path: Path) -> None:
    os.mkdir(os.fsencode(root / "var/log/pods") + b"/caf\xe9")
    recorder = recorder_of(root)
    live = recorder.listing(PODS)
    node = replayed(recorder, tmp_path / "snapshot")
    assert isinstance(live, Listing) and not live.complete
    listing = node.listing(PODS)
    assert isinstance(listing, Listing) and not listing.complete
    assert isinstance(node.entry(f"{PODS}/g_h_i"), Unread)


def test_a_link_to_a_listed_directory_is_listed(root: Path, tmp_path: Path) -> None:
    (root / "var/pods").symlink_to("log/pods")
    recorder = recorder_of(root)
    live = recorder.listing("/var/pods")
    node = replayed(recorder, tmp_path / "snapshot")
    assert node.listing("/var/pods") == live
    assert isinstance(node.entry("/var/pods/g_h_i"), Absent) and isinstance(node.entry("/var/other"), Unread)


def test_redaction_keeps_it(root: Path, tmp_path: Path) -> None:
    recorder = recorder_of(root)
    recorder.listing(PODS)
    write_snapshot(tmp_path / "redacted", redact(recorder.members(Config()), b"salt").members)
    listing = open_snapshot(tmp_path / "redacted").listing(PODS)
    assert isinstance(listing, Listing) and listing.complete and len(listing.names) == 3


def test_the_nearest_directory_decides(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [
        {"path": "/etc", "type": "dir", "listed": True},
        {"path": "/etc/cdi", "type": "dir"},
        {"path": "/run", "type": "dir", "listed": False},
        {"path": "/opt", "type": "dir", "listed": "yes"},
    ]
    node = opened(tmp_path, entries)
    assert isinstance(node.entry("/etc/docker/daemon.json"), Absent)
    assert isinstance(node.entry("/etc/cdi/nvidia.yaml"), Unread)
    for folder in ("/run", "/opt"):
        assert node.listing(folder) == Listing(folder, (), complete=False)
        assert isinstance(node.entry(f"{folder}/x"), Unread)


def test_a_directory_that_could_not_be_seen_is_not_listed(root: Path, tmp_path: Path) -> None:
    recorder = recorder_of(root)
    recorder.entry(f"{PODS}/none")
    recorder.listing(f"{PODS}/a_b_c/main/0.log")
    node = replayed(recorder, tmp_path / "snapshot")
    assert isinstance(node.entry(f"{PODS}/a_b_c/main/0.log"), Entry)
    lines = (tmp_path / "snapshot/entries.jsonl").read_text().splitlines()
    assert not any("listed" in json.loads(line) for line in lines)
