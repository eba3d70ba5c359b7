"""What the configuration says this node should have."""

from gpudoctor.facts.desk import Desk, Fact
from gpudoctor.verdicts import Evidence, Unread


class Expectations(Fact, frozen=True):
    """The expected hardware; None means that nobody said."""

    gpus: int | None

    @classmethod
    def gather(cls, desk: Desk) -> "Expectations | Unread":
        """From the effective configuration."""
        gpus = desk.config.expect.gpus
        return cls(gpus=gpus, read_from={"gpus": Evidence("configuration", f"expect.gpus = {gpus}")})
