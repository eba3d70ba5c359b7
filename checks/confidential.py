"""Sharing by confidential computing: are GPUs in that mode declared ready, and is the mode what it should be?"""

from collections.abc import Iterator

from gpudoctor.chain import Link
from gpudoctor.facts.confidential import FEATURE, DevTools
from gpudoctor.facts.desk import Reading
from gpudoctor.facts.kubernetes_api import KubernetesApi
from gpudoctor.facts.nvml import Nvml
from gpudoctor.facts.nvml_device import FieldError
from gpudoctor.facts.pci import PciGpu, PciGpus
from gpudoctor.knowledge import nvml_errors
from gpudoctor.registry import check
from gpudoctor.verdicts import (
    NODE,
    Breaks,
    Evidence,
    Fail,
    NotApplicable,
    Pass,
    Unknown,
    Unread,
    Verdict,
    Verdicts,
    Warn,
    Why,
)

READY, MODE = "sharing.cc-ready", "sharing.cc-mode"
GPUS_READY = "conf_compute.gpus_ready"
SEVERAL, ENVIRONMENT = "conf_compute.multi_gpu_mode", "conf_compute.environment"
PROTECTED = ("protected_pcie", "nvle")
PERSISTENCE = "persistence_mode"
LABEL, STATE = "nvidia.com/cc.mode", "nvidia.com/cc.mode.state"
SET = ("on", "off", "devtools", "ppcie", "failed")
"""What the manager says when it is done."""
OFF, UNTOLD = "confidential computing is off", "this driver tells nothing of confidential computing"


@check(
    READY,
    link=Link.SHARING,
    needs={Link.DRIVER_CUDA},
    title="GPUs of confidential computing are declared ready",
)
def cc_ready(gpus: PciGpus, nvml: Nvml) -> Verdicts:
    """With confidential computing on, the GPUs take no work until somebody attested them and declared them ready, after each boot: until
    then every CUDA program ends with 802, system not yet initialized, and nvidia-smi looks healthy.

    Read from NVML's state of confidential computing, which is one for all GPUs of the node. Easily confused with a fabric manager that
    did not run, which gives 802 as well, on boards with NVSwitches (fabric.manager-running).
    """
    on = _on(nvml)
    if on is not True:
        yield NotApplicable(NODE, OFF if on is False else UNTOLD)
        return
    answering = [gpu for gpu in gpus if (device := nvml.device(gpu.address)) is not None and device.error is None]
    for gpu in answering:
        yield _ready(gpu, nvml)
    if not answering:
        yield NotApplicable(NODE, "NVML answers for no GPU")


def _ready(gpu: PciGpu, nvml: Nvml) -> Verdict:
    ready, shown = nvml.system.get(GPUS_READY), _shown(nvml, GPUS_READY)
    if ready is True:
        return Pass(gpu, "confidential computing is on, and the GPUs are ready", shown)
    if ready is not False:
        said = "confidential computing is on; whether the GPUs are ready was not answered"
        return Unknown(gpu, Why.NOT_ANSWERED, said, shown)
    from gpudoctor.knowledge.vgpu_remedies import NVTRUST, make_ready

    said = "confidential computing is on, and the GPUs were not declared ready: CUDA answers 802"
    return Fail(gpu, said, shown, make_ready(READY), Breaks.SUBJECT, cause="not-ready", references=(NVTRUST,))


@check(
    MODE,
    link=Link.SHARING,
    advisory=True,
    title="The mode of confidential computing protects what runs here",
)
def cc_mode(nvml: Reading[Nvml], tools: DevTools, api: Reading[KubernetesApi]) -> Verdicts:
    """A simulated environment, and the mode devtools, look like confidential computing and protect nothing; and with persistence off, the
    driver gives the GPUs' secure session up when the last program ends, so that the next one waits for a new one, or finds the GPUs not
    ready.

    Read from NVML, and on a host from the labels nvidia.com/cc.mode and nvidia.com/cc.mode.state: the mode that is wanted, and what the GPU
    Operator's manager made of it. That the mode is off is no fault. The ready state is sharing.cc-ready.
    """
    found = [*_labelled(api), *_open(tools), *(_modes(nvml) if isinstance(nvml, Nvml) else ())]
    yield from found
    if found:
        return
    if isinstance(nvml, Unread):
        # Where NVML may not be asked, another link says why.
        asked = nvml.why is not Why.WITHHELD
        yield nvml.about(NODE) if asked else NotApplicable(NODE, "NVML was not asked")
    elif _on(nvml) is True:
        yield _protects(nvml, tools)
    else:
        off = _on(nvml) is False
        yield NotApplicable(NODE, OFF if off else UNTOLD)


def _protects(nvml: Nvml, tools: DevTools) -> Verdict:
    """Behind a protected PCIe there is neither a simulated environment nor the mode for debugging."""
    shown = _shown(nvml, ENVIRONMENT)
    if nvml.system.get(SEVERAL) not in PROTECTED:
        if nvml.system.get(ENVIRONMENT) != "prod":
            return Unknown(NODE, Why.NOT_ANSWERED, "it is on; whether it is simulated was not answered", shown)
        if isinstance(tools.on, Unread):
            return tools.on.about(NODE)
    return Pass(NODE, f"on, for {_words(nvml)}", (*shown, *tools.shown))


def _on(nvml: Nvml) -> bool | None:
    """Whether the GPUs are in a mode of confidential computing, that of several GPUs behind a protected PCIe among them."""
    feature, several = nvml.system.get(FEATURE), nvml.system.get(SEVERAL)
    if feature is True or several in PROTECTED:
        return True
    return False if feature is False else None


def _shown(nvml: Nvml, name: str) -> tuple[Evidence, ...]:
    return tuple(_field(nvml, one) for one in (FEATURE, SEVERAL, name) if one in nvml.system)


def _field(nvml: Nvml, name: str) -> Evidence:
    value = nvml.system[name]
    return Evidence(
        f"{nvml.via} (node)", f"{name}: {nvml_errors.describe(value.error) if isinstance(value, FieldError) else value}"
    )


def _words(nvml: Nvml) -> str:
    several = nvml.system.get(SEVERAL)
    return {
        "protected_pcie": "several GPUs behind a protected PCIe",
        "nvle": "several GPUs with encrypted NVLinks",
    }.get(str(several), "each GPU by itself")


def _modes(nvml: Nvml) -> Iterator[Verdict]:
    from gpudoctor.knowledge.vgpu_remedies import NVTRUST, keep_session, real_mode

    if _on(nvml) is not True:
        return
    if nvml.system.get(ENVIRONMENT) == "sim":
        said = "confidential computing is simulated: nothing that runs here is protected"
        evidence = _shown(nvml, ENVIRONMENT)
        yield Warn(NODE, said, evidence, real_mode(MODE), cause="simulated", references=(NVTRUST,))
    off = [one for one in nvml.devices if one.fields.get(PERSISTENCE) is False]
    if off:
        many = "1 GPU" if len(off) == 1 else f"{len(off)} GPUs"
        said = f"confidential computing is on and persistence is off on {many}: the secure session ends with the last program"
        evidence = (off[0].evidence(PERSISTENCE), *_shown(nvml, ENVIRONMENT))
        yield Warn(NODE, said, evidence, keep_session(MODE), cause="persistence", references=(NVTRUST,))


def _open(tools: DevTools) -> Iterator[Verdict]:
    if tools.on is True:
        from gpudoctor.knowledge.vgpu_remedies import NVTRUST, real_mode

        said = (
            "confidential computing is in DevTools mode: debuggers see inside, and nothing that runs here is protected"
        )
        yield Warn(NODE, said, tools.shown, real_mode(MODE), cause="devtools", references=(NVTRUST,))


def _labelled(api: Reading[KubernetesApi]) -> Iterator[Verdict]:
    """What the manager made of the mode that the node's label asks for."""
    if isinstance(api, Unread) or isinstance(api.node, Unread):
        return
    labels = api.node.labels
    wanted, state = labels.get(LABEL, ""), labels.get(STATE, "")
    if wanted and state != wanted and state in SET:
        from gpudoctor.knowledge.vgpu_remedies import set_mode_again

        doubt = "" if state == "failed" else ", unless it is still at it"
        said = f"the label {LABEL} asks for {wanted}, and what the manager made of it is {state}{doubt}"
        yield Warn(NODE, said, api.labels(LABEL, STATE), set_mode_again(MODE), cause="label")
