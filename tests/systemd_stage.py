"""A systemd of its own as the first process of new namespaces, over this machine's files: it starts the units of a test, and ends.

Its root is an overlay, so that what units write is kept apart; /etc/systemd/system holds the test's units alone, and none of them pulls in
the units that set a machine up. What it does to processes stays below a control group of its own.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SYSTEMD = Path("/lib/systemd/systemd")
OUT = "/out"
"""Where units of a test leave what they have to say: the directory that was given."""
GROUPS = Path("/sys/fs/cgroup")

_INSIDE = """
set -e
place=$1 out=$2 repository=$3
mount -t tmpfs tmpfs "$place"
mkdir "$place/upper" "$place/work" "$place/root"
root=$place/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
# Mounted anew, so that their tops are the group of this namespace (cgroup_namespaces(7)).
if [ -e /sys/fs/cgroup/cgroup.procs ]; then
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
	mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
	while IFS=: read -r _ controllers _; do
		case $controllers in
		"") name=unified; set -- cgroup2 "" ;;
		name=*) name=${controllers#name=}; set -- cgroup "none,$controllers" ;;
		*) name=$controllers; set -- cgroup "$controllers" ;;
		esac
		mkdir "$root/sys/fs/cgroup/$name"
		mount -t "$1" ${2:+-o "$2"} "$1" "$root/sys/fs/cgroup/$name"
	done </proc/self/cgroup
fi
# systemd raises fs.file-max, which would be this machine's.
mount --bind "$root/proc/sys/fs" "$root/proc/sys/fs"
mount -o remount,bind,ro "$root/proc/sys/fs"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/etc/systemd/system"
rm -rf "$root/var/lib/gpudoctor"
mkdir -p "$root$repository" "$root/out"
mount --bind "$repository" "$root$repository"
mount --bind "$out" "$root/out"
cp -r "$out"/units/. "$root/etc/systemd/system"
echo staged >&2
export container=other
exec chroot "$root" /lib/systemd/systemd --system --unit=test.target --log-target=console --log-level=notice
"""


def needs_systemd() -> None:
    """Skip where none can be started."""
    if os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("unshare") is None:
        pytest.skip("needs root, systemd (Debian: systemd) and unshare (util-linux)")


def run_units(place: Path, units: Mapping[str, str], first: str, last: str) -> str:
    """Start the units by name, `first` before `last`, which is waited for; what systemd said. Drop-ins are named by their path."""
    needs_systemd()
    folder = place / "units"
    ended = "[Unit]\nDefaultDependencies=no\nSuccessAction=exit-force\nFailureAction=exit-force\n"
    target = f"[Unit]\nDefaultDependencies=no\nWants={first} {last}\n"
    for name, text in {**units, f"{last}.d/ended.conf": ended, "test.target": target}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    stage = place / "stage"
    stage.mkdir()
    with _group() as procs:
        script = f'for group in {" ".join(procs)}; do echo $$ >$group 2>/dev/null || :; done\nexec "$@"'
        inside = ["unshare", "-m", "-p", "-f", "-u", "-i", "-C", "--kill-child", "sh", "-c", _INSIDE, "sh"]
        words = [*inside, str(stage), str(place), str(REPOSITORY)]
        done = subprocess.run(
            ["sh", "-c", script, "sh", *words], capture_output=True, text=True, check=False, timeout=60
        )
    if "staged" not in done.stderr:
        pytest.skip(f"no systemd can be started here: {done.stderr.strip()[-300:]}")
    return done.stdout + done.stderr


@contextlib.contextmanager
def _group() -> Iterator[list[str]]:
    """A control group of one's own in each hierarchy: the files that take a process into it."""
    tops = (
        [GROUPS]
        if (GROUPS / "cgroup.procs").exists()
        else sorted(path.parent for path in GROUPS.glob("*/cgroup.procs"))
    )
    made = [top / f"gpudoctor-test-{os.getpid()}" for top in tops if top.name != "cpuset" and not top.is_symlink()]
    for group in made:
        group.mkdir()
    try:
        yield [str(group / "cgroup.procs") for group in made]
    finally:
        for group in made:
            for folder, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)


def doctor(*words: str) -> str:
    """The words of a command line that calls the doctor of this repository."""
    return " ".join((sys.executable, "-m", "gpudoctor", *words))


def drop_in(command: str, output: str, more: str = "") -> str:
    """Has a unit run something else, and leave its output in a file; it stands for itself."""
    return (
        f"[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=\nExecStart={command}\nWorkingDirectory={REPOSITORY}\n"
        f"StandardOutput=truncate:{OUT}/{output}\nStandardError=truncate:{OUT}/{output}.errors\nEnvironment=PYTHONDONTWRITEBYTECODE=1\n{more}"
    )
