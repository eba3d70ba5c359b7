"""Who holds the driver's nodes, with the workload of each: recorded answers through the fact."""

from typing import Any

from gpudoctor.facts.gpu_holders import GpuHolders
from gpudoctor.facts.raw import Answer
from tests.workload_node import DOCKER, KEY, OTHER, WorkloadNode


def _holding(**more: Any) -> dict[str, Any]:
    return {
        "pid": 702,
        "comm": "python3",
        "nodes": ["/dev/nvidia0", "/dev/nvidiactl"],
        "cgroup": f"0::{DOCKER}\n",
        "state": "S",
        **more,
    }


def _holders(*holders: dict[str, Any], **data: Any) -> GpuHolders:
    node = WorkloadNode()
    node.process(702, DOCKER, apart=True)
    node.process(730, "/user.slice/user-1000.slice/session-3.scope")
    node.complete += ["/run", "/var/snap"]
    node.answers["holders"] = Answer(data={"holders": list(holders), "hidden": 0, **data}, via="/proc")
    return node.get(GpuHolders)


def test_holder_is_named_with_its_container() -> None:
    held = _holders(_holding(), hidden=3)
    (holder,) = held.holders
    assert holder.workload is not None and holder.workload.key == KEY
    assert (holder.outside, holder.leftover, holder.zombie, holder.minors, held.hidden) == (
        False,
        False,
        False,
        (0,),
        3,
    )
    assert held.of(0) == (holder,) and held.of(1) == ()


def test_process_of_a_session_is_outside_of_any_container() -> None:
    (holder,) = _holders(_holding(pid=730, cgroup="0::/user.slice/user-1000.slice/session-3.scope\n")).holders
    assert holder.outside
    assert holder.workload is not None and holder.workload.key == "session-3.scope"


def test_what_is_left_of_a_dead_container_is_a_leftover() -> None:
    zombie, stuck = _holders(
        _holding(pid=9, state="Z", cgroup=f"0::/system.slice/docker-{OTHER}.scope (deleted)\n"), _holding(state="D")
    ).holders
    assert (zombie.leftover, zombie.zombie, zombie.workload) == (True, True, None)
    # Its engine has let go of its files, and it does not end.
    assert (stuck.leftover, stuck.stuck) == (True, True)


def test_mapped_node_counts_without_an_open_file() -> None:
    (holder,) = _holders(_holding(nodes=[], mapped=["/dev/nvidia2"]), unmapped=1).holders
    assert holder.minors == (2,)
    assert (holder.evidence.where, holder.evidence.shows) == ("/proc/702/maps", "python3 has /dev/nvidia2 mapped")


def test_nobody_holds_the_nodes_of_a_driver_that_is_not_loaded() -> None:
    node = WorkloadNode()
    node.text("/proc/modules", "ext4 1 1 - Live 0x0\n")
    held = node.get(GpuHolders)
    assert held.holders == () and held.cite("holders")[0].where == "/proc/modules"
