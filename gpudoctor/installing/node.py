"""What the files for a node depend on: where the doctor lies, what starts programs here, and who collects metrics."""

import posixpath
import re
from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.config import Config
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import Entry, EntryType, Raw, TextFile
from gpudoctor.facts.slurm_files import FOLDERS

STATE = "/var/lib/gpudoctor"
COMMAND = "/usr/local/bin/gpudoctor"
"""Where the files expect the doctor when it does not run from a program of its own."""
TEXTFILE = "/var/lib/node_exporter/textfile"
"""Taken where no directory is found: that of packaging/kubernetes as well."""

# Debian's package has a default of its own (`prometheus-node-exporter --help`, 1.5.0); upstream has none. The second is in its example
# (prometheus/node_exporter 2a38b57a, examples/systemd/sysconfig.node_exporter), the third in packaging/kubernetes, the last in the role
# of Ansible (prometheus-community/ansible 075461c6, roles/node_exporter/defaults/main.yml).
_DIRECTORIES = (
    "/var/lib/prometheus/node-exporter",
    "/var/lib/node_exporter/textfile_collector",
    "/var/lib/node_exporter/textfile",
    "/var/lib/node_exporter",
)
_EXPORTERS = ("node_exporter", "prometheus-node")
"""How comm begins, of which the kernel keeps 15 letters (proc_pid_comm(5)): node_exporter, prometheus-node-exporter."""
_SETTINGS = (
    "/etc/default/prometheus-node-exporter",
    "/etc/default/node_exporter",
    "/etc/sysconfig/node_exporter",
    "/etc/systemd/system/node_exporter.service",
    "/etc/systemd/system/prometheus-node-exporter.service",
    "/lib/systemd/system/node_exporter.service",
    "/lib/systemd/system/prometheus-node-exporter.service",
)
_FLAG = re.compile(r"--?collector\.textfile\.directory[=\s]+[\"']?([^\"'\s\\]+)")
_ARGUMENT = re.compile(r"(?:\A|\0)--?collector\.textfile\.directory[=\0]([^\0]+)")
"""The same in /proc/PID/cmdline, where words end with NUL and may hold anything else (proc_pid_cmdline(5))."""


class Textfile(Struct, frozen=True):
    """The directory that a node_exporter collects from; `told_by` is "" where none was found, `of_root` whether root owns it."""

    path: str
    told_by: str
    of_root: bool


class SlurmPlace(Struct, frozen=True):
    """The folder of slurm.conf, and which hooks that has already, by the name of its line."""

    folder: str
    hooks: dict[str, str]


class InstallNode(Struct, frozen=True):
    """The node as far as the files depend on it."""

    command: str
    systemd: bool
    cron: bool
    textfile: Textfile
    slurm: SlurmPlace | None
    kubelet: bool
    notes: tuple[str, ...] = ()


def look(raw: Raw, command: str, notes: tuple[str, ...] = ()) -> InstallNode:
    """Look at the node; only files and the command lines of node_exporters are read."""
    return InstallNode(
        command=command,
        systemd=_is_directory(raw, "/run/systemd/system"),  # sd_booted(3)
        cron=_is_directory(raw, "/etc/cron.d"),
        textfile=_textfile(raw),
        slurm=_slurm(raw),
        kubelet=_is_directory(raw, "/var/lib/kubelet"),
        notes=(*notes, *_changeable(raw, command)),
    )


def _is_directory(raw: Raw, path: str) -> bool:
    entry = raw.entry(path, follow=True)
    return isinstance(entry, Entry) and entry.type is EntryType.DIR


def _textfile(raw: Raw) -> Textfile:
    for path, told_by in (*_told(raw), *((path, "it exists") for path in _DIRECTORIES)):
        entry = raw.entry(path, follow=True)
        if isinstance(entry, Entry) and entry.type is EntryType.DIR:
            return Textfile(path, told_by, of_root=entry.uid in (0, None))
    return Textfile(TEXTFILE, "", of_root=True)


def _told(raw: Raw) -> Iterator[tuple[str, str]]:
    """What a running node_exporter was told, then what its settings say; a pattern (textfile.go takes globs) is no place to write to.

    Anybody may call a process so: what is not printable is taken for no name.
    """
    for flag, texts in ((_ARGUMENT, _command_lines(raw)), (_FLAG, _settings(raw))):
        for where, text in texts:
            for match in flag.finditer(text):
                if not set("*?[") & set(match[1]) and match[1].startswith("/") and match[1].isprintable():
                    yield posixpath.normpath(match[1]), where


def _command_lines(raw: Raw) -> Iterator[tuple[str, str]]:
    processes = Desk(raw, Config()).get(Processes)
    if isinstance(processes, Processes):
        for one in processes.processes:
            # Its name may hold a line feed, which would end a comment.
            name = next((name for name in _EXPORTERS if one.comm.startswith(name)), "")
            if name and not one.ended:
                path = f"/proc/{one.pid}/cmdline"
                found = raw.read_blocking((path,))[path]
                if isinstance(found, TextFile):
                    yield f"the command line of {name}", found.text


def _settings(raw: Raw) -> Iterator[tuple[str, str]]:
    for path in _SETTINGS:
        found = raw.read(path)
        if isinstance(found, TextFile):
            lines = (line for line in found.text.splitlines() if not line.lstrip().startswith("#"))
            yield path, "\n".join(lines)


def _slurm(raw: Raw) -> SlurmPlace | None:
    for folder in FOLDERS:
        found = raw.read(f"{folder}/slurm.conf")
        if isinstance(found, TextFile):
            hooks = re.findall(r"(?im)^\s*(HealthCheckProgram|Prolog|Epilog)\s*=\s*(\S+)", found.text)
            return SlurmPlace(folder, {_hook(name): program for name, program in hooks})
    return None


def _hook(name: str) -> str:
    """Names in slurm.conf are matched whatever the case of their letters (slurm.conf(5))."""
    return {"healthcheckprogram": "HealthCheckProgram"}.get(name.lower(), name.capitalize())


def _changeable(raw: Raw, command: str) -> Iterator[str]:
    """Root runs the command again and again: who else can change it, or a directory above it, becomes root by it."""
    for path in dict.fromkeys(above for place in _led_to(raw, command) for above in _upwards(place)):
        entry = raw.entry(path, follow=True)
        if isinstance(entry, Entry) and ((entry.uid or 0) != 0 or ((entry.mode or 0) & 0o022 and not _sticky(entry))):
            yield (
                f"{path} can be changed by others than root, and root would run {command} again and again: "
                f"install the doctor where only root can write"
            )
            return


def _led_to(raw: Raw, path: str) -> Iterator[str]:
    """A path, and what its links lead to one after the other; 40 as the kernel follows (path_resolution(7))."""
    for _ in range(40):
        yield path
        entry = raw.entry(path)
        if not isinstance(entry, Entry) or not entry.to:
            return
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry.to))


def _upwards(path: str) -> Iterator[str]:
    """A path and the directories above it, without the root."""
    while path not in ("", "/"):
        yield path
        path = posixpath.dirname(path)


def _sticky(entry: Entry) -> bool:
    """In a directory with this bit nobody renames what belongs to another (inode(7))."""
    return bool((entry.mode or 0) & 0o1000)
