"""Where a dockerd reads its file and listens: as a system service, from a snap, and rootless in somebody's home.

moby, daemon/command/daemon_unix.go (getDefaultDaemonConfigFile) and daemon.go (defaultAPISocketPath); canonical/docker-snap
snap/snapcraft.yaml; docs.docker.com/engine/security/rootless.
"""

from gpudoctor.facts.config_text import Document
from gpudoctor.facts.daemons import Daemon
from gpudoctor.facts.docker_rules import Flags
from gpudoctor.facts.programs import Located, locate
from gpudoctor.facts.raw import Absent, Raw
from gpudoctor.verdicts import Evidence, Unread, Why

DAEMON_JSON = "/etc/docker/daemon.json"
SNAP_JSON = "/var/snap/docker/current/config/daemon.json"
DAEMON_BINARIES = ("/usr/bin/dockerd", "/usr/local/bin/dockerd", "/usr/sbin/dockerd")
INSTALLED = (*DAEMON_BINARIES[:1], "/usr/sbin/dockerd", "/bin/dockerd", "/sbin/dockerd")
"""Programs whose version is the installed package's."""
ROOT, SOCKET = "/var/lib/docker", "/run/docker.sock"
_PASSWD = "/etc/passwd"
_SNAPS = ("/snap/", "/var/lib/snapd/snap/")
_NAMES_UID, _HAS_HOME = 2, 6


def is_rootless(daemon: Daemon) -> bool:
    """Whether it runs for a user of its own, in a user namespace."""
    return daemon.own_namespace is True or bool(daemon.uid)


def is_snap(daemon: Daemon) -> bool:
    """Whether it is the snap's program, which sees neither /etc/docker nor the host's toolkit."""
    return (daemon.program_path or "").startswith(_SNAPS)


def locate_for(raw: Raw, program: str, daemon: Daemon | None) -> Located:
    """Find a program as this dockerd does: the snap's has a root of its own, where only snaps lie as they do on the node."""
    folder = _folder_of_snap(daemon)
    if folder is None:
        return locate(raw, program)
    if "/" not in program:
        return locate(raw, program, (*(f"{folder}/{part}" for part in ("usr/sbin", "usr/bin", "sbin", "bin")),))
    if program.startswith((*_SNAPS, "/var/snap/")):
        return locate(raw, program)
    unseen = Unread(Why.NOT_ANSWERED, program, "the snap's dockerd has another root, in which this was not looked for")
    return Located(program, unseen, (Evidence(program, unseen.detail),))


def _folder_of_snap(daemon: Daemon | None) -> str | None:
    """The folder of its revision, /snap/docker/2932."""
    path = (daemon.program_path or "") if daemon is not None else ""
    start = next((snaps for snaps in _SNAPS if path.startswith(snaps)), None)
    return None if start is None else start + "/".join(path.removeprefix(start).split("/")[:2])


def own_cdi_folders(raw: Raw, daemon: Daemon) -> tuple[str, ...]:
    """Where a rootless dockerd looks for specs besides (moby, daemon/command/daemon.go), with XDG variables as usual."""
    home = _home(raw, daemon.uid)
    return (*((f"{home}/.config/cdi",) if isinstance(home, str) else ()), f"/run/user/{daemon.uid}/cdi")


def config_of(raw: Raw, daemon: Daemon) -> str | Unread:
    """The file that it reads, as far as its arguments and its owner tell; XDG_CONFIG_HOME of its environment is not looked at.

    A recording without arguments is taken for one of a dockerd that was called as usual.
    """
    if isinstance(daemon.arguments, Unread) and daemon.arguments.why is not Why.NOT_RECORDED:
        return daemon.arguments
    given = daemon.option("config-file")
    if given:
        relative = Unread(Why.NOT_RECORDED, given, "is relative to a folder that is not known")
        return given if given.startswith("/") else relative
    if not is_rootless(daemon):
        return DAEMON_JSON
    home = _home(raw, daemon.uid)
    return home if isinstance(home, Unread) else f"{home}/.config/docker/daemon.json"


def _home(raw: Raw, uid: int | None) -> str | Unread:
    passwd = raw.read(_PASSWD)
    if isinstance(passwd, Unread):
        return passwd
    for line in () if isinstance(passwd, Absent) else passwd.text.splitlines():
        fields = line.split(":")
        if len(fields) >= _HAS_HOME and fields[_NAMES_UID] == str(uid):
            return fields[_HAS_HOME - 1].rstrip("/")
    return Unread(Why.NOT_RECORDED, _PASSWD, f"does not tell the home of the user with number {uid}, who owns dockerd")


def sockets_of(flags: Flags, settings: Document, daemon: Daemon) -> tuple[str, ...]:
    """The Unix sockets that it makes itself; one that systemd hands over by fd:// stays when the daemon ends."""
    hosts = settings.get("hosts")
    given = (*flags.values.get("host", ()), *(host for host in hosts or () if isinstance(host, str)))
    if given:
        paths = tuple(host.removeprefix("unix://") for host in given if host.startswith("unix:///"))
        return tuple(
            f"/run/{path.removeprefix('/var/run/')}" if path.startswith("/var/run/") else path for path in paths
        )
    return (f"/run/user/{daemon.uid}/docker.sock",) if is_rootless(daemon) else (SOCKET,)
