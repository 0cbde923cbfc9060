"""The page of one lock: its findings, five answers, its runs, and its trail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.console.admin.actions import Confirmation
from django_shedlock.console.admin.answers import LockAnswers
from django_shedlock.console.admin.attention import search
from django_shedlock.console.admin.charts import Ticks, make_chart
from django_shedlock.console.admin.choice import admin_provider, query_of, subtitle_of
from django_shedlock.console.admin.labels import (
    holder,
    instant,
    outcome_badge,
)
from django_shedlock.console.admin.last_runs import (
    RUNS,
    excerpt,
    started_by,
    statistics_of,
    took,
)
from django_shedlock.console.admin.rows import told
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import default_duration
from django_shedlock.locks.states import LockState, RunOutcome

PAGE = "admin/django_shedlock/lockrecord/page.html"
"""What the page refreshes."""


def context_of(
    request: HttpRequest,
    record: Any,
    *,
    offered: Iterable[Confirmation],
    runs: Sequence[Any] | None,
    trail: Sequence[Any] | None,
    all_actions: bool,
    site: str,
) -> dict[str, Any]:
    """
    Return what the page's templates need.

    ``runs`` and ``trail`` are ``None`` if the user may not see them; ``all_actions``
    tells whether the ``site`` has the list of what operators did.
    """
    answers = LockAnswers(record, runs, site)
    state = LockState(record.state)
    return {
        "title": record.name,
        "subtitle": subtitle_of(request),
        "shedlock_provider": query_of(admin_provider(request).alias),
        "shedlock_of_lock": query_of(
            admin_provider(request).alias, name__exact=record.name
        ),
        "shedlock_name": record.name,
        "shedlock_actions": [each for each in offered if state in each.states],
        "shedlock_checkbox": ACTION_CHECKBOX_NAME,
        "shedlock_findings": told_findings(request, record.name),
        "shedlock_answers": answers.answers,
        "shedlock_details": answers.details,
        "shedlock_trail": trail,
        "shedlock_has_actions": all_actions,
        **({} if runs is None else _runs_context(record, runs)),
    }


def _runs_context(record: Any, runs: Sequence[Any]) -> dict[str, Any]:
    status, grace = record.status, default_duration(conf.GRACE)
    ticks = None
    if status.schedule is not None:
        ticks = Ticks(status.schedule, aware(status.clock) - grace)
    shown = runs[:RUNS]
    return {
        "shedlock_runs": [_row(run) for run in shown],
        "shedlock_chart": make_chart(shown, record.usual_duration, ticks),
        "shedlock_statistics": statistics_of(runs),
    }


def told_findings(request: HttpRequest, name: str) -> Sequence[str]:
    """Return the lock's findings in the words of ``check``, without its name."""
    try:
        findings = search().of_locks(admin_provider(request), [name]).get(name, [])
    except LockProviderError as error:
        return [str(error)]
    return [told(finding).text for finding in findings]


def _row(run: Any) -> dict[str, Any]:
    return {
        "run": run,
        "outcome": outcome_badge(RunOutcome(run.current_outcome)),
        "started": instant(run.started),
        "duration": took(run),
        "cause": started_by(run),
        "worker": holder(run.locked_by, run.host, run.pid),
        "exception": excerpt(run) if run.exception_type else "",
    }
