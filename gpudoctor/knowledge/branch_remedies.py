"""How to change to another branch of the driver, and to stay on it.

NVIDIA's driver installation guide of 2025-12 and 620: "Kernel modules" (a specific branch), "Version locking" (dnf versionlock, the
packages nvidia-driver-pinning-BRANCH for Debian and Ubuntu, from 580 on), "Switching between driver module flavors" (dnf module
switch-to). Ubuntu's own packages have the branch in their names. apt-mark(8), zypper(8), addlock. Read 2026-11-30.
"""

from gpudoctor.knowledge.architectures import Flavour
from gpudoctor.knowledge.module_remedies import confirmed_by
from gpudoctor.verdicts import Action, Remedy

_PINNING_SINCE = 580
_DEBIAN, _RED_HAT, _SUSE = (
    ("debian", "ubuntu"),
    ("rhel", "rocky", "almalinux", "ol", "centos", "amzn", "fedora"),
    ("sles", "opensuse-leap"),
)
INTERRUPTS = "everything that uses a GPU of this node, and the node at the reboot"


def change_branch(branch: int, flavour: Flavour, os_id: str | None, check_id: str, why: str) -> Remedy:
    """Install a branch in a flavour and hold it, in the words of the node's distribution, of all where that is not known.

    `why` is a sentence on what speaks for the branch.
    """
    words = "" if flavour is Flavour.EITHER else f" with its {flavour.value} kernel modules"
    families = {
        _DEBIAN: _apt(branch, flavour, os_id),
        _RED_HAT: _dnf(branch, flavour),
        _SUSE: _zypper(branch, flavour),
    }
    known = next((lines for names, lines in families.items() if os_id in names), None)
    run = known if known is not None else tuple(line for lines in families.values() for line in lines)
    return Remedy(
        Action.INSTALL_PACKAGE,
        f"{why} Drain the node, install branch {branch}{words}, hold it there so that no upgrade takes it away, and reboot. "
        "Where an image, the GPU Operator or the runfile brings the driver, set the version there.",
        run=(*run, "systemctl reboot"),
        interrupts=INTERRUPTS,
        confirm=confirmed_by(check_id),
    )


def _apt(branch: int, flavour: Flavour, os_id: str | None) -> tuple[str, ...]:
    opened = "" if flavour is Flavour.PROPRIETARY else "-open"
    package = f"nvidia-driver-{branch}-server{opened}"
    own = (
        f"apt-get update && apt-get install {package}    # Ubuntu's packages",
        f"apt-mark hold {package}",
    )
    meta = "cuda-drivers" if flavour is Flavour.PROPRIETARY else "nvidia-open"
    note = "    # instead, with NVIDIA's repository"
    if branch >= _PINNING_SINCE:
        held = f"apt-get install nvidia-driver-pinning-{branch} && apt-get install --allow-downgrades {meta}{note}"
        theirs: tuple[str, ...] = (f"{held}; the first package holds the branch",)
    else:
        theirs = (f"apt-get install {meta}-{branch} && apt-mark hold {meta}-{branch}{note}",)
    return theirs if os_id == "debian" else (*own, *theirs)


def _dnf(branch: int, flavour: Flavour) -> tuple[str, ...]:
    stream = f"{branch}-dkms" if flavour is Flavour.PROPRIETARY else f"{branch}-open"
    meta = "cuda-drivers" if flavour is Flavour.PROPRIETARY else "nvidia-open"
    note = "RHEL 8 and 9 and their like, Amazon Linux: the stream holds the branch"
    return (
        f"dnf module switch-to nvidia-driver:{stream} --allowerasing    # {note}",
        f"dnf versionlock '*nvidia*{branch}*' && dnf install --allowerasing {meta}    # instead, RHEL 10 and Fedora",
    )


def _zypper(branch: int, flavour: Flavour) -> tuple[str, ...]:
    meta = "cuda-drivers" if flavour is Flavour.PROPRIETARY else "nvidia-open"
    return (
        f"zypper search --details {meta}    # SUSE: take the newest {branch} there is as VERSION",
        f"zypper install --oldpackage {meta}=VERSION && zypper addlock '*nvidia*' {meta}",
    )


WITHOUT_IT = Remedy(
    Action.INSPECT_HARDWARE,
    "Or keep the driver for the node's other GPUs, and take this one out, or waive this finding if it may lie idle.",
    interrupts="the whole node, if it is taken out",
    confirm=confirmed_by("kernel-module.branch-drives-gpus"),
)


def separate(names: str, check_id: str) -> Remedy:
    """For GPUs that no driver runs together."""
    return Remedy(
        Action.INSPECT_HARDWARE,
        f"No branch and flavour of the driver runs all GPUs of this node ({names}): keep those that belong together, move the others to "
        "another node or to a virtual machine, or waive this finding for a GPU that may lie idle.",
        interrupts="the whole node",
        confirm=confirmed_by(check_id),
    )
