"""The last runs of a lock: what its page shows of them, and what they say together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any

from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import pgettext

from django_shedlock.console.admin.choice import admin_provider
from django_shedlock.console.admin.labels import (
    NOTHING,
    TRIGGERS,
    filled_in,
    length,
)
from django_shedlock.locks.states import RunOutcome
from django_shedlock.models import LockRun, LockRunQuerySet
from django_shedlock.schedules.state import Trigger

RUNS = 30
"""Number of runs on a lock's page."""
COUNTED = 100
"""Number of runs that the success rate and the usual durations are computed of."""
EXCERPT = 120
"""Characters of an exception's message in a list."""


def with_excerpts(runs: LockRunQuerySet) -> LockRunQuerySet:
    """Add the beginning of each message; leave long texts to a run's own page."""
    beginning = Left("exception_message", EXCERPT)
    texts = ("exception_message", "exception_traceback")
    return runs.annotate(excerpt=beginning).defer(*texts)


def last_runs(request: HttpRequest, name: str) -> Sequence[Any]:
    """Return the newest runs of the lock, ``COUNTED`` at the most, the newest first."""
    provider = admin_provider(request)
    runs = LockRun.objects.using(provider.using).of_lock(name, provider.alias)
    found = with_excerpts(runs.with_outcome().with_elapsed())
    return list(found.order_by("-pk")[:COUNTED])


@dataclass(frozen=True)
class Statistics:
    """
    The success rate of the ended runs, and the usual durations of the good ones.

    The durations are ``None`` if no run has succeeded.
    """

    runs: int
    succeeded: int
    median: timedelta | None
    p95: timedelta | None

    @property
    def rate(self) -> str:
        """The success rate in percent; only if all succeeded it is 100."""
        percent = 100 * self.succeeded / self.runs
        return f"{math.floor(percent)} %"

    @property
    def shown_median(self) -> str:
        """The median, as people read it."""
        return length(self.median)

    @property
    def shown_p95(self) -> str:
        """The duration that 95 % of the good runs did not exceed."""
        return length(self.p95)


def statistics_of(runs: Sequence[Any]) -> Statistics | None:
    """Return the statistics of these runs; ``None`` if none of them has ended."""
    outcomes = [RunOutcome(run.current_outcome) for run in runs]
    ended = sum(outcome.is_end for outcome in outcomes)
    if not ended:
        return None
    succeeded = outcomes.count(RunOutcome.SUCCEEDED)
    durations = sorted(
        run.duration
        for run, outcome in zip(runs, outcomes, strict=True)
        if outcome is RunOutcome.SUCCEEDED and run.duration is not None
    )
    if not durations:
        return Statistics(ended, succeeded, None, None)
    nearest_rank = math.ceil(0.95 * len(durations)) - 1
    return Statistics(ended, succeeded, median(durations), durations[nearest_rank])


def took(run: Any) -> str | SafeString:
    """Return how long the run took or, if it goes on, has taken so far."""
    if RunOutcome(run.current_outcome) is not RunOutcome.RUNNING:
        return length(run.duration)
    text = pgettext("shedlock", "%(time)s so far")
    return filled_in(text, time=length(run.elapsed))


def started_by(run: Any) -> SafeString:
    """Return what started the run and, if a person did, who."""
    if not run.trigger:
        return NOTHING
    label = TRIGGERS.get(run.trigger, run.trigger)
    if run.trigger == Trigger.SCHEDULER and not run.operator:
        return format_html('<span class="shedlock-quiet">{}</span>', label)
    return format_html("{} <bdi>{}</bdi>", label, run.operator)


def excerpt(run: Any) -> SafeString:
    """Return the exception's type and the beginning of its message."""
    if not run.exception_type:
        return NOTHING
    return format_html(
        '<bdi title="{}" class="shedlock-exception">{}</bdi> <bdi>{}{}</bdi>',
        run.exception_type,
        run.exception_type.rpartition(".")[2],
        run.excerpt,
        "…" if len(run.excerpt) == EXCERPT else "",
    )
