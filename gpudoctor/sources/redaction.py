"""Takes out of a snapshot what names people, machines, networks and secrets, so that it can be given away.

Every value is replaced by one made from it with a keyed hash: equal stays equal, in one recording and, with the same salt, between
recordings of one site. What the diagnosis reads (addresses on the bus, versions, device numbers, options of the GPU driver, UUIDs of
GPUs) stays as it is.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from gpudoctor.facts.kubelet_checkpoint import NAME as CHECKPOINT
from gpudoctor.facts.kubelet_checkpoint import parsed_form, without_answers
from gpudoctor.facts.loader_cache import CACHE
from gpudoctor.facts.pci_config import config_bytes, extended_capability
from gpudoctor.patterns import pattern
from gpudoctor.sources.loader_cache_writer import driver_part
from gpudoctor.sources.private_members import (
    CLOUD_TAGS,
    CONTAINER_CONFIGS,
    DEFINITIONS,
    KEY_KINDS,
    KUBERNETES,
    MACHINE_FILES,
    NETWORK_GUIDS,
    POD_RESOURCES,
    WITHIN,
    file_order,
    node_names,
    pod_names,
)
from gpudoctor.sources.private_names import HOST_FILES, Names
from gpudoctor.sources.private_texts import Form, Texts, stretches
from gpudoctor.sources.pseudonyms import Pseudonyms
from gpudoctor.sources.public_pods import is_peculiar_pod


class Redacted(Struct, frozen=True):
    """The redacted members, and what was replaced by what: for whoever recorded, not to be given away."""

    members: dict[str, bytes]
    replaced: dict[str, str]


CPU_STATE = "cpu_manager_state"
SALT_FILE = "/etc/gpudoctor/redaction.salt"
"""A site's secret: with the same one, equal names stay equal in all its recordings."""


def site_salt(root: str = "/") -> bytes:
    """The site's salt, else one of this recording's own."""
    try:
        with open(os.path.join(root, SALT_FILE.lstrip("/")), "rb") as file:
            return file.read(64).strip() or os.urandom(32)
    except OSError:
        return os.urandom(32)


def redact(members: Mapping[str, bytes], salt: bytes) -> Redacted:
    """Redact the members of a snapshot by name: texts, JSON and JSON lines. The salt never leaves the site."""
    pseudonyms = Pseudonyms(salt)
    redactor = _Redactor(pseudonyms)
    redactor.learn(members)
    redacted = {redactor.path(name): redactor.member(name, content) for name, content in members.items()}
    return Redacted(redacted, pseudonyms.replaced)


class _Redactor:
    """Members of one recording."""

    def __init__(self, pseudonyms: Pseudonyms) -> None:
        self._pseudonyms = pseudonyms
        self._names = Names()
        self._texts = Texts(pseudonyms, self._names)
        self._renamed: dict[tuple[str, str], str] = {}
        self._host = ""

    def learn(self, members: Mapping[str, bytes]) -> None:
        """Find the machine's names and people's, which then are replaced wherever they stand."""
        paths: list[str] = []
        for name, content in members.items():
            for told in filter(None, node_names(content)) if name == KUBERNETES else ():
                self._names.learn(told, "host")
            for told in filter(is_peculiar_pod, pod_names(content)) if name in (POD_RESOURCES, KUBERNETES) else ():
                self._names.learn(told, "pod")
            for where, text in _texts(name, content):
                if where in HOST_FILES:
                    self._host = self._host or text.strip()
                    self._names.learn(text.strip(), "host")
                elif MACHINE_FILES.match(where) and text.strip() not in CLOUD_TAGS:
                    self._names.learn(text.strip(), "serial")
                self._names.learn_from(stretches(text))
                paths += (where,) if where.startswith("root/") else ()
        self._names.settle()
        self._pseudonyms.hosts = self._names.hosts
        self._renamed = file_order(paths, self._texts.path)

    def path(self, path: str) -> str:
        """A path or a member's name: only names of people, machines and parts are replaced in it."""
        folder, slash, name = path.rpartition("/")
        renamed = self._renamed.get((folder.rpartition("/")[2], name))
        if renamed is not None:
            return f"{self._texts.path(folder)}{slash}{renamed}"
        return self._texts.path(path)

    def member(self, name: str, content: bytes) -> bytes:
        """One member."""
        if name == "snapshot.json":
            return _dumped(self._manifest(json.loads(content)))
        if name.endswith(".jsonl") and "/" not in name:
            lines = (
                json.dumps(self._line(json.loads(line)), ensure_ascii=False)
                for line in content.splitlines()
                if line.strip()
            )
            return "".join(f"{line}\n" for line in lines).encode()
        if name.startswith("answers/"):
            return _dumped(self._value(json.loads(content)))
        if name.startswith("root/sys/") and name.endswith("/config"):
            return _without_serial(content)
        if name.endswith(CACHE):
            return driver_part(content, self.path)
        # Bytes that are no text stay as they are.
        return self._text(name, content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    # JSON -----------------------------------------------------------------------------------------------------------

    def _manifest(self, manifest: dict[str, Any]) -> dict[str, Any]:
        hostname = str(manifest.get("hostname") or "")
        said = {**self._value(manifest), "hostname": self._hostname(hostname), "redacted": True}
        if isinstance(manifest.get("complete"), list):
            said["complete"] = [self.path(str(path)) for path in manifest["complete"]]
        return said

    def _hostname(self, name: str) -> str:
        """Where a name can be nothing else, a common word is replaced too."""
        said = self._texts.text(name)
        return said if said != name else self._pseudonyms.reveal(self._pseudonyms.hide(name, "host"))

    def _line(self, line: dict[str, Any]) -> dict[str, Any]:
        """A line of entries.jsonl or commands.jsonl; a file's text is treated as the file."""
        where = "root" + str(line.get("path", ""))
        done = {key: self._value(value, key) for key, value in line.items() if key not in ("path", "text", "to")}
        for key in ("path", "to"):
            if key in line:
                done[key] = self.path(str(line[key]))
        if "text" in line:
            text = str(line["text"])
            if where.endswith(CACHE):
                done["text"] = driver_part(text.encode("utf-8", "backslashreplace"), self.path).decode(
                    "utf-8", "backslashreplace"
                )
            else:
                done["text"] = self._text(where, text)
        return done

    def _value(self, value: Any, key: str = "") -> Any:
        match value:
            case dict():
                return {
                    self._key(str(name)): self._value(inner, WITHIN.get((key, str(name)), str(name)))
                    for name, inner in value.items()
                }
            case list():
                return [self._value(inner, key) for inner in value]
            case str():
                return self._string(value, key)
            case _:
                return value

    def _key(self, name: str) -> str:
        return name if name.isidentifier() else self._texts.text(name)

    def _string(self, value: str, key: str) -> str:
        """A string, which its key can call private."""
        for form, kind in KEY_KINDS:
            if value and form.search(key):
                said = self._pseudonyms.reveal(self._texts.named(value, kind))
                return said if said != value else self._texts.text(value)
        return self._texts.text(value)

    def _json(self, text: str) -> str:
        """JSON in its own layout: strings are replaced where they stand."""
        key = ""

        def replace(match: "re.Match[str]") -> str:
            nonlocal key
            value = str(json.loads(match[1], strict=False))
            if match[2]:
                key = value
            said = self._key(value) if match[2] else self._string(value, key)
            return match[0] if said == value else json.dumps(said, ensure_ascii=False) + (match[2] or "")

        return _STRING.sub(replace, text)

    def _without_arguments(self, text: str) -> str:
        """A container's configuration without the arguments of its program: as /proc/PID/cmdline would show them."""
        said = json.loads(text, strict=False)
        if not isinstance(said, dict):
            return text
        for holder, key in (("process", "args"), ("Config", "Cmd"), ("Config", "Entrypoint"), ("", "Args")):
            inner = said.get(holder) if holder else said
            words = inner.get(key) if isinstance(inner, dict) else None
            if isinstance(inner, dict) and isinstance(words, list) and words:
                # dockerd keeps the program apart from the other words.
                line = "\0".join([*([""] if key == "Args" else []), *map(str, words)])
                inner[key] = self._texts.variables.command_line(line, self._texts.part).split("\0")[-len(words) :]
        return json.dumps(said, ensure_ascii=False)

    def _of_kubelet(self, name: str, text: str) -> str | None:
        """What a kubelet keeps of pods. A checkpoint's checksum is that of the names in it: it is kept in parsed form, with the verdict."""
        if name.endswith(f"/{CHECKPOINT}"):
            said = parsed_form(text) or without_answers(text)
            return self._json(said) if _is_json(said) else self._texts.text(said, Form.LOG)
        if name.endswith(f"/{CPU_STATE}") and _is_json(text):
            return self._json(self._without_containers(text))
        if _MANIFEST.search(name) and self._host and (named := _POD_NAME.search(text)) is not None:
            # The kubelet calls such a pod by this name and the node's (pkg/kubelet/config/common.go): what stands for that stands here.
            whole = self._texts.hide(f"{named[2]}-{self._host}", "pod")
            return self._texts.text(f"{text[: named.start(2)]}{whole}{text[named.end(2) :]}", Form.LOG)
        return None

    def _without_containers(self, text: str) -> str:
        """What the kubelet's CPU manager keeps, by pod and container, without the names of these."""
        said = json.loads(text, strict=False)
        entries = said.get("entries") if isinstance(said, dict) else None
        for pod in entries.values() if isinstance(entries, dict) else ():
            for container in list(pod) if isinstance(pod, dict) else ():
                pod[self._reveal(self._texts.named(container, "pod"))] = pod.pop(container)
        return json.dumps(said, ensure_ascii=False)

    # texts ----------------------------------------------------------------------------------------------------------

    def _text(self, name: str, text: str) -> str:
        value = text.strip("\0\n\t ")
        if MACHINE_FILES.match(name):
            told = value and value not in CLOUD_TAGS
            return text.replace(value, self._reveal(self._texts.hide(value, "serial"))) if told else text
        if NETWORK_GUIDS.match(name):
            return text.replace(value, self._reveal(self._texts.hide(value, "eui64"))) if value else text
        if name == "root/proc/cmdline":
            return self._texts.text(text, Form.PARAMETERS)
        match name.rpartition("/")[2] if name.startswith("root/proc/") else "":
            case "environ":
                return self._reveal(self._texts.variables.environment(text, self._texts.part))
            case "cmdline":
                return self._reveal(self._texts.variables.command_line(text, self._texts.part))
            case _:
                pass
        if (kept := self._of_kubelet(name, text)) is not None:
            return kept
        if name.endswith(".json") and _is_json(text):
            return self._json(self._without_arguments(text) if CONTAINER_CONFIGS.match(name) else text)
        return self._texts.text(text, Form.DEFINITIONS if DEFINITIONS.match(name) else Form.LOG)

    def _reveal(self, text: str) -> str:
        return self._pseudonyms.reveal(text)


_MANIFEST = pattern(r"/(?:pod-)?manifests/[^/]+\Z")
_POD_NAME = pattern(r"(?m)^(metadata:\n(?:[ \t]+.*\n)*?[ \t]+name:[ \t]*)([\w.-]+)[ \t]*$")
_STRING = pattern(r"(\"(?:[^\"\\]|\\.)*\")(\s*:)?")


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text, strict=False), (dict, list))
    except (ValueError, RecursionError):
        return False


def _dumped(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


DEVICE_SERIAL_NUMBER = 0x0003
"""An extended capability of two double words after its header (include/uapi/linux/pci_regs.h, PCI_EXT_CAP_ID_DSN)."""


def _without_serial(content: bytes) -> bytes:
    """Configuration space without the device's serial number, in the text in which it came."""
    registers = config_bytes(content.decode("utf-8", "backslashreplace"))
    place = extended_capability(registers, DEVICE_SERIAL_NUMBER) if registers is not None else None
    if registers is None or place is None:
        return content
    blank = registers[: place + 4] + bytes(8) + registers[place + 12 :]
    return blank if len(content) == len(registers) else blank.decode("utf-8", "backslashreplace").encode()


def _texts(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """Every text of a member, with the name of the file it is; and the names themselves."""
    yield name, ""
    yield "", name
    if name.endswith(".jsonl") and "/" not in name:
        for line in content.splitlines():
            said = json.loads(line) if line.strip() else {}
            where = f"root{said.get('path', '')}"
            yield where, ""
            for key in ("path", "to", "text", "stdout", "stderr"):
                if isinstance(said.get(key), str):
                    yield where if key == "text" else "", said[key]
    elif not name.endswith(("/config", CACHE)):
        yield name, content.decode("utf-8", "surrogateescape")
