"""What each container and job wants: who asked for which GPUs, an engine or scheduler apart from what an image merely says.

Sources: NVIDIA/nvidia-container-toolkit v1.20.0 internal/config/image (precedence: CDI annotations,
mounts, variables); nvidia/cuda images set NVIDIA_VISIBLE_DEVICES=all; Slurm gres.html (SLURM_JOB_GPUS, CUDA_VISIBLE_DEVICES).
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from msgspec import Struct

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.device_nodes import NVIDIA_MAJOR
from gpudoctor.facts.gpu_variables import (
    CAPABILITIES,
    CUDA_VISIBLE,
    KEEP,
    VISIBLE,
    Asked,
    Variables,
    asked_by,
    names_in,
    variables,
)
from gpudoctor.facts.mounts import Mounts
from gpudoctor.facts.oci_config import DockerContainer, OciConfig
from gpudoctor.facts.raw import Absent, Raw, TextFile
from gpudoctor.facts.workload import Workload
from gpudoctor.facts.workload_devices import Devices, WorkloadDevices, is_job, looked_into
from gpudoctor.facts.workloads import Workloads
from gpudoctor.verdicts import Evidence, Unread

SLURM_GPUS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "GPU_DEVICE_ORDINAL")
_NO_CUDA = ("", "-1", "NoDevFiles", "void", "none")
"""Values of CUDA_VISIBLE_DEVICES that hide every GPU; Slurm writes NoDevFiles for a job without one (gres_gpu.c)."""


class Asker(str, Enum):
    """Who asked: only the last says nothing about what anybody wanted of this container."""

    SCHEDULER = "scheduler"
    ENGINE = "engine"
    ENVIRONMENT = "environment"
    IMAGE = "image"


class Wish(Struct, frozen=True):
    """One request: by whom, for which GPUs as they are named there (none where it names none), and where it was read."""

    asker: Asker
    gpus: tuple[str, ...]
    evidence: Evidence


class Wishes(Citable, frozen=True):
    """All requests of one workload. `variables` are those of its leading process; `unread` is what could have held more."""

    wishes: tuple[Wish, ...]
    variables: Variables | Absent | Unread
    unread: tuple[Unread, ...] = ()

    @property
    def asked(self) -> bool:
        """Whether somebody meant this very workload to have a GPU."""
        return any(wish.asker is not Asker.IMAGE for wish in self.wishes)

    @property
    def only_image(self) -> bool:
        """Whether nothing but a variable asks for all, as images of CUDA set it: nobody need have wanted a GPU here."""
        return bool(self.wishes) and not self.asked

    def by(self, asker: Asker) -> tuple[Wish, ...]:
        """The requests of one asker."""
        return tuple(wish for wish in self.wishes if wish.asker is asker)

    def variable(self, name: str) -> str | None:
        """A variable of the leading process, None where it is not set or not known."""
        return self.variables.get(name) if isinstance(self.variables, Variables) else None

    @property
    def capabilities(self) -> str | None:
        """NVIDIA_DRIVER_CAPABILITIES, None where it is not set: then utility and compute are given."""
        return self.variable(CAPABILITIES)


class WorkloadWishes(Fact, frozen=True):
    """The wishes of containers and jobs by key."""

    by_key: Mapping[str, Wishes]

    @classmethod
    def gather(cls, desk: Desk) -> "WorkloadWishes | Unread":
        """Those of every container and job that is looked into."""
        workloads, devices = desk.get(Workloads), desk.get(WorkloadDevices)
        if isinstance(workloads, Unread):
            return workloads
        inside = devices.by_key if isinstance(devices, WorkloadDevices) else {}
        return cls(by_key=wishes_of(desk.raw, looked_into(workloads), inside))


def wishes_of(
    raw: Raw, wanted: Iterable[Workload], inside: Mapping[str, Devices | Absent | Unread]
) -> dict[str, Wishes]:
    """The wishes by key: each leading process's environment, of which only variables about GPUs are kept, all in one child."""
    paths = {one.key: (one, f"/proc/{one.pid}/environ") for one in wanted}
    files = raw.read_blocking(tuple(path for _, path in paths.values()), keep=KEEP)
    return {key: _wishes(one, files[path], inside.get(key)) for key, (one, path) in paths.items()}


def _wishes(one: Workload, environ: TextFile | Absent | Unread, devices: Devices | Absent | Unread | None) -> Wishes:
    said = variables(environ.text.split("\0")) if isinstance(environ, TextFile) else environ
    wishes: list[Wish] = []
    if isinstance(one.config, OciConfig):
        wishes += _by_config(one.config)
    if isinstance(one.docker, DockerContainer):
        wishes += _by_docker(one.docker)
    if isinstance(said, Variables):
        wishes += _by_variables(said, environ.where if isinstance(environ, TextFile) else "", job=is_job(one))
    if isinstance(devices, Devices) and not is_job(one):
        wishes += _by_devices(one, devices)
    sources = (environ, one.config, one.docker, devices)
    return Wishes(
        wishes=tuple(_distinct(wishes)),
        variables=said,
        unread=tuple(source for source in sources if isinstance(source, Unread)),
        read_from={f"{wish.asker.value}{number or ''}": wish.evidence for number, wish in enumerate(_distinct(wishes))},
    )


def _distinct(wishes: Iterable[Wish]) -> list[Wish]:
    """Of equal requests the first: an engine's configuration and the process show the same variable."""
    found: dict[tuple[Asker, tuple[str, ...]], Wish] = {}
    for wish in wishes:
        found.setdefault((wish.asker, wish.gpus), wish)
    return list(found.values())


def _by_config(config: OciConfig) -> Iterator[Wish]:
    """Annotations, mounts and devices that the runtime was told of; a privileged container is given all devices of the host."""
    if config.requests:
        yield Wish(Asker.ENGINE, config.requests, Evidence(config.path, f"annotations: {', '.join(config.requests)}"))
    if config.plugin_devices:
        shows = f"mounts below nvidia-container-devices: {', '.join(config.plugin_devices)}"
        yield Wish(Asker.SCHEDULER, config.plugin_devices, Evidence(config.path, shows))
    ruled = any(rule.allow and rule.major == NVIDIA_MAJOR and "r" in (rule.access or "") for rule in config.rules)
    if config.nodes and not config.allows_everything:
        yield Wish(Asker.ENGINE, tuple(node.path for node in config.nodes), config.read_from["nodes"])
    elif ruled and not config.allows_everything:
        yield Wish(Asker.ENGINE, (), Evidence(config.path, f"linux.resources.devices allows major {NVIDIA_MAJOR}"))
    yield from _by_visible(config.variables, config.path)


def _by_docker(container: DockerContainer) -> Iterator[Wish]:
    for request in container.requests:
        shows = f"DeviceRequests: {request.driver or 'gpu'} {', '.join(request.names)}"
        yield Wish(Asker.ENGINE, request.names, Evidence(container.path, shows))


def _by_visible(said: Variables, where: str) -> Iterator[Wish]:
    """Each value of NVIDIA_VISIBLE_DEVICES: behind what was asked for, CDI writes void."""
    for value in said.all(VISIBLE):
        asked = asked_by(value)
        if asked is not Asked.NOTHING:
            asker = Asker.IMAGE if asked is Asked.ALL else Asker.ENVIRONMENT
            yield Wish(asker, names_in(value), Evidence(where, f"{VISIBLE}={value}"))


def _by_variables(said: Variables, where: str, *, job: bool) -> Iterator[Wish]:
    yield from _by_visible(said, where)
    for name in SLURM_GPUS if job else ():
        if value := said.get(name):
            yield Wish(Asker.SCHEDULER, names_in(value), Evidence(where, f"{name}={value}"))
            return
    value = said.get(CUDA_VISIBLE)
    if value is not None and value not in _NO_CUDA:
        # Alone it is no scheduler's word: Slurm sets it beside one of its own (gres_gpu.c), users set it in their profile.
        yield Wish(Asker.ENVIRONMENT, names_in(value), Evidence(where, f"{CUDA_VISIBLE}={value}"))


def _by_devices(one: Workload, devices: Devices) -> Iterator[Wish]:
    """What was mounted tells of a request of which no file is left to read; all of the host's /dev, or privilege, tells of none."""
    mounts = devices.mounts
    if isinstance(mounts, Mounts):
        if mounts.plugin_devices:
            shows = ", ".join(mounts.plugin_devices)
            yield Wish(Asker.SCHEDULER, mounts.plugin_devices, Evidence(mounts.path, f"mounts name {shows}"))
        libraries = [library.path for library in devices.libraries]
        folders = [mount.point for mount in mounts.folders]
        if libraries or folders:
            word = "pipes of MPS or a folder of the driver" if not libraries else f"{len(libraries)} driver libraries"
            shows = f"{word}: {', '.join((libraries or folders)[:3])}"
            yield Wish(Asker.ENGINE, (), Evidence(mounts.path, shows))
    config = one.config if isinstance(one.config, OciConfig) else None
    # Without an engine nobody gave them: a sandbox of the desktop binds what it finds.
    if devices.nodes and config is None and one.engine and not devices.whole_dev:
        yield Wish(Asker.ENGINE, tuple(node.path for node in devices.nodes), devices.read_from["nodes"])
