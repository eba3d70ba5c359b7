"""What other tools collect: sos reports and the GPU Operator's must-gather, as directories and as archives."""

import gzip
import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpudoctor import cli
from gpudoctor.facts.module_file import ModuleFile
from gpudoctor.facts.raw import Absent, CommandOutput, Entry, Log
from gpudoctor.sources import archive
from gpudoctor.sources.errors import SourceError
from gpudoctor.sources.opening import open_source
from gpudoctor.sources.sos_report import SosReport, mangled
from gpudoctor.verdicts import Unread, Why
from tests.captures import LOWER, Machine, diagnose, fact, failed_roots, machine, machine_node
from tests.conftest import SHARED

TOP = "sosreport-n1-2026-11-29-abcdefg"
PLUGINS = {"lspci": "pci", "nvidia-smi": "nvidia", "nvidia-ctk": "nvidia", "journalctl": "logs"}

LSPCI = """\
lspci: Unable to load libkmod resources: error -2
00:00.0 Host bridge [0600]: Intel Corporation Device [8086:0d57]
\tControl: I/O- Mem- BusMaster-

18:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)
\tControl: I/O- Mem+ BusMaster+
\tKernel driver in use: nvidia
\tKernel modules: nvidiafb, nouveau, nvidia_drm, nvidia
"""


def sos(
    outputs: Mapping[str, str], files: Mapping[str, str] = {}, exits: Mapping[str, int] | None = None
) -> dict[str, str]:
    """The members of an sos report, named as sos 4.12.0 names them."""
    members = {"version.txt": "sos report: 4.12.0"}
    commands: dict[str, list[dict[str, Any]]] = {}
    for command, text in outputs.items():
        plugin = PLUGINS.get(command.split()[0], "kernel")
        place = f"sos_commands/{plugin}/{mangled(command)}"
        members[place] = text
        commands.setdefault(plugin, []).append({"exec": command, "return_code": 0, "filepath": place})
    for command, code in (exits or {}).items():
        commands.setdefault("kernel", []).append({"exec": command, "return_code": code, "filepath": None})
    plugins = {name: {"commands": said} for name, said in commands.items()}
    members["sos_reports/manifest.json"] = json.dumps({"components": {"report": {"plugins": plugins}}})
    return members | {path.lstrip("/"): text for path, text in files.items()}


def write(place: Path, members: Mapping[str, str | bytes]) -> Path:
    """Members as a directory."""
    for name, content in members.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def pack(place: Path, top: str, members: Mapping[str, str | bytes], *links: tuple[str, str]) -> Path:
    """Members as an archive, in their order."""
    with tarfile.open(place, "w:xz") as packed:
        for name, text in members.items():
            content = text.encode() if isinstance(text, str) else text
            described = tarfile.TarInfo(f"{top}/{name}")
            described.size = len(content)
            packed.addfile(described, io.BytesIO(content))
        for name, to in links:
            link = tarfile.TarInfo(f"{top}/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, to
            packed.addfile(link)
    return place


def opened(place: Path) -> SosReport:
    """An sos report."""
    found = open_source(str(place))
    assert isinstance(found, SosReport)
    return found


def test_names_of_outputs_are_those_that_sos_gives() -> None:
    """As sos 4.12.0 named them in a report made by it."""
    for command, name in {
        "lspci -nnvv": "lspci_-nnvv",
        "ls -alZ /sys/kernel/slab": "ls_-alZ_.sys.kernel.slab",
        "find / -maxdepth 2 -type l -ls": "find_._-maxdepth_2_-type_l_-ls",
        "journalctl --no-pager  --boot ": "journalctl_--no-pager_--boot",
        "/usr/sbin/dkms status": "dkms_status",
    }.items():
        assert mangled(command) == name


@pytest.mark.parametrize("form", ["directory", "archive", "archive without its folder"])
def test_an_sos_report_answers_as_the_node_would(form: str, tmp_path: Path) -> None:
    modinfo = (
        "filename:       /lib/modules/5.15/updates/dkms/{0}.ko.zst\nversion:        550.163.01\nname:           {0}\n"
    )
    members = sos(
        {
            "lspci -nnvv": LSPCI,
            "uname -a": "Linux n1 5.15.0-139-generic #149-Ubuntu SMP x86_64 GNU/Linux\n",
            "dmesg": "[    0.000000] Linux version 5.15\n[   12.0] NVRM: loading\n",
            "modinfo_ALL_MODULES": modinfo.format("nvidia_uvm") + modinfo.format("nvidia"),
            "nvidia-smi -q": "Attached GPUs : 1\nGPU 00000000:18:00.0\n    Product Name : NVIDIA H100\n    GPU UUID : GPU-1\n",
            "systemctl status docker": "active\n",
        },
        {"/proc/modules": "nvidia 1 0 - Live 0x0\n", "/etc/os-release": "ID=ubuntu\n"},
        {"dkms status": 127, "lsmod": 1, "nvidia-smi nvlink -s": 124},
    )
    place = tmp_path / "x"
    node = opened(
        write(place, members) if form == "directory" else pack(place, TOP if form == "archive" else ".", members)
    )
    device = "/sys/bus/pci/devices/0000:18:00.0"
    assert [node.read(f"{device}/{name}").text for name in ("vendor", "device", "class")] == [  # type: ignore[union-attr]
        "0x10de\n",
        "0x2330\n",
        "0x030200\n",
    ]
    driver, hostname, log = (
        node.entry(f"{device}/driver"),
        node.read("/proc/sys/kernel/hostname"),
        node.log("kernel.log"),
    )
    assert isinstance(driver, Entry) and driver.to is not None and driver.to.endswith("/nvidia")
    assert not isinstance(hostname, Absent | Unread) and hostname.text == "n1\n"
    assert isinstance(log, Log) and log.from_boot and log.source == "dmesg"
    assert isinstance(node.command(("dkms", "status")), Absent)
    slow = node.command(("nvidia-smi", "nvlink", "-s"))
    assert isinstance(slow, Unread) and slow.why is Why.TIMED_OUT
    said = node.command(("systemctl", "status", "docker"))
    assert isinstance(said, CommandOutput) and said.stdout == "active\n"
    assert fact(node, ModuleFile).filename == "/lib/modules/5.15/updates/dkms/nvidia.ko.zst"
    report = diagnose(node)
    assert [(gpu.address, gpu.uuid, gpu.name) for gpu in report.node.gpus] == [("0000:18:00.0", "GPU-1", "NVIDIA H100")]
    assert (report.node.hostname, report.node.os, report.node.source) == ("n1", None, "bug-report")


def test_all_functions_of_the_bus_are_known_but_not_all_about_them(tmp_path: Path) -> None:
    node = opened(write(tmp_path, sos({"lspci -nnvv": LSPCI})))
    listing = node.listing("/sys/bus/pci/devices")
    assert not isinstance(listing, Absent | Unread)
    assert (listing.names, listing.complete) == (("0000:00:00.0", "0000:18:00.0"), True)
    assert isinstance(node.entry("/sys/bus/pci/devices/0000:19:00.0"), Absent)
    for path in ("/sys/bus/pci/devices/0000:18:00.0/numa_node", "/proc/modules", "/etc/cdi"):
        assert isinstance(node.read(path), Unread)


@pytest.mark.parametrize("code", [124, 2, None])
def test_a_listing_that_did_not_end_well_is_not_complete(code: int | None, tmp_path: Path) -> None:
    """Killed at its time-out, or functions left out; without a manifest nobody knows."""
    members = sos({"lspci -nnvv": LSPCI, "nvidia-smi -q": "Attached GPUs : 8\nGPU 00000000:18:00.0\n"})
    manifest = members.pop("sos_reports/manifest.json")
    if code is not None:
        members["sos_reports/manifest.json"] = manifest.replace('"return_code": 0', f'"return_code": {code}')
    node = opened(write(tmp_path, members))
    listing = node.listing("/sys/bus/pci/devices")
    assert not isinstance(listing, Absent | Unread) and not listing.complete
    assert isinstance(node.entry("/sys/bus/pci/devices/0000:19:00.0"), Unread)
    answer = node.answer("nvml", lambda: pytest.fail("asked"))
    assert isinstance(answer, Unread) == (code == 124)


def test_a_report_without_a_manifest_or_with_a_damaged_one_still_answers(tmp_path: Path) -> None:
    for number, manifest in enumerate(
        (None, "{", "[]", '{"components": {"report": {"plugins": {"kernel": {"commands": [1]}}}}}')
    ):
        members = sos({"dkms status": "nvidia/550, 5.15, x86_64: installed\n"})
        del members["sos_reports/manifest.json"]
        if manifest is not None:
            members["sos_reports/manifest.json"] = manifest
        node = opened(write(tmp_path / str(number), members))
        assert isinstance(node.command(("dkms", "status")), CommandOutput)
        assert isinstance(node.command(("modinfo", "nvidia")), Unread)


JOURNAL = """\
Nov 29 12:00:00 n1 kernel: Linux version 5.15
Nov 29 12:00:01 n1 systemd[1]: Starting
Nov 29 12:00:02 n1 nvidia-persistenced[935]: Failed to open libnvidia-cfg.so.1
Nov 29 12:00:03 n1 kernel: NVRM: loading
"""


def test_the_journal_speaks_where_the_ring_buffer_has_wrapped(tmp_path: Path) -> None:
    node = opened(write(tmp_path, sos({"dmesg": "[ 900.0] late\n", "journalctl --no-pager  --boot ": JOURNAL})))
    log, unit = node.log("kernel.log"), node.log("journal/nvidia-persistenced.service.log")
    assert isinstance(log, Log) and log.from_boot
    assert [line[-14:] for line in log.text.splitlines()] == ["x version 5.15", " NVRM: loading"]
    assert isinstance(unit, Log) and unit.text == JOURNAL.splitlines(keepends=True)[2]
    assert isinstance(node.log("journal/docker.service.log"), Unread)


@pytest.mark.parametrize("packed", [True, False])
def test_of_an_output_cut_at_its_limit_the_end_counts(packed: bool, tmp_path: Path) -> None:
    members = sos({"uname -a": "Linux n1 5.15 #1\n"})
    members["sos_strings/kernel/dmesg.tailed"] = "[ 900.0] NVRM: Xid 79\n"
    link = ("sos_commands/kernel/dmesg", "../../sos_strings/kernel/dmesg.tailed")
    if packed:
        place = pack(tmp_path / "a", TOP, members, link)
    else:
        place = write(tmp_path, members)
        (place / link[0]).symlink_to(link[1])
    log = opened(place).log("kernel.log")
    assert isinstance(log, Log) and "Xid 79" in log.text and not log.from_boot


def test_a_large_sos_report_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody asks for may be large; what is asked for is cut, and says so."""
    monkeypatch.setattr(archive, "MAX_KEPT_BYTES", 1 << 20)
    monkeypatch.setattr(archive, "MAX_KEPT_MEMBERS", 100)
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 1000)
    files = {f"/var/log/journal/{number}": "x" * 9000 for number in range(300)} | {"/proc/driver/big": "y" * 9000}
    members = sos({"uname -a": "Linux n1 5.15 #1\n"}, files)
    members = {
        name: members[name]
        for name in sorted(members, key=lambda name: not name.startswith(("version", "sos_reports")))
    }
    node = opened(pack(tmp_path / "a", TOP, members))
    text = node.read("/proc/driver/big")
    assert not isinstance(text, Absent | Unread) and (len(text.text), text.truncated) == (1000, True)
    assert isinstance(node.read("/var/log/journal/7"), Unread)


# Real captures -----------------------------------------------------------------------------------------------------


def as_sos(tree: Machine) -> dict[str, str]:
    """A real machine's files and outputs, laid out as sos does; `lspci -nnvv` prints no registers and no domain 0000."""
    verbose = re.sub(r"^[0-9a-f]{2,3}: [0-9a-f ]+\n|^0000:(?=[0-9a-f]{2}:)", "", tree.verbose, flags=re.MULTILINE)
    outputs = {"lspci -nnvv": verbose, "dmesg": tree.commands.get("dmesg", "")}
    query = tree.commands.get("nvidia-smi_--query") or tree.commands.get("nvidia-smi_-q")
    outputs |= {"nvidia-smi -q": query} if query else {}
    outputs |= {"uname -a": tree.commands["uname_-a"]} if "uname_-a" in tree.commands else {}
    return sos(outputs, tree.files)


def _machines() -> list[str]:
    return sorted(path.name for path in (SHARED / "corpus/machine-tree").glob("*.tar.gz"))


def test_real_machines_are_judged_as_by_another_reading_of_the_same_capture(corpus: Path, tmp_path: Path) -> None:
    compared = 0
    for name in _machines():
        tree = machine(corpus / "machine-tree" / name)
        if "nnD" not in " ".join(tree.commands):
            continue
        node = opened(pack(tmp_path / name, TOP, as_sos(tree)))
        expected, got = (failed_roots(diagnose(found), LOWER) for found in (machine_node(tree), node))
        assert got == expected, name
        compared += 1
    assert compared >= 10


# must-gather -------------------------------------------------------------------------------------------------------


def bug_report(name: str) -> bytes:
    """A bug report with the name of a machine and nothing else."""
    line = "_" * 44
    head = f"\nStart of NVIDIA bug report log file.  Please include this file\n\nuname: Linux {name} 6.8.0-1 #1 SMP x86_64\n"
    return gzip.compress(
        f"{line}\n{head}{line}\n\n*** /proc/modules\n*** ls: -r\nnvidia 1 0 - Live 0x0\n{line}\n".encode()
    )


def gathered(*nodes: str) -> dict[str, str | bytes]:
    """What must-gather.sh writes, in part."""
    members: dict[str, str | bytes] = {
        "must-gather.log": "Using 'gpu-operator' as operator namespace\n",
        "gpu_nodes.labels": "\n".join(nodes),
        "gpu_nodes.status": "NAME STATUS\n",
        "gpu_operand_pod_x.log": "x" * 5000,
    }
    return members | {f"nvidia-bug-report_{name}.log.gz": bug_report(name) for name in nodes}


@pytest.mark.parametrize("folder", ["", "must-gather.local.42/quay-io-nvidia-sha256-1/"])
@pytest.mark.parametrize("packed", [True, False])
def test_a_must_gather_of_one_node_is_that_node(packed: bool, folder: str, tmp_path: Path) -> None:
    members = {f"{folder}{name}": content for name, content in gathered("gpu-1.example").items()}
    place = (
        pack(tmp_path / "a", "nvidia-gpu-operator_20261129_1200", members) if packed else write(tmp_path / "a", members)
    )
    report = diagnose(open_source(str(place)))
    assert (report.node.hostname, report.node.source) == ("gpu-1.example", "bug-report")


@pytest.mark.parametrize("packed", [True, False])
def test_of_several_nodes_one_must_be_chosen(packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = gathered("n1", "n2", "n3")
    place = pack(tmp_path / "a", ".", members) if packed else write(tmp_path / "a", members)
    assert cli.main(["run", "--node", str(place)]) == 3
    said = capsys.readouterr().err
    assert said == f"gpudoctor: {place}: holds 3 nodes, say which: --node {place}:NODE with n1, n2, n3\n"
    assert diagnose(open_source(f"{place}:n2")).node.hostname == "n2"
    with pytest.raises(SourceError, match="holds no node 'n4'; there is n1, n2, n3"):
        open_source(f"{place}:n4")


def test_a_must_gather_without_bug_reports_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="without any nvidia-bug-report"):
        open_source(str(write(tmp_path, gathered())))


def test_a_damaged_bug_report_in_a_must_gather_is_refused_by_its_name(tmp_path: Path) -> None:
    members = gathered("n1") | {"nvidia-bug-report_n1.log.gz": b"no report"}
    with pytest.raises(SourceError, match=r"a/nvidia-bug-report_n1\.log\.gz: "):
        open_source(str(pack(tmp_path / "a", ".", members)))
