"""The driver's libraries as programs get them, and its daemons: against the loaded module, through the whole run."""

from copy import deepcopy

import pytest

from gpudoctor.facts.driver_libraries import CUDA, DEBUGGER, JIT, NAMES, NVML, DriverLibraries
from gpudoctor.facts.fabric_manager import ASK, JOURNAL, PROGRAM, UNIT, WANTED
from gpudoctor.facts.loader_cache import CACHE, CachedLibrary
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Gate, Log, Question, TextFile
from gpudoctor.knowledge.driver_places import DRIVER_CONTAINER_DIRECTORIES, TRUSTED_DIRECTORIES
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


def test_newer_compat_package_of_the_drivers_branch_works() -> None:
    """NVIDIA's container toolkit itself puts it first, which gpudoctor sees in a container."""
    branch = version_of("l40s-x4").partition(".")[0]
    finding = verdict(compat(Node(), f"{branch}.999.1"), CUDA_LIBRARY)
    assert finding.status is Status.PASS and f"{branch}.999.1" in finding.summary
    named = version_of("geforce-details-refused-to-user").partition(".")[0]
    refused = verdict(compat(Node("geforce-details-refused-to-user"), f"{named}.999.1"), CUDA_LIBRARY)
    assert refused.status is Status.FAIL and "804" in refused.summary


def test_libcuda_that_is_newer_than_the_module_may_answer_804() -> None:
    altered = Node().cache(f"/opt/new/{CUDA}", *names()[1:]).library("/opt/new", "999.1.1")
    assert "803 or 804" in verdict(altered, MATCH).summary


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


def test_host_of_virtual_gpus_has_no_libcuda() -> None:
    """The Virtual GPU Manager's package has none."""
    altered = without_cuda(Node())
    modules = altered.read("/proc/modules")
    assert isinstance(modules, TextFile)
    altered.text("/proc/modules", f"{modules.text}nvidia_vgpu_vfio 94208 0 - Live 0x0000000000000000 (OE)\n")
    finding = verdict(altered, CUDA_LIBRARY)
    assert finding.status is Status.SKIP and "virtual GPUs" in finding.summary
    assert roots(altered.report()) == []


def test_driver_that_nvml_was_loaded_from_elsewhere_is_not_missing() -> None:
    """By LD_LIBRARY_PATH, or in a place that only its maker knows."""
    altered = without_cuda(Node()).cache().without(*(f"{place}/{NVML}" for place in TRUSTED_DIRECTORIES))
    finding = verdict(altered, CUDA_LIBRARY)
    assert finding.status is Status.UNKNOWN and "LD_LIBRARY_PATH" in finding.summary
    assert CUDA_LIBRARY not in roots(altered.report())


@pytest.mark.parametrize("kind", ["stubs", "compat"])
def test_what_a_host_has_beside_a_driver_container_is_nobodys_matter(kind: str) -> None:
    altered = Node().cache(f"/usr/local/cuda/{kind}/{CUDA}").library(f"/usr/local/cuda/{kind}", "535.104.12")
    altered.library("/run/nvidia/driver/usr/lib/x86_64-linux-gnu", version_of("l40s-x4"))
    finding = verdict(altered, CUDA_LIBRARY)
    assert finding.status is Status.PASS and "/run/nvidia/driver" in finding.summary


def test_link_to_a_stub_is_to_go_and_its_directory_to_stay() -> None:
    """Made by hand, so that a build without a driver finds libcuda."""
    stub = "/usr/local/cuda/lib64/stubs/libcuda.so"
    altered = Node().cache(*names())
    altered.overlay.put(f"{DEBIAN}/{CUDA}", Record(entry=Entry(f"{DEBIAN}/{CUDA}", EntryType.LINK, to=stub)))
    altered.overlay.put(stub, Record(entry=Entry(stub, EntryType.FILE, size=9)))
    altered.without("/run/nvidia/driver")
    finding = verdict(altered, CUDA_LIBRARY)
    assert finding.status is Status.FAIL and "stub" in finding.summary
    assert f"mv -i {DEBIAN}/{CUDA} /var/tmp/" in steps(finding) and "ld.so.conf" not in steps(finding)


def test_what_the_cache_gives_from_usr_lib_is_of_64_bits() -> None:
    """On Arch Linux /usr/lib64 leads to /usr/lib."""
    machine = Builder()
    machine.link(f"/usr/lib/{CUDA}", f"libcuda.so.{OLD}")
    machine.tree.put(f"/usr/lib/libcuda.so.{OLD}", Record(entry=Entry("x", EntryType.FILE, size=9)))
    machine.link("/usr/lib64", "lib")
    machine.text("/usr/lib/libc.so.6", "")
    text = write_cache([CachedLibrary(CUDA, f"/usr/lib/{CUDA}", WIDE)]).decode("utf-8", "backslashreplace")
    machine.text(CACHE, text)
    found = fact(RecordedNode(machine.tree, complete=("/usr/lib", "/run")), DriverLibraries)
    assert found.cuda.cached is not None and found.cuda.cached.path == f"/usr/lib/{CUDA}"


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


def test_driver_root_without_libcuda_of_64_bits_does_not_pass() -> None:
    altered = without_cuda(Node())
    altered.overlay.records.pop("/run/nvidia/driver")
    altered.library("/run/nvidia/driver/opt/driver", version_of("l40s-x4"), NVML)
    entries = [CachedLibrary(CUDA, f"/opt/narrow/{CUDA}", NARROW), CachedLibrary(NVML, f"/opt/driver/{NVML}", WIDE)]
    text = write_cache(entries).decode("utf-8", "backslashreplace")
    altered.overlay.put(f"/run/nvidia/driver{CACHE}", Record(entry=Entry(CACHE, EntryType.FILE), text=text))
    altered.without(*DRIVER_CONTAINER_DIRECTORIES)
    assert verdict(altered, CUDA_LIBRARY).status is Status.FAIL


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
    altered.commands = altered.commands | modinfo("999.1.1")
    report = altered.report()
    assert roots(report) == ["driver-cuda.module-on-disk"]
    assert verdict(altered, MATCH).status is Status.SKIP


def test_libraries_that_neither_module_fits_are_broken() -> None:
    report = all_of(Quiet(), "999.1.1").report()
    assert roots(report) == [MATCH]
    assert "all driver libraries are 999.1.1" in report.root_causes[0].summary


def test_debugger_of_another_version_breaks_nobody_else() -> None:
    altered = Node().cache(*names(), f"/opt/old/{DEBUGGER}").library("/opt/old", OLD, DEBUGGER)
    finding = verdict(altered, MATCH)
    assert finding.status is Status.WARN and "cuda-gdb" in finding.summary


def test_old_driver_root_is_contradicted_by_nvml_that_answers() -> None:
    altered = without_cuda(Node()).cache()
    altered.without(*(f"{place}/{name}" for place in TRUSTED_DIRECTORIES for name in NAMES))
    altered.library("/var/lib/nvidia/lib64", OLD)
    finding = verdict(altered, MATCH)
    assert finding.status is Status.UNKNOWN and "NVML answers" in finding.summary


def test_nvml_that_answers_through_a_library_that_cannot_is_a_contradiction() -> None:
    finding = verdict(all_of(Node(), "999.1.1"), MATCH)
    assert finding.status is Status.UNKNOWN and "NVML answers" in finding.summary


# daemons ------------------------------------------------------------------------------------------------------------


def recorded(altered: Node, name: str) -> Answer:
    """An answer of the fixture."""
    answer = altered.answer(name, lambda: Question(name))
    assert isinstance(answer, Answer)
    return answer


def manager(
    version: str = "",
    *,
    enabled: bool = True,
    running: bool = False,
    contained: bool = False,
    state: str = "in_progress",
) -> Node:
    """A node with NVSwitches and a fabric manager; `contained` is whether its process is in a container, `state` the fabric's."""
    altered = Node("h100x8")
    processes, nvml = (deepcopy(recorded(altered, name)) for name in ("processes", "nvml"))
    if contained:
        pod = "/kubepods.slice/kubepods-pod0a1b2c3d_0000_4000_8000_000000000001.slice"
        group = f"0::{pod}/cri-containerd-{'6f' * 32}.scope\n"
        processes.data["cgroups"] = [group if UNIT in one else one for one in processes.data["cgroups"]]
    for device in nvml.data["devices"]:
        device["fields"]["fabric.state"] = state
    altered.answers |= {"processes": processes, "nvml": nvml}
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


def test_fabric_manager_of_a_driver_container_was_accepted() -> None:
    """The node's own of another version cannot start beside it, and need not."""
    finding = of_the_manager(manager(OLD, contained=True))
    assert finding.status is Status.PASS and "driver container" in finding.summary
    assert "nv-fabricmanage" in cited(finding)


def test_fabric_manager_that_a_driver_container_brings_makes_the_nodes_own_nobodys_matter() -> None:
    """Seen from a pod that sees no processes but its own."""
    altered = manager(OLD)
    altered.overlay.put(f"/run/nvidia/driver{PROGRAM}", Record(entry=Entry(PROGRAM, EntryType.FILE)))
    assert of_the_manager(altered).status is Status.SKIP and roots(altered.report()) == []
    altered.error(f"/run/nvidia/driver{PROGRAM}", "EACCES")
    assert of_the_manager(altered).status is Status.UNKNOWN


def test_fabric_that_is_set_up_contradicts_a_fabric_manager_that_cannot_start() -> None:
    altered = manager(OLD, state="completed")
    assert of_the_manager(altered).status is Status.UNKNOWN and roots(altered.report()) == []


def modinfo(version: str) -> dict[tuple[str, ...], CommandOutput]:
    """What modinfo says of the module on disk."""
    return {("modinfo", "nvidia"): CommandOutput(("modinfo", "nvidia"), 0, f"filename: /x\nversion: {version}\n")}


def test_fabric_manager_of_an_upgrade_that_waits_is_no_second_fault() -> None:
    """Its package started it anew; to go back to the loaded module's version would be wrong."""
    altered = manager("999.1.1")
    altered.commands = altered.commands | modinfo("999.1.1")
    finding = of_the_manager(altered)
    assert "waits for a reload" in finding.summary and "modprobe -r" in steps(finding)
    assert "apt-get install" not in steps(finding)
    altered.answers["nvml"] = Answer(data={"init": 18})
    report = altered.report()
    assert roots(report) == ["driver-cuda.nvml-answers"] and of_the_manager(altered).caused_by


def test_fabric_manager_that_fits_by_now_is_only_to_be_started() -> None:
    altered = manager(VERSION)
    altered.unit = f"interface version {OLD} don't match with driver version {VERSION}. Please update\n"
    assert [remedy.action.value for remedy in of_the_manager(altered).remedies] == ["restart-service"]


@pytest.mark.parametrize(
    ("version", "enabled", "status"), [("", True, "unknown"), (OLD, False, "skip"), (VERSION, True, "pass")]
)
def test_fabric_manager_is_judged_where_it_is_started(version: str, status: str, *, enabled: bool) -> None:
    assert of_the_manager(manager(version, enabled=enabled)).status.value == status


def test_node_whose_bus_is_not_seen_may_have_switches() -> None:
    altered = Node()
    altered.error("/sys/bus/pci/devices", "EACCES")
    assert of_the_manager(altered).status is Status.UNKNOWN


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
