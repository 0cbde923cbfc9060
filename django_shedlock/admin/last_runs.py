"""The last runs of a lock, on its page."""

from __future__ import annotations

from typing import Any

from django_shedlock.admin.charts import make_chart
from django_shedlock.admin.labels import holder, instant, length, outcome_badge
from django_shedlock.admin.shown import shown_provider
from django_shedlock.models import LockRun
from django_shedlock.outcomes import RunOutcome

RUNS = 30
"""So many are on the page."""


def last_runs(name: str) -> dict[str, Any]:
    """Return the rows and the chart of the lock's runs for the page's template."""
    provider = shown_provider()
    runs = LockRun.objects.using(provider.using).of_lock(name, provider.alias)
    newest_first: list[Any] = list(runs.with_outcome().order_by("-pk")[:RUNS])
    return {
        "shedlock_runs": [_row(run) for run in newest_first],
        "shedlock_chart": make_chart(newest_first),
    }


def _row(run: Any) -> dict[str, Any]:
    return {
        "run": run,
        "outcome": outcome_badge(RunOutcome(run.current_outcome)),
        "started": instant(run.started),
        "duration": length(run.duration),
        "worker": holder(run.locked_by, run.host, run.pid),
    }
