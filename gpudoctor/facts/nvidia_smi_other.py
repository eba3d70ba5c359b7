"""Small outputs of nvidia-smi: `--version`, `conf-compute -q`, `dmon`, and `mig -lgip`."""

import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.facts.nvidia_smi_device import MOST_DEVICES, Draft
from gpudoctor.facts.nvidia_smi_values import cuda_version, version
from gpudoctor.facts.raw import decimal
from gpudoctor.knowledge.nvidia_smi_texts import NO, YES
from gpudoctor.patterns import pattern

_LONGEST_LINE = 512

# --version ----------------------------------------------------------------------------------------------------------

_VERSION_MARK = "NVIDIA-SMI version"
_VERSIONS = {"driver version": "driver_version", "kmd version": "driver_version", "nvml version": "nvml_version"}
_CUDA_VERSIONS = ("cuda version", "cuda umd version")


def is_version(text: str) -> bool:
    """Whether a text is that of `--version`."""
    return _VERSION_MARK in text


def from_version(text: str) -> dict[str, Any]:
    """The `data` of an answer; what is deprecated says where to look instead."""
    data: dict[str, Any] = {}
    for label, value in _labelled(text):
        key = _VERSIONS.get(label)
        found = version(value)
        if key and found is not None:
            data.setdefault(key, found)
        elif label in _CUDA_VERSIONS and (number := cuda_version(value)) is not None:
            data.setdefault("cuda_driver_version", number)
    return data


# conf-compute -------------------------------------------------------------------------------------------------------

_CC_FLAGS = {
    "cc state": "conf_compute.cc_feature",
    "cc status": "conf_compute.cc_feature",
    "cc gpus ready state": "conf_compute.gpus_ready",
    "confidential compute gpus ready state": "conf_compute.gpus_ready",
}
_CC_WORDS = {"multi-gpu mode": "conf_compute.multi_gpu_mode", "cc environment": "conf_compute.environment"}
_ENVIRONMENTS = {"production": "prod", "simulation": "sim"}
_CC_MARK = pattern(
    r"^[ \t]{0,16}(?:CC (?:State|status|Environment)|CC GPUs Ready State|Confidential Compute GPUs Ready)", re.MULTILINE
)


def is_conf_compute(text: str) -> bool:
    """Whether a text is about confidential computing."""
    return _CC_MARK.search(text) is not None


def from_conf_compute(text: str) -> dict[str, Any]:
    """The `data` of an answer: what concerns the whole node."""
    fields: dict[str, Any] = {}
    for label, value in _labelled(text):
        word = value.lower().replace("-", " ")
        if label in _CC_FLAGS and word in (YES | NO):
            fields.setdefault(_CC_FLAGS[label], word in YES)
        elif label in _CC_WORDS and word:
            fields.setdefault(_CC_WORDS[label], _ENVIRONMENTS.get(word, word.replace(" ", "_")))
    return {"system": {"fields": fields}} if fields else {}


# dmon ---------------------------------------------------------------------------------------------------------------

_DMON_MARK = pattern(r"^#[ \t]{0,8}(?:Date[ \t]{1,16}Time[ \t]{1,16})?gpu[ \t]{1,16}", re.MULTILINE)
_DMON_UNITS = {"W": "W", "C": "C", "%": "%", "MHz": "MHz", "MB": "MiB"}
_DMON = {
    "pwr": "power.draw_milliwatts",
    "gtemp": "temperature.gpu_celsius",
    "mtemp": "temperature.memory_celsius",
    "sm": "utilization.gpu_percent",
    "mem": "utilization.memory_percent",
    "enc": "utilization.encoder_percent",
    "dec": "utilization.decoder_percent",
    "mclk": "clocks.memory_mhz",
    "pclk": "clocks.graphics_mhz",
    "fb": "memory.used_bytes",
    "bar1": "bar1.used_bytes",
}


def is_dmon(text: str) -> bool:
    """Whether a text is that of `dmon`."""
    return _DMON_MARK.search(text) is not None


def from_dmon(text: str) -> dict[str, Any]:
    """The `data` of an answer: the last sample of each GPU. A dash stands for what failed as well as for what is not supported."""
    names: list[str] = []
    units: list[str] = []
    samples: dict[int, dict[str, tuple[str, str]]] = {}
    for line in _lines(text):
        if line.startswith("#"):
            names, units = (line[1:].split(), units) if _DMON_MARK.match(line) else (names, line[1:].split())
            continue
        cells = line.split()
        if len(cells) == len(names) == len(units):
            row = dict(zip(names, zip(cells, units, strict=True), strict=True))
            index = decimal(row.get("gpu", ("", ""))[0])
            if index is not None and index < MOST_DEVICES:
                samples[index] = row
    devices = [_sampled(index, row) for index, row in samples.items()]
    return {"devices": devices} if devices else {}


def _sampled(index: int, row: dict[str, tuple[str, str]]) -> dict[str, Any]:
    device = Draft(index=index)
    for name, (cell, unit) in row.items():
        if name in _DMON and unit in _DMON_UNITS:
            device.take(_DMON[name], f"{cell} {_DMON_UNITS[unit]}", name)
    return device.finished(all_reasons=False)


# mig -lgip ----------------------------------------------------------------------------------------------------------

_PROFILES_MARK = "GPU instance profiles:"
_PROFILE = pattern(
    r"\| +(\d{1,4}) +MIG (\d{1,2})(g\.\S{1,24}) +(\d{1,4}) +(\d{1,4})/(\d{1,4}) +(\d{1,6}\.\d{1,4}) .*\|"
)


def is_profiles(text: str) -> bool:
    """Whether a text is that of `mig -lgip`."""
    return _PROFILES_MARK in text


def from_profiles(text: str) -> dict[str, Any]:
    """The `data` of an answer: the instances that each GPU could have; memory is printed in GiB."""
    devices: dict[int, dict[str, Any]] = {}
    for line in _lines(text):
        if (found := _PROFILE.fullmatch(line.strip())) and int(found[1]) < MOST_DEVICES:
            device = devices.setdefault(int(found[1]), {"index": int(found[1]), "mig_profiles": []})
            device["mig_profiles"].append(
                {
                    "id": int(found[4]),
                    "name": f"{found[2]}{found[3]}",
                    "slices": int(found[2]),
                    "memory_bytes": round(float(found[7]) * (1 << 30)),
                    "instances": int(found[6]),
                    "free": int(found[5]),
                }
            )
    return {"devices": list(devices.values())} if devices else {}


# Lines --------------------------------------------------------------------------------------------------------------


def _lines(text: str) -> Iterator[str]:
    return (line.rstrip() for line in text.split("\n") if len(line) < _LONGEST_LINE)


def _labelled(text: str) -> Iterator[tuple[str, str]]:
    """Label, in small letters, and value of each line."""
    for line in _lines(text):
        label, colon, value = line.partition(":")
        if colon:
            yield label.strip().lower(), value.strip()
