"""The loader's cache: real ones against `ldconfig -p`, damaged ones, and what a recording keeps of it."""

import contextlib
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.facts.loader_cache import (
    CACHE,
    ENTRY,
    MAGIC,
    OLD_ENTRY,
    OLD_HEADER,
    OLD_MAGIC,
    CachedLibrary,
    CacheError,
    LoaderCache,
    cache_of,
    parse_cache,
)
from gpudoctor.facts.raw import Absent, TextFile
from gpudoctor.sources.loader_cache_writer import write_cache
from gpudoctor.sources.redaction import redact
from gpudoctor.verdicts import Unread, Why

WIDE, NARROW, ARM = 0x0303, 0x0003, 0x0A03
ENTRIES = (
    CachedLibrary("libnvidia-ml.so.1", "/lib/x86_64-linux-gnu/libnvidia-ml.so.1", WIDE),
    CachedLibrary("libcuda.so.1", "/usr/local/lib/libcuda.so.1", WIDE),
    CachedLibrary("libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1", WIDE),
    CachedLibrary("libcuda.so.1", "/lib/i386-linux-gnu/libcuda.so.1", NARROW),
    CachedLibrary("libz.so.1", "/home/eowynkk/lib/libz.so.1", WIDE),
)


def ldconfig() -> str:
    """The program, which may lie where a user's PATH does not lead."""
    found = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if found is None:
        pytest.skip("there is no ldconfig on this machine")
    return found


def listed(*options: str) -> list[tuple[str, str, str]]:
    """What `ldconfig -p` prints: name, kind, path."""
    output = subprocess.run([ldconfig(), "-p", *options], capture_output=True, text=True, check=False).stdout
    lines = re.findall(r"^\t(\S+) \((.*?)\) => (.*)$", output, re.MULTILINE)
    return [(name, kind.partition(", hwcap")[0].partition(", OS ABI")[0], path) for name, kind, path in lines]


def read(content: bytes) -> list[tuple[str, str, str]]:
    """The same of our own reading."""
    _, libraries = parse_cache(content)
    return [(library.name, library.kind, library.path) for library in libraries]


def text_file(content: bytes) -> TextFile:
    """The file as every source gives it."""
    return TextFile(CACHE, content.decode("utf-8", "backslashreplace"))


# real caches --------------------------------------------------------------------------------------------------------


def test_cache_of_this_machine_is_read_as_ldconfig_prints_it() -> None:
    cache = Path(CACHE)
    if not cache.is_file():
        pytest.skip("this machine has no cache")
    theirs = listed()
    assert theirs and read(cache.read_bytes()) == theirs


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with small libraries of three directories, one of them for some processors only."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc on this machine")
    root = tmp_path_factory.mktemp("root")
    places = {
        "usr/local/lib": ("libcuda.so.1", "libcuda.so.535.183.01"),
        "opt/later": ("libcuda.so.1", "libcuda.so.575.57.08"),
        "opt/later/glibc-hwcaps/x86-64-v3": ("libnvidia-ml.so.1", "libnvidia-ml.so.575.57.08"),
    }
    for directory, (soname, name) in places.items():
        (root / directory).mkdir(parents=True)
        made = [compiler, "-shared", "-nostdlib", "-x", "c", "/dev/null", f"-Wl,-soname,{soname}", "-o"]
        subprocess.run([*made, str(root / directory / name)], check=True, capture_output=True)
        (root / directory / soname).symlink_to(name)
    (root / "etc").mkdir()
    (root / "etc/ld.so.conf").write_text("/usr/local/lib\n/opt/later\n")
    return root


@pytest.mark.parametrize("form", ["new", "compat", "old"])
def test_cache_that_ldconfig_wrote_is_read_as_it_prints_it(tree: Path, form: str) -> None:
    made = [ldconfig(), "-r", str(tree), "-c", form, "-C", f"/etc/{form}.cache"]
    done = subprocess.run(made, capture_output=True, text=True, check=False)
    cache = tree / f"etc/{form}.cache"
    if done.returncode or not cache.is_file():
        pytest.skip(f"ldconfig makes no such cache here: {done.stderr.strip()}")
    content = cache.read_bytes()
    assert content.startswith(MAGIC if form == "new" else OLD_MAGIC)
    assert read(content) == listed("-C", str(cache))
    cuda = [path for name, _, path in read(content) if name == "libcuda.so.1"]
    assert cuda == ["/usr/local/lib/libcuda.so.1", "/opt/later/libcuda.so.1"]
    hwcaps = {(library.name, library.hwcaps) for library in parse_cache(content)[1] if library.hwcaps}
    assert hwcaps == (set() if form == "old" else {("libnvidia-ml.so.1", "x86-64-v3")})


# kinds --------------------------------------------------------------------------------------------------------------


def test_order_and_kinds_are_kept() -> None:
    cache = cache_of(text_file(write_cache(ENTRIES)))
    assert isinstance(cache, LoaderCache) and cache.exists
    assert [one.of_64_bits for one in cache.of("libcuda.so.1")] == [True, True, False]
    assert cache.of("libcuda.so.1")[0].evidence.shows == "libcuda.so.1 (libc6,x86-64) => /usr/local/lib/libcuda.so.1"
    assert not cache.of("libz.so.1"), "libraries of others are not kept"


@pytest.mark.parametrize(("flags", "wide"), [(WIDE, True), (ARM, True), (NARROW, False), (0x0803, False), (1, False)])
def test_programs_of_64_bits_pass_over_other_machines(flags: int, *, wide: bool) -> None:
    assert CachedLibrary("libcuda.so.1", "/x/libcuda.so.1", flags).of_64_bits is wide


def test_old_format_alone_is_read() -> None:
    """A cache of `ldconfig -c old`: places of strings count from behind the entries."""
    strings = b"libcuda.so.1\0/lib/libcuda.so.1\0"
    content = OLD_HEADER.pack(OLD_MAGIC, 1) + OLD_ENTRY.pack(WIDE, 0, 13) + strings
    assert parse_cache(content) == (1, (CachedLibrary("libcuda.so.1", "/lib/libcuda.so.1", WIDE),))


@pytest.mark.parametrize("count", [1, 2])
def test_new_format_behind_the_old_one_is_found(count: int) -> None:
    """One entry of the old format ends where no padding is needed to eight bytes, two do not."""
    behind = OLD_HEADER.pack(OLD_MAGIC, count) + OLD_ENTRY.pack(WIDE, 0, 0) * count
    content = behind + b"\0" * (-len(behind) % 8) + write_cache(ENTRIES)
    assert parse_cache(content) == parse_cache(write_cache(ENTRIES))


# damage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\x7fELF and more", "does not begin as a cache"),
        (write_cache(ENTRIES)[:60], "5 entries do not fit"),
        (MAGIC, "is cut: it has 20 bytes"),
        (OLD_MAGIC + b"\0" + struct.pack("=I", 2**31), "do not fit"),
        (write_cache(ENTRIES)[:-30], "outside of it"),
        (write_cache(ENTRIES)[:28] + b"\3" + write_cache(ENTRIES)[29:], "byte order"),
        (write_cache(ENTRIES)[:32] + struct.pack("=I", 48) + write_cache(ENTRIES)[36:], "extensions"),
    ],
)
def test_what_is_no_cache_says_why(content: bytes, said: str) -> None:
    unread = cache_of(text_file(content))
    assert isinstance(unread, Unread) and unread.why is Why.UNREADABLE and said in unread.detail, unread


def test_none_is_no_error_and_a_cut_one_is() -> None:
    none = cache_of(Absent(CACHE))
    assert isinstance(none, LoaderCache) and not none.exists
    cut = cache_of(TextFile(CACHE, "x", truncated=True))
    assert isinstance(cut, Unread) and "was cut" in cut.detail


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_damaged_caches_give_entries_or_a_reason(data: st.DataObject) -> None:
    content = bytearray(write_cache(ENTRIES))
    if data.draw(st.booleans()):
        content = bytearray(OLD_HEADER.pack(OLD_MAGIC, 1) + OLD_ENTRY.pack(WIDE, 0, 0) + b"\0" * 4 + bytes(content))
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))]
    with contextlib.suppress(CacheError):
        count, found = parse_cache(bytes(content))
        assert len(found) == count <= len(content) // OLD_ENTRY.size
    assert isinstance(cache_of(text_file(bytes(content))), (LoaderCache, Unread))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_entries_or_a_reason(content: bytes) -> None:
    for begin in (b"", MAGIC, OLD_MAGIC):
        assert isinstance(cache_of(text_file(begin + content)), (LoaderCache, Unread))


# recordings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("escaped", [False, True], ids=["as bytes", "as a recording has it"])
def test_redacted_recording_keeps_the_drivers_libraries_only(*, escaped: bool) -> None:
    content = write_cache((*ENTRIES, CachedLibrary("libnvidia-é.so", "/home/eowynkk/libnvidia-é.so", WIDE)))
    content += b"\xff\xfe"
    kept = content.decode("utf-8", "backslashreplace").encode() if escaped else content
    members = {"snapshot.json": b'{"format": 1, "hostname": "n1"}', f"root{CACHE}": kept}
    redacted = redact(members, b"salt").members[f"root{CACHE}"]
    assert b"eowynkk" not in redacted and b"libz" not in redacted
    cache = cache_of(text_file(redacted))
    assert isinstance(cache, LoaderCache)
    assert cache.of("libcuda.so.1") == ENTRIES[1:4] and len(redacted) > 4 * ENTRY.size


def test_redacted_recording_keeps_a_damaged_cache_damaged() -> None:
    for content in (write_cache(ENTRIES)[:-30], b"root:x:0:0:eowynkk", b""):
        members = {"snapshot.json": b'{"format": 1, "hostname": "n1"}', f"root{CACHE}": content}
        redacted = redact(members, b"salt").members[f"root{CACHE}"]
        assert isinstance(cache_of(text_file(redacted)), Unread) and b"eowynkk" not in redacted
