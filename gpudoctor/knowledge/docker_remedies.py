"""What to do about a dockerd that does not take its file, has not loaded it, or finds no GPUs, from the safest step up.

Sources: docs.docker.com/reference/cli/dockerd (--validate, since 23.0), docs.docker.com/engine/daemon/live-restore;
NVIDIA/cloud-native-docs container-toolkit/install-guide.md ("Configuring Docker", rootless included) and
cdi-support.md; canonical/docker-snap README.
"""

import shlex

from gpudoctor.facts.docker import Docker
from gpudoctor.facts.docker_places import DAEMON_JSON, is_rootless, is_snap
from gpudoctor.verdicts import Action, Remedy


def _validate(one: Docker) -> str:
    return f"dockerd --validate --config-file {shlex.quote(one.path)}    # Docker 23.0 and later"


def correct(one: Docker) -> Remedy:
    """Correct the file by hand."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Correct the file and have dockerd check it before restarting anything.",
        run=(f"python3 -m json.tool {shlex.quote(one.path)}", _validate(one)),
        confirm="gpudoctor run --check toolkit.docker-runtime",
    )


def once(one: Docker) -> Remedy:
    """Say it in one place."""
    return Remedy(
        Action.CHANGE_CONFIG,
        f"Take it out of {one.path}, or out of the command line by a drop-in that empties ExecStart= and sets it anew.",
        run=("systemctl cat docker", _validate(one)),
        confirm="gpudoctor run --check toolkit.docker-runtime",
    )


def configure(one: Docker) -> Remedy:
    """Let the toolkit write its runtime into the right file."""
    option = "" if one.path == DAEMON_JSON else f" --config={shlex.quote(one.path)}"
    return Remedy(
        Action.CHANGE_CONFIG,
        f"Let the toolkit write its runtime into {one.path}, the file that this dockerd reads.",
        run=(f"nvidia-ctk runtime configure --runtime=docker{option}",),
        confirm=_validate(one),
    )


def take_out(one: Docker) -> Remedy:
    """Give containers without GPUs their runtime back."""
    return Remedy(
        Action.CHANGE_CONFIG,
        f'Or take "default-runtime" and the runtime out of {one.path}, so that containers start again without it.',
        run=(_validate(one),),
        confirm="gpudoctor run --check toolkit.docker-runtime",
    )


INSTALL = Remedy(
    Action.INSTALL_PACKAGE,
    "Install the NVIDIA Container Toolkit, or correct the path.",
    run=("apt-get install nvidia-container-toolkit    # RHEL: dnf install nvidia-container-toolkit",),
    confirm="command -v nvidia-container-runtime nvidia-container-runtime-hook",
)
USE_SNAP = Remedy(
    Action.INSTALL_PACKAGE,
    "The snap brings NVIDIA support of its own and does not use the host's toolkit: bring it up to date and let it set itself up.",
    run=("snap refresh docker", "snap logs docker.nvidia-container-toolkit"),
    interrupts="every container of the snap's Docker while it restarts",
    confirm="docker info lists the nvidia runtime",
)
REPLACE_SNAP = Remedy(
    Action.INSTALL_PACKAGE,
    "Or replace it by docker-ce, which reads /etc/docker/daemon.json. Images and volumes of the snap are not taken along.",
    run=("snap stop --disable docker", "systemctl enable --now docker.service"),
    interrupts="every container of the snap's Docker",
    confirm="docker info shows Docker Root Dir: /var/lib/docker",
)
REFRESH_SPEC = Remedy(
    Action.RESTART_SERVICE,
    "Have the toolkit write the CDI spec now and at every boot. Docker sees it without a restart.",
    run=("systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service",),
    confirm="nvidia-ctk cdi list",
)
GENERATE_SPEC = Remedy(
    Action.CHANGE_CONFIG,
    "Or write it by hand, anew after each change of driver or MIG layout.",
    run=("nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",),
    confirm="nvidia-ctk cdi list",
)


BY_GPUS = Remedy(
    Action.CHANGE_WORKLOAD,
    "Or start the container with --gpus, which goes by the toolkit's hook and needs no CDI.",
    run=("docker run --gpus all IMAGE nvidia-smi -L",),
    interrupts="this container only",
    confirm="it lists the GPUs",
)


def switch_on_cdi(one: Docker) -> Remedy:
    """features.cdi in the file that this dockerd reads."""
    option = "" if one.path == DAEMON_JSON else f" --config={shlex.quote(one.path)}"
    return Remedy(
        Action.CHANGE_CONFIG,
        f"Switch CDI on in {one.path}.",
        run=(f"nvidia-ctk runtime configure --runtime=docker --cdi.enabled{option}",),
        confirm=_validate(one),
    )


def restart(one: Docker) -> Remedy:
    """Have the file read and the toolkit found."""
    rootless = one.daemon is not None and is_rootless(one.daemon)
    snap = is_snap(one.daemon) if one.daemon is not None else one.path.startswith("/var/snap/")
    service = "snap restart docker" if snap else "systemctl restart docker"
    kept = (
        "nothing that runs: live-restore is on"
        if one.live_restore
        else "every running container, unless live-restore is on"
    )
    return Remedy(
        Action.RESTART_SERVICE,
        "Only when dockerd takes its file: restart Docker, which looks for the toolkit when it starts.",
        run=("systemctl --user restart docker" if rootless else service,),
        interrupts=kept,
        confirm="docker info lists the nvidia runtime, if the file names one",
        then=True,
    )


def restart_alone(one: Docker) -> Remedy:
    """Restart where nothing else has to be done first."""
    then = restart(one)
    return Remedy(
        then.action,
        "Restart Docker, which looks for the toolkit and reads its file when it starts.",
        then.run,
        then.interrupts,
        then.confirm,
    )
