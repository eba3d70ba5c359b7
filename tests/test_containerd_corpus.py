"""Real containerd configurations (../shared): of clouds and distributions, and what the toolkit's releases wrote."""

import re
from pathlib import Path

import pytest

from gpudoctor.report import Report
from gpudoctor.verdicts import Status
from tests.captures import crashed
from tests.containerd_node import CONFIG_CHECK, LOADED_CHECK, MAIN, RUNTIME, RUNTIME_CHECK, ContainerdNode

CHECKS = (CONFIG_CHECK, RUNTIME_CHECK, LOADED_CHECK)
ALARMS = (Status.WARN, Status.FAIL)
HEALTHY = {
    "aks-gb200-containerd-nvidia.toml": "1.7.27-1",
    "containerd-default-1.6.toml": "1.6.20-1",
    "containerd-default-1.7.toml": "1.7.27-1",
    "eks-containerdv1-config-containerd-config-pre-1.32.toml": "1.7.27-1",
    "eks-containerdv1-config-containerd-config.toml": "1.7.27-1",
    "eks-containerdv2-config-containerd-configv2.toml": "2.1.4-1",
    "eks-containerdv2-config-containerd-configv3.toml": "2.1.4-1",
    "salilkadam-containerd-v2-cdi.toml": "1.7.27-1",
}
"""Each with the release of containerd that it is for."""

WRITTEN = "*/containerd.*.toml"
"""What nvidia-ctk left for containerd, by release."""

RELEASES = {"default6": "1.6.20-1", "default21": "2.1.9-1", "dropin": "2.1.9-1", "none": "1.7.27-1", "v1": "1.6.20-1"}
"""The rig's cases with the release that their main file comes from; `none` and `v1` have no file, or one without version, before."""


@pytest.fixture
def shared(corpus: Path) -> Path:
    """The shared material."""
    return corpus.parent


def judge(node: ContainerdNode) -> Report:
    """The report, in which nothing crashed."""
    report = node.diagnose()
    assert not crashed(report), crashed(report)
    return report


def summaries(report: Report) -> str:
    """All that the three checks say."""
    return "\n".join(finding.summary for check in CHECKS for finding in report.result(check).findings)


@pytest.mark.parametrize("kubelet", [True, False])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_configuration_is_silent(shared: Path, name: str, *, kubelet: bool) -> None:
    text = (shared / "corpus" / "container-config" / name).read_text()
    node = ContainerdNode(HEALTHY[name], kubelet=kubelet, toolkit="nvidia" in text)
    node.config(text, "/etc/containerd/config.toml")
    report = judge(node)
    assert not [check for check in CHECKS if report.result(check).status in ALARMS], summaries(report)
    assert report.result(CONFIG_CHECK).status is Status.PASS
    assert (report.result(RUNTIME_CHECK).status is Status.PASS) is name.startswith("aks"), summaries(report)


def test_every_file_of_the_corpus_is_met(shared: Path) -> None:
    found = {path.name for path in (shared / "corpus" / "container-config").glob("*containerd*.toml")}
    assert found == set(HEALTHY)


def test_the_cdi_node_finds_its_specs(shared: Path) -> None:
    node = ContainerdNode("1.7.27-1")
    node.config((shared / "corpus" / "container-config" / "salilkadam-containerd-v2-cdi.toml").read_text())
    node.text("/etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n")
    assert judge(node).result(RUNTIME_CHECK).status is Status.PASS


def rig_cases(shared: Path) -> dict[tuple[str, str], dict[str, str]]:
    """The trees that each release of the toolkit left: by release and case, files by path."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for path in sorted((shared / "rig" / "toolkit").glob(WRITTEN)):
        case, _, place = path.name.removeprefix("containerd.").partition("_etc_")
        place = place.replace("containerd_conf.d_", "containerd/conf.d/").replace("containerd_", "containerd/")
        found.setdefault((path.parent.name, case), {})[f"/etc/{place}"] = path.read_text()
    return found


def test_what_every_release_of_the_toolkit_wrote(shared: Path) -> None:
    cases = rig_cases(shared)
    assert len(cases) >= 60
    for (release, case), files in cases.items():
        node = ContainerdNode(RELEASES[case.partition(".")[0]])
        for path, text in files.items():
            node.config(text, path)
        report = judge(node)
        config, runtime = report.result(CONFIG_CHECK), report.result(RUNTIME_CHECK)
        said = f"{release} {case}: {summaries(report)}"
        log = (shared / "rig" / "toolkit" / release / f"containerd.{case}.log").read_text()
        if "rc=1" in log:
            # It does not know version 3 and left the file as it was; containerd itself has no fault.
            assert (config.status, runtime.status) == (Status.PASS, Status.WARN), said
        elif case.startswith("v1") and len(files) > 1:
            # Since 1.18 it writes a drop-in, and gives a main file that is of version 1 no line that imports it.
            assert config.status is Status.FAIL and "does not import" in said, said
        elif case.startswith(("v1", "none")) and "default" not in case:
            # Only nvidia is among its runtimes: 1.x has no runc then, which is still the default. containerd 1.6.20 says so itself.
            assert (config.status, runtime.status) == (Status.PASS, Status.FAIL), said
            assert "default_runtime_name is 'runc', which runtimes does not define" in said
        else:
            assert (config.status, runtime.status) == (Status.PASS, Status.PASS), said
            assert RUNTIME in said


def test_a_file_with_nvidia_alone_is_sound_in_2_x(shared: Path) -> None:
    for (release, case), files in rig_cases(shared).items():
        if case == "none":
            node = ContainerdNode("2.1.9-1")
            for path, text in files.items():
                node.config(text, path)
            assert judge(node).result(RUNTIME_CHECK).status is Status.PASS, release


def test_issues_that_people_reported(shared: Path) -> None:
    folder = shared / "corpus" / "issue-excerpts"
    k0s = ContainerdNode()
    k0s.config((folder / "containerd-k0s-disabled-cri.toml").read_text())
    assert "names the plugin 'cri'" in summaries(judge(k0s))
    gone = ContainerdNode()
    text = (folder / "containerd-v2-operator-nvidia-experimental.toml").read_text()
    gone.config(text)
    assert "stops all pods" in summaries(judge(gone))
    # NVIDIA/gpu-operator#413: the runtime was there, containerd had not been restarted.
    late = ContainerdNode()
    late.config(text, later=900)
    for program in set(re.findall(r'BinaryName = "(.*)"', text)):
        late.program(program)
    late.crictl({"runc": ""})
    assert "does not know runtime nvidia" in summaries(judge(late))
    k3s = ContainerdNode(toolkit=False)
    k3s.config((folder / "containerd-v2-k3s-generated-no-nvidia.toml").read_text(), MAIN)
    assert not [check for check in CHECKS if judge(k3s).result(check).status in ALARMS], summaries(judge(k3s))
