"""A container of docker that was named and does not run: what dockerd keeps of it says why, where its journal may not.

moby daemon/errors.go and httputils: a start that fails for a file that does not exist (exit code 127) or may not be run (126) is taken for
the caller's mistake and not logged; daemon/container keeps its error in ROOT/containers/ID/config.v2.json until a start succeeds.
"""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from gpudoctor.facts.container_files import DOCKER_ROOTS
from gpudoctor.facts.desk import Desk
from gpudoctor.facts.docker import Dockers
from gpudoctor.facts.raw import Listing, TextFile
from gpudoctor.verdicts import Unread

MOST_CONTAINERS = 200
MOST_LETTERS = 240
"""Of an error as much is repeated, from its end: each program puts its own words before those of the next."""


class _State(Struct, rename="pascal"):
    running: bool = False
    error: str = ""
    exit_code: int = 0


class _Container(Struct, rename="pascal"):
    name: str = ""
    state: _State | None = None


def why_stopped(desk: Desk, name: str, shortest: int) -> str:
    """What became of the container that has this name, or whose id begins so; "" where dockerd keeps none, or says that it runs."""
    for container, said in _kept(desk):
        by_id = len(name) >= shortest and container.startswith(name)
        if said.state is None or said.state.running or not (by_id or said.name.removeprefix("/") == name):
            continue
        code, error = said.state.exit_code, " ".join(said.state.error.split())
        if not error:
            return f"docker keeps such a container, but it does not run (exit code {code})"
        abridged = f"…{error[-MOST_LETTERS:]}" if len(error) > MOST_LETTERS else error
        return f"docker keeps such a container, but its last start failed with exit code {code}: {abridged}"
    return ""


def _kept(desk: Desk) -> Iterator[tuple[str, _Container]]:
    dockers = desk.get(Dockers)
    roots = [] if isinstance(dockers, Unread) else [one.data_root for one in dockers.dockers if one.data_root]
    for root in dict.fromkeys(roots or DOCKER_ROOTS[:1]):
        listing = desk.raw.listing(f"{root}/containers")
        for container in listing.names[:MOST_CONTAINERS] if isinstance(listing, Listing) else ():
            file = desk.raw.read(f"{root}/containers/{container}/config.v2.json")
            try:
                yield container, msgspec.json.decode(file.text if isinstance(file, TextFile) else "", type=_Container)
            except (msgspec.MsgspecError, UnicodeError):
                continue
