"""Time: how much of a run's budget is left."""

import time


class Deadline:
    """A point on the monotonic clock by which a run must be over."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    def sooner(self, seconds: float) -> "Deadline":
        """A deadline at most that many seconds away, and never later than this one."""
        return Deadline(min(seconds, self.remaining))
