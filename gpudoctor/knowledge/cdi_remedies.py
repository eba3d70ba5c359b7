"""What to do about CDI specifications, from the safest step up.

NVIDIA/nvidia-container-toolkit cmd/nvidia-ctk/cdi/generate (options and variables), deployments/systemd; NVIDIA cloud-native docs,
container-toolkit/cdi-support.md and troubleshooting.md; container-device-interface SPEC.md.
"""

from gpudoctor.verdicts import Action, Remedy

REFRESHED = "/var/run/cdi/nvidia.yaml"
GIDS_VARIABLE = "NVIDIA_CTK_CDI_GENERATE_FEATURE_FLAGS=no-additional-gids-for-device-nodes"
LIST = "nvidia-ctk cdi list"

_WRITTEN_BY_PODS = ("k8s.", "management.", "runtime.")
"""Vendors below nvidia.com whose specs a pod of the device plugin, the DRA driver or the GPU Operator writes."""
_MODES = {"gds": "gds", "mofed": "mofed", "gdrcopy": "gdrcopy", "imex-channel": "imex", "nvswitch": "nvswitch"}
"""What nvidia-ctk is to look for, by the class of a spec's kind (pkg/nvcdi/mode.go)."""
_SPLIT = ("gpu.coherent", "gpu.noncoherent")
"""Classes whose files are written along with that of class gpu, with the last part before the suffix (generateSpecs)."""


def _generates(path: str, kind: str) -> str:
    """The command that writes a spec of this kind; vendor and class are nvidia.com and gpu unless they are given."""
    vendor, _, cls = (kind or "nvidia.com/gpu").partition("/")
    if cls in _SPLIT:
        path, cls = path.replace(cls.removeprefix("gpu"), ""), "gpu"
    options = [f"--mode={_MODES[cls]}"] if cls in _MODES else []
    options += [f"--vendor={vendor}"] if vendor != "nvidia.com" else []
    options += [f"--class={cls}"] if cls != "gpu" else []
    return " ".join(["nvidia-ctk cdi generate", *options, f"--output={path}"])


def regenerate(path: str, check_id: str, *, kind: str = "") -> tuple[Remedy, ...]:
    """Write a spec anew where it lies; one that nvidia-ctk does not write is its own writer's matter."""
    confirm = f"gpudoctor run --check {check_id}"
    if kind.startswith(_WRITTEN_BY_PODS):
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
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Write the specification anew, for the driver and the GPUs that are there now.",
            run=(*refresh, _generates(path, kind)),
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


def correct(path: str, kind: str) -> tuple[Remedy, ...]:
    """A file that no engine reads."""
    edit = Remedy(
        Action.CHANGE_CONFIG,
        "Correct the file by hand, if it was written by hand; engines read it anew by themselves.",
        run=(f"cp -a {path} /root/", f"editor {path}"),
        confirm="gpudoctor run --check toolkit.cdi-specs-load",
    )
    return (
        (edit,)
        if kind.startswith(_WRITTEN_BY_PODS)
        else (*regenerate(path, "toolkit.cdi-specs-load", kind=kind)[:1], edit)
    )


def remove(path: str, why: str) -> Remedy:
    """Take a file out of engines' sight; only *.json and *.yaml count."""
    return Remedy(
        Action.CHANGE_CONFIG,
        why,
        run=(f"mv {path} {path}.disabled",),
        confirm="gpudoctor run --link toolkit",
    )


def real_folder(folder: str) -> Remedy:
    """Engines do not look behind a folder that is a symbolic link."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Put a folder in the place of the link, with the files in it, and have what writes them write there.",
        run=(f"mv {folder} {folder}.link", f"mkdir -m 755 {folder}", f"cp -a {folder}.link/. {folder}/"),
        confirm="gpudoctor run --check toolkit.cdi-specs-load",
    )


def without_gids(path: str, kind: str) -> Remedy:
    """Leave additionalGids out, which old engines do not know."""
    return Remedy(
        Action.CHANGE_CONFIG,
        "Have the specification written without additionalGids, now and by nvidia-cdi-refresh.",
        run=(
            f"{_generates(path, kind)} --feature-flag=no-additional-gids-for-device-nodes",
            f"echo {GIDS_VARIABLE} >> /etc/nvidia-container-toolkit/nvidia-cdi-refresh.env",
        ),
        confirm="gpudoctor run --check toolkit.cdi-specs-load",
    )


def newer_engine(engine: str, package: str) -> Remedy:
    """Install a release of the engine that knows the field."""
    return Remedy(
        Action.INSTALL_PACKAGE,
        f"Install a release of {engine} that knows the specification.",
        run=(f"apt-get install --only-upgrade {package}    # RHEL: dnf upgrade {package}",),
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
