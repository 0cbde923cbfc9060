"""Faults as Prometheus sees them minute by minute, also if scrapes fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

QUIET_MINUTES = 60
"""The fault begins then."""
PLAYED_MINUTES = 240
REPORT_MINUTES = 25
"""At the latest so long after its beginning the fault is reported."""

Values = Callable[[int], float | None]
"""Get the minutes since the fault began, negative before; ``None``: no such series."""


def always(value: float) -> Values:
    """Return a value that the fault does not change."""
    return lambda since: value


def becomes(value: float, before: float | None = 0) -> Values:
    """Return a value that the fault changes."""
    return lambda since: before if since < 0 else value


def grows(beginning: float, before: float | None = 0) -> Values:
    """Return seconds that count on once the fault has begun."""
    return lambda since: before if since < 0 else beginning + 60 * since


def ends(values: Values) -> Values:
    """Return these values, which nobody can read once the fault has begun."""
    return lambda since: values(since) if since < 0 else None


def of(lock: str, **metrics: Values) -> dict[str, Values]:
    """Return the series of a lock, by metrics without ``shedlock_``."""
    labels = f'provider="default", lock="{lock}", instance="web-1"'
    return {f"shedlock_{name}{{{labels}}}": values for name, values in metrics.items()}


def of_provider(**metrics: Values) -> dict[str, Values]:
    """Return the series of a provider, by metrics without ``shedlock_``."""
    labels = 'provider="default", instance="web-1"'
    return {f"shedlock_{name}{{{labels}}}": values for name, values in metrics.items()}


QUIET = {
    **of_provider(
        store_up=always(1),
        history_up=always(1),
        clock_difference_seconds=always(-0.4),
        locks_left_out=always(0),
        unreadable=always(0),
    ),
    **of(
        "fine",
        held=always(0),
        running_seconds=lambda since: since % 3 * 20,
        usual_duration_seconds=always(30),
        last_duration_seconds=always(40),
        paused_seconds=always(0),
        expired=lambda since: float(since % 20 == 0),  # the next run ends it
        since_success_seconds=always(60),
        last_run_timestamp_seconds=always(0),
        consecutive_failures=lambda since: since % 3,
        requested=always(0),
        requested_seconds=lambda since: since % 10 * 60,
        unrecorded=always(0),
        overdue_seconds=always(0),
    ),
}
"""What there is besides the fault, and before it."""


@dataclass(frozen=True)
class Fault:
    """What is wrong, the series that show it, and the alerts, each with its lock."""

    text: str
    alerts: set[tuple[str, str]]
    series: Mapping[str, Values] = field(default_factory=dict)


JOB = "job"
FAULTS = [
    Fault(
        "a dead cron",
        {("ShedLockManyOverdue", "")},
        {
            name: values
            for number in range(13)
            for name, values in of(
                f"job {number}",
                overdue_seconds=grows(300 + number),
                last_run_timestamp_seconds=always(0),
            ).items()
        },
    ),
    Fault(
        "a job that nobody starts any more",
        {("ShedLockOverdue", JOB)},
        of(JOB, overdue_seconds=grows(300)),
    ),
    Fault(
        "a job that hangs in its first run",
        {("ShedLockRunsTooLong", JOB)},
        of(JOB, running_seconds=grows(7200)),
    ),
    Fault(
        "a job that failed three times",
        {("ShedLockJobFailing", JOB)},
        of(JOB, consecutive_failures=becomes(3, before=2), overdue_seconds=grows(9e3)),
    ),
    Fault(
        "a worker that was killed with its lock held",
        {("ShedLockExpired", JOB)},
        of(JOB, expired=becomes(1), overdue_seconds=grows(300)),
    ),
    Fault(
        "a lock that was lost under SIGSTOP, whose body went on",
        {("ShedLockLost", JOB)},
        # A loss is reported for an hour, so it is stopped again and again.
        of(
            JOB,
            since_loss_seconds=lambda since: since % 50 * 60 if since >= 0 else None,
        ),
    ),
    Fault(
        "a run that takes three times as long as usual",
        {("ShedLockRunsTooLong", JOB)},
        of(
            JOB,
            running_seconds=grows(1900),
            usual_duration_seconds=always(600),
            last_duration_seconds=always(610),
        ),
    ),
    Fault(
        "a pause without an end",
        {("ShedLockPaused", JOB)},
        of(JOB, paused_seconds=grows(24 * 3600)),
    ),
    Fault(
        "a request to run that nobody carries out",
        {("ShedLockRequestWaits", JOB)},
        of(JOB, requested_seconds=grows(0)),
    ),
    Fault(
        "a history that can't be written",
        {("ShedLockUnrecorded", "")},
        of(JOB, unrecorded=becomes(1)) | of("other", unrecorded=becomes(1)),
    ),
    Fault(
        "a history whose table is gone",
        {("ShedLockHistoryDown", "")},
        of(JOB, unrecorded=becomes(1)) | of_provider(history_up=becomes(0, before=1)),
    ),
    Fault(
        "a host whose clock is two minutes off the store's",
        {("ShedLockClockOff", "")},
        of_provider(clock_difference_seconds=becomes(-120)),
    ),
    Fault(
        "locks without metrics of their own",
        {("ShedLockLocksLeftOut", "")},
        of_provider(locks_left_out=becomes(1)),
    ),
    Fault(
        "a record that can't be read",
        {("ShedLockUnreadable", "")},
        of_provider(unreadable=becomes(1)),
    ),
    Fault(
        "a store that is down",
        {("ShedLockStoreDown", "")},
        {name: ends(values) for name, values in QUIET.items()}
        | of_provider(store_up=becomes(0, before=1)),
    ),
    Fault(
        "a page that nobody scrapes",
        {("ShedLockNotScraped", "")},
        {name: ends(values) for name, values in QUIET.items()},
    ),
]

FAILED_SCRAPES: dict[str, Callable[[int], bool]] = {
    "none": lambda minute: False,
    "every second": lambda minute: minute % 2 == 1,
    "every third": lambda minute: minute % 3 == 1,
    "two of three": lambda minute: minute % 3 != 0,
    "three in a row, at times": lambda minute: minute % 7 > 3,
}
"""Whether the scrape of a minute fails."""


def played(fault: Fault, fails: Callable[[int], bool]) -> dict[str, Any]:
    """Return a test for ``promtool`` that plays the fault after a quiet hour."""
    told = [
        {"labels": f"{{{_labels(alert, lock)}}}", "value": 1}
        for alert, lock in sorted(fault.alerts)
    ]
    going_on = PLAYED_MINUTES - QUIET_MINUTES - REPORT_MINUTES
    in_the_quiet_hour = {
        "expr": firing_for(QUIET_MINUTES - 2, 1),
        "eval_time": f"{QUIET_MINUTES - 1}m",
    }
    ever = {
        "expr": firing_for(PLAYED_MINUTES, 1),
        "eval_time": f"{PLAYED_MINUTES}m",
        "exp_samples": told,
    }
    without_a_gap = {**ever, "expr": firing_for(going_on, going_on)}
    return {
        "name": fault.text,
        "interval": "1m",
        "input_series": [
            {"series": name, "values": " ".join(samples(values, fails))}
            for name, values in (QUIET | dict(fault.series)).items()
        ],
        "promql_expr_test": [in_the_quiet_hour, ever, without_a_gap],
    }


def _labels(alert: str, lock: str) -> str:
    return f'alertname="{alert}"' + (f', lock="{lock}"' if lock else "")


def firing_for(minutes: int, least: int) -> str:
    """Return the query for what fired in at least so many of the last minutes."""
    fired = f'count_over_time(ALERTS{{alertstate="firing"}}[{minutes}m])'
    return f"count by (alertname, lock) ({fired} >= {least})"


def samples(values: Values, fails: Callable[[int], bool]) -> list[str]:
    """Return what Prometheus keeps: a series ends when a scrape fails, or lacks it."""
    kept = []
    for minute in range(PLAYED_MINUTES + 1):
        value = None if fails(minute) else values(minute - QUIET_MINUTES)
        kept.append("stale" if value is None else str(value))
    return kept
