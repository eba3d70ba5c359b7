"""Whether the toolkit's hook is told to leave device rules alone, as rootless engines need it and no other."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.facts.toolkit_config import ToolkitConfig
from gpudoctor.facts.workload_access import WorkloadAccess
from gpudoctor.knowledge.toolkit_config import NO_CGROUPS
from gpudoctor.verdicts import Cited, Unread


class ToolkitCgroups(Fact, frozen=True):
    """`no_cgroups` cites the line that says so, nothing where none does."""

    no_cgroups: Cited = ()

    @classmethod
    def gather(cls, desk: Desk) -> "ToolkitCgroups | Unread":
        """Never unread itself: it only adds to what others know. Looked for only where a workload may not open a node."""
        access = desk.get(WorkloadAccess)
        if isinstance(access, Unread) or not access.any_denied:
            return cls()
        config = desk.get(ToolkitConfig)
        files = () if isinstance(config, Unread) else (config.default, config.operators)
        told = (file for file in files if file is not None and file.value(NO_CGROUPS) is True)
        return cls(no_cgroups=tuple(file.says(NO_CGROUPS) for file in told))
