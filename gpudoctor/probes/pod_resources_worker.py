"""The PodResources worker: a program of its own that asks the kubelet over gRPC and prints one JSON object a line.

Started by file path in an isolated interpreter, because grpc takes half a second to import, starts threads, and whoever listens on the
socket may never answer. First it connects by itself: that nobody listens, or that it may not, is told without grpc. It asks for what is
held (List) and what there is (GetAllocatableResources), and never speaks to a device plugin.
Arguments: a JSON object with `folder` and `name` of the socket, `import_paths`, `seconds`, and `pods`, pairs of a namespace and a name:
of those that List does not tell, Get is asked.
"""

import contextlib
import errno
import importlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

NAME = "gpudoctor-pods"
FOLDER = "podresources_v1"
"""Where the messages lie, beside this file."""
VERSIONS = ("v1", "v1alpha1")
"""v1 is served since Kubernetes 1.20, v1alpha1 since 1.13; both are named in pkg/apis/podresources of kubernetes/kubelet."""
MOST_BYTES = 16 * 1024 * 1024
"""Of one answer. grpc's own limit of 4 MiB is less than what a kubelet with many devices sends, which sets none for itself."""
CALL_SECONDS = 3.0
"""The kubelet answers from its memory."""
CONNECT_SECONDS = 1.0
ENDED = ("Broken pipe", "reset by peer", "Socket closed")
"""How grpc tells that the other side has closed: as write(2) or read(2) noticed it first (strerror(3)), or by an end of what is read
(tcp_posix.cc). After a word that is not of HTTP/2 it says "Failed parsing HTTP/2" instead."""


class Failed(Exception):
    """Nothing more can be asked: `why` and `detail` as in answers/pod_resources.json."""

    def __init__(self, why: str, detail: str) -> None:
        super().__init__(detail)
        self.why = why


def say(**line: Any) -> None:
    """Print one line and let it out at once."""
    left = json.dumps(line).encode() + b"\n"
    while left:
        left = left[os.write(1, left) :]


def connect(name: str, seconds: float) -> None:
    """Whether anybody listens on the socket, in this directory. Raises Failed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plain:
        plain.settimeout(seconds)
        try:
            plain.connect(name)
        except (TimeoutError, BlockingIOError):
            # The queue of connections that nobody accepts is full (unix(7), listen(2)).
            raise Failed("timed-out", "whoever listens there accepts no connections") from None
        except OSError as error:
            raise Failed(_why(error), _words(error)) from None


def _why(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "no-permission"
    return {errno.ECONNREFUSED: "refused", errno.ENOENT: "absent", errno.ENOTDIR: "absent"}.get(
        error.errno or 0, "failed"
    )


def _words(error: OSError) -> str:
    if error.errno == errno.ECONNREFUSED:
        return "nobody listens there: the kubelet that made it is gone"
    return (error.strerror or str(error)).lower()


class Kubelet:
    """The API behind the socket."""

    def __init__(self, name: str, until: float) -> None:
        """Raises ImportError without grpc or protobuf."""
        from urllib.parse import quote

        os.environ.update(GRPC_VERBOSITY="NONE", GRPC_ENABLE_FORK_SUPPORT="0")
        import grpc

        self.messages: Any = importlib.import_module("podresources_pb2")
        self._grpc: Any = grpc
        self._until = until
        self._was_ready = False
        # By itself grpc makes an authority of the socket's path, percent-encoded, which servers may refuse (grpc/grpc#38142).
        options = (
            ("grpc.max_receive_message_length", MOST_BYTES),
            ("grpc.default_authority", "localhost"),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
        )
        self._channel = self._grpc.insecure_channel(f"unix:{quote(name)}", options=options)
        self._channel.subscribe(self._changed)

    def _changed(self, state: Any) -> None:
        self._was_ready = self._was_ready or state is self._grpc.ChannelConnectivity.READY

    def call(self, version: str, method: str, request: Any, answer: str) -> Any:
        """One call's answer, of the message of that name. Raises Failed."""
        say(calling=method)
        stub = self._channel.unary_unary(
            f"/{version}.PodResourcesLister/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(self.messages, answer).FromString,
        )
        left = max(0.05, min(CALL_SECONDS, self._until - time.monotonic()))
        try:
            return stub(request, timeout=left)
        except self._grpc.RpcError as error:
            raise self._failure(error.code().name, error.details() or "") from None

    def _failure(self, code: str, detail: str) -> Failed:
        """By grpc's status codes (grpc.github.io/grpc/core/md_doc_statuscodes.html), which both sides give."""
        said = f"{code}: {' '.join(detail.split())[:300]}"
        match code:
            case "UNIMPLEMENTED":
                return Failed("unimplemented", said)
            case "DEADLINE_EXCEEDED" if self._was_ready:
                return Failed("timed-out", "the call was not answered in time")
            case "DEADLINE_EXCEEDED":
                return Failed("timed-out", "the connection is accepted, but nothing is said on it")
            case "RESOURCE_EXHAUSTED" if "larger than max" in detail:
                return Failed("too-large", said)
            case "INTERNAL" if "deserializing" in detail:
                return Failed("unreadable", said)
            case "UNAVAILABLE" if "failed to connect" in detail and any(words in detail for words in ENDED):
                return Failed("failed", f"whoever listens there ends the connection before gRPC comes about: {said}")
            case "UNAVAILABLE" if "failed to connect" in detail:
                return Failed("unreadable", f"no connection of gRPC comes about with whoever listens there: {said}")
            case _:
                return Failed("failed", said)


def held_by_pods(kubelet: Kubelet) -> tuple[str, list[dict[str, Any]]]:
    """The version that is served, and the pods. Raises Failed."""
    request = kubelet.messages.ListPodResourcesRequest()
    refused: list[str] = []
    for version in VERSIONS:
        try:
            answer = kubelet.call(version, "List", request, "ListPodResourcesResponse")
        except Failed as failed:
            if failed.why != "unimplemented":
                raise
            refused.append(str(failed))
        else:
            return version, [_pod(pod) for pod in answer.pod_resources]
    raise Failed("unimplemented", f"serves neither {' nor '.join(VERSIONS)} of PodResources: {refused[0]}")


def ask(kubelet: Kubelet, pods: Iterable[tuple[str, str]]) -> None:
    """Everything, said as it comes. Raises Failed where nothing is known of the pods."""
    version, listed = held_by_pods(kubelet)
    say(set={"version": version, "pods": listed})
    if version != "v1":
        return
    request = kubelet.messages.AllocatableResourcesRequest()
    try:
        answer = kubelet.call(version, "GetAllocatableResources", request, "AllocatableResourcesResponse")
        say(set={"allocatable": device_sets(answer.devices), "cpus": list(answer.cpu_ids)})
        told = {(pod["namespace"], pod["name"]) for pod in listed}
        for namespace, name in pods:
            if (namespace, name) not in told:
                asked = kubelet.messages.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
                got = kubelet.call(version, "Get", asked, "GetPodResourcesResponse")
                listed.append(_pod(got.pod_resources))
                say(set={"pods": listed})
    except Failed as failed:
        # Kubelets before 1.23, and those whose feature gate is off, answer List alone.
        say(note={"why": failed.why, "detail": str(failed)})


def device_sets(devices: Iterable[Any]) -> list[dict[str, Any]]:
    """Devices by resource and NUMA nodes: the kubelet sends each allocatable one by itself."""
    grouped: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for device in devices:
        nodes = tuple(node.ID for node in device.topology.nodes)
        grouped.setdefault((device.resource_name, nodes), []).extend(device.device_ids)
    return [{"resource": resource, "ids": ids, "numa": list(nodes)} for (resource, nodes), ids in grouped.items()]


def _pod(pod: Any) -> dict[str, Any]:
    containers = [
        {
            "name": container.name,
            "devices": device_sets(container.devices),
            "cpus": list(container.cpu_ids),
            "claims": list(_claims(container.dynamic_resources)),
        }
        for container in pod.containers
    ]
    return {"namespace": pod.namespace, "name": pod.name, "containers": containers}


def _claims(claims: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for claim in claims:
        devices = [
            {
                "driver": resource.driver_name,
                "pool": resource.pool_name,
                "device": resource.device_name,
                "cdi": [device.name for device in resource.cdi_devices],
                **({"share": resource.share_id} if resource.share_id else {}),
            }
            for resource in claim.claim_resources
        ]
        yield {"namespace": claim.claim_namespace, "name": claim.claim_name, "devices": devices}


def main() -> None:
    """Connect, ask, say `done`."""
    arguments = json.loads(sys.argv[1])
    until = time.monotonic() + arguments["seconds"]
    signal.alarm(int(arguments["seconds"]) + 2)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as comm:
        comm.write(NAME)
    sys.path[:0] = arguments["import_paths"]
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), FOLDER))
    say(calling="connect")
    try:
        # A socket's path may have 107 bytes (unix(7)), a name in the directory that one is in always fits.
        os.chdir(arguments["folder"])
        connect(arguments["name"], min(CONNECT_SECONDS, arguments["seconds"]))
        ask(Kubelet(arguments["name"], until), arguments["pods"])
    except OSError as error:
        say(error={"why": _why(error), "detail": _words(error)})
    except ImportError as error:
        say(error={"why": "unavailable", "detail": f"Python cannot import grpc and protobuf: {error}"})
    except Failed as failed:
        say(error={"why": failed.why, "detail": str(failed)})
    say(done=True)
    # Closing the channel waits for its threads, and the process ends anyway.
    os._exit(0)


if __name__ == "__main__":
    main()
