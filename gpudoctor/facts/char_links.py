"""Links in /dev/char: the name under which systemd finds a device node by its numbers."""

import posixpath

from msgspec.structs import replace

from gpudoctor.facts.desk import Citable, Desk, Fact
from gpudoctor.facts.device_files import UVM_TOOLS, OtherNodes
from gpudoctor.facts.device_nodes import (
    CONTROL,
    CONTROL_MINOR,
    NVIDIA_MAJOR,
    UVM,
    CommonNodes,
    ExpectedNode,
    GpuNodes,
    Majors,
    node_path,
)
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.raw import Absent, Entry, EntryType, Listing, Raw
from gpudoctor.patterns import pattern
from gpudoctor.verdicts import Cited, Evidence, Unread

DIRECTORY = "/dev/char"

_DYNAMIC = pattern(r"(?:23[4-9]|24\d|25[0-4]|38[4-9]|39\d|4\d\d|50\d|51[01]):0")
"""Majors 234-254 and 384-511 are given to whoever asks (Documentation/admin-guide/devices.txt)."""


class CharLink(Citable, frozen=True):
    """What stands in /dev/char under the numbers of a node that is as it should be.

    `present` is whether anything does, `fault` what is wrong with it. `shared` nodes are made together with the GPUs', so that either
    all or none of them should have a link; `outdated` are links to a node without one, under the numbers that it had before.
    """

    path: str
    node: str
    present: bool
    fault: str | None
    shared: bool
    outdated: Cited = ()


class CharLinks(Fact, frozen=True):
    """The links of the nodes that are as they should be; a wrong or missing node is judged where it is. `unread` says what was not seen."""

    links: tuple[CharLink, ...]
    unread: Unread | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "CharLinks | Unread":
        """One look for each node, another where the link's words do not lead to it, and a listing where nvidia-uvm lacks its own."""
        nodes = _nodes(desk)
        if isinstance(nodes, Unread):
            return nodes
        links: list[CharLink] = []
        unread = next((node.unseen for node, _ in nodes if node.unseen is not None), None)
        for node, shared in nodes:
            link = _link(desk.raw, node, shared) if node.right else None
            if isinstance(link, Unread):
                unread = link
            elif link is not None:
                links.append(link)
        if any(link.shared and link.present for link in links):
            links = [replace(link, outdated=_outdated(desk.raw, link)) if _lacks(link) else link for link in links]
        return cls(links=tuple(links), unread=unread)


def _lacks(link: CharLink) -> bool:
    return link.node == UVM and not link.present


def _outdated(raw: Raw, link: CharLink) -> Cited:
    """Links for the first minor of a major that is given out anew each time, which lead to the node all the same."""
    listing = raw.listing(DIRECTORY)
    names = [name for name in listing.names if _DYNAMIC.fullmatch(name)] if isinstance(listing, Listing) else []
    found = [raw.entry(f"{DIRECTORY}/{name}") for name in names]
    return tuple(
        Evidence(entry.path, f"-> {entry.to}")
        for entry in found
        if isinstance(entry, Entry) and entry.to is not None and _target(entry) == link.node
    )


def _nodes(desk: Desk) -> list[tuple[ExpectedNode, bool]] | Unread:
    """The nodes by their numbers, GPUs first, and whether each is one that all containers with a GPU get."""
    driver, gpus, common = desk.get(DriverGpus), desk.get(GpuNodes), desk.get(CommonNodes)
    majors, other = desk.get(Majors), desk.get(OtherNodes)
    for fact in (driver, gpus, common, majors, other):
        if isinstance(fact, Unread):
            return fact
    assert isinstance(driver, DriverGpus) and isinstance(gpus, GpuNodes) and isinstance(common, CommonNodes)
    assert isinstance(majors, Majors) and isinstance(other, OtherNodes)
    minors = {address: gpu.minor for address, gpu in driver.gpus.items() if isinstance(gpu, DriverGpu)}
    nodes = [
        (ExpectedNode(path=node_path(minor), major=NVIDIA_MAJOR, minor=minor, found=gpus.by_address[address]), True)
        for address, minor in minors.items()
        if minor is not None
    ]
    if nodes:
        control = ExpectedNode(path=CONTROL, major=NVIDIA_MAJOR, minor=CONTROL_MINOR, found=common.control)
        nodes.append((control, True))
    uvm = majors.by_name.get("nvidia-uvm")
    if uvm is not None:
        nodes.append((ExpectedNode(path=UVM, major=uvm, minor=0, found=common.uvm), False))
    return nodes + [(node, False) for node in other.nodes if node.path == UVM_TOOLS or node.major == NVIDIA_MAJOR]


def _link(raw: Raw, node: ExpectedNode, shared: bool) -> CharLink | Unread:
    path = f"{DIRECTORY}/{node.numbers}"
    entry = raw.entry(path)
    if isinstance(entry, Unread):
        return entry
    fault: str | None = None
    if isinstance(entry, Entry) and not _leads_to(entry, node):
        # Only where the words differ is it worth asking where the link leads: through another link it may lead to the node all the same.
        followed = raw.entry(path, follow=True)
        if isinstance(followed, Unread):
            return followed
        fault = _fault(entry, followed, node)
    shows = entry.detail if isinstance(entry, Absent) else f"-> {entry.to}" if entry.to else entry.type.words
    return CharLink(
        path=path,
        node=node.path,
        present=isinstance(entry, Entry),
        fault=fault,
        shared=shared,
        read_from={"link": Evidence(entry.where, shows)},
    )


def _leads_to(entry: Entry, node: ExpectedNode) -> bool:
    return isinstance(node.found, Entry) and _target(entry) == node.found.path


def _target(entry: Entry) -> str:
    """Where a link's words lead, as far as its own folder goes."""
    return posixpath.normpath(posixpath.join(DIRECTORY, entry.to or ""))


def _fault(entry: Entry, followed: Entry | Absent, node: ExpectedNode) -> str | None:
    if isinstance(followed, Absent):
        return f"{entry.path} leads to {entry.to}, which does not exist"
    if followed.type is EntryType.CHAR and (followed.major, followed.minor) in (
        (node.major, node.minor),
        (None, None),
    ):
        return None
    what = f"{followed.major}:{followed.minor}" if followed.type is EntryType.CHAR else f"a {followed.type.words}"
    return f"{entry.path} leads to {entry.to}, which is {what}"
