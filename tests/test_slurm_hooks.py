"""The programs of contrib/slurm that slurmd runs: whatever becomes of the doctor, they end in time, and with 0."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.slurm_fakes import NODE

HOOKS = REPOSITORY / "contrib" / "slurm"


def hook(name: str, doctor: str, tmp_path: Path, seconds: int = 30) -> tuple[int, float]:
    """Run one of the hooks with another program in the doctor's place: its exit code, and the seconds it took."""
    program = tmp_path / "doctor"
    program.write_text(doctor)
    program.chmod(0o755)
    return hook_with(name, program, seconds)


def hook_with(name: str, program: Path, seconds: int = 30, **more: str) -> tuple[int, float]:
    """Run one of the hooks as slurmd does: nearly no environment, its output into a pipe that is read to its end."""
    environment = {"GPUDOCTOR": str(program), "SECONDS_AT_MOST": str(seconds), "SLURMD_NODENAME": NODE, **more}
    if name != "health-check.sh":
        environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1", **environment}
    began = time.monotonic()
    done = subprocess.run([str(HOOKS / name)], env=environment, capture_output=True, check=False, timeout=60)
    assert done.stdout == b""
    return done.returncode, time.monotonic() - began


CRASHES = {
    "usage": "#!/bin/sh\nexit 3\n",
    "python": "#!/bin/sh\nexit 1\n",
    "shell": "#!/bin/sh\nif\n",
    "lost-its-stdout": "#!/bin/sh\nexit 120\n",
    "killed": "#!/bin/sh\nkill -9 $$\n",
    "terminated": "#!/bin/sh\nkill -15 $$\n",
    "segfault": "#!/bin/sh\nkill -11 $$\n",
    "import-error": f"#!{sys.executable}\nimport no_such_module\n",
    "interpreter-is-gone": "#!/no/such/python\n",
    "no-program": "",
    "binary-of-another-machine": "\x7fELF\x02\x01\x01\x00garbage",
    "talks-without-end-then-fails": "#!/bin/sh\nhead -c 3000000 /dev/zero\nexit 95\n",
}


@pytest.mark.parametrize("name", ["health-check.sh", "prolog.sh", "epilog.sh"])
@pytest.mark.parametrize("crash", CRASHES)
def test_a_hook_ends_with_0_however_the_doctor_ends(tmp_path: Path, name: str, crash: str) -> None:
    assert hook(name, CRASHES[crash], tmp_path)[0] == 0


@pytest.mark.parametrize("name", ["health-check.sh", "prolog.sh", "epilog.sh"])
def test_a_hook_ends_with_0_without_a_doctor(tmp_path: Path, name: str) -> None:
    assert hook_with(name, tmp_path / "not-installed")[0] == 0
    (tmp_path / "not-to-be-run").write_text("#!/bin/sh\nexit 96\n")
    assert hook_with(name, tmp_path / "not-to-be-run")[0] == 0
    assert hook_with(name, tmp_path)[0] == 0


def test_only_the_one_status_refuses_a_job(tmp_path: Path) -> None:
    refusing = "#!/bin/sh\nexit 96\n"
    assert [hook(name, refusing, tmp_path)[0] for name in ("prolog.sh", "epilog.sh", "health-check.sh")] == [1, 1, 0]
    program = tmp_path / "doctor"
    assert hook_with("prolog.sh", program, SLURM_JOB_GPUS="")[0] == 0
    # 0 and 255 among them, and what a shell makes of signals.
    statuses = [status for status in range(0, 256, 5) if status != 96]
    program.write_text("#!/bin/sh\nexit $STATUS\n")
    assert {hook_with("prolog.sh", program, STATUS=str(status))[0] for status in statuses} == {0}


@pytest.mark.parametrize("name", ["health-check.sh", "prolog.sh", "epilog.sh"])
def test_a_hook_does_not_wait_for_a_doctor_that_hangs(tmp_path: Path, name: str) -> None:
    hangs = f"#!/bin/sh\ntrap '' TERM INT HUP ALRM\necho $$ >{tmp_path}/pid\nwhile :; do sleep 0.2; done\n"
    code, seconds = hook(name, hangs, tmp_path, seconds=1)
    assert code == 0 and seconds < 6
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists(), "it is killed"


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A control group whose tasks do not take even a SIGKILL while it is frozen (cgroup-v1/freezer-subsystem)."""
    group = Path(f"/sys/fs/cgroup/freezer/gpudoctor-test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs root and a freezer of cgroup v1: {error.strerror}")
    try:
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED")
        deadline = time.monotonic() + 5
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        group.rmdir()


@pytest.mark.parametrize("name", ["health-check.sh", "prolog.sh", "epilog.sh"])
def test_a_hook_leaves_a_doctor_that_cannot_be_killed(tmp_path: Path, freezer: Path, name: str) -> None:
    """As one that sleeps in the driver or on a dead file system: no `timeout` would ever come back."""
    unkillable = f"#!/bin/sh\necho $$ >{freezer}/cgroup.procs\necho FROZEN >{freezer}/freezer.state\nexit 96\n"
    code, seconds = hook(name, unkillable, tmp_path, seconds=1)
    assert code == 0 and seconds < 6
    assert (freezer / "cgroup.procs").read_text() != ""


@pytest.mark.parametrize("name", ["health-check.sh", "prolog.sh", "epilog.sh"])
def test_a_hook_that_cannot_start_anything_ends_with_0(tmp_path: Path, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    script = Path(shutil.copy(HOOKS / name, "/tmp")).rename(f"/tmp/gpudoctor-{os.getpid()}-{name}")

    def without_processes() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

    try:
        done = subprocess.run(
            ["/bin/sh", str(script)],
            env={"SLURM_JOB_GPUS": "0", "GPUDOCTOR": "/bin/true"},
            preexec_fn=without_processes,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            cwd="/",
        )
    finally:
        script.unlink()
    assert "fork" in done.stderr, "else this shows nothing"
    assert done.returncode == 0


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_prolog_that_is_told_to_end_does_so_with_0(tmp_path: Path, sent: signal.Signals) -> None:
    program = tmp_path / "doctor"
    program.write_text(f"#!/bin/sh\n: >{tmp_path}/began\nsleep 20\nexit 96\n")
    program.chmod(0o755)
    environment = {"GPUDOCTOR": str(program), "SLURM_JOB_GPUS": "0"}
    with subprocess.Popen([str(HOOKS / "prolog.sh")], env=environment, start_new_session=True) as running:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        running.send_signal(sent)
        assert running.wait(5) == 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_the_hooks_are_plain_posix_shell(tmp_path: Path, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    command = [found, "sh"] if shell == "busybox" else [found]
    program = tmp_path / "doctor"
    program.write_text("#!/bin/sh\nexit 96\n")
    program.chmod(0o755)
    environment = {"GPUDOCTOR": str(program), "SLURM_JOB_GPUS": "0"}
    for name, code in (("health-check.sh", 0), ("prolog.sh", 1), ("epilog.sh", 1)):
        assert subprocess.run([*command, HOOKS / name], env=environment, check=False, timeout=30).returncode == code
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    assert subprocess.run([*command, HOOKS / "prolog.sh"], env=environment, check=False, timeout=30).returncode == 0


def test_the_hooks_name_no_scontrol_command() -> None:
    for name in ("health-check.sh", "prolog.sh", "epilog.sh"):
        text = (HOOKS / name).read_text()
        assert os.access(HOOKS / name, os.X_OK)
        assert not any("scontrol" in line for line in text.splitlines() if not line.startswith("#"))


def test_the_source_archive_holds_the_hooks(tmp_path: Path) -> None:
    """No wheel does: who installs one is sent to them by docs/slurm.md."""
    pytest.importorskip("setuptools", minversion="77")
    for name in ("gpudoctor", "checks", "reports", "contrib", "docs"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in REPOSITORY.iterdir():
        if path.is_file() and path.suffix in (".toml", ".md", ".in", ""):
            shutil.copy(path, tmp_path / path.name)
    build = "from setuptools.build_meta import build_sdist; build_sdist('out')"
    done = subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (archive,) = (tmp_path / "out").glob("*.tar.gz")
    with tarfile.open(archive) as held:
        modes = {member.name.partition("/")[2]: member.mode for member in held.getmembers() if member.isfile()}
    assert "docs/slurm.md" in modes and "gpudoctor/slurm_run.py" in modes and "checks/slurm.py" in modes
    scripts = {path.name for path in HOOKS.glob("*.sh")}
    assert len(scripts) == 3
    assert all(modes[f"contrib/slurm/{name}"] & 0o111 for name in scripts)
