"""The registry of checks: the decorator that declares one, and what the engine knows of it."""

import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from gpudoctor.chain import ORDER, Link, with_everything_below
from gpudoctor.facts.desk import Desk, Fact, Population
from gpudoctor.verdicts import Unread, Verdicts

CHECK_MODULES = (
    "pcie",
    "pcie_paths",
    "kernel_module",
    "device_nodes",
    "driver_cuda",
    "nvml_library",
    "recovery",
    "docker",
    "docker_cdi",
    "containerd",
    "cdi",
    "cdi_use",
    "toolkit_config",
    "toolkit_programs",
    "advisories",
    "adapter",
    "module_files",
    "driver_versions",
    "kernel_health",
    "driver_files",
    "driver_libraries",
    "driver_daemons",
    "device_files",
    "char_links",
    "persistence",
    "platforms",
    "profile",
    "cgroup_rules",
    "workloads",
    "engines",
    "hpc_engines",
    "start_failures",
    "confinement",
    "recipes",
    "image_code",
    "memory_health",
    "memory_repairs",
    "xids",
    "fabric",
    "nvlinks",
    "imex",
    "gpudirect",
    "ranks",
    "topology",
    "gpu_peers",
    "rails",
    "nics",
    "thermal",
    "gpu_clocks",
    "gpu_links",
    "gpu_modes",
    "dcgm",
    "gpu_memory_use",
    "kubelet",
    "kubelet_topology",
    "device_plugin",
    "plugin_devices",
    "pods",
    "gpu_operator",
    "kubernetes_api",
    "kubernetes_devices",
    "mig",
    "mig_use",
    "mig_monitor",
    "mps",
    "mps_clients",
    "time_slicing",
    "memory_contention",
    "slurm",
    "slurm_jobs",
    "vgpu",
    "confidential",
)
"""The modules of `gpudoctor.checks`. Written down because listing a folder costs more than it gives at start-up."""


class RegistryError(Exception):
    """A check is declared wrongly: an id taken twice, an unknown id named, a cycle, or a parameter that is no fact."""


class Need(Struct, frozen=True):
    """One parameter of a check: a fact type, and whether the check judges its absence itself (`Reading[Fact]`)."""

    fact: type[Fact]
    judges_unread: bool


class Check(Struct, frozen=True):
    """A check as declared; `needs` already holds everything below the links named."""

    id: str
    link: Link
    title: str
    function: Callable[..., Verdicts]
    parameters: tuple[Need, ...]
    over: type[Population] | None
    needs: frozenset[Link]
    explained_by: tuple[str, ...]
    essential: bool
    advisory: bool
    isolates: bool = False
    module: str = ""
    """Of a check that is not loaded: the module of `gpudoctor.checks` that holds it."""

    @property
    def doc(self) -> str:
        """The docstring, dedented: what `explain` prints."""
        first, _, rest = (self.function.__doc__ or "").strip().partition("\n")
        return "\n".join([first, *(line.strip() for line in rest.splitlines())]).strip()


class Registry:
    """Checks by id; iterates in chain order, so that whatever a check stands on comes before it."""

    def __init__(self, checks: Iterable[Check] = ()) -> None:
        self._checks: dict[str, Check] = {}
        self._ordered: list[Check] = []
        for check in checks:
            self.add(check)

    def add(self, check: Check) -> None:
        """Register a check. Raises RegistryError when its id is taken."""
        if check.id in self._checks:
            raise RegistryError(f"check id {check.id!r} is declared twice")
        self._checks[check.id] = check
        self._ordered = []

    def get(self, check_id: str) -> Check | None:
        """The check of that id, if there is one."""
        return self._checks.get(check_id)

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, in chain order."""
        return tuple(check.id for check in self)

    def declared(self) -> tuple[Check, ...]:
        """As they were added: what they name need not be there yet."""
        return tuple(self._checks.values())

    def __iter__(self) -> Iterator[Check]:
        if not self._ordered:
            self._ordered = _in_order(self._checks)
        return iter(self._ordered)

    def __len__(self) -> int:
        return len(self._checks)


def _in_order(checks: dict[str, Check]) -> list[Check]:
    """Chain order; within a link, a check comes after those that may explain it."""
    ordered: list[Check] = []
    placed: set[str] = set()
    for check in sorted(checks.values(), key=lambda check: ORDER[check.link]):
        _place(check, checks, ordered, placed, ())
    return ordered


def _place(
    check: Check, checks: dict[str, Check], ordered: list[Check], placed: set[str], path: tuple[str, ...]
) -> None:
    if check.id in path:
        raise RegistryError(f"explained_by forms a cycle: {' -> '.join((*path, check.id))}")
    if check.id in placed:
        return
    for cause in check.explained_by:
        if cause not in checks:
            raise RegistryError(f"{check.id} names {cause!r} in explained_by, but there is no such check")
        if checks[cause].link is not check.link:
            raise RegistryError(f"{check.id} names {cause!r} in explained_by, a check of another link: use needs=")
        _place(checks[cause], checks, ordered, placed, (*path, check.id))
    placed.add(check.id)
    ordered.append(check)


_declared = Registry()


def check(  # noqa: PLR0913 - keywords of a declaration
    check_id: str,
    *,
    link: Link,
    title: str,
    over: type[Population] | None = None,
    needs: frozenset[Link] | set[Link] = frozenset(),
    explained_by: tuple[str, ...] = (),
    essential: bool = False,
    advisory: bool = False,
    isolates: bool = False,
    registry: Registry | None = None,
) -> Callable[[Callable[..., Verdicts]], Callable[..., Verdicts]]:
    """Declare a check: `link.what-is-asked`, its title the healthy state as a sentence.

    The parameter types are the facts it needs; `Reading[Fact]` asks for the reason when a fact could not be read.
    `needs` are the links its answer presupposes; nothing stands on the answer of an `advisory` check, which warns or fails without
    breaking anything; a GPU that fails one that `isolates` is of no use to any job, whatever else works, so that its node may be drained;
    `registry` takes the check instead of the built-in one.
    Raises RegistryError for a wrong declaration.
    """

    def register(function: Callable[..., Verdicts]) -> Callable[..., Verdicts]:
        if not check_id.startswith(f"{link.value}."):
            raise RegistryError(f"check id {check_id!r} must begin with its link, {link.value!r}")
        if link in with_everything_below(frozenset(needs)):
            raise RegistryError(f"{check_id} needs its own link or one that stands on it")
        (_declared if registry is None else registry).add(
            Check(
                id=check_id,
                link=link,
                title=title,
                function=function,
                parameters=_parameters(check_id, function),
                over=over,
                needs=with_everything_below(frozenset(needs)),
                explained_by=explained_by,
                essential=essential,
                advisory=advisory,
                isolates=isolates,
            )
        )
        return function

    return register


def _parameters(check_id: str, function: Callable[..., Verdicts]) -> tuple[Need, ...]:
    annotations = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    if len(annotations) != function.__code__.co_argcount:
        raise RegistryError(f"{check_id}: every parameter must be annotated with the fact it needs")
    return tuple(_need(check_id, name, kind) for name, kind in annotations.items())


def _need(check_id: str, name: str, annotation: object) -> Need:
    kinds = [kind for kind in get_args(annotation) or (annotation,) if kind is not Unread]
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], Fact):
        return Need(kinds[0], judges_unread=Unread in get_args(annotation))
    raise RegistryError(
        f"{check_id}: parameter {name!r} must be annotated with a fact or Reading[fact], not {annotation!r}"
    )


def built_in(*, deferred: bool = False) -> Registry:
    """All checks that come with gpudoctor; with `deferred` some are known by what was written down of them until `loaded` is asked."""
    if not deferred:
        for module in CHECK_MODULES:
            importlib.import_module(f"gpudoctor.checks.{module}")
        return _declared
    from gpudoctor.knowledge.deferred_checks import ROWS

    for module in CHECK_MODULES:
        if module not in ROWS:
            importlib.import_module(f"gpudoctor.checks.{module}")
    known = (check for check in _declared.declared() if check.function.__module__.rpartition(".")[2] not in ROWS)
    return Registry((*known, *(_not_loaded(module, row) for module, rows in ROWS.items() for row in rows)))


def _not_loaded(module: str, row: tuple[str, str, str, str]) -> Check:
    check_id, title, needs, explained_by = row
    return Check(
        id=check_id,
        link=Link(check_id.partition(".")[0]),
        title=title,
        function=_nothing,
        parameters=(),
        over=None,
        needs=frozenset(map(Link, needs.split())),
        explained_by=tuple(explained_by.split()),
        essential=False,
        advisory=False,
        module=module,
    )


def _nothing() -> Verdicts:
    return iter(())


def loaded(check: Check, desk: Desk) -> Check:
    """A check as it is to be run: one that is not loaded is, unless a cheap look at the node tells what it would say.

    Then it is one that says just this, with the same id, title and place: it is reported, blocked and explained as the check itself.
    """
    if not check.module:
        return check
    from gpudoctor.facts.absence import ABSENT

    verdict = ABSENT[check.module](desk)
    if verdict is not None:
        return replace(check, function=lambda: iter((verdict,)))
    importlib.import_module(f"gpudoctor.checks.{check.module}")
    found = _declared.get(check.id)
    if found is None:
        raise RegistryError(f"{check.id} is not declared in {check.module}: run `make catalogue`")
    return found
