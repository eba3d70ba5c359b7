"""A scontrol that is no Slurm: it keeps one node's state in files, writes down how it was called, and fails as it is told to.

And a doctor that looks at recorded nodes. `slurm` and `doctor` are fixtures: a module that imports them can use them.
"""

import contextlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from gpudoctor import cli, slurm_run
from gpudoctor.report import Report
from gpudoctor.testing import node, run_node

HEALTHY = "h100x8"
LOST = "gpu-off-the-bus"
LOST_GPU = "0000:3a:00.0"
OFF_BUS = "pcie.gpu-responds"
NODE = "n1"

# As scontrol 22.05.8 prints a node.
_SHOWN = """\
NodeName={name} Arch=x86_64 CoresPerSocket=1{blank}
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=3.32
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=gpu:h100:8
   NodeAddr=127.0.0.1 NodeHostName=vm Port=23701 Version=22.05.8
   OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0{blank}
   RealMemory=1 AllocMem=0 FreeMem=8480 Sockets=8 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=all{blank}
   BootTime=2026-11-29T19:19:07 SlurmdStartTime=2026-11-30T15:28:16
   LastBusyTime=2026-11-30T15:28:17
   CfgTRES=cpu=8,mem=1M,billing=8
   AllocTRES=
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s
"""

_PROGRAM = """\
#!/bin/sh
cd '{place}' || exit 9
printf '%s\\n' "$*" >>calls
if [ -s "on-$1" ]; then . "./on-$1"; fi
case "$1" in
show)
	cat shown ;;
update)
	case "$3" in
	state=drain)
		sed -i -e '/^   State=/s/+DRAIN//' -e 's/^   State=[A-Z]*/&+DRAIN/' -e '/^   Reason=/d' shown
		printf '   Reason=%s [root@2026-11-30T15:28:21]\\n' "${{4#reason=}}" >>shown ;;
	state=undrain)
		sed -i -e '/^   State=/s/+DRAIN//' -e '/^   Reason=/d' shown ;;
	esac ;;
esac
"""


class FakeSlurm:
    """The program on PATH, and what it knows."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        program = place / "bin" / "scontrol"
        program.parent.mkdir(parents=True)
        program.write_text(_PROGRAM.format(place=place))
        program.chmod(0o755)
        self.program = program
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        self.set("IDLE")

    def set(self, state: str, reason: str = "", *, name: str = NODE) -> None:
        """What the node is in, with the reason somebody gave."""
        shown = _SHOWN.format(name=name, state=state, blank=" ")
        if reason:
            shown += f"   Reason={reason} [alice@2026-11-30T09:00:00]\n"
        (self.place / "shown").write_text(shown + "\n")

    def on(self, verb: str, shell: str) -> None:
        """What it does first when it is asked to `show` or `update`."""
        (self.place / f"on-{verb}").write_text(shell)

    @property
    def calls(self) -> list[str]:
        """How it was called since this was last asked."""
        said = self.place / "calls"
        if not said.exists():
            return []
        lines = said.read_text().splitlines()
        said.unlink()
        return lines

    @property
    def changes(self) -> list[str]:
        """The calls that change something."""
        return [call for call in self.calls if not call.startswith("show ")]

    @property
    def state(self) -> str:
        """The node's state."""
        return next(word[6:] for word in (self.place / "shown").read_text().split() if word.startswith("State="))

    @property
    def reason(self) -> str:
        """The reason for it, without who gave it."""
        lines = [line.strip() for line in (self.place / "shown").read_text().splitlines()]
        return next((line[7:].rpartition(" [")[0] for line in lines if line.startswith("Reason=")), "")


def toml(settings: Mapping[str, object]) -> str:
    """A table [slurm]."""
    words = {True: "true", False: "false"}
    lines = [
        f"{key} = {words.get(value, value) if isinstance(value, bool) else value}" for key, value in settings.items()
    ]
    return "[slurm]\n" + "\n".join(lines) + "\n"


_reports: dict[str, Report] = {}


def report(name: str) -> Report:
    """The report on a recorded node."""
    if name not in _reports:
        _reports[name] = run_node(node(name))
    return _reports[name]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A scontrol on PATH, and the environment that slurmd gives a health check."""
    for name in ("SLURM_JOB_ID", "SLURM_JOB_GPUS", "SLURM_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURMD_NODENAME", NODE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-such-home"))
    monkeypatch.setattr(slurm_run, "SYSLOG", str(tmp_path / "log"))
    return FakeSlurm(tmp_path / "slurm", monkeypatch)


class Doctor:
    """`gpudoctor slurm MODE`, which sees the recorded nodes named to it, one after the other; the last one stays."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._config = place / "config.toml"
        self.state = place / "state"
        self._sees: list[Callable[[], Report]] = []
        self.looked = 0
        monkeypatch.setattr(slurm_run, "look", self._look)
        self.configure(drain=True)

    def configure(self, **settings: object) -> None:
        """Write the configuration."""
        self._config.write_text(toml(settings))

    def _look(self, *_: object) -> Report:
        self.looked += 1
        return (self._sees.pop(0) if len(self._sees) > 1 else self._sees[0])()

    def run(self, *names: str, mode: str = "health-check", words: Sequence[str] = ()) -> str:
        """Run once; what it said. It must end with 0."""
        code, said = self.ended(*names, mode=mode, words=words)
        assert code == 0, said
        return said

    def ended(self, *names: str, mode: str = "health-check", words: Sequence[str] = ()) -> tuple[int, str]:
        """Run once: the exit code, and what was said."""
        self._sees = [partial(report, name) for name in names] or self._sees
        said = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(said):
            code = cli.main(["slurm", mode, "--config", str(self._config), "--state", str(self.state), *words])
        assert out.getvalue() == ""
        return code, said.getvalue()

    def sees(self, look: Callable[[], Report]) -> None:
        """What the next runs see."""
        self._sees = [look]


@pytest.fixture
def doctor(tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """A doctor that may drain."""
    return Doctor(tmp_path, monkeypatch)


ALL_EIGHT = f"NodeName={NODE} Name=gpu Type=h100 File=/dev/nvidia[0-7]\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: FakeSlurm) -> None:
    """The environment that slurmd gives the prolog of a job with all GPUs."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    (tmp_path / "gres.conf").write_text(ALL_EIGHT)
    monkeypatch.setenv("SLURM_JOB_GPUS", "0,1,2,3,4,5,6,7")
