"""The printed unit, started by a systemd: what it may do, what it says, what it leaves behind."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.install_node import DEBIAN, bare, usual
from tests.live_root import alone_with_its_workers, healthy_nvml, make_root, with_nvml
from tests.systemd_stage import OUT, doctor, drop_in, needs_systemd, run_units
from tests.test_install import content

__all__ = ["alone_with_its_workers"]

SERVICE = "gpudoctor.service"
PLAIN = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/true\n"


@pytest.fixture(autouse=True)
def _systemd() -> None:
    needs_systemd()


def unit() -> str:
    """The service as it is printed."""
    return content(bare(), "systemd", SERVICE)


def said(place: Path, name: str) -> str:
    """What a unit left; what it complained of is shown where it left nothing."""
    text = (place / name).read_text()
    assert text, (place / f"{name}.errors").read_text()
    return text


def unrestricted_and_restricted(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The reports of both over a made host with eight GPUs, without what differs from run to run."""
    place.mkdir()
    root = make_root("h100x8", place / "root")
    with_nvml(root, monkeypatch, healthy_nvml("h100x8"))
    command = doctor("run", "--root", f"{OUT}/root", "--format", "json")
    nvml = f"Environment=GPUDOCTOR_STANDIN_NVML={os.environ['GPUDOCTOR_STANDIN_NVML']}\n"
    units = {
        "plain.service": PLAIN,
        "plain.service.d/run.conf": drop_in(command, "plain", nvml),
        SERVICE: unit(),
        f"{SERVICE}.d/run.conf": drop_in(
            command, "restricted", f"{nvml}DevicePolicy=auto\nDeviceAllow=\n[Unit]\nAfter=plain.service\n"
        ),
    }
    log = run_units(place, units, "plain.service", SERVICE)
    reports = [json.loads(said(place, name)) for name in ("plain", "restricted")]
    for report in reports:
        assert report.pop("started_at") and report.pop("seconds"), log
    return reports


def test_the_unit_sees_what_an_unrestricted_one_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's /proc/devices has no name for the nodes of the made GPUs: which may be opened is tried below."""
    plain, restricted = unrestricted_and_restricted(tmp_path / "once", monkeypatch)
    # A machine that stands still between the two, as virtual ones do at times, tells them apart; a restriction does so each time.
    if plain != restricted:
        plain, restricted = unrestricted_and_restricted(tmp_path / "again", monkeypatch)
    one, other = ({result["check"]: result for result in report["results"]} for report in (plain, restricted))
    assert {check: (one[check], other.get(check)) for check in one if one[check] != other.get(check)} == {}
    assert restricted == plain
    assert one["driver-cuda.nvml-answers"]["status"] == "pass"


TRIES = """
import ctypes, os, socket
def tried(name, what):
    try: what(); print(name, "yes")
    except OSError as error: print(name, error.strerror)
tried("kmsg", lambda: os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
tried("kmsg-write", lambda: os.open("/dev/kmsg", os.O_WRONLY))
devices = ("mem", "vda", "sda", "nvme0n1", "fuse", "kvm", "loop0")
device = next(path for path in map("/dev/{}".format, devices) if os.path.exists(path))
tried("device", lambda: os.open(device, os.O_RDONLY))
tried("state", lambda: open("/var/lib/gpudoctor/x", "w"))
tried("scratch", lambda: open(os.environ["TMPDIR"] + "/x", "w"))
for place in ("/etc/x", "/usr/x", "/var/x", "/root/x", "/tmp/x", "/out/x", "/sys/fs/cgroup/x", "/proc/sys/kernel/sysrq"):
    tried(place, lambda: open(place, "w"))
tried("unix", lambda: socket.socket(socket.AF_UNIX))
tried("packet", lambda: socket.socket(socket.AF_PACKET))
tried("loopback", lambda: socket.create_connection(("127.0.0.1", 1), 1))
tried("node", lambda: os.mknod(os.environ["TMPDIR"] + "/node", 0o20666, os.makedev(1, 3)))
tried("setuid", lambda: os.setuid(1))
"""


def test_the_unit_reaches_what_it_needs_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "tries.py").write_text(TRIES)
    python = doctor().split()[0]
    units = {SERVICE: unit(), f"{SERVICE}.d/run.conf": drop_in(f"{python} {OUT}/tries.py", "tries")}
    log = run_units(tmp_path, units, "", SERVICE)
    tried = dict(line.split(" ", 1) for line in said(tmp_path, "tries").splitlines())
    assert {name for name, answer in tried.items() if answer == "yes"} == {"kmsg", "state", "scratch", "unix"}, (
        tried,
        log,
    )
    # Nobody listens there: refused is reached.
    assert tried["loopback"] in ("Connection refused", "Network is unreachable") and len(tried) == 18


def test_a_pass_is_remembered_and_its_metrics_are_written(tmp_path: Path) -> None:
    """With the drop-in for node_exporter, whose directory belongs to another user; as printed, but for where the doctor lies."""
    (tmp_path / "metrics").mkdir()
    os.chown(tmp_path / "metrics", 65534, 65534)
    node = usual()
    node.folder(DEBIAN, uid=65534)
    printed = content(node, "node-exporter", "node-exporter.conf").replace(DEBIAN, f"{OUT}/metrics")
    health = printed.split("ExecStart=\nExecStart=")[1].splitlines()[0].split(" ", 1)[1]
    keep = f"ExecStartPost=+/bin/cp -r /var/lib/gpudoctor {OUT}/state\nSuccessExitStatus=2\n"
    units = {
        SERVICE: unit(),
        f"{SERVICE}.d/10-node-exporter.conf": printed,
        f"{SERVICE}.d/20-run.conf": drop_in(doctor(*health.split()), "pass", keep),
    }
    log = run_units(tmp_path, units, "", SERVICE)
    metrics = tmp_path / "metrics" / "gpudoctor.prom"
    assert (
        metrics.exists() and "gpudoctor_verdict" in metrics.read_text() and metrics.stat().st_mode & 0o777 == 0o644
    ), log
    assert [path.name for path in metrics.parent.iterdir()] == ["gpudoctor.prom"]
    assert (tmp_path / "state").is_dir() and any(path.stat().st_size for path in (tmp_path / "state").iterdir()), log


@pytest.mark.parametrize(("code", "result"), [(0, "success"), (1, "success"), (2, "exit-code"), (3, "exit-code")])
def test_which_exit_codes_make_a_failed_unit(code: int, result: str, tmp_path: Path) -> None:
    after = f"ExecStopPost=+/bin/sh -c 'echo $SERVICE_RESULT >{OUT}/result'\n"
    units = {SERVICE: unit(), f"{SERVICE}.d/run.conf": drop_in(f"/bin/sh -c 'exit {code}'", "none", after)}
    run_units(tmp_path, units, "", SERVICE)
    assert said(tmp_path, "result").strip() == result


def test_the_timer_goes_on_when_a_pass_finds_something_broken(tmp_path: Path) -> None:
    """Its times made short: the node has booted long ago, so the first pass begins at once."""
    quick = "OnBootSec=1s\nOnUnitActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=100ms\n"
    units = {
        SERVICE: unit(),
        f"{SERVICE}.d/run.conf": drop_in(
            "/bin/echo looked", "none", f"SuccessExitStatus=\nExecStart=/bin/false\nStandardOutput=append:{OUT}/looks\n"
        ),
        "gpudoctor.timer": content(bare(), "systemd", "gpudoctor.timer"),
        "gpudoctor.timer.d/quick.conf": f"[Unit]\nDefaultDependencies=no\n[Timer]\nOnBootSec=\nOnUnitActiveSec=\n{quick}",
        "end.service": PLAIN.replace("/bin/true", "/bin/sleep 5"),
    }
    log = run_units(tmp_path, units, "gpudoctor.timer", "end.service")
    assert (tmp_path / "looks").read_text().count("looked") >= 3, log
