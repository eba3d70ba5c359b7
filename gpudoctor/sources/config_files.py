"""Reads the configuration files of this machine, or below a root."""

import os
import sys
from pathlib import Path
from typing import Any

from gpudoctor.config import Config, ConfigError, from_json, merge
from gpudoctor.facts.raw import Entry, Listing
from gpudoctor.probes.files import LiveFiles


def load_config(root: str, check_ids: tuple[str, ...], explicit: str | None = None) -> Config:
    """The effective configuration: system, drop-ins in order, the user's, then an explicit file. Raises ConfigError."""
    layers = [_parse(path, check_ids) for path in _places(root)]
    if explicit is not None:
        layers.append(_parse(Path(explicit), check_ids))
    return from_json(merge(layers), "configuration", check_ids)


def read_config(path: str, check_ids: tuple[str, ...]) -> Config:
    """One file by itself. Raises ConfigError."""
    return from_json(_parse(Path(path), check_ids), path, check_ids)


def _places(root: str) -> list[Path]:
    """The files that are there, the weakest first; below a root, links resolve inside it."""
    files = LiveFiles(root)
    drop_ins = files.listing("/etc/gpudoctor/conf.d")
    names = [name for name in drop_ins.names if name.endswith(".toml")] if isinstance(drop_ins, Listing) else []
    paths = ["/etc/gpudoctor/config.toml", *(f"/etc/gpudoctor/conf.d/{name}" for name in names)]
    if root == "/":
        paths.append(f"{os.environ.get('XDG_CONFIG_HOME') or os.path.expanduser('~/.config')}/gpudoctor/config.toml")
    # Somebody else's home, as after `sudo -u`, cannot be looked into: there is nothing of ours in it.
    return [Path(files.place(path, follow=True)) for path in paths if isinstance(files.entry(path, follow=True), Entry)]


def _parse(path: Path, check_ids: tuple[str, ...]) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    from_json(values, str(path), check_ids)
    return values
