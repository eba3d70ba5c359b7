"""Sharing by MPS: daemons, their servers and logs, clients in and outside of containers, and what the device plugin was told."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpudoctor.facts.mps import Mps
from gpudoctor.facts.mps_clients import located
from gpudoctor.facts.mps_logs import parse_logs
from gpudoctor.facts.raw import Answer, Entry, EntryType, TextFile
from gpudoctor.report import Finding, Report
from gpudoctor.sources.recorded import Record
from gpudoctor.testing import node, run_check, run_node
from gpudoctor.verdicts import Action, Status
from tests.captures import crashed
from tests.gpu_node import INSIDE, GpuNode
from tests.rig_kubernetes import KUBELET
from tests.small_node import alarms, cited, steps
from tests.test_device_plugin import RUNNING, PluginNode, config
from tests.test_device_plugin import diagnose as of_plugin
from tests.test_kubelet import OTHER_POD
from tests.workload_node import DOCKER, GPU, ID, OTHER

DAEMON, SERVER, CLIENTS, MIG, SHM = (f"sharing.mps-{name}" for name in ("daemon", "server", "clients", "mig", "shm"))
MINE = (DAEMON, SERVER, CLIENTS, MIG, SHM)
CONTROL, SERVES, CLIENT = 1410, 1500, 702
PIPES, LOGS = "/tmp/nvidia-mps", "/var/log/nvidia-mps"
WANTS = "/etc/systemd/system/multi-user.target.wants"
UNIT = "nvidia-mps.service"
ROOTS = "90 80 0:53 / / rw - overlay overlay rw\n91 90 0:70 / /dev rw,nosuid - tmpfs tmpfs rw\n"
HOST_MOUNTS = "22 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw\n27 22 0:26 / /dev/shm rw - tmpfs tmpfs rw\n"
BOUND = f"{ROOTS}95 90 259:2 {PIPES} {PIPES} rw - ext4 /dev/nvme0n1p2 rw\n"
SHARED_SHM = "96 91 0:26 / /dev/shm rw - tmpfs tmpfs rw\n"
OWN_SHM = "96 91 0:88 / /dev/shm rw - tmpfs shm rw,size=65536k\n"
STARTED = "[2026-11-29 09:00:00.000 Control  1410] Starting control daemon using socket /tmp/nvidia-mps/control\n"


def line(second: int, words: str, who: str = "Control  1410") -> str:
    """A line of a log."""
    return f"[2026-11-29 10:00:{second:02}.000 {who}] {words}\n"


READY = line(1, "Starting new server 1500 for user 0") + line(2, "NEW SERVER 1500: Ready")
DEATH = (
    line(10, "NEW CLIENT 0 from user 1001: Server is not ready, push client to pending list")
    + line(11, "Starting new server 92 for user 1001")
    + line(12, "Server encountered a fatal exception. Shutting down")
    + line(13, "Server 92 exited with status 1")
)
AGAIN = (
    line(14, "Starting new server 95 for user 1001")
    + line(15, "Server encountered a fatal exception. Shutting down")
    + line(16, "Server 95 exited with status 1")
)


class MpsNode(GpuNode):
    """Two GPUs, and whatever of MPS a test starts."""

    def __init__(self) -> None:
        super().__init__()
        self.complete = [*self.complete, "/etc", "/tmp", "/var/log"]
        self.using: list[dict[str, Any]] = []
        self.fields: dict[str, Any] = {"compute_mode": "default"}
        self.folder(WANTS)

    def folder(self, path: str) -> None:
        """A directory."""
        self.tree.put(path, Record(entry=Entry(path, EntryType.DIR)))

    def mps(
        self, pid: int = CONTROL, *words: str, parent: int = 1, uid: int = 0, environment: Sequence[str] = ()
    ) -> None:
        """A process of MPS: the daemon with the default directories unless told otherwise."""
        words = words or ("nvidia-cuda-mps-control", "-d")
        self.process(pid, "/system.slice/nvidia-mps.service", comm="nvidia-cuda-mps")
        self.text(f"/proc/{pid}/stat", f"{pid} (nvidia-cuda-mps) S {parent} {pid} " + "0 " * 16 + f"{pid} 0 0\n")
        self.text(f"/proc/{pid}/cmdline", "".join(f"{word}\0" for word in words))
        self.text(f"/proc/{pid}/environ", "".join(f"{one}\0" for one in ("PATH=/bin", *environment)))
        self.text(f"/proc/{pid}/mountinfo", HOST_MOUNTS)
        self.link(f"/proc/{pid}/ns/ipc", "ipc:[4026531839]")
        self.owner(pid, uid)

    def server(self, pid: int = SERVES, parent: int = CONTROL) -> None:
        """A server of the daemon."""
        self.mps(pid, "nvidia-cuda-mps-server", parent=parent)

    def owner(self, pid: int, uid: int) -> None:
        """Whose a process is."""
        self.text(
            f"/proc/{pid}/status",
            f"Name:\tnvidia-cuda-mps\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t0\t0\t0\t0\nGroups:\t\n",
        )

    def says_log(self, control: str, server: str = "", folder: str = LOGS) -> None:
        """What the logs hold."""
        self.text(f"{folder}/control.log", control)
        self.text(f"{folder}/server.log", server)

    def client(
        self,
        *environment: str,
        mountinfo: str = BOUND + SHARED_SHM,
        uid: int = 0,
        ipc: str = "ipc:[4026533333]",
        pid: int = CLIENT,
        group: str = DOCKER,
    ) -> None:
        """A container with a GPU and the pipes of MPS."""
        said = environment or (f"CUDA_MPS_PIPE_DIRECTORY={PIPES}",)
        self.container(pid, group, f"NVIDIA_VISIBLE_DEVICES={GPU}", *said, nodes=INSIDE, mountinfo=mountinfo)
        self.link(f"/proc/{pid}/ns/ipc", ipc)
        self.owner(pid, uid)

    def uses(self, pid: int, kind: str = "mps", name: str = "python3") -> None:
        """A process that NVML lists on the first GPU."""
        self.using.append({"pid": pid, "kind": kind, "used_bytes": 1 << 30, "name": name})

    def report(self) -> Report:
        """The report, with NVML's answer."""
        devices = [
            {
                "index": minor,
                "pci_bus_id": f"0000:0{5 + minor}:00.0",
                "uuid": GPU if minor == 0 else GPU.replace("0a", "1a"),
                "name": "NVIDIA H100 80GB HBM3",
                "minor": minor,
                "fields": self.fields if minor == 0 else {"compute_mode": "default"},
                "processes": self.using if minor == 0 else [],
            }
            for minor in range(2)
        ]
        self.answers["nvml"] = Answer(data={"init": 0, "count": 2, "devices": devices})
        found = super().report()
        assert not crashed(found)
        return found


def serving() -> MpsNode:
    """A daemon with a server that is ready."""
    node = MpsNode()
    node.mps()
    node.server()
    node.says_log(STARTED + READY)
    return node


def only(report: Report, check: str) -> Finding:
    """The only alarm of a check."""
    (found,) = alarms(report, check)
    return found


def statuses(report: Report) -> dict[str, Status]:
    """How the checks of MPS end."""
    return {check: report.result(check).status for check in MINE}


# All well -------------------------------------------------------------------------------------------------------------


def test_a_node_without_mps_is_not_asked() -> None:
    assert set(statuses(MpsNode().report()).values()) == {Status.SKIP}


def test_a_daemon_its_server_and_a_client_in_a_container() -> None:
    node = serving()
    node.client()
    node.uses(SERVES, "compute", "nvidia-cuda-mps-server")
    node.uses(CLIENT)
    report = node.report()
    assert {check: statuses(report)[check] for check in (DAEMON, SERVER, CLIENTS, SHM)} == dict.fromkeys(
        (DAEMON, SERVER, CLIENTS, SHM), Status.PASS
    )
    (reaches,) = report.result(CLIENTS).findings
    assert reaches.subject.key == ID[:12]
    assert "/tmp/nvidia-mps is the directory of the MPS daemon (PID 1410)" in cited(reaches)
    (lives,) = report.result(SERVER).findings
    assert "NEW SERVER 1500: Ready" in cited(lives)


def test_the_fact_names_daemon_server_and_client() -> None:
    node = serving()
    node.mps(CONTROL, environment=[f"CUDA_VISIBLE_DEVICES={GPU}", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G"])
    node.client(f"CUDA_MPS_PIPE_DIRECTORY={PIPES}/", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50")
    node.text("/proc/driver/nvidia/gpus/0000:05:00.0/information", f"GPU UUID: \t {GPU}\nDevice Minor: 0\n")
    found = node.get(Mps)
    (daemon,) = found.daemons
    assert (daemon.pid, daemon.uid, daemon.pipe_directory, daemon.log_directory) == (CONTROL, 0, PIPES, LOGS)
    assert (daemon.servers, daemon.gpus) == ((SERVES,), ("0000:05:00.0",))
    assert daemon.limits == {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G"}
    (client,) = found.clients
    assert (client.pid, client.daemon, client.pipe_directory) == (CLIENT, CONTROL, PIPES)
    assert client.limits == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    assert client.memory_limit is None


def test_a_daemon_of_a_mig_device_serves_its_gpu_alone() -> None:
    node = PluginNode()
    node.devices[1]["fields"] = {"mig.current": True}
    node.devices[1]["mig_devices"] = [{"index": 0, "uuid": "MIG-0a0b0c0d-1111-2222-3333-444455556660"}]
    node.nvml()
    node.process(CONTROL, "/system.slice/nvidia-mps.service", comm="nvidia-cuda-mps")
    node.text(f"/proc/{CONTROL}/environ", "CUDA_VISIBLE_DEVICES=MIG-0a0b0c0d-1111-2222-3333-444455556660\0")
    for name in ("control", "server"):
        node.text(f"{LOGS}/{name}.log", STARTED)
    (passed,) = of_plugin(node).result(DAEMON).findings
    assert [below.key for below in passed.subject.stands_on] == [node.devices[1]["pci_bus_id"][4:]]


def test_an_idle_daemon_has_no_server_yet() -> None:
    node = MpsNode()
    node.mps()
    node.says_log(STARTED)
    report = node.report()
    assert [report.result(check).status for check in (DAEMON, SERVER)] == [Status.PASS, Status.PASS]
    assert "no server yet" in report.result(DAEMON).findings[0].summary


@pytest.mark.parametrize("name", ["mps-client-with-the-right-pipe-directory", "ranks-under-mps-on-one-gpu"])
def test_recorded_nodes_where_mps_is_as_it_should_be(name: str) -> None:
    report = run_node(node(name))
    assert [cause.check for cause in report.root_causes] == []
    assert [report.result(check).status for check in (DAEMON, SERVER, CLIENTS)] == [Status.PASS] * 3


# The daemon -----------------------------------------------------------------------------------------------------------


def enabled(text: str = "[Service]\nType=forking\nExecStart=/usr/bin/nvidia-cuda-mps-control -d\n") -> MpsNode:
    """A node whose systemd is to start the daemon."""
    node = MpsNode()
    node.link(f"{WANTS}/{UNIT}", f"/etc/systemd/system/{UNIT}")
    node.text(f"/etc/systemd/system/{UNIT}", text)
    return node


def test_an_enabled_unit_without_its_daemon() -> None:
    node = enabled()
    node.logs[f"journal/{UNIT}.log"] = (
        "2026-11-29T10:00:00+0000 n1 systemd[1]: nvidia-mps.service: Main process exited, code=exited, status=1/FAILURE\n"
    )
    report = node.report()
    said = only(report, DAEMON)
    assert said.status is Status.FAIL
    assert "nvidia-mps.service is enabled to start the MPS daemon, and no MPS daemon runs" in said.summary
    assert "status=1/FAILURE" in cited(said)
    assert f"systemctl restart {UNIT}" in steps(said)
    assert [cause.check for cause in report.root_causes] == [DAEMON]


@pytest.mark.parametrize(
    "text",
    ["[Service]\nExecStart=/usr/bin/nvidia-smi -c EXCLUSIVE_PROCESS\n", "[Service]\nExecStart=/opt/mps/player\n"],
)
def test_a_unit_that_starts_something_else(text: str) -> None:
    assert enabled(text).report().result(DAEMON).status is Status.SKIP


def test_a_masked_unit_wants_nothing() -> None:
    node = enabled()
    node.link(f"/etc/systemd/system/{UNIT}", "/dev/null")
    assert node.report().result(DAEMON).status is Status.SKIP


def test_what_the_unit_itself_said_of_its_last_start_comes_first() -> None:
    node = enabled()
    node.logs[f"journal/{UNIT}.log"] = "".join(
        f"2026-11-29T10:{minute}:00+0000 n1 {said}\n"
        for minute, said in enumerate(
            (
                "systemd[1]: Starting nvidia-mps.service - MPS...",
                "nvidia-cuda-mps-control[900]: An error of long ago",
                "systemd[1]: Starting nvidia-mps.service - MPS...",
                "(-control)[1410]: nvidia-mps.service: Unable to locate executable '/usr/bin/nvidia-cuda-mps-control'",
                "systemd[1]: nvidia-mps.service: Failed with result 'exit-code'.",
                "systemd[1]: Failed to start nvidia-mps.service - MPS.",
            ),
            10,
        )
    )
    assert "no MPS daemon runs: nvidia-mps.service: Unable to locate executable" in only(node.report(), DAEMON).summary


def test_who_only_asks_the_daemon_something_is_no_daemon() -> None:
    node = serving()
    node.mps(8300, "nvidia-cuda-mps-control")
    assert [one.pid for one in node.get(Mps).daemons] == [CONTROL]
    alone = enabled()
    alone.mps(8300, "nvidia-cuda-mps-control")
    assert "no MPS daemon runs" in only(alone.report(), DAEMON).summary


def test_units_that_may_not_be_listed_are_not_known() -> None:
    node = MpsNode()
    node.tree.put(WANTS, Record(error="EACCES"))
    node.client(mountinfo=ROOTS)
    assert alarms(node.report(), DAEMON) == []
    assert node.report().result(DAEMON).status is Status.UNKNOWN


def test_a_client_whose_daemon_is_gone() -> None:
    node = MpsNode()
    node.client()
    report = node.report()
    said = only(report, DAEMON)
    assert (said.status, said.cause) == (Status.FAIL, "no-daemon")
    assert "pipes in /tmp/nvidia-mps" in said.summary
    assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps nvidia-cuda-mps-control -d" in steps(said)
    assert [cause.check for cause in report.root_causes] == [DAEMON]
    assert [report.result(check).status for check in (SERVER, CLIENTS)] == [Status.SKIP, Status.SKIP]


@pytest.mark.parametrize("unit", [False, True])
def test_an_exclusive_gpu_whose_daemon_is_gone_is_one_cause(unit: bool) -> None:
    node = enabled() if unit else MpsNode()
    node.fields["compute_mode"] = "exclusive_process"
    node.client()
    node.client(pid=703, group=DOCKER.replace(ID, OTHER))
    report = node.report()
    (mode,) = [one for one in report.result("health.compute-mode").findings if one.subject.key == "0000:05:00.0"]
    assert (mode.status, DAEMON in mode.summary) == (Status.SKIP, True)
    assert [cause.check for cause in report.root_causes] == [DAEMON]


@pytest.mark.parametrize(("confined", "warned"), [("", False), ("0", False), ("1", True)])
def test_an_exclusive_gpu_of_several_workloads_is_right_where_a_daemon_serves_it(confined: str, warned: bool) -> None:
    """The daemon idles: nobody has come yet, and no process of MPS is on the GPU."""
    node = MpsNode()
    node.mps(environment=[f"CUDA_VISIBLE_DEVICES={confined}"] if confined else ())
    node.says_log(STARTED)
    node.fields["compute_mode"] = "exclusive_process"
    for minor in range(2):
        information = f"GPU UUID: \t {GPU.replace('0a', f'{minor}a')}\nDevice Minor: {minor}\n"
        node.text(f"/proc/driver/nvidia/gpus/0000:0{5 + minor}:00.0/information", information)
    node.client()
    node.client(pid=703, group=DOCKER.replace(ID, OTHER))
    report = node.report()
    assert bool(alarms(report, "health.compute-mode")) is warned
    assert [cause.check for cause in report.root_causes] == (["health.compute-mode"] if warned else [])


def test_clients_that_nvml_lists_show_that_a_server_lives_somewhere() -> None:
    node = MpsNode()
    node.uses(8000)
    node.uses(8001, "mps", "nvidia-cuda-mps-server")
    report = node.report()
    assert report.result(DAEMON).status is Status.UNKNOWN
    assert alarms(report, DAEMON) == []


def test_a_container_without_a_gpu_may_name_what_it_likes() -> None:
    node = MpsNode()
    node.container(CLIENT, DOCKER, f"CUDA_MPS_PIPE_DIRECTORY={PIPES}", nodes={})
    node.folder(f"/proc/{CLIENT}/root/dev")
    node.complete.append(f"/proc/{CLIENT}/root/dev")
    assert node.report().result(DAEMON).status is Status.SKIP


def test_where_processes_are_hidden_no_daemon_is_missed() -> None:
    node = enabled()
    node.uid = 1000
    node.tree.put("/proc/3000/cgroup", Record(error="EACCES"))
    assert alarms(node.report(), DAEMON) == []
    assert node.report().result(DAEMON).status is Status.UNKNOWN


# Servers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", [False, True])
def test_servers_that_die_one_after_the_other(server: bool) -> None:
    node = MpsNode()
    node.mps()
    if server:
        node.server()
    node.says_log(STARTED + DEATH + AGAIN + line(17, "Starting new server 98 for user 1001"))
    said = only(node.report(), SERVER)
    assert said.status is Status.FAIL
    assert "2 servers in a row died before one was ready, and a client waits" in said.summary
    assert "Server 95 exited with status 1" in cited(said)
    assert said.remedies[-1].interrupts == "every client of this daemon"


def test_one_death_counts_when_a_client_waits_and_no_server_is_there() -> None:
    node = MpsNode()
    node.mps()
    node.says_log(STARTED + DEATH)
    assert only(node.report(), SERVER).status is Status.FAIL


def test_a_server_that_died_with_its_clients() -> None:
    node = MpsNode()
    node.mps()
    node.says_log(
        STARTED
        + READY
        + line(5, "Server encountered a fatal exception. Shutting down")
        + line(6, "Server 1500 exited with status 1")
    )
    said = only(node.report(), SERVER)
    assert (said.status, said.cause) == (Status.WARN, "died")


@pytest.mark.parametrize(
    "later",
    [
        line(30, "NEW SERVER 98: Ready"),
        line(30, "Starting control daemon using socket /tmp/nvidia-mps/control"),
    ],
)
def test_what_was_before_a_server_that_is_ready_counts_no_longer(later: str) -> None:
    node = serving()
    node.says_log(STARTED + DEATH + AGAIN + later)
    assert node.report().result(SERVER).status is Status.PASS


@pytest.mark.parametrize(
    "harmless",
    [
        line(20, "User did not send valid credentials"),
        line(20, "Server 92 exited with status 0"),
        line(20, "NEW CLIENT 0 from user 0: Server already exists"),
        line(20, "Receive command failed, assuming client exit", "Server  1500"),
    ],
)
def test_words_that_mean_nothing(harmless: str) -> None:
    node = serving()
    node.says_log(STARTED + READY + harmless, harmless)
    assert node.report().result(SERVER).status is Status.PASS


def test_a_fault_keeps_new_clients_out() -> None:
    node = serving()
    node.uses(8000)
    node.says_log(STARTED + READY, line(40, "Server is handling a fatal GPU error.", "Server  1500"))
    said = only(node.report(), SERVER)
    assert (said.status, said.cause) == (Status.FAIL, "fault")
    assert "waits until the clients it has are gone (PID 8000), and takes no new ones" in said.summary
    assert said.remedies[0].action is Action.CHANGE_WORKLOAD


@pytest.mark.parametrize(
    "later",
    [
        "Status of client {PID: 8100, Context ID: 1} is ACTIVE",
        "Client disconnected. Number of active client contexts is 0.",
    ],
)
def test_a_fault_is_over_when_its_clients_are_gone(later: str) -> None:
    node = serving()
    fault = line(40, "Server is handling a fatal GPU error.", "Server  1500")
    node.says_log(STARTED + READY, fault + line(50, later, "Server  1500"))
    assert node.report().result(SERVER).status is Status.PASS


@pytest.mark.parametrize(("left", "status"), [(True, Status.FAIL), (False, Status.PASS)])
def test_a_fault_is_over_when_no_process_is_left_on_the_gpus(left: bool, status: Status) -> None:
    node = serving()
    node.uses(SERVES, "compute", "nvidia-cuda-mps-server")
    if left:
        node.uses(8000)
    node.says_log(STARTED + READY, line(40, "Server is handling a fatal GPU error.", "Server  1500"))
    assert node.report().result(SERVER).status is status


@pytest.mark.parametrize(("lives", "status"), [(True, Status.FAIL), (False, Status.WARN)])
def test_a_client_that_ended_while_it_waited_waits_no_longer(lives: bool, status: Status) -> None:
    node = MpsNode()
    node.mps()
    node.says_log(STARTED + DEATH.replace("NEW CLIENT 0", "NEW CLIENT 8200"))
    if lives:
        node.process(8200, "/user.slice/user-1001.slice/session-3.scope")
    assert only(node.report(), SERVER).status is status


def test_a_server_that_says_why_it_does_not_start() -> None:
    node = MpsNode()
    node.mps()
    node.says_log(STARTED + DEATH, line(12, "Failed to start : invalid argument", "Legacy Server    92"))
    said = only(node.report(), SERVER)
    assert "Failed to start" in cited(said) or "fatal exception" in cited(said)


def test_a_log_that_may_not_be_read() -> None:
    node = serving()
    for name in ("control", "server"):
        node.tree.put(f"{LOGS}/{name}.log", Record(error="EACCES"))
    assert node.report().result(SERVER).status is Status.UNKNOWN


def test_of_a_log_that_is_too_large_nothing_is_said() -> None:
    node = MpsNode()
    node.mps()
    node.says_log(STARTED + DEATH + AGAIN)
    record = node.tree.lookup(f"{LOGS}/control.log")
    assert record is not None
    large = Entry(f"{LOGS}/control.log", EntryType.FILE, size=1 << 25)
    node.tree.put(f"{LOGS}/control.log", Record(entry=large, text=record.text))
    assert node.report().result(SERVER).status is Status.UNKNOWN


def test_logs_of_a_daemon_in_a_container_are_read_there() -> None:
    node = MpsNode()
    node.container(CLIENT, DOCKER, nodes=INSIDE)
    node.mps(CONTROL, environment=["CUDA_MPS_LOG_DIRECTORY=/mps/nvidia.com/gpu/log"])
    node.process(CONTROL, DOCKER.replace(ID, OTHER), comm="nvidia-cuda-mps", apart=True)
    node.says_log(STARTED + DEATH + AGAIN, folder=f"/proc/{CONTROL}/root/mps/nvidia.com/gpu/log")
    assert only(node.report(), SERVER).status is Status.FAIL


@pytest.mark.parametrize(("count", "lives", "full"), [(48, True, True), (48, False, False), (47, True, False)])
def test_a_gpu_with_all_clients_that_it_takes(count: int, lives: bool, full: bool) -> None:
    node = serving()
    node.says_log(STARTED + READY + line(30, "NEW CLIENT 9000 from user 0: Server already exists"))
    if lives:
        node.process(9000, "/user.slice/user-1000.slice/session-3.scope", comm="python3")
    for number in range(count):
        node.uses(8000 + number)
    found = alarms(node.report(), SERVER)
    assert bool(found) is full
    if full:
        assert (found[0].subject.key, found[0].cause) == ("0000:05:00.0", "full")
        assert "full with 48 clients of MPS: PID 9000" in found[0].summary


def test_lines_of_both_logs_are_taken_in_the_order_of_time() -> None:
    control = TextFile("c", line(10, "Server 92 exited with status 1"))
    server = TextFile("s", line(20, "Server has started", "Server  98"))
    assert parse_logs([server, control]).deaths == 0
    assert parse_logs([control]).deaths == 1
    assert parse_logs([TextFile("c", "no line of MPS\n")]).last is None
    # Whoever runs a daemon of his own writes its logs: a line takes as long as it is long.
    began = time.process_time()
    blank = f"[2026-11-30 10:00:00.123{' ' * 1_000_000}Starting new server\n"
    assert parse_logs([TextFile("c", blank)]).last is None and time.process_time() - began < 5
    endless = line(10, f"NEW CLIENT {'9' * 9999} from user 0: Server is not ready, push client to pending list")
    assert (
        parse_logs([TextFile("c", endless + line(11, f"Starting new server {'9' * 9999} for user 0"))]).waiting is None
    )


# Clients --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mountinfo", "there"),
    [
        (ROOTS, False),
        (f"{ROOTS}95 90 259:2 /srv/other-mps {PIPES} rw - ext4 /dev/nvme0n1p2 rw\n", True),
        (f"{ROOTS}95 90 259:2 {PIPES}//deleted {PIPES} rw - ext4 /dev/nvme0n1p2 rw\n", True),
    ],
)
def test_a_client_without_the_pipes_of_the_daemon(mountinfo: str, there: bool) -> None:
    node = serving()
    node.client(mountinfo=mountinfo + SHARED_SHM)
    place = f"/proc/{CLIENT}/root{PIPES}"
    if there:
        node.folder(place)
        node.complete.append(place)
    else:
        node.tree.put(place, Record(error="ENOENT"))
    report = node.report()
    said = only(report, CLIENTS)
    assert said.status is Status.WARN
    assert "its /tmp/nvidia-mps is not the daemon's, which is not mounted into it" in said.summary
    assert "--ipc=host" in steps(said)
    assert alarms(report, SHM) == []


def test_without_the_pipes_an_exclusive_gpu_refuses_it() -> None:
    node = serving()
    node.fields["compute_mode"] = "exclusive_process"
    node.text("/proc/driver/nvidia/gpus/0000:05:00.0/information", f"GPU UUID: \t {GPU}\nDevice Minor: 0\n")
    node.client(mountinfo=ROOTS)
    node.tree.put(f"/proc/{CLIENT}/root{PIPES}", Record(error="ENOENT"))
    said = only(node.report(), CLIENTS)
    assert said.status is Status.FAIL
    assert "on a GPU in exclusive mode" in said.summary


@pytest.mark.parametrize("hidden", ["ENOENT", "EACCES"])
@pytest.mark.parametrize(
    ("mountinfo", "there", "status"),
    [
        (ROOTS, False, Status.WARN),
        (ROOTS, True, Status.UNKNOWN),
        (BOUND, True, Status.PASS),
        ("22 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw\n", True, Status.UNKNOWN),
    ],
)
def test_a_daemon_whose_mounts_are_not_shown(mountinfo: str, there: bool, status: Status, hidden: str) -> None:
    """A directory of the container's own root may have the daemon's name, and is not the daemon's."""
    node = serving()
    node.tree.put(f"/proc/{CONTROL}/mountinfo", Record(error=hidden))
    node.client(mountinfo=mountinfo)
    place = f"/proc/{CLIENT}/root{PIPES}"
    if there:
        node.tree.put(f"{place}/control", Record(entry=Entry(f"{place}/control", EntryType.SOCKET)))
    else:
        node.tree.put(place, Record(error="ENOENT"))
    assert node.report().result(CLIENTS).status is status


@pytest.mark.parametrize("pid", [CLIENT, CONTROL])
def test_a_client_whose_mount_namespace_is_not_shown_is_not_taken_for_one_of_the_host(pid: int) -> None:
    node = serving()
    node.client(mountinfo=ROOTS)
    node.tree.put(f"/proc/{CLIENT}/root{PIPES}", Record(error="ENOENT"))
    node.tree.put(f"/proc/{pid}/ns/mnt", Record(error="EACCES"))
    node.uses(CLIENT, "compute")
    assert node.report().result(CLIENTS).status is not Status.PASS


def test_a_unit_with_a_tmp_of_its_own_has_not_the_daemons_pipes() -> None:
    node = serving()
    node.process(8000, "/system.slice/infer.service", comm="python3", mount=4026539999)
    node.text("/proc/8000/environ", f"CUDA_MPS_PIPE_DIRECTORY={PIPES}\0")
    node.text(
        "/proc/8000/mountinfo",
        f"{HOST_MOUNTS}99 22 259:2 /tmp/systemd-private-1/tmp /tmp rw - ext4 /dev/nvme0n1p2 rw\n",
    )
    node.tree.put(f"/proc/8000/root{PIPES}", Record(error="ENOENT"))
    node.uses(8000, "compute")
    assert "its /tmp/nvidia-mps is not the daemon's, which is not in its mounts" in only(node.report(), CLIENTS).summary


def test_a_client_of_the_host_that_names_another_directory() -> None:
    node = serving()
    node.process(8000, "/system.slice/slurmstepd.scope/job_397/step_0/user/task_0", comm="python3")
    node.text("/proc/8000/environ", "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps-397\0SLURM_JOB_ID=397\0")
    node.tree.put("/tmp/mps-397", Record(error="ENOENT"))
    node.uses(8000, "compute")
    said = only(node.report(), CLIENTS)
    assert "/tmp/mps-397" in said.summary
    assert "/tmp/nvidia-mps" in said.summary


def test_two_daemons_each_with_its_client() -> None:
    node = serving()
    node.mps(1420, environment=["CUDA_MPS_PIPE_DIRECTORY=/run/mps-1", "CUDA_MPS_LOG_DIRECTORY=/var/log/mps-1"])
    node.server(1520, 1420)
    node.says_log(STARTED + READY, folder="/var/log/mps-1")
    node.client()
    node.process(8000, "/user.slice/user-1000.slice/session-3.scope", comm="python3")
    node.text("/proc/8000/environ", "CUDA_MPS_PIPE_DIRECTORY=/run/mps-1\0")
    node.uses(8000)
    report = node.report()
    assert {check: statuses(report)[check] for check in (DAEMON, SERVER, CLIENTS)} == dict.fromkeys(
        (DAEMON, SERVER, CLIENTS), Status.PASS
    )
    assert {one.subject.key for one in report.result(DAEMON).findings} == {
        "nvidia-cuda-mps-control@/tmp/nvidia-mps",
        "nvidia-cuda-mps-control@/run/mps-1",
    }


def test_where_nvml_is_silent_no_daemon_is_said_to_be_missing() -> None:
    node = serving()
    report = node.report()
    del node.answers["nvml"]
    assert "no MPS daemon runs" not in super(MpsNode, node).report().result(CLIENTS).findings[0].summary
    assert "NVML lists no client" in report.result(CLIENTS).findings[0].summary


def test_a_daemon_of_another_user() -> None:
    node = serving()
    node.owner(CONTROL, 1000)
    node.client(uid=1001)
    said = only(node.report(), CLIENTS)
    assert said.status is Status.FAIL
    assert "runs as user 1001, and its daemon as user 1000" in said.summary


@pytest.mark.parametrize(
    ("words", "waits"), [((), True), (("nvidia-cuda-mps-control", "-d", "-multiuser-server"), False)]
)
def test_a_second_user_waits_for_the_first(words: tuple[str, ...], waits: bool) -> None:
    node = serving()
    node.mps(CONTROL, *words)
    node.process(8000, "/user.slice/user-1000.slice/session-3.scope", comm="python3")
    node.text("/proc/8000/environ", f"CUDA_MPS_PIPE_DIRECTORY={PIPES}\0")
    node.owner(8000, 1000)
    node.uses(8000)
    node.process(8100, "/system.slice/slurmstepd.scope/job_398/step_0/user/task_0", comm="python3")
    node.inside(8100, f"CUDA_MPS_PIPE_DIRECTORY={PIPES}", "SLURM_JOB_ID=398", nodes=INSIDE, mountinfo=HOST_MOUNTS)
    node.owner(8100, 1001)
    node.says_log(STARTED + READY)
    assert alarms(node.report(), CLIENTS) == []
    node.says_log(
        STARTED + READY + line(30, "NEW CLIENT 0 from user 1001: Server is not ready, push client to pending list")
    )
    found = alarms(node.report(), CLIENTS)
    assert bool(found) is waits
    assert not waits or "runs as user 1001 and waits: the server serves user 1000 until" in found[0].summary


def test_a_client_that_only_the_log_tells_of_waits_for_another_user() -> None:
    node = serving()
    node.says_log(
        STARTED + READY + line(30, "NEW CLIENT 7040 from user 1002: Server is not ready, push client to pending list")
    )
    assert [node.report().result(check).status for check in (CLIENTS, SERVER)] == [Status.SKIP, Status.PASS]
    node.process(7040, "/user.slice/user-1002.slice/session-3.scope", comm="python3")
    said = only(node.report(), CLIENTS)
    assert (said.subject.key, said.status) == ("pid:7040", Status.FAIL)
    assert "PID 7040 of user 1002 waits: the server serves user 0" in said.summary


def test_a_client_without_a_number_that_waits_is_not_known() -> None:
    node = serving()
    waits = line(30, "NEW CLIENT 0 from user 1002: Server is not ready, push client to pending list")
    node.says_log(STARTED + READY + waits)
    report = node.report()
    assert report.result(CLIENTS).status is Status.UNKNOWN
    assert "a client of user 1002 waits" in report.result(CLIENTS).findings[0].summary


def test_servers_that_an_intruder_keeps_out_are_one_cause() -> None:
    node = MpsNode()
    node.mps()
    node.says_log(
        STARTED + DEATH + AGAIN,
        line(15, "Failed to start : CUDA-capable device(s) is/are busy or unavailable", "Server    95"),
    )
    node.fields["compute_mode"] = "exclusive_process"
    node.process(8000, "/user.slice/user-1000.slice/session-3.scope", comm="python3")
    node.text("/proc/8000/environ", "PATH=/bin\0")
    node.uses(8000, "compute", "python3")
    report = node.report()
    said = only(report, CLIENTS)
    assert (said.subject.key, said.status) == ("0000:05:00.0", Status.FAIL)
    assert "python3 (PID 8000) has this GPU to itself in exclusive mode" in said.summary
    assert "nvidia-smi -i 0000:05:00.0 -c DEFAULT" in steps(said)
    assert "Failed to start : CUDA-capable device(s) is/are busy or unavailable" in only(report, SERVER).summary
    assert [cause.check for cause in report.root_causes] == [CLIENTS]


def test_a_process_that_keeps_the_server_out_of_an_exclusive_gpu() -> None:
    node = MpsNode()
    node.mps()
    node.says_log(STARTED)
    node.fields["compute_mode"] = "exclusive_process"
    node.process(8000, "/user.slice/user-1000.slice/session-3.scope", comm="python3")
    node.text("/proc/8000/environ", "PATH=/bin\0")
    node.uses(8000, "compute", "python3")
    said = only(node.report(), CLIENTS)
    assert (said.subject.key, said.cause) == ("0000:05:00.0", "beside-mps")
    assert "python3 (PID 8000) has this GPU to itself in exclusive mode" in said.summary


@pytest.mark.parametrize(("mode", "served"), [("default", False), ("exclusive_process", True)])
def test_a_process_beside_mps_that_harms_nobody(mode: str, served: bool) -> None:
    node = MpsNode()
    node.mps()
    node.says_log(STARTED)
    node.fields["compute_mode"] = mode
    node.uses(8000, "compute", "python3")
    if served:
        node.server()
        node.uses(SERVES, "compute", "nvidia-cuda-mps-server")
    assert alarms(node.report(), CLIENTS) == []


def test_pipes_that_cannot_be_compared_are_not_known() -> None:
    node = serving()
    node.tree.put(f"/proc/{CONTROL}/environ", Record(error="EACCES"))
    node.client()
    node.tree.put(
        f"/proc/{CLIENT}/root{PIPES}/control",
        Record(entry=Entry(f"/proc/{CLIENT}/root{PIPES}/control", EntryType.SOCKET)),
    )
    report = node.report()
    assert report.result(CLIENTS).status is Status.UNKNOWN
    assert alarms(report, CLIENTS) == []


def test_commands_are_for_the_daemon_that_is_meant() -> None:
    """With pipes of its own, and in a container: there the control program is asked within the daemon's mounts."""
    node = MpsNode()
    node.mps(environment=["CUDA_MPS_PIPE_DIRECTORY=/run/mps", f"CUDA_MPS_LOG_DIRECTORY={LOGS}"])
    node.server()
    node.process(8100, "/user.slice/user-1001.slice/session-3.scope", comm="python3")
    node.says_log(
        STARTED + READY + line(30, "NEW CLIENT 8100 from user 1001: Server is not ready, push client to pending list")
    )
    said = steps(only(node.report(), CLIENTS))
    assert "echo quit -t 10 | CUDA_MPS_PIPE_DIRECTORY=/run/mps nvidia-cuda-mps-control" in said
    assert "CUDA_MPS_PIPE_DIRECTORY=/run/mps nvidia-cuda-mps-control -d -multiuser-server" in said

    inside = MpsNode()
    pipes, logs = "/mps/nvidia.com/gpu/pipe", "/mps/nvidia.com/gpu/log"
    inside.container(CLIENT, DOCKER, nodes=INSIDE)
    inside.mps(environment=[f"CUDA_MPS_PIPE_DIRECTORY={pipes}", f"CUDA_MPS_LOG_DIRECTORY={logs}"])
    inside.process(CONTROL, DOCKER.replace(ID, OTHER), comm="nvidia-cuda-mps", apart=True)
    inside.server()
    inside.uses(8000)
    inside.says_log(
        STARTED + READY, line(40, "Server is handling a fatal GPU error."), folder=f"/proc/{CONTROL}/root{logs}"
    )
    said = steps(only(inside.report(), SERVER))
    asked = f"nsenter -m -p -t {CONTROL} sh -c 'echo get_client_list {SERVES} | CUDA_MPS_PIPE_DIRECTORY={pipes} "
    assert asked in said
    assert "nvidia-cuda-mps-control -d" not in said


# Shared memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mountinfo", "ipc", "status"),
    [
        (BOUND + SHARED_SHM, "ipc:[4026533333]", Status.PASS),
        (BOUND + OWN_SHM, "ipc:[4026531839]", Status.PASS),
        (BOUND + OWN_SHM, "ipc:[4026533333]", Status.WARN),
    ],
)
def test_shared_memory_by_mount_or_by_namespace(mountinfo: str, ipc: str, status: Status) -> None:
    node = serving()
    node.client(mountinfo=mountinfo, ipc=ipc)
    report = node.report()
    assert report.result(SHM).status is status
    if status is Status.WARN:
        said = only(report, SHM)
        assert "neither the IPC namespace nor the /dev/shm" in said.summary
        assert "0:88" in cited(said)
        assert "0:26" in cited(said)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/tmp/nvidia-mps", ("259:2", "/tmp/nvidia-mps")),
        ("/dev/shm", ("0:88", "/")),
        ("/mps/nvidia.com/gpu/pipe", ("0:25", "/nvidia/mps/nvidia.com/gpu/pipe")),
        ("/opt", ("0:53", "/opt")),
    ],
)
def test_where_a_directory_lies(path: str, found: tuple[str, str]) -> None:
    assert located(f"{BOUND}{OWN_SHM}97 90 0:25 /nvidia/mps /mps rw - tmpfs tmpfs rw\n", path) == found


# The device plugin ----------------------------------------------------------------------------------------------------

SHARED: Mapping[str, Any] = {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}


def plugin(strategy: str = "none", sharing: Mapping[str, Any] = SHARED) -> PluginNode:
    """A plugin that shares by MPS."""
    node = PluginNode()
    node.log(RUNNING + config(strategy, sharing))
    return node


def test_the_plugin_wants_a_daemon_that_does_not_run() -> None:
    node = plugin()
    pods = "/var/log/pods/nvidia-device-plugin_nvdp-nvidia-device-plugin-mps-control-daemon-7hx2p_1c2d4e6f-2222-4a55-9f5f-3f2d6c1b0a99"
    node.text(
        f"{pods}/mps-control-daemon-ctr/0.log",
        "2026-11-29T10:00:00.0Z stderr F E1129 10:00:00.1       1 main.go:152] Failed to start MPS daemon: error setting compute mode\n",
    )
    report = of_plugin(node)
    said = only(report, DAEMON)
    assert said.subject.key == "nvidia-device-plugin"
    assert "Failed to start MPS daemon: error setting compute mode" in said.summary
    assert "nvidia.com/mps.capable" in said.remedies[0].say


@pytest.mark.parametrize("shown", [True, False])
def test_pods_of_the_plugin_whose_daemon_is_gone(shown: bool) -> None:
    """Where the plugin's log is not shown, the pipes of its pods tell: one starts no daemon by hand for them."""
    node = plugin() if shown else PluginNode()
    if not shown:
        node.tree.put("/var/log/pods", Record(error="EACCES"))
    node.devices[0]["fields"] = {"compute_mode": "exclusive_process"}
    node.nvml()
    said = ("NVIDIA_VISIBLE_DEVICES=void", "CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe")
    node.container(*said, nodes={"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-uvm": (508, 0)})
    found = only(of_plugin(node), DAEMON)
    assert found.subject.key == "nvidia-device-plugin"
    assert "let" in found.summary and "others get CUDA error 46" in found.summary
    assert "nvidia-cuda-mps-control -d" not in steps(found)


def test_pods_that_a_plugin_set_up_which_shares_by_mps_no_longer() -> None:
    node = PluginNode()
    said = ("NVIDIA_VISIBLE_DEVICES=void", "CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe")
    node.container(*said, nodes={"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-uvm": (508, 0)})
    found = only(of_plugin(node), DAEMON)
    assert "nvidia-cuda-mps-control -d" not in steps(found)
    assert "delete pod" in steps(found)


def test_a_plugin_that_waits_for_its_daemon_is_one_cause() -> None:
    node = plugin()
    node.unserved()
    report = of_plugin(node)
    assert alarms(report, "device-plugin.registered")
    assert [cause.check for cause in report.root_causes] == [DAEMON]


def test_the_plugins_daemon_and_a_pod_apart_by_namespaces() -> None:
    """The chart's pods: the daemon in a container, clients with PIDs and IPC of their own, its pipes and /dev/shm mounted."""
    node = plugin()
    mounts = "97 90 0:25 /nvidia/mps{} {} rw - tmpfs tmpfs rw\n"
    node.process(
        2100,
        "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + "b" * 64 + ".scope",
        comm="nvidia-cuda-mps",
        apart=True,
    )
    node.text("/proc/2100/cmdline", "nvidia-cuda-mps-control\0-d\0")
    node.text(
        "/proc/2100/environ",
        "CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe\0CUDA_MPS_LOG_DIRECTORY=/mps/nvidia.com/gpu/log\0",
    )
    node.text("/proc/2100/mountinfo", ROOTS + mounts.format("", "/mps") + mounts.format("/shm", "/dev/shm"))
    node.text("/proc/2100/root/mps/nvidia.com/gpu/log/control.log", STARTED)
    said = ("NVIDIA_VISIBLE_DEVICES=void", "CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe")
    pipes = mounts.format("/nvidia.com/gpu/pipe", "/mps/nvidia.com/gpu/pipe")
    node.container(*said, nodes={"nvidia0": (195, 0), "nvidiactl": (195, 255), "nvidia-uvm": (508, 0)})
    node.text("/proc/3000/mountinfo", ROOTS + pipes + mounts.format("/shm", "/dev/shm"))
    report = of_plugin(node)
    assert [report.result(check).status for check in (DAEMON, SERVER, CLIENTS, SHM, MIG)] == [Status.PASS] * 5


@pytest.mark.parametrize("strategy", ["mixed", "single"])
def test_mps_is_not_for_what_mig_has_divided(strategy: str) -> None:
    node = plugin(strategy)
    node.devices[0]["fields"] = {"mig.current": True}
    node.devices[0]["mig_devices"] = [
        {"index": 0, "uuid": "MIG-0a0b0c0d-1111-2222-3333-444455556660", "profile": "1g.10gb"}
    ]
    node.nvml()
    report = of_plugin(node)
    said = only(report, MIG)
    assert said.status is Status.FAIL
    assert "told to share by MPS" in said.summary
    assert "sharing.timeSlicing" in said.remedies[0].say
    roots = [cause.check for cause in report.root_causes]
    assert MIG in roots
    assert DAEMON not in roots


def test_a_plugin_that_ended_over_mps_and_mig() -> None:
    node = PluginNode()
    node.unplugged()
    node.tree.put(f"{KUBELET}/pods/{OTHER_POD}", Record(entry=Entry(f"{KUBELET}/pods/{OTHER_POD}", EntryType.DIR)))
    node.log(
        'I1129 10:00:00.1       1 main.go:235] "Starting NVIDIA Device Plugin" version="v0.17.1"\n'
        "E1129 10:00:00.2       1 main.go:173] unable to validate flags: using --mig-strategy=mixed is not supported with MPS\n"
    )
    said = only(of_plugin(node), MIG)
    assert "is not supported with MPS" in cited(said)


def test_mps_on_whole_gpus_of_the_plugin_is_fine() -> None:
    report = of_plugin(plugin("none"))
    assert report.result(MIG).status is Status.PASS


def test_bare_mps_on_a_mig_device_is_nobodys_fault() -> None:
    assert run_check(MIG, node("ranks-under-mps-on-one-gpu")).status is Status.SKIP
