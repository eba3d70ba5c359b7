"""What the path of a control group stands for: every engine's form, nested ones, and real captures."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudoctor.facts.cgroup_paths import GroupKind, Identity, identify, identify_all, parse_groups
from tests.conftest import SHARED

ID, OTHER = "ab12" * 16, "cd34" * 16
UID = "2c48913c-b29f-11e7-9350-020968147796"
SLICE = f"kubepods-besteffort-pod{UID.replace('-', '_')}.slice"
STATIC = "cb45fe64d18d594b83022e357da85643"

CONTAINERS = [
    # engine, id, pod uid and QoS class, user, unit that the node's systemd manages, path of the group itself, what lies below it
    ("docker", ID, "", None, f"docker-{ID}.scope", f"/system.slice/docker-{ID}.scope", ""),
    ("docker", ID, "", None, "", f"/docker/{ID}", "/init.scope"),
    ("docker", ID, "", 1000, f"docker-{ID}.scope", f"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope", ""),
    ("docker", ID, f"{UID} besteffort", None, f"docker-{ID}.scope",
     f"/kubepods.slice/kubepods-besteffort.slice/{SLICE}/docker-{ID}.scope", ""),
    ("containerd", ID, f"{UID} besteffort", None, f"cri-containerd-{ID}.scope",
     f"/kubepods.slice/kubepods-besteffort.slice/{SLICE}/cri-containerd-{ID}.scope", ""),
    ("containerd", ID, f"{STATIC} guaranteed", None, f"cri-containerd-{ID}.scope",
     f"/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope", ""),
    ("containerd", ID, f"{UID} besteffort", None, "containerd.service",
     f"/system.slice/containerd.service/{SLICE}:cri-containerd:{ID}", ""),
    ("containerd", ID, "", None, f"nerdctl-{ID}.scope", f"/system.slice/nerdctl-{ID}.scope", ""),
    ("", ID, f"{STATIC} besteffort", None, "", f"/kubepods/besteffort/pod{STATIC}/{ID}", ""),
    ("", ID, f"{UID} guaranteed", None, "", f"/kubepods/pod{UID}/{ID}", ""),
    ("", ID, "", None, "", f"/default/{ID}", ""),
    ("", ID, "", None, "", f"/ecs/0123456789abcdef0123456789abcdef/{ID}", ""),
    ("cri-o", ID, f"{UID} besteffort", None, f"crio-{ID}.scope",
     f"/kubepods.slice/kubepods-besteffort.slice/{SLICE}/crio-{ID}.scope", "/container"),
    ("cri-o", ID, f"{UID} burstable", None, "", f"/kubepods/burstable/pod{UID}/crio-{ID}", ""),
    ("podman", ID, "", None, f"libpod-{ID}.scope", f"/machine.slice/libpod-{ID}.scope", "/container"),
    ("podman", ID, "", None, f"libpod-{ID}.scope", f"/machine.slice/machine-libpod_pod_{OTHER}.slice/libpod-{ID}.scope", ""),
    ("podman", ID, "", 1000, f"libpod-{ID}.scope", f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", ""),
    ("podman", ID, "", 1000, "web.service", f"/user.slice/user-1000.slice/user@1000.service/app.slice/web.service/libpod-payload-{ID}", ""),
    ("podman", ID, "", None, "", f"/libpod_parent/libpod-{ID}", ""),
    ("podman", ID, "", None, "", f"/libpod_parent/{OTHER}/libpod-{ID}", ""),
    ("lxc", "web", "", None, "", "/lxc.payload.web", "/system.slice/sshd.service"),
    ("lxc", "101", "", None, "", "/lxc/101", "/ns"),
    ("systemd-nspawn", "my-box", "", None, r"machine-my\x2dbox.scope", r"/machine.slice/machine-my\x2dbox.scope", "/payload"),
    ("systemd-nspawn", "deb", "", None, "systemd-nspawn@deb.service", "/machine.slice/systemd-nspawn@deb.service", "/payload/init.scope"),
    ("libvirt", "lxc-1-box", "", None, r"machine-lxc\x2d1\x2dbox.scope", r"/machine.slice/machine-lxc\x2d1\x2dbox.scope", ""),
    ("buildkit", "q1w2e3r4t5", "", None, "", "/docker/buildkit/q1w2e3r4t5", ""),
]  # fmt: skip

OTHERS = [
    # kind, engine, id, step, unit, user, path
    ("job", "slurm", "397", "step_0/task_1", "slurmstepd.scope", None, "/system.slice/slurmstepd.scope/job_397/step_0/user/task_1"),
    ("job", "slurm", "397", "step_batch/slurm", "gpu01_slurmstepd.scope", None,
     "/system.slice/gpu01_slurmstepd.scope/job_397/step_batch/slurm"),
    ("job", "slurm", "397", "step_0/task_0", "", None, "/slurm/uid_1000/job_397/step_0/task_0"),
    ("job", "slurm", "9", "step_extern", "", None, "/slurm_gpu01/uid_1000/job_9/step_extern"),
    ("monitor", "cri-o", ID, "", f"crio-conmon-{ID}.scope", None, f"/kubepods.slice/kubepods-pod{STATIC}.slice/crio-conmon-{ID}.scope"),
    ("monitor", "cri-o", ID, "", "", None, f"/kubepods/pod{UID}/crio-conmon-{ID}"),
    ("monitor", "podman", ID, "", f"libpod-conmon-{ID}.scope", None, f"/machine.slice/libpod-conmon-{ID}.scope"),
    ("monitor", "lxc", "web", "", "", None, "/lxc.monitor.web"),
    ("machine", "libvirt", "qemu-1-vm1", "", r"machine-qemu\x2d1\x2dvm1.scope", None,
     r"/machine.slice/machine-qemu\x2d1\x2dvm1.scope/libvirt/emulator"),
    ("pod", "kubelet", UID, "", "", None, f"/kubepods/besteffort/pod{UID}"),
    ("service", "systemd", "sshd.service", "", "sshd.service", None, "/system.slice/sshd.service"),
    ("service", "systemd", "getty@tty1.service", "", "getty@tty1.service", None,
     r"/system.slice/system-getty.slice/getty@tty1.service"),
    ("service", "systemd", r"dev-disk-by\x2duuid.service", "", r"dev-disk-by\x2duuid.service", None,
     r"/system.slice/dev-disk-by\x2duuid.service"),
    ("service", "systemd", "web.service", "", "web.service", 1000,
     "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service/runtime"),
    ("session", "systemd", "session-3.scope", "", "session-3.scope", 1000, "/user.slice/user-1000.slice/session-3.scope"),
    ("scope", "systemd", "init.scope", "", "init.scope", None, "/init.scope"),
    ("scope", "systemd", "rig-c.scope", "", "rig-c.scope", None, "/system.slice/rig-c.scope/container"),
    ("other", "", "", "", "", None, "/"),
    ("other", "", "", "", "", None, "/healthy"),
    ("other", "", "", "", "", None, "/system.slice"),
    ("other", "", "", "", "", None, "/docker"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "name", "pod", "user", "unit", "own", "below"), CONTAINERS)
def test_container_is_known_by_its_path(
    engine: str, name: str, pod: str, user: int | None, unit: str, own: str, below: str
) -> None:
    found = identify(own + below)
    said = f"{found.pod.uid} {found.pod.qos}" if found.pod is not None else ""
    assert (found.kind, found.engine, found.id, said) == (GroupKind.CONTAINER, engine, name, pod)
    assert (found.user, found.unit, found.own, found.around, found.above) == (user, unit, own, (), 0)


@pytest.mark.parametrize(("kind", "engine", "name", "step", "unit", "user", "path"), OTHERS)
def test_whatever_is_no_container_is_told_apart(
    kind: str, engine: str, name: str, step: str, unit: str, user: int | None, path: str
) -> None:
    found = identify(path)
    assert (found.kind.value, found.engine, found.id, found.step) == (kind, engine, name, step)
    assert (found.unit, found.user) == (unit, user)


def test_nested_containers_name_those_around_them() -> None:
    kind = identify(
        f"/docker/{OTHER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-{SLICE}/cri-containerd-{ID}.scope"
    )
    assert (kind.engine, kind.id, [layer.id for layer in kind.around]) == ("containerd", ID, [OTHER])
    assert kind.pod is not None and kind.pod.uid == UID
    # The unit is one of the systemd inside: a reload of the node's own does not touch it.
    assert kind.unit == ""
    inner = identify(f"/system.slice/docker-{OTHER}.scope/docker/{ID}")
    assert (inner.engine, inner.id, inner.unit) == ("docker", ID, f"docker-{OTHER}.scope")
    assert [(layer.engine, layer.id) for layer in inner.around] == [("docker", OTHER)]
    below_lxc = identify(f"/lxc.payload.web/system.slice/docker-{ID}.scope")
    assert (below_lxc.engine, below_lxc.unit, [layer.id for layer in below_lxc.around]) == ("docker", "", ["web"])


def test_reader_in_a_cgroup_namespace_sees_the_end_of_a_path() -> None:
    tail = identify(f"/../../{SLICE}/cri-containerd-{ID}.scope")
    assert (tail.engine, tail.id, tail.above) == ("containerd", ID, 2)
    assert tail.pod is not None and tail.pod.uid == UID
    bare = identify(f"/../../pod{UID}/{ID}")
    assert (bare.id, bare.pod.uid if bare.pod else None, bare.pod.qos if bare.pod else None) == (ID, UID, "")


def test_removed_group_is_marked() -> None:
    found = identify(f"/system.slice/docker-{ID}.scope (deleted)")
    assert (found.engine, found.id, found.deleted) == ("docker", ID, True)


def _said(*lines: str) -> Identity:
    return identify_all(parse_groups("".join(f"{line}\n" for line in lines)), {})


def test_mixed_hierarchies_are_read_together() -> None:
    """On a hybrid host the unified group may only name the engine's unit."""
    found = _said(
        f"12:devices:/docker/{ID}", "11:cpu,cpuacct:/", "1:name=systemd:/", "0::/system.slice/containerd.service"
    )
    assert (found.kind, found.engine, found.id) == (GroupKind.CONTAINER, "docker", ID)
    only_unified = _said(
        "9:name=systemd:/", "5:devices:/", "4:memory:/process_api/0123", f"0::/system.slice/docker-{ID}.scope"
    )
    assert (only_unified.engine, only_unified.id) == ("docker", ID)
    bare = _said("5:devices:/", "4:memory:/process_api/0123", "0::/healthy")
    assert (bare.kind, bare.own) == (GroupKind.OTHER, "/healthy")
    groups = parse_groups(f"6:devices:/docker/{ID}\n8:cpu,cpuacct:/a\n0::/b:c\n")
    assert (groups.devices, groups.unified, groups.controllers["cpuacct"]) == (f"/docker/{ID}", "/b:c", "/a")
    assert parse_groups("garbage\n\n0::relative\n").unified is None


# real captures ------------------------------------------------------------------------------------------------------


def _captures(pattern: str) -> Iterator[Path]:
    if not SHARED.is_dir():
        pytest.skip("the shared captures are not here")
    return (place.parent for place in sorted((SHARED / "rig").glob(pattern)))


def test_dockers_own_containers_are_named_as_docker_names_them() -> None:
    seen = 0
    for folder in _captures("docker/*/*/proc.cgroup"):
        found = identify_all(parse_groups((folder / "proc.cgroup").read_text()), {})
        assert (found.engine, found.id) == ("docker", json.loads((folder / "config.v2.json").read_text())["ID"]), folder
        seen += 1
    assert seen >= 20


def test_containers_of_pods_are_named_as_the_runtime_was_told() -> None:
    seen = 0
    for folder in (*_captures("k8s/*/ctr-*/proc.cgroup"), *_captures("vm-k8s-v2/*/ctr-*/proc.cgroup")):
        found = identify_all(parse_groups((folder / "proc.cgroup").read_text()), {})
        config = folder / "oci-config.json"
        told = json.loads((config if config.is_file() else folder.parent / "config.json").read_text())
        path, uid = told["linux"]["cgroupsPath"], told["annotations"]["io.kubernetes.cri.sandbox-uid"]
        assert found.kind is GroupKind.CONTAINER and found.pod is not None, folder
        assert (found.id, found.pod.uid) == (path.replace(":", "/").rpartition("/")[2], uid), folder
        assert found.engine == ("containerd" if ":cri-containerd:" in path else ""), folder
        assert found.pod.qos == ("besteffort" if "besteffort" in path else "guaranteed"), folder
        seen += 1
    assert seen >= 13


def test_containers_without_an_engine_are_scopes_or_bare_groups() -> None:
    seen = 0
    for folder in (*_captures("containers/v?/*/proc.cgroup"), *_captures("vm-containers-v*/*/proc.cgroup")):
        found = identify_all(parse_groups((folder / "proc.cgroup").read_text()), {})
        name = folder.name.split(".")[1]
        # systemd-managed ones are called rig-LETTER-RUNTIME, the others are called what they show.
        scope = name.startswith("sd-")
        assert found.kind is (GroupKind.SCOPE if scope else GroupKind.OTHER) or found.kind is GroupKind.SERVICE, folder
        assert (found.id.startswith("rig-") and found.unit == found.id) if scope else name in found.own or found.unit, (
            folder
        )
        seen += 1
    assert seen >= 111
