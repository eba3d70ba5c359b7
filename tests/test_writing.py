"""Recordings written as archives: read back they say the same, equal content is equal, and nothing is overwritten or left behind."""

import bz2
import gzip
import io
import lzma
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from gpudoctor import cli
from gpudoctor.probes.deadline import Deadline
from gpudoctor.registry import built_in
from gpudoctor.report import Report
from gpudoctor.run import Selection, run
from gpudoctor.sources import writing
from gpudoctor.sources.archive import read_archive
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.live import Live
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.recorder import Recorder
from gpudoctor.sources.snapshot import Snapshot, read_snapshot
from gpudoctor.testing import config_of, node
from tests.live_root import (
    alone_with_its_workers,  # noqa: F401 # used by every test here
    make_root,
)
from tests.test_archives import FORMS, MANIFEST, comparable


def recorded(name: str, place: Path) -> tuple[Recorder, Report]:
    """A recorded run over a root made from a recorded node."""
    config = config_of(node(name))
    recorder = Recorder(Live(Deadline(20.0), str(make_root(name, place / "root"))))
    return recorder, run(recorder, config, built_in(), Selection(), recorder.recorded_at)


@pytest.mark.parametrize("name", ["h100x8", "nouveau-and-broken-daemon-json"])
def test_what_is_recorded_into_an_archive_reads_as_the_node_did(name: str, tmp_path: Path) -> None:
    recorder, live = recorded(name, tmp_path)
    for suffix in FORMS:
        place = tmp_path / f"n1-2026{suffix}"
        recorder.write(place, config_of(node(name)))
        found = open_source(str(place))
        assert isinstance(found, Snapshot) and found.manifest is not None
        replayed = run(found, config_of(found), built_in(), Selection(), recorder.recorded_at)
        expected, got = comparable(live), comparable(replayed)
        assert (expected["node"].pop("source"), got["node"].pop("source")) == ("root", "snapshot")
        assert got == expected
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert (tmp_path / "n1-2026.tar.zst").stat().st_size < 2_000_000, "an 8-GPU node fits into a mail"


MEMBERS = {"root/etc/x": b"x", "snapshot.json": MANIFEST, "kernel.log": b"1\n"}


@pytest.mark.parametrize("suffix", FORMS)
def test_equal_content_gives_equal_bytes(suffix: str, tmp_path: Path) -> None:
    first, second = tmp_path / "1" / f"n1{suffix}", tmp_path / "2" / f"n1{suffix}"
    for place, members in ((first, MEMBERS), (second, dict(reversed(MEMBERS.items())))):
        place.parent.mkdir()
        writing.write_snapshot(place, members)
    assert first.read_bytes() == second.read_bytes()
    plain = {".tar.gz": gzip.decompress, ".tar.bz2": bz2.decompress, ".tar.xz": lzma.decompress}.get(suffix, bytes)
    if suffix != ".tar.zst":
        with tarfile.open(fileobj=io.BytesIO(plain(first.read_bytes()))) as packed:
            written = packed.getmembers()
        assert [member.name for member in written] == ["n1/snapshot.json", "n1/kernel.log", "n1/root/etc/x"]
        assert {(member.mode, member.uid, member.gid, member.uname, member.mtime) for member in written} == {
            (0o600, 0, 0, "", 1795953600)
        }


def test_the_system_tar_reads_what_is_written(tmp_path: Path) -> None:
    writing.write_snapshot(tmp_path / "n1.tar.gz", {**MEMBERS, "root/" + "d/" * 150 + "x": b"deep"})
    listed = subprocess.run(
        ["tar", "-tzf", str(tmp_path / "n1.tar.gz")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert listed[0] == "n1/snapshot.json" and "n1/root/" + "d/" * 150 + "x" in listed


@pytest.mark.parametrize("name", ["n1.tar.zst", "n1.tar", "folder"])
def test_nothing_is_overwritten(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / name
    if name == "folder":
        place.mkdir()
        (place / "mine").write_text("mine")
    else:
        place.symlink_to("/nowhere")
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["record", "--raw", "-o", str(place), "--root", str(tmp_path / "no-root")]) == 3
    assert str(place) in capsys.readouterr().err, "said before the node is looked at"
    with pytest.raises(SourceError, match="new snapshot only"):
        writing.write_snapshot(place, MEMBERS)
    assert sorted(tmp_path.rglob("*")) == before


def test_one_that_came_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "n1.tar"
    monkeypatch.setattr(writing, "refuse_what_exists", lambda _: place.write_text("theirs"))
    with pytest.raises(SourceError, match="File exists"):
        writing.write_snapshot(place, MEMBERS)
    monkeypatch.setattr(os, "link", _no_links)
    with pytest.raises(SourceError, match="File exists"):
        writing.write_snapshot(place, MEMBERS)
    assert os.listdir(tmp_path) == ["n1.tar"] and place.read_text() == "theirs"


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _no_links)
    writing.write_snapshot(tmp_path / "n1.tar.xz", MEMBERS)
    assert os.listdir(tmp_path) == ["n1.tar.xz"]
    assert isinstance(read_snapshot(read_archive(tmp_path / "n1.tar.xz")), Snapshot)


def _no_links(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("suffix", FORMS)
def test_a_failure_leaves_nothing_behind(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(SourceError, match="No space left"):
        writing.write_snapshot(tmp_path / f"n1{suffix}", MEMBERS)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SourceError, match="No such file"):
        writing.write_snapshot(tmp_path / f"none/n1{suffix}", MEMBERS)
