"""What a check may say: verdicts about subjects, each with its evidence and, when something is wrong, a remedy."""

import zlib
from collections.abc import Iterator
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

MOST_SHOWN = 1000
"""How many characters of what was read somewhere a report quotes. What is longer was not written to be read."""
MOST_SAID = 600
"""How many characters a sentence about it has, with whatever names of a node, or of bulletins, stand in it."""
MOST_NAMED = 400
"""How many characters the name of a thing has: those of a namespace, a pod and a container take up to 381."""


_ROOM = 40
"""What the words on the rest of a text that was cut take at most."""


def cut(text: str, most: int) -> str:
    """A text as far as anybody reads it, and how much more there was. What was cut once stays as it is."""
    kept = most - _ROOM
    return text if len(text) <= most else f"{text[:kept]} ... ({len(text) - kept:,} more characters)"


def cut_fields(record: Struct, most: int, *names: str) -> None:
    """Cut those texts of a record that is being made, None being no text."""
    for name in names:
        text = getattr(record, name)
        if text is not None and len(text) > most:
            msgspec.structs.force_setattr(record, name, cut(text, most))


class Status(str, Enum):
    """How a finding or a check ended; `blocked` and `skip` are not opinions about health."""

    FAIL = "fail"
    UNKNOWN = "unknown"
    WARN = "warn"
    BLOCKED = "blocked"
    PASS = "pass"
    SKIP = "skip"


class Why(str, Enum):
    """Why something is not known."""

    NOT_RECORDED = "not-recorded"
    NO_PERMISSION = "no-permission"
    TIMED_OUT = "timed-out"
    SLOW_INIT = "slow-init"
    UNREADABLE = "unreadable"
    NOT_ANSWERED = "not-answered"
    WITHHELD = "withheld"
    CRASHED = "crashed"


class Breaks(str, Enum):
    """How far a fail reaches: the whole node, its subject and what stands on it, or nothing beyond itself."""

    NODE = "node"
    SUBJECT = "subject"
    NOTHING = "nothing"


class Action(str, Enum):
    """The closed set of things a remedy can ask for, so that automation can decide on it."""

    NONE = "none"
    CHANGE_CONFIG = "change-config"
    RESTART_SERVICE = "restart-service"
    LOAD_MODULE = "load-module"
    INSTALL_PACKAGE = "install-package"
    RESET_GPU = "reset-gpu"
    REBOOT = "reboot"
    INSPECT_HARDWARE = "inspect-hardware"
    CHANGE_WORKLOAD = "change-workload"
    CONTACT_VENDOR = "contact-vendor"


class SubjectKind(str, Enum):
    """What a verdict can be about."""

    NODE = "node"
    GPU = "gpu"
    MIG = "mig"
    NIC = "nic"
    NVSWITCH = "nvswitch"
    CONTAINER = "container"
    POD = "pod"
    SERVICE = "service"
    FILE = "file"


class Subject(Struct, frozen=True):
    """The thing a verdict is about; `key` identifies it on its node (a GPU's is its sysfs address in lower case)."""

    kind: SubjectKind
    key: str
    name: str = ""
    uuid: str | None = None
    minor: int | None = None
    stands_on: "tuple[Subject, ...]" = ()

    def __post_init__(self) -> None:
        if len(self.key) > MOST_NAMED:  # two of them stay two
            check_sum = zlib.crc32(self.key.encode("utf-8", "surrogatepass"))
            msgspec.structs.force_setattr(self, "key", f"{self.key[: MOST_NAMED - 9]}~{check_sum:08x}")
        if len(self.name) > MOST_NAMED:
            cut_fields(self, MOST_NAMED, "name")

    @property
    def id(self) -> str:
        """`KIND:KEY`, the part of a finding's id after the `@`."""
        return f"{self.kind.value}:{self.key}"

    @property
    def subject(self) -> "Subject":
        """Itself, so that a subject and a fact about one can be used alike."""
        return self


NODE = Subject(SubjectKind.NODE, "node")
"""The node itself. Its key is constant: reports of two nodes must be comparable."""


class AboutSubject(Protocol):
    """Anything that can name the subject it describes."""

    @property
    def subject(self) -> Subject:
        """The subject."""
        ...


class Evidence(Struct, frozen=True):
    """Where something was read (a path, a command, an API call, a log) and the raw words found there."""

    where: str
    shows: str
    at: str | None = None

    def __post_init__(self) -> None:
        if len(self.where) > MOST_SAID or len(self.shows) > MOST_SHOWN:
            cut_fields(self, MOST_SAID, "where")
            cut_fields(self, MOST_SHOWN, "shows")


class Remedy(Struct, frozen=True):
    """One next step: what kind, what to do in words, the commands, what it interrupts, and how to see that it worked.

    `then` marks a step that comes after the one before it; without it, it stands instead of that one.
    """

    action: Action
    say: str
    run: tuple[str, ...] = ()
    interrupts: str = "nothing"
    confirm: str = ""
    then: bool = False

    def __post_init__(self) -> None:
        cut_fields(self, MOST_SHOWN, "say", "confirm")
        for command in self.run:
            if len(command) > MOST_SHOWN:  # no shell reads the rest of what was cut
                msgspec.structs.force_setattr(self, "run", tuple(cut(one, MOST_SHOWN) for one in self.run))
                break


Cited: TypeAlias = tuple[Evidence, ...]


class _Verdict(Struct, frozen=True):
    about: AboutSubject

    @property
    def subject(self) -> Subject:
        """The subject this verdict is about."""
        return self.about.subject


class Pass(_Verdict, frozen=True):
    """The subject was looked at and is as it should be; the evidence says what was read."""

    summary: str
    evidence: Cited

    def __post_init__(self) -> None:
        _demand(bool(self.evidence), "a Pass needs evidence", self.summary)


class Warn(_Verdict, frozen=True):
    """Something deserves attention but breaks nothing now. `own_fault` as in `Fail`."""

    summary: str
    evidence: Cited
    remedies: tuple[Remedy, ...]
    cause: str = ""
    of: tuple[Subject, ...] = ()
    references: tuple[str, ...] = ()
    own_fault: bool = False

    def __post_init__(self) -> None:
        _demand(bool(self.evidence), "a Warn needs evidence", self.summary)
        _demand(bool(self.remedies), "a Warn needs a remedy", self.summary)


class Fail(_Verdict, frozen=True):
    """Something is broken. `cause` groups findings: equal causes of one check are one root cause.

    `of` names the members of a population that a verdict about the node speaks of. With `own_fault` it is no consequence of what the
    check names in `explained_by`: a node with the numbers of another driver is wrong whether or not a third one is missing.
    """

    summary: str
    evidence: Cited
    remedies: tuple[Remedy, ...]
    breaks: Breaks
    cause: str = ""
    of: tuple[Subject, ...] = ()
    references: tuple[str, ...] = ()
    own_fault: bool = False

    def __post_init__(self) -> None:
        _demand(bool(self.evidence), "a Fail needs evidence", self.summary)
        _demand(bool(self.remedies), "a Fail needs a remedy", self.summary)


class Unknown(_Verdict, frozen=True):
    """Could not tell, and why; `would_need` is the privilege or recording that would show it."""

    why: Why
    summary: str
    evidence: Cited = ()
    would_need: str = ""


class NotApplicable(_Verdict, frozen=True):
    """The question makes no sense for this subject."""

    reason: str
    evidence: Cited = ()


Verdict: TypeAlias = Pass | Warn | Fail | Unknown | NotApplicable
Verdicts: TypeAlias = Iterator[Verdict]


class Unread(Struct, frozen=True):
    """A raw answer or fact that is not known. It takes the place of the value."""

    why: Why
    where: str
    detail: str
    would_need: str = ""

    def about(self, about: AboutSubject) -> Unknown:
        """The verdict of a check that needed this to judge a subject."""
        return Unknown(about, self.why, f"{self.where}: {self.detail}", would_need=self.would_need)


def _demand(condition: bool, message: str, summary: str) -> None:
    if not condition:
        raise ValueError(f"{message}: {summary!r}")
