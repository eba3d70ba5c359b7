"""Releases of PyTorch, TensorFlow, JAX and vLLM: the CUDA in their wheels, and the GPUs they have code for.

A wheel from pip brings its own CUDA runtime: the node needs a driver for that (knowledge/cuda_toolkits.py) and a GPU that the wheel has
code for, no toolkit. Versions and dependencies: metadata of PyPI, read with pip 2026-11-29. PyTorch's wheels: PyTorch Korea's table of
releases (2026-03-24), from 2.12 on data.pyg.org/whl and pytorch/test-infra 61a77570f454, generate_binary_build_matrix.py. PyTorch's
targets on x86_64, those on aarch64 are fewer: moi90/pytorch_compute_capabilities, table.md (2.6, 2.7); pytorch/pytorch 00c7a380b836,
.ci/manywheel/build_cuda.sh, with its issue 160269 (2.8); RELEASE.md in its pull request 175253 (2.9 to 2.11). JAX:
docs.jax.dev/en/latest/installation.html. vLLM's GPUs: docs.vllm.ai, installation, of 0.6.1 and 0.21.0. TensorFlow's:
tensorflow.org/install/pip and the release notes of 2.17.0 (Maxwell left out). Read 2026-11-30.
"""

from msgspec import Struct

from gpudoctor.knowledge.cuda_toolkits import minimum_driver
from gpudoctor.knowledge.version_numbers import minor_of, numbers

AS_OF = "2026-11-30"
SOURCE = (
    "PyPI metadata of 2026-11-29; pytorch/pytorch and pytorch/test-infra; docs.jax.dev; docs.vllm.ai; tensorflow.org"
)


class Wheel(Struct, frozen=True):
    """One build. `targets`: what it has code for on x86_64; `minimum_cc`: the oldest compute capability it is said to run on.

    Either is None where no source tells.
    """

    cuda: str
    targets: tuple[str, ...] | None = None
    minimum_cc: str | None = None

    @property
    def minimum_driver(self) -> str | None:
        """The oldest driver that its CUDA runtime runs on, PTX that must be compiled apart."""
        minor = minor_of(self.cuda)
        return minimum_driver(*minor) if minor is not None else None


class Release(Struct, frozen=True):
    """One release. `default`: the CUDA version that plain `pip install` brings, None where none is told; `torch`: the PyTorch it needs."""

    framework: str
    version: str
    wheels: tuple[Wheel, ...]
    default: str | None = None
    torch: str | None = None

    def wheel(self, cuda: str | None = None) -> Wheel | None:
        """The build for a CUDA version, else the default one."""
        wanted = cuda or self.default
        return next((wheel for wheel in self.wheels if wheel.cuda == wanted), None)


class Nearest(Struct, frozen=True):
    """What is known instead of a release: the nearest below and above."""

    below: Release | None
    above: Release | None


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_TO_HOPPER = _list("5.0 6.0 7.0 7.5 8.0 8.6 9.0")
_FROM_KEPLER = _list("3.7 5.0 6.0 7.0 7.5 8.0 8.6 9.0")
_FROM_VOLTA = _list("7.0 7.5 8.0 8.6 9.0 10.0 12.0")
_FROM_TURING = _list("7.5 8.0 8.6 9.0 10.0 12.0")
_12_9 = _list("7.0 7.5 8.0 8.6 9.0 10.0 12.0+PTX")
_13_0 = _list("7.5 8.0 8.6 9.0 10.0 12.0+PTX")


def _torch(version: str, default: str | None, *wheels: Wheel) -> Release:
    return Release("pytorch", version, wheels, default)


def _unlisted(*versions: str) -> tuple[Wheel, ...]:
    return tuple(Wheel(cuda) for cuda in versions)


PYTORCH = (
    _torch("1.12", None, *_unlisted("11.3", "11.6")),
    _torch("1.13", "11.7", *_unlisted("11.6", "11.7")),
    _torch("2.0", "11.7", *_unlisted("11.7", "11.8")),
    _torch("2.1.2", "12.1", *_unlisted("11.8", "12.1")),
    _torch("2.2", "12.1", *_unlisted("11.8", "12.1")),
    _torch("2.3.1", "12.1", *_unlisted("11.8", "12.1")),
    _torch("2.4.1", "12.1", *_unlisted("11.8", "12.1", "12.4")),
    _torch("2.5.1", "12.4", *_unlisted("11.8", "12.1", "12.4")),
    _torch("2.6.0", "12.4", Wheel("11.8", _FROM_KEPLER), Wheel("12.4", _TO_HOPPER), Wheel("12.6", _TO_HOPPER)),
    _torch("2.7.1", "12.6", Wheel("11.8", _FROM_KEPLER), Wheel("12.6", _TO_HOPPER), Wheel("12.8", _FROM_TURING)),
    _torch("2.8.0", "12.8", Wheel("12.6", _TO_HOPPER), Wheel("12.8", _FROM_VOLTA), Wheel("12.9", _12_9)),
    _torch("2.9.1", "12.8", Wheel("12.6", _TO_HOPPER), Wheel("12.8", _FROM_VOLTA), Wheel("13.0", _13_0)),
    _torch("2.10.0", "12.8", Wheel("12.6", _TO_HOPPER), Wheel("12.8", _FROM_VOLTA), Wheel("13.0", _13_0)),
    _torch("2.11.0", "13.0", Wheel("12.6", _TO_HOPPER), Wheel("12.8", _FROM_TURING), Wheel("13.0", _13_0)),
    _torch("2.12.1", "13.0", *_unlisted("12.6", "13.0", "13.2")),
    _torch("2.13.0", "13.0", *_unlisted("12.6", "13.0", "13.2")),
    _torch("2.14.1", "13.0", *_unlisted("12.6", "13.0", "13.2", "13.4")),
)
"""2.15.0 is on PyPI; what it brings was not read."""


def _one(framework: str, version: str, cuda: str, minimum_cc: str, torch: str | None = None) -> Release:
    return Release(framework, version, (Wheel(cuda, minimum_cc=minimum_cc),), cuda, torch)


TENSORFLOW = (
    _one("tensorflow", "2.15.1", "12.2", "3.5"),
    _one("tensorflow", "2.18.1", "12.5", "6.0"),
    _one("tensorflow", "2.21.0", "12.5", "6.0"),
)
"""With the extra `and-cuda`; there is none for CUDA 13 as of 2.21.0, whose dependencies admit every runtime from 12.5.82 to before 13."""

JAX = (Release("jax", "0.10.2", (Wheel("12.1", minimum_cc="5.2"), Wheel("13.0", minimum_cc="7.5")), "12.1"),)
"""The extras `cuda12`, which `cuda` means, and `cuda13`, each with the lowest CUDA runtime that it admits."""

VLLM = (
    _one("vllm", "0.6.6", "12.4", "7.0", "2.5.1"),
    _one("vllm", "0.9.2", "12.8", "7.0", "2.7.0"),
    _one("vllm", "0.11.0", "12.8", "7.0", "2.8.0"),
    _one("vllm", "0.20.0", "13.0", "7.5", "2.11.0"),
    _one("vllm", "0.33.0", "13.0", "7.5", "2.14.0"),
)

FRAMEWORKS: dict[str, tuple[Release, ...]] = {"pytorch": PYTORCH, "tensorflow": TENSORFLOW, "jax": JAX, "vllm": VLLM}
ALIASES = {"torch": "pytorch", "tf": "tensorflow"}


def releases(framework: str) -> tuple[Release, ...]:
    """All rows of a framework, oldest first; none for one that is not known."""
    name = framework.lower()
    return FRAMEWORKS.get(ALIASES.get(name, name), ())


def release(framework: str, version: str) -> Release | Nearest | None:
    """The row for a version (`2.9`, `2.9.1+cu128`), or the nearest where the table lacks its minor version; None for what is no version.

    A row stands for its minor version; `+cu118` chooses no wheel here: see `wheel_tag` and `Release.wheel`.
    """
    rows = releases(framework)
    wanted = numbers(version.strip().lower().removeprefix("v").partition("+")[0])[:2]
    if not rows or len(wanted) < 2:
        return None
    exact = next((row for row in rows if numbers(row.version)[:2] == wanted), None)
    if exact is not None:
        return exact
    below = [row for row in rows if numbers(row.version)[:2] < wanted]
    above = [row for row in rows if numbers(row.version)[:2] > wanted]
    return Nearest(below[-1] if below else None, above[0] if above else None)


def wheel_tag(version: str) -> str | None:
    """The CUDA version in a wheel's local version: `12.8` for `2.9.1+cu128`, None without one."""
    _, plus, local = version.partition("+")
    digits = local.removeprefix("cu")
    if not plus or local == digits or not digits.isdecimal() or len(digits) < 3:
        return None
    return f"{digits[:-1]}.{digits[-1]}"
