"""The words by which lines that matter are found in a kernel log too large to be read whole.

A new check that asks the kernel log for something adds its words here, where no line with them has any of these words yet: of a large log
nothing else is kept. Long words, and those with letters that other lines seldom have, are ruled out soonest.
"""

from typing import NamedTuple


class Anchor(NamedTuple):
    """Words of a line, letter by letter, and how many lines after it belong to it whatever they say: a stack, registers.

    With `beside` only lines that have one of these words too. With `early` only lines that a kernel prints while it starts.
    """

    words: str
    after: int = 0
    beside: tuple[str, ...] = ()
    early: bool = False


STACK = 60
"""Lines of an oops with its registers, stack and modules (arch/x86/kernel/dumpstack.c, lib/dump_stack.c)."""
HUNG = 30
"""Lines of a hung task with its stack (kernel/hung_task.c)."""
COMMAND_LINE = 4
"""Lines after a kernel's first in which its command line stands (init/main.c, start_kernel)."""
BOOT_WORDS = "Linux version "
_DENIED = ("nvidia", "libcuda", "libnvcuvid", "userns_create", "unprivileged_userns")

ANCHORS = (
    # NVIDIA's drivers, its switches and Tegra's driver, the rival for the same devices, and what has one of these names in it: probes,
    # signatures and version magic of its modules, messages about its nodes, frames of its functions.
    Anchor("NVRM"),
    Anchor("nvidia"),
    Anchor("nouveau"),
    Anchor("nvgpu"),
    # A PCI bus of which the firmware does not tell the NUMA node (drivers/pci/probe.c, pci_register_host_bridge).
    Anchor("Unknown NUMA node"),
    Anchor(BOOT_WORDS, COMMAND_LINE),
    # Harm to the kernel and tasks that hang: die() counts its reports as [#1] on every architecture.
    Anchor("blocked for more than", HUNG),
    Anchor("[#", STACK),
    Anchor("BUG: unable to handle ", STACK),
    Anchor("BUG: kernel NULL pointer", STACK),
    Anchor("BUG: soft lockup", STACK),
    Anchor("kernel BUG at ", STACK),
    Anchor("[Hardware Error]"),
    # The bus: reported errors, devices that do not wake up, links that are slow, windows without room (drivers/pci).
    Anchor("PCIe Bus Error: "),
    Anchor("change power state"),
    Anchor("PCIe bandwidth, limited by", early=True),
    Anchor("downstream link", early=True),
    Anchor("failed to assign", early=True),
    # Network adapters: links that go down, and what the firmware says of their cables (facts/infiniband.py).
    Anchor("ink down"),
    Anchor("ink is down"),
    Anchor("ink is Down"),
    Anchor("Port module event"),
    # Modules that the kernel refuses (kernel/module/signing.c, kernel/module/main.c, security/lockdown/lockdown.c).
    Anchor("Loading of unsigned module "),
    Anchor("Loading of module with un"),
    Anchor("unsigned module loading is restricted"),
    Anchor("PKCS#7 signature"),
    Anchor("register_peer_memory_client"),
    # Denials (facts/audit_messages.py), and memory that ran out (mm/oom_kill.c).
    Anchor('apparmor="DENIED"', beside=_DENIED),
    Anchor("avc:  denied", beside=_DENIED),
    Anchor("oom-kill:constraint=", 2),
    Anchor(" Killed process "),
)

NVIDIA_WORDS = ("NVRM", "nvidia-", "nvrm-nvlog", "nvidia: ")
"""In what NVIDIA's drivers say: for a journal, whose lines others look through."""


def extended_expression() -> str:
    """All of them as one extended regular expression (POSIX.1-2017, XBD 9.4)."""
    return "|".join(_escaped(anchor.words) for anchor in ANCHORS)


def _escaped(words: str) -> str:
    return "".join(f"\\{letter}" if letter in r"\^$.[|()?*+{" else letter for letter in words)
