"""Confidential computing beyond NVML's word: whether debuggers see inside (`nvidia-smi conf-compute -d`, nvidia-smi(1))."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import CommandOutput
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

ASK = ("nvidia-smi", "conf-compute", "-d")
FEATURE = "conf_compute.cc_feature"
_ON = pattern(r"(?m)^\s{0,16}(DevTools Mode\s{0,32}:\s{0,8}ON)\s{0,8}$")


class DevTools(Fact, frozen=True):
    """`on` is what shows that the mode for debugging is on, empty where it is off or was not told."""

    on: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "DevTools":
        """Asked only where NVML has answered that confidential computing is on: then the program can change nothing of the node."""
        nvml = desk.get(Nvml)
        if isinstance(nvml, Unread) or nvml.failure is not None or nvml.system.get(FEATURE) is not True:
            return cls()
        output = desk.raw.command(ASK)
        found = _ON.search(output.stdout) if isinstance(output, CommandOutput) else None
        return cls(on=(Evidence(" ".join(ASK), found[1]),) if found is not None else ())
