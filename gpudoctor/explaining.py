"""What `gpudoctor explain` says of codes: NVML's return codes, CUDA's and DCGM's errors, Xids and SXids, by number or name."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from gpudoctor.verdicts import Remedy

MOST_DIGITS = 9
"""No code has as many."""
WIDTH = 100
"""How wide a text for people is; commands are never broken."""


class Candidate(Struct, frozen=True):
    """What can be behind a code: the link of the chain, in words, and the checks that look for it."""

    link: str
    say: str
    checks: tuple[str, ...]


class Explanation(Struct, frozen=True):
    """A code: what it is called, what it means, where its cause is looked for, and the next steps from the safest up.

    `suspects` are what can be behind it, the lowest link first.
    """

    id: str
    name: str
    meaning: str
    checks: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    source: str
    suspects: tuple[Candidate, ...] = ()

    @property
    def details(self) -> tuple[str, ...]:
        """What there is to say of this kind of code between its meaning and its suspects, a line each."""
        return ()

    @property
    def text(self) -> str:
        """As a person reads it."""
        from textwrap import wrap

        lines = [*wrap(f"{self.id}   {self.name}", WIDTH, break_long_words=False), "", *wrap(self.meaning, WIDTH), ""]
        if self.details:
            lines += [*self.details, ""]
        if self.suspects:
            lines += ["what can be behind it, the lowest link first; what the checks find on the lowest decides:", ""]
        for suspect in self.suspects:
            lines += wrap(suspect.say, WIDTH, initial_indent=f"  {suspect.link:<14} ", subsequent_indent=" " * 17)
            checks = ", ".join(suspect.checks)
            lines += wrap(checks, WIDTH, initial_indent=" " * 17, subsequent_indent=" " * 17, break_on_hyphens=False)
        if self.suspects:
            lines.append("")
        elif self.checks:
            lines += [*wrap(f"looked into by: {', '.join(self.checks)}", WIDTH, break_on_hyphens=False), ""]
        for number, remedy in enumerate(self.remedies, start=1):
            interrupts = "" if remedy.interrupts == "nothing" else f" (interrupts {remedy.interrupts})"
            lines += wrap(f"{number}. {remedy.say}{interrupts}", WIDTH, subsequent_indent="   ")
            lines += [f"   $ {command}" for command in remedy.run]
        return "\n".join([*lines, "", *wrap(f"source: {self.source}", WIDTH, break_on_hyphens=False)]) + "\n"


def explain_code(word: str) -> Explanation | str | None:
    """The explanation of a code such as `xid:79`; when it is unknown, what there is, in words; None for anything but a code."""
    kind, colon, code = word.partition(":")
    explainer = _EXPLAINERS.get(kind.lower())
    return explainer(code.strip()) if colon and explainer is not None else None


def _nvml(code: str) -> Explanation | str:
    from gpudoctor.knowledge import nvml_codes, nvml_errors
    from gpudoctor.knowledge.nvml_remedies import FOR_CODE, OF_RULES

    number = _number(code, nvml_errors.NAMES, "NVML_ERROR_")
    if number not in nvml_errors.NAMES:
        return f"NVML has no return code {code!r}; it has {', '.join(map(str, sorted(nvml_errors.NAMES)))}"
    return Explanation(
        id=f"nvml:{number}",
        name=nvml_errors.NAMES[number],
        meaning=nvml_codes.WORDS[number],
        checks=nvml_codes.LOOKED_INTO_BY.get(number, ()),
        remedies=FOR_CODE.get(number) or OF_RULES.get(number, ()),
        source=nvml_errors.SOURCE,
    )


def _cuda(code: str) -> Explanation | str:
    from gpudoctor.knowledge import cuda_error_names as names
    from gpudoctor.knowledge.cuda_errors import STEPS, error_of

    number = _number(code, names.DRIVER, "CUDA_ERROR_", "CUDA_")
    if number is None:
        number = _number(code, names.RUNTIME, "cudaError", "cuda")
    if number is None or (number not in names.DRIVER and number not in names.RUNTIME):
        known = sorted({*names.DRIVER, *names.RUNTIME})
        near = ", ".join(str(one) for one in sorted(known, key=lambda one: abs(one - (number or 0)))[:3])
        return (
            f"CUDA has no error {code!r} ({names.SOURCE}); it has {len(known)}, the nearest are {near}; 999 is unknown"
        )
    error = error_of(number)
    called = dict.fromkeys(name for name in (names.DRIVER.get(number), names.RUNTIME.get(number)) if name)
    return Explanation(
        id=f"cuda:{number}",
        name=", ".join(called),
        meaning=error.means,
        checks=tuple(dict.fromkeys(check for suspect in error.suspects for check in suspect.checks)),
        remedies=STEPS if error.suspects else (),
        source=names.SOURCE,
        suspects=tuple(Candidate(suspect.link.value, suspect.say, suspect.checks) for suspect in error.suspects),
    )


def _number(code: str, names: Mapping[int, str], *prefixes: str) -> int | None:
    """A code's number, given as such or as a name, with or without what all names begin with."""
    by_name = {name.lower(): number for number, name in names.items()}
    for begin in ("", *prefixes):
        if (found := by_name.get(f"{begin}{code}".lower())) is not None:
            return found
    return int(code) if code.isascii() and code.isdecimal() and len(code.lstrip("0")) <= MOST_DIGITS else None


def _xid(code: str) -> Explanation | str:
    from gpudoctor.explaining_xids import explain_xid

    return explain_xid(code)


def _sxid(code: str) -> Explanation | str:
    from gpudoctor.explaining_xids import explain_sxid

    return explain_sxid(code)


def _dcgm(code: str) -> Explanation | str:
    from gpudoctor.knowledge.dcgm_errors import BY_SEVERITY, MEANS, SOURCE, TRIAGE, all_errors

    errors = all_errors()
    number = _number(code, {one: f"DCGM_FR_{error.name}" for one, error in errors.items()}, "DCGM_FR_")
    if number not in errors:
        return f"DCGM has no error {code!r}; it has 0 to {max(errors)} ({SOURCE})"
    error = errors[number]
    words = error.name.replace("_", " ").lower()
    return Explanation(
        id=f"dcgm:{number}",
        name=f"DCGM_FR_{error.name}",
        meaning=f"DCGM's health watch or diagnosis found: {words} ({error.category.replace('_', ' ')}). Its severity is "
        f"{error.severity}: {MEANS[error.severity]}.",
        checks=(error.check,) if error.check else (),
        remedies=BY_SEVERITY.get(error.severity, BY_SEVERITY[TRIAGE]) if number else (),
        source=SOURCE,
    )


_EXPLAINERS: dict[str, Callable[[str], Explanation | str]] = {
    "nvml": _nvml,
    "cuda": _cuda,
    "xid": _xid,
    "sxid": _sxid,
    "dcgm": _dcgm,
}
