"""What runs on a driver and its GPUs, schema `gpudoctor.compat/1`.

Keys are never removed or given another meaning within `/1`.
"""

from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.knowledge.compute_capabilities import Runs
from gpudoctor.knowledge.cuda_requirements import Outcome

SCHEMA = "gpudoctor.compat/1"


class How(str, Enum):
    """How a CUDA version runs."""

    NATIVE = "native"
    MINOR_VERSION = "minor-version"
    PACKAGE = "package"
    NO = "no"
    UNKNOWN = "unknown"


class Gpu(Struct, frozen=True):
    """A GPU as far as it matters here. `forward_compatible`: whether packages for forward compatibility serve it; None is not known."""

    name: str | None
    cc: str | None
    architecture: str | None = None
    forward_compatible: bool | None = None
    brand: str | None = None
    address: str | None = None


class Host(Struct, frozen=True):
    """A driver with its GPUs. `driver_cuda` is what its own libcuda tells, None where nobody asked; `windows` is its driver under WSL."""

    driver: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    windows: bool = False


class Answer(Struct, frozen=True):
    """How one CUDA version runs on a host. `needs` is the oldest driver that would do where this one does not; `package` one that helps."""

    cuda: str
    how: How
    why: str
    limits: tuple[str, ...] = ()
    needs: str = ""
    package: str = ""


class OfGpu(Struct, frozen=True):
    """What one requirement comes to for one GPU, None where no GPU is known."""

    gpu: str | None
    outcome: Outcome
    condition: str = ""
    untold: tuple[str, ...] = ()


class Demand(Struct, frozen=True):
    """One variable of an image with its outcome for each GPU."""

    variable: str
    text: str
    outcome: Outcome
    gpus: tuple[OfGpu, ...]


class ImageAnswer(Struct, frozen=True):
    """Whether an image with these requirements is started; `lifted` says that NVIDIA_DISABLE_REQUIRE stands beside them."""

    asked: str
    outcome: Outcome
    why: str
    demands: tuple[Demand, ...]
    lifted: bool = False


class Code(Struct, frozen=True):
    """Whether a build has code for a compute capability."""

    cc: str
    runs: Runs
    why: str = ""


class WheelAnswer(Struct, frozen=True):
    """One build of a framework: how its CUDA runs, and whether it has code for the GPUs. `default` is what plain `pip install` brings."""

    cuda: str
    default: bool
    how: How
    why: str
    answer: Answer
    code: tuple[Code, ...]


class FrameworkAnswer(Struct, frozen=True):
    """The builds of one release; none where the table does not have it, and `why` says what it has. `native`: the newest that runs so."""

    asked: str
    framework: str
    version: str
    why: str
    wheels: tuple[WheelAnswer, ...] = ()
    native: str = ""


class NodeWords(Struct, frozen=True):
    """The node that was looked at."""

    hostname: str | None
    source: str
    os: str | None
    kernel: str | None
    driver: str | None


class DriverWords(Struct, frozen=True):
    """What the tables tell of a driver. `state` and `until` are of its branch on the day of the run, `newer_than_tables` may be None."""

    version: str
    branch: int | None
    kind: str
    cuda: str | None
    cuda_from: str
    state: str
    until: str
    newer_than_tables: bool | None
    says: str


class ToolkitAnswer(Struct, frozen=True):
    """A toolkit on the node's disk."""

    path: str
    version: str
    answer: Answer


class ContainerAnswer(Struct, frozen=True):
    """A running container: its CUDA runtime, where one is known, and what its image demands."""

    key: str
    title: str
    gpus: tuple[str, ...]
    runtime: str
    runtime_from: str
    answer: Answer | None
    image: ImageAnswer | None


class Changed(Struct, frozen=True):
    """One thing that another driver or GPU would change."""

    kind: str
    what: str
    before: str
    after: str
    why: str


class WhatIf(Struct, frozen=True):
    """What changes from the node as it is to the host that was asked for."""

    before: Host
    changed: tuple[Changed, ...]
    unchanged: int


class TableDate(Struct, frozen=True):
    """A table and the day on which it was compared with its source."""

    name: str
    as_of: str
    source: str


class Reach(Struct, frozen=True):
    """How old the tables are and how far they reach."""

    oldest: str
    newest_branch: int
    newest_cuda: str
    tables: tuple[TableDate, ...]


class Compat(Struct, frozen=True):
    """One run of `gpudoctor compat`. `node` is the one that was looked at; `unseen` is what of it could not be read."""

    schema: str
    version: str
    started_at: str
    node: NodeWords | None
    host: Host
    driver: DriverWords | None
    cuda: tuple[Answer, ...]
    toolkits: tuple[ToolkitAnswer, ...]
    containers: tuple[ContainerAnswer, ...]
    asked: tuple[Answer, ...]
    images: tuple[ImageAnswer, ...]
    frameworks: tuple[FrameworkAnswer, ...]
    what_if: WhatIf | None
    notes: tuple[str, ...]
    unseen: tuple[str, ...]
    tables: Reach


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the result, generated from these records."""
    schema = msgspec.json.schema(Compat)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, **schema}
