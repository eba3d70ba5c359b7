"""The service and timer of systemd, the drop-in that writes metrics for node_exporter, and the line for cron.

systemd.exec(5), systemd.resource-control(5), systemd.timer(5), systemd.service(5) ("Command lines") of systemd 252; crontab(5) of cron 3.0.
"""

import re
import shlex

from gpudoctor.installing.files import File, Installation, filled
from gpudoctor.installing.node import STATE, InstallNode, Textfile

UNITS = "/etc/systemd/system"
METRICS = "gpudoctor.prom"
NO_SYSTEMD = "systemd does not run here (there is no /run/systemd/system): take `gpudoctor install --print cron`"
_PLAIN = re.compile(r"[\w@+=:,./-]+")


def systemd(node: InstallNode) -> Installation:
    """A hardened oneshot service and its timer."""
    slurm = node.slurm is not None
    service = filled(
        "gpudoctor.service",
        COMMAND=_word(node.command),
        CACHE="# Where the single file unpacks itself.\nCacheDirectory=gpudoctor\n"
        if node.command.endswith(".pyz")
        else "",
        ADDRESSES="# The network is for Slurm's controller, which scontrol asks about this node."
        if slurm
        else "IPAddressDeny=any\nIPAddressAllow=localhost",
    )
    return Installation(
        kind="systemd",
        files=(
            File(f"{UNITS}/gpudoctor.service", service),
            File(f"{UNITS}/gpudoctor.timer", filled("gpudoctor.timer")),
        ),
        install=("systemctl daemon-reload", "systemctl enable --now gpudoctor.timer"),
        undo=(
            "systemctl disable --now gpudoctor.timer",
            f"rm {UNITS}/gpudoctor.service {UNITS}/gpudoctor.timer",
            "systemctl daemon-reload",
            f"rm -r {STATE}",
        ),
        notes=(*node.notes, *(() if node.systemd else (NO_SYSTEMD,))),
    )


def node_exporter(node: InstallNode) -> Installation:
    """The metrics of each look as a file for the textfile collector: with systemd by a drop-in, else by cron's line."""
    found = node.textfile
    notes = (*node.notes, *_about(found))
    removed = f"rm {shlex.quote(f'{found.path}/{METRICS}')}"
    if not node.systemd:
        line = cron(node, also=f" --output node-exporter={_in_crontab(f'{found.path}/{METRICS}')}")
        return Installation("node-exporter", line.files, _made(found) + line.install, (*line.undo, removed), notes)
    place = f"{UNITS}/gpudoctor.service.d"
    content = filled(
        "node-exporter.conf",
        TOLD_BY=found.told_by or "none was found here",
        COMMAND=_word(node.command),
        # A dollar sign in an argument begins a variable, unless it is doubled; in the program's own path it does not.
        FILE=_word(f"{found.path}/{METRICS}").replace("$", "$$"),
        DIRECTORY=_word(found.path),
        CAPABILITY=""
        if found.of_root
        else "# The directory is another user's, and only this capability lets root write to it.\n"
        "CapabilityBoundingSet=CAP_DAC_OVERRIDE",
    )
    return Installation(
        kind="node-exporter",
        files=(File(f"{place}/node-exporter.conf", content.rstrip() + "\n"),),
        install=(*_made(found), "systemctl daemon-reload", "systemctl start gpudoctor.service"),
        undo=(f"rm {place}/node-exporter.conf", "systemctl daemon-reload", removed),
        notes=("it adds to the service of `gpudoctor install --print systemd`, which comes first", *notes),
    )


def cron(node: InstallNode, also: str = "") -> Installation:
    """One line for cron; the doctor itself sees to it that two looks never run at once."""
    command = f"{_in_crontab(node.command)} health --deadline 30{also}"
    return Installation(
        kind="cron",
        files=(File("/etc/cron.d/gpudoctor", filled("cron", COMMAND=command, STATE=STATE)),),
        install=(),
        undo=("rm /etc/cron.d/gpudoctor", f"rm -r {STATE}"),
        notes=(
            *node.notes,
            *(() if node.cron else ("there is no /etc/cron.d here: cron is not installed, or takes no such files",)),
        ),
    )


def _word(text: str) -> str:
    """A word of a command line or a list of paths: specifiers doubled, quoted where anything could be taken otherwise."""
    text = text.replace("%", "%%")
    return text if _PLAIN.fullmatch(text) else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _in_crontab(text: str) -> str:
    """A word for the shell that cron starts. A percent sign ends the command, unless a backslash precedes it (crontab(5)); not every cron
    takes that away again, but the shell does, outside of quotes.
    """
    return "\\%".join(shlex.quote(part) if part else "" for part in text.split("%"))


def _made(found: Textfile) -> tuple[str, ...]:
    return () if found.told_by else (f"mkdir -p {found.path}",)


def _about(found: Textfile) -> tuple[str, ...]:
    if found.told_by and found.of_root:
        return ()
    if found.told_by:
        return (
            f"root will write into {found.path}, which belongs to another user ({found.told_by}): see that it is node_exporter's directory",
        )
    flag = f"--collector.textfile.directory={found.path}"
    return (
        f"no directory of a node_exporter was found here: start it with {flag}, or put its directory in place of this one",
    )
