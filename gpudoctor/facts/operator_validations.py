"""How far the GPU Operator has validated this node: the row of files that its validator writes, each stage waiting for the one before.

Names, contents and order as in NVIDIA/gpu-operator, cmd/nvidia-validator/main.go, and assets/state-operator-validation (init containers
driver-, toolkit-, cuda- and plugin-validation, the last left out where the device plugin is not installed). Other operands wait for
driver-ready and toolkit-ready alone.
"""

from collections.abc import Mapping

from gpudoctor.facts.absence import NO_KUBELET
from gpudoctor.facts.boot import STAT, booted_at, in_words
from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.plugin_log import PODS
from gpudoctor.facts.raw import Absent, Entry, Listing, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Evidence, Unread, Why

FOLDER = "/run/nvidia/validations"
DRIVER, TOOLKIT, CUDA, PLUGIN = STAGES = ("driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready")
CONTAINER_READY = ".driver-ctr-ready"
"""What the driver container writes itself once its driver is loaded, and removes when it ends (gpu-driver-container)."""
WORKLOAD_TYPE = "workload-type"
_OF_MACHINES = {"vfio-pci-ready", "vgpu-manager-ready", "host-vgpu-manager-ready", "vgpu-devices-ready"}
_NO_KUBELET = Evidence("processes (/proc/*/stat)", NO_KUBELET)
_CLAIMS = r"dra-validator|dra-driver-kubelet-plugin"
_OPERATORS = pattern(
    r"[^_]+_nvidia-(?:[^_]{0,64}validator|container-toolkit-daemonset|(?:gpu-)?driver-|mig-manager|vfio-manager|vgpu-manager|"
    rf"{_CLAIMS}).*"
)
"""Pods that only the operator has, by the folders of their logs (its assets, state-*); of every pod on the node there is one."""
_BY_CLAIMS, _BY_PLUGIN = pattern(rf"[^_]+_nvidia-(?:{_CLAIMS})-.*"), pattern(r"[^_]+_nvidia-operator-validator-.*")
"""Pods of its two modes (its manifests, state-dra-*, and assets/state-operator-validation)."""
UPTIME = "/proc/uptime"
STARTING = 600.0
"""So long, in seconds, a stage may take: the validator tries for five minutes to start a pod."""
BUILDING = 1260.0
"""So long the operator itself gives the driver container, which may build its driver: a probe after 60 s, then 120 tries of 10 s
(assets/state-driver/0500_daemonset.yaml, startupProbe)."""
FUTURE = 60.0
"""What was written so much later than now, in seconds, was written before the clock was put back."""
CONTAINERS = "container"
"""The workload type of a node without virtual machines, and of one of which none is told."""


class OperatorValidations(Fact, frozen=True):
    """The row; without `present` the operator has never come to this node since its boot, or has left it.

    `names` are all files there, `settings` the variables that driver-ready tells, `workloads` what the node is for. With `by_claims` the
    operator has its driver for dynamic resource allocation here and no plugin: then nothing but driver-ready is written. `age` is how long
    ago the last stage was written, in seconds, or the folder was made or emptied where none was, the node was booted where that is not
    told; None where it is not known. `unseen` is why it may have come further, or may have had less time, than it seems.
    """

    present: bool
    names: tuple[str, ...] = ()
    settings: Mapping[str, str] = {}
    workloads: str = CONTAINERS
    by_claims: bool = False
    age: float | None = None
    unseen: Unread | None = None

    @property
    def missing(self) -> str:
        """The first stage that was not reached, "" where all were."""
        return next((stage for stage in (DRIVER, *(() if self.by_claims else STAGES)) if stage not in self.names), "")

    @property
    def young(self) -> bool:
        """Whether the stage that is missing may still be reached in its time."""
        return self.age is not None and self.age < (BUILDING if self.missing == DRIVER else STARTING)

    @property
    def waits_for_runtime(self) -> Reading[bool]:
        """Whether a container of the runtime nvidia should long have been started here: that is the toolkit's stage."""
        stages = (TOOLKIT,) if self.unseen is None else (DRIVER, TOOLKIT)
        late = self.missing in stages and not self.young
        if not self.present or self.workloads != CONTAINERS or not late:
            return False
        return True if self.unseen is None else self.unseen

    @property
    def driver_root(self) -> str:
        """Where the driver lies, "" where that is not told; `/` for the host's own."""
        return self.settings.get("NVIDIA_DRIVER_ROOT", "")

    @classmethod
    def gather(cls, desk: Desk) -> "OperatorValidations | Unread":
        """One listing on a node without the operator."""
        listing = desk.raw.listing(FOLDER)
        if isinstance(listing, Unread):
            settings = desk.get(KubeletSettings)
            alone = not isinstance(settings, Unread) and settings.kubelet is None
            return cls(present=False, read_from={"row": _NO_KUBELET}) if alone else listing
        if isinstance(listing, Absent):
            return cls(present=False, read_from={"row": listing.evidence})
        there = [stage for stage in STAGES if stage in listing.names]
        logs = desk.raw.listing(PODS) if len(there) < len(STAGES) else None
        pods = tuple(logs.names) if isinstance(logs, Listing) and logs.complete else ()
        # Its validator empties the row when it ends (preStop), and the folder stays until the next boot.
        if pods and not any(_OPERATORS.fullmatch(pod) for pod in pods):
            said = f"{', '.join(listing.names) or 'is empty'}: left behind, {PODS} has no pod of the operator"
            return cls(present=False, read_from={"row": Evidence(listing.where, said)})
        age, since = _age(desk.raw, there)
        workloads = _workloads(desk.raw, listing)
        unseen = None if listing.complete else _unseen(desk.raw, there)
        unseen = unseen or (_timeless(desk.raw, there) if age is None else None)
        if isinstance(logs, Unread) and logs.why is not Why.NOT_RECORDED:
            # Whether the operator has left is not known; of a recording without the folder the row alone counts.
            unseen = unseen or logs
        return cls(
            present=True,
            names=listing.names,
            settings=_variables(desk.raw) if DRIVER in there else {},
            workloads=CONTAINERS if isinstance(workloads, Unread) else workloads,
            by_claims=any(map(_BY_CLAIMS.fullmatch, pods)) and not any(map(_BY_PLUGIN.fullmatch, pods)),
            age=age,
            unseen=workloads if isinstance(workloads, Unread) else unseen,
            read_from={"row": Evidence(listing.where, _in_words(listing, since))},
        )


def _unseen(raw: Raw, there: list[str]) -> Unread | None:
    """Of a listing that is not whole, whether the next stage was looked for."""
    stage = next((stage for stage in STAGES if stage not in there), None)
    entry = raw.entry(f"{FOLDER}/{stage}") if stage is not None else None
    return entry if isinstance(entry, Unread) else None


def _timeless(raw: Raw, there: list[str]) -> Unread | None:
    """What hides when the last stage was written; of a recording that does not hold it the row alone counts."""
    looked = (raw.entry(f"{FOLDER}/{there[-1]}" if there else FOLDER), raw.read(UPTIME), raw.read(STAT))
    return next((one for one in looked if isinstance(one, Unread) and one.why is not Why.NOT_RECORDED), None)


def _in_words(listing: Listing, since: str) -> str:
    names = [name for name in listing.names if not name.startswith(".")]
    return f"{', '.join(names) or 'is empty'}{since}{'' if listing.complete else ' (there may be more)'}"


def _age(raw: Raw, there: list[str]) -> tuple[float | None, str]:
    """Seconds since the last stage was written, or since the boot: the folder is in memory."""
    up, booted = _uptime(raw), booted_at(raw)
    # The validator makes the folder, and removes the files of stages when it starts anew and when it ends.
    entry = raw.entry(f"{FOLDER}/{there[-1]}" if there else FOLDER)
    written = entry.mtime if isinstance(entry, Entry) else None
    if written is None:
        return (None if there else up), ""
    now = booted + up if booted is not None and up is not None else None
    last = f"{there[-1]} written" if there else "changed"
    age = None if now is None or written > now + FUTURE else now - written
    return age, f"; {last} {in_words(written)}"


def _uptime(raw: Raw) -> float | None:
    """Seconds since the boot (proc_uptime(5))."""
    file = raw.read(UPTIME)
    whole = file.text.partition(".")[0] if isinstance(file, TextFile) else ""
    seconds = decimal(whole)
    return None if seconds is None else float(seconds)


def _variables(raw: Raw) -> dict[str, str]:
    file = raw.read(f"{FOLDER}/{DRIVER}")
    lines = file.text.splitlines() if isinstance(file, TextFile) else []
    return {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}


def _workloads(raw: Raw, listing: Listing) -> str | Unread:
    """As workload-type tells; the stages of virtual machines tell it too."""
    file = raw.read(f"{FOLDER}/{WORKLOAD_TYPE}") if WORKLOAD_TYPE in listing.names else None
    if isinstance(file, Unread):
        return file
    told = file.text.strip() if isinstance(file, TextFile) else ""
    return told or (CONTAINERS if not _OF_MACHINES & {*listing.names} else "virtual machines")
