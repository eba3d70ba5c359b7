"""What stands behind containerd's configuration: the programs that runtimes name, CDI specs, drop-ins that nobody imports."""

import posixpath

from gpudoctor.facts.config_text import parse_toml
from gpudoctor.facts.containerd_config import ConfigFile, Loaded
from gpudoctor.facts.containerd_cri import Cri, Declared, declared
from gpudoctor.facts.programs import Located, locate
from gpudoctor.facts.raw import Listing, Raw, TextFile
from gpudoctor.verdicts import Unread, Why

TOOLKIT_RUNTIME = "nvidia-container-runtime"
DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
OPERATOR_RUNTIME = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
"""Where the GPU Operator's toolkit container puts it (NVIDIA/gpu-operator, toolkit.installDir)."""

DROP_IN_FOLDERS = ("conf.d", "config.d")
"""Where nvidia-ctk writes 99-nvidia.toml: conf.d, and config.d in 1.18.0 (NVIDIA/nvidia-container-toolkit#1404)."""

MOST_DROP_INS = 20


def find_toolkit(raw: Raw) -> Located:
    """The toolkit's runtime along PATH, or where the Operator puts it."""
    found = locate(raw, TOOLKIT_RUNTIME)
    if not found.missing:
        return found
    other = locate(raw, OPERATOR_RUNTIME)
    return found if other.missing else other


def plugin_sockets(raw: Raw) -> tuple[str, ...] | Unread:
    """The sockets of NVIDIA's device plugins, nvidia-gpu.sock and nvidia-mig-*.sock (NVIDIA/k8s-device-plugin internal/plugin)."""
    listing = raw.listing(DEVICE_PLUGINS)
    if isinstance(listing, Unread) and listing.why is not Why.NOT_RECORDED:
        return listing
    names = listing.names if isinstance(listing, Listing) else ()
    return tuple(f"{DEVICE_PLUGINS}/{name}" for name in names if name.startswith("nvidia") and name.endswith(".sock"))


def unimported(raw: Raw, path: str, loaded: Loaded | None) -> tuple[Declared, ...]:
    """The nvidia runtimes in files beside a configuration that it does not import."""
    known = {file.path for file in loaded.files} if loaded is not None else set()
    found: list[Declared] = []
    for name in DROP_IN_FOLDERS:
        folder = f"{posixpath.dirname(path)}/{name}"
        listing = raw.listing(folder)
        if not isinstance(listing, Listing):
            continue
        names = [one for one in listing.names if one.endswith(".toml") and f"{folder}/{one}" not in known]
        for one in names[:MOST_DROP_INS]:
            found += declared_in(raw, f"{folder}/{one}")
    return tuple(found)


def declared_in(raw: Raw, path: str) -> tuple[Declared, ...]:
    """The nvidia runtimes that one file writes down, whoever reads it."""
    file = raw.read(path)
    if not isinstance(file, TextFile) or "nvidia" not in file.text:
        return ()
    document = parse_toml(file)
    if not isinstance(document, dict) or not isinstance(document.get("plugins"), dict):
        return ()
    return declared(ConfigFile(path, file, {"plugins": document["plugins"]}))


def ineffective(loaded: Loaded, cri: Cri) -> tuple[Declared, ...]:
    """The nvidia runtimes that files which are read write down in vain."""
    return tuple(
        one
        for file in loaded.files
        for one in declared(file)
        if one.name not in cri.runtimes or "nvidia" not in cri.runtimes[one.name].binary
    )
