"""The persistence daemon: does it run where it is meant to?"""

from gpudoctor.chain import Link
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.persistence import UNIT, PersistenceDaemon
from gpudoctor.registry import check
from gpudoctor.verdicts import Action, NotApplicable, Pass, Remedy, Unread, Verdicts, Warn

START = Remedy(
    Action.RESTART_SERVICE,
    "Read why it ended, correct that, and start it.",
    run=(f"systemctl status {UNIT} --no-pager", f"systemctl reset-failed {UNIT}", f"systemctl start {UNIT}"),
    confirm="gpudoctor run --check device-nodes.persistence-daemon",
)
LATER = Remedy(
    Action.CHANGE_CONFIG,
    "If it is started too early at boot, before the driver is loaded or the nodes are made, have it wait and try again.",
    run=(
        f"mkdir -p /etc/systemd/system/{UNIT}.d",
        f"printf '%s\\n' '[Unit]' After=systemd-modules-load.service StartLimitIntervalSec=0 > /etc/systemd/system/{UNIT}.d/later.conf",
        f"printf '%s\\n' '[Service]' Restart=on-failure RestartSec=5 >> /etc/systemd/system/{UNIT}.d/later.conf",
        "systemctl daemon-reload",
    ),
    interrupts="GPUs in containers of runc before 1.2 that have no links in /dev/char, at the daemon-reload",
    confirm=f"systemctl is-active {UNIT} after the next boot",
    then=True,
)
DISABLE = Remedy(
    Action.CHANGE_CONFIG,
    "Or, where nobody wants the GPUs kept initialised, say so.",
    run=(f"systemctl disable {UNIT}",),
    confirm=f"systemctl is-enabled {UNIT}",
)


@check(
    "device-nodes.persistence-daemon",
    link=Link.DEVICE_NODES,
    needs={Link.KERNEL_MODULE},
    explained_by=("device-nodes.gpu-node", "device-nodes.control-node"),
    advisory=True,
    title="nvidia-persistenced runs where it is enabled",
)
def persistence_daemon(daemon: PersistenceDaemon, module: NvidiaModule) -> Verdicts:
    """Without a client that stays, the driver shuts a GPU down after each use: every program then waits seconds, and settings are lost.

    nvidia-persistenced is that client, and has the nodes made at boot. Where it is enabled, by its link in multi-user.target.wants,
    it should run: then systemd has a control group for it, and the daemon a socket; a socket alone may have been left behind by one
    that was killed. Its journal says why it ended: most often it was started before the nodes were there. Not judged where it is not
    enabled, as on Ubuntu, where a udev rule starts it, or where another client keeps the GPUs up. Easily confused with persistence
    mode, set by nvidia-smi -pm: that needs no daemon.
    """
    if not daemon.enabled:
        yield NotApplicable(daemon, "systemd is not told to start it", daemon.cite("enabled"))
    elif not module.loaded:
        yield NotApplicable(daemon, "the nvidia module is not loaded", module.cite("loaded"))
    elif isinstance(daemon.running, Unread):
        yield daemon.running.about(daemon)
    elif daemon.running:
        yield Pass(daemon, "enabled, and it runs", daemon.cite("running", "enabled"))
    else:
        why = f": {daemon.said[0].shows}" if daemon.said else ""
        evidence = daemon.cite("enabled", "running") + daemon.left_behind + daemon.said
        yield Warn(daemon, f"enabled, but it does not run{why}", evidence, (START, LATER, DISABLE), cause="not-running")
