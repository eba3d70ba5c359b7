"""What the GPU Operator's pods on this node say of themselves: the logs of their last runs, as the kubelet keeps them.

/var/log/pods/NAMESPACE_NAME_UID/CONTAINER/N.log, N counting a container's starts (kubernetes pkg/kubelet/kuberuntime/helpers.go);
each line begins with a moment, the stream, and F or P (kubernetes design-proposals, kubelet-cri-logging). Of a log only lines are
read that tell how a run went. A container that starts again and again has the reason in its last log; one that came up at a later
start has none there.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.gpu_holders import GpuHolder, GpuHolders
from gpudoctor.facts.kubelet import KubeletSettings
from gpudoctor.facts.operator_validations import CUDA, DRIVER, PLUGIN, TOOLKIT, OperatorValidations
from gpudoctor.facts.processes import Processes
from gpudoctor.facts.raw import JOURNALS, Absent, Entry, Listing, Raw, TextFile, decimal
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Subject, SubjectKind, Unread, Why

LOGS = "/var/log/pods"
DRIVER_CONTAINER, EXPORTER, ENGINE, VALIDATOR = "driver container", "dcgm-exporter", "host engine", "validator"

_WANTED: tuple[tuple[str, "re.Pattern[str]", "re.Pattern[str]"], ...] = (
    # What it is, its pod by name, its container by name: the operator's DaemonSets (assets/state-*), and dcgm-exporter's own chart.
    (DRIVER_CONTAINER, pattern(r"nvidia-(?:gpu-)?driver-(?:daemonset-)?.+"), pattern(r"nvidia-driver-ctr")),
    (EXPORTER, pattern(r"(?:.+-)?dcgm-exporter-.+"), pattern(r"(?:nvidia-dcgm-)?(?:dcgm-)?exporter(?:-dra)?")),
    (ENGINE, pattern(r"nvidia-dcgm-(?:dra-)?[0-9a-z]{5}"), pattern(r"nvidia-dcgm-ctr")),
)
_VALIDATORS = {
    DRIVER: "driver-validation",
    TOOLKIT: "toolkit-validation",
    CUDA: "cuda-validation",
    PLUGIN: "plugin-validation",
}
_VALIDATOR_POD = pattern(r"nvidia-operator-validator-.+")

# gpu-driver-container, ubuntu22.04/nvidia-driver and its siblings; dcgm-exporter internal/pkg/dcgmprovider; DCGM hostengine/src;
# gpu-operator cmd/nvidia-validator/main.go. What repeats every five seconds is left out.
KEEP = (
    r"NVIDIA Software Installer|Starting installation of NVIDIA driver|[Uu]nload(?:ing)? NVIDIA driver|Could not|F nvidia\S* +\d+ +-?\d+|"
    r"FATAL|modprobe: ERROR|insmod: ERROR|now waiting for signal|ERROR: |"
    r"hostengine|initializ\w+ DCGM|DCGM successfully|Encountered a failure|DCGM Server|host engine version|"
    r"cur+ently in \w+ phase|not discovered|level=(?:error|fatal)"
)
_PREFIX = pattern(r"\A(\S+) (?:stdout|stderr) [FP] ?")
_PULL = pattern(r"(?=.*nvidia-(?:cuda|device-plugin|operator)-validator).*?(ErrImagePull|ImagePullBackOff)")
_POD = pattern(r'pod="([^"]+)"')
_IMAGE = pattern(r"pulling image \\*\"([^\\\"]+)")
PORT = "15B3"
"""5555 as /proc/net/tcp spells it: where a host engine listens (DCGM, DCGM_HE_PORT_NUMBER)."""
HOST_ENGINE = "nv-hostengine"
TCP = "/proc/net/tcp"


class OperandLog(Struct, frozen=True):
    """The last run of an operand's container: its number, the lines kept without their prefixes, and when the last of them was
    written.
    """

    what: str
    namespace: str
    pod: str
    container: str
    path: str
    run: int
    lines: tuple[str, ...] | Unread
    last: str = ""

    @property
    def subject(self) -> Subject:
        """The pod, NAMESPACE/NAME."""
        return Subject(SubjectKind.POD, f"{self.namespace}/{self.pod}")

    @property
    def said(self) -> tuple[str, ...]:
        """The lines, none where the log could not be read."""
        return () if isinstance(self.lines, Unread) else self.lines

    def find(self, form: "re.Pattern[str]") -> str:
        """The last line in which a form is found, "" where there is none."""
        return next((line for line in reversed(self.said) if form.search(line)), "")

    def cite(self, *forms: "re.Pattern[str]") -> Cited:
        """For each form the last line in which it is found."""
        found = (self.find(form) for form in forms)
        return tuple(Evidence(self.path, line[:300]) for line in found if line)


class Operands(Fact, frozen=True):
    """The logs of those on this node. `looked` is whether there could be any; `unlisted` says why there may be more.

    `pulls` is what the kubelet says of a validator's pod whose image it does not get, looked for only where a stage is missing.
    """

    looked: bool
    logs: tuple[OperandLog, ...] = ()
    pulls: Cited = ()
    unlisted: Unread | None = None

    def of(self, what: str) -> tuple[OperandLog, ...]:
        """Those of one kind, the latest first."""
        return tuple(sorted((one for one in self.logs if one.what == what), key=_when, reverse=True))

    @classmethod
    def gather(cls, desk: Desk) -> "Operands | Unread":
        """Nothing is looked at on a node without kubelet and operator. Of the validator only the stage that is missing is read."""
        row = desk.get(OperatorValidations)
        settings = desk.get(KubeletSettings)
        operator = not isinstance(row, Unread) and row.present
        if not operator and isinstance(settings, Unread):
            return settings
        if not operator and not isinstance(settings, Unread) and settings.kubelet is None:
            return cls(looked=False)
        stage = row.missing if operator and not isinstance(row, Unread) else ""
        pulls = _pulls(desk.raw, settings) if stage in (CUDA, PLUGIN) else ()
        listing = desk.raw.listing(LOGS)
        if not isinstance(listing, Listing):
            return cls(looked=True, pulls=pulls, unlisted=listing if isinstance(listing, Unread) else None)
        places = list(_places(desk.raw, listing, _VALIDATORS.get(stage, "")))
        files = desk.raw.read_blocking(tuple(place.path for place in places), keep=KEEP) if places else {}
        logs = (_log(place, files[place.path]) for place in places)
        unlisted = None if listing.complete else Unread(Why.NOT_RECORDED, LOGS, "only some of it was recorded")
        return cls(looked=True, logs=tuple(log for log in logs if log is not None), pulls=pulls, unlisted=unlisted)


def _when(log: OperandLog) -> str:
    return log.last


def _pulls(raw: Raw, settings: Reading[KubeletSettings]) -> Cited:
    """The last of what the kubelet says (kubernetes pkg/kubelet/images/types.go: ErrImagePull, ImagePullBackOff)."""
    unit = "kubelet.service" if isinstance(settings, Unread) else settings.unit
    journal = raw.log(f"{JOURNALS}{unit}.log")
    lines = [] if isinstance(journal, Unread) else [line for line in journal.text.splitlines() if _PULL.search(line)]
    if not lines or isinstance(journal, Unread):
        return ()
    pod, why, image = _POD.search(lines[-1]), _PULL.search(lines[-1]), _IMAGE.search(lines[-1])
    of = f" of {image[1]}" if image else ""
    return (Evidence(journal.where, f"{pod[1] if pod else 'a validator'}: {why[1] if why else ''}{of}"),)


class _Place(Struct, frozen=True):
    what: str
    namespace: str
    pod: str
    container: str
    path: str
    run: int


def _places(raw: Raw, listing: Listing, validation: str) -> Iterator[_Place]:
    for folder in listing.names:
        namespace, _, rest = folder.partition("_")
        pod, _, uid = rest.rpartition("_")
        if not (namespace and pod and uid):
            continue
        for what, container in _containers(raw, f"{LOGS}/{folder}", pod, validation):
            place = f"{LOGS}/{folder}/{container}"
            run = _last_run(raw.listing(place))
            if run is not None:
                yield _Place(what, namespace, pod, container, f"{place}/{run}.log", run)


def _containers(raw: Raw, folder: str, pod: str, validation: str) -> Iterator[tuple[str, str]]:
    """The containers of a pod that are asked, each with what it is."""
    kinds = [(what, container) for what, name, container in _WANTED if name.fullmatch(pod)]
    if validation and _VALIDATOR_POD.fullmatch(pod):
        yield VALIDATOR, validation
    if not kinds:
        return
    listing = raw.listing(folder)
    for name in listing.names if isinstance(listing, Listing) else ():
        what = next((what for what, container in kinds if container.fullmatch(name)), None)
        if what is not None:
            yield what, name


def _last_run(listing: Listing | Absent | Unread) -> int | None:
    """What was rotated away has a date behind its name (kubernetes pkg/kubelet/logs/container_log_manager.go)."""
    names = listing.names if isinstance(listing, Listing) else ()
    runs = [decimal(name.removesuffix(".log")) for name in names if name.endswith(".log")]
    return max((run for run in runs if run is not None), default=None)


def _log(place: _Place, file: TextFile | Absent | Unread) -> OperandLog | None:
    """None of a log that was removed meanwhile."""
    if isinstance(file, Absent):
        return None
    lines: tuple[str, ...] | Unread = file if isinstance(file, Unread) else tuple(file.text.splitlines())
    last = ""
    if not isinstance(lines, Unread):
        moment = _PREFIX.match(lines[-1]) if lines else None
        last = moment[1] if moment else ""
        lines = tuple(_PREFIX.sub("", line) for line in lines)
    return OperandLog(place.what, place.namespace, place.pod, place.container, place.path, place.run, lines, last)


# What is asked only where a log says that something is wrong ---------------------------------------------------------


IN_USE = pattern(r"Could not unload NVIDIA driver kernel modules, driver is in use")
_LOADED = pattern(r"now waiting for signal")
INSTALLING = pattern(r"Starting installation of NVIDIA driver")
FAILURES = pattern(
    r"Could not (?:unload|resolve|find|locate|open|load)|FATAL|modprobe: ERROR|insmod: ERROR|^ERROR: |Failed to (?:load|install|build)"
)


class DriverContainer(Fact, frozen=True):
    """The driver container as its last log tells; `log` is None where there is none here.

    `failure` is the line that says why the last run did not come up, "" where it did or says nothing; `holders` are who keeps the
    loaded driver in use, looked for only where that is the reason. `root` is whether something lies where the driver should be,
    None unless told.
    """

    looked: bool
    unlisted: Unread | None = None
    log: OperandLog | None = None
    failure: str = ""
    holders: Reading[GpuHolders] | None = None
    root: bool | None = None

    @property
    def in_use(self) -> bool:
        """Whether it could not replace the driver that is loaded."""
        return bool(IN_USE.search(self.failure))

    def holding(self) -> tuple[GpuHolder, ...]:
        """Who keeps the driver in use."""
        return () if self.holders is None or isinstance(self.holders, Unread) else self.holders.holders

    @classmethod
    def gather(cls, desk: Desk) -> "DriverContainer | Unread":
        """Nothing but the logs, where these tell of nothing wrong."""
        operands = desk.get(Operands)
        if isinstance(operands, Unread):
            return operands
        row = desk.get(OperatorValidations)
        logs = operands.of(DRIVER_CONTAINER)
        log = logs[0] if logs else None
        failure = _failure(log) if log is not None else ""
        return cls(
            looked=operands.looked,
            unlisted=operands.unlisted,
            log=log,
            failure=failure,
            holders=desk.get(GpuHolders) if IN_USE.search(failure) else None,
            root=None if isinstance(row, Unread) else _root(desk.raw, row),
        )


def _failure(log: OperandLog) -> str:
    """What went wrong in the last run, nothing where it came up: what is said behind that belongs to its end."""
    if log.find(_LOADED):
        return ""
    # The first is the reason, the others follow from it.
    return next((line for line in log.said if FAILURES.search(line)), "")


def _root(raw: Raw, row: OperatorValidations) -> bool | None:
    """Whether a driver lies where driver-ready says; None for the host's own, and where nothing is told."""
    root = row.driver_root.rstrip("/")
    if not root:
        return None
    seen = [raw.entry(f"{root}{folder}/nvidia-smi", follow=True) for folder in _DRIVERS_PROGRAMS]
    if any(isinstance(entry, Entry) for entry in seen):
        return True
    return False if all(isinstance(entry, Absent) for entry in seen) else None


_DRIVERS_PROGRAMS = ("/usr/bin", "", "/usr/sbin", "/bin", "/sbin")
"""Where the validator looks below a driver's root (gpu-operator internal/driver/root.go, GetNvidiaSMIPath)."""


class DcgmExporter(Fact, frozen=True):
    """The exporters here by their last logs; `engine_log` is that of the operator's own host engine.

    `port` is what shows that somebody of the host listens on 5555, and `engines` are the host engines that run outside of
    containers, both looked for only where an exporter has no engine.
    """

    looked: bool
    logs: tuple[OperandLog, ...] = ()
    unlisted: Unread | None = None
    engine_log: OperandLog | None = None
    port: Cited = ()
    engines: tuple[int, ...] = ()
    in_containers: tuple[int, ...] = ()

    @classmethod
    def gather(cls, desk: Desk) -> "DcgmExporter | Unread":
        """Processes and ports are looked at only where an exporter has no engine."""
        operands = desk.get(Operands)
        if isinstance(operands, Unread):
            return operands
        logs = operands.of(EXPORTER)
        engines = operands.of(ENGINE)
        if not any(no_engine(log) for log in logs):
            return cls(looked=operands.looked, logs=logs, unlisted=operands.unlisted)
        host, contained = _engines(desk)
        return cls(
            looked=operands.looked,
            logs=logs,
            unlisted=operands.unlisted,
            engine_log=engines[0] if engines else None,
            port=tuple(_listeners(desk.raw)),
            engines=host,
            in_containers=contained,
        )


NO_ENGINE = pattern(
    r"Failed to (?:initialize DCGM|connect to remote hostengine)|Error connecting to nv-hostengine|Encountered a failure"
)
CONNECTED = pattern(r"DCGM successfully initialized")
REMOTE = pattern(r"remote hostengine at (\S+?)\"?(?:\s|$)")


def no_engine(log: OperandLog) -> bool:
    """Whether its last word is that it has no host engine."""
    for line in reversed(log.said):
        if CONNECTED.search(line):
            return False
        if NO_ENGINE.search(line):
            return True
    return False


def _engines(desk: Desk) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Host engines by process id: the host's own, and those in containers."""
    from gpudoctor.facts.cgroup_paths import GroupKind

    processes = desk.get(Processes)
    if isinstance(processes, Unread):
        return (), ()
    host: list[int] = []
    contained: list[int] = []
    for process in processes.processes:
        if process.comm == HOST_ENGINE and not process.ended:
            kind = processes.identities[process.cgroup].kind if process.cgroup >= 0 else None
            (contained if kind is GroupKind.CONTAINER else host).append(process.pid)
    return tuple(host), tuple(contained)


def _listeners(raw: Raw) -> Iterable[Evidence]:
    """Sockets that listen on the port: state 0A (Documentation/networking/proc_net_tcp.rst, include/net/tcp_states.h)."""
    for path, file in raw.read_blocking((TCP, f"{TCP}6"), keep=f":{PORT} ").items():
        for line in file.text.splitlines() if isinstance(file, TextFile) else ():
            words = line.split()
            if len(words) > 3 and words[1].endswith(f":{PORT}") and words[3] == "0A":
                yield Evidence(path, f"{words[1]}: somebody listens on port 5555")
