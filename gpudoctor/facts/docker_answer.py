"""What a running dockerd tells of itself: `docker info`, asked only where its files may have changed since it started.

moby, api/types/system/info.go: Runtimes, DefaultRuntime, SecurityOptions, CDISpecDirs, DiscoveredDevices (since API 1.50), Warnings.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.facts.config_text import well_formed
from gpudoctor.facts.docker_places import SOCKET
from gpudoctor.facts.raw import Absent, Raw
from gpudoctor.verdicts import Evidence, Unread, Why

ASK = ("docker", "info", "--format", "{{json .}}")
SECONDS = 5.0


class Told(Struct, frozen=True):
    """The daemon's own words: runtimes by name with the programs they name, and what it says of CDI and of itself."""

    runtimes: Mapping[str, str]
    default: str
    version: str
    root: str
    security: tuple[str, ...]
    cdi_folders: tuple[str, ...] | None
    devices: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def evidence(self) -> Evidence:
        """The part that concerns runtimes."""
        shows = f"Runtimes {', '.join(sorted(self.runtimes))}; DefaultRuntime {self.default}; DockerRootDir {self.root}"
        return Evidence("docker info", shows[:300])


def ask(raw: Raw, socket: str, root: str | None) -> Told | Unread:
    """Ask the daemon behind a socket ("" for the usual one), and see by its root directory that it is the one that was meant.

    The client is told the socket: DOCKER_HOST and contexts of who asks may lead to another node. Recordings may hold a plain answer.
    """
    output = raw.command((ASK[0], "--host", f"unix://{socket or SOCKET}", *ASK[1:]), seconds=SECONDS)
    if isinstance(output, Unread) and output.why is Why.NOT_RECORDED and not socket:
        output = raw.command(ASK, seconds=SECONDS)
    where = "docker info"
    if isinstance(output, Absent):
        return Unread(Why.NOT_ANSWERED, where, "there is no docker command here")
    if isinstance(output, Unread):
        return output
    try:
        told = _told(json.loads(output.stdout))
    except (ValueError, KeyError, TypeError, AttributeError):
        words = (output.stderr or output.stdout).strip().partition("\n")[0][:150]
        denied = "permission denied" in words
        why = Why.NO_PERMISSION if denied else Why.NOT_ANSWERED
        return Unread(why, where, words or "says nothing of a daemon", would_need="root" if denied else "")
    if root is not None and told.root and not f"{told.root}/".startswith(f"{root}/"):
        return Unread(Why.NOT_ANSWERED, where, f"another daemon answers, whose data are in {told.root}, not {root}")
    return told


def _told(data: dict[str, Any]) -> Told:
    runtimes = {well_formed(name): str(entry.get("path", "")) for name, entry in data["Runtimes"].items()}
    devices = tuple(str(one.get("ID", "")) for one in data.get("DiscoveredDevices") or ())
    folders = data.get("CDISpecDirs")
    return Told(
        runtimes=runtimes,
        default=well_formed(str(data["DefaultRuntime"])),
        version=str(data.get("ServerVersion", "")),
        root=str(data.get("DockerRootDir", "")),
        security=tuple(str(option) for option in data.get("SecurityOptions") or ()),
        cdi_folders=None if folders is None else tuple(str(folder) for folder in folders),
        devices=devices,
        warnings=tuple(str(warning) for warning in data.get("Warnings") or ()),
    )
