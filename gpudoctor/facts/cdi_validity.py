"""What a release of the CDI library refuses in a spec that can be decoded, and so skips as a whole.

Sources: cncf-tags/container-device-interface pkg/cdi/spec.go, device.go and container-edits.go (Validate), pkg/parser/parser.go (names),
specs-go/version.go (which version a field needs).
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.cdi_spec import CdiDevice, CdiHook, CdiMount, CdiNode, CdiSpec, Edits
from gpudoctor.facts.cdi_text import Place
from gpudoctor.knowledge.cdi_versions import (
    ADDITIONAL_GIDS,
    ANNOTATIONS,
    DIGIT_NAME,
    DOTTED_CLASS,
    ENABLE_CMT,
    ENABLE_MBM,
    ENABLE_MONITORING,
    HOST_PATH,
    INTEL_RDT,
    MINIMUM_CHECKED_SINCE,
    MOUNT_TYPE,
    NET_DEVICES,
    NO_DEVICES_SINCE,
    SCHEMATA,
    SPEC_VERSIONS,
    Feature,
    Release,
)

HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
NODE_TYPES = ("", "b", "c", "u", "p")


class Refusal(Struct, frozen=True):
    """Why a library does not take a spec: its words, the place, and the feature it does not know, where that is the reason."""

    said: str
    place: Place
    feature: Feature | None = None


_FEATURES: dict[tuple[str, str], Feature] = {
    ("mount", "type"): MOUNT_TYPE,
    ("node", "hostPath"): HOST_PATH,
    ("spec", "annotations"): ANNOTATIONS,
    ("device", "annotations"): ANNOTATIONS,
    ("edits", "intelRdt"): INTEL_RDT,
    ("edits", "additionalGids"): ADDITIONAL_GIDS,
    ("rdt", "enableCMT"): ENABLE_CMT,
    ("rdt", "enableMBM"): ENABLE_MBM,
    ("edits", "netDevices"): NET_DEVICES,
    ("rdt", "schemata"): SCHEMATA,
    ("rdt", "enableMonitoring"): ENABLE_MONITORING,
}
_NO_PLACE = Place(0, 0)


def features_of(spec: CdiSpec) -> Iterator[tuple[Feature, Place]]:
    """What a spec holds that is newer than the first version, with where it is."""
    yield from (
        (_FEATURES[used], place) for used, place in spec.used.items() if used in _FEATURES and used in spec.filled
    )
    digit = next((device for device in spec.devices if device.name[:1].isdecimal()), None)
    if digit is not None:
        yield DIGIT_NAME, digit.place
    if "." in spec.class_name and spec.vendor:
        yield DOTTED_CLASS, spec.used.get(("spec", "kind"), _NO_PLACE)


def refused_by(spec: CdiSpec, library: Release) -> Refusal | None:
    """Why this library skips the spec as a whole, None where it takes it."""
    return next(_refusals(spec, library), None)


def _refusals(spec: CdiSpec, library: Release) -> Iterator[Refusal]:
    for used, place in spec.used.items():
        feature = _FEATURES.get(used)
        if feature is not None and (library < feature.since or (feature.until or (library[0] + 1,)) <= library):
            yield Refusal(f'unknown field "{feature.field}"', place, feature)
    yield from _of_version(spec, library)
    for name, what in ((spec.vendor, "vendor"), (spec.class_name, "class")):
        fault = _name_fault(name, dots=what == "vendor" or library >= DOTTED_CLASS.since)
        if fault:
            yield Refusal(
                f"invalid {what} {name!r} in kind {spec.kind!r}: {fault}", spec.used.get(("spec", "kind"), _NO_PLACE)
            )
    yield from _of_edits(spec.edits)
    seen: set[str] = set()
    for device in spec.devices:
        yield from _of_device(device, library)
        if device.name in seen:
            yield Refusal(f"multiple device {device.name!r}", device.place)
        seen.add(device.name)
    if not spec.devices and library >= NO_DEVICES_SINCE:
        yield Refusal("no devices", _NO_PLACE)


def _of_version(spec: CdiSpec, library: Release) -> Iterator[Refusal]:
    place = spec.used.get(("spec", "cdiVersion"), _NO_PLACE)
    checked = library >= MINIMUM_CHECKED_SINCE
    version = spec.version.removeprefix("v") if checked else spec.version
    since = SPEC_VERSIONS.get(version)
    if since is None or library < since:
        yield Refusal(f"invalid version {spec.version!r}", place)
    elif checked:
        for feature, _ in features_of(spec):
            if feature.until is None and _release(version) < feature.since:
                yield Refusal(
                    f"{feature.words} needs cdiVersion {feature.version}, the file states {spec.version}",
                    place,
                    feature,
                )
    if checked and since is not None and _release(version) < (0, 3, 0):
        yield Refusal(f"the spec version must be at least v0.3.0, the file states {spec.version}", place)


def _release(version: str) -> Release:
    return tuple(int(part) for part in version.split("."))


def _of_device(device: CdiDevice, library: Release) -> Iterator[Refusal]:
    fault = _name_fault(device.name, colons=True, digits=library >= DIGIT_NAME.since)
    if fault:
        yield Refusal(f"invalid device name {device.name!r}: {fault}", device.place)
    if device.edits.empty:
        yield Refusal(f"device {device.name!r}: empty device edits", device.place)
    yield from _of_edits(device.edits)


def _of_edits(edits: Edits) -> Iterator[Refusal]:
    yield from _of_env(edits.env, edits.place)
    for node in edits.nodes:
        yield from _of_node(node)
    for hook in edits.hooks:
        yield from _of_hook(hook)
    for mount in edits.mounts:
        yield from _of_mount(mount)
    yield from _of_others(edits)


def _of_node(node: CdiNode) -> Iterator[Refusal]:
    if not node.path:
        yield Refusal("empty device path", node.place)
    if node.type not in NODE_TYPES:
        yield Refusal(f"device {node.path!r}: invalid type {node.type!r}", node.place)
    # "none" is allowed from the release after 1.1.0 on (container-edits.go, NoPermissions).
    if node.permissions.strip("rwm"):
        yield Refusal(f"device {node.path!r}: invalid permissions {node.permissions!r}", node.place)


def _of_hook(hook: CdiHook) -> Iterator[Refusal]:
    if hook.name not in HOOK_NAMES:
        yield Refusal(f"invalid hook name {hook.name!r}", hook.place)
    if not hook.path:
        yield Refusal(f"hook {hook.name!r} with an empty path", hook.place)
    yield from _of_env(hook.env, hook.place)


def _of_mount(mount: CdiMount) -> Iterator[Refusal]:
    if not mount.host_path:
        yield Refusal("mount with an empty host path", mount.place)
    if not mount.container_path:
        yield Refusal("mount with an empty container path", mount.place)


def _of_others(edits: Edits) -> Iterator[Refusal]:
    if (
        edits.rdt is not None
        and edits.rdt.clos_id != "/"
        and re.search(r"[/\n]|\A\.\.?\Z|\A.{4096}", edits.rdt.clos_id)
    ):
        yield Refusal("intelRdt with an invalid closID", edits.rdt.place)
    for device in edits.net_devices:
        if not device.host or not device.name:
            yield Refusal("net device without both names", device.place)
    for names in ([device.host for device in edits.net_devices], [device.name for device in edits.net_devices]):
        if len(set(names)) < len(names):
            yield Refusal("two net devices with one name", edits.place)


def _of_env(env: tuple[str, ...], place: Place) -> Iterator[Refusal]:
    for variable in env:
        if variable.find("=") <= 0:
            yield Refusal(f"invalid environment variable {variable!r}", place)


_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ALPHANUMERIC = _LETTERS + "0123456789"


def _name_fault(name: str, *, dots: bool = True, colons: bool = False, digits: bool = False) -> str:
    """What is wrong with a name, "" for nothing: ASCII letters, digits and -_, in between also dots, in a device's colons."""
    if not name:
        return "it is empty"
    if name[0] not in (_ALPHANUMERIC if digits else _LETTERS):
        return f"it begins with {name[0]!r}"
    if name[-1] not in _ALPHANUMERIC:
        return f"it ends with {name[-1]!r}"
    inner = _ALPHANUMERIC + "-_" + ("." if dots else "") + (":" if colons else "")
    odd = next((letter for letter in name[1:-1] if letter not in inner), "")
    return f"it holds {odd!r}" if odd else ""
