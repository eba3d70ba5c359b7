"""A container of docker that was named and does not run: what dockerd keeps of it says why, where its journal may not."""

from gpudoctor.facts.desk import Desk
from gpudoctor.facts.docker_kept import KeptContainers
from gpudoctor.verdicts import Unread

MOST_LETTERS = 240
"""Of an error as much is repeated, from its end: each program puts its own words before those of the next."""


def why_stopped(desk: Desk, name: str, shortest: int) -> str:
    """What became of the container that has this name, or whose id begins so; "" where dockerd keeps none, or says that it runs."""
    kept = desk.get(KeptContainers)
    for one in () if isinstance(kept, Unread) else kept.containers:
        by_id = len(name) >= shortest and one.id.startswith(name)
        if one.state.running or not (by_id or one.name == name):
            continue
        code, error = one.state.exit_code, " ".join(one.state.error.split())
        if not error:
            return f"docker keeps such a container, but it does not run (exit code {code})"
        abridged = f"…{error[-MOST_LETTERS:]}" if len(error) > MOST_LETTERS else error
        return f"docker keeps such a container, but its last start failed with exit code {code}: {abridged}"
    return ""
