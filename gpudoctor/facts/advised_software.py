"""What known vulnerabilities are asked of: installed versions, the running driver, and whether what they need is in use."""

from collections.abc import Mapping

from gpudoctor.facts.config_text import parse_json
from gpudoctor.facts.daemons import WITH_KUBELET, Daemons, Program
from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.docker_places import DAEMON_JSON
from gpudoctor.facts.driver import NvidiaModule
from gpudoctor.facts.raw import Absent, TextFile
from gpudoctor.facts.software import CONTAINERD, DOCKER, RUNC, TOOLKIT, Software, Version
from gpudoctor.facts.toolkit_config import ToolkitConfig
from gpudoctor.facts.toolkit_surroundings import ToolkitSurroundings
from gpudoctor.knowledge.toolkit_config import NO_COMPAT_HOOK, auto_means
from gpudoctor.verdicts import Cited, Unread


class AdvisedSoftware(Fact, frozen=True):
    """`asked` is whether the configuration asks for advisories; nothing is read where it does not.

    `mode` and `plugins` are None where they are not known, `kubelet` whether a kubelet runs here. `compat_hook_off` cites the line that
    turns the hook for CUDA's compatibility libraries off.
    """

    asked: bool
    versions: Mapping[str, Version | Absent | Unread] | Unread
    driver: NvidiaModule | Unread | None = None
    mode: str | None = None
    mode_said: Cited = ()
    compat_hook_off: Cited = ()
    plugins: bool | None = None
    kubelet: bool | None = None

    @classmethod
    def gather(cls, desk: Desk) -> "AdvisedSoftware | Unread":
        """Reads what others read."""
        if not desk.config.advisories:
            return cls(asked=False, versions={})
        software = desk.get(Software)
        products = (TOOLKIT, RUNC, CONTAINERD, DOCKER)
        versions = software if isinstance(software, Unread) else {one.name: software.of(one) for one in products}
        mode, said, off = _mode(desk, versions)
        daemons = desk.get(Daemons)
        kubelet = None if isinstance(daemons, Unread) else _kubelet(daemons)
        return cls(
            asked=True,
            versions=versions,
            driver=desk.get(NvidiaModule),
            mode=mode,
            mode_said=said,
            compat_hook_off=off,
            plugins=_plugins(desk, daemons),
            kubelet=kubelet,
        )


def _kubelet(daemons: Daemons) -> bool | None:
    if daemons.of(*WITH_KUBELET):
        return True
    return None if daemons.unlisted is not None else False


def _mode(desk: Desk, versions: Mapping[str, Version | Absent | Unread] | Unread) -> tuple[str | None, Cited, Cited]:
    config, around = desk.get(ToolkitConfig), desk.get(ToolkitSurroundings)
    if isinstance(config, Unread) or isinstance(around, Unread) or config.unlisted is not None:
        return None, (), ()
    if not config.files:
        version = None if isinstance(versions, Unread) else versions[TOOLKIT.name]
        release = version.numbers if isinstance(version, Version) else None
        return auto_means(release, tegra=False), (), ()
    file = config.operators or config.files[0]
    seen = around.of.get(file.path)
    off = (file.says(NO_COMPAT_HOOK),) if file.value(NO_COMPAT_HOOK) is True else ()
    return (seen.mode if seen is not None else None), file.cite("file"), off


def _plugins(desk: Desk, daemons: Daemons | Unread) -> bool | None:
    """dockerd takes them from daemon.json or its command line (dockerd(8), --authorization-plugin)."""
    given = () if isinstance(daemons, Unread) else daemons.of(Program.DOCKERD)
    if any(daemon.has("authorization-plugin") for daemon in given):
        return True
    file = desk.raw.read(DAEMON_JSON)
    if isinstance(file, TextFile):
        parsed = parse_json(file)
        return bool(parsed.get("authorization-plugins")) if isinstance(parsed, dict) else None
    return None if isinstance(file, Unread) else False
