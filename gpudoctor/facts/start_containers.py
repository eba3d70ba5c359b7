"""Which container an engine's journal speaks of: by the pod or the id in the line, and what dockerd keeps under that id.

Sources: moby daemon/container (ROOT/containers/ID/config.v2.json, hostconfig.json); containerd internal/cri/server ("RunPodSandbox for
&PodSandboxMetadata{Name:…,Uid:…,Namespace:…"); kubernetes klog ('pod="NAMESPACE/NAME"').
"""

from msgspec import Struct

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.docker_kept import docker_roots
from gpudoctor.facts.oci_config import DockerContainer, parse_docker
from gpudoctor.facts.raw import Raw, TextFile
from gpudoctor.facts.workload import short
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence

# Layers of images and digests have 64 digits as well.
_ID = pattern(r"(?<!overlay2/)(?<!sha256:)(?<!snapshots/)\b([0-9a-f]{64})\b")
_POD = pattern(r"\bpod=\\*\"([\w.-]+/[\w.-]+)\\*\"")
_SANDBOX = pattern(r"PodSandboxMetadata\{Name:([\w.-]+),.*?Namespace:([\w.-]+),")
_VARIABLE = pattern(r'"(NVIDIA_VISIBLE_DEVICES=[^"]*)"')


class StartedContainer(Struct, frozen=True):
    """A container as people call it, and where it says which GPUs it wants, if dockerd keeps that."""

    title: str
    evidence: Cited = ()


def named_in(message: str) -> str:
    """A pod as `NAMESPACE/NAME`, else the container's id of 64 digits; "" where a line has neither."""
    pod, sandbox, container = _POD.search(message), _SANDBOX.search(message), _ID.search(message)
    if pod is not None:
        return pod[1]
    if sandbox is not None:
        return f"{sandbox[2]}/{sandbox[1]}"
    return container[1] if container is not None else ""


def known_as(desk: Desk, name: str) -> StartedContainer:
    """What is known under such a name."""
    if "/" in name:
        return StartedContainer(f"pod {name}")
    for root in docker_roots(desk):
        found = _of_docker(desk.raw, f"{root}/containers/{name}")
        if found is not None:
            return found
    return StartedContainer(f"container {short(name)}")


def _of_docker(raw: Raw, folder: str) -> StartedContainer | None:
    file, host = raw.read(f"{folder}/config.v2.json"), raw.read(f"{folder}/hostconfig.json")
    kept = parse_docker(file, host)
    if not isinstance(kept, DockerContainer) or not isinstance(file, TextFile) or not kept.name:
        return None
    wishes = [name for request in kept.requests for name in request.device_i_ds or ()]
    variable = _VARIABLE.search(file.text)
    shown = Evidence(file.path, f"Name: {kept.name}" + (f", {variable[1]}" if variable is not None else ""))
    asked = (Evidence(kept.path, f"DeviceRequests: {', '.join(wishes)}"),) if wishes else ()
    return StartedContainer(f"container {kept.name}", (shown, *asked))
