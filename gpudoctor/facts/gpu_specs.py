"""CDI specs that name GPUs, in the folders where an engine looks: that they are there and who may read them, no more.

Specs are *.yaml and *.json files directly in a folder (tags.cncf.io/container-device-interface pkg/cdi/spec-dirs.go).
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from gpudoctor.facts.desk import Citable
from gpudoctor.facts.raw import Entry, Listing, Raw, TextFile
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

DEFAULT_FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""DefaultSpecDirs of the same package."""
GPU = "nvidia.com/gpu"

_KIND = pattern(r"""(?:^|[{,])\s*["']?kind["']?\s*:\s*["']?([\w.-]+/[\w.-]+)""", re.MULTILINE)
_MANAGEMENT = "management.nvidia.com/gpu"
"""Its spec is for the Operator's own pods: with it a container gets every device, whatever it asked for."""


class GpuSpec(Citable, frozen=True):
    """One spec: its kind, and whether every user may read it, None where that is not known."""

    path: str
    kind: str
    for_everyone: bool | None


class GpuSpecs(Struct, frozen=True):
    """The NVIDIA specs of some folders. `unread` is why there may be more, `seen` what was seen of the folders."""

    folders: tuple[str, ...]
    specs: tuple[GpuSpec, ...]
    unread: Unread | None
    seen: tuple[Evidence, ...]

    def of(self, kind: str) -> tuple[GpuSpec, ...]:
        """The specs of one kind."""
        return tuple(spec for spec in self.specs if spec.kind == kind)


def read_specs(raw: Raw, folders: Iterable[str]) -> GpuSpecs:
    """Look into each folder; one that is not there holds none."""
    places, specs, seen = tuple(folders), [], []
    unread: Unread | None = None
    for folder in places:
        listing = raw.listing(folder)
        if not isinstance(listing, Listing):
            unread = listing if isinstance(listing, Unread) else unread
            seen.append(Evidence(folder, listing.detail))
            continue
        if not listing.complete:
            unread = Unread(Why.NOT_RECORDED, folder, "was recorded in part only")
        names = [name for name in listing.names if name.endswith((".yaml", ".json"))]
        seen.append(Evidence(folder, f"holds {', '.join(names[:8])}" if names else "holds no CDI spec"))
        for name in names:
            found = _spec(raw, folder, name)
            if isinstance(found, Unread):
                unread = found
            elif found is not None:
                specs.append(found)
    return GpuSpecs(places, tuple(specs), unread, tuple(seen))


def kind_in(text: str) -> str:
    """The kind that a spec states, whether or not it can be decoded; "" where none is seen."""
    kind = _KIND.search(text)
    return kind[1] if kind is not None else ""


def _spec(raw: Raw, folder: str, name: str) -> GpuSpec | Unread | None:
    path = f"{folder}/{name}"
    file = raw.read(path)
    if not isinstance(file, TextFile):
        return file if isinstance(file, Unread) else None
    kind = kind_in(file.text)
    if not kind and file.truncated:
        return Unread(Why.NOT_RECORDED, file.where, "only its beginning was kept")
    if "nvidia.com/" not in kind or kind == _MANAGEMENT:
        return None
    entry, above = raw.entry(path, follow=True), raw.entry(folder, follow=True)
    modes = [found.mode if isinstance(found, Entry) else None for found in (entry, above)]
    shows = " and ".join(f"mode {mode:04o}" for mode in modes[:1] if mode is not None) or "mode not known"
    if modes[1] is not None and modes[1] & 0o005 != 0o005:
        shows += f" in {folder}, mode {modes[1]:04o}"
    evidence = {"kind": Evidence(file.where, f"kind is {kind}"), "mode": Evidence(file.where, shows)}
    return GpuSpec(path=path, kind=kind, for_everyone=_for_everyone(*modes), read_from=evidence)


def _for_everyone(mode: int | None, above: int | None) -> bool | None:
    """A file needs r for others, its folder r and x: what one of them lacks is known without the other."""
    if (mode is not None and not mode & 0o004) or (above is not None and above & 0o005 != 0o005):
        return False
    return None if mode is None else True
