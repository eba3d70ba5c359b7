"""What was read of Slurm where a slurmd is: the daemon, and the files, logs and answers that hold for the node.

slurmd(8), slurm.conf(5), scontrol(1). `slurmd -C` may load NVML in a process of its own (SchedMD/slurm src/plugins/gpu/nvml), which as root
would make missing nodes: it is asked only where NVML has answered.
"""

import posixpath

from msgspec import Struct

from gpudoctor.facts.boot import booted_at, in_words
from gpudoctor.facts.daemons import TICKS_PER_SECOND
from gpudoctor.facts.desk import Citable, Desk, Reading
from gpudoctor.facts.host import Host
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.processes import Process
from gpudoctor.facts.raw import Absent, Entry, Raw, TextFile
from gpudoctor.facts.slurm import COMM, not_recorded
from gpudoctor.facts.slurm_files import FOLDERS, ConfFile, read_conf
from gpudoctor.facts.slurm_gres import GresConf, NodeConf, gres_conf, node_conf, node_name
from gpudoctor.facts.slurm_ground import Delegation, Devices, Plugin, delegation, find_plugin, look_at
from gpudoctor.facts.slurm_log import SlurmdLog, read_log
from gpudoctor.facts.slurm_node import Machine, NodeState, ask_machine, ask_node
from gpudoctor.verdicts import Evidence, Unread, Why


class Slurmd(Citable, frozen=True):
    """The daemon. `arguments` are the words behind its name; `started_at` is in seconds since the epoch; `program` is the file it runs.

    `proven` says that it was seen to be slurmd: else whoever calls a program so may have chosen what it names.
    """

    pid: int
    arguments: tuple[str, ...]
    conf: str
    started_at: float | None
    program: str
    proven: bool = True

    def option(self, letter: str, name: str = "") -> str | None:
        """The value of `-N NAME`, `-NNAME`, `--name VALUE` or `--name=VALUE` (slurmd(8))."""
        for at, word in enumerate(self.arguments):
            following = self.arguments[at + 1] if at + 1 < len(self.arguments) else None
            if word in (f"-{letter}", f"--{name}"):
                return following
            if name and word.startswith(f"--{name}="):
                return word.partition("=")[2]
            if letter and word.startswith(f"-{letter}") and not word.startswith("--"):
                return word[2:]
        return None


class Setup(Struct, frozen=True):
    """What was read where there is a slurmd. `name` is what Slurm calls the node, `folder` where its files are."""

    daemon: Slurmd | None
    running: Reading[bool]
    enabled: bool
    name: str
    folder: str
    conf: NodeConf
    gres: GresConf
    cgroup: ConfFile
    devices: Devices
    plugin: Plugin | None
    delegation: Delegation | Unread | None
    log: SlurmdLog
    state: NodeState | Unread
    machine: Machine | Unread


def look_at_daemon(raw: Raw, process: Process) -> Slurmd:
    place = f"/proc/{process.pid}"
    file = raw.read_blocking((f"{place}/cmdline",))[f"{place}/cmdline"]
    words = tuple(file.text.removesuffix("\0").split("\0")) if isinstance(file, TextFile) else (COMM,)
    told = {"command": Evidence(file.where, " ".join(words)[:200])} if isinstance(file, TextFile) else {}
    link = raw.entry(f"{place}/exe")
    program = (link.to or "").removesuffix(" (deleted)") if isinstance(link, Entry) else ""
    booted = booted_at(raw)
    started = booted + process.started / TICKS_PER_SECOND if booted is not None and process.started else None
    since = in_words(started) if started is not None else "a time that is not known"
    return Slurmd(
        pid=process.pid,
        arguments=words[1:],
        conf=_variable(raw, process.pid),
        started_at=started,
        program=program,
        proven=bool(program) or not_recorded(raw, link),
        read_from=told
        | {"started": Evidence("processes (/proc/*/stat)", f"{COMM} ({process.pid}) runs since {since}")},
    )


def _variable(raw: Raw, pid: int) -> str:
    """SLURM_CONF, which comes before the directory that Slurm was built for."""
    path = f"/proc/{pid}/environ"
    file = raw.read_blocking((path,), keep="^SLURM_CONF=")[path]
    return file.text.strip("\0\n").partition("=")[2] if isinstance(file, TextFile) else ""


def read_setup(desk: Desk, daemon: Slurmd | None, *, running: Reading[bool], enabled: bool) -> Setup:
    path = _conf_path(desk.raw, daemon)
    folder = posixpath.dirname(path)
    conf = read_conf(desk.raw, path)
    cluster = conf.setting("clustername")
    name = (daemon.option("N") if daemon is not None else None) or node_name(conf, _host(desk))
    node = node_conf(conf, name)
    gres = gres_conf(read_conf(desk.raw, f"{folder}/gres.conf", cluster[0].lower() if cluster else ""), name)
    program = daemon.program if daemon is not None else ""
    asked = desk.config.slurm.ask
    quiet = Unread(Why.NOT_ANSWERED, f"scontrol show node {name}", "was not asked: [slurm] ask = false")
    if asked and _named_conf(daemon) != told_conf(daemon):
        asked = False
        detail = "was not asked: whether the slurm.conf that it needs was named by slurmd itself is not seen"
        quiet = Unread(Why.NO_PERMISSION, f"scontrol show node {name}", detail, would_need="root")
    return Setup(
        daemon=daemon,
        running=running,
        enabled=enabled,
        name=name,
        folder=folder,
        conf=node,
        gres=gres,
        cgroup=read_conf(desk.raw, f"{folder}/cgroup.conf"),
        devices=look_at(desk.raw, gres.gpus),
        plugin=find_plugin(desk.raw, gres.detection, node.setting("plugindir"), program),
        delegation=delegation(desk.raw),
        log=read_log(desk.raw, node, name),
        state=ask_node(desk.raw, name, told_conf(daemon)) if asked else quiet,
        machine=ask_machine(desk.raw) if asked and _may_ask_machine(desk, gres) else quiet,
    )


def _may_ask_machine(desk: Desk, gres: GresConf) -> bool:
    """Only where gres.conf names cores, against which its count is held."""
    if not any(record.line.value("cores", "cpus") for record in gres.gpus):
        return False
    nvml = desk.get(Nvml)
    return isinstance(nvml, Nvml) and nvml.failure is None and nvml.init == 0


def _host(desk: Desk) -> str:
    host = desk.get(Host)
    return (host.hostname or "") if isinstance(host, Host) else ""


def told_conf(daemon: Slurmd | None) -> str:
    """The slurm.conf that slurmd was told to take, which Slurm's other programs must be told as well; "" where none.

    They load the plugins that it names (slurm.conf(5), PluginDir): it must be slurmd that named it.
    """
    return _named_conf(daemon) if daemon is not None and daemon.proven else ""


def _named_conf(daemon: Slurmd | None) -> str:
    told = (daemon.option("f") or daemon.conf) if daemon is not None else ""
    return told if told.startswith("/") else ""


def _conf_path(raw: Raw, daemon: Slurmd | None) -> str:
    """Where its slurm.conf is: as it was told, else the first place that has one, or has at least a gres.conf."""

    if told := _named_conf(daemon):
        return told
    if daemon is not None and daemon.option("", "conf-server") is not None:
        return f"{FOLDERS[1]}/slurm.conf"
    for name in ("slurm.conf", "gres.conf"):
        for folder in FOLDERS:
            if not isinstance(raw.entry(f"{folder}/{name}", follow=True), Absent | Unread):
                return f"{folder}/slurm.conf"
    return f"{FOLDERS[0]}/slurm.conf"
