"""The views, each with the key that shows it; a view's module is loaded when it is first shown."""

import importlib
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from gpudoctor.reports.tui.view import View


class ViewKind(Struct, frozen=True):
    """A view: its key, its name for people, and `module:Class` below this package."""

    key: str
    title: str
    where: str

    @property
    def id(self) -> str:
        """The widget's id."""
        return "view-" + self.where.partition(":")[0].replace("_", "-")

    def made(self) -> "View":
        """The view itself."""
        module, _, name = self.where.partition(":")
        kind: type[View] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        return kind(id=self.id)


VIEWS = (
    ViewKind("1", "Diagnosis", "diagnosis:Diagnosis"),
    ViewKind("2", "GPUs", "gpus:Gpus"),
    ViewKind("3", "Topology", "topology:Topology"),
    ViewKind("4", "Workloads", "workloads:Workloads"),
    ViewKind("5", "Timeline", "timeline:Timeline"),
    ViewKind("6", "Not seen", "not_seen:NotSeen"),
    ViewKind("7", "Compare", "compare:Compare"),
    ViewKind("8", "Log", "log:Log"),
)
"""In the order of the bar at the top."""
