"""A base for kustomize: a DaemonSet that looks at every GPU node; and a Job that looks at one."""

import json
import re

from gpudoctor import __version__
from gpudoctor.installing.files import File, Installation, filled
from gpudoctor.installing.node import InstallNode

IMAGE = "registry.example/gpudoctor"
_PLAIN = re.compile(r"[\w./-]+")
BASE = ("kustomization", "namespace", "serviceaccount", "daemonset", "job")


def kubernetes(node: InstallNode) -> Installation:
    """Files for one directory; they go to the cluster, not to this node."""
    return Installation(
        kind="kubernetes",
        files=manifests(node.textfile.path),
        install=(
            f"put your image in place of {IMAGE}:{__version__} and the label of your GPU nodes into daemonset.yaml",
            "kubectl apply -k gpudoctor",
        ),
        undo=("kubectl delete -k gpudoctor",),
        notes=(
            "they are for the cluster: docs/kubernetes.md says what each line is for, and how to make the image",
            f"metrics are written to {node.textfile.path} of each node, from which its node_exporter has to collect",
        ),
    )


def manifests(textfile: str) -> tuple[File, ...]:
    """The files; packaging/kubernetes holds them for the usual directory."""
    # A string of JSON is one of YAML as well (YAML 1.2.2, 1.2 and 7.3.1).
    path = textfile if _PLAIN.fullmatch(textfile) else json.dumps(textfile, ensure_ascii=False)
    words = {"IMAGE": f"{IMAGE}:{__version__}", "TEXTFILE": path}
    return tuple(File(f"gpudoctor/{name}.yaml", filled(f"kubernetes-{name}.yaml", **words)) for name in BASE)
