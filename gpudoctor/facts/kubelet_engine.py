"""The engine that the kubelet talks to, and the engines that are set up for GPUs: they must be the same."""

from collections.abc import Iterator

from gpudoctor.facts.daemons import Daemon
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.engine_setups import EngineSetup, setups
from gpudoctor.facts.kubelet import DEVICE_PLUGINS, ROOT, KubeletSettings
from gpudoctor.facts.kubelet_endpoint import Endpoint, KubeletEndpoint
from gpudoctor.facts.raw import Absent, Entry, TextFile
from gpudoctor.verdicts import Evidence, Subject, SubjectKind, Unread

CHECKPOINT = f"{ROOT}/{DEVICE_PLUGINS}/kubelet_internal_checkpoint"


class KubeletEngine(Fact, frozen=True):
    """`kubelet` is None where none runs. `wants_gpus` cites a sign that pods were given GPUs here, nothing where there is none."""

    kubelet: Daemon | None
    endpoint: Endpoint | Unread | None = None
    socket: Entry | Absent | Unread | None = None
    engines: tuple[EngineSetup, ...] = ()
    wants_gpus: tuple[Evidence, ...] = ()

    @property
    def subject(self) -> Subject:
        """The kubelet, which stands on its engine."""
        below = self.own.subject if self.own is not None else None
        return Subject(SubjectKind.SERVICE, "kubelet", stands_on=() if below is None else (below,))

    @property
    def own(self) -> EngineSetup | None:
        """The engine behind the kubelet's socket, None where that is not told."""
        if not isinstance(self.endpoint, Endpoint):
            return None
        path = self.endpoint.socket
        return next((engine for engine in self.engines if path in engine.sockets), None)

    @classmethod
    def gather(cls, desk: Desk) -> "KubeletEngine | Unread":
        """Nothing else is looked at where no kubelet runs; of several the first is judged."""
        endpoints = desk.get(KubeletEndpoint)
        if isinstance(endpoints, Unread):
            return endpoints
        if not endpoints.kubelets:
            return endpoints.unlisted or cls(kubelet=None, read_from=endpoints.read_from)
        kubelet, endpoint = endpoints.kubelets[0].daemon, endpoints.kubelets[0].endpoint
        if not isinstance(endpoint, Endpoint):
            return cls(kubelet=kubelet, endpoint=endpoint, read_from=endpoints.read_from)
        return cls(
            kubelet=kubelet,
            endpoint=endpoint,
            socket=desk.raw.entry(endpoint.socket, follow=True) if endpoint.url.startswith(("unix://", "/")) else None,
            engines=setups(desk),
            wants_gpus=tuple(_wishes(desk)),
            read_from=endpoints.read_from,
        )


def _wishes(desk: Desk) -> Iterator[Evidence]:
    """The kubelet keeps which plugins registered which resources (kubernetes pkg/kubelet/cm/devicemanager/checkpoint)."""
    settings = desk.get(KubeletSettings)
    folders = () if isinstance(settings, Unread) else settings.directories
    name = CHECKPOINT.rpartition("/")[2]
    for path in dict.fromkeys((CHECKPOINT, *(f"{folder}/{name}" for folder in folders))):
        file = desk.raw.read(path)
        if isinstance(file, TextFile) and '"nvidia.com/' in file.text:
            yield Evidence(path, "the kubelet knows GPUs as a resource (nvidia.com/…)")
            return
