"""How releases of containerd read their configuration: what each accepts, and in which tables it looks for the CRI plugin.

Read at containerd/containerd tags v1.6.0 to v1.7.34 (services/server/config/config.go) and v2.0.0 to v2.3.4
(cmd/containerd/server/config/config.go).
"""

from msgspec import Struct

from gpudoctor.facts.software import Version

CRI_NAME = "cri"
CRI_URI = "io.containerd.grpc.v1.cri"
CRI_RUNTIME_URI = "io.containerd.cri.v1.runtime"
"""The CRI plugin in configurations of version 1, 2 and 3; in 2.x the second still holds what concerns its server (docs/PLUGINS.md)."""


class Rules(Struct, frozen=True):
    """The rules of one range of releases.

    `latest` is the newest version of a configuration that they know. `relative_globs` is whether a glob that is relative belongs to the
    folder of its file (since 1.6.29 and 1.7.16), else to the daemon's working directory. `refuses_newer`: since 1.6.32 and 1.7.17 a
    version that is too new is an error in 1.x. `needs_prefix`: since 1.7.0 plugins must begin with io.containerd.
    """

    words: str
    latest: int
    relative_globs: bool = True
    refuses_newer: bool = True
    needs_prefix: bool = False

    @property
    def first_generation(self) -> bool:
        """Whether it is containerd 1.x: plugins replace each other as a whole, lists are appended."""
        return self.latest == 2

    @property
    def each_file_alone(self) -> bool:
        """Whether each file is converted by its own version, not all of them together: since 2.3.0 (config version 4)."""
        return self.latest >= 4


OLD = Rules("containerd 1.x", latest=2, needs_prefix=True)
NEW = Rules("containerd 2.0 to 2.2", latest=3)
NEWEST = Rules("containerd 2.3", latest=4)


def rules_for(version: Version) -> Rules:
    """The rules of an installed version."""
    words = str(version)
    if not version.before(2, 3):
        return Rules(words, latest=4)
    if not version.before(2):
        return Rules(words, latest=3)
    seven = not version.before(1, 7)
    return Rules(
        words,
        latest=2,
        relative_globs=not version.before(1, 7, 16) if seven else not version.before(1, 6, 29),
        refuses_newer=not version.before(1, 7, 17) if seven else not version.before(1, 6, 32),
        needs_prefix=seven,
    )


def candidates(config_version: int) -> tuple[Rules, ...]:
    """The rules that may apply where containerd's version is not known, by the version of its main file."""
    if config_version >= 4:
        return (NEWEST,)
    return (NEW, NEWEST) if config_version == 3 else (OLD, NEW, NEWEST)
