"""How gpudoctor reaches a node: the single file, the packages of Debian and RPM, completion, man pages, the documentation's site."""

import argparse
import ast
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from gpudoctor import __version__, cli
from gpudoctor.cli_parser import COMMANDS
from gpudoctor.installing.options import SHELLS
from gpudoctor.registry import built_in
from tests.conftest import REPOSITORY
from tests.live_root import healthy_nvml, make_root, with_nvml
from tests.test_packaging import HEALTHY
from tools import check_pages, man_pages, os_packages, single_file
from tools.command_tree import actions, command_parser

NEEDED = ("msgspec", "PyYAML", "nvidia-ml-py")
"""What a run that prints JSON loads; the whole set takes a minute to pack."""
PLACE = REPOSITORY / "gpudoctor" / "installing" / "completion"


def run(*argv: object, **more: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr, away from the repository; `more` goes into the environment."""
    ours = ("PYTHONPATH", "GPUDOCTOR_CACHE", "CACHE_DIRECTORY")
    environment = {**{name: value for name, value in os.environ.items() if name not in ours}, **more}
    words = [str(word) for word in argv]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/", env=environment, timeout=60)
    return done.returncode, done.stdout, done.stderr


def installed(*programs: str) -> str:
    """The first of several programs; skips where one of them is missing."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} (tests/install-packages.sh)")
    return programs[0]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install --target` would make, without a network and without what JSON does not need."""
    place = tmp_path_factory.mktemp("packages")
    nothing = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "gpudoctor", place / "gpudoctor", ignore=nothing)
    for name in NEEDED:
        for file in distribution(name).files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (place / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), place / file)
    return place


# The single file ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pyz(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The single file."""
    pytest.importorskip("shiv", reason="needs shiv")
    target = tmp_path_factory.mktemp("dist") / "gpudoctor.pyz"
    single_file.build(shutil.copytree(packages, target.parent / "copy"), target)
    return target


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Where a test lets it unpack."""
    return tmp_path / "cache"


def report_of(text: str) -> dict[str, object]:
    return {name: value for name, value in json.loads(text).items() if name not in ("started_at", "seconds")}


def test_single_file_says_the_same_and_leaves_home_alone(pyz: Path, cache: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    code, said, errors = run(
        pyz, "run", "--node", HEALTHY, "--format", "json", HOME=str(home), GPUDOCTOR_CACHE=str(cache)
    )
    assert (code, errors) == (0, "")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        cli.main(("run", "--node", str(HEALTHY), "--format", "json"))
    assert report_of(said) == report_of(out.getvalue())
    assert list(home.iterdir()) == [] and cache.stat().st_mode & 0o777 == 0o700
    (unpacked,) = cache.glob("gpudoctor.pyz_*")
    before = unpacked.stat().st_mtime_ns
    assert run(pyz, "--version", HOME=str(home), GPUDOCTOR_CACHE=str(cache))[1] == f"gpudoctor {__version__}\n"
    assert unpacked.stat().st_mtime_ns == before and list(home.iterdir()) == []


def test_single_file_asks_nvml_by_its_worker(
    pyz: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is a program of its own, which has to find its modules where they were unpacked."""
    root = make_root("h100x8", tmp_path / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    code, said, _ = run(pyz, "run", "--root", root, "--format", "json", GPUDOCTOR_CACHE=str(cache))
    statuses = {result["check"]: result["status"] for result in json.loads(said)["results"]}
    assert code in (0, 1, 2) and statuses["driver-cuda.nvml-answers"] == "pass"


def foreign(kind: str, cache: Path) -> None:
    """A directory that somebody else made, or could write to."""
    match kind:
        case "another's":
            if os.geteuid() != 0:
                pytest.skip("giving a directory to another user takes root")
            cache.mkdir()
            os.chown(cache, 65534, 65534)
        case "writable":
            cache.mkdir()
            cache.chmod(0o777)
        case "link":
            (cache.parent / "elsewhere").mkdir()
            cache.symlink_to(cache.parent / "elsewhere")
        case _:
            cache.write_text("")


@pytest.mark.parametrize("kind", ["another's", "writable", "link", "file"])
def test_single_file_refuses_what_is_not_its_own(kind: str, pyz: Path, cache: Path) -> None:
    foreign(kind, cache)
    code, said, errors = run(pyz, "--version", GPUDOCTOR_CACHE=str(cache))
    assert (code, said, len(errors.splitlines())) == (3, "", 1)
    assert str(cache) in errors and "GPUDOCTOR_CACHE" in errors
    assert not cache.is_dir() or list(cache.iterdir()) == []


def test_single_file_refuses_a_place_in_which_others_can_change_names(pyz: Path, tmp_path: Path) -> None:
    lent = tmp_path / "lent"
    lent.mkdir()
    lent.chmod(0o777)
    code, said, _ = run(pyz, "--version", GPUDOCTOR_CACHE=str(lent / "cache"))
    assert (code, said) == (3, "") and list(lent.iterdir()) == []
    lent.chmod(0o1777)
    assert run(pyz, "--version", GPUDOCTOR_CACHE=str(lent / "cache"))[0] == 0


def test_single_file_of_a_user_unpacks_beside_his_session(pyz: Path, tmp_path: Path) -> None:
    """$XDG_RUNTIME_DIR where it is his, else the directory for temporary files; not where programs may not be run from."""
    python = "/usr/bin/python3"
    if os.geteuid() != 0 or not Path(python).exists():
        pytest.skip("becoming another user takes root, and a Python that he may run")
    (tag,) = single_file.tags_of(pyz)
    if run(python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])")[1].strip() != tag:
        pytest.skip(f"{python} is another Python than the one that runs the tests")
    shutil.copy(pyz, "/tmp/gpudoctor-test.pyz")
    scratch, session, home = (
        Path("/tmp") / f"gpudoctor-test-{os.getpid()}-{name}" for name in ("tmp", "session", "home")
    )
    try:
        for place in (scratch, session, home):
            place.mkdir(mode=0o700)
            os.chown(place, 65534, 65534)
        user = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            python,
            "/tmp/gpudoctor-test.pyz",
            "--version",
        ]
        environment = {"HOME": str(home), "TMPDIR": str(scratch), "XDG_RUNTIME_DIR": str(session)}
        assert run(*user, **environment)[0] == 0
        assert [path.name for path in session.iterdir()] == ["gpudoctor"] and list(scratch.iterdir()) == []
        os.chown(session, 0, 0)
        assert run(*user, **environment)[0] == 0
        assert [path.name for path in scratch.iterdir()] == ["gpudoctor-65534"] and list(home.iterdir()) == []
    finally:
        for place in (scratch, session, home):
            shutil.rmtree(place, ignore_errors=True)
        Path("/tmp/gpudoctor-test.pyz").unlink()


def test_single_file_takes_no_code_from_the_environment(pyz: Path, cache: Path) -> None:
    more = {
        "SHIV_MODULE": "this",
        "SHIV_INTERPRETER": "1",
        "SHIV_ROOT": "/nowhere",
        "SHIV_PREPEND_PYTHONPATH": "/nowhere",
    }
    assert run(pyz, "--version", GPUDOCTOR_CACHE=str(cache), **more)[1] == f"gpudoctor {__version__}\n"


def test_single_file_says_which_pythons_it_is_for(pyz: Path, cache: Path, tmp_path: Path) -> None:
    assert single_file.tags_of(pyz) == (f"cp{sys.version_info[0]}{sys.version_info[1]}",)
    launcher = tmp_path / "launcher.py"
    launcher.write_text(re.sub(r"(?m)^TAGS = .*$", "TAGS = ('cp27',)", single_file.LAUNCHER.read_text()))
    code, said, errors = run(sys.executable, launcher, GPUDOCTOR_CACHE=str(cache))
    assert (code, said) == (3, "") and "this file is for cp27, and this is Python 3." in errors and not cache.exists()


def test_single_file_prints_files_that_call_it(pyz: Path, cache: Path) -> None:
    printed = run(pyz, "install", "--print", "systemd", "--file", "gpudoctor.service", GPUDOCTOR_CACHE=str(cache))[1]
    assert f"ExecStart={pyz} health" in printed and "\nCacheDirectory=gpudoctor\n" in printed


def test_any_python_reads_the_launcher() -> None:
    """It could not say otherwise that it needs a newer one."""
    ast.parse(single_file.LAUNCHER.read_text(), feature_version=(3, 4))


# Packages of distributions --------------------------------------------------------------------------------------------


UNITS = {"disable", "daemon-reload"}
"""What a package asks of systemd: nothing is enabled or started by it."""


def test_package_of_debian(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed("dpkg-buildpackage", "dh")
    # dpkg-deb(1): packing it small takes half of the time.
    monkeypatch.setenv("DPKG_DEB_COMPRESSOR_TYPE", "gzip")
    monkeypatch.setenv("DPKG_DEB_COMPRESSOR_LEVEL", "1")
    built = os_packages.build_deb(os_packages.stage(tmp_path / "work", packages), tmp_path)
    code, fields, _ = run("dpkg-deb", "--field", built)
    assert code == 0 and f"Version: {__version__}" in fields and "python3 (>= 3.10)" in fields
    root = tmp_path / "extracted"
    assert run("dpkg-deb", "--extract", built, root)[0] == 0
    assert {path.name for path in (root / "usr/lib/systemd/system").iterdir()} == {
        "gpudoctor.service",
        "gpudoctor.timer",
    }
    assert "ExecStart=/usr/bin/gpudoctor health" in (root / "usr/lib/systemd/system/gpudoctor.service").read_text()
    pages = {path.name.removesuffix(".gz") for path in (root / "usr/share/man").rglob("*.gz")}
    assert pages == man_pages.pages().keys()
    for place in (
        "bash-completion/completions/gpudoctor",
        "zsh/vendor-completions/_gpudoctor",
        "fish/vendor_completions.d/gpudoctor.fish",
    ):
        assert (root / "usr/share" / place).is_file()
    run("dpkg-deb", "--control", built, root / "control")
    scripts = "".join(path.read_text() for path in (root / "control").glob("p*"))
    assert set(re.findall(r"systemctl (\S+)", scripts)) == UNITS and "deb-systemd" not in scripts
    start = root / "usr/bin/gpudoctor"
    moved = tmp_path / "start.py"
    moved.write_text(start.read_text().replace("/usr/lib/gpudoctor", str(root / "usr/lib/gpudoctor")))
    code, said, errors = run(sys.executable, "-I", moved, "run", "--node", HEALTHY, "--format", "line")
    assert (code, errors) == (0, "") and said.startswith("PASS")


def test_package_of_rpm(packages: Path, tmp_path: Path) -> None:
    installed("rpmbuild", "rpm")
    built = os_packages.build_rpm(os_packages.stage(tmp_path / "work", packages), tmp_path)
    code, listed, _ = run("rpm", "-qlp", built)
    files = set(listed.splitlines())
    assert (
        code == 0
        and {"/usr/bin/gpudoctor", "/usr/lib/systemd/system/gpudoctor.timer", "/usr/lib/gpudoctor/start.py"} <= files
    )
    assert "/usr/lib/gpudoctor/gpudoctor/checks/pcie.py" in files and not any(".build-id" in name for name in files)
    assert "python3 >= 3.10" in run("rpm", "-qp", "--requires", built)[1]
    assert set(re.findall(r"systemctl (\S+)", run("rpm", "-qp", "--scripts", built)[1])) == UNITS
    # Of an upgrade %preun of the version before comes after %post (rpm-scriptlets(7)), and takes the byte code away.
    at_the_end = run("rpm", "-qp", "--queryformat", "%{POSTTRANS}", built)[1]
    assert "compileall" in at_the_end and "compileall" not in run("rpm", "-qp", "--queryformat", "%{POSTIN}", built)[1]
    staged = tmp_path / "work" / os_packages.NAME
    shutil.copy(staged / "rpm/start.py", staged / "packages/start.py")
    code, said, errors = run(
        sys.executable, "-I", staged / "packages/start.py", "run", "--node", HEALTHY, "--format", "line"
    )
    assert (code, errors) == (0, "") and said.startswith("PASS")


# Completion -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_what_the_commands_take(shell: str) -> None:
    pytest.importorskip("shtab", reason="needs shtab")
    from tools import completion

    if distribution("shtab").version != "1.13.0":
        pytest.skip("what another release of shtab writes differs")
    kept = (PLACE / f"gpudoctor.{shell}").read_text("utf-8")
    assert kept == completion.text(shell), "`make completion` writes it anew"
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(("completion", shell)) == 0
    assert out.getvalue() == kept


_ASK_BASH = """
eval "$(cat {file})"
gpudoctor() {{ printf '%s\\n' 'pcie.gpus-present  title' 'pcie.link-width  title'; }}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE="${{COMP_WORDS[*]}}"
_shtab_gpudoctor gpudoctor "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("gpudoctor ins", {"install"}),
        ("gpudoctor install --pr", {"--print"}),
        ("gpudoctor install --print s", {"systemd", "slurm"}),
        ("gpudoctor run --link dev", {"device-nodes", "device-plugin"}),
        ("gpudoctor run --check pcie.l", {"pcie.link-width"}),
        ("gpudoctor completion ''", {"bash", "zsh", "fish"}),
        ("gpudoctor run --config /etc/host", {"/etc/hostname", "/etc/hosts"}),
    ],
)
def test_bash_completes(words: str, offered: set[str]) -> None:
    code, said, errors = run(installed("bash"), "-c", _ASK_BASH.format(file=PLACE / "gpudoctor.bash", words=words))
    assert code == 0 and errors == "", errors
    assert offered <= set(said.split()), said
    assert not {"trace", "--node"} & set(said.split()), said


def test_fish_completes() -> None:
    ask = f"source {PLACE}/gpudoctor.fish; complete -C 'gpudoctor install --print s'; complete -C 'gpudoctor ins'"
    code, said, _ = run(installed("fish"), "--no-config", "-c", ask)
    assert code == 0 and {"systemd", "slurm", "install"} == {line.split("\t")[0] for line in said.splitlines()}, said


def test_zsh_takes_its_file() -> None:
    assert run(installed("zsh"), "-n", PLACE / "gpudoctor.zsh")[::2] == (0, "")
    assert (PLACE / "gpudoctor.zsh").read_text().startswith("#compdef gpudoctor\n")


# Man pages ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages as files."""
    place = tmp_path_factory.mktemp("man")
    for name, text in man_pages.pages().items():
        (place / name).write_text(text, "utf-8")
    return place


def test_every_command_has_a_page_with_all_it_takes(manual: Path) -> None:
    assert {f"gpudoctor-{name}.1" for name in COMMANDS} < {path.name for path in manual.iterdir()}
    for name in COMMANDS:
        page = (manual / f"gpudoctor-{name}.1").read_text().replace("\\-", "-")
        for action in actions(command_parser(name)):
            if not isinstance(action, argparse._HelpAction):
                assert all(f"\\fB{option}\\fR" in page for option in action.option_strings), (
                    f"{name} {action.option_strings}"
                )


def test_checks_and_configuration_are_described_whole(manual: Path) -> None:
    checks = (manual / "gpudoctor-checks.7").read_text().replace("\\-", "-")
    assert all(f'.SS "{check.id}"' in checks for check in built_in())
    keys = (manual / "gpudoctor.toml.5").read_text().replace("\\-", "-")
    for key in ("expect.gpus", "slurm.drain", "waive.until", "disable", "straggler_celsius", "health.lasting"):
        assert f"\\fB{key}\\fR" in keys, key
    assert "<class" not in keys and "typing" not in keys


def test_groff_and_mandoc_have_nothing_to_say(manual: Path) -> None:
    checked = 0
    for program, words in (("groff", ("-ww", "-z", "-man", "-Kutf8")), ("mandoc", ("-T", "lint", "-W", "warning"))):
        if shutil.which(program) is not None:
            checked += 1
            for page in sorted(manual.iterdir()):
                assert run(program, *words, page) == (0, "", ""), page.name
    if not checked:
        pytest.skip("needs groff or mandoc (tests/install-packages.sh)")


# The site -------------------------------------------------------------------------------------------------------------


def test_site_has_a_page_for_each_check_and_no_link_into_nothing() -> None:
    pages = check_pages.site()
    assert {f"checks/{check.link.value}/{check.id}.md" for check in built_in()} < pages.keys()
    assert {"index.md", "install.md", "monitoring.md", "changelog.md"} <= pages.keys()
    counted = 0
    for name, text in pages.items():
        for target in re.findall(r"\]\(([^):#\s]+\.md)", text):
            counted += 1
            assert check_pages._normal(Path(name).parent / target) in pages, f"{name}: {target}"
    assert counted > 200


def test_mkdocs_builds_it(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="needs mkdocs-material: pip install -e '.[docs]'")
    source, target = tmp_path / "source", tmp_path / "site"
    for name, text in check_pages.site().items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, "utf-8")
    settings = tmp_path / "mkdocs.yml"
    text = (
        (REPOSITORY / "mkdocs.yml")
        .read_text()
        .replace("build/site-source", str(source))
        .replace("build/site", str(target))
    )
    settings.write_text(text)
    code, said, errors = run(
        sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", settings, NO_MKDOCS_2_WARNING="1"
    )
    assert code == 0, said + errors
    assert (target / "checks/pcie/pcie.link-width.html").is_file()
    page = (target / "index.html").read_text()
    assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)', page), "it asks nobody for anything"
