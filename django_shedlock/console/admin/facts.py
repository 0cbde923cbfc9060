"""What a lock's page tells: what its job does, who runs it, is it alive, what next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import pgettext

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.console.admin import labels
from django_shedlock.console.admin.filters import query_of
from django_shedlock.durations import format_seconds
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.states import LockState, RunOutcome, is_unusual

INSTANTS = ("lock_at_least_until", "heartbeat_at", "released_at", "tick", "due_at")
HELD = ("locked_at", "lock_until")
"""Instants of a lock that was ever held."""


def facts_of(record: Any, runs: Sequence[Any] | None, site: str) -> dict[str, Any]:
    """
    Return what the page's template tells of a lock.

    ``record`` comes from the admin's queryset. ``runs`` are the last ones, the newest
    first; ``None`` if the user may not see them. ``site`` is the name of the admin site
    that has their pages.
    """
    status, clock = record.status, aware(record.clock)
    known = [*INSTANTS, *(HELD if record.locked_by else ())]
    facts: dict[str, Any] = {
        "record": record,
        "instants": {
            **dict.fromkeys(HELD, labels.NOTHING),
            **{each: labels.instant(getattr(record, each)) for each in known},
        },
        "status": status,
        "state": labels.state_badge(status.state),
        "may_run": status.state.may_run,
        "left": _isolated(format_seconds(status.remaining)),
    }
    if record.locked_by:
        facts |= {
            "holder": labels.holder(
                record.locked_by, *split_identity(record.locked_by)
            ),
            "since": labels.ago(clock - aware(record.locked_at), record.locked_at),
        }
    if status.state is LockState.RUNNING:
        usual = record.usual_duration
        facts |= {
            "held_for": _isolated(labels.rough_length(status.held_for)),
            "usual": None if usual is None else _isolated(labels.length(usual)),
            "is_unusual": is_unusual(status.state, status.held_for, usual),
            "meter": labels.lease_meter(record.lease_used),
        }
    elif status.state is LockState.EXPIRED:
        facts["over_for"] = _isolated(labels.rough_length(max(-record.remaining, ZERO)))
    if status.state.may_run and record.heartbeat_at:
        beat = clock - aware(record.heartbeat_at)
        facts["heartbeat"] = _isolated(labels.rough_length(beat))
    for run in runs or ():
        if RunOutcome(run.current_outcome).is_end:
            page = "admin:django_shedlock_lockrun_change"
            facts |= {
                "run": run,
                "run_page": reverse(page, args=[quote(run.pk)], current_app=site)
                + query_of(run.provider),
                "outcome": labels.outcome_badge(run.current_outcome),
                "took": None
                if run.duration is None
                else _isolated(labels.length(run.duration)),
                "began": labels.ago(run.elapsed, run.started),
                "failure": labels.excerpt(run) if run.exception_type else "",
            }
            break
    else:
        if record.last_outcome is not None:
            facts["outcome"] = labels.outcome_badge(record.last_outcome)
    if record.schedule is not None:
        if (tick := status.next_tick) is not None:
            ahead = tick - clock
            text = labels.filled_in(
                pgettext("shedlock", "in %(time)s"), time=labels.rough_length(ahead)
            )
            facts["next_tick"] = labels.with_instant(text, tick, ahead)
        late = status.overdue_since(default_duration(conf.GRACE))
        facts["overdue_since"] = None if late is None else labels.instant(late)
    return facts


def _isolated(text: str) -> SafeString:
    return labels.shown("isolated", text=text)
