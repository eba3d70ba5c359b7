"""Workloads: the libcuda that an image's LD_LIBRARY_PATH puts before the driver's own."""

from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.gpu_workloads import GpuWorkload
from gpudoctor.facts.workload_libraries import LIBRARY_PATH, ImageLibrary
from gpudoctor.knowledge import workload_remedies
from gpudoctor.knowledge.compat_packages import PAGE, Trouble, package_trouble
from gpudoctor.verdicts import Action, Breaks, Fail, Remedy, Verdict


def judge_image(one: GpuWorkload, image: ImageLibrary, module: NvidiaModule, check_id: str) -> Verdict | None:
    """What is wrong with it; None where nothing is, or nothing that is known: then the mounted libraries are what counts."""
    library = image.library
    if library is None or not module.version:
        return None
    folder = library.path.rpartition("/")[0]
    begin = f"{one.workload.title} loads libcuda from {folder}"
    if library.stub:
        summary = f"{begin}, a stub that is made for linking only: CUDA answers 34"
        references: tuple[str, ...] = ()
    elif library.compat and library.version and library.version != module.version:
        found = package_trouble(library.version, module.version, image.gpus)
        if found is None or not found.breaks:
            return None
        comma = "," if found.trouble is Trouble.REFUSED else ""
        summary = f"{begin} ({library.version}), a package for forward compatibility{comma} {found.words}"
        references = (PAGE,)
    else:
        return None
    say = f"Take {folder} out of {LIBRARY_PATH}, so that the driver's own libcuda comes first, and start it anew."
    steps = (
        Remedy(
            Action.CHANGE_WORKLOAD,
            say,
            interrupts="this workload",
            confirm=workload_remedies.confirmed(check_id),
        ),
    )
    evidence = image.evidence + module.cite("version")
    return Fail(one, summary, evidence, steps, Breaks.SUBJECT, cause="image-library-first", references=references)
