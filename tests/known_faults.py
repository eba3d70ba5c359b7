"""Nodes on which something is known to go wrong and is not mended yet: each is expected to fail, and says so when it no longer does."""

import pytest

_SHOWN_LIVE = (
    "a recording of it does not hold all that a look at the live node reads of pods' logs or the operator's stages"
)
_ENGINE = "with the engine's configuration or /run/nvidia hidden toolkit.containers-start or containerd-runtime says more than it knows"
_SPEC = "with a lost GPU's branch of sysfs hidden toolkit.cdi-specs-current warns"
_EXPORTER = "an exporter in a namespace of the site's is not known as one in a redacted recording"

FAULTS: dict[str, dict[str, str]] = {
    "live": dict.fromkeys(
        (
            "mig-manager-failed-to-change-the-layout",
            "nouveau-and-a-plugin-that-found-no-devices",
            "operator-waits-for-the-driver",
            "plugin-alive-and-advertises-nothing",
            "plugin-pod-without-the-nvidia-runtime",
        ),
        _SHOWN_LIVE,
    ),
    "EACCES": {
        "crio-got-its-handler-after-the-first-pods": _ENGINE,
        "operator-stops-at-the-toolkit": _ENGINE,
        "device-unhealthy-after-xid-79": _SPEC,
        "pod-holds-a-gpu-that-fell-off-the-bus": _SPEC,
    },
    "redacted": dict.fromkeys(
        ("exporter-looks-below-another-kubelet-root", "kubelet-with-another-root-and-its-exporter"), _EXPORTER
    ),
}


def expect(request: pytest.FixtureRequest, kind: str, name: str) -> None:
    """Mark a test as one that is known to fail."""
    if (reason := FAULTS.get(kind, {}).get(name)) is not None:
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
