"""Whether the toolkit's hook is told to leave device rules alone, as rootless engines need it and no other."""

import re

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.raw import TextFile
from gpudoctor.facts.workload_access import WorkloadAccess
from gpudoctor.verdicts import Cited, Evidence, Unread

CONFIG = "/etc/nvidia-container-runtime/config.toml"
"""The toolkit's default place (NVIDIA/nvidia-container-toolkit internal/config/config.go)."""

# In [nvidia-container-cli]; the file as it is installed has it as a comment, `#no-cgroups = false`.
_NO_CGROUPS = re.compile(r"^[ \t]*no-cgroups[ \t]*=[ \t]*(true|false)\b.*$", re.MULTILINE)


class ToolkitCgroups(Fact, frozen=True):
    """`no_cgroups` cites the line that says so, nothing where none does."""

    no_cgroups: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "ToolkitCgroups | Unread":
        """Never unread itself: it only adds to what others know. Looked for only where a workload may not open a node."""
        access = desk.get(WorkloadAccess)
        if isinstance(access, Unread) or not access.any_denied:
            return cls()
        file = desk.raw.read(CONFIG)
        found = _NO_CGROUPS.search(file.text) if isinstance(file, TextFile) else None
        if found is None or found[1] != "true" or not isinstance(file, TextFile):
            return cls()
        return cls(no_cgroups=(Evidence(file.where, found[0].strip()),))
