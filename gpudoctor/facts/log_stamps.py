"""The time and the bare message of one line of a kernel log, in whichever form it was printed.

Forms: dmesg, also with -T, -x, -r, -d, -e and --time-format iso (util-linux, sys-utils/dmesg.c); records of /dev/kmsg
(Documentation/ABI/testing/dev-kmsg); journalctl's short, short-precise, short-iso, short-full, short-unix and short-monotonic
(systemd, src/shared/logs-show.c); syslog's files with the time of RFC 3164 or RFC 3339, in which some distributions keep the kernel's own
time after `kernel:`. A container's log wraps any of these: in lines of CRI's format (kubernetes, kuberuntime/logs/logs.go) or in JSON
(moby, daemon/logger/jsonfilelog/jsonlog).
"""

import msgspec

from gpudoctor.patterns import pattern

# What dmesg puts in brackets: seconds since boot (with -d also since the line before, with -e only those), or a date; then, on
# kernels with CONFIG_PRINTK_CALLER, the task or processor.
_BRACKETS = (
    r"\[\s*((?:[+-]?\d+(?:\.\d+)?)(?:\s*<[^>\]]*>)?|[^\]\[/]{0,24}\d\d?:\d\d[^\]\[/]{0,16}?)\s*\](?:\[\s*[TC]\d+\])?\s*"
)
_STAMP = pattern(rf"\s*(?:<\d+>)?{_BRACKETS}")
_DECODED = pattern(r"\s*(?:kern|user|daemon|auth|authpriv|syslog|local\d)\s*:[a-z]+\s*: ")
_RECORD = pattern(r"\s*\d{1,3},\d+,(\d+),[^;\s]{1,40};")
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|[+-]\d\d:?\d\d)\b)?"
# A month is spelled in the reader's language by journalctl (strftime's %b): `Nov`, `nov.`, `11月`.
_OLD = r"(?:[^\W\d]{2,6}\.?|\d{1,2}[月월]) {1,2}\d{1,2}(?: \d{4})? \d\d:\d\d:\d\d(?:\.\d+)?"
_FULL = r"[^\W\d]{2,4}\.? \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? [A-Z+-][\w+:-]{1,6}"
_UNIX = r"\d{9,10}\.\d{3,9}(?= \S+ kernel)"
_DATE = pattern(rf"\s*(?:<\d+>)?(?:1 )?({_ISO}|{_OLD}|{_FULL}|{_UNIX})\s+")
# Who says it: the kernel, before it the host where that is printed; of others only the host is taken away.
_SPEAKER = pattern(r"(?:(?:[\w.-]+ )?kernel(?:\[\d+\])?(?:: ?| - - - )|[\w.-]+ (?=[\w@.-]+\[\d+\]: ))")
CRI = pattern(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) std(?:out|err) ([FP])\S* ")


def split(line: str) -> tuple[str, str]:
    """The time as written, empty where there is none, and the bare message.

    A record of /dev/kmsg has its time as dmesg would print it. A kernel's own time within a container's line is the time of the message.
    """
    if (stamp := _STAMP.match(line)) is not None:
        return stamp[1], _said(line[stamp.end() :])
    start = line.lstrip()[:1]
    if start == "{":
        return _of_json(line)
    if start.isdigit():
        if (cri := CRI.match(line)) is not None:
            time, message = split(line[cri.end() :])
            return time or cri[1], message
        if (record := _RECORD.match(line)) is not None:
            seconds, rest = divmod(int(record[1]), 1_000_000)
            return f"{seconds}.{rest:06d}", line[record.end() :].strip()
    if (decoded := _DECODED.match(line)) is not None:
        return split(line[decoded.end() :])
    if (date := _DATE.match(line)) is not None:
        return date[1], _said(line[date.end() :])
    return "", _said(line.strip())


def stamped(line: str) -> bool:
    """Whether a line has a time, and so begins a message."""
    return split(line)[0] != ""


def _said(text: str) -> str:
    """A message without who says it, and without the kernel's own time behind that."""
    speaker = _SPEAKER.match(text)
    if speaker is None:
        return text.strip()
    text = text[speaker.end() :]
    stamp = _STAMP.match(text)
    return text[stamp.end() if stamp is not None else 0 :].strip()


def _of_json(line: str) -> tuple[str, str]:
    """A line of docker's json-file, or of `journalctl -o json`, whose time is in microseconds since 1970."""
    said = decoded(line)
    if isinstance(text := said.get("log"), str):
        time, message = split(text)
        return time or str(said.get("time", "")), message
    if isinstance(text := said.get("MESSAGE"), str):
        microseconds = str(said.get("__REALTIME_TIMESTAMP", ""))
        return f"{microseconds[:-6]}.{microseconds[-6:]}" if microseconds.isdecimal() else "", text.strip()
    return "", line.strip()


def decoded(line: str) -> dict[str, object]:
    """The object in JSON that a line is, empty where it is none."""
    try:
        said = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
