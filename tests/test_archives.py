"""Archives: each form reads as the directory does, and hostile, cut and damaged ones are refused."""

import io
import json
import lzma
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudoctor import cli
from gpudoctor.facts.raw import Entry, EntryType, Listing, TextFile
from gpudoctor.report import Report
from gpudoctor.sources import archive
from gpudoctor.sources.compressed import packing
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.snapshot import Snapshot
from gpudoctor.testing import fixtures, node, run_node
from gpudoctor.verdicts import Unread
from tests.sweeping import recorded_nodes, thinned

FORMS = {".tar": None, ".tar.gz": "gzip", ".tar.bz2": "bzip2", ".tar.xz": "xz", ".tar.zst": "zstd"}
MANIFEST = json.dumps({"format": 1, "recorded_at": "2026-11-29T12:00:00Z"}).encode()

Content = tuple[str, bytes] | tarfile.TarInfo
"""A file, or a header without content."""


def header(name: str, kind: bytes, to: str = "", **fields: Any) -> tarfile.TarInfo:
    """A member that is no file."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, to
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def tar(members: Iterable[Content], form: int = tarfile.PAX_FORMAT) -> bytes:
    """An archive as tarfile writes it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as packed:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                packed.addfile(member)
                continue
            name, content = member
            described = tarfile.TarInfo(name)
            described.size = len(content)
            packed.addfile(described, io.BytesIO(content))
    return file.getvalue()


def compressed(content: bytes, form: str | None) -> bytes:
    """The same, compressed."""
    file = io.BytesIO()
    with packing(file, form) as stream:
        stream.write(content)
    return file.getvalue()


def snapshot(*members: Content) -> bytes:
    """An archive of a snapshot with these members besides its manifest."""
    return tar([("n1/snapshot.json", MANIFEST), *members])


def opened(place: Path, content: bytes) -> Snapshot:
    """What an archive with this content holds."""
    place.write_bytes(content)
    found = open_source(str(place))
    assert isinstance(found, Snapshot)
    return found


def comparable(report: Report) -> dict[str, Any]:
    """A report without how long it took."""
    plain: dict[str, Any] = msgspec.to_builtins(report)
    del plain["seconds"]
    return plain


def packed_directory(directory: Path, top: str, form: str | None) -> bytes:
    """A directory as `tar -c` would pack it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as packed:
        packed.add(directory, top)
    return compressed(file.getvalue(), form)


@pytest.mark.parametrize("suffix", FORMS)
@pytest.mark.parametrize("top", ["n1-2026-11-29", ".", ""])
@pytest.mark.parametrize("name", ["h100x8", "nouveau-and-broken-daemon-json"])
def test_an_archive_reads_as_its_directory_does(name: str, top: str, suffix: str, tmp_path: Path) -> None:
    # What it is stands in the file, not in its name.
    found = opened(tmp_path / "report.log", packed_directory(fixtures() / name, top, FORMS[suffix]))
    assert comparable(run_node(found)) == comparable(run_node(node(name)))


@pytest.mark.parametrize("name", thinned(recorded_nodes()))
def test_every_recorded_node_reads_the_same_from_an_archive(name: str, tmp_path: Path) -> None:
    found = opened(tmp_path / "a.tar", packed_directory(fixtures() / name, name, None))
    assert comparable(run_node(found)) == comparable(run_node(node(name)))


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"])
def test_what_parallel_compressors_write_is_one_archive(suffix: str, tmp_path: Path) -> None:
    plain = packed_directory(fixtures() / "h100x8", "n1", None)
    pieces = [compressed(plain[start : start + 50_000], FORMS[suffix]) for start in range(0, len(plain), 50_000)]
    found = opened(tmp_path / "a", b"".join(pieces))
    assert comparable(run_node(found)) == comparable(run_node(node("h100x8")))


def test_a_plain_root_directory_in_an_archive(tmp_path: Path) -> None:
    content = tar(
        [
            header("./etc", tarfile.DIRTYPE),
            ("./etc/os-release.real", b"ID=x\n"),
            header("./etc/os-release", tarfile.SYMTYPE, "/etc/os-release.real"),
            header("./dev/nvidia0", tarfile.CHRTYPE, devmajor=195, devminor=0),
            header("./etc/out", tarfile.SYMTYPE, "../../../etc/passwd"),
        ]
    )
    found = opened(tmp_path / "host.tar", content)
    release, device, out = found.read("/etc/os-release"), found.entry("/dev/nvidia0"), found.read("/etc/out")
    assert found.manifest is None
    assert isinstance(release, TextFile) and release.text == "ID=x\n"
    assert isinstance(device, Entry) and (device.type, device.major, device.minor) == (EntryType.CHAR, 195, 0)
    assert isinstance(out, Unread), "absolute and climbing links stay inside"
    assert found.listing("/dev") == Listing("/dev", ("nvidia0",), complete=False)


def test_links_inside_root_are_the_nodes_and_hard_links_are_files(tmp_path: Path) -> None:
    found = opened(
        tmp_path / "a",
        snapshot(
            ("n1/root/usr/lib/os-release", b"ID=x\n"),
            header("n1/root/etc/os-release", tarfile.SYMTYPE, "/usr/lib/os-release"),
            header("n1/root/etc/far", tarfile.SYMTYPE, "../../../../../../etc/passwd"),
            header("n1/root/etc/same", tarfile.LNKTYPE, "n1/root/usr/lib/os-release"),
        ),
    )
    for path in ("/etc/os-release", "/etc/same"):
        text = found.read(path)
        assert isinstance(text, TextFile) and text.text == "ID=x\n"
    link = found.entry("/etc/far")
    assert isinstance(link, Entry) and link.to == "../../../../../../etc/passwd"
    assert isinstance(found.read("/etc/far"), Unread)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_that_are_long_or_not_utf8_are_kept(form: int, tmp_path: Path) -> None:
    long = "/".join(["n1/root"] + ["device" * 8] * 20)
    content = tar([("n1/snapshot.json", MANIFEST), (long, b"x"), ("n1/root/caf\udce9", b"\xff")], form)
    found = opened(tmp_path / "a", content)
    deep, odd = found.read(long.removeprefix("n1/root")), found.read("/caf\\xe9")
    assert isinstance(deep, TextFile) and deep.text == "x"
    assert isinstance(odd, TextFile) and odd.text == "\\xff"


def test_an_entry_describes_the_file_that_the_archive_keeps(tmp_path: Path) -> None:
    entries = b'{"path": "/etc/x", "type": "file", "mode": "0600"}\n{"path": "/etc/gone", "error": "ENOENT"}\n'
    found = opened(tmp_path / "a", snapshot(("n1/entries.jsonl", entries), ("n1/root/etc/x", b"text")))
    entry, text = found.entry("/etc/x"), found.read("/etc/x")
    assert isinstance(entry, Entry) and entry.mode == 0o600
    assert isinstance(text, TextFile) and text.text == "text"
    assert found.listing("/etc") == Listing("/etc", ("x",), complete=False)


# Hostile and broken ------------------------------------------------------------------------------------------------


def refused(place: Path, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`run` ends with 3 and one line that names the file and says why, and leaves nothing behind."""
    before = sorted(place.parent.rglob("*"))
    assert cli.main(["run", "--node", str(place)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1 and said.err.startswith(f"gpudoctor: {place}"), said.err
    assert words in said.err
    assert sorted(place.parent.rglob("*")) == before


PAX_BOMB = header("n1/x", tarfile.REGTYPE, pax_headers={"comment": "x" * (2 << 20)})

HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "absolute name": (lambda: snapshot(("/etc/passwd", b"x")), "leads out of the archive"),
    "climbing name": (lambda: snapshot(("n1/../../etc/passwd", b"x")), "leads out of the archive"),
    "absolute link": (
        lambda: snapshot(header("n1/kernel.log", tarfile.SYMTYPE, "/etc/passwd")),
        "link that leads out of the archive",
    ),
    "climbing link": (
        lambda: snapshot(header("n1/answers/nvml.json", tarfile.SYMTYPE, "../../../x")),
        "link that leads out of the archive",
    ),
    "root is a link": (lambda: snapshot(header("n1/root", tarfile.SYMTYPE, "elsewhere")), "root is a link"),
    "hard link out": (
        lambda: snapshot(header("n1/kernel.log", tarfile.LNKTYPE, "/etc/passwd")),
        "leads out of the archive",
    ),
    "hard link to nothing": (
        lambda: snapshot(header("n1/kernel.log", tarfile.LNKTYPE, "n1/none")),
        "hard link to n1/none",
    ),
    "device": (
        lambda: snapshot(header("n1/root/dev/nvidia0", tarfile.CHRTYPE, devmajor=195)),
        "is a character device: a snapshot keeps it in entries.jsonl",
    ),
    "fifo": (lambda: snapshot(header("n1/kernel.log", tarfile.FIFOTYPE)), "entries.jsonl"),
    "unknown kind": (lambda: snapshot(header("n1/x", b"V")), "of a kind"),
    "twice": (lambda: snapshot(("n1/kernel.log", b"1"), ("./n1/kernel.log", b"2")), "holds n1/kernel.log twice"),
    "file and folder": (lambda: snapshot(("n1/a", b""), ("n1/a/b", b"")), "though n1/a is no folder"),
    "folder and file": (lambda: snapshot(("n1/a/b", b""), ("n1/a", b"")), "holds n1/a twice"),
    "below a link": (
        lambda: snapshot(header("n1/root/etc", tarfile.SYMTYPE, "/"), ("n1/root/etc/passwd", b"")),
        "though n1/root/etc is no folder",
    ),
    "too many": (
        lambda: tar([header(f"n1/root/{number}", tarfile.REGTYPE) for number in range(1001)]),
        "holds more than 1000 members",
    ),
    "too many folders": (
        lambda: snapshot(*((f"n1/{number}" + "/a" * 500, b"") for number in range(5))),
        "1000 members",
    ),
    "large file": (lambda: snapshot(("n1/kernel.log", bytes(2 << 20))), "n1/kernel.log is larger than 1 MiB"),
    "much in all": (
        lambda: snapshot(*((f"n1/root/{number}", bytes(1 << 20)) for number in range(9))),
        "unpacks to more than 8 MiB",
    ),
    "long name": (lambda: snapshot(("n1/root/" + "a" * 5000, b"")), "longer than 4096"),
    "much header": (lambda: snapshot(PAX_BOMB), "MiB of headers"),
    "nested headers": (
        lambda: tar([header(f"{'x' * 200}{number}", tarfile.GNUTYPE_LONGNAME) for number in range(3)]),
        "damaged tar archive",
    ),
    "nothing": (lambda: tar([]), ""),
    "no recording": (lambda: tar([("photos/1.jpg", b"x")]), "neither a snapshot"),
    "no archive inside": (lambda: compressed(b"text\n" * 1000, "zstd"), "damaged tar archive"),
    "format 99": (lambda: tar([("snapshot.json", b'{"format": 99}')]), "format 99"),
    "entries cut": (lambda: snapshot(("n1/entries.jsonl", b'{"path": ')), "entries.jsonl, line 1"),
    "entries is a folder": (lambda: snapshot(header("n1/entries.jsonl", tarfile.DIRTYPE)), "regular file"),
    "negative size": (lambda: _with_size(snapshot(("n1/x", b"")), b"\xff" * 12), "damaged tar archive"),
    "endless size": (lambda: _with_size(snapshot(("n1/x", b"")), b"\x80" + b"\x7f" * 11), "unpacks to more than"),
}


def _with_size(archive_: bytes, size: bytes) -> bytes:
    """The archive with another size in its second header, whose checksum is right."""
    start = 1024
    block = bytearray(archive_[start : start + 512])
    block[124:136] = size
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return archive_[:start] + bytes(block) + archive_[start + 512 :]


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("suffix", [".tar", ".tar.zst"])
def test_a_hostile_or_broken_archive_is_refused(
    kind: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(archive, "MAX_KEPT_MEMBERS", 1000)
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 1 << 20)
    monkeypatch.setattr(archive, "MAX_KEPT_BYTES", 8 << 20)
    make, words = HOSTILE[kind]
    (tmp_path / "input").write_bytes(compressed(make(), FORMS[suffix]))
    refused(tmp_path / "input", words, capsys)


def test_sparse_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An old GNU sparse header tells of a terabyte in 512 bytes."""
    block = bytearray(tarfile.TarInfo("n1/kernel.log").tobuf(tarfile.GNU_FORMAT))
    block[156:157] = b"S"
    block[483:495] = b"%011o\0" % (1 << 32)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    (tmp_path / "a.tar").write_bytes(bytes(block) + bytes(1024))
    refused(tmp_path / "a.tar", "sparse", capsys)


@pytest.mark.parametrize("suffix", FORMS)
def test_a_cut_archive_is_refused_wherever_it_ends(suffix: str, tmp_path: Path) -> None:
    plain = snapshot(("n1/kernel.log", b"x" * 700), ("n1/root/etc/hostname", b"n1\n"))
    end = plain.rindex(b"n1\n") + 512
    whole = compressed(plain, FORMS[suffix])
    place = tmp_path / "a"
    for length in range(1, end if FORMS[suffix] is None else len(whole), 7):
        place.write_bytes(whole[:length])
        with pytest.raises(SourceError):
            open_source(str(place))


@pytest.mark.parametrize("suffix", FORMS)
def test_a_damaged_archive_is_read_or_refused_but_nothing_else(suffix: str, tmp_path: Path) -> None:
    dice = random.Random(7)  # noqa: S311 # the same damage each time
    whole = compressed(
        tar([("n1/snapshot.json", MANIFEST), ("n1/" + "a" * 200, b"x"), header("n1/root/l", tarfile.SYMTYPE, "a")]),
        FORMS[suffix],
    )
    refusals = []
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 3)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        (tmp_path / "a").write_bytes(damaged)
        try:
            open_source(str(tmp_path / "a"))
        except SourceError as error:
            refusals.append(str(error))
    assert len(refusals) > 100
    assert not any("\n" in refusal for refusal in refusals)


_PEAK = """
import sys
from gpudoctor.cli import main
status = main(["run", "--node", sys.argv[1]])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(status)
"""


def peak_of(place: Path) -> tuple[int, int, str]:
    """Exit code, peak memory in KiB and stderr of `run`."""
    ended = subprocess.run(
        [sys.executable, "-c", _PEAK, str(place)], capture_output=True, text=True, timeout=120, check=False
    )
    said, _, status = ended.stderr.rpartition("VmHWM:")
    return ended.returncode, int(status.split()[0]), said


def _many(compress: Callable[[bytes], bytes], head: bytes) -> bytes:
    """A gigabyte of zeros after a head."""
    return compress(head) + compress(bytes(16 << 20)) * 64


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"])
@pytest.mark.parametrize("declared", [True, False], ids=["a large member", "zeros after the end"])
def test_a_bomb_is_refused_in_bounded_memory(suffix: str, declared: bool, tmp_path: Path) -> None:
    bomb = tarfile.TarInfo("n1/kernel.log")
    bomb.size = 1 << 30
    head = snapshot()[:1024] + (bomb.tobuf() if declared else bytes(1024))
    place = tmp_path / "bomb"
    place.write_bytes(_many(lambda content: compressed(content, FORMS[suffix]), head))
    assert place.stat().st_size < 2 << 20
    status, peak, said = peak_of(place)
    assert (status, len(said.splitlines())) == (3, 1)
    assert "unpacks to more than 512 MiB" in said
    assert peak < 100 * 1024


def test_a_header_that_asks_for_gigabytes_of_memory_is_refused(tmp_path: Path) -> None:
    import struct
    import zlib

    content = bytearray(lzma.compress(snapshot()))
    # The .xz file format 3.1: the last byte of LZMA2's properties is the size of the dictionary, here 4 GiB.
    size = (content[12] + 1) * 4
    assert content[14:16] == b"\x21\x01"
    content[16] = 40
    content[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(bytes(content[12 : 12 + size - 4])))
    (tmp_path / "a.tar.xz").write_bytes(content)
    with pytest.raises(SourceError, match="damaged xz file: Memory usage limit"):
        open_source(str(tmp_path / "a.tar.xz"))


def test_a_missing_zstd_module_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(compressed(snapshot(), "zstd"))
    for name in ("backports.zstd", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr("backports.zstd", raising=False)
    with pytest.raises(SourceError, match=r"needs the Python package backports\.zstd"):
        open_source(str(tmp_path / "a"))


def test_a_node_is_chosen_only_where_there_are_several(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(snapshot())
    with pytest.raises(SourceError, match="one node only"):
        open_source(f"{tmp_path}/a.tar:n1")
    (tmp_path / "b:c").write_bytes(snapshot())
    assert isinstance(open_source(f"{tmp_path}/b:c"), Snapshot), "a colon of the path's own"
