"""Sharing in time: is the plugin told so in words that it takes, and do pods get what they think?

Replicas of a GPU are shared in time: neither memory nor faults are kept apart, every pod may take all of the memory, and each of their
processes gets an equal turn (k8s-device-plugin README.md, "Shared Access to GPUs", "With CUDA Time-Slicing"). The same holds for processes
that share a GPU without MIG, MPS or vGPU: the default compute mode of nvmlComputeMode_t (nvml.h). Read 2026-11-30.
"""

from collections.abc import Iterator, Mapping

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_plugin import PLUGIN
from gpudoctor.facts.pod_devices import Given, PodDevices
from gpudoctor.facts.pod_resources import own_id
from gpudoctor.facts.sharing_config import KNOWN, MPS, TIME_SLICING, SharingConfig, resources, written
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Unread,
    Verdict,
    Verdicts,
    Warn,
)

SLICING = "sharing.time-slicing"
MOST_NAMED = 4


@check(SLICING, link=Link.SHARING, title="GPUs are shared between pods as the device plugin was told")
def time_slicing(config: Reading[SharingConfig], pods: Reading[PodDevices]) -> Verdicts:
    """A misspelt key, and the plugin shares nothing and says nothing; one replica, and it does not start; and a pod that asks for two of a
    shared resource may get the same GPU twice, which gives it neither more time nor more memory.

    Read from the plugin's configuration in force and from its file, where unknown keys show, from its words when it refuses one, and from
    who holds what. failRequestsGreaterThanOne is off by default with time-slicing, and that alone is no fault. With renameByDefault shared
    GPUs are called nvidia.com/gpu.shared: pods that ask for the old name are workload.pods-have-their-gpus. How often a GPU is advertised
    is device-plugin.replicas-add-up; MPS with MIG is sharing.mps-mig.
    """
    if isinstance(config, Unread):
        yield NotApplicable(
            NODE, "the device plugin's configuration is not known, see device-plugin.plugin-found-devices"
        )
        return
    refusals = [one for one in config.refused if "MPS" not in one.shows and "MIG" not in one.shows]
    if not config.present or not (config.sharing or config.file or refusals):
        yield NotApplicable(
            NODE, "no device plugin shares GPUs between pods here" if config.present else "no device plugin here"
        )
        return
    found = [*(_refused(one) for one in refusals[-1:]), *_unsound(config)]
    found += [] if isinstance(pods, Unread) else _doubled(config, pods)
    yield from found
    if not found:
        yield _sound(config)


def _sound(config: SharingConfig) -> Verdict:
    if not config.way:
        return NotApplicable(NODE, "the device plugin shares no resource", (config.evidence(TIME_SLICING),))
    names = [
        f"{name}{_suffix(config)} {written(count)} times" for name, count, _ in resources(config.sharing, config.way)
    ]
    apart = (
        "MPS is to limit each pod's memory, and keeps no faults apart"
        if config.way == MPS
        else "neither memory nor faults are kept apart: each pod may take all of the memory"
    )
    how = "by MPS" if config.way == MPS else "in time"
    return Pass(PLUGIN, f"it gives out {', '.join(names)}, shared {how}; {apart}", (config.evidence(config.way),))


def _suffix(config: SharingConfig) -> str:
    """What the plugin puts behind the name of a shared resource (replicas.go, DefaultSharedRename)."""
    table = config.sharing.get(config.way)
    return ".shared" if isinstance(table, dict) and table.get("renameByDefault") is True else ""


def _refused(said: Evidence) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, mend_sharing

    say = "Correct the configuration: each resource needs a name and at least two replicas."
    summary = f"the device plugin does not take its configuration: {said.shows}"
    steps = mend_sharing(SLICING, say)
    return Fail(PLUGIN, summary, (said,), steps, Breaks.SUBJECT, cause="refused", references=(SHARED_ACCESS,))


def _unsound(config: SharingConfig) -> Iterator[Verdict]:
    """What is written and has no effect, or will stop the plugin at its next start."""
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, mend_sharing

    table, where = (config.sharing, config.where) if config.file is None else (config.file, config.file_at)
    for words, shows, say in _faults(table):
        steps = mend_sharing(SLICING, say)
        yield Warn(PLUGIN, words, (Evidence(where, shows),), steps, cause="configuration", references=(SHARED_ACCESS,))


def _faults(table: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Summary, what was read, and what to do (api/config/v1/replicas.go and sharing.go)."""
    for key in table:
        # Go's encoding/json takes the names of a struct's fields in any case; below, the keys are looked up in a map.
        if str(key).lower() not in (name.lower() for name in KNOWN["sharing"]):
            yield _unknown("sharing", str(key), KNOWN["sharing"])
    ways = [name for name in KNOWN["sharing"] if isinstance(table.get(name), dict)]
    shared = [name for name in ways if any(True for _ in resources(table, name))]
    if len(shared) > 1:
        say = "Leave one of the two: with both the plugin shares by MPS alone."
        yield (
            "both mps and timeSlicing are set: the plugin takes mps and leaves timeSlicing out",
            "sharing: mps, timeSlicing",
            say,
        )
    for way in ways:
        settings = table[way]
        if settings and not any(True for _ in resources(table, way)):
            say = f"Name the resources that are to be shared below sharing.{way}, or take that out."
            yield (
                f"sharing.{way} names no resource: the plugin does not start with it",
                f"sharing.{way}: no resources",
                say,
            )
        for key in settings if isinstance(settings, dict) else ():
            if key not in KNOWN["way"]:
                yield _unknown(f"sharing.{way}", str(key), KNOWN["way"])
        for name, count, entry in resources(table, way):
            yield from _entry_faults(way, name, count, entry)


def _entry_faults(way: str, name: str, count: object, entry: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    at = f"sharing.{way}.resources"
    if not isinstance(count, int) or isinstance(count, bool) or count < 2:
        said = "no replicas" if count is None else f"replicas {written(count)}"
        say = "Give it two replicas or more, or take the entry out: one replica is what a GPU has without sharing."
        yield (
            f"{name or 'a resource'} has {said}: the plugin takes two or more, and does not start otherwise",
            f"{at}: {name}, {said}",
            say,
        )
    for key in entry:
        if key not in KNOWN["resource"]:
            yield _unknown(at, str(key), KNOWN["resource"])
        elif key in ("rename", "devices") and entry[key] not in ("all", None, "", f"{name}.shared"):
            say = f"Take {key} out; renameByDefault: true calls shared resources NAME.shared."
            yield (
                f"{key} of {name} is passed over: the plugin does not support it yet",
                f"{at}: {name}, {key}: {written(entry[key])}",
                say,
            )


def _unknown(at: str, key: str, known: tuple[str, ...]) -> tuple[str, str, str]:
    from difflib import get_close_matches

    key = written(key)
    near = get_close_matches(key.lower(), [name.lower() for name in known], n=1, cutoff=0.6)
    meant = next((name for name in known if near and name.lower() == near[0]), "")
    hint = f", perhaps meant for {meant}" if meant else ""
    say = (
        f"Write {meant or 'one of ' + ', '.join(known)}: keys that it does not know the plugin passes over in silence."
    )
    return f"{at} has a key {key} that the device plugin does not know{hint}: it is passed over", f"{at}: {key}", say


# What pods get and ask for -------------------------------------------------------------------------------------------


def _doubled(config: SharingConfig, pods: PodDevices) -> Iterator[Verdict]:
    for one in pods.given if config.way else ():
        own = [own_id(device) for device in one.ids]
        twice = [device for device in dict.fromkeys(own) if own.count(device) > 1]
        if twice:
            yield _twice(config, one, twice[0], own.count(twice[0]))


def _twice(config: SharingConfig, one: Given, device: str, count: int) -> Verdict:
    from gpudoctor.knowledge.mps_remedies import SHARED_ACCESS, one_replica

    said = f"container {one.container} holds {count} replicas of one GPU, {device}: no more time and no more memory than one gives"
    evidence = (one.evidence, config.evidence(config.way))
    return Warn(one, said, evidence, one_replica(SLICING), cause="same-gpu-twice", references=(SHARED_ACCESS,))
