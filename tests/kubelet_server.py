"""Stands in for the kubelet behind its socket: a program of its own that serves gRPC by grpcio, or what is no gRPC at all.

Argument: a JSON object, a plan by socket. `{"calls": {METHOD: ANSWER}}` is a server of gRPC that answers a method with bytes (hexadecimal),
with `{"status": CODE, "detail": "…"}`, or with `{"after": SECONDS}` before an empty message; it knows no other method.
`{"raw": {"say": HEX, "close": true, "accept": true}}` speaks no gRPC. Prints `ready` once all listen, and serves until its input ends.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

NO_LIMIT = (("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0))
"""As Go's server has it."""


class Plan(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc has no annotations
    """Answers methods with the bytes of the plan, whatever messages they are."""

    def __init__(self, calls: dict[str, Any]) -> None:
        self._calls = calls

    def service(self, handler_call_details: Any) -> Any:
        """The handler of one call, none where the plan has no such method."""
        if handler_call_details.method not in self._calls:
            return None
        answer = self._calls[handler_call_details.method]

        def handle(request: bytes, context: Any) -> bytes:
            if isinstance(answer, str):
                return bytes.fromhex(answer)
            time.sleep(answer.get("after", 0.0))
            if "by_request" in answer:
                return bytes.fromhex(answer["by_request"][request.hex()])
            if "status" in answer:
                context.abort(grpc.StatusCode[answer["status"]], answer.get("detail", ""))
            return b""

        return grpc.unary_unary_rpc_method_handler(handle)


def serve(path: str, calls: dict[str, Any]) -> Any:
    """A server of gRPC on a socket."""
    server = grpc.server(ThreadPoolExecutor(4, "calls"), handlers=[Plan(calls)], options=NO_LIMIT)
    # A path can be too long for a socket's address, a name in the working directory is not.
    os.chdir(os.path.dirname(path))
    server.add_insecure_port(f"unix:{os.path.basename(path)}")
    server.start()
    return server


def speak_otherwise(path: str, raw: dict[str, Any]) -> socket.socket:
    """Whoever listens there says some bytes on each connection, or nothing, and closes it, or does not."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.chdir(os.path.dirname(path))
    listener.bind(os.path.basename(path))
    listener.listen(raw.get("backlog", 8))
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            # Whoever only looks whether somebody listens is gone again.
            with contextlib.suppress(OSError):
                connection.sendall(bytes.fromhex(raw.get("say", "")))
            if raw.get("close"):
                connection.close()
            else:
                held.append(connection)

    if raw.get("accept", True):
        threading.Thread(target=accept, daemon=True).start()
    return listener


def main() -> None:
    """Serve the plan until stdin ends."""
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    kept = [
        serve(path, said["calls"]) if "calls" in said else speak_otherwise(path, said["raw"])
        for path, said in plan.items()
    ]
    print("ready", flush=True)
    sys.stdin.read()
    del kept


if __name__ == "__main__":
    main()
