"""Confidential computing beyond NVML's word: whether debuggers see inside (`nvidia-smi conf-compute -d`, nvidia-smi(1))."""

from gpudoctor.facts.desk import Desk, Fact, Reading
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.raw import CommandOutput
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread, Why

ASK = ("nvidia-smi", "conf-compute", "-d")
FEATURE = "conf_compute.cc_feature"
_TOLD = pattern(r"(?m)^[ \t]{0,16}(DevTools Mode[ \t]{0,32}:[ \t]{0,8}(ON|OFF))\s{0,8}$")


class DevTools(Fact, frozen=True):
    """`on` is whether the mode for debugging is on, None where nobody asked; `shown` shows it."""

    on: Reading[bool] | None = None
    shown: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "DevTools":
        """Asked only where NVML has answered that confidential computing is on: then the program can change nothing of the node."""
        nvml = desk.get(Nvml)
        if isinstance(nvml, Unread) or nvml.failure is not None or nvml.system.get(FEATURE) is not True:
            return cls()
        output = desk.raw.command(ASK)
        if isinstance(output, Unread):
            return cls(on=output)
        where = " ".join(ASK)
        found = _TOLD.search(output.stdout) if isinstance(output, CommandOutput) else None
        if found is None:
            return cls(on=Unread(Why.NOT_ANSWERED, where, "does not tell whether the mode for debugging is on"))
        return cls(on=found[2] == "ON", shown=(Evidence(where, found[1]),))
