"""Configuration files that both sides hold: which differ, and how; what may be a secret is not shown."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence

from gpudoctor.diff import Area, Change, Gap
from gpudoctor.differing.likeness import Likeness
from gpudoctor.differing.party import A, B, Party
from gpudoctor.facts.raw import Absent, Listing, Raw, TextFile
from gpudoctor.facts.slurm_files import FOLDERS as SLURM
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Unread

FILES = (
    "/etc/docker/daemon.json",
    "/etc/nvidia-container-runtime/config.toml",
    "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env",
    "/etc/containerd/config.toml",
    "/etc/crio/crio.conf",
    "/etc/containers/containers.conf",
    "/etc/enroot/enroot.conf",
    "/etc/apptainer/apptainer.conf",
    "/etc/apptainer/nvliblist.conf",
    *(f"{folder}/{name}.conf" for folder in SLURM for name in ("slurm", "gres", "cgroup", "plugstack")),
    "/etc/nvidia-mig-manager/config.yaml",
    "/etc/nvidia-imex/config.cfg",
    "/etc/nvidia-imex/nodes_config.cfg",
    "/usr/share/nvidia/nvswitch/fabricmanager.cfg",
    "/etc/cufile.json",
    "/etc/selinux/config",
    "/var/lib/kubelet/config.yaml",
)
FOLDERS = (
    ("/etc/modprobe.d", (".conf",)),
    ("/run/modprobe.d", (".conf",)),
    ("/usr/lib/modprobe.d", (".conf",)),
    ("/etc/modules-load.d", (".conf",)),
    ("/etc/containerd/conf.d", (".toml",)),
    ("/etc/crio/crio.conf.d", (".conf",)),
    ("/etc/containers/containers.conf.d", (".conf",)),
    ("/etc/cdi", (".yaml", ".yml", ".json")),
    ("/var/run/cdi", (".yaml", ".yml", ".json")),
    ("/etc/systemd/system/docker.service.d", (".conf",)),
    ("/etc/systemd/system/containerd.service.d", (".conf",)),
    ("/etc/systemd/system/kubelet.service.d", (".conf",)),
)
MOST_FILES = 200
MOST_LINES = 40
"""Of one file's diff."""
LONGEST_LINE = 240
MOST_COMPARED = 2000
"""Lines of a side that are matched with the other's: difflib takes time of the square of them."""

_HIDDEN = "(not shown)"
# A name that tells of a secret and what is given to it: in JSON, TOML, YAML, in pairs, and in an environment.
_SECRET = pattern(
    r"((?:[\w.-]{0,64}(?:token|secret|passw(?:or)?d|passphrase|credential|api[_-]?key|access[_-]?key|private[_-]?key|identity[_-]?token)"
    r"[\w.-]{0,64}|\bauth|\bauthorization|\bpsk)\"?\s{0,8}[:=]\s{0,8})(\"[^\"]*\"|'[^']*'|[^\s,}]+)",
    re.IGNORECASE,
)
_USERINFO = pattern(r"(://)[^/\s@\"']{1,256}@")


def files(a: Party, b: Party, likeness: Likeness) -> Iterator[Change | Gap]:
    """By path. A file of which one side does not speak is compared with nothing."""
    if a.desk is None or b.desk is None:
        return
    one, two = a.desk.raw, b.desk.raw
    lacking: dict[str, list[str]] = {}
    for path in _paths(one, two):
        mine, theirs = one.read(path), two.read(path)
        found = _compared(path, mine, theirs, likeness)
        if isinstance(found, str):
            lacking.setdefault(found, []).append(path)
        elif found is not None:
            yield found
    for side, paths in sorted(lacking.items()):
        yield Gap(Area.FILES, side, tuple(paths), "not recorded")


def hidden(line: str) -> str:
    """A line of a configuration without what may be a secret, cut where it is long."""
    shown = _USERINFO.sub(rf"\1{_HIDDEN}@", _SECRET.sub(rf"\1{_HIDDEN}", line[: 4 * LONGEST_LINE]))
    return shown if len(shown) <= LONGEST_LINE else f"{shown[:LONGEST_LINE]}..."


def _paths(one: Raw, two: Raw) -> Sequence[str]:
    """Files by name, and those that either side lists."""
    found = list(FILES)
    for folder, ends in FOLDERS:
        names: set[str] = set()
        for raw in (one, two):
            listing = raw.listing(folder)
            names.update(listing.names if isinstance(listing, Listing) else ())
        found += [f"{folder}/{name}" for name in sorted(names) if name.endswith(ends)]
    return found[:MOST_FILES]


def _compared(
    path: str, mine: TextFile | Absent | Unread, theirs: TextFile | Absent | Unread, likeness: Likeness
) -> Change | str | None:
    """A change, the side that does not speak of the file, or nothing to tell."""
    match mine, theirs:
        case (TextFile(), TextFile()):
            return _change(path, mine, theirs, likeness)
        case (TextFile(), Absent()):
            return Change(Area.FILES, path, _many(mine), None, note="only in A")
        case (Absent(), TextFile()):
            return Change(Area.FILES, path, None, _many(theirs), note="only in B")
        case (TextFile(), Unread()):
            return B
        case (Unread(), TextFile()):
            return A
        case _:
            return None


def _many(file: TextFile) -> str:
    count = len(file.text.splitlines())
    return f"{count} line{'' if count == 1 else 's'}"


def _change(path: str, mine: TextFile, theirs: TextFile, likeness: Likeness) -> Change | None:
    if mine.text == theirs.text:
        return None
    left, right = mine.text.splitlines(), theirs.text.splitlines()
    told = _many(mine), _many(theirs)
    if len(left) == len(right) and all(map(likeness.exact, left, right)):
        return Change(Area.FILES, path, *told, note="names, addresses and UUIDs only", counts=False)
    if max(len(left), len(right)) > MOST_COMPARED or mine.truncated or theirs.truncated:
        return Change(Area.FILES, path, *told, note="too long to be shown")
    lines = _unified(left, right, likeness)
    if not lines:
        return Change(Area.FILES, path, *told, note="in what is not shown")
    return Change(Area.FILES, path, *told, diff=tuple(lines[:MOST_LINES]), omitted=max(0, len(lines) - MOST_LINES))


def _unified(left: Sequence[str], right: Sequence[str], likeness: Likeness) -> list[str]:
    """Lines that differ by identity only are taken for equal: A's is shown."""
    forms: Mapping[str, str] = {likeness.canonical_name(line, of_a=False): line for line in right}
    same = {forms[form]: line for line in left if (form := likeness.canonical_name(line, of_a=True)) in forms}
    shown = [hidden(line) for line in left], [hidden(same.get(line, line)) for line in right]
    # The names of the files say nothing: they are the same.
    return [line for line in list(difflib.unified_diff(*shown, n=1, lineterm=""))[2:] if not line.startswith("@@")]
