"""Environments, command lines and parameters of the kernel: the values that have nothing to do with GPUs."""

import re
from collections.abc import Callable

from gpudoctor.patterns import pattern
from gpudoctor.sources.private_names import is_name
from gpudoctor.sources.private_rules import UUID
from gpudoctor.sources.private_words import (
    ENGINES,
    FIELD,
    GPU_VARIABLE,
    HOST_VARIABLE,
    KEPT_PARAMETER,
    PERSON_VARIABLE,
    PLACE_OPTION,
)
from gpudoctor.sources.pseudonyms import MARK

LEAST_LETTERS = 3
"""A shorter value tells nobody anything."""

_ASSIGNED = pattern(r"(?<![\w.-])([A-Z][A-Z0-9_]{2,64})=(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'\0]+)")
_QUOTED = pattern(r"([\"'])([A-Z][A-Z0-9_]{2,64})=([^\"'\n]+)\1")
_PARAMETERS = pattern(r"(?:(?:Kernel c|C)ommand line: |Unknown kernel command line parameters \")(.*)")
_END = pattern(r"(?<=\s)---?(?=\s)")
_WORD = pattern(r"(?:[^\s\"]|\"[^\"\n]*\")+")
_AUDITED = pattern(r"\bargc=\d+((?: a\d+(?:\[\d+\])?=(?:\"[^\"\n]*\"|[^\s\"]+))+)")
_ARGUMENT = pattern(r"=(\"[^\"\n]*\"|[^\s\"]+)")
_IDENTITY = pattern(rf"(?<![\w-]){UUID}|(?<=luks-){UUID}")
_NUMBER = pattern(r"[\d.,:+-]+")


class Variables:
    """Names with values."""

    def __init__(self, hide: Callable[[str, str], str]) -> None:
        self._hide = hide

    # the kernel's command line --------------------------------------------------------------------------------------

    def without_parameters(self, text: str) -> str:
        """A log without the values of the kernel's parameters."""
        if "ommand line" not in text:
            return text
        return _PARAMETERS.sub(lambda said: said[0][: said.start(1) - said.start()] + self.parameters(said[1]), text)

    def parameters(self, text: str) -> str:
        """The kernel's command line. Behind `--` stand the arguments of init."""
        dashes = _END.search(text)
        end = dashes.end() if dashes is not None else len(text)
        named = _WORD.sub(lambda word: self._parameter(word[0]), text[:end])
        return named + _WORD.sub(lambda word: self._hide(word[0], "value"), text[end:])

    def _parameter(self, word: str) -> str:
        name, equals, value = word.partition("=")
        quote = '"' if value.endswith('"') and value.count('"') % 2 else ""
        value = value.removesuffix(quote) if quote else value
        if not equals or len(value) < LEAST_LETTERS or KEPT_PARAMETER.match(name) or value.isdecimal():
            return word
        if _IDENTITY.search(value):
            return f"{name}={_IDENTITY.sub(lambda found: self._hide(found[0], 'serial'), value)}{quote}"
        return f"{name}={self._hide(value, 'value')}{quote}"

    # environments ---------------------------------------------------------------------------------------------------

    def without_assigned(self, text: str) -> str:
        """A text without the values of environment variables."""
        return _ASSIGNED.sub(self._assigned, _QUOTED.sub(self._quoted, text))

    def _quoted(self, match: "re.Match[str]") -> str:
        quote, name, value = match.groups()
        return f"{quote}{name}={self.value(name, value)}{quote}"

    def _assigned(self, match: "re.Match[str]") -> str:
        name, value = match.groups()
        bare = value.strip("\"'")
        begin, end = value.partition(bare)[::2] if bare else (value, "")
        return f"{name}={begin}{self.value(name, bare)}{end}"

    def value(self, name: str, value: str) -> str:
        """The value of a variable; of an address of a resource the parts are replaced already."""
        kept = GPU_VARIABLE.match(name) or FIELD.match(name) or "://" in value or re.fullmatch(MARK, value)
        if kept or len(value) < LEAST_LETTERS or value.isdecimal():
            return value
        kind = "user" if PERSON_VARIABLE.match(name) else "host" if HOST_VARIABLE.match(name) else "value"
        return self._hide(value, kind) if kind == "value" or is_name(value) else value

    def environment(self, text: str, rest: Callable[[str], str]) -> str:
        """/proc/PID/environ: variables between NULs (proc_pid_environ(5)). `rest` looks through values that stay."""
        return "\0".join(self._variable(variable, rest) for variable in text.split("\0"))

    def _variable(self, variable: str, rest: Callable[[str], str]) -> str:
        name, equals, value = variable.partition("=")
        if not equals:
            return self._hide(variable, "value") if len(variable) >= LEAST_LETTERS else variable
        looked_through = rest(f"{name}={value}")
        kept, _, left = looked_through.partition("=")
        return f"{kept}={self.value(name, left)}"

    # command lines --------------------------------------------------------------------------------------------------

    def command_line(self, text: str, rest: Callable[[str], str]) -> str:
        """/proc/PID/cmdline: the program and the names of options stay (proc_pid_cmdline(5)); of engines' daemons where they look, too."""
        program, *arguments = text.split("\0")
        daemon = program.rpartition("/")[2] in ENGINES
        hidden = []
        for before, argument in zip(("", *arguments), arguments, strict=False):
            told = daemon and (PLACE_OPTION.match(argument) or (PLACE_OPTION.fullmatch(before) and "=" not in before))
            hidden.append(rest(argument) if told else self._argument(argument))
        return "\0".join((rest(program), *hidden))

    def _argument(self, argument: str) -> str:
        name, equals, value = argument.partition("=")
        if not argument.startswith("-"):
            name, equals, value = "", "", argument
        elif not equals:
            return argument
        kept = len(value) < LEAST_LETTERS or _NUMBER.fullmatch(value) or GPU_VARIABLE.match(name.lstrip("-"))
        return f"{name}{equals}{value if kept else self._hide(value, 'value')}"

    def without_audited(self, text: str) -> str:
        """A text without the arguments of programs that the kernel's audit tells (kernel/auditsc.c, audit_log_execve_info)."""

        def hidden(match: "re.Match[str]") -> str:
            arguments = _ARGUMENT.sub(lambda argument: f"={self._hide(argument[1], 'value')}", match[1])
            return match[0][: match.start(1) - match.start()] + arguments

        return _AUDITED.sub(hidden, text)
