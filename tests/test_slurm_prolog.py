"""`gpudoctor slurm prolog` and `epilog`: they refuse a job for its own dead GPU only, where configured, and never call scontrol."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudoctor.slurm_gpus import INSTANCES
from gpudoctor.verdicts import Status
from tests.slurm_fakes import (
    ALL_EIGHT,
    HEALTHY,
    LOST,
    LOST_GPU,
    OFF_BUS,
    Doctor,
    FakeSlurm,
    doctor,
    job,
    report,
    slurm,
)

__all__ = ["doctor", "job", "slurm"]


def minor_of_the_lost() -> int:
    """The number of the lost GPU's device file."""
    (minor,) = (gpu.minor for gpu in report(LOST).node.gpus if gpu.address == LOST_GPU)
    assert minor is not None
    return minor


@pytest.mark.parametrize("mode", ["prolog", "epilog"])
@pytest.mark.usefixtures("job")
def test_a_job_with_a_lost_gpu_is_refused_only_where_configured(doctor: Doctor, slurm: FakeSlurm, mode: str) -> None:
    other = "epilog" if mode == "prolog" else "prolog"
    for settings in ({}, {"drain": True}, {mode: True}, {"drain": True, other: True}):
        doctor.configure(**settings)
        assert "the configuration lets it pass" in doctor.run(LOST, mode=mode)
    doctor.configure(drain=True, **{mode: True})
    code, said = doctor.ended(LOST, mode=mode)
    assert (code, slurm.calls) == (96, [])
    assert f"{OFF_BUS}: {LOST_GPU}: does not answer on the bus" in said
    assert doctor.run(LOST, mode=mode, words=["--dry-run"])


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    "name", [HEALTHY, "nothing-recorded", "nvml-hung-in-init", "row-remap-pending-alone", "nvml-mismatch"]
)
def test_a_warning_an_unknown_and_another_fault_let_the_job_start(doctor: Doctor, slurm: FakeSlurm, name: str) -> None:
    doctor.configure(drain=True, prolog=True)
    doctor.run(name, mode="prolog")
    assert slurm.calls == []


@pytest.mark.usefixtures("job")
def test_only_the_jobs_own_gpus_count(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    doctor.configure(drain=True, prolog=True)
    lost = minor_of_the_lost()
    others = ",".join(str(number) for number in range(8) if number != lost)
    monkeypatch.setenv("SLURM_JOB_GPUS", others)
    doctor.run(LOST, mode="prolog")
    monkeypatch.setenv("SLURM_JOB_GPUS", str(lost))
    assert doctor.ended(LOST, mode="prolog")[0] == 96


@pytest.mark.usefixtures("job")
def test_slurm_counts_gpus_as_gres_conf_lists_them(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With File=/dev/nvidia[1-7] the job's GPU 0 is /dev/nvidia1, as slurmd 22.05.8 does it."""
    doctor.configure(drain=True, prolog=True)
    lost = minor_of_the_lost()
    assert lost >= 1
    (tmp_path / "gres.conf").write_text("Name=gpu File=/dev/nvidia[1-7]\n")
    monkeypatch.setenv("SLURM_JOB_GPUS", str(lost - 1))
    assert doctor.ended(LOST, mode="prolog")[0] == 96
    monkeypatch.setenv("SLURM_JOB_GPUS", str(lost))
    doctor.run(LOST, mode="prolog")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        (None, "0,1,2,3,4,5,6,7"),
        ("", "0,1,2,3,4,5,6,7"),
        ("Name=gpu Count=8\n", "0,1,2,3,4,5,6,7"),
        ("NodeName=n9 Name=gpu File=/dev/nvidia[0-7]\n", "0,1,2,3,4,5,6,7"),
        ("Name=gpu File=/dev/nvidia[4-7]\nName=gpu File=/dev/nvidia[0-3]\n", "0,1,2,3,4,5,6,7"),
        ("Name=gpu Type=a File=/dev/nvidia[0-3]\nName=gpu Type=b File=/dev/nvidia[4-7]\n", "0,1,2,3,4,5,6,7"),
        ("Name=gpu MultipleFiles=/dev/nvidia[0-7]\n", "0"),
        ("Name=gpu File=/dev/dri/card[0-7]\n", "0,1,2,3,4,5,6,7"),
        ("AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-7]\n", "0,1,2,3,4,5,6,7"),
        (ALL_EIGHT, "8"),
        (ALL_EIGHT, "NoDevFiles"),
        (ALL_EIGHT, "MIG-GPU-1/2/3"),
        (ALL_EIGHT, "0,"),
        ("Include nowhere.conf\n" + ALL_EIGHT, "0,1,2,3,4,5,6,7"),
    ],
)
@pytest.mark.usefixtures("job")
def test_where_the_jobs_gpus_are_not_certain_the_job_starts(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gres: str | None, gpus: str
) -> None:
    doctor.configure(drain=True, prolog=True)
    place = tmp_path / "gres.conf"
    place.unlink()
    if gres is not None:
        place.write_text(gres)
    monkeypatch.setenv("SLURM_JOB_GPUS", gpus)
    assert "could not tell which GPUs are the job's" in doctor.run(LOST, mode="prolog")


@pytest.mark.usefixtures("job")
def test_gpus_that_slurmd_finds_itself_are_counted_along_the_bus(doctor: Doctor, tmp_path: Path) -> None:
    doctor.configure(drain=True, prolog=True)
    (tmp_path / "gres.conf").write_text("AutoDetect=nvml\n")
    assert doctor.ended(LOST, mode="prolog")[0] == 96
    doctor.sees(lambda: report("h100x8-minors-shuffled"))
    assert "not in the order of the bus" in doctor.run(mode="prolog")


@pytest.mark.usefixtures("job")
def test_gpus_that_are_divided_or_of_several_types_are_not_counted_along_the_bus(
    doctor: Doctor, tmp_path: Path
) -> None:
    """AutoDetect counts MIG instances one by one, and types in the order of slurm.conf: GPU 3 of a job is no third GPU of the bus."""
    doctor.configure(drain=True, prolog=True)
    (tmp_path / "gres.conf").write_text("AutoDetect=nvml\n")
    lost = report(LOST)
    instances = lost.result(INSTANCES)
    for status in (Status.PASS, Status.FAIL, Status.UNKNOWN, Status.BLOCKED):
        results = tuple(replace(one, status=status) if one is instances else one for one in lost.results)
        doctor.sees(lambda results=results: replace(lost, results=results))  # type: ignore[misc]
        assert "divided by MIG" in doctor.run(mode="prolog")
    doctor.sees(lambda: replace(lost, results=tuple(one for one in lost.results if one is not instances)))
    assert "divided by MIG" in doctor.run(mode="prolog")
    first, *others = lost.node.gpus
    mixed = replace(lost.node, gpus=(replace(first, name="NVIDIA A100-SXM4-80GB"), *others))
    doctor.sees(lambda: replace(lost, node=mixed))
    assert "of several types" in doctor.run(mode="prolog")


@pytest.mark.usefixtures("job")
def test_a_job_without_a_gpu_is_not_looked_at(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    doctor.configure(drain=True, prolog=True)
    for words in ("", " "):
        monkeypatch.setenv("SLURM_JOB_GPUS", words)
        doctor.run(LOST, mode="prolog")
    monkeypatch.delenv("SLURM_JOB_GPUS")
    doctor.run(LOST, mode="prolog")
    assert doctor.looked == 0


@pytest.mark.usefixtures("job")
def test_what_fails_once_is_looked_at_again(doctor: Doctor) -> None:
    doctor.configure(drain=True, prolog=True)
    doctor.run(LOST, HEALTHY, mode="prolog")
    doctor.run(LOST, "nothing-recorded", mode="prolog")
    doctor.run(LOST, "row-remap-failed", mode="prolog")
    assert doctor.looked == 6
