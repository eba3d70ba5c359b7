"""Slurm's hooks and the lines of slurm.conf that call them."""

from gpudoctor.installing.files import File, Installation, filled
from gpudoctor.installing.node import InstallNode

HOOKS = ("health-check", "prolog", "epilog")
FOLDER = "/etc/slurm"


def hook(name: str, command: str) -> str:
    """One of the scripts, with the doctor at a place of one's own; contrib/slurm holds them for the usual one."""
    # Inside "${NAME:=word}" these have a meaning (POSIX, 2.2.3 Double-Quotes and 2.6.2 Parameter Expansion).
    for letter in '\\"$`}':
        command = command.replace(letter, f"\\{letter}")
    if name == "health-check":
        return filled("slurm-health-check.sh", COMMAND=command)
    return filled("slurm-job-hook.sh", COMMAND=command, MODE=name, NAME=name.capitalize())


def slurm(node: InstallNode) -> Installation:
    """The three hooks, and what to add to slurm.conf."""
    place = f"{node.slurm.folder if node.slurm else FOLDER}/gpudoctor"
    taken = dict(node.slurm.hooks) if node.slurm else {}
    health = taken.get("HealthCheckProgram", "")
    other = health if health and not health.startswith(f"{place}/") else ""
    lines = filled("slurm.conf", FOLDER=place, HEALTH="#" if other else "")
    scripts = tuple(File(f"{place}/{name}.sh", hook(name, node.command), "0755") for name in HOOKS)
    conf = f"{node.slurm.folder if node.slurm else FOLDER}/slurm.conf"
    return Installation(
        kind="slurm",
        files=(*scripts, File(f"{place}/lines-for-slurm.conf", lines)),
        install=(f"add the lines of lines-for-slurm.conf to {conf}", "scontrol reconfigure"),
        undo=(f"take the lines out of {conf} again", "scontrol reconfigure", f"rm -r {place} /run/gpudoctor/slurm"),
        notes=(*node.notes, *_notes(node, other, taken)),
    )


def _notes(node: InstallNode, other: str, taken: dict[str, str]) -> tuple[str, ...]:
    said = [
        f"slurm.conf has {name}={program} already: call the script from there"
        for name, program in taken.items()
        if name != "HealthCheckProgram"
    ]
    if other:
        said.insert(
            0,
            f"slurm.conf has HealthCheckProgram={other} already and Slurm takes one only: call health-check.sh from it",
        )
    if node.slurm is None:
        said.append(f"no files of Slurm were found here: {FOLDER} is taken")
    return tuple(said)
