"""Which members of a recording tell more by their name than by what is in them."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpudoctor.patterns import pattern

MACHINE_FILES = pattern(
    r"root/(?:sys/(?:class|devices/virtual)/dmi/id/(?:\w+_serial|product_uuid|\w+_asset_tag)|etc/machine-id|var/lib/dbus/machine-id|"
    r"proc/device-tree/serial-number|sys/firmware/devicetree/base/serial-number|sys/.*/(?:serial|wwid|serial_number|unique_id))\Z"
)
NETWORK_GUIDS = pattern(r"root/sys/.*/(?:node_guid|sys_image_guid|port_guid)\Z")
CLOUD_TAGS = frozenset((
    "OracleCloud.com", "7783-7084-3265-9085-8269-3286-77", "Amazon EC2", "Default string", "None", "Not Specified",
))  # fmt: skip
"""Asset tags that name a cloud, not a machine."""

DEFINITIONS = pattern(
    r"root/(?:(?:run/nvidia/driver/)?(?:etc|usr/lib)/os-release|sys/|proc/(?!\d)|usr/src/|var/lib/dkms/.*dkms\.conf|"
    r".*/udev/rules\.d/|.*/modprobe\.d/|etc/slurm)"
)
"""Files in which NAME=value is no environment."""

CONTAINER_CONFIGS = pattern(
    r"root/(?:run|var|home|srv|data|mnt|opt)/.*(?:/config\.json|/config\.v2\.json|/overlay-containers/containers\.json)\Z"
)
"""What engines and runtimes keep of a container: its arguments stand there as a list."""

KEY_KINDS = tuple(
    (re.compile(form), kind)
    for form, kind in (
        (
            (
                r"(?i)token|secret|passw|passphrase|credential|authorization|cookie|"
                r"(?:api|access|private|storage)[_-]?key|(?:\A|[_-])(?:auth|psk|pwd)\Z"
            ),
            "secret",
        ),
        (r"(?i)serial|(?:\A|_)pdi\Z", "serial"),
        (r"(?i)\A(?:userns-remap|user|username|login|owner)\Z", "user"),
        (r"(?i)\A(?:host|hostname|node|node_?name)\Z", "host"),
        (r"(?i)\A(?:pod|pod_?name|namespace|pod_?namespace|container|container_?name)\Z", "pod"),
        # Annotations of containers: containerd internal/cri/annotations, cri-o pkg/annotations, kubelet pkg/kubelet/types.
        (
            (
                r"\Aio\.kubernetes\.(?:pod\.(?:name|namespace)|container\.name|cri\.(?:sandbox|container)-(?:name|namespace)|"
                r"cri-o\.(?:Name|ContainerName|SandboxName|Namespace|KubeName|HostName|LogPath))\Z"
            ),
            "pod",
        ),
        (
            r"\A(?:Image|io\.kubernetes\.cri\.(?:podsandbox\.)?image-name|io\.kubernetes\.cri-o\.(?:UserRequested)?Image(?:Name)?)\Z",
            "image",
        ),
    )
)
"""What the string of a key in JSON is."""

POD_RESOURCES = "answers/pod_resources.json"
KUBERNETES = "answers/kubernetes.json"
WITHIN = {
    ("pods", "name"): "pod",
    ("metadata", "name"): "pod",
    ("ownerReferences", "name"): "pod",
    ("containers", "name"): "container",
    ("initContainers", "name"): "container",
    ("containerStatuses", "name"): "container",
    ("initContainerStatuses", "name"): "container",
    ("containers", "image"): "Image",
    ("initContainers", "image"): "Image",
    ("claims", "name"): "pod",
    ("claims", "request"): "pod",
    ("results", "request"): "pod",
    ("spec", "runtimeClassName"): "pod",
    ("runtimeclasses", "handler"): "pod",
    ("reservedFor", "name"): "pod",
    ("resourceClaims", "resourceClaimName"): "pod",
    ("resourceClaims", "resourceClaimTemplateName"): "pod",
    ("devices", "pool"): "node",
    ("results", "pool"): "node",
    ("pool", "name"): "node",
}
"""Keys that tell more by the list in which they stand: as which key. A driver of claims names its pool after the node."""


def pod_names(content: bytes) -> Iterator[str]:
    """What namespaces, pods, their makers and containers are called in an answer of the kubelet or of the API server."""
    said = json.loads(content)
    data = said.get("data") if isinstance(said, dict) else None
    for pod in _objects(data, "pods"):
        meta, spec = _object(pod, "metadata") or pod, _object(pod, "spec") or pod
        yield from (str(meta.get("namespace", "")), str(meta.get("name", "")))
        yield from (str(owner.get("name", "")) for owner in _objects(meta, "ownerReferences"))
        yield from (str(container.get("name", "")) for container in _objects(spec, "containers"))


def node_names(content: bytes) -> Iterator[str]:
    """What the node is called in an answer of the API server: clouds name nodes otherwise than their hosts."""
    said = json.loads(content)
    meta = _object(_object(said.get("data") if isinstance(said, dict) else None, "node"), "metadata")
    yield from (str(meta.get("name", "")), str(_object(meta, "labels").get("kubernetes.io/hostname", "")))


def _object(holder: object, key: str) -> dict[str, Any]:
    inner = holder.get(key) if isinstance(holder, dict) else None
    return inner if isinstance(inner, dict) else {}


def _objects(holder: object, key: str) -> list[dict[str, Any]]:
    listed = holder.get(key) if isinstance(holder, dict) else None
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def file_order(paths: Iterable[str], replaced: Callable[[str], str]) -> dict[tuple[str, str], str]:
    """New names, by kind of directory and name, for files that are read in the order of their names, such that the order stays.

    A directory like modprobe.d(5) is read together with those of the same name elsewhere. A private name is replaced as in any path where
    that keeps the order; else the file gets a name right behind that of the file before it.
    """
    names: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if folder.endswith(".d"):
            names.setdefault(folder.rpartition("/")[2], set()).add(name)
    return {(kind, name): new for kind, its in names.items() for name, new in _in_order(sorted(its), replaced)}


def _in_order(names: list[str], replaced: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    before = ""
    for place, name in enumerate(names):
        new = replaced(name)
        if new != name:
            behind = next((other for other in names[place + 1 :] if replaced(other) == other), None)
            if not before < new or (behind is not None and not new < behind):
                new = f"{before}-{new}"
            yield name, new
        before = new
