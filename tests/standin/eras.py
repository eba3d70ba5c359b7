"""Which calls the libraries of older drivers lack.

A call counts as added with the first nvidia-ml-py that uses it (7.352.0, 10.418.84, 11.450.129, 11.470.66, 11.510.69, 11.525.150,
12.535.161, compared 2026-11-30; their versions follow the driver), the NVLink calls with R390 (NVIDIA/k8s-test-infra @3b2b865d,
pkg/gpu/mocknvml/engine/version.go). What has no entry is as old as R352.
"""

from __future__ import annotations

_ADDED = {
    390: "NvLinkState NvLinkVersion NvLinkErrorCounter NvLinkRemotePciInfo_v2",
    418: "ActiveVgpus BoardPartNumber CudaComputeCapability FieldValues MaxCustomerBoostClock PciInfo_v3 VirtualizationMode",
    450: """Architecture Attributes_v2 ComputeInstanceId ComputeRunningProcesses_v2 CpuAffinityWithinScope GpuInstanceId
        GpuInstanceProfileInfo GpuInstanceRemainingCapacity GraphicsRunningProcesses_v2 HostVgpuMode MaxMigDeviceCount
        MemoryAffinity MigDeviceHandleByIndex MigMode RemappedRows RowRemapperHistogram""",
    470: "GridLicensableFeatures_v4 MPSComputeRunningProcesses_v2 NvLinkRemoteDeviceType",
    510: """ComputeRunningProcesses_v3 GpuInstanceProfileInfoV GraphicsRunningProcesses_v3 GspFirmwareMode GspFirmwareVersion
        MPSComputeRunningProcesses_v3 MemoryInfo_v2""",
    525: "GpuFabricInfo GpuMaxPcieLinkGeneration",
    535: """ConfComputeProtectedMemoryUsage CurrentClocksEventReasons ModuleId SramEccErrorStatus
        SupportedClocksEventReasons""",
    550: """AddressingMode C2cModeInfoV GpuFabricInfoV MarginTemperature NumaNodeId PlatformInfo RepairStatus TemperatureV
        UnrepairableMemoryFlag_v1""",
}
_ADDED_OTHERS = {
    418: "nvmlInitWithFlags nvmlSystemGetCudaDriverVersion nvmlSystemGetCudaDriverVersion_v2",
    470: "nvmlGetExcludedDeviceCount nvmlGetExcludedDeviceInfoByIndex",
    535: "nvmlSystemGetConfComputeGpusReadyState nvmlSystemGetConfComputeState",
    550: "nvmlSystemGetConfComputeSettings",
}


def missing_in(branch: int) -> tuple[str, ...]:
    """The calls that the library of a driver branch lacks."""
    about_devices = {
        f"nvmlDeviceGet{call}" for added, calls in _ADDED.items() if added > branch for call in calls.split()
    }
    others = {call for added, calls in _ADDED_OTHERS.items() if added > branch for call in calls.split()}
    return tuple(sorted(about_devices | others))
