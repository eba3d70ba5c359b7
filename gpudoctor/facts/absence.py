"""What a node lacks altogether, told by one cheap look: then checks about it are not even loaded (docs/designs/009)."""

from collections.abc import Callable

from gpudoctor.facts.desk import Desk
from gpudoctor.verdicts import NODE, NotApplicable, Unread, Verdict

NO_KUBELET = "no kubelet runs on this node"
NO_MIG = "no GPU is in MIG mode"
NO_MPS = "nothing of MPS runs or is set up here"
NO_ADVISORIES = "advisories are not asked for: set `advisories = true` in /etc/gpudoctor/config.toml"


def _kubelet(desk: Desk) -> Verdict | None:
    """Everything about a kubelet hangs on whether one runs: where that is not known, nothing is."""
    from gpudoctor.facts.kubelet import KubeletSettings

    settings = desk.get(KubeletSettings)
    if isinstance(settings, Unread):
        return settings.about(NODE)
    if settings.kubelet is not None:
        return None
    return NotApplicable(NODE, NO_KUBELET, settings.cite(*settings.read_from))


def _operator(desk: Desk) -> Verdict | None:
    """The operator's files outlive the kubelet."""
    from gpudoctor.facts.operator_validations import OperatorValidations

    row = desk.get(OperatorValidations)
    return None if not isinstance(row, Unread) and row.present else _kubelet(desk)


def _api(desk: Desk) -> Verdict | None:
    from gpudoctor.facts.kubernetes_api import NOT_ASKED, KubernetesApi

    api = desk.get(KubernetesApi)
    return NotApplicable(NODE, NOT_ASKED) if not isinstance(api, Unread) and not api.asked else None


def _mig(desk: Desk) -> Verdict | None:
    from gpudoctor.facts.mig import Mig

    mig = desk.get(Mig)
    if isinstance(mig, Unread):
        return mig.about(NODE)
    return None if mig.gpus else NotApplicable(NODE, NO_MIG)


def _mps(desk: Desk) -> Verdict | None:
    """A device plugin may want MPS of which nothing runs."""
    from gpudoctor.facts.mps import Mps

    mps = desk.get(Mps)
    if isinstance(mps, Unread):
        return mps.about(NODE)
    if mps.concerns or _kubelet(desk) is None:
        return None
    return NotApplicable(NODE, NO_MPS) if mps.unlisted is None else mps.unlisted.about(NODE)


def _slurmd(desk: Desk) -> Verdict | None:
    from gpudoctor.facts.slurm import Slurm

    slurm = desk.get(Slurm)
    if isinstance(slurm, Unread):
        return slurm.about(NODE)
    return NotApplicable(NODE, slurm.absent, tuple(slurm.read_from.values())) if slurm.setup is None else None


def _advisories(desk: Desk) -> Verdict | None:
    return None if desk.config.advisories else NotApplicable(NODE, NO_ADVISORIES)


ABSENT: dict[str, Callable[[Desk], Verdict | None]] = {
    "kubelet": _kubelet,
    "kubelet_topology": _kubelet,
    "device_plugin": _kubelet,
    "plugin_devices": _kubelet,
    "pods": _kubelet,
    "gpu_operator": _operator,
    "kubernetes_api": _api,
    "kubernetes_devices": _api,
    "mig_monitor": _mig,
    "mps": _mps,
    "mps_clients": _mps,
    "time_slicing": _kubelet,
    "slurm": _slurmd,
    "slurm_jobs": _slurmd,
    "advisories": _advisories,
}
"""By the module of checks: what all of them say of a node to which they do not apply, or of which nothing is known; None where they may."""
