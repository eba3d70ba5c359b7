"""Known vulnerabilities of what is installed: who is affected, who is not, who cannot tell; told only when asked for."""

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.raw import CommandOutput
from gpudoctor.knowledge.advisories import ADVISORIES, DRIVER_BRANCHES, affected, fix_for, order
from gpudoctor.report import Finding
from gpudoctor.verdicts import Status
from tests.test_toolkit_config import CONFIG, RUNTIME, ToolkitNode

CHECK = "toolkit.known-vulnerabilities"
ASKED = Config(advisories=True)


def told(node: ToolkitNode) -> dict[str, Finding]:
    """The findings by subject."""
    return {finding.subject.key: finding for finding in node.judge(CHECK, ASKED).findings}


def toolkit(release: str, text: str = "") -> Finding:
    """What is said of a toolkit."""
    node = ToolkitNode(release)
    node.text(CONFIG, text)
    return told(node)["nvidia-container-toolkit"]


def with_packages(**versions: str) -> ToolkitNode:
    """A node with these packages alone."""
    node = ToolkitNode(None)
    node.packages(**versions)
    return node


def test_nothing_is_said_unless_it_is_asked_for() -> None:
    result = ToolkitNode("1.10.0").judge(CHECK)
    assert result.status is Status.SKIP
    assert "advisories = true" in result.findings[0].summary


@pytest.mark.parametrize(
    ("release", "text", "has", "has_not"),
    [
        ("1.16.1", "", ("CVE-2024-0132", "CVE-2025-23359"), ("CVE-2025-23266",)),
        ("1.16.1", f'{RUNTIME}mode = "cdi"\n', ("CVE-2025-23266",), ("CVE-2024-0132", "CVE-2025-23359")),
        ("1.17.4", "", ("CVE-2026-24260",), ("CVE-2025-23266", "CVE-2025-23359")),
        ("1.17.7", "", ("CVE-2025-23266", "CVE-2025-23267"), ("CVE-2025-23359",)),
        ("1.17.7", "[features]\ndisable-cuda-compat-lib-hook = true\n", ("CVE-2025-23267",), ("CVE-2025-23266",)),
        ("1.17.8", "", ("CVE-2026-24260",), ("CVE-2025-23266",)),
        ("1.19.0", "", ("CVE-2026-24260", "Fixed upstream in 1.19.1", "2026-11-29"), ()),
    ],
)
def test_the_toolkit_by_release_and_by_what_is_in_use(
    release: str, text: str, has: tuple[str, ...], has_not: tuple[str, ...]
) -> None:
    finding = toolkit(release, text)
    assert finding.status is Status.WARN
    assert all(word in finding.summary for word in has), finding.summary
    assert not any(word in finding.summary for word in has_not), finding.summary


@pytest.mark.parametrize(
    ("release", "ids"),
    [
        ("1.16.1", ("CVE-2024-0132", "CVE-2024-0133", "CVE-2024-0134", "CVE-2024-0136", "CVE-2024-0137")),
        ("1.16.2", ("CVE-2024-0134", "CVE-2024-0135")),
        ("1.17.0", ("CVE-2024-0135", "CVE-2024-0136", "CVE-2024-0137")),
    ],
)
def test_every_bulletin_of_a_release_is_named(release: str, ids: tuple[str, ...]) -> None:
    assert all(one in toolkit(release).summary for one in ids)


def test_a_fixed_toolkit_passes_with_the_tables_date() -> None:
    for release in ("1.19.1", "1.20.0"):
        assert toolkit(release).status is Status.PASS
        assert "2026-11-29" in toolkit(release).summary


def test_the_vendors_build_is_affected_and_the_distributions_is_to_be_looked_up() -> None:
    node = with_packages(**{"containerd.io": "1.7.28-1~debian.12~bookworm"})
    assert "Fixed upstream in 1.7.32" in told(node)["containerd"].summary
    node.daemon("kubelet")
    ours = told(node)["containerd"]
    assert "containerd 1.7.28 has" in ours.summary
    assert "Fixed upstream in 1.7.33" in ours.summary
    theirs = told(with_packages(runc="1.1.5+ds1-1+deb12u1", containerd="1.6.20~ds1-1+deb12u1"))
    assert "is a distribution's build: check its advisories" in theirs["runc"].summary
    assert theirs["containerd"].status is Status.WARN


def test_dockers_authorization_plugins() -> None:
    node = with_packages(**{"docker-ce": "5:27.0.3-1~ubuntu.22.04~jammy"})
    assert told(node)["docker"].status is Status.PASS
    assert "not in use" in told(node)["docker"].summary
    node.text("/etc/docker/daemon.json", '{"authorization-plugins": ["x"]}')
    assert "CVE-2024-41110" in told(node)["docker"].summary
    node.packages(**{"docker-ce": "5:29.3.1-1~ubuntu.22.04~jammy"})
    assert told(node)["docker"].status is Status.PASS


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [
        ("580.95.05", Status.WARN, "580.178.04"),
        ("580.178.04", Status.PASS, "580.178.04"),
        ("550.163.01", Status.WARN, "fixes other branches only"),
        ("550.90.07", Status.WARN, "550.163.01"),
        ("620.10.01", Status.PASS, "newer than all in the table"),
        ("560.35.03", Status.UNKNOWN, "names branch 560"),
    ],
)
def test_the_driver_within_its_branch(version: str, status: Status, words: str) -> None:
    node = ToolkitNode()
    node.text("/proc/modules", "nvidia 56832000 3 nvidia_uvm, Live 0x0000000000000000 (OE)\n")
    node.text("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  x\n")
    finding = told(node)["nvidia-driver"]
    assert finding.status is status
    assert words in finding.summary, finding.summary


def test_without_versions_nothing_passes() -> None:
    node = ToolkitNode(None, complete=())
    node.commands = [CommandOutput(("x",), 1, "")]
    findings = told(node).values()
    assert findings
    assert not any(finding.status is Status.PASS for finding in findings)


@pytest.mark.parametrize("advisory", ADVISORIES, ids=lambda advisory: advisory.id)
def test_each_fix_is_a_fix_and_the_release_before_it_is_not(advisory: object) -> None:
    for known in ADVISORIES:
        if known is not advisory:
            continue
        for fix in known.fixed:
            assert not affected(known, fix), fix
            major, minor, patch, _ = order(fix)
            if patch:
                before = f"{major}.{minor}.{patch - 1}"
                assert affected(known, before), before
                assert fix_for(known, before) == fix
        assert not affected(known, "99.0.0")


def test_release_candidates_are_older_than_their_release() -> None:
    runc = next(one for one in ADVISORIES if one.id == "CVE-2025-31133")
    assert affected(runc, "1.4.0-rc.2")
    assert not affected(runc, "1.4.0-rc.3")
    assert affected(runc, "1.1.15")
    assert fix_for(runc, "1.1.15") == "1.2.8"


def test_the_branches_of_the_driver_are_in_order() -> None:
    numbers = [row.branch for row in DRIVER_BRANCHES]
    assert numbers == sorted(set(numbers), reverse=True)
