"""The driver's libraries as programs get them, and its daemons: against the loaded module, through the whole run."""

import pytest

from gpudoctor.facts.driver_libraries import CUDA, JIT, NVML, DriverLibraries
from gpudoctor.facts.fabric_manager import ASK, JOURNAL, PROGRAM, UNIT, WANTED
from gpudoctor.facts.loader_cache import CACHE, CachedLibrary
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Gate, Log
from gpudoctor.report import Finding, Report
from gpudoctor.sources.loader_cache_writer import write_cache
from gpudoctor.sources.recorded import Record, RecordedNode
from gpudoctor.testing import node, run_check
from gpudoctor.verdicts import Status, Unread, Why
from tests.altered import Altered
from tests.captures import Builder, fact
from tests.small_node import cited, steps

MATCH, CUDA_LIBRARY, DAEMONS = "driver-cuda.libraries-match", "driver-cuda.cuda-library", "driver-cuda.daemons-match"
DEBIAN = "/usr/lib/x86_64-linux-gnu"
VERSION, OLD = "550.163.01", "535.183.01"
WIDE, NARROW = 0x0303, 0x0003


class Node(Altered):
    """A healthy node, with a cache of the loader's."""

    def __init__(self, name: str = "l40s-x4") -> None:
        super().__init__(name)
        self.unit = ""

    def cache(self, *paths: str, narrow: tuple[str, ...] = ()) -> "Node":
        """The cache names these files, in this order."""
        entries = [CachedLibrary(path.rpartition("/")[2], path, WIDE) for path in paths]
        entries += [CachedLibrary(path.rpartition("/")[2], path, NARROW) for path in narrow]
        text = write_cache(entries).decode("utf-8", "backslashreplace")
        self.overlay.put(CACHE, Record(entry=Entry(CACHE, EntryType.FILE), text=text))
        return self

    def library(self, directory: str, version: str, name: str = CUDA) -> "Node":
        """A library with the link of its SONAME."""
        file = f"{name.partition('.so')[0]}.so.{version}"
        self.overlay.put(f"{directory}/{name}", Record(entry=Entry(f"{directory}/{name}", EntryType.LINK, to=file)))
        self.overlay.put(f"{directory}/{file}", Record(entry=Entry(f"{directory}/{file}", EntryType.FILE, size=9)))
        return self

    def without(self, *paths: str) -> "Node":
        """These were looked for in vain."""
        for path in paths:
            self.error(path)
        return self

    def log(self, name: str) -> Log | Unread:
        """The fabric manager's journal, if a test has one."""
        return Log(name, self.unit, "journal", from_boot=True) if name == JOURNAL and self.unit else super().log(name)


def version_of(name: str) -> str:
    """The version of the module that a fixture has loaded."""
    summary = run_check(MATCH, node(name)).findings[0].summary
    return summary.partition(":")[0]


def verdict(altered: Altered, check: str) -> Finding:
    """The one finding of a check."""
    (finding,) = altered.report().result(check).findings
    return finding


def roots(report: Report) -> list[str]:
    """The checks of the root causes."""
    return [cause.check for cause in report.root_causes]


def names(directory: str = DEBIAN) -> tuple[str, ...]:
    """The names in a directory."""
    return tuple(f"{directory}/{name}" for name in (CUDA, NVML, JIT))


# which file ---------------------------------------------------------------------------------------------------------


def test_cache_decides_before_the_loaders_own_directories() -> None:
    altered = Node().cache("/opt/old/libcuda.so.1", *names()).library("/opt/old", OLD)
    report = altered.report()
    assert roots(report) == [MATCH]
    finding = report.finding(report.root_causes[0].findings[0])
    assert OLD in finding.summary and "CUDA answers 803" in finding.summary and "libnvidia-ml is" not in finding.summary
    assert f"{CUDA} (libc6,x86-64) => /opt/old/{CUDA}" in cited(finding)
    assert f"dpkg -S /opt/old/libcuda.so.{OLD}" in steps(finding) and f"mv -i /opt/old/{CUDA}" in steps(finding)
    assert verdict(altered, CUDA_LIBRARY).status is Status.SKIP


def test_path_that_the_cache_gives_and_is_gone_leads_to_the_loaders_own_directories() -> None:
    """The second entry of the cache is not tried: elf/dl-load.c asks the cache once."""
    altered = Node().cache("/opt/gone/libcuda.so.1", "/opt/old/libcuda.so.1", *names()[1:]).library("/opt/old", OLD)
    finding = verdict(altered.without("/opt/gone"), CUDA_LIBRARY)
    assert finding.status is Status.PASS and f"{DEBIAN}/{CUDA}" in finding.summary


@pytest.mark.parametrize("content", ["", "no cache at all", "glibc-ld.so.cache1.1"])
def test_damaged_cache_leaves_the_directories(content: str) -> None:
    altered = Node()
    altered.overlay.put(CACHE, Record(entry=Entry(CACHE, EntryType.FILE), text=content))
    assert verdict(altered, MATCH).status is Status.PASS and verdict(altered, CUDA_LIBRARY).status is Status.PASS


@pytest.mark.parametrize(("error", "why"), [("EACCES", "no-permission"), ("EIO", "unreadable")])
def test_unreadable_cache_is_unknown_only_where_the_directories_hold_nothing(error: str, why: str) -> None:
    altered = Node()
    altered.overlay.put(CACHE, Record(error=error))
    assert verdict(altered, CUDA_LIBRARY).status is Status.PASS
    altered.without(
        *(f"{directory}/{CUDA}" for directory in (DEBIAN, "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"))
    )
    altered.without("/usr/lib/aarch64-linux-gnu", "/usr/local/lib", "/run/nvidia/driver")
    finding = verdict(altered, CUDA_LIBRARY)
    assert finding.status is Status.UNKNOWN and finding.why == why, finding


def test_recording_without_cache_and_libraries_is_unknown() -> None:
    found = fact(RecordedNode(Builder().tree), DriverLibraries)
    assert isinstance(found.cuda.loaded, Unread) and found.cuda.loaded.why is Why.NOT_RECORDED


def test_library_that_may_not_be_looked_at_hides_what_comes_after_it() -> None:
    machine = Builder()
    machine.absent(CACHE)
    machine.tree.put(f"{DEBIAN}/{CUDA}", Record(error="EACCES"))
    machine.link(f"/usr/lib64/{CUDA}", f"libcuda.so.{OLD}")
    machine.text(f"/usr/lib64/libcuda.so.{OLD}", "")
    found = fact(RecordedNode(machine.tree, complete=("/usr/lib64",)), DriverLibraries)
    assert isinstance(found.cuda.loaded, Unread) and found.cuda.loaded.why is Why.NO_PERMISSION


def test_usr_lib_is_of_32_bits_where_libc_lies_in_lib64() -> None:
    machine = Builder()
    machine.absent(CACHE)
    machine.link(f"/usr/lib/{CUDA}", f"libcuda.so.{OLD}")
    machine.tree.put(f"/usr/lib/libcuda.so.{OLD}", Record(entry=Entry("x", EntryType.FILE, size=9)))
    complete = ("/usr/lib64", "/usr/lib", "/run")
    assert fact(RecordedNode(machine.tree, complete=complete), DriverLibraries).found
    machine.text("/usr/lib64/libc.so.6", "")
    assert not fact(RecordedNode(machine.tree, complete=complete), DriverLibraries).found


# libcuda ------------------------------------------------------------------------------------------------------------


def compat(altered: Node, version: str) -> Node:
    """A package for forward compatibility comes first."""
    altered.cache(f"/usr/local/cuda-13.4/compat/{CUDA}", *names()).library("/usr/local/cuda-13.4/compat", version)
    return altered


def test_newer_compat_package_works_on_gpus_of_data_centers() -> None:
    altered = compat(Node(), "580.126.09")
    assert roots(altered.report()) == []
    finding = verdict(altered, CUDA_LIBRARY)
    assert finding.status is Status.PASS and "580.126.09" in finding.summary


def test_older_compat_package_is_broken_and_the_others_of_its_directory_are_the_same_fault() -> None:
    altered = compat(Node(), "535.104.12").library("/usr/local/cuda-13.4/compat", "535.104.12", JIT)
    altered.cache(*(f"/usr/local/cuda-13.4/compat/{name}" for name in (CUDA, JIT)), *names())
    report = altered.report()
    assert roots(report) == [CUDA_LIBRARY]
    finding = report.finding(report.root_causes[0].findings[0])
    assert "803" in finding.summary and "535.104.12" in finding.summary


def test_compat_package_of_the_drivers_branch_warns() -> None:
    altered = Node()
    branch = version_of("l40s-x4").partition(".")[0]
    assert verdict(compat(altered, f"{branch}.1.1"), CUDA_LIBRARY).status is Status.WARN


def test_compat_package_on_geforce_answers_804() -> None:
    altered = compat(Node("geforce-details-refused-to-user"), "610.43.02")
    finding = verdict(altered, CUDA_LIBRARY)
    assert finding.status is Status.FAIL and "804" in finding.summary and "GeForce" in finding.summary


def without_cuda(altered: Node) -> Node:
    """No libcuda anywhere, and a cache that knows none."""
    altered.cache(*names()[1:])
    altered.without(*(f"{place}/{CUDA}" for place in (DEBIAN, "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")))
    return altered.without("/run/nvidia/driver", f"/lib/x86_64-linux-gnu/{CUDA}")


def test_missing_libcuda_fails_on_a_host_and_is_nothing_in_a_container() -> None:
    altered = without_cuda(Node())
    report = altered.report()
    assert roots(report) == [CUDA_LIBRARY]
    assert CACHE in cited(report.finding(report.root_causes[0].findings[0]))
    altered.error("/dev/kmsg")
    finding = verdict(altered, CUDA_LIBRARY)
    assert finding.status is Status.SKIP and "NVIDIA_DRIVER_CAPABILITIES" in finding.summary


def test_driver_root_is_read_by_its_own_cache() -> None:
    altered = without_cuda(Node())
    loaded = version_of("l40s-x4")
    altered.overlay.records.pop("/run/nvidia/driver")
    inside = "/run/nvidia/driver/opt/driver"
    altered.library(inside, loaded)
    text = write_cache([CachedLibrary(CUDA, f"/opt/driver/{CUDA}", WIDE)]).decode("utf-8", "backslashreplace")
    altered.overlay.put(f"/run/nvidia/driver{CACHE}", Record(entry=Entry(CACHE, EntryType.FILE), text=text))
    finding = verdict(altered, CUDA_LIBRARY)
    assert finding.status is Status.PASS and f"{inside}/{CUDA}" in finding.summary
    assert roots(altered.report()) == []


def test_leftovers_on_the_host_of_a_driver_container_are_nobodys_matter() -> None:
    altered = Node().cache(*(f"/opt/old/{name}" for name in (CUDA, JIT)), names()[1])
    altered.library("/opt/old", OLD).library("/opt/old", OLD, JIT)
    altered.library("/run/nvidia/driver/usr/lib/x86_64-linux-gnu", version_of("l40s-x4"))
    finding = verdict(altered, MATCH)
    assert finding.status is Status.SKIP and "left over" in finding.summary


# versions -----------------------------------------------------------------------------------------------------------


class Quiet(Node):
    """The same, of which NVML was not asked."""

    def answer(self, name: str, gate: Gate) -> Answer | Unread:
        """No word of NVML."""
        return Unread(Why.WITHHELD, "NVML", "was not asked") if name == "nvml" else super().answer(name, gate)


def all_of(altered: Node, version: str) -> Node:
    """All libraries are of another version."""
    altered.cache(*names()).without(f"{DEBIAN}/libnvidia-ml.so.{version_of('l40s-x4')}")
    for name in (CUDA, NVML, JIT):
        altered.library(DEBIAN, version, name)
    return altered


def test_upgrade_that_waits_is_told_once() -> None:
    """The module on disk is the libraries': driver-cuda.module-on-disk tells that."""
    altered = all_of(Quiet(), "999.1.1")
    altered.commands = altered.commands | {
        ("modinfo", "nvidia"): CommandOutput(("modinfo", "nvidia"), 0, "filename: /x\nversion: 999.1.1\n")
    }
    report = altered.report()
    assert roots(report) == ["driver-cuda.module-on-disk"]
    assert verdict(altered, MATCH).status is Status.SKIP


def test_libraries_that_neither_module_fits_are_broken() -> None:
    report = all_of(Quiet(), "999.1.1").report()
    assert roots(report) == [MATCH]
    assert "all driver libraries are 999.1.1" in report.root_causes[0].summary


def test_nvml_that_answers_through_a_library_that_cannot_is_a_contradiction() -> None:
    finding = verdict(all_of(Node(), "999.1.1"), MATCH)
    assert finding.status is Status.UNKNOWN and "NVML answers" in finding.summary


# daemons ------------------------------------------------------------------------------------------------------------


def manager(version: str = "", *, enabled: bool = True, running: bool = False) -> Node:
    """A node with NVSwitches and a fabric manager."""
    altered = Node("h100x8")
    if enabled:
        altered.overlay.put(WANTED, Record(entry=Entry(WANTED, EntryType.LINK, to=f"/usr/lib/systemd/system/{UNIT}")))
        altered.text(f"/usr/lib/systemd/system/{UNIT}", "[Unit]\n")
    group = f"/sys/fs/cgroup/system.slice/{UNIT}"
    altered.overlay.put(group, Record(entry=Entry(group, EntryType.DIR)) if running else Record(error="ENOENT"))
    altered.overlay.put(PROGRAM, Record(entry=Entry(PROGRAM, EntryType.FILE)))
    if version:
        said = CommandOutput(ASK, 0, f"Fabric Manager version is : {version}\n")
        altered.commands = altered.commands | {ASK: said}
    return altered


def of_the_manager(altered: Node) -> Finding:
    """What is said of the fabric manager."""
    found = altered.report().result(DAEMONS).findings
    return next(finding for finding in found if "fabricmanager" in finding.subject.key)


def test_fabric_manager_of_another_version_on_disk_does_not_start() -> None:
    report = manager(OLD).report()
    assert roots(report) == [DAEMONS]
    finding = report.finding(report.root_causes[0].findings[0])
    assert OLD in finding.summary and VERSION in finding.summary and finding.subject.key == "nvidia-fabricmanager"
    assert f"exactly {VERSION}" in finding.remedies[0].say


def test_fabric_manager_that_runs_was_accepted_whatever_lies_on_disk() -> None:
    """An upgrade waits: program and libraries are new, module and running daemon old."""
    finding = of_the_manager(manager("999.1.1", running=True))
    assert finding.status is Status.PASS and "it runs" in finding.summary


def test_old_words_about_another_driver_are_not_of_this_one() -> None:
    altered = manager(VERSION)
    altered.unit = f"interface version {VERSION} don't match with driver version {OLD}. Please update\n"
    assert of_the_manager(altered).status is Status.PASS
    altered.unit = f"interface version {OLD} don't match with driver version {VERSION}. Please update\n"
    assert of_the_manager(altered).status is Status.FAIL


@pytest.mark.parametrize(
    ("version", "enabled", "status"), [("", True, "unknown"), (OLD, False, "skip"), (VERSION, True, "pass")]
)
def test_fabric_manager_is_judged_where_it_is_started(version: str, status: str, *, enabled: bool) -> None:
    assert of_the_manager(manager(version, enabled=enabled)).status.value == status


def test_persistence_daemon_needs_no_version() -> None:
    result = run_check(DAEMONS, node("persistenced-of-the-old-version-still-running"))
    assert result.status is Status.PASS and result.findings[0].subject.key == "nvidia-persistenced"


# what an image puts first -------------------------------------------------------------------------------------------

IN_IMAGE = "/usr/local/cuda-13.3/compat"


def in_image(name: str = "compat-library-in-image-on-tesla") -> Node:
    """A container whose image puts a package for forward compatibility first; none of its processes has loaded it yet."""
    altered = Node(name)
    altered.error("/proc/4242/maps")
    return altered


def test_compat_package_of_an_image_is_found_before_a_process_has_loaded_it() -> None:
    assert roots(in_image().report()) == []
    report = in_image("compat-library-in-image-on-geforce").report()
    assert roots(report) == ["workload.library-version"]
    finding = report.finding(report.root_causes[0].findings[0])
    assert "804" in finding.summary and IN_IMAGE in finding.summary
    assert "LD_LIBRARY_PATH=/usr/local/cuda/compat" in cited(finding)


def test_older_compat_package_of_an_image_answers_803() -> None:
    altered = in_image()
    altered.library(f"/proc/4242/root{IN_IMAGE}", "535.104.12")
    report = altered.report()
    assert roots(report) == ["workload.library-version"]
    assert "535.104.12" in report.root_causes[0].summary and "803" in report.root_causes[0].summary


def test_stub_that_an_image_puts_first_answers_34() -> None:
    altered = in_image()
    text = "LD_LIBRARY_PATH=/opt/cuda/lib64/stubs\0NVIDIA_VISIBLE_DEVICES=void\0"
    altered.overlay.put("/proc/4242/environ", Record(entry=Entry("x", EntryType.FILE), text=text))
    altered.library("/proc/4242/root/opt/cuda/lib64/stubs", "13.3")
    report = altered.report()
    assert roots(report) == ["workload.library-version"] and "34" in report.root_causes[0].summary
