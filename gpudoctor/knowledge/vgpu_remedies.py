"""NVIDIA vGPU and confidential computing: which drivers of guests a manager takes, and what to do, from the safest step up.

Sources, read 2026-11-30: Virtual GPU Client Licensing User Guide ("Licensing an NVIDIA vGPU on Linux", "Software Enforcement"); vGPU
release notes 8.0, 15.1 and 19.0, "Compatibility Requirements for the NVIDIA vGPU Manager and Guest VM Driver"; Virtual GPU User Guide
("Troubleshooting"); NVIDIA/nvtrust#37, #39 and #56 (attest, then set the ready state, at each boot); nvidia-smi(1), conf-compute; GPU
Operator, "Confidential Containers" (labels nvidia.com/cc.mode and cc.mode.state).
"""

from gpudoctor.knowledge.module_remedies import confirmed_by, reboot
from gpudoctor.verdicts import Action, Remedy

LICENSING = "https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/index.html"
RELEASE_NOTES = "https://docs.nvidia.com/vgpu/index.html"
NVTRUST = "https://github.com/NVIDIA/nvtrust"

RELEASES = (418, 430, 440, 450, 460, 470, 510, 525, 535, 550, 570, 580)
"""Branches of the driver that releases 8 to 19 of vGPU software have, in their order."""
LONG_TERM = (418, 450, 470, 535, 580)
"""Those of the long-term support branches, 8, 11, 13, 16 and 19."""


def takes(manager: int, guest: int) -> bool | None:
    """Whether a manager of one branch takes guests of another; None for a branch that is not known.

    A guest must not be newer, and may be one branch older, or one long-term branch where both are of that kind (release notes).
    """
    if manager == guest:
        return True
    if manager not in RELEASES or guest not in RELEASES:
        return None
    if guest == RELEASES[RELEASES.index(manager) - 1] and guest < manager:
        return True
    both = manager in LONG_TERM and guest in LONG_TERM
    return both and guest < manager and LONG_TERM.index(manager) - LONG_TERM.index(guest) == 1


def get_licence(check_id: str, folder: str, conf: str, *, runs: bool, contained: bool = False) -> tuple[Remedy, ...]:
    """For a guest without a licence; `runs` is whether the licence service may run, and `contained` whether it does so in a container."""
    from shlex import quote

    look = (
        f"ls -l {quote(folder)}",
        f"grep -vE '^ *(#|$)' {conf}",
        "journalctl -b --no-pager -n 20 -u nvidia-gridd"
        if not contained
        else "kubectl -n gpu-operator logs -l app=nvidia-driver-daemonset --tail=40",
        "timedatectl",
    )
    confirm = f"nvidia-smi -q | grep -A2 -i 'Licensed Product'; {confirmed_by(check_id)}"
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "See what is lacking: a client configuration token (a file *.tok that all may read; the guide sets mode 0744), the right "
            "FeatureType (for computing 1 or 4, as the guide of the release has it), the right time, and a way to the licence server on "
            "port 443.",
            run=look,
            confirm=confirm,
        ),
        _new_pod(confirm) if contained else _ask_again(confirm, runs=runs),
    )


def _ask_again(confirm: str, *, runs: bool) -> Remedy:
    return Remedy(
        Action.RESTART_SERVICE,
        "Then have the licence service ask again." if runs else "Then start the licence service, now and at each boot.",
        run=("systemctl restart nvidia-gridd" if runs else "systemctl enable --now nvidia-gridd",),
        interrupts="nothing: workloads go on and are no longer held back",
        confirm=confirm,
        then=True,
    )


def _new_pod(confirm: str) -> Remedy:
    """The driver container takes the token and gridd.conf from what the ClusterPolicy names (GPU Operator, "Using NVIDIA vGPU")."""
    return Remedy(
        Action.RESTART_SERVICE,
        "Then put it into the Secret or ConfigMap that the GPU Operator's ClusterPolicy names, and delete the driver pod of this node: it "
        "comes back with it.",
        run=(
            "kubectl get clusterpolicy -o jsonpath='{.items[*].spec.driver.licensingConfig}'",
            "kubectl -n gpu-operator delete pod -l app=nvidia-driver-daemonset --field-selector spec.nodeName=$(hostname)",
        ),
        interrupts="every workload with a GPU on this node: the driver is loaded anew",
        confirm=confirm,
        then=True,
    )


def matching_guest(check_id: str) -> tuple[Remedy, ...]:
    """For a guest whose driver the manager does not take."""
    return (
        Remedy(
            Action.INSTALL_PACKAGE,
            "Install in the guest the driver of the host's vGPU release, or of the branch before; the release notes list both versions.",
            run=("journalctl -b --no-pager -u nvidia-vgpu-mgr | grep -A1 -E 'Information|Incompatible'",),
            interrupts="that guest, which has to be started again",
            confirm=confirmed_by(check_id),
        ),
        Remedy(
            Action.INSTALL_PACKAGE,
            "Or bring the host's Virtual GPU Manager to a release that takes the guest's driver.",
            interrupts="every virtual machine with a vGPU of this host, and the host's reboot",
            confirm=confirmed_by(check_id),
        ),
    )


def start_manager(check_id: str) -> tuple[Remedy, ...]:
    """For a host whose manager does not run."""
    return (
        Remedy(
            Action.RESTART_SERVICE,
            "Read why it ended, and start it again; where the GPU Operator installed it, in its pod.",
            run=(
                "journalctl -b --no-pager -n 30 -u nvidia-vgpu-mgr -u nvidia-vgpud",
                "systemctl start nvidia-vgpud nvidia-vgpu-mgr",
                "kubectl -n gpu-operator logs -l app=nvidia-vgpu-manager-daemonset --tail=40    # where the GPU Operator runs it",
            ),
            interrupts="nobody: virtual machines that run keep their virtual GPUs",
            confirm=f"systemctl status nvidia-vgpu-mgr; {confirmed_by(check_id)}",
        ),
        reboot(check_id),
    )


def make_ready(check_id: str) -> tuple[Remedy, ...]:
    """For GPUs of confidential computing that nobody has declared ready; a reboot mends nothing, for it takes the ready state away."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Attest the GPUs, and when that succeeds declare them ready. Setting the state without attesting gives away what confidential "
            "computing is for. It has to be done at each boot: let a service do it.",
            run=(
                "nvidia-smi conf-compute -grs",
                "python3 -m verifier.cc_admin    # pip install nv-local-gpu-verifier",
                "nvidia-smi conf-compute -srs 1",
            ),
            interrupts="nobody: nothing can use the GPUs now",
            confirm=f"nvidia-smi conf-compute -grs; {confirmed_by(check_id)}",
        ),
    )


def keep_session(check_id: str) -> tuple[Remedy, ...]:
    """For persistence that is off."""
    return (
        Remedy(
            Action.RESTART_SERVICE,
            "Have nvidia-persistenced keep the GPUs initialised, with --uvm-persistence-mode and without --no-persistence-mode, now and "
            "after the next boot: in the drop-in an empty ExecStart= stands first, which takes the old one away. Attest and set the ready "
            "state once more if it was lost.",
            run=(
                "systemctl edit nvidia-persistenced    # ExecStart=/usr/bin/nvidia-persistenced --uvm-persistence-mode --verbose",
                "systemctl enable nvidia-persistenced",
                "systemctl restart nvidia-persistenced",
                "nvidia-smi conf-compute -grs",
            ),
            interrupts="nothing that runs; programs that start meanwhile may have to wait",
            confirm=confirmed_by(check_id),
        ),
    )


def real_mode(check_id: str) -> tuple[Remedy, ...]:
    """For an environment that only plays confidential computing."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Keep nothing secret on this node until its GPUs are in the mode for production; the mode is set from the host, by the GPU "
            "Operator's confidential-computing manager or nvtrust's host tools.",
            run=("nvidia-smi conf-compute -q",),
            interrupts="the virtual machine: to set the mode, the host resets its GPUs",
            confirm=confirmed_by(check_id),
        ),
    )


def set_mode_again(check_id: str) -> tuple[Remedy, ...]:
    """For a manager that did not set the mode that a label asks for."""
    return (
        Remedy(
            Action.CHANGE_CONFIG,
            "Read why the manager failed: mostly a GPU is in use or not held by vfio-pci. Free it, and set the label anew.",
            run=(
                "kubectl -n gpu-operator logs -l app=nvidia-cc-manager --tail=40",
                "kubectl get node $(hostname) -o json | jq '.metadata.labels | with_entries(select(.key | startswith(\"nvidia.com/cc\")))'",
            ),
            interrupts="the workloads that use the GPUs",
            confirm=confirmed_by(check_id),
        ),
    )
