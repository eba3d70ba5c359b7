"""Driver and CUDA: does the driver's management library answer?"""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from gpudoctor.chain import Link
from gpudoctor.checks.nvml_causes import explain, explain_device
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.device_files import NotGiven
from gpudoctor.facts.nvml import Nvml, normal_address
from gpudoctor.facts.nvml_device import NvmlDevice, NvmlError
from gpudoctor.facts.nvml_surroundings import NvmlSurroundings
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.facts.persistence import PersistenceDaemon
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge import nvml_errors
from gpudoctor.knowledge.nvml_remedies import FOR_CRASH, FOR_HANG, FOR_UNLISTED
from gpudoctor.patterns import pattern
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    AboutSubject,
    Breaks,
    Cited,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Subject,
    SubjectKind,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

_HUNG_TASK = pattern(r"INFO: task \S{0,64}nvidia\S{0,64} blocked for more than \d+ seconds|INFO: task gpudoctor-nvml:")
_XID = pattern(r"NVRM: Xid \(PCI:")

OF_THE_FILES = (nvml_errors.LIB_RM_VERSION_MISMATCH, nvml_errors.LIBRARY_NOT_FOUND)
"""Errors that come from what is installed: no task that hangs in the driver makes them."""

OF_ONE_GPU = (
    nvml_errors.INSUFFICIENT_POWER,
    nvml_errors.CORRUPTED_INFOROM,
    nvml_errors.GPU_IS_LOST,
    nvml_errors.RESET_REQUIRED,
)
"""Errors that say what is wrong with this GPU, whoever else hangs in the driver."""

KILLED_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
"""Signals that a library does not raise in its own process: somebody else ended the worker, for example the OOM killer."""


@check(
    "driver-cuda.nvml-answers",
    link=Link.DRIVER_CUDA,
    over=PciGpus,
    needs={Link.DEVICE_NODES},
    explained_by=("driver-cuda.no-stuck-task", "driver-cuda.nvml-library"),
    essential=True,
    title="NVML answers for every GPU",
)
def nvml_answers(
    gpus: Reading[PciGpus],
    nvml: Reading[Nvml],
    around: NvmlSurroundings,
    not_given: NotGiven,
) -> Verdicts:
    """nvidia-smi, monitoring and the device plugin all ask NVML; what it does not list, nobody can schedule.

    Asked in a child process that is given up at the deadline, or read from a recording. A call that never returns is a hang only
    when the child sleeps uninterruptibly with an unmoving kernel stack, or the kernel itself reports a hung task; otherwise it
    may be slow: without persistence, initialising eight GPUs takes up to 40 seconds. Error 18 (library and module differ) and
    12 (no library) are faults of the user space, 9 of the module; 999 on the host is the driver's, in a container mostly a
    device cgroup's. A GPU held by another driver is missing here as a consequence.
    """
    if isinstance(gpus, Unread) or not gpus.gpus:
        unseen = gpus if isinstance(gpus, Unread) else gpus.unlisted
        assert unseen is not None, "an empty, completely listed population is the engine's"
        if isinstance(nvml, Unread):
            yield unseen.about(NODE)
        else:
            context = _Context(PciGpus(gpus=(), unlisted=unseen), nvml, around)
            yield context.without_the_bus() or unseen.about(NODE)
        return
    if isinstance(nvml, Unread):
        for gpu in gpus:
            yield nvml.about(gpu)
        return
    context = _Context(gpus, nvml, around)
    for gpu in gpus:
        if gpu.address in not_given.addresses and nvml.device(gpu.address) is None:
            yield NotApplicable(gpu, "this container was not given it")
        else:
            yield context.judge(gpu)
    yield from context.not_on_the_bus()
    yield from context.about_the_whole()


class _Context:
    """One run's NVML answers with what else throws light on them."""

    def __init__(self, gpus: PciGpus, nvml: Nvml, around: NvmlSurroundings) -> None:
        self.gpus = gpus
        self.nvml = nvml
        self.around = around

    def without_the_bus(self) -> Verdict | None:
        """What is wrong with NVML itself, where the bus was not seen: what it lists cannot be compared with anything then."""
        if self.nvml.init is not None and self.nvml.init != nvml_errors.SUCCESS:
            return self._init_failed(NODE, self.nvml.init)
        if self.nvml.init == nvml_errors.SUCCESS and self.nvml.count == 0:
            summary = "the driver is loaded, and NVML lists no GPU"
            return Fail(NODE, summary, self.nvml.cite("count"), FOR_UNLISTED, Breaks.NODE, cause="nvml-unlisted")
        return None

    def judge(self, gpu: PciGpu) -> Verdict:
        """The verdict on one GPU: what was answered for it, else why there is no answer."""
        nvml = self.nvml
        device = nvml.device(gpu.address) or self._nameless(gpu)
        if nvml.init is not None and nvml.init != nvml_errors.SUCCESS:
            return self._init_failed(gpu, nvml.init)
        if device is not None and self._is_answered(device):
            return self._listed(gpu, device)
        if nvml.count_error is not None:
            return self._failed(gpu, nvml.count_error, nvml.cite("count"))
        if nvml.count is not None and gpu.withholds_registers:
            summary = "not active: asking NVML about it would wake it up"
            return Unknown(gpu, Why.WITHHELD, summary, gpu.cite("runtime_status"), would_need="the GPU in use")
        if nvml.failure is not None:
            return self._stopped(gpu, nvml.stopped_at or "the first call")
        return self._unlisted(gpu)

    def _answers_for(self, gpu: PciGpu) -> bool:
        device = self.nvml.device(gpu.address)
        return device is not None and self._is_answered(device)

    def _is_answered(self, device: NvmlDevice) -> bool:
        """NVML knows it, and the worker did not stop while asking about it."""
        if device.error is not None:
            return device.error.code != nvml_errors.NOT_FOUND
        return device.uuid is not None or self.nvml.failure is None

    def _nameless(self, gpu: PciGpu) -> NvmlDevice | None:
        """An error that came without an address belongs to the only GPU that is otherwise unanswered, if there is only one."""
        nameless = [device for device in self.nvml.devices if device.address is None and device.error is not None]
        unanswered = [other.address for other in self.gpus if self.nvml.device(other.address) is None]
        return nameless[0] if len(nameless) == 1 and unanswered == [gpu.address] else None

    def _listed(self, gpu: PciGpu, device: NvmlDevice) -> Verdict:
        if device.error is not None:
            return self._failed(gpu, device.error, device.cite("error"))
        if self.nvml.init is None or device.uuid is None:
            return Unknown(
                gpu, Why.NOT_ANSWERED, "NVML's answer is incomplete: it has no UUID or no result of nvmlInit"
            )
        index = "answers" if device.index is None else f"NVML index {device.index}"
        return Pass(gpu, index, device.cite("uuid"))

    def _unlisted(self, gpu: PciGpu) -> Verdict:
        """Not among the answers: not asked about, or really not there."""
        nvml = self.nvml
        if (
            nvml.init is None
            or nvml.count is None
            or len(self._answered) < nvml.count
            or isinstance(gpu.driver, Unread)
        ):
            return Unknown(gpu, Why.NOT_ANSWERED, f"{nvml.via} was not answered, or not asked, about this GPU")
        if any(device.address is None and device.error is None for device in nvml.devices):
            # As nvidia-smi -L does: any of these may be this one.
            return Unknown(
                gpu, Why.NOT_ANSWERED, f"{nvml.via} does not say where on the bus the GPUs are that it lists"
            )
        evidence = nvml.cite("count") + gpu.cite("driver") + self.around.xids(gpu.address)
        summary = f"NVML lists {nvml.count} GPUs, not this one"
        return Fail(gpu, summary, evidence, FOR_UNLISTED, Breaks.SUBJECT, cause="nvml-unlisted")

    @property
    def _answered(self) -> list[NvmlDevice]:
        """The devices NVML knows."""
        devices = self.nvml.devices
        return [device for device in devices if not (device.error and device.error.code == nvml_errors.NOT_FOUND)]

    def _init_failed(self, about: AboutSubject, code: int) -> Verdict:
        explained = explain(code, self.around, self.nvml.read_from["init"].shows)
        evidence = self.nvml.cite("init") + explained.evidence
        return self._refused(
            about, code, f"NVML does not start ({code}): {explained.summary}", evidence, explained.remedies
        )

    def _failed(self, gpu: PciGpu, error: NvmlError, evidence: Cited) -> Verdict:
        xids = self.around.xids(gpu.address)
        fallen = any(": 79," in line.shows or "fallen off the bus" in line.shows for line in xids)
        code = nvml_errors.GPU_IS_LOST if fallen and error.code == nvml_errors.UNKNOWN else error.code
        device = self.nvml.device(gpu.address)
        asked = device.recovery if device is not None else ""
        explained = explain_device(code, gpu.address, self.around, asked)
        if code == nvml_errors.CORRUPTED_INFOROM and device is not None and device.uuid is not None:
            # It was asked about its InfoROM, and does all else.
            summary = f"it answers, but {explained.summary} ({code})"
            return Warn(gpu, summary, evidence + xids, explained.remedies, cause=f"nvml-{code}")
        return self._refused(
            gpu,
            code,
            f"NVML does not answer ({error.code}): {explained.summary}",
            evidence + xids + explained.evidence,
            explained.remedies,
        )

    def _refused(
        self, about: AboutSubject, code: int, summary: str, evidence: Cited, remedies: tuple[Remedy, ...]
    ) -> Verdict:
        if code == nvml_errors.NO_PERMISSION and self.around.view.uid != 0:
            return Unknown(about, Why.NO_PERMISSION, summary, evidence, would_need="root")
        libraries = self.around.libraries
        of_the_files = code in OF_THE_FILES and (isinstance(libraries, Unread) or bool(libraries.libraries))
        own = of_the_files or (code in OF_ONE_GPU and about is not NODE and self.nvml.init == nvml_errors.SUCCESS)
        return Fail(about, summary, evidence, remedies, Breaks.SUBJECT, f"nvml-{code}", own_fault=own)

    def _stopped(self, gpu: PciGpu, at: str) -> Verdict:
        """The worker crashed, hung or ran out of time before it came to this GPU, or at it."""
        if not self._stopped_at(gpu):
            return Unknown(gpu, Why.TIMED_OUT, f"not reached: NVML stopped at {at}", self.nvml.cite("stopped_at"))
        return self._ended(gpu, at, Breaks.SUBJECT)

    def _ended(self, about: AboutSubject, at: str, breaks: Breaks) -> Verdict:
        if self.nvml.failure != "crashed":
            return self._timed_out(about, at, breaks)
        evidence = self.nvml.cite("stopped_at")
        if self.nvml.ended_by in KILLED_FROM_OUTSIDE:
            summary = f"the worker was ended from outside by {self.nvml.ended_by} in {at}, perhaps for lack of memory"
            return Unknown(about, Why.NOT_ANSWERED, summary, evidence)
        summary = f"NVML ended its process with {self.nvml.ended_by} in {at}"
        return Fail(about, summary, evidence, FOR_CRASH, breaks, cause="nvml-crashed")

    def _stopped_at(self, gpu: PciGpu) -> bool:
        """Whether the interrupted call was about this GPU: about all of them before counting, else about one.

        A call by index says which one only if the GPUs answered so far are the first ones in the order of addresses.
        """
        call = re.search(r"\(([0-9A-Fa-f:.]+)\)", self.nvml.stopped_at or "")
        if self.nvml.count is None or call is None:
            return True
        index = decimal(call[1])
        if index is None:
            return normal_address(call[1]) == gpu.address
        answered = [
            device.address for device in self.nvml.devices if device.uuid is not None or device.error is not None
        ]
        held = [other.address for other in self.gpus if other.driver == "nvidia"]
        told = self.gpus.unlisted is None and not any(isinstance(other.driver, Unread) for other in self.gpus)
        return told and held[: index + 1] == [*answered, gpu.address]

    def _timed_out(self, about: AboutSubject, at: str, breaks: Breaks) -> Verdict:
        worker = self.nvml.worker
        evidence = self.nvml.cite("stopped_at", "worker")
        # The kernel's word that a task hangs counts for that task only: another's may be long over.
        pid = str(worker.pid) if worker is not None else r"\d+"
        hung_tasks = self.around.lines(
            re.compile(rf"INFO: task \S{{1,64}}:{pid} blocked for more than"), "blocked for more than"
        )
        if worker is None:
            hung_tasks = [line for line in hung_tasks if _HUNG_TASK.search(line.shows)]
        if (worker is not None and worker.stands_still) or hung_tasks:
            who = f"PID {worker.pid} in state {worker.state}" if worker else "a task"
            left = ", left behind by an earlier run" if worker and worker.earlier else ""
            summary = f"NVML hangs in {at}: {who} sleeps uninterruptibly in the driver{left}"
            evidence += tuple(hung_tasks[-2:]) + tuple(self.around.lines(_XID, "NVRM: Xid")[-1:])
            evidence += self.around.who_hangs
            return Fail(about, summary, evidence, FOR_HANG, breaks, cause="nvml-hangs")
        summary = f"NVML gave no answer in {at} before the deadline, but does not stand still: it may be slow"
        why = Why.SLOW_INIT if worker is not None else Why.TIMED_OUT
        daemon = self.around.daemon
        if isinstance(daemon, PersistenceDaemon) and not daemon.enabled:
            summary += "; without nvidia-persistenced every first client initialises the GPUs anew"
            evidence += daemon.cite("enabled")
        return Unknown(about, why, summary, evidence, would_need="a longer --deadline")

    def not_on_the_bus(self) -> Iterator[Verdict]:
        """Devices that NVML answers for although sysfs does not show them: one of the two views is partial."""
        listed = {gpu.address for gpu in self.gpus}
        for device in self.nvml.devices:
            if device.address is not None and device.address not in listed:
                gpu = Subject(SubjectKind.GPU, device.address)
                summary = "NVML lists this GPU, the PCI bus in sysfs does not: one of the two is seen in part only"
                yield Unknown(gpu, Why.UNREADABLE, summary, device.cite("uuid"), would_need="a view of the whole node")

    def about_the_whole(self) -> Iterator[Verdict]:
        """What the answers for single GPUs do not tell: a worker that did not end, a count that does not fit."""
        nvml = self.nvml
        if nvml.failure is not None and all(self._answers_for(gpu) for gpu in self.gpus):
            ended = self._ended(NODE, nvml.stopped_at or "its exit", Breaks.NOTHING)
            # That it was slow in a detail, driver-cuda.queries-answered tells: who the GPUs are, all of them have answered.
            if isinstance(ended, Fail):
                stopped = [gpu.subject for gpu in self.gpus if nvml.stopped_in(gpu.address)]
                yield replace(ended, of=tuple(stopped))
        asleep = any(gpu.sleeps for gpu in self.gpus)
        if nvml.failure is None and nvml.count is not None and not asleep and nvml.count != len(self._answered):
            summary = f"NVML counts {nvml.count} GPUs and answers for {len(self._answered)}"
            yield Unknown(NODE, Why.UNREADABLE, summary, nvml.cite("count"))
