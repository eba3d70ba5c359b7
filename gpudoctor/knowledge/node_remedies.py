"""How to make a device node anew, from the safest step up.

nvidia-modprobe makes a missing node, deletes and makes anew one with wrong numbers, and does neither where the driver says
`ModifyDeviceFiles: 0` (mknod_helper in nvidia-modprobe-utils.c of nvidia-modprobe 610.43.03; options: its option-table.h).
"""

from gpudoctor.facts.device_nodes import DRIVER_ROOT
from gpudoctor.facts.driver import DriverParameters
from gpudoctor.facts.node_makers import MODPROBE, NodeMakers
from gpudoctor.verdicts import Action, Remedy

INSTALL_HELPER = Remedy(
    Action.INSTALL_PACKAGE,
    "Install the driver's helper: its libraries run it whenever a node is missing.",
    run=("apt-get install nvidia-modprobe    # RHEL: dnf install nvidia-modprobe",),
    confirm=f"stat -c '%a %U' {MODPROBE}    # 4755 root",
)
_SETUID = Remedy(
    Action.CHANGE_CONFIG,
    "Make the helper setuid root again, as its package has it: then programs without root get their nodes made, too.",
    run=(f"chown root:root {MODPROBE}", f"chmod 4755 {MODPROBE}"),
    confirm=f"stat -c '%a %U' {MODPROBE}    # 4755 root",
    then=True,
)


def root_of(path: str) -> str:
    """The driver container's root, if a node lies below it: a helper outside would make another one; empty on the host itself."""
    return DRIVER_ROOT if path.startswith(f"{DRIVER_ROOT}/") else ""


def entering(root: str) -> str:
    """What comes before a command that is to run there."""
    return f"chroot {root} " if root else ""


def make_node(
    path: str, options: str, numbers: tuple[int, int], makers: NodeMakers, *, clear: bool, confirm: str
) -> tuple[Remedy, ...]:
    """The remedies for one node, made by nvidia-modprobe with these options; `clear` removes what is there first."""
    cleared = (f"rm -d {path}",) if clear else ()
    told = makers.parameters
    # The option does not hold for the nodes of nvidia-uvm: nvidia_uvm_mknod passes no file to read it from.
    if told is not None and told.number("ModifyDeviceFiles") == 0 and not options.startswith("-u"):
        return (_by_the_system(path, numbers, told, cleared, confirm), *_after(makers))
    helper = makers.helper
    root = root_of(path) or (helper.root if helper is not None else "")
    absent = helper is not None and helper.path is None
    made = path if path.startswith(root) else root + path
    make = Remedy(
        Action.CHANGE_CONFIG,
        f"Make the node with the driver's own helper{', inside the driver container' if root else ''}.",
        run=(*cleared, f"{entering(root)}nvidia-modprobe {options}", f"ls -l {made}"),
        confirm=confirm,
        then=absent,
    )
    return (INSTALL_HELPER, make, *_after(makers)) if absent else (make, *_after(makers))


def _by_the_system(
    path: str, numbers: tuple[int, int], told: DriverParameters, cleared: tuple[str, ...], confirm: str
) -> Remedy:
    """Without its own helper: the driver was told that the system makes its nodes."""
    mode, uid, gid = (told.number(f"DeviceFile{name}") for name in ("Mode", "UID", "GID"))
    return Remedy(
        Action.CHANGE_CONFIG,
        "Make the node as the system should, and see why it did not: the driver leaves that to it here (ModifyDeviceFiles: 0).",
        run=(
            *cleared,
            f"mknod -m {(0o666 if mode is None else mode) & 0o777:04o} {path} c {numbers[0]} {numbers[1]}",
            f"chown {uid or 0}:{gid or 0} {path}",
            "grep -rn ModifyDeviceFiles /etc/modprobe.d",
        ),
        confirm=confirm,
    )


def _after(makers: NodeMakers) -> tuple[Remedy, ...]:
    """What keeps it from happening again."""
    steps = [_SETUID] if makers.helper and makers.helper.path and not makers.helper.setuid_root else []
    if makers.mknod_rules:
        path = makers.mknod_rules[0].where
        name = path.rsplit("/", 1)[-1]
        steps.append(
            Remedy(
                Action.CHANGE_CONFIG,
                "The udev rule runs mknod while the module may still be registering: update the package that brought it, or have "
                "it run nvidia-modprobe instead, in a copy that hides it.",
                run=(f"grep -n mknod {path}", f"cp -n {path} /etc/udev/rules.d/{name}", "udevadm control --reload"),
                confirm="ls -l /dev/nvidia* after the next boot",
                then=True,
            )
        )
    return tuple(steps)
