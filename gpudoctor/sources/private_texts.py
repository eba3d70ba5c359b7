"""Texts without what is private in them: rule by rule, the most telling first, a stretch of lines at a time."""

import enum
import json
import re
from collections.abc import Iterator
from functools import partial
from urllib.parse import unquote

from gpudoctor.facts.slurm_hostlist import lists
from gpudoctor.patterns import pattern
from gpudoctor.sources.private_addresses import IN_NAME, without_hardware_addresses, without_ipv4, without_ipv6
from gpudoctor.sources.private_keys import without_keys
from gpudoctor.sources.private_names import Names, is_name
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
from gpudoctor.sources.private_variables import Variables
from gpudoctor.sources.private_words import (
    CAPITAL_TOP_LEVEL,
    COUNTRIES,
    FILE_ENDS,
    PUBLIC_IMAGES,
    TOP_LEVEL,
    URL_WORDS,
    is_public_domain,
)
from gpudoctor.sources.pseudonyms import MARK, Pseudonyms
from gpudoctor.sources.public_pods import private_parts

STRETCH = 16384
"""So many characters are looked through at once for the words that rules need."""

_LINES = pattern(rf"(?s).{{1,{STRETCH}}}(?:\n|\Z)|[^\n]+\n?")
_URL = pattern(r"(?<![\w+.-])([A-Za-z][A-Za-z0-9+.-]{0,24})://([^\s\"'<>|`\\]+)")
_LOCAL_SCHEMES = frozenset("file unix fd containerd cri-o docker npipe dir oci".split())
_AUTHORITY = pattern(r"(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^/?#]*))?@)?(?P<host>\[[^\]]*\]|[^:/?#,;)]*)")
_WORD_OF_URL = pattern(rf"(?:{MARK}|[^/?&=#:,;()])+")
_EMAIL = pattern(
    r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+"
    r"(?!service|slice|scope|socket|mount|target|timer|device|path|swap)[A-Za-z]{2,24}(?![\w-])"
)
_DOMAIN = pattern(
    rf"(?<![\w@-])(?<!\w\.)(?:(?:{MARK}|[A-Za-z0-9][A-Za-z0-9-]{{0,62}})\.){{1,30}}[A-Za-z]{{2,9}}(?![\w-])"
)
_NETWORK = pattern(r"[\d.]{7,15}/\d{1,2}")
"""A network, 127.0.0.0/8, is spelt like an image of a registry without a name."""
_IMAGE = pattern(
    r"(?<![\w./:@-])((?:[A-Za-z0-9-]{1,63}\.)+[a-z]{2,24}(?::\d{1,5})?|localhost:\d{1,5}|[a-z0-9][a-z0-9-]{1,62}:\d{2,5})"
    r"((?:/[a-z0-9][\w.-]{0,126}){1,8})((?::\w[\w.-]{0,126})?(?:@sha256:[0-9a-f]{64})?)(?![\w/])"
)
_RUN_IMAGE = pattern(
    r"\b(?:docker|podman|nerdctl|crictl|ctr|enroot|singularity|apptainer|[Ii]mage)\b[^\n]{0,400}?[ \"'=]"
    r"([a-z0-9][\w.-]{0,126}(?:/[a-z0-9][\w.-]{0,126}){1,8}(?::\w[\w.-]{0,126})?)(?![\w/=])"
)
_ESCAPE = pattern(r"\\x([0-9a-f]{2})")


class Form(enum.Enum):
    """What NAME=value means in a text."""

    LOG = enum.auto()
    """The environment of a process, where the name is spelled as one of its variables."""
    DEFINITIONS = enum.auto()
    """What a file is there to say."""
    PARAMETERS = enum.auto()
    """A parameter of the kernel: the text is its command line."""


class Texts:
    """The texts of one recording, with the names it tells of."""

    def __init__(self, pseudonyms: Pseudonyms, names: Names) -> None:
        self.hide = pseudonyms.hide
        self._reveal = pseudonyms.reveal
        self._names = names
        self.variables = Variables(self.hide)
        self._of_kind = {
            "host": self._host,
            "hosts": self._hosts,
            "user": lambda name: self.hide(name, "user") if is_name(name) else name,
            "domain": lambda name: self.hide(name, "domain") if is_name(name) else name,
            "pod": self._pod,
            "unit": lambda name: self.hide(_ESCAPE.sub(lambda code: chr(int(code[1], 16)), name), "vm"),
            "quoted": self.quoted,
        }

    def text(self, text: str, form: Form = Form.LOG) -> str:
        """A text without what is private."""
        text = without_keys(text, self.hide)
        return "".join(self._reveal(self._stretch(stretch, form)) for stretch in stretches(text))

    def path(self, path: str) -> str:
        """A path, or a part of one, without the names in it."""
        return self._reveal(self._names_in(self._by_rules(path, _IN_PATHS)))

    def part(self, text: str) -> str:
        """A part of a text, still with marks."""
        return self._stretch(text, Form.DEFINITIONS)

    def _stretch(self, text: str, form: Form) -> str:
        text = self._by_rules(text, _TOKENS)
        if "://" in text:
            text = _URL.sub(self._url, text)
        text = self._by_rules(text, _SECRETS)
        if form is Form.PARAMETERS:
            text = self.variables.parameters(text)
        text = self.variables.without_parameters(text)
        if "argc=" in text:
            text = self.variables.without_audited(text)
        if form is Form.LOG and "=" in text:
            text = self.variables.without_assigned(text)
        return self._names_in(self._by_rules(text, _NAMING))

    def _names_in(self, text: str) -> str:
        if "/" in text:
            text = _IMAGE.sub(self._image, text)
            text = _RUN_IMAGE.sub(self._run_image, text)
        if "@" in text:
            text = _EMAIL.sub(lambda match: self.hide(match[0], "email"), text)
        if "." in text:
            text = _DOMAIN.sub(self._domain, text)
        text = self._names.without(text, self.hide)
        text = without_hardware_addresses(text, self.hide)
        if "x" in text:
            text = IN_NAME.sub(lambda match: match[0][:3] + self.hide(match[1], "mac"), text)
        if "." in text:
            text = without_ipv4(text, self.hide)
        return without_ipv6(text, self.hide) if "::" in text or text.count(":") > 6 else text

    # rules ----------------------------------------------------------------------------------------------------------

    def _by_rules(self, text: str, rules: Rules) -> str:
        lower = text.lower()
        for place in rules.called_for(lower):
            new = self._by_rule(text, rules.rules[place], lines_of(rules.rules[place], text, lower))
            if new != text:
                return self._by_each(new, rules.rules[place + 1 :])
        return text

    def _by_each(self, text: str, rules: tuple[Rule, ...]) -> str:
        """By the rules that follow one which changed the text."""
        lower = text.lower()
        for rule in rules:
            if lines := lines_of(rule, text, lower):
                new = self._by_rule(text, rule, lines)
                if new != text:
                    text, lower = new, new.lower()
        return text

    def _by_rule(self, text: str, rule: Rule, lines: list[tuple[int, int]]) -> str:
        parts, done = [], 0
        for begin, end in lines:
            parts += [text[done:begin], rule.form.sub(partial(self._groups, rule), text[begin:end])]
            done = end
        return "".join((*parts, text[done:]))

    def _groups(self, rule: Rule, match: "re.Match[str]") -> str:
        """What matched, with each group as one of its kind."""
        parts, done = [], match.start()
        for number, kind in enumerate(rule.kinds, start=1):
            begin, end = match.span(number)
            if begin >= 0:
                parts += [match.string[done:begin], self.named(match[number], kind)]
                done = end
        return "".join((*parts, match.string[done : match.end()]))

    def named(self, value: str, kind: str) -> str:
        """A value that stands where one of a kind is told, still with marks."""
        special = self._of_kind.get(kind)
        return special(value) if special is not None else self.hide(value, kind)

    def quoted(self, value: str) -> str:
        """A secret in quotes: as what its escapes stand for."""
        try:
            return self.hide(str(json.loads(f'"{value}"')), "secret")
        except ValueError:
            return self.hide(value, "secret")

    def _host(self, name: str) -> str:
        if not is_name(name):
            return name
        first, _, rest = name.partition(".")
        if not rest:
            return self.hide(name, "host")
        return f"{self.hide(first, 'host') if is_name(first) else first}.{self.hide(rest, 'domain')}"

    def _hosts(self, listed: str) -> str:
        """A list of machines with ranges: of those in it the ones that are known, so that they are in the list afterwards, too."""
        known = sorted(name for name in self._names.hosts if lists(listed, name))
        return ",".join(self.hide(name, "host") for name in known) or self.hide(listed, "host")

    def _pod(self, name: str) -> str:
        """A name of a pod, a namespace or a container."""
        parts = private_parts(name, self._names.hosts)
        whole = parts == ((0, len(name)),)
        return name if not parts or (whole and not is_name(name)) else self.hide(name, "pod")

    def _domain(self, match: "re.Match[str]") -> str:
        name = match[0]
        labels = name.split(".")
        end = labels[-1].lower()
        if is_public_domain(name) or (end not in TOP_LEVEL and (end not in COUNTRIES or len(labels) < 3)):
            return name
        if labels[-1] != end and (labels[-1].upper() != labels[-1] or end not in CAPITAL_TOP_LEVEL):
            return name
        slash = match.string[max(0, match.start() - 2) : match.start()]
        if len(labels) == 2:
            is_file = slash[-1:] == "/" and slash != "//" and end in FILE_ENDS
            return name if is_file else self.hide(name, "domain")
        return self._host(name)

    # images ---------------------------------------------------------------------------------------------------------

    def _image(self, match: "re.Match[str]") -> str:
        registry, path, tag = match.groups()
        end = registry.partition(":")[0].rpartition(".")[2]
        is_registry = ":" in registry or tag or (end in TOP_LEVEL and not is_public_domain(registry))
        return self._private_image(match[0]) if is_registry and "." in registry + "." and path else match[0]

    def _private_image(self, name: str) -> str:
        if name.startswith(PUBLIC_IMAGES):
            return name
        if _NETWORK.fullmatch(name):
            return name
        return self.hide(name, "image")

    def _run_image(self, match: "re.Match[str]") -> str:
        begin = match.start(1) - match.start()
        return match[0][:begin] + self._private_image(match[1])

    # addresses of resources -----------------------------------------------------------------------------------------

    def _url(self, match: "re.Match[str]") -> str:
        """User, password, host, and what a private host is asked for, each by itself."""
        scheme, rest = match.groups()
        place = rest[: -len(rest.partition("/")[2])] if "/" in rest else rest
        where = _AUTHORITY.match(place if "@" in place else rest)
        if where is None or scheme.lower() in _LOCAL_SCHEMES:
            return match[0]
        said = f"{scheme}://"
        if where["user"] is not None:
            said += self.named(unquote(where["user"]), "user") if where["user"] else ""
            said += f":{self.hide(unquote(where['password']), 'secret')}" if where["password"] else ""
            said += "@"
        host = where["host"]
        path = rest[where.end() :]
        named = any(character.isalpha() for character in host) and not host.startswith("[")
        if not named or not is_name(host.rstrip(".")):
            return f"{said}{host}{self._asked(path) if _is_public_address(host) else path}"
        return f"{said}{self._host(host)}{self._asked(path)}"

    def _asked(self, path: str) -> str:
        """The path and the query of a resource: words that could name something."""
        port = re.match(r":\d+", path)
        begin = port.end() if port is not None else 0

        def replace(word: "re.Match[str]") -> str:
            is_name_of = word.string[word.end() : word.end() + 1] == "="
            kept = len(word[0]) < 4 or word[0].lower() in URL_WORDS or word[0].isdecimal() or is_name_of
            return word[0] if kept else self.hide(unquote(word[0]), "value")

        return path[:begin] + _WORD_OF_URL.sub(replace, path[begin:])


def _is_public_address(host: str) -> bool:
    marked = without_ipv4(without_ipv6(host.strip("[]"), lambda *_: ""), lambda *_: "")
    return marked == "" != host


def stretches(text: str) -> Iterator[str]:
    """A text in stretches of whole lines."""
    return (match[0] for match in _LINES.finditer(text)) if len(text) > STRETCH else iter((text,))


_TOKENS, _SECRETS = Rules(*TOKENS), Rules(*SECRETS)
_NAMING = Rules(*IDENTITIES, *WORKLOADS, *PEOPLE, *MACHINES)
_IN_PATHS = Rules(*(rule for rule in _NAMING.rules if rule.in_paths))
