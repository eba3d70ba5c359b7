"""CDI specs as Podman takes or refuses them, against our own judgement: generated and mutated ones, conflicts, two folders.

Podman 4.3 of Debian 12 has the CDI library 0.5.2 and reads /etc/cdi and /var/run/cdi only, so it runs in mount namespaces of its own.
That it gets as far as the runtime says that the device was found; what the runtime does with it is of no matter here.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gpudoctor.facts.cdi_spec import CdiSpec, parse_spec
from gpudoctor.facts.cdi_specs import CdiSpecs
from gpudoctor.facts.cdi_validity import refused_by
from gpudoctor.facts.raw import Entry, EntryType, TextFile
from gpudoctor.knowledge.cdi_versions import library_of
from gpudoctor.sources.recorded import Record, RecordedNode, Tree
from tests.captures import fact

FLOOR = 60
"""How many specs must be compared."""
ETC, RUN = "/etc/cdi", "/var/run/cdi"

SCRIPT = r"""
set -e
mount -t tmpfs cdi "$1/layers" && mkdir "$1/layers/upper" "$1/layers/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/layers/upper,workdir=$1/layers/work" /etc
mount -t tmpfs cdi /run
mkdir -p /etc/cdi /run/cdi
cp -r "$1/etc/." /etc/cdi/
cp -r "$1/run/." /run/cdi/
set +e
podman="podman --root $1/storage --runroot $1/state --cgroup-manager cgroupfs --events-backend none"
while read -r name; do
    echo "== $name"
    $podman create --name judged --network none --cgroups disabled --device "$name" --rootfs "$1/rootfs" /bin/true > /dev/null 2>&1 ||
        echo "not created"
    $podman init judged 2>&1
    $podman rm -f judged > /dev/null 2>&1
done < "$1/names"
"""


def podman_version() -> tuple[int, ...]:
    """Podman's release, or skip."""
    if shutil.which("podman") is None or shutil.which("unshare") is None:
        pytest.skip("podman is not installed")
    if os.geteuid() != 0:
        pytest.skip("needs root: Podman's CDI folders are mounted over")
    told = subprocess.run(["podman", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)\.(\d+)\.(\d+)", told)
    if found is None:
        pytest.skip(f"podman tells no version: {told!r}")
    return tuple(int(part) for part in found.groups())


def judge(names: list[str], files: Mapping[str, str]) -> dict[str, str]:
    """What podman says of each name, with these files in its folders. Its monitor may outlive it and still write into the storage."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        for folder in ("layers", "etc", "run", "storage", "state", "rootfs/bin"):
            Path(place, folder).mkdir(parents=True)
        for path, text in files.items():
            folder, _, name = path.rpartition("/")
            Path(place, "etc" if folder == ETC else "run", name).write_text(text, encoding="utf-8")
        Path(place, "names").write_text("".join(f"{name}\n" for name in names), encoding="ascii")
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-c", SCRIPT, "judge", place],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode != 0 and "== " not in done.stdout:
        pytest.skip(f"no mount namespace of one's own here: {done.stderr.strip()[:200]}")
    answers = re.split(r"^== (.*)$", done.stdout, flags=re.MULTILINE)
    return dict(zip(answers[1::2], answers[2::2], strict=True))


def found(answer: str) -> bool:
    """Whether the device was found: an error behind that is the runtime's, or the host's that lacks a node."""
    assert answer.strip() or "not created" not in answer
    return "unresolvable CDI devices" not in answer and "not created" not in answer


# Specs ------------------------------------------------------------------------------------------------------------------

EDITS = "{env: [A=b]}"


def spec(device: str = "", *, version: str = '"0.5.0"', top: str = "", kind: str = "KIND", edits: str = EDITS) -> str:
    """A spec with one device called x, of a kind that is filled in later."""
    named = device or f"{{name: x, containerEdits: {edits}}}"
    return f"cdiVersion: {version}\nkind: {kind}\n{top}devices:\n- {named}\n"


def node(text: str) -> str:
    """A spec whose device has one node."""
    return spec(edits=f"{{deviceNodes: [{{{text}}}]}}")


def mount(text: str) -> str:
    """A spec whose device has one mount."""
    return spec(edits=f"{{mounts: [{{{text}}}]}}")


def hook(text: str) -> str:
    """A spec whose device has one hook."""
    return spec(edits=f"{{hooks: [{{{text}}}]}}")


def others(*names: str) -> str:
    """A spec with devices beside x."""
    return spec(
        f"{{name: x, containerEdits: {EDITS}}}"
        + "".join(f"\n- {{name: {name}, containerEdits: {EDITS}}}" for name in names)
    )


def text_of(json: str) -> str:
    """The same as JSON."""
    return '{"cdiVersion": "0.5.0", "kind": "KIND", "devices": [{"name": "x", "containerEdits": %s}]}' % json  # noqa: UP031 - braces


CASES: dict[str, str] = {
    "plain": spec(),
    "version 0.1.0": spec(version="0.1.0"),
    "version 0.3.0": spec(version="0.3.0"),
    "version 0.4.0": spec(version="0.4.0"),
    "version 0.6.0": spec(version="0.6.0"),
    "version 0.7.0": spec(version="0.7.0"),
    "version 1.0.0": spec(version="1.0.0"),
    "version of two parts": spec(version="0.5"),
    "version that is a number": spec(version="1"),
    "version with a v": spec(version="v0.5.0"),
    "version empty": spec(version='""'),
    "no version": spec().replace('cdiVersion: "0.5.0"\n', ""),
    "no kind": spec().replace("kind: KIND\n", ""),
    "no devices": 'cdiVersion: "0.5.0"\nkind: KIND\ndevices: []\n',
    "devices an object": 'cdiVersion: "0.5.0"\nkind: KIND\ndevices: {name: x}\n',
    "nothing": "",
    "a comment": "# nothing\n",
    "null": "null\n",
    "a list": "- a\n- b\n",
    "a word": "spec\n",
    "unknown field above": spec(top="extra: 1\n"),
    "unknown field in a device": spec(f"{{name: x, extra: 1, containerEdits: {EDITS}}}"),
    "unknown field in edits": spec(edits="{env: [A=b], extra: []}"),
    "additionalGids": spec(edits="{env: [A=b], additionalGids: [44]}"),
    "additionalGids empty": spec(edits="{env: [A=b], additionalGids: []}"),
    "intelRdt": spec(edits="{env: [A=b], intelRdt: {closID: a}}"),
    "netDevices": spec(edits="{env: [A=b], netDevices: [{hostInterfaceName: a, name: b}]}"),
    "annotations": spec(top="annotations: {a: b}\n"),
    "annotations of a device": spec(f"{{name: x, annotations: {{a: b}}, containerEdits: {EDITS}}}"),
    "no edits": spec("{name: x}"),
    "edits null": spec("{name: x, containerEdits: null}"),
    "edits empty": spec("{name: x, containerEdits: {}}"),
    "edits with empty lists": spec(edits="{env: [], mounts: [], deviceNodes: []}"),
    "two devices of one name": spec(f"{{name: x, containerEdits: {EDITS}}}\n- {{name: x, containerEdits: {EDITS}}}"),
    "another device is empty": spec(f"{{name: x, containerEdits: {EDITS}}}\n- {{name: z}}"),
    "another device has no name": spec(f"{{name: x, containerEdits: {EDITS}}}\n- {{containerEdits: {EDITS}}}"),
    "another name with a slash": spec(f"{{name: x, containerEdits: {EDITS}}}\n- {{name: a/b, containerEdits: {EDITS}}}"),
    "another name with a dash at its end": spec(f"{{name: x, containerEdits: {EDITS}}}\n- {{name: a-, containerEdits: {EDITS}}}"),
    "another name that is a number": spec(f"{{name: x, containerEdits: {EDITS}}}\n- {{name: 7, containerEdits: {EDITS}}}"),
    "another name that is yes": spec(f"{{name: x, containerEdits: {EDITS}}}\n- {{name: yes, containerEdits: {EDITS}}}"),
    "another name that is a list": spec(f"{{name: x, containerEdits: {EDITS}}}\n- {{name: [a], containerEdits: {EDITS}}}"),
    "names yes and true": others("yes", '"true"'),
    "names 8 and 010": others("8", "010"),
    "variable without a value": spec(edits="{env: [A]}"),
    "variable without a name": spec(edits='{env: ["=b"]}'),
    "variable that is a number": spec(edits="{env: [1]}"),
    "env a string": spec(edits="{env: A=b}"),
    "env null": spec(edits="{env: null, mounts: [{hostPath: /a, containerPath: /b}]}"),
    "node": node("path: /dev/null"),
    "node without a path": node("hostPath: /dev/null"),
    "node hostPath": node("path: /dev/n, hostPath: /dev/null"),
    "node with numbers": node("path: /dev/n, type: c, major: 1, minor: 3"),
    "node major a string": node('path: /dev/null, major: "195"'),
    "node major a fraction": node("path: /dev/null, major: 1.5"),
    "node major a float": node("path: /dev/null, major: 195.0"),
    "node major with an exponent": node("path: /dev/null, major: 1e2"),
    "node major hexadecimal": node("path: /dev/null, major: 0xc3"),
    "node major octal": node("path: /dev/null, major: 0303"),
    "node major octal of YAML 1.2": node("path: /dev/null, major: 0o303"),
    "node major with a low line": node("path: /dev/null, major: 1_95"),
    "node major too big": node("path: /dev/null, major: 99999999999999999999"),
    "node major null": node("path: /dev/null, major: ~"),
    "node major yes": node("path: /dev/null, major: yes"),
    "node type": node("path: /dev/null, type: char"),
    "node type u": node("path: /dev/null, type: u"),
    "node mode": node("path: /dev/null, fileMode: 438"),
    "node mode octal": node("path: /dev/null, fileMode: 0666"),
    "node mode a string": node('path: /dev/null, fileMode: "0666"'),
    "node mode with an eight": node("path: /dev/null, fileMode: 0888"),
    "node mode negative": node("path: /dev/null, fileMode: -1"),
    "node permissions": node("path: /dev/null, permissions: rwm"),
    "node permissions x": node("path: /dev/null, permissions: rwx"),
    "node permissions none": node("path: /dev/null, permissions: none"),
    "node permissions yes": node("path: /dev/null, permissions: yes"),
    "node uid negative": node("path: /dev/null, uid: -1"),
    "node uid too big": node("path: /dev/null, uid: 4294967296"),
    "node uid null": node("path: /dev/null, uid: null"),
    "node fields in other case": node("Path: /dev/null, HOSTPATH: /dev/null"),
    "node unknown field": node("path: /dev/null, mode: 438"),
    "mount": mount("hostPath: /usr, containerPath: /u"),
    "mount without host path": mount("containerPath: /u"),
    "mount without container path": mount("hostPath: /usr"),
    "mount type": mount("hostPath: /usr, containerPath: /u, type: bind"),
    "mount options a string": mount("hostPath: /usr, containerPath: /u, options: ro"),
    "mount options": mount("hostPath: /usr, containerPath: /u, options: [ro, bind]"),
    "mount option a number": mount("hostPath: /usr, containerPath: /u, options: [1]"),
    "hook": hook("hookName: createContainer, path: /bin/true"),
    "hook of another name": hook("hookName: createcontainer, path: /bin/true"),
    "hook without a path": hook("hookName: prestart"),
    "hook timeout": hook("hookName: prestart, path: /bin/true, timeout: 5"),
    "hook timeout a string": hook('hookName: prestart, path: /bin/true, timeout: "5"'),
    "hook variable": hook("hookName: prestart, path: /bin/true, env: [A]"),
    "kind twice": spec(top="kind: KIND\n"),
    "field twice in edits": spec(edits="{env: [A=b], env: [C=d]}"),
    "field twice in other case": node("path: /dev/null, Path: /dev/zero"),
    "tab": spec().replace("- {", "-\t{"),
    "tab as indentation": spec().replace("- {name", "\t- {name"),
    "tab in flow": spec().replace("{name: x, ", "{name: x,\t"),
    "bad indentation": 'cdiVersion: "0.5.0"\n kind: KIND\n',
    "unclosed": spec()[:-3],
    "two documents": spec() + "---\n" + spec(version="9"),
    "second document broken": spec() + "---\n{[}\n",
    "explicit end": "---\n" + spec() + "...\n",
    "anchor": spec("&d {name: x, containerEdits: {env: [A=b]}}\n- {name: z, containerEdits: {env: [A=b]}}"),
    "alias": spec("{name: x, containerEdits: &e {env: [A=b]}}\n- {name: z, containerEdits: *e}"),
    "merge": spec("{name: x, containerEdits: &e {env: [A=b]}}\n- {name: z, containerEdits: {<<: *e}}"),
    "merge and override": spec("{name: x, containerEdits: &e {env: [A=b]}}\n- {name: z, containerEdits: {<<: *e, env: [C=d]}}"),
    "alias unknown": spec("{name: x, containerEdits: *e}"),
    "key a number": spec(top="1: a\n"),
    "key null": spec(top="~: a\n"),
    "json": text_of('{"env": ["A=b"]}'),
    "json with a comma too much": text_of('{"env": ["A=b",],}'),
    "json cut off": text_of('{"env": ["A=b"]}')[:-10],
    "json without spaces": text_of('{"env":["A=b"]}').replace(": ", ":").replace(", ", ","),
    "json with an escape": text_of('{"env": ["A=\\u0062"]}'),
    "json with tabs": text_of('{\n\t"env": ["A=b"]\n\t}'),
    "json with a comment": text_of('{"env": ["A=b"]} # of YAML\n'),
    "class with a dot": spec(kind="KIND.sub"),
    "byte order mark": "\ufeff" + spec(),
    "Windows line ends": spec().replace("\n", "\r\n"),
    "string over two lines": spec(edits="{env: [\"A=b\n  c\"]}"),
    "exclamation tag": spec(edits="{env: [!!str A=b]}"),
    "number with a tag": node('path: /dev/null, major: !!int "195"'),
}  # fmt: skip


def cases() -> Iterator[tuple[str, str, str, str]]:
    """Each with a kind, a file and a name of its own."""
    for number, (name, text) in enumerate(CASES.items()):
        kind = f"v{number}.example.com/gpu"
        suffix = "json" if name.startswith("json") else "yaml"
        wanted = f"{kind}.sub" if name == "class with a dot" else kind
        yield name, text.replace("KIND", kind), f"{ETC}/{number:03}.{suffix}", f"{wanted}=x"


def test_podman_takes_and_refuses_the_same_specs() -> None:
    library = library_of("podman", podman_version())
    assert library is not None
    told = judge([name for *_, name in cases()], {path: text for _, text, path, _ in cases()})
    differ = []
    for case, text, path, name in cases():
        parsed = parse_spec(TextFile(path, text))
        taken = isinstance(parsed, CdiSpec) and refused_by(parsed, library) is None and name in parsed.names
        if found(told[name]) is not taken:
            why = refused_by(parsed, library) if isinstance(parsed, CdiSpec) else parsed
            differ.append(f"{case}: podman {'finds' if found(told[name]) else 'does not find'} it, we say {why}")
    print(f"{len(told)} specs compared")
    assert not differ, "\n".join(differ)
    assert len(told) >= FLOOR


# Several files -------------------------------------------------------------------------------------------------------


def claiming(*names: str, kind: str = "two.example.com/gpu") -> str:
    """A spec with these devices."""
    devices = "".join(f"- {{name: {name}, containerEdits: {EDITS}}}\n" for name in names)
    return f"cdiVersion: 0.5.0\nkind: {kind}\ndevices:\n{devices}"


FOLDERS: dict[str, dict[str, str]] = {
    "one file": {f"{ETC}/a.yaml": claiming("a", "b")},
    "conflict in one folder": {f"{ETC}/a.yaml": claiming("a", "b"), f"{ETC}/b.yaml": claiming("b", "c")},
    "conflict in the later folder": {f"{RUN}/a.yaml": claiming("a", "b"), f"{RUN}/b.json": claiming("b", "c")},
    "the later folder wins": {f"{ETC}/a.yaml": claiming("a", "b"), f"{RUN}/a.yaml": claiming("b", "c")},
    "conflict below an override": {
        f"{ETC}/a.yaml": claiming("a", "b"),
        f"{ETC}/b.yaml": claiming("b"),
        f"{RUN}/c.yaml": claiming("b", "c"),
    },
    "three claim one": {f"{ETC}/{name}.yaml": claiming("a", name) for name in ("b", "c", "d")},
    "other suffixes": {f"{ETC}/a.yml": claiming("a"), f"{ETC}/b.yaml.bak": claiming("b"), f"{ETC}/c": claiming("c")},
    "a hidden file": {f"{ETC}/.a.yaml": claiming("a")},
    "a broken file beside": {f"{ETC}/a.yaml": claiming("a"), f"{ETC}/b.yaml": "{["},
    "one file hides a name of a refused one": {f"{ETC}/a.yaml": claiming("a"), f"{RUN}/a.yaml": claiming("a", "a")},
}


def test_podman_does_not_look_behind_a_folder_that_is_a_link(monkeypatch: pytest.MonkeyPatch) -> None:
    podman_version()
    linking = SCRIPT.replace("set +e\n", "mv /etc/cdi /etc/real; ln -s /etc/real /etc/cdi\nset +e\n")
    monkeypatch.setattr("tests.test_cdi_podman.SCRIPT", linking)
    name = "two.example.com/gpu=a"
    assert not found(judge([name], {f"{ETC}/a.yaml": claiming("a")})[name])


@pytest.mark.parametrize("case", FOLDERS)
def test_podman_finds_the_same_devices_among_several_files(case: str) -> None:
    podman_version()
    names = [f"two.example.com/gpu={name}" for name in ("a", "b", "c", "d")]
    told = judge(names, FOLDERS[case])
    tree = Tree()
    for path, text in FOLDERS[case].items():
        tree.put(path, Record(entry=Entry(path, EntryType.FILE, mode=0o644), text=text))
    specs = fact(RecordedNode(tree, complete=["/"], uid=0), CdiSpecs)
    assert {name for name in names if name in specs.devices} == {name for name in names if found(told[name])}
