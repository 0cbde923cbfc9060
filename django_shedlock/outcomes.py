"""How a run of a job ended."""

from __future__ import annotations

from enum import StrEnum


def is_success(exception: BaseException | None) -> bool:
    """Return whether a body that ended so has done its work."""
    return exception is None or (
        isinstance(exception, SystemExit) and exception.code in (None, 0)
    )


class RunOutcome(StrEnum):
    """
    The outcome of a run.

    ``LOST`` is a run whose lock was not its own any more at its end, however its body
    ended; ``ABANDONED`` one whose holder died, or has not ended yet after its lease.
    """

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    ABANDONED = "abandoned"

    @property
    def is_bad(self) -> bool:
        """Whether somebody should have a look."""
        return self in {RunOutcome.FAILED, RunOutcome.LOST, RunOutcome.ABANDONED}

    @property
    def is_end(self) -> bool:
        """Whether the run is over, as far as anybody can know."""
        return self is not RunOutcome.RUNNING
