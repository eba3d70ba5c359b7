"""What to do about CDI specifications, from the safest step up.

NVIDIA/nvidia-container-toolkit cmd/nvidia-ctk/cdi/generate (options and variables), deployments/systemd; NVIDIA cloud-native docs,
container-toolkit/cdi-support.md and troubleshooting.md; container-device-interface SPEC.md.
"""

from gpudoctor.verdicts import Action, Remedy

REFRESHED = "/var/run/cdi/nvidia.yaml"
GIDS_VARIABLE = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS=no-additional-gids-for-device-nodes"
LIST = "nvidia-ctk cdi list"


def regenerate(path: str, check_id: str, *, generated: bool = True) -> tuple[Remedy, ...]:
    """Write a spec anew where it lies; one that nvidia-ctk does not write is its own writer's matter."""
    confirm = f"gpudoctor run --check {check_id}"
    if not generated:
        return (
            Remedy(
                Action.RESTART_SERVICE,
                "Have what wrote the file write it anew: restart the pod of the device plugin, the DRA driver or the toolkit container.",
                run=(
                    "kubectl get pods -A -o wide | grep -i nvidia    # those of this node",
                    "kubectl delete pod -n NAMESPACE POD",
                ),
                interrupts="no running workload; new ones cannot get a GPU until the pod is ready",
                confirm=confirm,
            ),
        )
    refresh = (
        (f"systemctl restart nvidia-cdi-refresh    # toolkit 1.18 and later: writes {REFRESHED}",)
        if path == REFRESHED
        else ()
    )
    keep = (f"nvidia-ctk cdi generate --output={path}",)
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Write the specification anew, for the driver and the GPUs that are there now.",
            run=(*refresh, *keep),
            confirm=confirm,
        ),
        Remedy(
            Action.CHANGE_CONFIG,
            "Have it written at each boot and after each installation of a driver, and keep no older copy elsewhere.",
            run=(
                "systemctl enable --now nvidia-cdi-refresh.service nvidia-cdi-refresh.path    # toolkit 1.18 and later",
            ),
            confirm=LIST,
            then=True,
        ),
    )


def correct(path: str, *, generated: bool) -> tuple[Remedy, ...]:
    """A file that no engine reads."""
    edit = Remedy(
        Action.CHANGE_CONFIG,
        "Correct the file by hand, if it was written by hand; engines read it anew by themselves.",
        run=(f"cp -a {path} /root/", f"editor {path}"),
        confirm="gpudoctor run --check toolkit.cdi-specs-load",
    )
    return (*regenerate(path, "toolkit.cdi-specs-load")[:1], edit) if generated else (edit,)


def remove(path: str, why: str) -> Remedy:
    """Take a file out of engines' sight; only *.json and *.yaml count."""
    return Remedy(
        Action.CHANGE_CONFIG,
        why,
        run=(f"mv {path} {path}.disabled",),
        confirm="gpudoctor run --link toolkit",
    )


def without_gids(path: str) -> Remedy:
    """Leave additionalGids out, which old engines do not know."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Have the specification written without additionalGids, now and by nvidia-cdi-refresh.",
        run=(
            f"nvidia-ctk cdi generate --feature-flag no-additional-gids-for-device-nodes --output={path}",
            f"echo {GIDS_VARIABLE} >> /etc/nvidia-container-toolkit/nvidia-cdi-refresh.env",
        ),
        confirm="gpudoctor run --check toolkit.cdi-specs-load",
    )


def newer_engine(engine: str) -> Remedy:
    """Install a release of the engine that knows the field."""
    return Remedy(
        Action.INSTALL_PACKAGE,
        f"Install a release of {engine} that knows the specification.",
        run=(f"apt-get install --only-upgrade {engine}    # RHEL: dnf upgrade {engine}",),
        interrupts="containers of an engine that its package restarts",
        confirm="gpudoctor run --check toolkit.cdi-specs-load",
    )


NAMES = Remedy(
    Action.CHANGE_WORKLOAD,
    "Ask for a name that a specification has.",
    run=(LIST,),
    confirm="gpudoctor run --check toolkit.cdi-devices-found",
)
NO_MANAGEMENT_CLASS = Remedy(
    Action.CHANGE_WORKLOAD,
    "Take the runtime class nvidia-cdi out of the workload: it is for the GPU Operator's own pods; the device plugin gives GPUs itself.",
    run=(
        "kubectl get pods -A -o custom-columns=NS:.metadata.namespace,POD:.metadata.name,CLASS:.spec.runtimeClassName",
    ),
    interrupts="the workload, which is created anew",
    confirm="gpudoctor run --check toolkit.cdi-devices-found",
)
RUN_BY_HAND = (
    Remedy(
        Action.CHANGE_CONFIG,
        "See by hand what nvidia-ctk objects to, then let the service try again.",
        run=("nvidia-ctk --debug cdi generate > /tmp/nvidia-cdi.yaml", "systemctl restart nvidia-cdi-refresh"),
        confirm="gpudoctor run --check toolkit.cdi-refresh",
    ),
    Remedy(
        Action.CHANGE_CONFIG,
        "Until that works, have the nvidia runtime add GPUs without CDI; engines that inject CDI devices themselves are not helped by it.",
        run=("nvidia-ctk config --in-place --set nvidia-container-runtime.mode=legacy",),
        interrupts="nothing that runs; containers started from then on use the legacy hook",
        confirm="docker run --rm --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=all IMAGE nvidia-smi -L",
    ),
)
