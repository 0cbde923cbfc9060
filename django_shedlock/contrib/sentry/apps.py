"""The app that reports runs to Sentry Crons as check-ins, and its receivers."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

import sentry_sdk
from django.apps import AppConfig
from sentry_sdk.crons import MonitorStatus, capture_checkin

from django_shedlock import signals
from django_shedlock.clocks import host_now, uptime
from django_shedlock.contrib.slugs import slug_of
from django_shedlock.execution.shutdown import process_ends
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import RunOutcome
from django_shedlock.schedules.cron import Schedule

if TYPE_CHECKING:
    from sentry_sdk.types import MonitorConfig

# Sentry drops check-ins if there are more than a few in a minute.
CHECK_IN_INTERVAL_SECONDS = 20.0

IntervalUnit = Literal["day", "hour", "minute"]
CHECK_IN_MINUTE = timedelta(minutes=1)
INTERVAL_UNITS: dict[IntervalUnit, timedelta] = {
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": CHECK_IN_MINUTE,
}
"""Sentry's units of an interval, the longest first. It knows no seconds."""


@dataclass
class CheckIn:
    """
    An open check-in.

    ``slug`` is that of the monitor, ``key`` is Sentry's id of the check-in. The run
    began at ``began``, and Sentry last heard of it at ``reported_at``, by ``uptime()``.
    """

    slug: str
    key: str
    began: float
    reported_at: float


_open: WeakKeyDictionary[Lock, CheckIn] = WeakKeyDictionary()


class SentryConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock.contrib.sentry"``."""

    name = "django_shedlock.contrib.sentry"
    label = "django_shedlock_sentry"

    def ready(self) -> None:
        signals.lock_acquired.connect(check_in)
        signals.lock_extended.connect(keep_open)
        signals.lock_lost.connect(check_out)
        signals.lock_released.connect(check_out)
        process_ends.connect(send_check_ins)


def check_in(*, lock: Lock, **kwargs: object) -> None:
    """
    Report that the run of a tick begins, and how Sentry has to monitor its job.

    Of the runs of one minute, only the first is reported: Sentry expects no more.
    """
    # Without a schedule Sentry could miss no run, and a lock may be acquired often.
    if (schedule := lock.configuration.schedule) is None:
        return
    if _is_second_in_minute(lock, schedule):
        return
    slug, now = slug_of(lock.name), uptime()
    # A run is late after the lock's grace, and too long after the lease.
    monitor: MonitorConfig = {
        **_expected(lock, schedule),
        "checkin_margin": max(1, -(-lock.configuration.grace // CHECK_IN_MINUTE)),
        # Sentry counts from the beginning of the minute.
        "max_runtime": 1 - (-lock.configuration.lock_at_most_for // CHECK_IN_MINUTE),
    }
    key = capture_checkin(slug, None, MonitorStatus.IN_PROGRESS, None, monitor)
    # Most releases of the SDK return a key even if it is not set up.
    if key is not None and sentry_sdk.get_client().is_active():
        _open[lock] = CheckIn(slug, key, now, now)


def _expected(lock: Lock, schedule: Schedule) -> "MonitorConfig":
    """Return when Sentry has to expect the next run."""
    zone = str(schedule.time_zone)
    if (expression := schedule.five_fields) is not None:
        return {
            "schedule": {"type": "crontab", "value": expression},
            "timezone": zone,
        }
    if (interval := schedule.single_interval) is not None:
        for unit, size in INTERVAL_UNITS.items():
            if interval % size == timedelta(0):
                return _every(interval // size, unit, zone)
    # Sentry takes neither several schedules nor seconds. So each check-in says how far
    # off the next one is, in minutes.
    now = host_now()
    known = max(lock.tick or now, now)
    if schedule.interval < CHECK_IN_MINUTE:
        known = max(
            known, _minute_of(lock.tick or now) + CHECK_IN_MINUTE - timedelta.resolution
        )
    following = next(schedule.ticks_after(known))
    return _every(-((now - following) // CHECK_IN_MINUTE), "minute", zone)


def _every(value: int, unit: IntervalUnit, zone: str) -> "MonitorConfig":
    return {
        "schedule": {"type": "interval", "value": value, "unit": unit},
        "timezone": zone,
    }


def _is_second_in_minute(lock: Lock, schedule: Schedule) -> bool:
    """Return whether the job has begun another tick in the minute of its tick."""
    tick, former = lock.tick, lock.former_tick
    if tick is None or former is None or schedule.interval >= CHECK_IN_MINUTE:
        return False
    return former < tick and _minute_of(former) == _minute_of(tick)


def _minute_of(tick: datetime) -> datetime:
    return tick.replace(second=0, microsecond=0)


def keep_open(*, lock: Lock, **kwargs: object) -> None:
    """Report that the lease was extended, so that Sentry allows a longer run."""
    found, now = _open.get(lock), uptime()
    if found is not None and now - found.reported_at >= CHECK_IN_INTERVAL_SECONDS:
        found.reported_at = now
        capture_checkin(found.slug, found.key, MonitorStatus.IN_PROGRESS)


def check_out(
    *,
    lock: Lock,
    released: bool = False,
    exception: BaseException | None = None,
    **kwargs: object,
) -> None:
    """Report how the run ended. A run whose lock is lost ends with an error at once."""
    if (found := _open.pop(lock, None)) is not None:
        outcome = RunOutcome.of(exception, released=released)
        status = MonitorStatus.ERROR if outcome.is_bad else MonitorStatus.OK
        capture_checkin(found.slug, found.key, status, uptime() - found.began)


def send_check_ins(**kwargs: object) -> None:
    """Wait until Sentry has the check-ins: the process ends, perhaps without atexit."""
    sentry_sdk.flush()
