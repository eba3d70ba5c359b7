"""The next steps for a pod whose GPUs are not as the kubelet has them, from the safest up.

Sources: kubernetes.io/docs/reference/kubectl, and those of knowledge/device_plugin_remedies.py.
"""

import shlex
from collections.abc import Sequence

from gpudoctor.facts.pod_devices import Asking
from gpudoctor.knowledge import device_plugin_remedies as plugin
from gpudoctor.knowledge import workload_remedies as common
from gpudoctor.verdicts import Action, Remedy

HAVE = "workload.pods-have-their-gpus"
_LOOK = Remedy(
    Action.NONE,
    "See which GPUs the node has, and what the kubelet says of them.",
    run=("nvidia-smi -L", "gpudoctor run --link device-plugin"),
)


def recreate(namespace: str, name: str) -> Remedy:
    """What a pod was given cannot be changed while it runs."""
    return plugin.recreate_pod(HAVE, namespace, name)


def look_then(again: Remedy) -> tuple[Remedy, ...]:
    """The card may be gone on purpose: see first."""
    return (_LOOK, _then(again))


def through_runtime(again: Remedy) -> tuple[Remedy, ...]:
    """What the plugin answered did not reach the container."""
    return (common.through_plugin(HAVE), _then(again))


def _then(again: Remedy) -> Remedy:
    from msgspec.structs import replace

    return replace(again, then=True)


def start_over(one: Asking, namespace: str, name: str) -> Remedy:
    """A static pod is made anew by its manifest, any other by its controller."""
    return plugin.recreate_static(one.manifest.where) if one.static else recreate(namespace, name)


def ask_properly() -> tuple[Remedy, ...]:
    """For GPUs that came past the kubelet."""
    return (plugin.ASK_FOR_GPU, plugin.ONLY_THE_PLUGIN)


def by_its_name(resource: str) -> tuple[Remedy, ...]:
    """For a resource that this node does not have."""
    return plugin.ask_by_name(resource or "a resource that the node has")


def see_plugin() -> tuple[Remedy, ...]:
    """Why there is no plugin is the node's own affair."""
    return (Remedy(Action.NONE, "See why no plugin is registered.", run=("gpudoctor run --link device-plugin",)),)


def wait_or_free(holders: Sequence[str]) -> tuple[Remedy, ...]:
    """For GPUs that others hold."""
    others = f" by ending one of {', '.join(holders[:4])}" if holders else ""
    say = f"Wait until enough GPUs are free, ask for fewer, or free some{others}."
    return (Remedy(Action.CHANGE_WORKLOAD, say, interrupts="the pods that are ended"),)


def describe(namespace: str, name: str) -> Remedy:
    """The events of a pod tell why it does not run."""
    named = f"-n {shlex.quote(namespace)} {shlex.quote(name)}" if namespace and name else "-A"
    verb = "describe pod" if name else "get pods"
    return Remedy(Action.NONE, "See its events, which tell why it does not run.", run=(f"kubectl {verb} {named}",))
