"""What in the name of a pod, a namespace or a container is public, and what is a site's.

Charts put the name of a release before a component's (helm's `fullname`: RELEASE-dcgm-exporter), the kubelet a node's behind that of a
static pod (kubernetes pkg/kubelet/config/common.go), and Kubernetes words of chance behind its own pods' (apimachinery pkg/util/rand).
"""

from collections.abc import Container, Iterator

from gpudoctor.patterns import pattern
from gpudoctor.sources.private_words import is_peculiar

_BEGINS = frozenset("kube nvidia gpu dcgm coredns etcd calico cilium".split())
_COMPONENT = pattern(
    r"(?:\A|(?<=-))(?:dcgm-exporter|(?:(?:nvidia|k8s)-)?device-plugin|(?:gpu|node)-feature-discovery|gpu-operator|"
    r"nvidia-dra-driver-gpu)(?=-|\Z)"
)
_CHANCE = pattern(
    r"(?:-[bcdfghjklmnpqrstvwxz2456789]{8,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}\Z|-[bcdfghjklmnpqrstvwxz2456789]{8,10}\Z"
)
_VERSION = pattern(r"\d[\d.]*|(?:ubuntu|rhel|rhcos|sles|el)\d[\d._]*")
_WORDS = frozenset(
    # of NVIDIA's components: gpu-operator assets, the charts of k8s-device-plugin, dcgm-exporter, k8s-dra-driver-gpu
    "nvidia gpu gpus k8s device plugin daemonset daemon ds ctr container toolkit driver operator validator validation cuda mig mps vgpu "
    "control manager dcgm exporter hostengine feature discovery gfd node nfd master worker gc topology updater sandbox kubevirt vfio cc "
    "kata persistenced fabricmanager fabric imex smi gds gdrcopy gdrdrv peermem nvfs fs mofed network dra kubelet controller controllers "
    "compute domain domains webhook init config sidecar uninstall upgrade cleanup crd crds generic azure aws gcp oracle "
    # of Kubernetes' own
    "POD kube system public lease apiserver scheduler proxy dns coredns autoscaler etcd flannel multus state metrics calico typha cilium "
    "envoy agent "
    # by which device plugins of others are told apart
    "amd amdgpu intel sriov rdma efa".split()
)


def private_parts(name: str, hosts: Container[str] = ()) -> tuple[tuple[int, int], ...]:
    """Where a site's parts of a name begin and end: nowhere in a public one, all of it where nothing shows a public component.

    What ends with the name of one of the `hosts` has that as a part. A word that a site chose like those of chance is not told apart.
    """
    own = next((at for at in _behind_dashes(name) if name[at:] in hosts), None)
    chance = _CHANCE.search(name) if own is None else None
    end = own - 1 if own is not None else chance.start() if chance is not None else len(name)
    component = _COMPONENT.search(name, 0, end)
    host = () if own is None else ((own, len(name)),)
    if component is None and name.partition("-")[0] not in _BEGINS:
        words = name[:end].split("-")
        public = all(map(_is_public, words)) and any(word in _WORDS for word in words)
        return host if public else ((0, len(name)),)
    begin, behind = component.span() if component is not None else (0, 0)
    return (*_private(name, 0, begin), *_private(name, behind, end), *host)


def is_peculiar_pod(name: str) -> bool:
    """Whether a pod's name is a private one that can hardly be anything else: `gpu-burn` is a program's as well."""
    parts = private_parts(name)
    known = is_peculiar(name) or _COMPONENT.search(name) is not None
    return bool(parts) and (known or any(is_peculiar(name[begin:end]) for begin, end in parts))


def _behind_dashes(name: str) -> Iterator[int]:
    return (at + 1 for at, character in enumerate(name) if character == "-")


def _private(name: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """From the first private word of a stretch to the last."""
    places = []
    at = begin
    for word in name[begin:end].split("-"):
        if word and not _is_public(word):
            places.append((at, at + len(word)))
        at += len(word) + 1
    if places:
        yield places[0][0], places[-1][1]


def _is_public(word: str) -> bool:
    return word in _WORDS or _VERSION.fullmatch(word) is not None
