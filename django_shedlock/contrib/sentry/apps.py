"""The app that reports runs to Sentry Crons as check-ins, and its receivers."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
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
    """Report that the run of a tick begins, and how Sentry has to monitor its job."""
    # Without a schedule Sentry could miss no run, and a lock may be acquired often.
    if (schedule := lock.configuration.schedule) is None:
        return
    slug, now = slug_of(lock.name), uptime()
    minute = timedelta(minutes=1)
    # A run is late after the lock's grace, and too long after the lease.
    monitor: MonitorConfig = {
        **_expected(lock, schedule),
        "checkin_margin": max(1, -(-lock.configuration.grace // minute)),
        # Sentry counts from the beginning of the minute.
        "max_runtime": 1 - (-lock.configuration.lock_at_most_for // minute),
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
    # Sentry takes no second expression. So each check-in says how far off the next is.
    now = host_now()
    following = next(schedule.ticks_after(max(lock.tick or now, now)))
    minutes = -((now - following) // timedelta(minutes=1))
    return {
        "schedule": {"type": "interval", "value": minutes, "unit": "minute"},
        "timezone": zone,
    }


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
