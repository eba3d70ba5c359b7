"""Real config.toml files, as nvidia-ctk and others wrote them, each under its own release: they parse and nothing is said against them."""

import os
import re
from pathlib import Path

import pytest

from gpudoctor.verdicts import Status
from tests.test_toolkit_config import CONFIG, ToolkitNode

SHARED = Path(os.environ.get("GPUDOCTOR_SHARED", Path(__file__).resolve().parent.parent.parent / "shared"))
RIG = sorted((SHARED / "rig/toolkit").glob("*/config.toml"))
FOREIGN = {
    "deepops-rootless-config.toml": ("1.10.0", "no-cgroups is on"),
    "kind-nvidia-cdi-runtime.toml": ("1.20.0", "mode cdi"),
    "nebius-config.toml": ("1.17.8", "no release reads nvidia-container-cli.options"),
}
TRANSCRIPTS = sorted((SHARED / "corpus/container-oci").glob("toolkit-v*-transcript.txt"))

pytestmark = pytest.mark.skipif(not RIG, reason=f"{SHARED}: no captures there")


@pytest.mark.parametrize("file", RIG, ids=lambda file: file.parent.name)
def test_what_nvidia_ctk_wrote_is_read_whole_by_its_release(file: Path) -> None:
    release = file.parent.name
    node = ToolkitNode(release)
    node.text(CONFIG, file.read_text())
    result = node.judge()
    assert result.status is Status.PASS, result.detail
    summary = result.findings[0].summary
    assert f"every key is read by nvidia-container-toolkit {release}" in summary
    assert ("jit-cdi" if release >= "1.18" else "legacy") in summary


def test_all_releases_of_the_rig_are_there() -> None:
    assert len(RIG) >= 4


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_others_are_silent(name: str) -> None:
    release, words = FOREIGN[name]
    node = ToolkitNode(release)
    if name.startswith("deepops"):
        # Ubuntu's: its ldconfig is a script around ldconfig.real.
        node.program("/sbin/ldconfig.real")
        node.daemon("dockerd", rootless=True)
    node.text("/etc/cdi/nvidia.yaml", "")
    node.text(CONFIG, (SHARED / "corpus/container-config" / name).read_text())
    result = node.judge()
    assert result.status is Status.PASS, result.detail
    assert words in result.findings[0].summary, result.findings[0].summary


@pytest.mark.parametrize("file", TRANSCRIPTS, ids=lambda file: file.name)
def test_the_mode_of_a_transcript_is_one_that_its_release_knows(file: Path) -> None:
    """They were made by setting modes with sed and looking at the hooks: legacy's, or those of CDI."""
    release = file.name.split("-")[1].removeprefix("v")
    modes = set(re.findall(r"sed -i s/auto/([\w-]+)/g", file.read_text())) | {"auto"}
    for mode in modes:
        node = ToolkitNode(release)
        node.text("/etc/cdi/nvidia.yaml", "")
        node.text(CONFIG, f'[nvidia-container-runtime]\nmode = "{mode}"\n')
        result = node.judge()
        assert result.status is Status.PASS, (mode, result.detail)
        assert mode in result.findings[0].summary
    prestart = re.search(r'"prestart": \[\s*\{\s*"path": "([^"]+)"', file.read_text())
    assert prestart is None or prestart[1].startswith(("/usr/bin/nvidia-container", "/proc/")), prestart
