"""config.toml, programs and packages of the toolkit as the installed release takes them: mistakes, look-alikes, what is not seen."""

import datetime

import pytest

from gpudoctor.config import Config
from gpudoctor.facts.raw import CommandOutput, Entry, EntryType
from gpudoctor.facts.software import PACKAGES as ASKED
from gpudoctor.facts.software import QUERY_DPKG
from gpudoctor.registry import built_in
from gpudoctor.report import Result
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.verdicts import Status
from tests.captures import Builder

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.timezone.utc)
CONFIG = "/etc/nvidia-container-runtime/config.toml"
OPERATOR = "/usr/local/nvidia/toolkit"
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)


class ToolkitNode(Builder):
    """A node with a toolkit of one release, runc and ldconfig."""

    def __init__(self, release: str | None = "1.17.8", complete: tuple[str, ...] = ("/",)) -> None:
        super().__init__()
        self.complete = list(complete)
        self.commands: list[CommandOutput] = []
        for program in ("runc", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-ctk"):
            self.program(f"/usr/bin/{program}")
        for path in ("/usr/bin/nvidia-container-cli", "/usr/bin/nvidia-cdi-hook", "/sbin/ldconfig"):
            self.program(path)
        self.program("/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1")
        if release is not None:
            self.packages(**dict.fromkeys(PACKAGES, f"{release}-1"))
        self.text("/proc/1/cgroup", "0::/init.scope\n")
        self.text("/proc/1/stat", "1 (systemd) S 0 1 " + "0 " * 16 + "1 0 0\n")

    def program(self, path: str, mode: int = 0o755) -> None:
        """An executable file."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode=mode)))

    def packages(self, **versions: str) -> None:
        """What dpkg tells."""
        self.text("/var/lib/dpkg/status", "")
        told = "".join(f"{name}\t{version}\tinstalled\n" for name, version in versions.items())
        self.commands = [CommandOutput((*QUERY_DPKG, *ASKED), 1, told)]

    def daemon(self, comm: str, *, rootless: bool = False, home: str = "") -> None:
        """A running engine, PID 1 being the host's."""
        for pid, name, user in ((1, "systemd", 1), (70, comm, 2 if rootless else 1)):
            self.text(f"/proc/{pid}/cgroup", "0::/system.slice/x.service\n")
            self.text(f"/proc/{pid}/stat", f"{pid} ({name}) S 1 {pid} " + "0 " * 16 + "9 0 0\n")
            self.text(f"/proc/{pid}/cmdline", f"/usr/bin/{name}\0")
            for space, number in (("mnt", 4), ("pid", 5), ("user", user)):
                self.link(f"/proc/{pid}/ns/{space}", f"{space}:[{number}]")
        if home:
            self.text("/proc/70/environ", f"XDG_CONFIG_HOME={home}\0")

    def without(self, path: str) -> None:
        """A file less."""
        self.tree.records.pop(path)
        parent, _, name = path.rpartition("/")
        self.tree.children[parent].discard(name)

    def judge(self, check: str = "toolkit.runtime-config", config: Config | None = None) -> Result:
        """How a check ends here."""
        node = RecordedNode(self.tree, complete=self.complete, uid=0)
        node.commands.update({told.argv: told for told in self.commands})
        report = run(node, config or Config(), built_in(), Selection(checks=(check,)), NOW)
        return report.result(check)


def judged(text: str, release: str | None = "1.17.8") -> Result:
    """The check of the file on a node that has all that the file can speak of."""
    node = ToolkitNode(release)
    node.text(CONFIG, text)
    return node.judge()


CLI, RUNTIME = "[nvidia-container-cli]\n", "[nvidia-container-runtime]\n"


@pytest.mark.parametrize(
    ("text", "release", "words"),
    [
        ('[nvidia-container-runtime\nmode = "auto"\n', "1.17.8", "line 1 column"),
        (f"{CLI}no-cgroups = true\nno-cgroups = false\n", "1.17.8", "line 3"),
        (f'{CLI}no-cgroups = "true"\n', "1.17.8", "no-cgroups must be true or false, not a text"),
        (f'{RUNTIME}runtimes = "runc"\n', "1.17.8", "runtimes must be a list of texts"),
        (f"{RUNTIME}runtimes = []\n", "1.17.8", "is empty"),
        ('nvidia-container-cli = "x"\n', "1.17.8", "must be a table"),
        (f'{RUNTIME}mode = "CDI"\n', "1.18.0", "is 'CDI', which no release knows"),
        (f'{RUNTIME}mode = "jit-cdi"\n', "1.17.8", "known since 1.18.0"),
        (f'{RUNTIME}runtimes = ["youki"]\n', "1.18.0", "youki is on the PATH"),
        (f'{CLI}ldconfig = "/sbin/ldconfig"\n', "1.17.3", "without a leading @"),
        (f'{CLI}ldconfig = "@/sbin/ldconfig.real"\n', "1.14.6", "/sbin/ldconfig.real, which is not there"),
        (f'{CLI}root = "/run/nvidia/driver"\n', "1.17.8", "driver root /run/nvidia/driver does not exist"),
        ('supported-driver-capabilities = "compute,cuda"\n', "1.17.8", "names 'cuda'"),
    ],
)
def test_what_keeps_every_container_from_starting_fails_with_its_place(text: str, release: str, words: str) -> None:
    result = judged(text, release)
    assert result.status is Status.FAIL
    assert [finding.subject.key for finding in result.findings] == [CONFIG]
    shown = result.findings[0].summary + " ".join(seen.shows for seen in result.findings[0].evidence)
    assert words in shown, shown


@pytest.mark.parametrize(
    ("text", "release", "words"),
    [
        (f"{CLI}no-cgroup = true\n", "1.17.8", "nvidia-container-cli.no-cgroups is like it"),
        ("no-cgroups = true\n", "1.17.8", "belongs where it reads nvidia-container-cli.no-cgroups"),
        (f'{CLI}mode = "cdi"\n', "1.17.8", "belongs where it reads nvidia-container-runtime.mode"),
        ('[nvidia-container-runtimes]\nmode = "cdi"\n', "1.17.8", "nvidia-container-runtime is like it"),
        ("[features]\ndisable-cuda-compat-lib-hook = true\n", "1.17.4", "read from 1.17.5 on"),
        ("[features]\ngds = true\n", "1.17.8", "read before 1.17.0"),
        (f'{CLI}ldconfig = "/sbin/ldconfig"\n', "1.16.2", "without a leading @"),
        ('[nvidia-container-runtime.modes.legacy]\ncuda-compat-mode = "off"\n', "1.17.8", "counts as disabled"),
    ],
)
def test_what_is_silently_not_in_force_warns(text: str, release: str, words: str) -> None:
    result = judged(text, release)
    assert result.status is Status.WARN
    assert words in result.findings[0].summary, result.findings[0].summary


@pytest.mark.parametrize(
    ("text", "release", "words"),
    [
        ("", "1.17.8", "means legacy"),
        ("", "1.18.0", "means jit-cdi"),
        (f'{CLI}ldconfig = "@/sbin/ldconfig.real"\n', "1.15.0", "every key is read"),
        (f'{CLI}ldconfig = "/sbin/ldconfig"\n[features]\nallow-ldconfig-from-container = true\n', "1.18.0", "is on"),
        (f'{RUNTIME}mode = "jit-cdi"\n', "1.18.0", "mode jit-cdi"),
        (f"{CLI}no-cgroups = true\n", "1.17.8", "as rootless engines need it"),
        ("[nvidia-container-cli.options]\nx = 1\n", "1.17.8", "no release reads nvidia-container-cli.options"),
        ("[features]\ngds = true\n", "1.16.2", "every key is read"),
        ("\ufeffdisable-require = true\n", "1.17.8", "disable-require is on"),
    ],
)
def test_what_the_release_takes_passes(text: str, release: str, words: str) -> None:
    result = judged(text, release)
    assert result.status is Status.PASS, result.detail
    assert words in result.findings[0].summary, result.findings[0].summary


def test_without_a_known_release_nothing_that_some_release_reads_is_wrong() -> None:
    result = judged(f'{RUNTIME}mode = "jit-cdi"\n[features]\ngds = true\nignore-imex-channel-requests = true\n', None)
    assert result.status is Status.PASS
    assert "the installed one is not known" in result.findings[0].summary
    auto = judged("", None)
    assert "legacy before 1.18.0 and jit-cdi since" in auto.findings[0].summary


def test_no_cgroups_is_wrong_where_an_engine_is_rootful_and_the_hook_is_used() -> None:
    for release, rootless, mode, status in (
        ("1.17.8", False, "auto", Status.FAIL),
        ("1.17.8", True, "auto", Status.PASS),
        ("1.18.0", False, "auto", Status.PASS),
        ("1.18.0", False, "legacy", Status.FAIL),
        ("1.17.8", False, "cdi", Status.PASS),
    ):
        node = ToolkitNode(release)
        node.text(CONFIG, f'{CLI}no-cgroups = true\n{RUNTIME}mode = "{mode}"\n')
        node.daemon("dockerd", rootless=rootless)
        node.text("/etc/cdi/nvidia.yaml", "")
        result = node.judge()
        assert result.status is status, (release, rootless, mode, result.detail)
        if status is Status.FAIL:
            assert "dockerd runs rootful" in result.findings[0].summary


def test_the_file_of_a_rootless_engine_is_read_at_its_own_place() -> None:
    node = ToolkitNode()
    node.daemon("dockerd", rootless=True, home="/home/u/.config")
    node.text("/home/u/.config/nvidia-container-runtime/config.toml", "[nvidia-container-cli\n")
    result = node.judge()
    assert result.status is Status.FAIL
    assert result.findings[0].subject.key.startswith("/home/u/.config/")


def test_a_node_that_shows_no_ldconfig_at_all_says_nothing_of_it() -> None:
    node = ToolkitNode("1.14.6")
    node.without("/sbin/ldconfig")
    node.text(CONFIG, f'{CLI}ldconfig = "@/sbin/ldconfig.real"\n')
    assert node.judge().status is Status.PASS
    node.program("/usr/sbin/ldconfig")
    assert node.judge().status is Status.FAIL


def test_mode_cdi_without_any_specification() -> None:
    node = ToolkitNode()
    node.text(CONFIG, f'{RUNTIME}mode = "cdi"\n')
    assert "none of its folders holds a CDI specification" in node.judge().findings[0].summary
    node.text("/run/cdi/nvidia.yaml", "")
    assert node.judge().status is Status.PASS
    unseen = ToolkitNode(complete=("/etc/nvidia-container-runtime",))
    unseen.text(CONFIG, f'{RUNTIME}mode = "cdi"\n')
    assert unseen.judge().status is Status.PASS


def test_two_faults_are_two() -> None:
    result = judged(f'{CLI}no-cgroup = true\n{RUNTIME}mode = "leagcy"\n')
    assert {finding.cause for finding in result.findings} == {"mode", "misspelt"}


def test_an_empty_driver_root_and_a_driver_root_that_is_not_named() -> None:
    node = ToolkitNode()
    node.text(CONFIG, f'{CLI}root = "/run/nvidia/driver"\nldconfig = "@/run/nvidia/driver/sbin/ldconfig"\n')
    node.tree.put("/run/nvidia/driver", Record(entry=Entry("/run/nvidia/driver", EntryType.DIR)))
    assert [finding.cause for finding in node.judge().findings] == ["root"]
    node.program("/run/nvidia/driver/sbin/ldconfig")
    node.program("/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    assert node.judge().status is Status.PASS
    node.text(CONFIG, "")
    assert "does not name it" in node.judge().findings[0].summary
    node.program("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    assert node.judge().status is Status.PASS


def test_the_operators_file_is_judged_beside_the_default_one_but_not_by_its_release() -> None:
    node = ToolkitNode("1.17.8")
    node.text(CONFIG, "")
    node.text(f"{OPERATOR}/.config/nvidia-container-runtime/config.toml", f'{RUNTIME}mode = "jit-cdi"\n')
    result = node.judge()
    assert result.status is Status.PASS
    assert len(result.findings) == 2


def test_what_is_not_seen_is_no_pass() -> None:
    bare = ToolkitNode(complete=())
    assert bare.judge().status is Status.UNKNOWN
    absent = ToolkitNode()
    assert absent.judge().status is Status.SKIP
    denied = ToolkitNode()
    denied.tree.put(CONFIG, Record(error="EACCES"))
    assert (denied.judge().status, denied.judge().why) == (Status.UNKNOWN, "no-permission")


PROGRAMS = "toolkit.programs-present"


def test_programs_that_packages_bring() -> None:
    assert ToolkitNode().judge(PROGRAMS).status is Status.PASS
    for program in ("nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-container-cli", "nvidia-ctk"):
        node = ToolkitNode()
        node.without(f"/usr/bin/{program}")
        result = node.judge(PROGRAMS)
        assert result.status is Status.FAIL, program
        assert result.findings[0].summary.startswith(f"{program} is not there")
        node.program(f"/usr/bin/{program}", 0o644)
        assert node.judge(PROGRAMS).status is Status.FAIL


def test_programs_without_packages_are_judged_by_what_leans_on_them() -> None:
    node = ToolkitNode(None)
    node.without("/usr/bin/nvidia-cdi-hook")
    assert node.judge(PROGRAMS).status is Status.PASS
    node.without("/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1")
    assert node.judge(PROGRAMS).status is Status.PASS
    packaged = ToolkitNode()
    packaged.without("/usr/lib/x86_64-linux-gnu/libnvidia-container.so.1")
    assert "libnvidia-container.so.1 is not there" in packaged.judge(PROGRAMS).findings[0].summary
    node.without("/usr/bin/nvidia-container-cli")
    assert "nvidia-container-cli is not there" in node.judge(PROGRAMS).findings[0].summary
    node.without("/usr/bin/nvidia-container-runtime-hook")
    assert node.judge(PROGRAMS).status is Status.PASS


def test_the_base_package_alone_is_complete_and_older_releases_had_no_cdi_hook() -> None:
    node = ToolkitNode(None)
    node.packages(**{"nvidia-container-toolkit-base": "1.15.0-1"})
    for program in ("nvidia-container-runtime-hook", "nvidia-container-cli", "nvidia-cdi-hook"):
        node.without(f"/usr/bin/{program}")
    assert node.judge(PROGRAMS).status is Status.PASS
    node.packages(**{"nvidia-container-toolkit-base": "1.16.0-1"})
    assert "nvidia-cdi-hook is not there" in node.judge(PROGRAMS).findings[0].summary


def test_the_operators_folder() -> None:
    node = ToolkitNode(None)
    for name in ("nvidia-container-runtime", "nvidia-container-cli", "nvidia-ctk"):
        node.program(f"{OPERATOR}/{name}")
        node.program(f"{OPERATOR}/{name}.real")
    assert node.judge(PROGRAMS).status is Status.PASS
    node.without(f"{OPERATOR}/nvidia-container-cli.real")
    assert "lacks nvidia-container-cli.real" in node.judge(PROGRAMS).findings[0].summary


def test_programs_not_seen_and_not_there() -> None:
    empty = Builder()
    for complete, status in ((["/"], Status.SKIP), ([], Status.UNKNOWN)):
        node = RecordedNode(empty.tree, complete=complete, uid=0)
        report = run(node, Config(), built_in(), Selection(checks=(PROGRAMS,)), NOW)
        assert report.result(PROGRAMS).status is status


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"nvidia-container-toolkit-base": "1.17.7-1"}, "nvidia-container-toolkit-base is 1.17.7"),
        ({"libnvidia-container-tools": "1.17.4-1", "libnvidia-container1": "1.17.4-1"}, "tools is 1.17.4"),
        ({"libnvidia-container1": "1.16.2-1"}, "libnvidia-container1 is 1.16.2"),
        ({"nvidia-container-runtime": "3.5.0-1"}, "earlier stack"),
    ],
)
def test_packages_that_do_not_go_together_warn(changed: dict[str, str], words: str) -> None:
    node = ToolkitNode()
    node.packages(**{**dict.fromkeys(PACKAGES, "1.17.8-1"), **changed})
    result = node.judge("toolkit.packages-agree")
    assert result.status is Status.WARN
    assert words in result.findings[0].summary, result.findings[0].summary


def test_packages_that_go_together() -> None:
    check = "toolkit.packages-agree"
    node = ToolkitNode()
    assert "1.17.8" in node.judge(check).findings[0].summary
    newer = {"libnvidia-container-tools": "1.17.9-1", "libnvidia-container1": "1.17.9-1"}
    node.packages(**{**dict.fromkeys(PACKAGES, "1.17.8-1"), **newer})
    assert node.judge(check).status is Status.PASS
    node.packages(**{**dict.fromkeys(PACKAGES, "1.18.0-1"), **newer, "libnvidia-container1": "1.17.9-1"})
    assert node.judge(check).status is Status.WARN
    node.packages(**{**dict.fromkeys(PACKAGES, "1.18.0-1"), "nvidia-docker2": "2.14.0-1"})
    assert "nvidia-docker2 beside them does no harm" in node.judge(check).findings[0].summary
    node.packages(runc="1.1.5-1")
    assert node.judge(check).status is Status.SKIP
    assert ToolkitNode(None).judge(check).status is Status.UNKNOWN
