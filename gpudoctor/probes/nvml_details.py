"""Asks about one device field by field and says each answer; part of the NVML worker: standard library only."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from gpudoctor.probes.nvml_questions import ASK_OLDER, LAST_QUESTIONS, QUESTIONS, Question
from gpudoctor.probes.nvml_readers import field_value, flag, number, word
from gpudoctor.probes.nvml_session import (
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    Gpu,
    Lost,
    Refused,
    Surprise,
    understood,
)

GPU, MODULE, MEMORY = 0, 1, 2
"""NVML_POWER_SCOPE_* of nvml.h; other field ids take 0."""

FIELD_VALUES = "nvmlDeviceGetFieldValues"

ACTIVE_LINKS = "nvlink.active_links"
"""Counted from the list of links."""

_BY_SCOPE = {
    GPU: """
        row_remap.corrected_inactive 301
        row_remap.uncorrected_inactive 302
        recovery_action 230
        reset_required 226
        drain_and_reset_recommended 227
        temperature.memory_celsius 82
        temperature.shutdown_tlimit_celsius 193
        temperature.slowdown_tlimit_celsius 194
        temperature.max_memory_tlimit_celsius 195
        temperature.max_gpu_tlimit_celsius 196
        power.average_milliwatts 185
        power.instant_milliwatts 186
        clocks_event.sw_power_cap_nanoseconds 74
        clocks_event.sync_boost_nanoseconds 76
        clocks_event.sw_thermal_slowdown_nanoseconds 269
        clocks_event.hw_thermal_slowdown_nanoseconds 270
        clocks_event.hw_power_brake_nanoseconds 271
        pcie.replay_rollovers 95
        pcie.l0_to_recovery 169
        pcie.errors.correctable 173
        pcie.errors.naks_received 174
        pcie.errors.receiver 175
        pcie.errors.bad_tlp 176
        pcie.errors.naks_sent 177
        pcie.errors.bad_dllp 178
        pcie.errors.non_fatal 179
        pcie.errors.fatal 180
        pcie.errors.unsupported_request 181
        pcie.errors.lcrc 182
        pcie.errors.lane 183
        c2c.links 170
    """,
    MODULE: """
        power.module.average_milliwatts 185
        power.module.instant_milliwatts 186
        power.module.enforced_limit_milliwatts 190
        power.module.limit_milliwatts 192
        power.module.default_limit_milliwatts 189
        power.module.min_limit_milliwatts 187
        power.module.max_limit_milliwatts 188
    """,
    MEMORY: "power.memory.average_milliwatts 185",
}

FIELD_IDS: dict[int, dict[str, int]] = {
    scope: {name: int(field_id) for name, field_id in (row.split() for row in rows.strip().splitlines())}
    for scope, rows in _BY_SCOPE.items()
}
"""Field ids (nvml.h, NVML_FI_DEV_*) by the name of the field, by the scope they are asked for."""

_READERS: dict[str, Callable[[Any], Any]] = {
    "recovery_action": word("recovery_action"),
    "reset_required": flag,
    "drain_and_reset_recommended": flag,
}


def field_names() -> list[str]:
    """Every field that is asked, in the order of asking."""
    asked = [name for question in QUESTIONS for name in question.fields]
    by_id = [name for names in FIELD_IDS.values() for name in names]
    return [*asked, *by_id, *(name for question in LAST_QUESTIONS for name in question.fields), ACTIVE_LINKS]


def ask_details(gpu: Gpu) -> None:
    """Ask every field and say what came back. Raises Lost when the GPU has fallen off the bus."""
    gpu.asked_at = time.monotonic()
    for question in QUESTIONS:
        _say(gpu, answers_to(gpu, question))
    for scope, names in FIELD_IDS.items():
        _say(gpu, by_id(gpu, scope, names))
    for question in LAST_QUESTIONS:
        _say(gpu, answers_to(gpu, question))


def _say(gpu: Gpu, answers: dict[str, Any]) -> None:
    gpu.fields.update(answers)
    if answers:
        gpu.session.say(fields=answers, of=gpu.address)
    if {"error": GPU_IS_LOST} in answers.values():
        raise Lost


def answers_to(gpu: Gpu, question: Question) -> dict[str, Any]:
    """A question's fields with their values, or with what the oldest way to ask was refused with.

    A field whose answer the binding could not make sense of is left out and noted: nobody knows what NVML said.
    """
    refused = FUNCTION_NOT_FOUND
    for way in question.ways:
        try:
            values = way(gpu)
        except Refused as refusal:
            refused = refusal.code
            if refused not in ASK_OLDER:
                break
        except Surprise as surprise:
            gpu.session.note(str(surprise))
            return {}
        else:
            return dict(zip(question.fields, values if isinstance(values, list) else [values], strict=True))
    return {name: {"error": refused} for name in question.fields}


def by_id(gpu: Gpu, scope: int, names: dict[str, int]) -> dict[str, Any]:
    """Fields that are asked for by id, all in one call; one by one when NVML refuses the whole."""
    try:
        return _batch(gpu, scope, names)
    except Surprise as surprise:
        gpu.session.note(str(surprise))
        return {}
    except Refused as refused:
        if refused.code in (FUNCTION_NOT_FOUND, GPU_IS_LOST) or len(names) == 1:
            return {name: {"error": refused.code} for name in names}
    answers: dict[str, Any] = {}
    for name, field_id in names.items():
        answers.update(by_id(gpu, scope, {name: field_id}))
        if answers.get(name) == {"error": GPU_IS_LOST}:
            break
    return answers


def _batch(gpu: Gpu, scope: int, names: dict[str, int]) -> dict[str, Any]:
    entries = gpu.ask(FIELD_VALUES, [(field_id, scope) for field_id in names.values()], read=list)
    answers = {name: _value(gpu, name, entry) for name, entry in zip(names, entries, strict=True)}
    return {name: value for name, value in answers.items() if value is not None}


def _value(gpu: Gpu, name: str, entry: Any) -> Any:
    """A field's value, its refusal, or None when there is no telling."""
    try:
        value = understood(FIELD_VALUES, field_value, entry)
        return None if value is None else understood(FIELD_VALUES, _READERS.get(name, number), value)
    except Refused as refused:
        return {"error": refused.code}
    except Surprise as surprise:
        gpu.session.note(f"{name}: {surprise}")
        return None


def values_by_id(gpu: Gpu, wanted: Sequence[tuple[int, int]]) -> list[int | None]:
    """Numbers by field id and scope; None for what was refused. Raises Lost."""
    names = [str(at) for at in range(len(wanted))]
    entries = gpu.get(FIELD_VALUES, list(wanted), read=list)
    if entries is None:
        return [None] * len(wanted)
    values = [_value(gpu, name, entry) for name, entry in zip(names, entries, strict=True)]
    if {"error": GPU_IS_LOST} in values:
        raise Lost
    return [value if isinstance(value, int) else None for value in values]
