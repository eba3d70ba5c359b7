"""Writes gpudoctor/probes/podresources_v1/podresources_pb2.py from podresources.proto beside it.

With protoc of protobuf 4.25, in an environment of its own: what later ones write demands a protobuf at least as new as they are
(protobuf.dev/support/cross-version-runtime-guarantee), and a node's may be older. Every protobuf since 4.21 reads it.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "gpudoctor" / "probes" / "podresources_v1"
PROTO = FOLDER / "podresources.proto"
TOOLS = ("grpcio-tools==1.62.3", "setuptools<81")
"""This release holds protoc 4.25 and still needs pkg_resources."""


def main() -> int:
    """Make the environment, run protoc, leave the module where it belongs."""
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=True)
        python = f"{place}/bin/python"
        for command in (
            ["-m", "pip", "--quiet", "--disable-pip-version-check", "install", *TOOLS],
            ["-m", "grpc_tools.protoc", f"--proto_path={FOLDER}", f"--python_out={FOLDER}", PROTO.name],
        ):
            done = subprocess.run([python, *command], check=False)  # noqa: S603 - our own words
            if done.returncode != 0:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
