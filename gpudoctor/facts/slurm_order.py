"""The order in which Slurm counts the GPUs of a node: its index, IDX in `scontrol show job -d`, and the numbers of SLURM_JOB_GPUS.

It counts the devices of the node's gres list, not the numbers of their files: files in the order of gres.conf, types in that of slurm.conf;
what AutoDetect=nvml finds in the order of PCI addresses, what AutoDetect=nvidia finds, which tells no links, in that of the files' names
(SchedMD/slurm @284c3b95, src/interfaces/gres.c, _merge_gres and _foreach_fill_in_gres_devices; src/plugins/gres/gpu/gres_gpu.c,
_sort_gpu_by_file and _sort_gpu_by_links_order; src/plugins/gres/common/gres_common.c, common_gres_set_env).
"""

from gpudoctor.facts.desk import Reading
from gpudoctor.facts.driver import DriverGpu, DriverGpus
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.slurm_ground import minor_of
from gpudoctor.facts.slurm_setup import Setup
from gpudoctor.verdicts import Unread


def minors_in_order(setup: Setup, nvml: Reading[Nvml], driver: Reading[DriverGpus]) -> tuple[int, ...] | None:
    """The minors of the GPUs as Slurm counts them; None where instances of MIG are counted, what is no GPU's node, or it is not known."""
    if setup.gres.detection.on:
        found = _on_bus(nvml, driver)
        return found if found is not None and _certain(found, setup) else None
    types = [one.type.lower() for one in setup.conf.gres if one.type]
    records = [record for record in setup.gres.gpus if not record.multiple]
    if len(set(types)) > 1:
        records.sort(
            key=lambda record: types.index(record.type.lower()) if record.type.lower() in types else len(types)
        )
    minors = [minor_of(path) for record in records for path in record.files]
    known = [minor for minor in minors if minor is not None]
    return tuple(known) if len(known) == len(minors) and len(records) == len(setup.gres.gpus) else None


def _certain(found: tuple[int, ...], setup: Setup) -> bool:
    """Whether GPUs in the order of the bus are Slurm's: all of them, and sorted by NVML's links, else those have the order of their files.

    With detection too, only the files count that gres.conf names, and as many GPUs as slurm.conf promises (_merge_system_gres_conf).
    """
    named = {path for record in setup.gres.gpus for path in record.files}
    by_links = setup.gres.detection.kind == "nvml" and setup.conf.promised >= len(found)
    return len(named) in (0, len(found)) and (by_links or found == tuple(sorted(found)))


def _on_bus(nvml: Reading[Nvml], driver: Reading[DriverGpus]) -> tuple[int, ...] | None:
    if isinstance(nvml, Unread) or isinstance(driver, Unread):
        return None
    if any(one.mig_devices or one.fields.get("mig.current") is True for one in nvml.devices):
        return None
    # Several types stand in the order of slurm.conf.
    if len({one.name for one in nvml.devices if one.name is not None}) > 1:
        return None
    gpus = [gpu for gpu in driver.gpus.values() if isinstance(gpu, DriverGpu)]
    minors = [gpu.minor for gpu in sorted(gpus, key=lambda gpu: gpu.address) if gpu.minor is not None]
    return tuple(minors) if len(minors) == len(driver.gpus) else None
