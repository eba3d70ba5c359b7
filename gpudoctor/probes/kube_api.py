"""Asks the API server for the objects of one node, through kubectl and the kubeconfig named for it: only `get`, nothing is written.

kubectl's cache and preferences are turned off, KUBECONFIG and the address of a pod's own server are not handed on
(kubernetes.io/docs/reference/kubectl). A kubeconfig may name a program that gets credentials; like kubectl itself it runs in a child
that is given up at its deadline.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.facts.kubernetes_kept import is_of_node, is_operand, kept, kept_of_node
from gpudoctor.facts.raw import Answer, Question
from gpudoctor.patterns import pattern
from gpudoctor.probes.child import ChildEnd, run_child
from gpudoctor.probes.deadline import Deadline

SECONDS = 15.0
"""For all questions together."""
REQUEST_SECONDS = 5
LEFT_SECONDS = 0.5
"""With less than this nothing more is asked."""

QUIET = {"KUBERC": "off", "KUBECTL_KUBERC": "false", "LC_ALL": "C"}
BORROWED = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
"""Not handed on: with a kubeconfig that holds nothing, kubectl in a pod would be that pod's service account (client-go
tools/clientcmd/client_config.go, inClusterClientConfig.Possible)."""
NO_CACHE = "--cache-dir=/dev/null/none"
"""A folder that cannot be made: kubectl goes on without (k8s.io/client-go discovery/cached/disk)."""

# In this order: a refusal may be wrapped in the words of what was refused.
_SAID = (
    (pattern(r"\(NotFound\)"), "absent"),
    (pattern(r"\(Forbidden\)|Unauthorized|must be logged in|provide credentials"), "no-permission"),
    (pattern(r"doesn't have a resource type"), "absent"),
    (pattern(r"(?i)deadline exceeded|timed? ?out|Client\.Timeout"), "timed-out"),
    (pattern(r"(?i)unable to connect|connection refused|no route to host|no such host|x509"), "refused"),
)


_USER = pattern(r'User "[^"]*"')
"""Who the kubeconfig is says nothing to whoever reads a recording."""


class Trouble(Struct, frozen=True):
    """Why something was not answered, as notes and errors have it."""

    why: str
    detail: str

    @property
    def note(self) -> dict[str, str]:
        """As it is written down."""
        return {"why": self.why, "detail": self.detail}


def ask_kubernetes(question: Question, deadline: Deadline, kubeconfig: str) -> Answer:
    """The objects of the node named `node`, each kind trimmed to what is judged; a kind that was refused is noted."""
    path = os.path.abspath(kubeconfig)
    via = f"kubectl --kubeconfig {path}"
    program = shutil.which("kubectl")
    hindered = _hindrance(path, program)
    if hindered is not None or program is None:
        return Answer(data={}, via=via, error=hindered.note if hindered else None)
    asking = _Asking(program, path, deadline.sooner(SECONDS))
    node = asking.node(question.arguments["node"])
    if isinstance(node, Trouble):
        return Answer(data={}, via=via, error=node.note, stopped_at="node")
    return Answer(data=_objects(asking, node), via=via, stopped_at=asking.stopped_at)


def _hindrance(path: str, program: str | None) -> Trouble | None:
    """Why nothing can be asked."""
    if program is None:
        return Trouble("unavailable", "there is no kubectl on this machine")
    if not os.path.isfile(path):
        return Trouble("absent", f"{path} is no file")
    return None if os.access(path, os.R_OK) else Trouble("no-permission", f"{path} cannot be read")


def _objects(asking: "_Asking", node: Mapping[str, Any]) -> dict[str, Any]:
    name = _name_of(node)
    here = f"spec.nodeName={name}"
    asking.list("pods", ("-A", "--field-selector", here))
    asking.list("runtimeclasses", ())
    asking.list("daemonsets", ("-A",), is_operand)
    asking.list("resourceslices", ("--field-selector", here))
    # Nobody can hold a device where there is none to be had.
    if asking.found.get("resourceslices"):
        asking.list("resourceclaims", ("-A",), is_of_node(name))
    elif "resourceslices" in asking.found:
        asking.found["resourceclaims"] = []
    found = {"node": kept_of_node(node, asking.found.get("daemonsets", ())), **asking.found}
    return {**found, "notes": asking.notes} if asking.notes else found


class _Asking:
    """One server, asked kind by kind until the deadline."""

    def __init__(self, program: str, kubeconfig: str, deadline: Deadline) -> None:
        self._command = (program, "--kubeconfig", kubeconfig, NO_CACHE)
        self._deadline = deadline
        self.found: dict[str, list[Any]] = {}
        self.notes: dict[str, dict[str, str]] = {}
        self.stopped_at: str | None = None

    def node(self, name: str) -> Mapping[str, Any] | Trouble:
        """The node of that name; clouds name nodes otherwise than their hosts, whose name the label kubernetes.io/hostname then has."""
        found = self._get("node", name) if name else Trouble("absent", "this node's name is not known")
        if not isinstance(found, Trouble) and not _name_of(found):
            return Trouble("unreadable", "kubectl printed no node")
        if isinstance(found, Trouble) and found.why == "absent" and name:
            listed = self._get("nodes", "-l", f"kubernetes.io/hostname={name}")
            items = [] if isinstance(listed, Trouble) else listed.get("items")
            if isinstance(items, list) and len(items) == 1 and isinstance(items[0], dict) and _name_of(items[0]):
                return items[0]
        return found

    def list(self, kind: str, selectors: Iterable[str], wanted: Callable[[object], bool] | None = None) -> None:
        """All objects of a kind that are wanted, trimmed; a kind that the server does not know has none."""
        found = self._get(kind, *selectors)
        items = None if isinstance(found, Trouble) else found.get("items")
        if isinstance(found, Trouble) and found.why != "absent":
            self.notes[kind] = found.note
            self.stopped_at = self.stopped_at or (kind if found.why == "timed-out" else None)
        elif not isinstance(found, Trouble) and not isinstance(items, list):
            self.notes[kind] = Trouble("unreadable", "kubectl printed no list").note
        else:
            chosen = (each for each in items or () if wanted is None or wanted(each))
            self.found[kind] = [small for each in chosen if (small := kept(kind, each)) is not None]

    def _get(self, kind: str, *rest: str) -> dict[str, Any] | Trouble:
        left = self._deadline.remaining
        if left < LEFT_SECONDS:
            return Trouble("timed-out", "there was no time left to ask")
        seconds = max(1, min(REQUEST_SECONDS, int(left)))
        argv = (*self._command, "get", kind, *rest, "-o", "json", f"--request-timeout={seconds}s")
        environment = {key: value for key, value in os.environ.items() if key not in BORROWED}
        try:
            end = run_child(argv, self._deadline.sooner(seconds + 1), environment={**environment, **QUIET})
        except OSError as error:
            return Trouble("failed", f"kubectl could not be started: {error.strerror or error}")
        return _parsed(end)


def _name_of(node: object) -> str:
    """A node's name, "" of what is no node."""
    metadata = node.get("metadata") if isinstance(node, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def _parsed(end: ChildEnd) -> dict[str, Any] | Trouble:
    if end.abandoned is not None:
        return Trouble("timed-out", "kubectl did not end")
    if end.exit != 0:
        return _refusal(end)
    try:
        said = json.loads(end.stdout)
    except (ValueError, RecursionError):
        return Trouble("unreadable", f"kubectl printed {len(end.stdout)} bytes that are no JSON")
    return said if isinstance(said, dict) else Trouble("unreadable", "kubectl printed no object")


def _refusal(end: ChildEnd) -> Trouble:
    lines = end.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
    # Warnings and the log lines of kubectl's own retries come before.
    said = _USER.sub("this user", lines[-1])[:300] if lines else f"kubectl ended with {end.exit}"
    return Trouble(next((why for form, why in _SAID if form.search(said)), "failed"), said)
