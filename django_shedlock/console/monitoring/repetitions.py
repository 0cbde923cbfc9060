"""Jobs that schedulers start on several hosts, where each host runs the same tick."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.utils.translation import gettext_noop as _

from django_shedlock.clocks import local_text
from django_shedlock.console.monitoring.sentences import Said, say
from django_shedlock.console.monitoring.traces import read_history
from django_shedlock.durations import format_duration
from django_shedlock.fields import Kept
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRunQuerySet
from django_shedlock.models.runs import NEWS
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Trigger

AT_ONCE = timedelta(seconds=5)
"""Hosts whose clocks are synchronized start a tick within this time."""
NEWEST = 1000
"""Runs of the last day, of all locks, that are looked at."""


@dataclass(frozen=True)
class Repetition:
    """Two runs of a lock that began at once, one after the other, on two hosts."""

    host: str
    started: datetime
    later_host: str
    later_started: datetime

    def told(self) -> Said:
        """Return what happened, and what a developer should do."""
        apart = self.later_started - self.started
        apart -= apart % timedelta(milliseconds=1)
        return say(
            _(
                "Its job ran on %(host)s at %(at)s, and again on %(other)s %(apart)s "
                "later. If a scheduler on each host starts it, the first run had ended "
                "before the second host came. Give it schedule=, so that each tick "
                "runs once, or a lock_at_least_for such as 30s."
            ),
            host=self.host,
            at=local_text(self.started),
            other=self.later_host,
            apart=format_duration(apart),
        )


def repetitions(provider: LockProvider) -> dict[str, Repetition]:
    """
    Return the last repetition of each lock, if there is one among the newest runs.

    Only runs count that succeeded, and that no person started. One statement. Raises
    ``LockProviderError`` if the store failed.
    """

    def read(runs: LockRunQuerySet) -> list[Any]:
        # With a further condition, or an order by a column that is selected, databases
        # would not stop at the limit, in the index of the starts.
        columns = ("name", "host", "provider", "outcome", "trigger")
        newest = runs.since(NEWS).order_by("-started")
        return list(newest.values_list(*columns, Kept(F("started")))[:NEWEST])

    wanted = (provider.alias, RunOutcome.SUCCEEDED, Trigger.SCHEDULER)
    found: dict[str, Repetition] = {}
    later: dict[str, tuple[str, datetime]] = {}
    for name, host, *how, started in read_history(provider, read):
        if (*how,) == wanted:
            after, later[name] = later.get(name), (host, started)
            if after and after[0] != host and after[1] - started < AT_ONCE:
                found.setdefault(name, Repetition(host, started, *after))
    return found
