"""The numbers that decide whether something is worth a finding: the site's own, else those of knowledge/thresholds.py."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.verdicts import Cited, Evidence

WHERE = "configuration"


class Thresholds(Fact, frozen=True):
    """What the site set, by name; the table has the rest."""

    own: dict[str, float]

    @classmethod
    def gather(cls, desk: Desk) -> "Thresholds":
        """Never unread: the configuration is always there, and names no threshold that does not exist."""
        return cls(own=desk.config.thresholds)

    def of(self, name: str) -> float:
        """The limit in its unit; KeyError for a name that the table does not have."""
        from gpudoctor.knowledge.thresholds import THRESHOLDS

        return self.own.get(name, THRESHOLDS[name].default)

    def cite(self, *names: str) -> Cited:
        """The limits as they were applied, and who set them."""
        from gpudoctor.knowledge.thresholds import THRESHOLDS

        return tuple(
            Evidence(WHERE, f"thresholds.{name} = {self.own[name]:g} {THRESHOLDS[name].unit}")
            if name in self.own
            else Evidence(
                "thresholds",
                f"{name} = {THRESHOLDS[name].default:g} {THRESHOLDS[name].unit} ({THRESHOLDS[name].source})",
            )
            for name in names
        )
