"""What `gpudoctor explain` says of codes: NVML's return codes, by number or name."""

from collections.abc import Callable

from msgspec import Struct

from gpudoctor.verdicts import Remedy

MOST_DIGITS = 9
"""No code has as many."""
WIDTH = 100
"""How wide a text for people is; commands are never broken."""


class Explanation(Struct, frozen=True):
    """A code: what it is called, what it means, where its cause is looked for, and the next steps from the safest up."""

    id: str
    name: str
    meaning: str
    checks: tuple[str, ...]
    remedies: tuple[Remedy, ...]
    source: str

    @property
    def text(self) -> str:
        """As a person reads it."""
        from textwrap import wrap

        lines = [f"{self.id}   {self.name}", "", *wrap(self.meaning, WIDTH), ""]
        if self.checks:
            lines += [f"looked into by: {', '.join(self.checks)}", ""]
        for number, remedy in enumerate(self.remedies, start=1):
            interrupts = "" if remedy.interrupts == "nothing" else f" (interrupts {remedy.interrupts})"
            lines += wrap(f"{number}. {remedy.say}{interrupts}", WIDTH, subsequent_indent="   ")
            lines += [f"   $ {command}" for command in remedy.run]
        return "\n".join([*lines, "", f"source: {self.source}"]) + "\n"


def explain_code(word: str) -> Explanation | str | None:
    """The explanation of `nvml:N`; what there is instead, in words, when the code is unknown; None for anything but a code."""
    kind, colon, code = word.partition(":")
    explainer = _EXPLAINERS.get(kind.lower())
    return explainer(code.strip()) if colon and explainer is not None else None


def _nvml(code: str) -> Explanation | str:
    from gpudoctor.knowledge import nvml_codes, nvml_errors
    from gpudoctor.knowledge.nvml_remedies import FOR_CODE, OF_RULES

    by_name = {name: number for number, name in nvml_errors.NAMES.items()}
    number = by_name.get(code.upper(), by_name.get(f"NVML_ERROR_{code.upper()}"))
    if number is None and code.isascii() and code.isdecimal() and len(code.lstrip("0")) <= MOST_DIGITS:
        number = int(code)
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


_EXPLAINERS: dict[str, Callable[[str], Explanation | str]] = {"nvml": _nvml}
