"""What a check may say: verdicts about subjects, each with its evidence and, when something is wrong, a remedy."""

from collections.abc import Iterator
from enum import Enum
from typing import Protocol, TypeAlias

from msgspec import Struct


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
