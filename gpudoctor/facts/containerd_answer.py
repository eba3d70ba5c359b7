"""What a running containerd tells of its runtimes: `crictl info`, asked only where files may have changed since it started.

kubernetes-sigs/cri-tools cmd/crictl/info.go; containerd/containerd pkg/cri/server/status.go, Status: its CRI configuration as JSON.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.facts.containerd_places import as_path
from gpudoctor.facts.raw import Absent, Raw
from gpudoctor.verdicts import Evidence, Unread, Why

ASK = ("crictl", "info")
SECONDS = 5.0


class Told(Struct, frozen=True):
    """The runtimes by name with the programs they name, and the default one, as loaded."""

    runtimes: Mapping[str, str]
    default: str

    @property
    def evidence(self) -> Evidence:
        """Its words."""
        return Evidence(" ".join(ASK), f"runtimes {', '.join(sorted(self.runtimes))}; default {self.default}"[:300])


def ask(raw: Raw, socket: str) -> Told | Unread:
    """Ask, and see that it is this containerd that answered."""
    where = " ".join(ASK)
    output = raw.command(ASK, seconds=SECONDS)
    if isinstance(output, Absent):
        return Unread(Why.NOT_ANSWERED, where, "there is no crictl")
    if isinstance(output, Unread):
        return output
    try:
        config = json.loads(output.stdout)["config"]
        told = _told(config)
    except (ValueError, KeyError, TypeError, AttributeError):
        words = (output.stderr or output.stdout).strip().partition("\n")[0][:100]
        return Unread(Why.NOT_ANSWERED, where, words or "says nothing of containerd's configuration")
    endpoint = as_path(str(config.get("containerdEndpoint", "")))
    if endpoint != socket:
        return Unread(
            Why.NOT_ANSWERED, where, f"answered for {endpoint or 'an engine that names no socket'}, not {socket}"
        )
    return told


def _told(config: dict[str, Any]) -> Told:
    containerd = config["containerd"]
    runtimes = {
        name: str((one.get("options") or {}).get("BinaryName", "")) for name, one in containerd["runtimes"].items()
    }
    return Told(runtimes, str(containerd.get("defaultRuntimeName", "")))
