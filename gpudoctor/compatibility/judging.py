"""How a CUDA version runs on a driver and its GPUs.

Rules: docs.nvidia.com/deploy/cuda-compatibility (backward, minor-version and forward compatibility) and the release notes of the CUDA
toolkit (corresponding and minimum drivers), with the tables of gpudoctor/knowledge, which name their sources.
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from gpudoctor.compat import Answer, Gpu, Host, How
from gpudoctor.knowledge.compute_capabilities import BY_CC, compiles, drives
from gpudoctor.knowledge.cuda_compatibility import PACKAGES, Fit, Told, package_fit, package_name, told_by
from gpudoctor.knowledge.cuda_toolkits import (
    AS_OF,
    MINIMUM_DRIVERS,
    NOT_RELEASED,
    TOOLKITS,
    Toolkit,
    minimum_driver,
    minor_versions,
    native_branch,
    toolkit,
)
from gpudoctor.knowledge.driver_branches import JETSON, branch_of, cuda_of, offered, release_of
from gpudoctor.knowledge.version_numbers import minor_of, numbers

FIRST_WITH_MINOR_VERSIONS = 11


@lru_cache(maxsize=1)
def _released() -> tuple[str, ...]:
    return minor_versions()


def bounds() -> str:
    """What the table of toolkits reaches over, in words."""
    return f"the table of {AS_OF} has CUDA {_released()[0]} to {_released()[-1]}"


def cuda_offered(host: Host) -> str | None:
    """The CUDA version that the host's driver offers, where it is known."""
    return host.driver_cuda or (cuda_of(host.driver, windows=host.windows) if host.driver else None)


def judge_cuda(cuda: str, host: Host) -> Answer:
    """How a CUDA runtime of a version (`12.8`, `12.4.1`) runs on a host."""
    cuda = cuda.strip()
    wanted = minor_of(cuda)
    if wanted is None or len(numbers(cuda)) > 3:
        return Answer(cuda, How.UNKNOWN, f"{cuda!r} names no version of CUDA such as 12.8; {bounds()}")
    offer = offer_of(host)
    newer = wanted > (minor_of(_released()[-1]) or (0, 0)) and offer.covers(wanted)
    if not newer and (strange := _not_in_the_table(cuda, wanted)):
        return Answer(cuda, How.UNKNOWN, strange)
    return _with_gpus(_by_driver(cuda, wanted, offer), wanted, host)


def _not_in_the_table(cuda: str, wanted: tuple[int, int]) -> str:
    minor = f"{wanted[0]}.{wanted[1]}"
    if minor in NOT_RELEASED:
        return f"{NOT_RELEASED[minor]}; {_nearest(wanted)}"
    known = _released()
    if wanted < (minor_of(known[0]) or (0, 0)):
        return ""
    if minor not in known:
        return f"the table of {AS_OF} has no CUDA {minor}: {_nearest(wanted)}"
    if len(numbers(cuda)) == 3 and toolkit(cuda) is None:
        releases = [one.version for one in TOOLKITS if minor_of(one.version) == wanted]
        return f"the table of {AS_OF} has no CUDA {cuda}: of {minor} it has {', '.join(releases)}"
    return ""


def _nearest(wanted: tuple[int, int]) -> str:
    below = [one for one in _released() if (minor_of(one) or (0, 0)) < wanted]
    above = [one for one in _released() if (minor_of(one) or (0, 0)) > wanted]
    if not above:
        return f"the newest it has is {below[-1]}"
    return f"the nearest are {below[-1]} and {above[0]}" if below else f"the oldest it has is {above[0]}"


class Offer:
    """The CUDA version that a driver offers: one, or between which two. `low` and `high` are None where there is no such bound."""

    def __init__(self, host: Host) -> None:
        self.windows = host.windows
        self.driver = (host.driver or "").strip()
        self.release = release_of(self.driver)
        if len(self.release) == 1:
            branch = branch_of(self.driver)
            self.release = (numbers(branch.latest) if branch is not None else ()) or (*self.release, 9999)
        self.jetson = bool(self.release) and self.release[0] in JETSON
        told = minor_of(host.driver_cuda) if host.driver_cuda else None
        table = offered(self.driver, windows=host.windows)
        self.told = told is not None
        self.why = table.why if self.driver else "the driver's version is not known"
        self.low = self.high = told or (minor_of(table.version) if table.version else None)
        if self.low is None and self.release and not self.jetson:
            self.low = minor_of(table.below.cuda) if table.below is not None else None
            self.high = minor_of(table.above.cuda) if table.above is not None else None

    @property
    def exact(self) -> bool:
        """Whether the version is known, not only bounds."""
        return self.low is not None and self.low == self.high

    def covers(self, wanted: tuple[int, int]) -> bool:
        """Whether the driver itself says that it offers a version, whatever tables know."""
        minor = f"{wanted[0]}.{wanted[1]}"
        return self.told and self.low is not None and wanted <= self.low and minor not in NOT_RELEASED

    @property
    def words(self) -> str:
        """`the driver (550.163.01) offers CUDA 12.4`."""
        who = f"the driver ({self.driver})" if self.driver else "the driver"
        low, high = (f"{edge[0]}.{edge[1]}" if edge else "" for edge in (self.low, self.high))
        if self.exact:
            return f"{who} offers CUDA {low}"
        if low and high:
            return f"{self.why}: {who} offers CUDA {low} to {high}"
        if low:
            return f"{self.why}: {who} offers at least CUDA {low}"
        return f"{self.why}: {who} offers at most CUDA {high}" if high else self.why


@lru_cache(maxsize=16)
def offer_of(host: Host) -> Offer:
    """What a host's driver offers, put together once."""
    return Offer(host)


def _by_driver(cuda: str, wanted: tuple[int, int], offer: Offer) -> Answer:
    """The rules in the order of what they cost: backward compatibility, minor versions, a package, another driver."""
    if not offer.release and offer.low is None:
        return Answer(cuda, How.UNKNOWN, offer.words, needs=_oldest(cuda, wanted))
    if (offer.low is not None and wanted < offer.low) or offer.covers(wanted):
        return Answer(cuda, How.NATIVE, f"{offer.words}, and runs whatever is not newer")
    same = offer.low is not None and wanted == offer.low
    short = _too_old_a_release(cuda, offer) if same else None
    if same and short is None:
        return Answer(cuda, How.NATIVE, offer.words)
    package = _package(wanted, offer)
    if _by_minor_version(wanted, offer):
        said = short if short is not None else offer.words
        # To lift its limits a package must be one that NVIDIA's table names; where nothing else serves, an image's word is told as such.
        named = package if not _teller(wanted, offer) else ""
        return Answer(cuda, How.MINOR_VERSION, f"{said}; {_MINOR}", _MINOR_LIMITS, package=named)
    if package:
        said = f"{offer.words}; {package} brings the libraries of a newer one"
        return Answer(cuda, How.PACKAGE, said, _teller(wanted, offer), package=package)
    return _not_by_driver(cuda, wanted, offer, short)


_MINOR = "within a major version newer runtimes run by minor-version compatibility"
_MINOR_LIMITS = (
    "PTX of the newer toolkit is refused (error 222): nothing is compiled at run time",
    "features that need the newer driver are refused (error 36)",
)


def _too_old_a_release(cuda: str, offer: Offer) -> str | None:
    """Why a driver that is of the toolkit's branch is older than the one named for that toolkit; None where it is not, or told itself."""
    if offer.told or offer.windows:
        return None
    row = toolkit(cuda)
    least = row.corresponding if row is not None else None
    if least is None and row is not None:
        least = _first_of(row).corresponding
    if least is None:
        return f"which release of the driver CUDA {cuda} needs the table does not tell"
    if offer.release >= numbers(least):
        return None
    return f"CUDA {cuda} corresponds to driver {least}, and {offer.driver} is older"


def _first_of(row: Toolkit) -> Toolkit:
    return next(one for one in TOOLKITS if minor_of(one.version) == minor_of(row.version))


def _by_minor_version(wanted: tuple[int, int], offer: Offer) -> bool:
    """From CUDA 11 on. The minimum drivers are Linux ones: under Windows and JetPack the major version that is offered must be the same."""
    if wanted[0] < FIRST_WITH_MINOR_VERSIONS or offer.jetson:
        return False
    if offer.windows or not offer.release:
        return offer.low is not None and offer.low[0] == wanted[0]
    least = MINIMUM_DRIVERS.get((wanted[0], None))
    return least is not None and offer.release >= numbers(least)


def _built_from(wanted: tuple[int, int]) -> int | None:
    minor = f"{wanted[0]}.{wanted[1]}"
    return next((branch for branch, version in PACKAGES.items() if version == minor), None)


def _package(wanted: tuple[int, int], offer: Offer) -> str:
    """The package of this very version, where somebody says that it fits the driver. Windows and JetPack have none of these."""
    branch = _built_from(wanted)
    if branch is None or not offer.release or offer.windows or offer.jetson:
        return ""
    fits = package_fit(str(branch), ".".join(map(str, offer.release))) is Fit.COMPATIBLE
    return (package_name(f"{wanted[0]}.{wanted[1]}") or "") if fits else ""


def _teller(wanted: tuple[int, int], offer: Offer) -> tuple[str, ...]:
    teller = told_by(str(_built_from(wanted)), ".".join(map(str, offer.release)))
    if teller is Told.IMAGES:
        return (
            f"only {teller.value} says so: the table of forward compatibility does not name branch {offer.release[0]}",
        )
    return ()


def _not_by_driver(cuda: str, wanted: tuple[int, int], offer: Offer, short: str | None) -> Answer:
    """Certainly not, with the driver that would do; or not known, where the driver may offer the version after all."""
    needs = _oldest(cuda, wanted)
    if offer.windows or offer.jetson:
        certain = offer.exact and offer.low is not None and wanted > offer.low
        whose = "JetPack" if offer.jetson else "the Windows driver"
        how = How.NO if certain and not offer.jetson else How.UNKNOWN
        return Answer(cuda, how, f"{offer.words}; {whose} must offer this version or a newer one")
    if short is not None:
        # nvidia-smi of 430.26 and 440.31 says CUDA 10.2, whose notes name 440.33: which is right, nobody tells.
        row = toolkit(cuda)
        named = row.corresponding if row is not None else None
        return Answer(cuda, How.UNKNOWN, f"{offer.words}, but {short}", needs=named or needs)
    least = numbers((minimum_driver(*wanted) and needs) or "")
    older = bool(least) and bool(offer.release) and offer.release < least
    beyond = offer.high is not None and wanted > offer.high
    if older or beyond:
        said = f"{offer.words}; CUDA {cuda} needs {needs or 'a newer driver'} or newer"
        return Answer(cuda, How.NO, said, needs=needs)
    return Answer(cuda, How.UNKNOWN, offer.words)


def _oldest(cuda: str, wanted: tuple[int, int]) -> str:
    """The oldest driver that runs a version: by minor-version compatibility, else the first that offers it."""
    if wanted[0] >= FIRST_WITH_MINOR_VERSIONS:
        return (minimum_driver(*wanted) if wanted == (11, 0) else MINIMUM_DRIVERS.get((wanted[0], None))) or ""
    if (least := minimum_driver(*wanted)) is not None:
        return least
    branch = native_branch(cuda)
    return str(branch.number) if branch is not None else ""


# The GPUs -------------------------------------------------------------------------------------------------------------


def _with_gpus(answer: Answer, wanted: tuple[int, int], host: Host) -> Answer:
    """The same, where the GPUs have a say: the driver must drive them, the toolkit must make code for them, packages must serve them."""
    answer = _served_by_package(answer, host)
    offer = offer_of(host)
    ccs = list(dict.fromkeys(gpu.cc for gpu in host.gpus))
    untold = [gpu.name or "a GPU" for gpu in host.gpus if gpu.cc is None]
    limits = [f"the compute capability of {name} is not known" for name in dict.fromkeys(untold)]
    undriven = {cc: why for cc in ccs if cc and (why := _undriven(cc, offer))}
    dropped = {cc: why for cc in ccs if cc and (why := _dropped(answer.cuda, wanted, cc))}
    if ccs and all(cc in undriven for cc in ccs):
        said = "; ".join(dict.fromkeys(undriven.values()))
        needs = _to_drive(ccs, offer, answer.needs or _oldest(answer.cuda, wanted))
        return replace(answer, how=How.NO, why=said, needs=needs, package="", limits=())
    if ccs and all(cc in dropped or cc in undriven for cc in ccs):
        said = "; ".join(dict.fromkeys((*dropped.values(), *undriven.values())))
        return replace(answer, how=How.NO, why=said, needs="", package="", limits=())
    if not offer.release and not offer.windows and answer.needs:
        ends = [
            f"{_named(cc)} is driven up to branch {last}"
            for cc in ccs
            if cc in BY_CC and (last := BY_CC[cc].last_driver)
        ]
        answer = replace(answer, needs=_to_drive(ccs, offer, answer.needs), limits=(*answer.limits, *ends))
    if answer.how in (How.NO, How.UNKNOWN):
        return replace(answer, limits=(*answer.limits, *undriven.values(), *dropped.values()))
    limits += [*undriven.values(), *(why for cc, why in dropped.items() if cc not in undriven)]
    limits += [why for cc in ccs if cc and (why := _younger(answer.cuda, wanted, cc))]
    return replace(answer, limits=(*answer.limits, *limits))


def _served_by_package(answer: Answer, host: Host) -> Answer:
    """Packages serve data-center GPUs that the branch drives of which they are; one other visible GPU is enough for error 804."""
    if not answer.package:
        return answer
    refused = [_titled(gpu) for gpu in host.gpus if gpu.forward_compatible is False]
    unsure = [_titled(gpu) for gpu in host.gpus if gpu.forward_compatible is None]
    beyond = _beyond_package(answer.cuda, host)
    if answer.how is not How.PACKAGE:
        helps = host.gpus and not (refused or unsure or beyond)
        return answer if helps else replace(answer, package="")
    if refused or (beyond and len(beyond) == len(host.gpus)):
        against = f"does not serve {refused[0]} (error 804)" if refused else beyond[0]
        needs = _oldest(answer.cuda, minor_of(answer.cuda) or (0, 0))
        said = f"{answer.package} {against}; CUDA {answer.cuda} needs {needs} or newer"
        return replace(answer, how=How.NO, why=said, needs=needs, package="", limits=())
    if unsure:
        said = f"{answer.why}, if it serves {unsure[0]}: it is for data-center GPUs, which is not known of this one"
        return replace(answer, how=How.UNKNOWN, why=said)
    told = [f"{answer.package} {why}" for why in dict.fromkeys(beyond)]
    told += [] if host.gpus else ["on data-center GPUs only (error 804)"]
    return replace(answer, limits=(*answer.limits, *told))


def _beyond_package(cuda: str, host: Host) -> list[str]:
    """Why a package does not serve GPUs that the driver itself still drives, one for each of these."""
    built = _built_from(minor_of(cuda) or (0, 0))
    lost = [gpu.cc for gpu in host.gpus if gpu.cc and built is not None and drives(built, gpu.cc) is False]
    return [f"is of branch {built}, which does not drive {_named(cc)}" for cc in lost]


def _titled(gpu: Gpu) -> str:
    return gpu.name or (f"a GPU of {_named(gpu.cc)}" if gpu.cc else "a GPU that is not known")


def _undriven(cc: str, offer: Offer) -> str:
    """Why a driver does not drive a GPU; "" where it does, and where no table tells."""
    if offer.windows or not offer.release or drives(offer.release[0], cc) is not False:
        return ""
    capability = BY_CC[cc]
    if capability.last_driver is not None and offer.release[0] > capability.last_driver:
        return f"{_named(cc)} is driven up to branch {capability.last_driver}, not by {offer.driver}"
    return f"{_named(cc)} is driven from branch {capability.first_driver} on, not by {offer.driver}"


def _to_drive(ccs: Sequence[str | None], offer: Offer, needs: str) -> str:
    """The oldest driver that drives these GPUs and runs the CUDA version, "" where only an older one drives them."""
    firsts = [BY_CC[cc].first_driver for cc in ccs if cc in BY_CC]
    if offer.release and any(first is None or first <= offer.release[0] for first in firsts):
        return ""
    return max((needs, *(str(first) for first in firsts if first is not None)), key=numbers)


def _dropped(cuda: str, wanted: tuple[int, int], cc: str) -> str:
    """Why a toolkit no longer makes code for a GPU; "" where it does."""
    last = BY_CC[cc].last_toolkit if cc in BY_CC else None
    if last is None or wanted <= (minor_of(last) or (0, 0)):
        return ""
    return f"CUDA {cuda} has no code for {_named(cc)}: the last that has is {last} (error 209)"


def _younger(cuda: str, wanted: tuple[int, int], cc: str) -> str:
    """What it means that a toolkit is older than a GPU; "" where it is not."""
    known = compiles(f"{wanted[0]}.{wanted[1]}", cc)
    if known is None:
        return f"whether CUDA {cuda} makes code for {_named(cc)} the table does not tell"
    if known or _dropped(cuda, wanted, cc):
        return ""
    own = minor_of(cc) or (0, 0)
    kin = [
        one.cc
        for one in BY_CC.values()
        if (number := minor_of(one.cc)) and number[0] == own[0] and number < own and not one.tegra
        if not BY_CC[cc].tegra and compiles(f"{wanted[0]}.{wanted[1]}", one.cc)
    ]
    if kin:
        return f"CUDA {cuda} does not know {_named(cc)}, which runs its code for {' and '.join(kin)}"
    return f"CUDA {cuda} is older than {_named(cc)}: only programs with PTX run, compiled at their first start"


def _named(cc: str) -> str:
    return f"compute capability {cc} ({BY_CC[cc].architecture})" if cc in BY_CC else f"compute capability {cc}"
