"""What nvidia-smi printed, translated into the NVML answers it was printed from.

Which of its outputs a text is, its content tells; the translator of each is imported when there is something for it to read.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from gpudoctor.facts.raw import Answer
from gpudoctor.knowledge import nvidia_smi_texts as said
from gpudoctor.knowledge import nvml_errors
from gpudoctor.patterns import pattern

PROGRAM = "nvidia-smi"

Data: TypeAlias = dict[str, Any]

_COMMANDS = frozenset(
    "topo nvlink dmon pmon mig vgpu conf-compute c2c drain clocks stats encodersessions fbcsessions prm gpm "
    "boost-slider power-smoothing power-profiles".split()
)
# A prompt ends in one of a few characters; `+` is what `set -x` writes. Elements of XML hold names of programs too.
_TYPED = pattern(
    r"[ \t]{0,16}(?:[^<\n]{0,200}[$#>%+][ \t]{0,4})?(?:(?:sudo|time)[ \t]{1,4})?(?:[^<\s]{0,200}[/\\])?nvidia-smi(?:\.exe)?"
    r"(?:[ \t]{1,16}([^|;>&<\n]*)(?:[|;>&][^\n]*)?)?[ \t\r]*"
)
_MOST_PARTS = 64
_LONGEST_COMMAND = 16 * 1024
_CHOOSES = pattern(r"(?:^| )(?:-i|--id)\b")

_NO_DEVICES = pattern(rf"^[ \t]{{0,16}}{said.NO_DEVICES}\.?[ \t]{{0,16}}$", re.MULTILINE)
_NO_HANDLE = pattern(
    rf"^{said.NO_HANDLE}(?:GPU|gpu) {{0,2}}(?:(\d{{1,3}}): )?"
    r"(?:([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]): )?(.{0,200})",
    re.MULTILINE,
)
_PENDING_MIG = pattern(
    r"MIG mode is in pending (enable|disable) state for GPU ((?:[0-9A-Fa-f]{4,8}:)[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
)
"""What `-mig` says where a reset has yet to bring a change into force (NVIDIA/gpu-operator#1845)."""
_INFOROM = pattern(
    rf"^{said.INFOROM_CORRUPTED}([0-9A-Fa-f]{{4,8}}:[0-9A-Fa-f]{{2}}:[0-9A-Fa-f]{{2}}\.[0-7])", re.MULTILINE
)
_MOST_MESSAGES = 256


def answer_from(arguments: str | None, text: str, exit_status: int | None = None) -> Answer | None:
    """The answers behind what `nvidia-smi ARGUMENTS` printed, stdout and stderr together; None where it tells nothing of NVML.

    `arguments` is None where nobody knows them. Further commands in the text, each under its own command line, count as well; the
    exit status is the first one's, and speaks where there is no text.
    """
    answers: list[tuple[int, Answer]] = []
    for number, (own, part) in enumerate(_parts(arguments, text.replace("\r\n", "\n"))):
        found = _translated(own, part, exit_status if number == 0 else None)
        # Whatever it was that failed before anything else was said: it comes first.
        unnamed = own is None and all(not _reports_gpus(answer) for answer in found)
        answers += [(0 if unnamed else _rank(answer), answer) for answer in found]
    return _together(answers)


def answer_from_query(text: str, command: str) -> Answer | None:
    """The answers behind the output of a command line that begins with the program."""
    return answer_from(command.partition(" ")[2], text)


def together(answers: Iterable[Answer]) -> Answer | None:
    """One answer of several on one node; None of none. `-q` counts before `-L` and links, these before the table."""
    return _together([(_rank(answer), answer) for answer in answers])


def _together(answers: list[tuple[int, Answer]]) -> Answer | None:
    ranked = [answer for _, answer in sorted(answers, key=lambda ranked: ranked[0])]
    if len(ranked) < 2:
        return ranked[0] if ranked else None
    from gpudoctor.facts.nvidia_smi_merge import merged

    return merged(ranked)


def _reports_gpus(answer: Answer) -> bool:
    """Whether it is more than a complaint."""
    return any("error" not in device for device in answer.data.get("devices", ()))


# Which commands a text holds ------------------------------------------------------------------------------------------


def _parts(arguments: str | None, text: str) -> Iterator[tuple[str | None, str]]:
    """Arguments and output of each command. A bug report prints command lines with a path, a terminal behind a prompt."""
    own, start, searched = arguments, 0, 0
    for _ in range(_MOST_PARTS):
        found = _command_line(text, searched)
        if found is None:
            break
        begin, end, words = found
        if words is not None:
            yield own, text[start:begin]
            own, start = words, end
        searched = end
    yield own, text[start:]


def _command_line(text: str, searched: int) -> tuple[int, int, str | None] | None:
    """The next line with the program's name: where it begins and ends, and the arguments if it is a command line."""
    place = text.find(PROGRAM, searched)
    if place < 0:
        return None
    begin = text.rfind("\n", searched, place) + 1 or searched
    end = text.find("\n", place)
    end = len(text) if end < 0 else end
    typed = _TYPED.fullmatch(text, begin, end) if end - begin <= _LONGEST_COMMAND else None
    arguments = (typed[1] or "").strip() if typed else ""
    first = arguments.partition(" ")[0]
    known = not first or first.startswith("-") or first in _COMMANDS
    return begin, end, arguments if typed and known else None


# What one command printed ---------------------------------------------------------------------------------------------


def _translated(arguments: str | None, text: str, exit_status: int | None) -> list[Answer]:
    """The answers in the output of one command, the one that tells most first."""
    if not text.strip():
        data = _from_exit(arguments, exit_status)
        return [Answer(data=data, via=_via(arguments, ""))] if data else []
    failed = _init_failure(text)
    if failed:
        return [Answer(data=failed, via=_via(arguments, ""))]
    found = [
        Answer(data={"init": nvml_errors.SUCCESS, **data}, via=_via(arguments, usual))
        for usual, data in _reports(arguments, text)
        if data
    ]
    via = found[0].via if found else _via(arguments, "")
    found += [
        Answer(data={"init": nvml_errors.SUCCESS, "devices": devices}, via=via)
        for devices in _complaints(text)
        if devices
    ]
    if not found and _NO_DEVICES.search(text):
        return [Answer(data={"init": nvml_errors.SUCCESS, "count": 0, "said": said.NO_DEVICES}, via=via)]
    if exit_status == said.CORRUPTED_INFOROM and found:
        _mark_inforom(found[0].data)
    return found


def _init_failure(text: str) -> Data | None:
    """What it prints where NVML did not start."""
    for phrase, code in said.INIT_FAILED:
        if phrase in text:
            return {"init": code, "said": _line_with(phrase, text)}
    if said.INIT_REFUSED in text:
        from gpudoctor.facts.nvidia_smi_values import error_code, error_within

        line = _line_with(said.INIT_REFUSED, text)
        reason = line.partition(said.INIT_REFUSED)[2]
        refused = error_code(reason)
        return {"init": error_within(reason, nvml_errors.UNKNOWN) if refused is None else refused, "said": line}
    return None


def _line_with(phrase: str, text: str) -> str:
    place = text.find(phrase)
    end = text.find("\n", place)
    return text[text.rfind("\n", 0, place) + 1 : len(text) if end < 0 else end].strip()[:400]


def _reports(arguments: str | None, text: str) -> Iterator[tuple[str, Data]]:
    """What each translator makes of it, with the arguments that usually print such a text.

    Of what was asked for everything nothing else is expected; a file of unknown origin may hold outputs one after the other.
    """
    every_gpu = not _CHOOSES.search(arguments or "")
    if "<nvidia_smi_log" in text:
        from gpudoctor.facts.nvidia_smi_xml import from_xml

        yield "-q -x", from_xml(text)
        if arguments is not None:
            return
    from gpudoctor.facts.nvidia_smi_query import from_query, is_query

    if is_query(text):
        yield "-q", from_query(text)
        if arguments is not None:
            return
    yield from _lists(text, every_gpu=every_gpu)
    yield from _others(text)
    from gpudoctor.facts.nvidia_smi_topology import from_p2p, p2p_kind

    kind = p2p_kind(arguments)
    if kind is not None:
        yield "topo -p2p", from_p2p(kind, text)
    from gpudoctor.facts.nvidia_smi_csv import columns_of, from_csv, query_of

    columns, lines = columns_of(arguments, text)
    if columns:
        yield query_of(columns), from_csv(columns, lines, every_gpu=every_gpu)


def _lists(text: str, *, every_gpu: bool) -> Iterator[tuple[str, Data]]:
    from gpudoctor.facts.nvidia_smi_lists import from_list, is_list
    from gpudoctor.facts.nvidia_smi_table import from_table, is_table

    if is_table(text):
        yield "", from_table(text, every_gpu=every_gpu)
    if is_list(text):
        data = from_list(text, every_gpu=every_gpu)
        yield "-L" if "count" in data else "nvlink", data


def _others(text: str) -> Iterator[tuple[str, Data]]:
    from gpudoctor.facts import nvidia_smi_other as other
    from gpudoctor.facts.nvidia_smi_topology import from_topology, is_topology

    kinds: tuple[tuple[str, Callable[[str], bool], Callable[[str], Data]], ...] = (
        ("topo -m", is_topology, from_topology),
        ("--version", other.is_version, other.from_version),
        ("conf-compute -q", other.is_conf_compute, other.from_conf_compute),
        ("mig -lgip", other.is_profiles, other.from_profiles),
        ("dmon", other.is_dmon, other.from_dmon),
    )
    for usual, is_one, translate in kinds:
        if is_one(text):
            yield usual, translate(text)


def _complaints(text: str) -> Iterator[list[Data]]:
    """Devices without a handle, those whose infoROM is corrupted, and those whose change of MIG mode waits."""
    from gpudoctor.facts.nvidia_smi_device import failure_of

    handles = []
    for found in islice(_NO_HANDLE.finditer(text), _MOST_MESSAGES):
        identity: Data = {"index": int(found[1])} if found[1] else {}
        identity |= {"pci_bus_id": found[2]} if found[2] else {}
        handles.append({**identity, "error": failure_of(found[0].strip(), found[3])})
    yield handles
    yield [
        {"pci_bus_id": found[1], "fields": {"inforom.valid": False}}
        for found in islice(_INFOROM.finditer(text), _MOST_MESSAGES)
    ]
    yield [
        {"pci_bus_id": found[2], "fields": {"mig.current": found[1] == "disable", "mig.pending": found[1] == "enable"}}
        for found in islice(_PENDING_MIG.finditer(text), _MOST_MESSAGES)
    ]


def _mark_inforom(data: Data) -> None:
    """The exit status does not say whose infoROM is corrupted: of one GPU that is clear."""
    devices = data.get("devices", ())
    if len(devices) == 1:
        devices[0].setdefault("fields", {}).setdefault("inforom.valid", False)


def _from_exit(arguments: str | None, exit_status: int | None) -> Data | None:
    """What an exit status alone tells."""
    if not exit_status:
        return None
    words = f"exit status {exit_status}" + (f": {said.EXITS[exit_status]}" if exit_status in said.EXITS else "")
    if exit_status in said.INIT_EXITS:
        return {"init": said.INIT_EXITS[exit_status], "said": words}
    if exit_status in said.DEVICE_EXITS:
        from gpudoctor.facts.nvidia_smi_device import failure

        return {"init": nvml_errors.SUCCESS, "devices": [{"error": failure(said.DEVICE_EXITS[exit_status], words)}]}
    if exit_status == said.NOTHING_FOUND and not _CHOOSES.search(arguments or ""):
        return {"init": nvml_errors.SUCCESS, "count": 0, "said": words}
    return None


def _via(arguments: str | None, usual: str) -> str:
    return f"{PROGRAM} {usual if arguments is None else arguments}".rstrip()


def _rank(answer: Answer) -> int:
    """Which of several answers counts first, by what was asked, of one that was put together by what was asked first."""
    words = answer.via.partition(";")[0].split()[1:]
    first = words[0] if words else ""
    if first in ("-q", "--query", "-x", "-a"):
        # Units are Tesla S-class boxes, of which there are none any more.
        return 7 if {"-u", "--unit"} & {*words} else 1 if {"-d", "--display"} & {*words} else 0
    if first.startswith("--query-"):
        return 2
    return {"-L": 3, "--list-gpus": 3, "nvlink": 4, "": 5, "topo": 6}.get(first, 7)
