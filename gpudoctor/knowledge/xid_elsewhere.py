"""Where other tools take an Xid otherwise than NVIDIA's catalogue, which is what is held here.

NVIDIA/k8s-device-plugin at 1b826acc6 (2026-08-19), internal/rm/health.go: the Xids it skips; any other that NVML reports takes the GPU from
Kubernetes until the plugin restarts (internal/plugin/server.go: "no way to recover from the Unhealthy state"). NVIDIA/DCGM 4.6.0 (72fa3fe),
modules/health/DcgmHealthWatch.cpp: under which system its health watch tells an Xid, and as what. leptonai/gpud at 4a8de33a,
components/accelerator/nvidia/xid/xid.go: what it suggests. aws/eks-node-monitoring-agent at 51af549 (2026-08-18),
monitors/nvidia/dcgm/dcgm_policies.go: the Xids that make a node unready. NVIDIA/NVSentinel as of 0f60731 (2026-07-14),
health-monitors/syslog-health-monitor/pkg/common/common.go: the catalogue's actions it has a step for.
"""

TOOLS = "k8s-device-plugin 1b826acc6, DCGM 4.6.0, gpud 4a8de33a, eks-node-monitoring-agent 51af549, NVSentinel 0f60731"
"""At which commits or releases the other tools were read."""
SKIPPED_BY_PLUGIN = frozenset((13, 31, 43, 45, 68, 109))
"""Xids that leave a GPU healthy for the k8s-device-plugin."""

# Actions of the catalogue that leave the GPU as it is.
_MILD = frozenset(("IGNORE", "RESTART_APP", "WORKFLOW_XID_45"))
_DCGM = {
    31: ("memory", "MMU Error"),
    32: ("memory", "PBDMA Error"),
    38: ("PCIe", "PCIe Bus Error"),
    39: ("PCIe", "PCIe Fabric Error"),
    42: ("PCIe", "PCIe Replay Error"),
    43: ("memory", "Reset Channel Verif Error"),
    56: ("power", "Clock change"),
    57: ("power", "Clock change due to power"),
    58: ("power", "Clock change due to thermal"),
    60: ("thermal", "clocks event thermal"),
    61: ("thermal", "EDPP Power Brake Thermal limit"),
    62: ("thermal", "Thermal Violation"),
    67: ("NVLink", "NVLink Error"),
    73: ("NVLink", "NVLink Flow Control Error"),
    78: ("power", "Power state forced change"),
    93: ("InfoROM", "corrupt InfoROM"),
}
_GPUD = {
    **dict.fromkeys(
        (32, 38, 44, 60, 63, 68, 69, 94, 121), "gpud suggests to reboot the node; the catalogue asks for less."
    ),
    **dict.fromkeys(
        (46, 48, 62, 64, 95, 110, 119, 120, 140, 155, 156, 158),
        "gpud suggests to reboot the node where the catalogue has the GPU reset.",
    ),
    **dict.fromkeys((109, 136), "gpud only warns of it, without an action; the catalogue has the GPU reset."),
    78: "gpud suggests to reboot the node; the catalogue has driver and firmware updated.",
    143: "gpud suggests to inspect the hardware at once; the catalogue has the GPU reset first.",
}
_EKS_UNREADY = frozenset((46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158))
_NVSENTINEL_KNOWS = frozenset(
    (
        "RESTART_APP",
        "IGNORE",
        "XID_154_EVAL",
        "WORKFLOW_XID_48",
        "RESET_GPU",
        "RESTART_BM",
        "RESTART_VM",
        "CONTACT_SUPPORT",
    )
)


def elsewhere(code: int, immediate: str) -> str:
    """Sentences about the tools that disagree with the catalogue's immediate action, "" where none of them does."""
    said = (_plugin(code, immediate), _dcgm(code), _GPUD.get(code, ""), _eks(code), _nvsentinel(code, immediate))
    return " ".join(sentence for sentence in said if sentence)


def _plugin(code: int, immediate: str) -> str:
    if code in SKIPPED_BY_PLUGIN:
        if immediate in _MILD:
            return ""
        return "NVIDIA's k8s-device-plugin skips it and keeps the GPU schedulable; the catalogue wants the GPU reset."
    if immediate not in _MILD:
        return ""
    wants = "nothing done" if immediate == "IGNORE" else "only the application restarted"
    return (
        "NVIDIA's k8s-device-plugin takes the GPU from Kubernetes when NVML reports it, until the plugin restarts; "
        f"the catalogue wants {wants}."
    )


def _dcgm(code: int) -> str:
    if code == 94:
        return "DCGM's health watch warns of the whole GPU; the catalogue wants only the application restarted."
    if code not in _DCGM:
        return ""
    system, words = _DCGM[code]
    if system == "memory":
        return f"DCGM's health watch warns of the GPU's memory for it (\"{words}\"), which is not to blame."
    return f'DCGM\'s health watch tells it as "{words}", of {system}; by its name in the driver it is something else.'


def _eks(code: int) -> str:
    if code == 63:
        return "Amazon EKS has the node replaced, since repeated remapping uses up the spare rows; the catalogue asks for nothing."
    return "Amazon EKS has the node replaced." if code in _EKS_UNREADY else ""


def _nvsentinel(code: int, immediate: str) -> str:
    if code == 154 or not immediate:
        return ""
    handed_on = immediate not in _NVSENTINEL_KNOWS and code not in range(144, 151)
    return "NVSentinel has no step for this action and hands it to support." if handed_on else ""
