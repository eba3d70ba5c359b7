"""The names of a recording's machines and people: found where its texts tell them, then looked for everywhere."""

import re
from collections.abc import Callable, Iterable

from gpudoctor.patterns import pattern
from gpudoctor.sources.private_rules import (
    IDENTITIES,
    MACHINES,
    PEOPLE,
    SECRETS,
    TOKENS,
    WORKLOADS,
    Rule,
    Rules,
    lines_of,
)
from gpudoctor.sources.private_words import is_peculiar, is_public_domain, learnable, tells
from gpudoctor.sources.public_pods import is_peculiar_pod

HOST_FILES = ("root/proc/sys/kernel/hostname", "root/etc/hostname")
# syslog(3) lines as journalctl prints them.
_SYSLOG_HOST = pattern(
    r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ][\d:.,+Z-]{1,32}) ([A-Za-z0-9](?:[\w.-]{0,252}\w)?) "
    r"[\w./@()-]{1,128}(?:\[\d+\])?: ",
    re.MULTILINE,
)
_UNIT_OF_PATH = pattern(r"[^\s/\"'=]{1,400}\.(?:device|mount|automount|swap)\b")
TELLING = Rules(
    *(
        rule
        for rules in (TOKENS, SECRETS, IDENTITIES, PEOPLE, MACHINES, WORKLOADS)
        for rule in rules
        if rule.learned or {"host", "user", "pod"} & set(rule.kinds)
    )
)
_WHOLE = "-_"


class Names:
    """What names somebody in a recording, and of which kind each name is."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._spelled: dict[str, str] = {}
        self._form: re.Pattern[str] | None = None
        self.hosts: frozenset[str] = frozenset()
        """Every spelling of those of machines, once they are settled."""

    def learn_from(self, chunks: Iterable[str]) -> None:
        """Learn the names that texts tell."""
        for chunk in chunks:
            lower = chunk.lower()
            for host in _SYSLOG_HOST.findall(chunk):
                self.learn(host, "host")
            for place in TELLING.called_for(lower):
                rule = TELLING.rules[place]
                for begin, end in lines_of(rule, chunk, lower):
                    self._learn_by(rule, chunk[begin:end])

    def _learn_by(self, rule: Rule, text: str) -> None:
        for match in rule.form.finditer(text):
            for kind, value in zip(rule.kinds, match.groups(), strict=True):
                peculiar = is_peculiar_pod if kind == "pod" else is_peculiar
                if value and (rule.learned or peculiar(value)) and kind != "secret":
                    self.learn(value, kind)

    def learn(self, name: str, kind: str) -> None:
        """Learn a name. Of a machine's full name, its parts are names too."""
        if kind == "serial":
            if len(name) > 5 and any(character.isdecimal() for character in name):
                self._kinds.setdefault(name, kind)
            return
        if kind in ("host", "domain") and is_public_domain(name):
            return
        first, _, rest = name.partition(".")
        names = {name: kind}
        if kind == "host" and rest and not first.isdecimal():
            names |= {first: kind}
            names |= {rest: "domain"} if "." in rest or is_peculiar(rest) else {}
        for part, its in names.items():
            if (learnable(part) or (its == "pod" and is_peculiar_pod(part))) and not re.fullmatch(
                r"[\d.:a-fA-F]+", part
            ):
                self._kinds.setdefault(part, its)

    def settle(self) -> None:
        """Make ready to look for what was learned, in every spelling."""
        self._spelled = {}
        for name in self._kinds:
            for spelling in (name, name.lower(), name.upper(), *_escaped(name)):
                self._spelled.setdefault(spelling, name)
        self.hosts = frozenset(spelling for spelling, name in self._spelled.items() if self._kinds[name] == "host")
        longest_first = sorted(self._spelled, key=len, reverse=True)
        self._form = re.compile(rf"(?:{'|'.join(map(re.escape, longest_first))})(?![\w-])") if longest_first else None

    def without(self, text: str, hide: Callable[[str, str], str]) -> str:
        """The text without the names that stand in it as words of their own, or as parts of units named after paths."""
        if self._form is None:
            return text
        form = self._form

        def replace(match: "re.Match[str]") -> str:
            before = match.string[match.start() - 1 : match.start()]
            if before and (before in _WHOLE or before.isalnum()):
                return match[0]
            name = self._spelled[match[0]]
            return hide(match[0] if match[0].lower() == name.lower() else name, self._kinds[name])

        def unit(match: "re.Match[str]") -> str:
            return "-".join(form.sub(replace, part) for part in match[0].split("-"))

        if any(end in text for end in (".device", ".mount", ".automount", ".swap")):
            text = _UNIT_OF_PATH.sub(unit, text)
        return form.sub(replace, text)


def is_name(name: str) -> bool:
    """Whether what stands where a name is told is a private one."""
    return (
        tells(name) and not is_public_domain(name) and not re.fullmatch(r"[\d.:]+|0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}", name)
    )


def _escaped(name: str) -> tuple[str, ...]:
    """systemd.unit(5) escapes dashes, LVM doubles them."""
    return tuple(name.replace("-", dash) for dash in (r"\x2d", "--", r"\x2d\x2d")) if "-" in name else ()
