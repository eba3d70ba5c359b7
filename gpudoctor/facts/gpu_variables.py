"""Environment variables that have to do with GPUs: which there are, and what NVIDIA_VISIBLE_DEVICES asks for.

Sources: NVIDIA/nvidia-container-toolkit v1.20.0 internal/config/image/{envvars,devices,cuda_image}.go; NVIDIA/cloud-native-docs
container-toolkit/docker-specialized.md; NVIDIA/k8s-device-plugin v0.20.0 internal/plugin/mps.go; Slurm gres.html and srun(1).
"""

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from gpudoctor.patterns import pattern

KEEP = (
    r"\A(?:NVIDIA_\w+|CUDA_\w+|NV_CUDA_\w+|NCCL_\w+|LD_LIBRARY_PATH|LD_PRELOAD|GPU_DEVICE_ORDINAL|container|TORCH_CUDA_ARCH_LIST|"
    r"SLURM_(?:JOB_ID|JOBID|STEP_ID|LOCALID|JOB_GPUS|STEP_GPUS|GPUS\w*))="
)
"""What is read of the environment of a process; all others are let go unread, for they are nobody's business."""

_KEEP = pattern(KEEP)
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
CUDA_VISIBLE = "CUDA_VISIBLE_DEVICES"

_NOTHING = ("", "void", "none")
_CDI_NAME = pattern(r"[\w.-]+/[\w.-]+=[\w.:-]+")
_INDEX = pattern(r"\d{1,3}(?::\d{1,3})?")
_UUID = pattern(r"(?:GPU|MIG)-[0-9a-fA-F/-]{4,}")


class Asked(str, Enum):
    """What the value of NVIDIA_VISIBLE_DEVICES says."""

    ALL = "all"
    SOME = "some"
    NOTHING = "nothing"
    ODD = "odd"


class Variables(Struct, frozen=True):
    """Variables of one environment in their order; of one that is set twice, the last counts for whoever reads it (environ(7))."""

    pairs: tuple[tuple[str, str], ...] = ()

    def get(self, name: str) -> str | None:
        """The value that counts."""
        return next((value for key, value in reversed(self.pairs) if key == name), None)

    def all(self, name: str) -> tuple[str, ...]:
        """Every value, in order: NVIDIA's runtime appends `void` behind what was asked for."""
        return tuple(value for key, value in self.pairs if key == name)

    def beginning(self, start: str) -> tuple[tuple[str, str], ...]:
        """Those whose names begin so."""
        return tuple(pair for pair in self.pairs if pair[0].startswith(start))

    def __bool__(self) -> bool:
        return bool(self.pairs)


def variables(lines: Iterable[str]) -> Variables:
    """Those of `NAME=value` that have to do with GPUs."""
    wanted = (line.partition("=") for line in lines if _KEEP.match(line))
    return Variables(tuple((name, value.strip()) for name, _, value in wanted))


def asked_by(value: str) -> Asked:
    """What a value of NVIDIA_VISIBLE_DEVICES asks for. `void` is also what a container shows that was given GPUs by CDI."""
    if value.lower() in _NOTHING:
        return Asked.NOTHING
    if value.lower() == "all":
        return Asked.ALL
    return Asked.SOME if all(map(_names_gpu, value.split(","))) else Asked.ODD


def _names_gpu(word: str) -> bool:
    return any(form.fullmatch(word.strip()) for form in (_INDEX, _UUID, _CDI_NAME))


def names_in(value: str) -> tuple[str, ...]:
    """The GPUs that a value names, one by one."""
    return tuple(word.strip() for word in value.split(",") if word.strip())
