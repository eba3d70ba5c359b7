"""Links in /dev/char: do they lead to the nodes whose numbers they bear?"""

from gpudoctor.chain import Link
from gpudoctor.facts.char_links import CharLink, CharLinks
from gpudoctor.facts.device_nodes import CONTROL
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Action,
    Cited,
    NotApplicable,
    Pass,
    Remedy,
    Verdicts,
    Warn,
)

A_CONTAINERS_DEV = "this /dev holds only the nodes that a container was given"


@check(
    "device-nodes.char-links",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    advisory=True,
    title="Links in /dev/char lead to the nodes of their numbers",
)
def char_links(char: CharLinks) -> Verdicts:
    """systemd names a device in a container's rules by its link in /dev/char; at the next daemon-reload a container loses what has none.

    Then NVML says "Unknown Error" in a container that worked before. It hits runc before 1.2 with the systemd cgroup driver; newer
    ones keep the devices. udev makes no such link, because the driver's nodes are not the kernel's: nvidia-modprobe does since 470,
    and `nvidia-ctk system create-dev-char-symlinks`. No link to any GPU's node is a usual state and no fault; links for some GPUs and
    not for others are one, and so is a link that leads elsewhere, or one under the number that nvidia-uvm had before. Nodes that are
    wrong or missing themselves are judged where they are. Easily confused with a device cgroup that never allowed the GPU: then the
    container never worked.
    """
    wrong = [link for link in char.links if link.fault is not None]
    lacking = [link for link in char.links if not link.present and (link.shared or link.outdated)]
    gpus = [link for link in char.links if link.shared and link.present and link.node != CONTROL]
    if wrong:
        yield Warn(
            NODE, f"{wrong[0].fault}{_more_links(wrong)}", _of(wrong), (_LINK, _NEWER_RUNC), cause="leads-elsewhere"
        )
    if lacking and gpus:
        summary = f"{lacking[0].node} has no link {lacking[0].path}{_more_links(lacking)}, other nodes have theirs"
        old = tuple(evidence for link in lacking for evidence in link.outdated)
        evidence = (*_of(lacking), *old, *_of(gpus[:1]))
        yield Warn(NODE, summary, evidence, (_LINK, _NEWER_RUNC), cause="some-lack")
    if wrong or (lacking and gpus):
        return
    if char.unread is not None:
        yield char.unread.about(NODE)
    elif not gpus:
        yield NotApplicable(NODE, "there are no links to the GPUs' nodes", _of(lacking[:1]))
    else:
        there = [link for link in char.links if link.present]
        yield Pass(NODE, f"{len(there)} links lead to their nodes", _of(there))


def _more_links(links: list[CharLink]) -> str:
    return f" (and {len(links) - 1} more)" if len(links) > 1 else ""


def _of(links: list[CharLink]) -> Cited:
    return tuple(seen for link in links for seen in link.cite("link"))


_LINK = Remedy(
    Action.CHANGE_CONFIG,
    "Have the toolkit make the links anew, one for each node that is there; at every boot, by a udev rule or a unit.",
    run=("find /dev/char -lname '*nvidia*' -delete", "nvidia-ctk system create-dev-char-symlinks"),
    confirm="gpudoctor run --check device-nodes.char-links",
)
_NEWER_RUNC = Remedy(
    Action.INSTALL_PACKAGE,
    "Or update runc to 1.2 or later, which keeps the devices without links.",
    run=("runc --version",),
    interrupts="nothing that runs: containers started afterwards use it",
    confirm="runc --version",
)
