"""Snapshots: the format's rules, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.facts.raw import Absent, CommandOutput, Entry, EntryType, Listing, TextFile
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.snapshot import Snapshot, open_snapshot
from gpudoctor.verdicts import Unread, Why


def write(directory: Path, entries: list[dict[str, Any]] | None = None, **manifest: Any) -> Path:
    """A snapshot with these entries."""
    directory.mkdir(parents=True, exist_ok=True)
    said = {"format": 1, "recorded_at": "2026-11-29T12:00:00Z", **manifest}
    (directory / "snapshot.json").write_text(json.dumps(said))
    lines = [json.dumps(entry) for entry in entries or ()]
    (directory / "entries.jsonl").write_text("\n".join(lines))
    return directory


def opened(directory: Path, entries: list[dict[str, Any]] | None = None, **manifest: Any) -> Snapshot:
    """The same, opened."""
    return open_snapshot(write(directory, entries, **manifest))


def test_a_path_not_there_is_absent_only_at_or_below_a_complete_prefix(tmp_path: Path) -> None:
    node = opened(tmp_path, [{"path": "/etc/here", "type": "file"}], complete=["/etc"])
    assert isinstance(node.read("/etc/nowhere"), Absent)
    assert isinstance(node.read("/etcetera"), Unread)
    found = node.read("/var/x")
    assert isinstance(found, Unread) and found.why is Why.NOT_RECORDED


def test_the_root_can_be_complete(tmp_path: Path) -> None:
    assert isinstance(opened(tmp_path, complete=["/"]).read("/anything/at/all"), Absent)


def test_an_error_entry_is_absence_or_a_reason(tmp_path: Path) -> None:
    node = opened(
        tmp_path, [{"path": "/a", "error": "ENOENT"}, {"path": "/b", "error": "EACCES"}, {"path": "/c", "error": "EIO"}]
    )
    assert isinstance(node.read("/a"), Absent)
    assert isinstance(node.read("/a/below"), Absent)
    denied, broken = node.read("/b/below"), node.entry("/c")
    assert isinstance(denied, Unread) and (denied.why, denied.would_need) == (Why.NO_PERMISSION, "root")
    assert isinstance(broken, Unread) and broken.why is Why.UNREADABLE


def test_content_not_kept_is_not_recorded_but_exists(tmp_path: Path) -> None:
    node = opened(tmp_path, [{"path": "/usr/lib/libcuda.so", "type": "file", "size": 5, "mode": "0755"}])
    entry, text = node.entry("/usr/lib/libcuda.so"), node.read("/usr/lib/libcuda.so")
    assert isinstance(entry, Entry) and (entry.size, entry.mode) == (5, 0o755)
    assert isinstance(text, Unread) and text.why is Why.NOT_RECORDED


def test_every_type_of_entry(tmp_path: Path) -> None:
    types = ["char", "block", "fifo", "socket", "dir", "link", "file"]
    node = opened(
        tmp_path, [{"path": f"/d/{kind}", "type": kind, "major": 195, "minor": 3, "to": "char"} for kind in types]
    )
    for kind in types:
        entry = node.entry(f"/d/{kind}")
        assert isinstance(entry, Entry) and entry.type.value == kind
    followed = node.entry("/d/link", follow=True)
    assert isinstance(followed, Entry) and (followed.type, followed.major, followed.minor) == (EntryType.CHAR, 195, 3)


def test_links_resolve_inside_the_recording(tmp_path: Path) -> None:
    write(
        tmp_path,
        [
            {
                "path": "/sys/bus/pci/devices/0000:01:00.0",
                "type": "link",
                "to": "../../../devices/pci0000:00/0000:01:00.0",
            },
            {"path": "/etc/os-release", "type": "link", "to": "/usr/lib/os-release"},
            {"path": "/loop", "type": "link", "to": "/loop"},
        ],
        complete=["/sys/devices"],
    )
    for path in ("sys/devices/pci0000:00/0000:01:00.0", "usr/lib"):
        (tmp_path / "root" / path).mkdir(parents=True)
    (tmp_path / "root/sys/devices/pci0000:00/0000:01:00.0/vendor").write_text("0x10de\n")
    (tmp_path / "root/usr/lib/os-release").write_text("ID=x\n")
    (tmp_path / "root/etc").mkdir()
    (tmp_path / "root/etc/out").symlink_to("/etc/passwd")
    node = open_snapshot(tmp_path)
    vendor, release, out = (
        node.read(p) for p in ("/sys/bus/pci/devices/0000:01:00.0/vendor", "/etc/os-release", "/etc/out")
    )
    assert isinstance(vendor, TextFile) and vendor.text == "0x10de\n"
    assert isinstance(release, TextFile) and release.text == "ID=x\n"
    assert isinstance(out, Unread) and out.why is Why.NOT_RECORDED
    assert isinstance(node.entry("/sys/bus/pci/devices/0000:01:00.0/driver"), Absent)
    loop = node.read("/loop")
    assert isinstance(loop, Unread) and "symbolic links" in loop.detail


def test_listings_join_entries_and_files_and_say_whether_they_are_complete(tmp_path: Path) -> None:
    write(tmp_path, [{"path": "/d/entry", "type": "dir"}, {"path": "/d/gone", "error": "ENOENT"}], complete=["/whole"])
    for path in ("d/file", "whole/x"):
        (tmp_path / "root" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / path).write_text("")
    node = open_snapshot(tmp_path)
    assert node.listing("/d") == Listing("/d", ("entry", "file"), complete=False)
    assert node.listing("/whole") == Listing("/whole", ("x",), complete=True)
    assert isinstance(node.listing("/nowhere"), Unread)
    assert isinstance(node.listing("/d/file"), Unread)


def test_undecodable_bytes_are_kept_as_escapes(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/x").write_bytes(b"caf\xe9")
    (tmp_path / "kernel.log").write_bytes(b"\xff\xfe NVRM\n")
    node = open_snapshot(tmp_path)
    text, log = node.read("/x"), node.log("kernel.log")
    assert isinstance(text, TextFile) and text.text == "caf\\xe9"
    assert not isinstance(log, Unread) and "\\xff\\xfe NVRM" in log.text


def test_commands_are_keyed_by_exact_argv(tmp_path: Path) -> None:
    write(tmp_path)
    lines = [
        {"argv": ["modinfo", "nvidia"], "exit": 1, "stdout": "", "stderr": "no\n", "seconds": 0.1},
        {"argv": ["nvidia-smi"], "error": "timed-out"},
        {"argv": ["dkms"], "error": "not-found"},
    ]
    (tmp_path / "commands.jsonl").write_text("\n".join(map(json.dumps, lines)))
    node = open_snapshot(tmp_path)
    ran, hung, missing = (node.command(argv) for argv in (("modinfo", "nvidia"), ("nvidia-smi",), ("dkms",)))
    assert isinstance(ran, CommandOutput) and (ran.exit, ran.stderr) == (1, "no\n")
    assert isinstance(hung, Unread) and hung.why is Why.TIMED_OUT
    assert isinstance(missing, Absent)
    assert isinstance(node.command(("modinfo",)), Unread)


def test_wrong_kinds_of_file_inside_a_snapshot_are_unreadable_not_fatal(tmp_path: Path) -> None:
    write(tmp_path, [{"path": "/proc/modules", "type": "dir"}])
    (tmp_path / "kernel.log").mkdir()
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers/nvml.json").write_text("{]")
    node = open_snapshot(tmp_path)
    for found in (
        node.read("/proc/modules"),
        node.log("kernel.log"),
        node.answer("nvml", lambda: pytest.fail("asked")),
    ):
        assert isinstance(found, Unread) and found.why is Why.UNREADABLE


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"format": 99, "recorded_at": "2026-11-29T12:00:00Z"}', "format 99"),
        ('{"recorded_at": "2026-11-29T12:00:00Z"}', "format None"),
        ("[]", "format None"),
        ("\x00\x01", "not a snapshot manifest"),
        ('{"format": 1}', "recorded_at"),
        ('{"format": 1, "recorded_at": "yesterday"}', "recorded_at"),
    ],
)
def test_a_manifest_that_is_none_is_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").write_text(content)
    with pytest.raises(SourceError, match=words):
        open_snapshot(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1]",
        '{"type": "file"}',
        '{"path": "relative", "type": "file"}',
        '{"path": "/a/../../etc", "type": "file"}',
        '{"path": "/x", "type": "pipe"}',
    ],
)
def test_a_damaged_entries_file_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "entries.jsonl").write_text('{"path": "/ok", "type": "dir"}\n' + line)
    with pytest.raises(SourceError, match="line 2"):
        open_snapshot(tmp_path)


def test_a_directory_that_is_neither_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(SourceError, match="neither a snapshot"):
        open_source(str(tmp_path))
    with pytest.raises(SourceError, match="no such file"):
        open_source(str(tmp_path / "missing"))


def _run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpudoctor", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize("kind", ["cut", "empty", "noise", "format99", "no-root", "missing", "fifo"])
def test_bad_input_ends_with_exit_3_and_one_clear_line(kind: str, tmp_path: Path) -> None:
    import gzip

    place = tmp_path / "input"
    match kind:
        case "cut":
            place.write_bytes(gzip.compress(os.urandom(5000))[:3000])
        case "empty":
            place.write_bytes(b"")
        case "noise":
            place.write_bytes(os.urandom(5000))
        case "format99":
            write(place, format=99)
        case "no-root":
            place.mkdir()
        case "fifo":
            os.mkfifo(place)
    ended = _run("run", "--node", str(place))
    assert ended.returncode == 3
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1 and ended.stderr.startswith("gpudoctor: "), ended.stderr
    assert str(place) in ended.stderr


def test_a_snapshot_cannot_lead_out_of_itself(tmp_path: Path) -> None:
    """Links in the place of folders or files of the snapshot show nothing of the machine that reads it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "os-release").write_text("SECRET\n")
    snapshot = write(tmp_path / "snapshot", [{"path": "/etc", "type": "dir"}], complete=["/"])
    (snapshot / "root").mkdir()
    (snapshot / "root/etc").symlink_to(outside)
    (snapshot / "kernel.log").symlink_to(outside / "os-release")
    (snapshot / "answers").symlink_to(outside)
    (outside / "nvml.json").write_text("{}")
    node = open_snapshot(snapshot)
    assert isinstance(node.read("/etc/os-release"), Absent)
    listing = node.listing("/etc")
    assert not isinstance(listing, Listing) or listing.names == ()
    for found in (node.log("kernel.log"), node.answer("nvml", lambda: pytest.fail("asked"))):
        assert isinstance(found, Unread) and found.why is Why.UNREADABLE
    (snapshot / "root").rename(snapshot / "elsewhere")
    (snapshot / "root").symlink_to(outside)
    with pytest.raises(SourceError, match="is a link"):
        open_snapshot(snapshot)


@pytest.mark.parametrize("name", ["snapshot.json", "entries.jsonl", "commands.jsonl"])
def test_a_fifo_in_the_place_of_a_snapshots_file_is_refused_at_once(name: str, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(SourceError, match="regular file"):
        open_snapshot(tmp_path)


def test_a_fifo_in_the_place_of_a_log_or_file_is_unreadable(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "root").mkdir()
    os.mkfifo(tmp_path / "kernel.log")
    os.mkfifo(tmp_path / "root/x")
    node = open_snapshot(tmp_path)
    for found in (node.log("kernel.log"), node.read("/x")):
        assert isinstance(found, Unread) and found.why is Why.UNREADABLE


def test_overlong_and_odd_paths_are_errors_of_their_own(tmp_path: Path) -> None:
    node = opened(
        tmp_path, [{"path": "/l", "type": "link", "to": "a/" * 6000}, {"path": "/z", "type": "link", "to": "x\x00y"}]
    )
    for path in ("/l", "/z", "/" + "a" * 5000):
        assert isinstance(node.read(path), Unread)


def test_deeply_nested_json_is_refused_with_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "entries.jsonl").write_text('{"path": ' + "[" * 100_000)
    with pytest.raises(SourceError, match="line 1"):
        open_snapshot(tmp_path)
