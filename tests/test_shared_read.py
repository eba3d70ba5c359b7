"""No file of the captures of engines and toolkit lies unread: each is in what some test goes over, or it is said why nothing is in it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests import (
    test_cdi_corpus,
    test_confinement,
    test_containerd_corpus,
    test_docker_corpus,
    test_engines_corpus,
    test_oci_transcripts,
    test_rig_docker,
    test_rig_toolkit,
    test_toolkit_corpus,
)
from tests.conftest import SHARED
from tests.rig_docker import DOCKER, RELEASES, TOOLKIT

CORPUS = SHARED / "corpus"
FOLDERS: Mapping[Path, int] = {
    DOCKER: 318,
    TOOLKIT: 327,
    CORPUS / "container-cdi": 4,
    CORPUS / "container-config": 15,
    CORPUS / "container-oci": 5,
}
"""With how many files each has."""
EMPTY = {
    "config.toml.err": "what `nvidia-ctk config default` said on stderr, which is nothing",
    "create-device-nodes.txt": "what a command that makes device nodes said of where it makes them; the doctor never runs it",
}

pytestmark = pytest.mark.skipif(not DOCKER.is_dir(), reason=f"{SHARED}: no captures there")


def of_docker() -> Iterator[Path]:
    """rig/docker."""
    for one in test_rig_docker.ALL:
        yield from test_rig_docker.read_of(one)
    for release in RELEASES:
        yield from (DOCKER / release / name for name in test_rig_docker.OF_DAEMONS)


def of_toolkit() -> Iterator[Path]:
    """rig/toolkit."""
    yield from test_rig_toolkit.CONFIGURED
    yield from test_rig_toolkit.GENERATED
    for release in test_rig_toolkit.RELEASES:
        yield from (TOOLKIT / release / name for name in ("version.txt", "cdi-list.txt"))
    yield from (TOOLKIT / f"containerd-{release}.config-default.toml" for release in test_rig_toolkit.CONTAINERDS)
    for name in (*test_rig_toolkit.SICK_SPECS, *test_rig_toolkit.REFUSED):
        yield test_rig_toolkit.SICK / f"cdi-generate.{name}.txt"
    yield from test_rig_toolkit.PRINTED
    yield from test_cdi_corpus.MADE
    yield from test_toolkit_corpus.RIG
    yield from test_engines_corpus.written_for_crio()
    yield from TOOLKIT.glob(test_containerd_corpus.WRITTEN)
    yield from test_docker_corpus.FILES


def of_corpus() -> Iterator[Path]:
    """The folders of the corpus."""
    yield from (CORPUS / "container-cdi" / name for name in test_cdi_corpus.JUDGED)
    configs = CORPUS / "container-config"
    yield from (configs / name for name in (*test_containerd_corpus.HEALTHY, *test_toolkit_corpus.FOREIGN))
    yield from test_docker_corpus.FILES
    yield test_confinement.CORPUS
    yield from test_oci_transcripts.SESSIONS


def test_every_file_is_read_or_there_is_nothing_in_it() -> None:
    read = {path.resolve() for path in (*of_docker(), *of_toolkit(), *of_corpus())}
    for folder, count in FOLDERS.items():
        lying = {path.resolve() for path in folder.rglob("*") if path.is_file()}
        unread = {path for path in lying - read if path.name not in EMPTY}
        assert not unread, sorted(unread)
        assert len(lying) == count, (folder, len(lying))


def test_what_is_said_to_hold_nothing_holds_nothing() -> None:
    found = {name: sorted(TOOLKIT.glob(f"*/{name}")) for name in EMPTY}
    assert {name: len(paths) for name, paths in found.items()} == dict.fromkeys(EMPTY, 4)
    for path in found["config.toml.err"]:
        assert path.read_text("utf-8") == ""
    for path in found["create-device-nodes.txt"]:
        assert path.read_text("utf-8") == "" or "Using dev-root" in path.read_text("utf-8")
