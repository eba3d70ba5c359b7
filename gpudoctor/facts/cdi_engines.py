"""The engines of the node that read CDI specs: their versions, and the CDI library that each is built with.

One that could read them and is not told to is left out: dockerd before 28.2 without features.cdi, a containerd whose CRI plugin has CDI
off or that no kubelet talks to, or whose version is not the installed package's, as in k3s; the nvidia runtime in another mode than cdi.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from gpudoctor.facts.cdi_requests import CdiRequests, Standing
from gpudoctor.facts.cdi_spec import CdiSpec
from gpudoctor.facts.cdi_validity import Refusal, refused_by
from gpudoctor.facts.containerd import Containerd, Containerds
from gpudoctor.facts.containerd_cri import Cri
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.docker import Dockers
from gpudoctor.facts.docker_rules import Refused
from gpudoctor.facts.raw import Absent
from gpudoctor.facts.software import CONTAINERD, CRIO, DOCKER, PODMAN, TOOLKIT, Product, Software, Version
from gpudoctor.facts.toolkit_config import ToolkitConfig
from gpudoctor.knowledge.cdi_versions import DOCKER_FOLLOWS_LINKS_SINCE, Release, library_of
from gpudoctor.knowledge.toolkit_config import MODE
from gpudoctor.verdicts import Cited, Evidence, Unread

_PRODUCTS = (PODMAN, DOCKER, CONTAINERD, CRIO, TOOLKIT)


class CdiEngine(Struct, frozen=True):
    """One engine with its library; `evidence` is where the version was told."""

    version: Version
    library: Release
    evidence: Evidence

    @property
    def follows_links(self) -> bool:
        """Whether it looks into a folder that is a symbolic link."""
        return self.version.product == DOCKER.name and not self.version.before(*DOCKER_FOLLOWS_LINKS_SINCE)

    def refuses(self, spec: CdiSpec) -> Refusal | None:
        """Why it skips a spec."""
        return refused_by(spec, self.library)


class CdiEngines(Fact, frozen=True):
    """All of which the version is known; `unknown` is why there may be more.

    `idle` holds the engines that are here and have CDI off, where that is known of every one and no container asks for a device by name;
    else, and where there is no engine at all, it is empty.
    """

    engines: tuple[CdiEngine, ...]
    unknown: Unread | None = None
    idle: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "CdiEngines | Unread":
        """Who asks is looked at only where no engine is known to read specs."""
        software = desk.get(Software)
        if isinstance(software, Unread):
            return software
        found = {product: software.of(product) for product in _PRODUCTS}
        reads = {product: _reads(desk, product, version) for product, version in found.items()}
        off = [
            version.cite("version")[0]
            for product, version in found.items()
            if isinstance(version, Version) and product is not TOOLKIT
        ]
        nobody = not any(on is not False for on in reads.values()) and _nobody_asks(desk)
        return cls(
            engines=tuple(_engines(desk, found, reads)),
            unknown=next((version for version in found.values() if isinstance(version, Unread)), None),
            idle=tuple(off) if nobody else (),
        )


def _engines(
    desk: Desk, found: Mapping[Product, Version | Absent | Unread], reads: Mapping[Product, bool | None]
) -> Iterator[CdiEngine]:
    for product, version in found.items():
        if not isinstance(version, Version) or reads[product] is not True:
            continue
        library = library_of(product.name, version.numbers)
        if library is not None and (product is not CONTAINERD or _of_installed(desk, version)):
            yield CdiEngine(version, library, version.cite("version")[0])


def _of_installed(desk: Desk, version: Version) -> bool:
    """Whether the containerd that reads specs is the installed one, and not one that a Kubernetes distribution brings along."""
    containerds = desk.get(Containerds)
    found = () if isinstance(containerds, Unread) else containerds.containerds
    return any(_containerd_reads(one) is True and one.version_words == str(version) for one in found)


def _reads(desk: Desk, product: Product, version: Version | Absent | Unread) -> bool | None:
    """Whether it reads specs without being asked further, None where that is not known."""
    if product is DOCKER:
        return _dockers_read(desk)
    if product is CONTAINERD:
        return _containerds_read(desk)
    if product is TOOLKIT:
        return _toolkit_reads(desk)
    return None if isinstance(version, Unread) else isinstance(version, Version)


def _dockers_read(desk: Desk) -> bool | None:
    dockers = desk.get(Dockers)
    if isinstance(dockers, Unread):
        return None
    seen = [
        None if isinstance(one.settings, Unread | Refused) or isinstance(one.cdi, Unread) else bool(one.cdi)
        for one in dockers.dockers
    ]
    return _any_of(seen, complete=dockers.running is None)


def _containerds_read(desk: Desk) -> bool | None:
    """One that no kubelet talks to serves nobody who could ask for a CDI device through its CRI plugin."""
    containerds = desk.get(Containerds)
    if isinstance(containerds, Unread):
        return None
    seen = [_containerd_reads(one) for one in containerds.containerds]
    return _any_of(seen, complete=containerds.unlisted is None)


def _containerd_reads(one: Containerd) -> bool | None:
    if one.asked is False or (isinstance(one.cri, Cri) and (one.cri.disabled or one.cri.cdi is False)):
        return False
    return True if one.asked is True and isinstance(one.cri, Cri) and one.cri.cdi else None


def _toolkit_reads(desk: Desk) -> bool | None:
    """In the mode cdi; in others the nvidia runtime looks for a specification only where a container names a device of one."""
    config = desk.get(ToolkitConfig)
    if isinstance(config, Unread):
        return None
    seen = [bool(file.value(MODE) == "cdi") if isinstance(file.document, dict) else None for file in config.files]
    return _any_of(seen, complete=config.unlisted is None)


def _any_of(seen: Iterable[bool | None], *, complete: bool) -> bool | None:
    found = set(seen)
    return True if True in found else None if None in found or not complete else False


def _nobody_asks(desk: Desk) -> bool:
    requests = desk.get(CdiRequests)
    if isinstance(requests, Unread) or requests.unseen:
        return False
    return all(request.standing is Standing.LEFT for request in requests.requests)
