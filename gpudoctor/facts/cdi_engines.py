"""The engines of the node that read CDI specs: their versions, and the CDI library that each is built with.

One that could read them and is not told to is left out: dockerd before 28.2 without features.cdi, a containerd whose CRI plugin has CDI
off or that no kubelet talks to, the nvidia runtime in another mode than cdi.
"""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.facts.cdi_spec import CdiSpec
from gpudoctor.facts.cdi_validity import Refusal, refused_by
from gpudoctor.facts.config_text import parse_json
from gpudoctor.facts.containerd import Containerds
from gpudoctor.facts.containerd_cri import Cri
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import TextFile
from gpudoctor.facts.software import CONTAINERD, CRIO, DOCKER, PODMAN, TOOLKIT, Product, Software, Version
from gpudoctor.facts.toolkit_config import ToolkitConfig
from gpudoctor.knowledge.cdi_versions import DOCKER_DEFAULT_SINCE, Release, library_of
from gpudoctor.knowledge.toolkit_config import MODE
from gpudoctor.verdicts import Evidence, Unread

DAEMON_JSON = "/etc/docker/daemon.json"


class CdiEngine(Struct, frozen=True):
    """One engine with its library; `evidence` is where the version was told."""

    version: Version
    library: Release
    evidence: Evidence

    def refuses(self, spec: CdiSpec) -> Refusal | None:
        """Why it skips a spec."""
        return refused_by(spec, self.library)


class CdiEngines(Fact, frozen=True):
    """All of which the version is known; `unknown` is why there may be more."""

    engines: tuple[CdiEngine, ...]
    unknown: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "CdiEngines | Unread":
        """Configuration is read only of an engine whose release reads specs."""
        software = desk.get(Software)
        if isinstance(software, Unread):
            return software
        found = [software.of(product) for product in (PODMAN, DOCKER, CONTAINERD, CRIO, TOOLKIT)]
        unknown = next((version for version in found if isinstance(version, Unread)), None)
        return cls(engines=tuple(_engines(desk, software)), unknown=unknown)


def _engines(desk: Desk, software: Software) -> Iterator[CdiEngine]:
    for product in (PODMAN, DOCKER, CONTAINERD, CRIO, TOOLKIT):
        version = software.of(product)
        library = library_of(product.name, version.numbers) if isinstance(version, Version) else None
        if isinstance(version, Version) and library is not None and _reads(desk, product, version):
            yield CdiEngine(version, library, version.cite("version")[0])


def _reads(desk: Desk, product: Product, version: Version) -> bool:
    if product is DOCKER:
        return _docker_reads(desk, version)
    if product is CONTAINERD:
        containerds = desk.get(Containerds)
        found = () if isinstance(containerds, Unread) else containerds.containerds
        return any(isinstance(one.cri, Cri) and one.cri.cdi is True and one.asked is True for one in found)
    if product is TOOLKIT:
        config = desk.get(ToolkitConfig)
        file = None if isinstance(config, Unread) else config.default
        return file is not None and isinstance(file.document, dict) and file.value(MODE) == "cdi"
    return True


def _docker_reads(desk: Desk, version: Version) -> bool:
    file = desk.raw.read(DAEMON_JSON)
    settings = parse_json(file) if isinstance(file, TextFile) else {}
    features = settings.get("features") if isinstance(settings, dict) else None
    said = features.get("cdi") if isinstance(features, dict) else None
    return said is True or (said is None and not version.before(*DOCKER_DEFAULT_SINCE))
