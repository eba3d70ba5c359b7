"""`gpudoctor compat` against what somebody else wrote down: requirements of images, CUDA versions on drivers, and real captures.

tests/independent_requirements.py and tests/independent_compatibility.py share nothing with gpudoctor. Counts are printed (pytest -rP).
"""

import gzip
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpudoctor.compat import Answer, Gpu, Host, How
from gpudoctor.compatibility.asked import judge_image
from gpudoctor.compatibility.judging import cuda_offered, judge_cuda, offer_of
from gpudoctor.knowledge.cuda_compatibility import Told, told_by
from gpudoctor.knowledge.cuda_requirements import Outcome
from gpudoctor.knowledge.driver_branches import BRANCHES
from tests.conftest import SHARED
from tests.independent_compatibility import (
    COMPAT_MADE_FROM,
    CORRESPONDING,
    compat_package_serves,
    runs_by_minor_version,
    runs_natively,
)
from tests.independent_requirements import requirement_holds

RUNS = {
    How.NATIVE: True,
    How.MINOR_VERSION: True,
    How.PACKAGE: False,
    How.NO: False,
    How.UNKNOWN: None,
}
"""Whether a CUDA version runs on the driver itself."""

OLDEST_TABLED = (10, 0)
CUDAS = [*CORRESPONDING, *(version for row in CORRESPONDING.values() for version in row)]
WINDOWS = ("516.59", "536.40", "537.13", "560.94", "591.86", "610.62")
"""Windows drivers of the corpus, whose numbers are none of Linux."""


def drivers() -> list[str]:
    """Those that a toolkit corresponds to, each with the release before it and the end of the branch before, and known last ones."""
    found = {branch.latest for branch in BRANCHES if branch.latest} | {
        "450.80.01",
        "450.80.02",
        "525.60.12",
        "525.60.13",
    }
    for row in CORRESPONDING.values():
        for version in row.values():
            *begin, last = map(int, version.split("."))
            found |= {version, f"{begin[0] - 1 if begin else last - 1}.999"}
            found |= {".".join(map(str, (*begin, last - 1)))} if begin else {f"{last}.10"}
    return sorted(found, key=lambda one: [int(part) for part in one.split(".")])


def expected(cuda: str, driver: str) -> bool | None:
    """What the documents tell of a CUDA version on a driver, natively or by minor-version compatibility."""
    answers = (runs_natively(cuda, driver), runs_by_minor_version(cuda, driver))
    return True if True in answers else None if None in answers else False


def test_every_cuda_version_on_every_driver() -> None:
    counts: Counter[tuple[bool | None, bool | None]] = Counter()
    for cuda in CUDAS:
        minor = tuple(map(int, cuda.split(".")[:2]))
        for driver in drivers():
            told, said = expected(cuda, driver), judge_cuda(cuda, Host(driver))
            counts[told, RUNS[said.how]] += 1
            assert told is None or RUNS[said.how] in (told, None), (cuda, driver, told, said)
            if told is not None and minor >= OLDEST_TABLED:
                early = RUNS[said.how] is None and not told and _of_an_early_release(cuda, driver)
                assert RUNS[said.how] is told or early, (cuda, driver, told, said)
    print(f"{len(CUDAS)} CUDA versions on {len(drivers())} drivers, {sum(counts.values())} comparisons: {dict(counts)}")
    assert counts[True, True] > 5000 and counts[False, False] > 3000


def _of_an_early_release(cuda: str, driver: str) -> bool:
    """A driver of a toolkit's own branch, or that reports its version, but older than the release named for it: betas mostly.

    The documents name a newer one, and nvidia-smi of two such drivers claims the version all the same; gpudoctor says unknown.
    """
    row = CORRESPONDING[".".join(cuda.split(".")[:2])]
    named = row.get(cuda) or next(iter(row.values()))
    return cuda_offered(Host(driver)) == ".".join(cuda.split(".")[:2]) and _numbers(driver) < _numbers(named)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_native_is_what_the_documents_call_native() -> None:
    for cuda in CORRESPONDING:
        for driver in drivers():
            how, told = judge_cuda(cuda, Host(driver)).how, runs_natively(cuda, driver)
            assert how is not How.NATIVE or told is not False, (cuda, driver)
            assert how is not How.MINOR_VERSION or told is not True, (cuda, driver)


def test_packages_serve_the_branches_of_the_table_and_data_center_gpus_only() -> None:
    counts: Counter[str] = Counter()
    numbers = sorted({384, *(branch.number for branch in BRANCHES)})
    for cuda in COMPAT_MADE_FROM:
        for branch in numbers:
            for data_center in (True, False):
                host = Host(str(branch), gpus=(Gpu("one", "7.5", forward_compatible=data_center),))
                said, told = judge_cuda(cuda, host), compat_package_serves(cuda, branch, data_center)
                ours = _uses_package(said)
                counts[f"{told}, {ours}"] += 1
                if told is None or ours == told or said.how is How.NATIVE or not drives_turing(branch):
                    continue
                # Images of NVIDIA let themselves be started where the table has no column: the answer says so.
                assert ours and not told and told_by(str(COMPAT_MADE_FROM[cuda]), str(branch)) is Told.IMAGES, (
                    cuda,
                    said,
                )
                assert said.how is How.PACKAGE and "images" in " ".join(said.limits)
    print(f"{sum(counts.values())} packages on branches: {dict(counts)}")


def _uses_package(answer: Answer) -> bool:
    return answer.package != "" and answer.how in (How.PACKAGE, How.MINOR_VERSION)


def drives_turing(branch: int) -> bool:
    """Whether a branch drives the GPU of these hosts at all."""
    return branch >= 410


# Requirements ---------------------------------------------------------------------------------------------------------

HOSTS = [
    (branch.cuda, branch.latest or f"{branch.number}.99", arch, brand)
    for branch in BRANCHES
    for arch, brand in (("7.5", "tesla"), ("8.9", "geforce"), ("9.0", "unknown"), ("6.1", "titan"))
]


def _texts() -> list[str]:
    """The requirement of each image, put together from its row: the clause about CUDA, then each branch with each brand."""
    place = SHARED / "data" / "forward_compat.yaml"
    if not place.is_file():
        pytest.skip("the shared data about forward compatibility is not here")
    texts = []
    for row in yaml.safe_load(place.read_text("utf-8"))["image_requirements"]:
        brands = row["brands_last_branch"] if isinstance(row["brands_last_branch"], list) else ["tesla"]
        rows = [one for one in row["driver_branches"] if isinstance(one, int)]
        branches = [f"brand={brand},driver>={one},driver<{one + 1}" for one in rows for brand in brands]
        texts.append(" ".join([row["cuda_clause"], *branches]))
    return texts


def test_every_images_requirement_on_every_host() -> None:
    texts, compared = _texts(), 0
    outcomes: Counter[Outcome] = Counter()
    for text in texts:
        for cuda, driver, arch, brand in HOSTS:
            host = Host(driver, cuda, (Gpu("one", arch, brand=brand),))
            for word in (text, f"NVIDIA_REQUIRE_CUDA={text}"):
                said = judge_image(word, host).outcome
                told = requirement_holds(text, cuda, driver, arch, brand)
                assert {True: Outcome.MET, False: Outcome.UNMET, None: Outcome.INVALID}[told] is said, (
                    text,
                    driver,
                    brand,
                )
                outcomes[said] += 1
                compared += 1
    print(
        f"{len(texts)} requirements, {len(set(texts))} of them distinct, on {len(HOSTS)} hosts: {compared}, {dict(outcomes)}"
    )
    assert len(texts) >= 40 and min(outcomes[Outcome.MET], outcomes[Outcome.UNMET]) > 1000


# Captures -------------------------------------------------------------------------------------------------------------

EARLY = ("430.26", "440.31")
"""They say CUDA 10.2, for which its release notes name 440.33."""
NUMBER = r"(\d+(?:\.\d+)+)"
PAIRS = (
    rf"\| NVIDIA-SMI +\S+ +(?:Driver|KMD) Version: *{NUMBER} +CUDA(?: UMD)? Version: *{NUMBER}",
    rf"^Driver Version +: {NUMBER}.*\nCUDA Version +: {NUMBER}",
    rf"<driver_version>\s*{NUMBER}\s*</driver_version>\s*<cuda_version>\s*{NUMBER}\s*</cuda_version>",
    rf"^DRIVER version +: {NUMBER}\s*\nCUDA [Vv]ersion +: {NUMBER}",
)


def _captures(corpus: Path) -> Iterator[tuple[str, str]]:
    """Every text of the corpus that may hold what nvidia-smi printed."""
    for place in sorted(one for one in corpus.rglob("*") if one.is_file() and one.parent != corpus):
        name = str(place.relative_to(corpus))
        if name.endswith(".tar.gz"):
            with tarfile.open(place) as archive:
                for member in archive:
                    file = archive.extractfile(member) if member.isfile() and "smi" in member.name else None
                    if file is not None:
                        yield f"{name}/{member.name}", file.read().decode("utf-8", "replace")
        elif name.endswith(".gz"):
            yield name, gzip.decompress(place.read_bytes()).decode("utf-8", "replace")
        else:
            yield name, place.read_bytes().decode("utf-8", "replace")


def test_driver_and_cuda_of_every_capture(corpus: Path) -> None:
    pairs = {
        (name, driver, cuda)
        for name, text in _captures(corpus)
        for pattern in PAIRS
        for driver, cuda in re.findall(pattern, text, re.MULTILINE)
    }
    unlike, unknown, windows = [], [], 0
    for name, driver, cuda in sorted(pairs):
        host = Host(driver, windows=driver in WINDOWS)
        windows += host.windows
        ours = cuda_offered(host)
        if ours is None:
            unknown.append((driver, cuda, offer_of(host).words))
            assert judge_cuda(cuda, host).how in (How.UNKNOWN, How.MINOR_VERSION), name
        elif ours != cuda:
            unlike.append((name, driver, cuda, ours))
        elif cuda != "12.7":
            assert judge_cuda(cuda, host).how is (How.UNKNOWN if driver in EARLY else How.NATIVE), (
                name,
                driver,
                cuda,
            )
    distinct = len({pair[1:] for pair in pairs})
    print(
        f"{len(pairs)} captures with driver and CUDA ({distinct} distinct pairs, {windows} of Windows), unknown: {unknown}"
    )
    assert not unlike
    assert len(pairs) >= 100
