"""Fabric: the NVLink domain of a rack, and what exports GPU memory over it to the other nodes."""

from gpudoctor.chain import Link
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_files import ImexChannels
from gpudoctor.facts.fabric_service import CLIQUE, CLUSTER, STATE, in_domain, text_field
from gpudoctor.facts.imex import Imex, ImexSetup
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import NvmlDevice
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.registry import check
from gpudoctor.verdicts import NODE, Breaks, Fail, NotApplicable, Pass, Unknown, Unread, Verdict, Verdicts, Warn

DOMAIN, DAEMON, CHANNELS = "fabric.one-domain", "fabric.imex", "fabric.imex-channels"
NO_DOMAIN = "no GPU of it is in an NVLink domain of several nodes"


@check(
    DOMAIN,
    link=Link.FABRIC,
    needs={Link.DRIVER_CUDA},
    explained_by=("fabric.registered",),
    title="All GPUs of the node are in one NVLink domain and clique",
)
def one_domain(gpus: PciGpus, nvml: Reading[Nvml]) -> Verdicts:
    """In a rack, GPUs reach each other over NVLink only within one cluster UUID and one clique of it.

    All GPUs of a node share both, unless the rack was divided on purpose: then jobs that span the halves go over the network. A GPU whose
    UUID is another, or all zeros, while its neighbours are in a domain, was never meant to be: NVIDIA's DRA driver refuses such a node
    (cmd/compute-domain-kubelet-plugin/nvlib.go). Where all have zeros it is a fabric of one node, whose cliques are partitions for guests.
    """
    if isinstance(nvml, Unread):
        yield nvml.about(NODE) if gpus.gpus else NotApplicable(NODE, gpus.NOTHING, gpus.cite("listing"))
        return
    told = [(gpu, device) for gpu in gpus if (device := nvml.device(gpu.address)) is not None and device.error is None]
    joined = [(gpu, device) for gpu, device in told if text_field(device, STATE) == "completed"]
    if len(joined) < 2 or not any(in_domain(device) for _, device in joined):
        yield NotApplicable(NODE, "no two GPUs are in an NVLink domain of several nodes")
        return
    places: dict[tuple[str, str], list[tuple[PciGpu, NvmlDevice]]] = {}
    for gpu, device in joined:
        place = (text_field(device, CLUSTER), str(device.fields.get(CLIQUE)))
        places.setdefault(place, []).append((gpu, device))
    if len(places) == 1:
        evidence = tuple(joined[0][1].evidence(name) for name in (CLUSTER, CLIQUE))
        yield Pass(NODE, f"{len(joined)} GPUs are in one domain and clique", evidence)
    else:
        yield from _divided(places, len(joined))


def _divided(places: dict[tuple[str, str], list[tuple[PciGpu, NvmlDevice]]], joined: int) -> Verdicts:
    """About the odd GPUs where most are together, else about the node."""
    from gpudoctor.knowledge.fabric_remedies import join_rack

    clusters = {cluster for cluster, _ in places}
    here = max(places, key=lambda place: len(places[place]))
    evidence = tuple(found[0][1].evidence(name) for found in places.values() for name in (CLUSTER, CLIQUE))
    what = f"{len(clusters)} NVLink domains" if len(clusters) > 1 else f"{len(places)} cliques of one NVLink domain"
    summary, odd = f"the GPUs of this node are in {what}", [NODE]
    if 2 * len(places[here]) > joined:
        summary += f", this one apart from the other {len(places[here])}"
        odd = [gpu.subject for place, found in places.items() if place != here for gpu, _ in found]
    for subject in odd:
        if len(clusters) > 1:
            yield Fail(subject, summary, evidence, join_rack(DOMAIN), Breaks.SUBJECT, cause="domains-differ")
        else:
            yield Warn(subject, summary, evidence, join_rack(DOMAIN), cause="cliques-differ")


@check(
    DAEMON, link=Link.FABRIC, needs={Link.DRIVER_CUDA}, title="The IMEX daemon runs where it is enabled, and is ready"
)
def imex(imex: Imex) -> Verdicts:
    """Jobs over several nodes of a rack (GB200, GB300 NVL72) share memory over NVLink only through IMEX, a daemon on each of them.

    Without it NCCL says "MNNVL … is available but not supported on this system. Check the IMEX configuration" and goes over the network.
    Judged where a GPU has a cluster UUID and the node's own daemon is enabled or runs; Kubernetes' compute domains and prologs of
    schedulers bring their own with the job, so that none on an idle node is no fault. A ready daemon answers READY; one whose command
    service is off answers nothing. Whether the other nodes of the domain are ready is told only where somebody recorded it. Easily
    confused with a missing channel, which fails with CUDA_ERROR_NOT_PERMITTED.
    """
    if imex.domain is None:
        yield NotApplicable(imex, NO_DOMAIN)
    elif imex.running is True:
        yield _ready(imex)
    elif imex.another is not None:
        yield Pass(imex, "one runs that is not the node's service, as in a compute domain", (imex.another,))
    elif isinstance(imex.enabled, Unread):
        yield imex.enabled.about(imex)
    elif not imex.enabled:
        yield NotApplicable(
            imex, "nobody starts it at boot: a job over several nodes has to bring its own", imex.cite("enabled")
        )
    elif isinstance(imex.running, Unread):
        yield imex.running.about(imex)
    else:
        from gpudoctor.knowledge.fabric_remedies import start_imex

        why = f": {imex.said[-1].shows}" if imex.said else ""
        if not imex.peers and not isinstance(imex.peers, Unread):
            why = ": its list of nodes is empty" if imex.peers == 0 else ": it has no list of nodes"
        evidence = (*imex.cite("enabled", "running", "peers"), imex.domain, *imex.said)
        known = bool(imex.peers) or isinstance(imex.peers, Unread)
        summary = f"enabled, but it does not run{why}"
        yield Fail(imex, summary, evidence, start_imex(DAEMON, nodes=known), Breaks.NOTHING, cause="imex-down")


_NOT_READY = ("UNAVAILABLE", "NOT_READY", "NOT READY", "INITIALIZING", "STARTING", "RECOVERING", "SHUTTING", "DEGRADED")


def _ready(imex: Imex) -> Verdict:
    said = imex.answer.shows.strip() if imex.answer is not None else ""
    shown = imex.cite("running") + ((imex.answer,) if imex.answer is not None else ())
    if imex.apart is not None and not said.upper().startswith(_NOT_READY):
        from gpudoctor.knowledge.fabric_remedies import wake_peers

        summary = f"it runs, but not all nodes of its domain are ready ({imex.apart.shows}): jobs that span them cannot share memory"
        return Warn(imex, summary, (*shown, imex.apart), wake_peers(DAEMON), cause="imex-domain")
    if said.upper().startswith("READY"):
        return Pass(imex, "it runs and is ready", shown)
    if said.upper().startswith(_NOT_READY):
        from gpudoctor.knowledge.fabric_remedies import start_imex

        summary = f"it runs, but says {said.splitlines()[0][:60]}: jobs over several nodes cannot share memory yet"
        known = bool(imex.peers) or isinstance(imex.peers, Unread)
        return Warn(imex, summary, shown + imex.cite("peers"), start_imex(DAEMON, nodes=known), cause="imex-not-ready")
    return Pass(imex, "it runs; whether it is ready it does not say", shown)


@check(
    CHANNELS,
    link=Link.FABRIC,
    needs={Link.DRIVER_CUDA},
    title="A node of an NVLink domain has an IMEX channel for its jobs",
)
def imex_channels(setup: ImexSetup) -> Verdicts:
    """A process exports memory to other nodes through an IMEX channel; without one cuMemCreate fails with CUDA_ERROR_NOT_PERMITTED (800).

    The driver registers their major and makes none unless told to (NVreg_CreateImexChannel0=1). Judged where the node's own IMEX daemon is
    enabled or runs: compute domains of Kubernetes make the channel with the job, inside its container, and there is none on the host.
    Whether channels that are there carry the right numbers is device-nodes.imex-channels'.
    """
    imex, channels = setup.imex, setup.channels
    if imex.domain is None:
        yield NotApplicable(NODE, NO_DOMAIN)
    elif channels is None or isinstance(channels, Unread):
        yield channels.about(NODE) if channels is not None else NotApplicable(NODE, "nobody looked for channels")
    elif channels.channels:
        hidden = channels.channels[0].unseen
        evidence = (*channels.cite("channels"), channels.channels[0].evidence)
        yield hidden.about(NODE) if hidden is not None else Pass(NODE, f"{len(channels.channels)} channels", evidence)
    elif isinstance(channels.incomplete, Unread):
        yield channels.incomplete.about(NODE)
    elif not imex.wanted:
        unseen = next((seen for seen in (imex.enabled, imex.running) if isinstance(seen, Unread)), None)
        if unseen is not None:
            yield Unknown(NODE, unseen.why, f"there is no channel; whether one is wanted is not known: {unseen.detail}")
        else:
            said = "no channel, and the node starts no IMEX daemon: a job over several nodes has to bring both"
            yield NotApplicable(NODE, said, channels.cite("channels"))
    else:
        yield _none(setup, channels)


def _none(setup: ImexSetup, channels: ImexChannels) -> Verdict:
    from gpudoctor.knowledge.fabric_remedies import make_channel

    assert setup.imex.domain is not None
    evidence = (*channels.cite("channels"), *((setup.option,) if setup.option is not None else ()), setup.imex.domain)
    if setup.major is None:
        summary = "the driver has registered no IMEX channels, though the node starts an IMEX daemon"
        return Warn(NODE, summary, evidence, make_channel(CHANNELS, 0)[:1], cause="no-channels")
    summary = f"no channel was made, though the driver has registered major {setup.major} for them and the node starts an IMEX daemon"
    return Warn(NODE, summary, evidence, make_channel(CHANNELS, setup.major), cause="no-channel")
