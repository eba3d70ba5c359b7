"""The table of containers: who starts each one and how it is given its GPU, and whether it loses it at a daemon-reload.

Debian 12 (systemd 252, runc 1.1.5, crun 1.8.1, podman 4.3.1), on cgroup v1 and v2 alike: runc tells systemd of the devices that have a
link in /dev/char or an entry in /sys/dev/char when the container is made, and the driver's have none (opencontainers/runc#3504, #3845);
for all minors of a major it names the driver, which needs no link. crun tells of no device at all, and such a unit restricts none.
Debian 13 (systemd 257, runc 1.1.15, crun 1.21, podman 5.4.2), only on v2: both runtimes tell of all devices in the configuration.
Of what the toolkit's hook adds later systemd never hears: on Debian 12 it is lost under runc, on Debian 13 as well, and under crun,
where systemd's own program is in force from the start, never had. systemd 252 takes devices while it reloads, systemd 257 when the next
unit of the same slice starts.
"""

from dataclasses import asdict, dataclass
from enum import Enum

MACHINES = (("bookworm", "v2"), ("bookworm", "v1"), ("trixie", "v2"))
"""Releases of Debian with the cgroup hierarchy they are booted with."""
TAKES_LATER = ("trixie",)
"""Where a reload takes nothing before a unit starts."""


class Grant(str, Enum):
    """How a container is given its GPU."""

    RULES = "rules"
    """Rules in its OCI configuration."""
    HOOK = "hook"
    """Rules that a prestart hook adds behind the runtime's back, as the toolkit's does in its legacy mode."""
    WILDCARD = "wildcard"
    """A rule for all minors of the driver's major, as `docker run --device-cgroup-rule 'c 195:* rwm'` makes it."""
    ALL = "all"
    """Every device, as a privileged container is."""
    DEVICE = "device"
    """`podman --device /dev/nvidia0`."""
    CDI = "cdi"
    """`podman --device nvidia.com/gpu=0`."""
    NONE = "none"
    """Not at all: no node and no rule."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One container.

    `links` says whether /dev/char has links to the driver's nodes when it is made, `listed` whether an administrator then adds them to
    its unit (`systemctl set-property`).
    """

    runtime: str
    manager: str
    grant: Grant
    links: bool
    listed: bool = False

    @property
    def podman(self) -> bool:
        """Whether podman starts it; else the runtime is called by itself."""
        return self.grant in (Grant.DEVICE, Grant.CDI) or (self.grant is Grant.ALL and self.manager == "podman")

    @property
    def name(self) -> str:
        """It is also its container's name."""
        added = f"{'-links' if self.links else ''}{'-listed' if self.listed else ''}"
        engine = f"podman-{self.runtime}" if self.podman else self.runtime
        manager = "systemd" if self.manager == "podman" else self.manager
        return f"{engine}-{manager}-{self.grant.value}{added}"

    def never_had(self, suite: str) -> bool:
        """Whether its rules deny from the start what it was to have."""
        return self.grant is Grant.HOOK and self.runtime == "crun" and suite == "trixie"

    def loses(self, suite: str) -> bool:
        """Whether it can open its GPU before the reload, and not after it."""
        if self.runtime != "runc" or self.manager == "cgroupfs" or self.listed:
            return False
        left_out = self.grant in (Grant.RULES, Grant.DEVICE, Grant.CDI) and not self.links and suite == "bookworm"
        return self.grant is Grant.HOOK or left_out

    def plan(self, suite: str) -> dict[str, object]:
        """What the guest must know to start it."""
        more = {"grant": self.grant.value, "podman": self.podman, "name": self.name, "loses": self.loses(suite)}
        return {**asdict(self), **more}


def _trials() -> tuple[Trial, ...]:
    found = []
    for links in (False, True):
        for runtime in ("runc", "crun"):
            found += [Trial(runtime, "systemd", grant, links) for grant in (Grant.RULES, Grant.HOOK, Grant.ALL)]
            found += [Trial(runtime, "cgroupfs", Grant.RULES, links)]
            found += [Trial(runtime, "systemd", grant, links) for grant in (Grant.DEVICE, Grant.CDI)]
            found += [Trial(runtime, "podman", Grant.ALL, links), Trial(runtime, "cgroupfs", Grant.DEVICE, links)]
    alone = [Trial("runc", "systemd", grant, False) for grant in (Grant.NONE, Grant.WILDCARD)]
    return (*alone, Trial("runc", "systemd", Grant.RULES, False, listed=True), *found)


TRIALS = _trials()
