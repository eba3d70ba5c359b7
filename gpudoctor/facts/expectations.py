"""What this node should have: what the configuration says, and what the profile has that it names."""

from typing import TYPE_CHECKING

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.virtual_machine import VirtualMachine
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

if TYPE_CHECKING:
    from gpudoctor.knowledge.profiles import Profile

WHERE = "configuration"


class Expectations(Fact, frozen=True):
    """The expected hardware and versions; None, or nothing, where nobody said."""

    gpus: int | None
    profile: "Profile | None"
    driver: tuple[str, ...]
    driver_denied: tuple[str, ...]
    vbios: tuple[str, ...]

    @classmethod
    def gather(cls, desk: Desk) -> "Expectations | Unread":
        """From the effective configuration; `expect.gpus` wins over the count of the profile."""
        expect = desk.config.expect
        named = _profile(expect.profile)
        if isinstance(named, Unread):
            return named
        seen = {
            key: Evidence(WHERE, f"expect.{key} = {getattr(expect, key)!r}")
            for key in ("gpus", "driver", "driver_denied", "vbios")
        }
        if named is not None:
            seen["profile"] = Evidence(WHERE, f"expect.profile = {named.name!r}: {in_words(named)}")
            if expect.gpus is None:
                seen["gpus"] = Evidence(WHERE, f"expect.profile = {named.name!r}: {named.gpus} GPUs")
        return cls(
            gpus=expect.gpus if expect.gpus is not None or named is None else named.gpus,
            profile=named,
            driver=expect.driver,
            driver_denied=expect.driver_denied,
            vbios=expect.vbios,
            read_from=seen,
        )


def _profile(name: str | None) -> "Profile | Unread | None":
    """The table is loaded only for a configuration that names a profile."""
    if name is None:
        return None
    from gpudoctor.knowledge.profiles import profile

    return profile(name) or Unread(Why.UNREADABLE, WHERE, f"there is no profile {name!r}")


def in_words(profile: "Profile") -> str:
    """What a profile has."""
    ids = ", ".join(f"10de:{device_id}" for device_id in profile.device_ids)
    parts = [f"{profile.gpus} {profile.model} ({ids})"]
    if profile.switches:
        parts.append(f"{profile.switches} NVSwitches (10de:{profile.switch_id})")
    if profile.lanes is not None:
        parts.append(f"x{profile.lanes} links")
    if profile.generation is not None:
        parts.append(f"PCIe {profile.generation}")
    return ", ".join(parts)


class ExpectedBoard(Fact, frozen=True):
    """The NVSwitches and links that the profile of the configuration has, where they can be seen: on bare metal.

    A hypervisor gives its guests NVSwitches or keeps them (Fabric Manager User Guide, Virtualization Models), and makes up the
    ports above their GPUs.
    """

    profile: "Profile | None"
    seen_on: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "ExpectedBoard | Unread":
        """Asks whether this is a virtual machine only where it matters."""
        expected = desk.get(Expectations)
        if isinstance(expected, Unread):
            return expected
        profile = expected.profile
        if profile is None or (profile.switches, profile.lanes, profile.generation) == (None, None, None):
            return cls(profile=None)
        machine = desk.get(VirtualMachine)
        if isinstance(machine, Unread):
            return machine
        return cls(profile=None if machine.guest else profile, seen_on=machine.cite("guest"))
