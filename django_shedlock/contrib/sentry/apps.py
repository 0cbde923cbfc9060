"""The app that checks runs in with Sentry Crons, and its receivers."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sentry_sdk
from django.apps import AppConfig
from sentry_sdk.crons import MonitorStatus, capture_checkin

from django_shedlock import signals
from django_shedlock.clocks import uptime
from django_shedlock.contrib import at_end_of_child
from django_shedlock.contrib.slugs import slug_of
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import RunOutcome
from django_shedlock.schedules.cron import SHORTHANDS

if TYPE_CHECKING:
    from sentry_sdk.types import MonitorConfig

CHECK_IN_INTERVAL_SECONDS = 20.0
"""Sentry drops more than a few check-ins a minute."""


@dataclass
class CheckIn:
    """A check-in that is open; ``told_at`` is when Sentry was last told of it."""

    slug: str
    key: str
    began: float
    told_at: float


_open: WeakKeyDictionary[Lock, CheckIn] = WeakKeyDictionary()


class SentryConfig(AppConfig):
    """What to put into ``INSTALLED_APPS``: ``"django_shedlock.contrib.sentry"``."""

    name = "django_shedlock.contrib.sentry"
    label = "django_shedlock_sentry"

    def ready(self) -> None:
        signals.lock_acquired.connect(check_in)
        signals.lock_extended.connect(keep_open)
        signals.lock_lost.connect(check_out)
        signals.lock_released.connect(check_out)


def check_in(*, lock: Lock, **kwargs: Any) -> None:
    """Tell that the run of a tick begins, and how Sentry is to monitor its job."""
    # Others are no jobs that Sentry could miss, and a lock may be acquired often.
    if (schedule := lock.configuration.schedule) is None:
        return
    slug, now = slug_of(lock.name), uptime()
    minute = timedelta(minutes=1)
    # It is late after the lock's grace, and runs too long after its lease.
    monitor: MonitorConfig = {
        "schedule": {
            "type": "crontab",
            "value": SHORTHANDS.get(schedule.expression, schedule.expression),
        },
        "timezone": str(schedule.time_zone),
        "checkin_margin": max(1, -(-lock.configuration.grace // minute)),
        # Sentry counts from the beginning of the minute.
        "max_runtime": 1 - (-lock.configuration.lock_at_most_for // minute),
    }
    key = capture_checkin(slug, None, MonitorStatus.IN_PROGRESS, None, monitor)
    if key is not None:
        _open[lock] = CheckIn(slug, key, now, now)
        at_end_of_child(sentry_sdk.flush)


def keep_open(*, lock: Lock, **kwargs: Any) -> None:
    """Tell that the lease was extended: the time that Sentry allows begins anew."""
    found, now = _open.get(lock), uptime()
    if found is not None and now - found.told_at >= CHECK_IN_INTERVAL_SECONDS:
        found.told_at = now
        capture_checkin(found.slug, found.key, MonitorStatus.IN_PROGRESS)


def check_out(*, lock: Lock, released: bool = False, **kwargs: Any) -> None:
    """Tell how the run ended: with an error, too, as soon as its lock is lost."""
    if (found := _open.pop(lock, None)) is not None:
        outcome = RunOutcome.of(kwargs.get("exception"), released=released)
        status = MonitorStatus.ERROR if outcome.is_bad else MonitorStatus.OK
        capture_checkin(found.slug, found.key, status, uptime() - found.began)
