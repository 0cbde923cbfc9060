"""The ordered end of a process: its last releases, and then its threads."""

from django.core.exceptions import ImproperlyConfigured
from django.dispatch import Signal

from django_shedlock import conf
from django_shedlock.background import end_threads
from django_shedlock.clocks import uptime
from django_shedlock.durations import format_left, parse_duration
from django_shedlock.exceptions import LockLost
from django_shedlock.execution.active import locks_held, take_left_locks
from django_shedlock.execution.keep_alive import late_releases, release_later, unguard
from django_shedlock.signals import logger

THREADS_TIMEOUT_SECONDS = 1.0
"""How long to wait for the threads if the releases have used up the timeout."""

process_ends: Signal = Signal()
"""Tells integrations to send what they have gathered, within a few seconds."""


def exit_timeout_seconds() -> float:
    """Return ``SHEDLOCK_EXIT_TIMEOUT``; its default if the project's is no duration."""
    try:
        return parse_duration(conf.EXIT_TIMEOUT.value).total_seconds()
    except (ImproperlyConfigured, ValueError) as error:  # a check reports it as well
        logger.error("SHEDLOCK_EXIT_TIMEOUT is ignored: %s", error)
        return parse_duration(conf.EXIT_TIMEOUT.default).total_seconds()


def shut_down() -> None:
    """
    End this process's locks and background threads in order, before it exits.

    Release the locks that nobody runs under any more. Wait for all late releases, for
    ``SHEDLOCK_EXIT_TIMEOUT`` at the most. Then end the package's threads and close
    its connections.

    Python calls it when an interpreter ends. Call it yourself, outside of any lock,
    right before ``os._exit()``, which ends a process without that. A lock whose body
    another thread still runs stays held until its lease ends; that is logged, as is a
    lock that could not be released in time.
    """
    until = uptime() + exit_timeout_seconds()
    try:
        for lock in take_left_locks():
            unguard(lock)
            release_later(lock, LockLost("its process ended before its job did"))
        late_releases.wait_until_empty(max(0.0, until - uptime()))
    finally:  # after Ctrl-C, too
        _report_held_locks()
        process_ends.send_robust(None)
        end_threads(max(THREADS_TIMEOUT_SECONDS, until - uptime()))


def _report_held_locks() -> None:
    for lock in list(late_releases.entries):
        logger.error(
            "Lock %r could not be released before its process ended. It stays held for "
            "%s more, until its lease ends.",
            lock.name,
            format_left(lock.remaining()),
        )
    for lock in locks_held():
        logger.warning(
            "Lock %r: its process ends while a daemon thread runs its job. It stays "
            "held for %s more, until its lease ends.",
            lock.name,
            format_left(lock.remaining()),
        )
