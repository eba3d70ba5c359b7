"""The driver's branch and release against the tables: which GPUs it drives, how long it gets fixes, what is known against it."""

from collections.abc import Iterator

from msgspec import Struct

from gpudoctor.chain import Link
from gpudoctor.facts.branch_refusals import BranchRefusals
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import VERSION, DriverGpu, DriverGpus, NvidiaModule
from gpudoctor.facts.driver_release import DriverRelease
from gpudoctor.facts.driver_standing import Against, DriverStanding
from gpudoctor.facts.host import Host
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.knowledge.branch_choice import Choice, architecture_of, capability_of, choose
from gpudoctor.knowledge.branch_remedies import INTERRUPTS, WITHOUT_IT, change_branch, separate
from gpudoctor.knowledge.compute_capabilities import AS_OF, Capability, drives
from gpudoctor.knowledge.driver_branches import AS_OF as BRANCHES_AS_OF
from gpudoctor.knowledge.driver_branches import (
    BRANCHES,
    JETSON,
    NEWEST,
    Branch,
    Life,
    State,
    branch_of,
    life,
    newer_than_known,
    offered,
    release_of,
)
from gpudoctor.knowledge.gpu_models import by_id, cc_of_name
from gpudoctor.knowledge.module_remedies import BLACKLISTS, confirmed_by
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Action,
    Breaks,
    Cited,
    Fail,
    NotApplicable,
    Pass,
    Remedy,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

DRIVES = "kernel-module.branch-drives-gpus"
SUPPORTED = "driver-cuda.branch-supported"


@check(DRIVES, link=Link.KERNEL_MODULE, over=PciGpus, title="The driver's branch drives every GPU")
def branch_drives_gpus(
    gpus: PciGpus,
    driver: Reading[DriverRelease],
    listed: Reading[DriverGpus],
    refusals: BranchRefusals,
    host: Reading[Host],
) -> Verdicts:
    """A branch of the driver drives neither GPUs that came after it nor those that an earlier one was the last for.

    An upgrade from 580 to 590 or later loses Maxwell, Pascal and Volta, one from 470 lost Kepler; an old image on a new machine knows
    none of its GPUs. nvidia-smi then says no more than that it cannot talk to the driver, or lists fewer GPUs. The driver says why in the
    kernel log when it is loaded; where it was not, or the log is lost, its version and the PCI device id are held against gpudoctor's
    tables, whose date is named. A GPU that the driver holds is driven, whatever a table says. Easily confused with the wrong flavour of
    the module (its branch drives the GPU, "not supported by open nvidia.ko"), and with a GPU that is held and does not start.
    """
    context = _Context(gpus, driver, listed, refusals, host)
    for gpu in gpus:
        yield context.judge(gpu)


class _Context(Struct, frozen=True):
    """One run's driver with what it said and holds."""

    gpus: PciGpus
    driver: Reading[DriverRelease]
    listed: Reading[DriverGpus]
    refusals: BranchRefusals
    host: Reading[Host]

    def judge(self, gpu: PciGpu) -> Verdict:
        """The verdict on one GPU."""
        if isinstance(gpu.driver, Unread):
            return gpu.driver.about(gpu)
        if gpu.driver == "nvidia":
            return self._held(gpu)
        said = self._said_legacy(gpu)
        # What the driver ignores may be held by one that the kernel loads by itself; others were given it on purpose.
        if gpu.driver is not None and not (said and gpu.driver in BLACKLISTS):
            return NotApplicable(gpu, f"held by {gpu.driver}", gpu.cite("driver"))
        if isinstance(self.driver, Unread):
            return self.driver.about(gpu)
        if self.driver.release is None:
            return NotApplicable(gpu, "there is no nvidia driver for the running kernel", self.driver.cite("release"))
        if said:
            return self._dropped(gpu, self.driver, said)
        return self._by_the_tables(gpu, self.driver)

    def _held(self, gpu: PciGpu) -> Verdict:
        evidence = gpu.cite("driver")
        if isinstance(self.driver, Unread) or self.driver.release is None:
            return Pass(gpu, "held by the nvidia driver", evidence)
        evidence += self.driver.cite("release")
        answer, name = self._table(gpu, self.driver), architecture_of(gpu.device_id)
        if answer is None:
            return Pass(gpu, f"held by {self.driver.words}; {_untold(gpu, self.driver)}", evidence)
        evidence += gpu.cite("device_id")
        if answer:
            return Pass(gpu, f"{self.driver.words} drives {name}", evidence)
        known = None if isinstance(self.listed, Unread) else self.listed.gpus.get(gpu.address)
        if isinstance(known, DriverGpu) and known.initialised:
            summary = f"{self.driver.words} drives it, although the table of {AS_OF} says that its branch does not drive {name}"
            return Pass(gpu, summary, evidence + known.cite("initialised"))
        summary = f"held by {self.driver.words}, not started yet, and the table of {AS_OF} says that its branch does not drive {name}"
        return Unknown(gpu, Why.NOT_ANSWERED, summary, evidence, would_need="a program that opens it")

    def _said_legacy(self, gpu: PciGpu) -> Cited:
        """The driver's words on a GPU that its branch dropped: it names the product, then the address, or finds none at all."""
        named = tuple(one.evidence for one in self.refusals.legacy if _is(one.name, gpu.device_id))
        at_its_address = self.refusals.ignored.get(gpu.address)
        if at_its_address is not None:
            return (*named[:1], at_its_address)
        if self.refusals.none_found:
            return ((named or (self.refusals.legacy[0].evidence,))[0], *self.refusals.none_found)
        return named[:1]

    def _dropped(self, gpu: PciGpu, driver: DriverRelease, said: Cited) -> Verdict:
        named = [one.branch for one in self.refusals.legacy if one.evidence in said]
        capability = capability_of(gpu.device_id)
        last = named[0] if named else capability.last_driver if capability is not None else None
        where = f"is last supported by branch {last}" if last is not None else "is supported by an older branch"
        return self._fail(gpu, f"{driver.words} ignores it: {_product(gpu)} {where}", said, "dropped")

    def _by_the_tables(self, gpu: PciGpu, driver: DriverRelease) -> Verdict:
        answer, refused = self._table(gpu, driver), self.refusals.unsupported.get(gpu.address)
        said = (refused,) if refused is not None else ()
        evidence = said + driver.cite("release") + gpu.cite("device_id")
        if answer is None:
            return Unknown(gpu, Why.NOT_ANSWERED, _untold(gpu, driver), evidence)
        if answer and refused is not None:
            # halmgrGetHalForGpu finds no chip that it knows in the GPU's registers (rm_is_supported_device of osapi.c).
            summary = (
                f"{driver.words} says that it does not support it, although its branch drives {architecture_of(gpu.device_id)} "
                f"(table of {AS_OF}): a newer release of the branch may, or its registers do not read as they should, as in a vGPU"
            )
            return Unknown(gpu, Why.NOT_ANSWERED, summary, evidence)
        if answer:
            name = architecture_of(gpu.device_id)
            return Pass(gpu, f"the branch of {driver.words} drives {name} (table of {AS_OF})", evidence)
        return self._not_driven(gpu, driver, said)

    def _not_driven(self, gpu: PciGpu, driver: DriverRelease, said: Cited) -> Verdict:
        capability = capability_of(gpu.device_id)
        assert capability is not None, "the table answered for it"
        source = "" if said else f" (table of {AS_OF})"
        begin = f"{driver.words} does not drive it: {_product(gpu)}"
        if _too_new(driver, capability):
            summary = f"{begin} needs branch {capability.first_driver} or later{source}"
            return self._fail(gpu, summary, said, "too-old")
        return self._fail(gpu, f"{begin} is last supported by branch {capability.last_driver}{source}", said, "dropped")

    def _fail(self, gpu: PciGpu, summary: str, said: Cited, cause: str) -> Verdict:
        assert isinstance(self.driver, DriverRelease), "its release is judged"
        evidence = said + self.driver.cite("release") + gpu.cite("device_id", "driver")
        return Fail(gpu, summary, evidence, self._remedies(), Breaks.SUBJECT, cause=f"branch-{cause}")

    def _remedies(self) -> tuple[Remedy, ...]:
        choice = choose(_concerned(self.gpus), None if isinstance(self.driver, Unread) else self.driver.day)
        others = (WITHOUT_IT,) if any(gpu.driver == "nvidia" for gpu in self.gpus) else ()
        best = choice.best
        if best is None:
            return (separate(", ".join(choice.names), DRIVES), *others)
        return (_change(choice, best, self.host, DRIVES), *others)

    def _table(self, gpu: PciGpu, driver: DriverRelease) -> bool | None:
        """Nothing of a branch older or newer than those of the tables, though a dropped architecture is not likely to come back."""
        capability, release = capability_of(gpu.device_id), release_of(driver.release or "")
        known = bool(release) and BRANCHES[0].number <= release[0] <= NEWEST.number
        return drives(release[0], capability.cc) if capability is not None and known else None


def _is(name: str, device_id: str) -> bool:
    """Whether a product's name may be that of a device id: the same name, or one of a GPU of the same compute capability."""
    model = by_id(device_id)
    return model is not None and (name in model.names or (model.cc is not None and cc_of_name(name) == model.cc))


def _product(gpu: PciGpu) -> str:
    model, name = by_id(gpu.device_id), architecture_of(gpu.device_id)
    said = model.names[0] if model is not None and model.names else f"10de:{gpu.device_id}"
    return f"{said} ({name})" if name is not None else said


def _too_new(driver: DriverRelease, capability: Capability) -> bool:
    return capability.first_driver is not None and release_of(driver.release or "")[0] < capability.first_driver


def _untold(gpu: PciGpu, driver: DriverRelease) -> str:
    """Why the tables do not tell whether a release drives a GPU."""
    if not release_of(driver.release or ""):
        return f"{driver.release!r} is no release that the tables could know"
    capability = capability_of(gpu.device_id)
    if capability is None:
        return f"device id 10de:{gpu.device_id} is not in the tables of {AS_OF}"
    reach = f"the tables of {AS_OF}, which know branches {BRANCHES[0].number} to {NEWEST.number}"
    last = f"; the last that they know to drive it is {capability.last_driver}" if capability.last_driver else ""
    return f"{reach}, do not tell whether {driver.words} drives {_product(gpu)}{last}"


def _concerned(gpus: PciGpus) -> tuple[str, ...]:
    """Device ids of the GPUs that nvidia holds or should: others were given to another driver on purpose."""
    return tuple(gpu.device_id for gpu in gpus if gpu.driver in (None, "nvidia", *BLACKLISTS))


def _change(choice: Choice, best: Branch, host: Reading[Host], check_id: str) -> Remedy:
    assert choice.flavour is not None, "a best branch has a flavour"
    names, numbers = " and ".join(choice.names), ", ".join(map(_until, choice.branches[-4:]))
    why = (
        f"What gets fixes and drives all GPUs here ({names}): {numbers}."
        if choice.supported
        else f"Branch {best.number} drives all GPUs here ({names})."
    )
    return change_branch(best.number, choice.flavour, host.os_id if isinstance(host, Host) else None, check_id, why)


def _until(branch: Branch) -> str:
    return f"{branch.number} (until {branch.end})"


@check(
    SUPPORTED,
    link=Link.DRIVER_CUDA,
    advisory=True,
    title="The driver's branch gets fixes, and its release is not known to be bad here",
)
def branch_supported(
    module: NvidiaModule, standing: DriverStanding, gpus: Reading[PciGpus], host: Reading[Host]
) -> Verdicts:
    """A release can be known to go wrong on just such a node, and a branch that NVIDIA has ended gets no fix for what comes next.

    Compares the driver's version with a table that gpudoctor carries and whose date it names. A release that is known to be bad warns
    where its condition holds here: by the GPUs that the driver holds, MIG as NVML tells it, a kubelet that runs, the module's parameters.
    That a branch has ended breaks nothing and is no news to most fleets: it is named, and warns where the configuration says
    `advisories = true`. The day is that of the report or of the recording. A driver newer than the table is not judged by it. Easily
    confused with known vulnerabilities, which compare releases with security bulletins.
    """
    if not module.loaded:
        yield NotApplicable(NODE, "the nvidia module is not loaded", module.cite("loaded"))
        return
    if module.version is None:
        unread = module.mute or Unread(Why.UNREADABLE, VERSION, "the driver tells no version")
        yield unread.about(NODE)
        return
    bad = [one for one in standing.against if one.holds is True]
    for one in bad:
        yield _known_bad(module, one)
    untold = next((one for one in standing.against if isinstance(one.holds, Unread)), None)
    if untold is not None and not bad:
        yield _perhaps_bad(module, untold)
    verdict = _life(module, standing, gpus, host)
    if isinstance(verdict, Warn) or (not bad and untold is None):
        yield verdict


def _known_bad(module: NvidiaModule, one: Against) -> Verdict:
    fixed = f", fixed with {one.bad.fixed}" if one.bad.fixed else ""
    summary = f"driver {module.version} is known to be bad on a node like this: {one.bad.problem}{fixed} (table of {BRANCHES_AS_OF})"
    remedy = Remedy(
        Action.INSTALL_PACKAGE,
        f"{one.bad.remedy} Drain the node, install it the way the driver was installed, and reboot.",
        run=("cat /proc/driver/nvidia/version    # afterwards",),
        interrupts=INTERRUPTS,
        confirm=confirmed_by(SUPPORTED),
    )
    evidence = module.cite("version") + one.evidence
    return Warn(NODE, summary, evidence, (remedy,), cause=one.bad.key, references=(one.bad.source,))


def _perhaps_bad(module: NvidiaModule, one: Against) -> Verdict:
    assert isinstance(one.holds, Unread), "its condition is not known"
    unseen = f"{one.holds.where}: {one.holds.detail}"
    summary = (
        f"driver {module.version} is bad where a condition holds that is not known here ({unseen}): {one.bad.problem}"
    )
    return Unknown(NODE, one.holds.why, summary, module.cite("version") + one.evidence, one.holds.would_need)


def _life(module: NvidiaModule, standing: DriverStanding, gpus: Reading[PciGpus], host: Reading[Host]) -> Verdict:
    release, evidence = module.version or "", module.cite("version")
    number = release_of(release)[:1]
    if number and number[0] in JETSON:
        return NotApplicable(NODE, f"driver {module.version} is JetPack's, which has its own life cycle", evidence)
    branch = branch_of(release)
    if branch is None and number and number[0] > NEWEST.number:
        summary = (
            f"driver {module.version}: newer than the table of {BRANCHES_AS_OF}, which ends with branch {NEWEST.number}"
        )
        return Pass(NODE, f"{summary} and knows nothing against it", evidence)
    if branch is None:
        return Unknown(NODE, Why.NOT_ANSWERED, f"driver {module.version}: {offered(release).why}", evidence)
    if not standing.asked:
        return Pass(NODE, _lived(module, branch, standing), evidence + _shown(standing))
    if standing.day is None:
        summary = f"when this was recorded is not known: {_lived(module, branch, standing)}"
        return Unknown(NODE, Why.NOT_RECORDED, summary, evidence, would_need="a snapshot, which tells its time")
    now = life(release, standing.day)
    if now.state in (State.ENDED, State.SUPERSEDED):
        summary = f"driver {module.version}: {_ended(now, branch)} (table of {BRANCHES_AS_OF})"
        return Warn(NODE, summary, evidence, tuple(_successors(gpus, standing, host)), cause=now.state.value)
    if now.state is State.UNKNOWN:
        return Unknown(NODE, Why.NOT_ANSWERED, f"driver {module.version}: {now.why}", evidence)
    return Pass(NODE, _lived(module, branch, standing), evidence + _shown(standing))


def _lived(module: NvidiaModule, branch: Branch, standing: DriverStanding) -> str:
    """What the table says of a branch, and what it knows of the release."""
    words = f"driver {module.version}: {branch.kind.value} {branch.number}"
    now = life(module.version or "", standing.day) if standing.day is not None else None
    if now is not None and now.state in (State.ENDED, State.SUPERSEDED):
        words = f"driver {module.version}: {_ended(now, branch)}; that warns where the configuration says `advisories = true`"
    elif branch.end:
        words += f", fixes until {branch.end}"
    if newer_than_known(module.version or ""):
        words += f"; newer than {branch.latest}, the newest that the table knows of its branch"
    conditions = [one.bad.key for one in standing.against if one.holds is False]
    if conditions:
        words += f"; what is known against it does not apply here ({', '.join(conditions)})"
    return f"{words} (table of {BRANCHES_AS_OF})"


def _shown(standing: DriverStanding) -> Cited:
    return tuple(dict.fromkeys(seen for one in standing.against for seen in one.evidence))


def _ended(now: Life, branch: Branch) -> str:
    if now.state is State.SUPERSEDED and now.next is not None:
        return (
            f"{branch.kind.value} {branch.number} gets no fixes since branch {now.next.number} came, {now.next.first}"
        )
    return f"{branch.kind.value} {branch.number} has ended, {'by' if branch.by else 'its fixes went on until'} {branch.end}"


def _successors(gpus: Reading[PciGpus], standing: DriverStanding, host: Reading[Host]) -> Iterator[Remedy]:
    choice = choose(() if isinstance(gpus, Unread) else _concerned(gpus), standing.day)
    best = choice.best
    if best is not None and choice.supported:
        yield _change(choice, best, host, SUPPORTED)
        return
    names = f" ({', '.join(choice.names)})" if choice.names else ""
    yield Remedy(
        Action.NONE,
        f"No branch that gets fixes is known to drive all GPUs here{names}: plan their replacement, and keep the node to trusted work.",
        confirm=confirmed_by(SUPPORTED),
    )
