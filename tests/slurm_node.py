"""A node with two GPUs, a slurmd and its files, all of it right until a test changes it; texts as Slurm 22.05.8 of Debian printed them."""

from typing import Any

from gpudoctor.config import Config
from gpudoctor.facts.raw import Answer, CommandOutput, Entry, EntryType, Log, SourceKind
from gpudoctor.registry import built_in
from gpudoctor.report import Finding, Report
from gpudoctor.run import Selection, run
from gpudoctor.sources.recorded import Record
from gpudoctor.verdicts import Status
from tests.captures import NOW
from tests.gpu_node import GpuNode
from tests.small_node import ALARMS

CONF, GRES, CGROUP = "/etc/slurm/slurm.conf", "/etc/slurm/gres.conf", "/etc/slurm/cgroup.conf"
FOLDERS = ("/etc/slurm", "/etc/slurm-llnl", "/opt/slurm", "/usr/local", "/var/spool/slurmd", "/usr/lib")
SLURMD = 1960
NAME = "NVIDIA H100 80GB HBM3"
STARTED = "slurmd: slurmd version 22.05.8 started"
SETTINGS = (
    "ClusterName=lab\nGresTypes=gpu\nSelectType=select/cons_tres\nTaskPlugin=task/affinity,task/cgroup\n"
    "SlurmdParameters=config_overrides\n"
)
SHOWN = """NodeName=n1 Arch=x86_64 CoresPerSocket=16 
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.45
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres=gpu:h100:2
   NodeAddr=10.0.0.1 NodeHostName=n1 Version=22.05.8
   OS=Linux 6.8.0-45-generic #45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024 
   RealMemory=515000 AllocMem=0 FreeMem=480000 Sockets=2 Boards=1
   State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=all 
   BootTime=2026-11-29T08:00:07 SlurmdStartTime=2026-11-29T08:00:57
   LastBusyTime=2026-11-29T08:00:58
   CfgTRES=cpu=64,mem=515000M,billing=64
   AllocTRES=
   CapWatts=n/a
   CurrentWatts=0 AveWatts=0
   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s
{reason}
"""  # noqa: W291 - scontrol leaves blanks at the ends of lines


class SlurmNode(GpuNode):
    """Node n1 of a cluster; `conf`, `gres` and `cgroup` are the texts of its files, None for a file that is not there.

    `live` has the recording pass for the node itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conf: str | None = (
            f"{SETTINGS}NodeName=n[1-8] CPUs=64 Gres=gpu:h100:2 State=UNKNOWN\n"
            "PartitionName=all Nodes=ALL Default=YES State=UP\n"
        )
        self.gres: str | None = "Name=gpu Type=h100 File=/dev/nvidia[0-1]\n"
        self.cgroup: str | None = "ConstrainDevices=yes\n"
        self.log = STARTED
        self.command_line = ["slurmd", "-D", "-s"]
        self.runs = True
        self.live = False
        self.state, self.reason = "IDLE", ""
        self.devices: list[dict[str, Any]] = [
            {
                "index": at,
                "pci_bus_id": f"00000000:0{5 + at}:00.0",
                "uuid": f"GPU-{at}{'0' * 7}",
                "name": NAME,
                "minor": at,
            }
            for at in range(2)
        ]
        self.config = Config()
        self.text("/proc/sys/kernel/hostname", "n1\n")
        self.link("/etc/systemd/system/multi-user.target.wants/slurmd.service", "/lib/systemd/system/slurmd.service")
        self.text("/lib/systemd/system/slurmd.service", "[Service]\nExecStart=/usr/sbin/slurmd -D -s\nDelegate=yes\n")
        self.complete = [*self.complete, *FOLDERS]

    def plugins(self, *names: str, folder: str = "/usr/lib/x86_64-linux-gnu/slurm-wlm") -> None:
        """Files of Slurm's plugins."""
        for name in names:
            path = f"{folder}/{name}"
            self.tree.put(path, Record(entry=Entry(path, EntryType.FILE, 0o755, 0, 0)))

    def detects(self, kind: str = "nvml", promise: str = "gpu:h100:2") -> None:
        """gres.conf leaves it to slurmd."""
        self.gres = f"AutoDetect={kind}\n"
        assert self.conf is not None
        self.conf = self.conf.replace("gpu:h100:2", promise)

    def computes(self, gpu: int, pid: int) -> None:
        """NVML lists a process on a GPU."""
        self.devices[gpu].setdefault("processes", []).append({"pid": pid, "kind": "compute"})

    def report(self) -> Report:
        """What the doctor says."""
        for path, text in ((CONF, self.conf), (GRES, self.gres), (CGROUP, self.cgroup)):
            if text is not None:
                self.text(path, text)
        if self.runs:
            self.process(SLURMD, "/system.slice/slurmd.service", comm="slurmd")
            self.text(f"/proc/{SLURMD}/cmdline", "".join(f"{word}\0" for word in self.command_line))
        said = {"init": 0, "driver_version": "580.95.05", "count": len(self.devices), "devices": self.devices}
        self.answers.setdefault("nvml", Answer(data=said))
        reason = f"   Reason={self.reason}\n" if self.reason else ""
        self.printed.setdefault(("scontrol", "show", "node", "n1"), SHOWN.format(state=self.state, reason=reason))
        if self.log:
            self.logs["journal/slurmd.service.log"] = self.log
        lines = "".join(f"{major:3d} {name}\n" for name, major in self.majors.items())
        self.text("/proc/devices", f"Character devices:\n{lines}\nBlock devices:\n")
        self.text("/proc/driver/nvidia/params", self.parameters)
        self.answers.setdefault("cgroup_devices", Answer(data={"programs": self._programs, "cgroups": self._cgroups}))
        recorded = self.node()
        if self.live:
            recorded.kind = SourceKind.LIVE
        recorded.commands |= {argv: CommandOutput(argv, 0, text) for argv, text in self.printed.items()}
        recorded.commands |= self.commands
        recorded.logs |= {name: Log(name, text, source="journal") for name, text in self.logs.items()}
        return run(recorded, self.config, built_in(), Selection(), NOW)

    def said(self, check: str) -> Finding:
        """The worst that a check says, which must be the only alarm of Slurm's where it is one."""
        report = self.report()
        others = [
            finding.id
            for result in report.results
            for finding in result.findings
            if finding.status in ALARMS and not finding.id.startswith(f"{check}@") and not finding.caused_by
        ]
        assert not others, others
        return report.result(check).findings[0]

    def quiet(self) -> Report:
        """The report of a node about which Slurm's checks must not alarm."""
        report = self.report()
        loud = [
            (finding.id, finding.summary)
            for result in report.results
            if result.check.startswith("sharing.slurm")
            for finding in result.findings
            if finding.status in ALARMS or (finding.status is Status.UNKNOWN and finding.why == "crashed")
        ]
        assert not loud, loud
        return report
