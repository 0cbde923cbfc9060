"""The app that pings an address when a run begins and ends, and its receivers."""

import atexit
from collections import defaultdict
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary

from django.apps import AppConfig

from django_shedlock import conf, signals
from django_shedlock.background import Timetable
from django_shedlock.clocks import uptime
from django_shedlock.contrib import at_end_of_child
from django_shedlock.contrib.slugs import slug_of
from django_shedlock.exceptions import described
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import RunOutcome
from django_shedlock.webhooks import post

WAITING_PINGS_LIMIT = 100
"""More pings for one host are left out."""
EXIT_TIMEOUT_SECONDS = 5.0


def _make_timetable() -> Timetable:
    return Timetable("pings", retries=False)


_hosts = defaultdict[str, Timetable](_make_timetable)
"""What pings each host, in order: one that is away holds up no other."""
_addresses: WeakKeyDictionary[Lock, str] = WeakKeyDictionary()
"""The address of each run that goes on and has one."""


class PingsConfig(AppConfig):
    """What to put into ``INSTALLED_APPS``: ``"django_shedlock.contrib.pings"``."""

    name = "django_shedlock.contrib.pings"
    label = "django_shedlock_pings"

    def ready(self) -> None:
        signals.lock_acquired.connect(ping_start)
        signals.lock_lost.connect(ping_end)
        signals.lock_released.connect(ping_end)
        atexit.register(flush)


def ping_start(*, lock: Lock, **kwargs: Any) -> None:
    """Ping that a run begins, at the address of the first pattern that matches."""
    for pattern, address in conf.PINGS.value.items():
        if fnmatchcase(lock.name, pattern):
            if address:
                name, slug = quote(lock.name, safe=""), slug_of(lock.name)
                _addresses[lock] = address.format(name=name, slug=slug)
                _ping(lock.name, _addresses[lock], "/start")
            return


def ping_end(*, lock: Lock, released: bool = False, **kwargs: Any) -> None:
    """Ping how a run ended, and why it failed: as soon as its lock is lost, too."""
    if (address := _addresses.pop(lock, None)) is None:
        return
    exception = kwargs.get("exception")
    if not RunOutcome.of(exception, released=released).is_bad:
        _ping(lock.name, address)
        return
    # Both need the models.
    from django_shedlock.history.texts import fitting, scrubbed
    from django_shedlock.models import LockRun

    lost = "The lock was lost: another worker may be running the same job."
    text = lost if exception is None else scrubbed(described(exception))
    fits = fitting(LockRun, exception_message=text)
    _ping(lock.name, address, "/fail", fits["exception_message"])


def flush() -> None:
    """Wait until all pings are sent, for ``EXIT_TIMEOUT_SECONDS`` at the most."""
    end = uptime() + EXIT_TIMEOUT_SECONDS
    for host in list(_hosts.values()):
        for ping in list(host.entries):
            host.wait_until_done(ping, max(0, end - uptime()))


def _ping(name: str, address: str, ending: str = "", text: str = "") -> None:
    parts = urlsplit(address)
    if len(_hosts[parts.netloc].entries) >= WAITING_PINGS_LIMIT:
        signals.logger.warning(
            "Lock %r: no ping, since %d wait.", name, WAITING_PINGS_LIMIT
        )
        return
    # Imported by the thread while the job forks, it would stay half of itself there.
    import_module("requests")
    path = parts.path.rstrip("/") + ending if ending else parts.path

    def send() -> None:
        _send(name, parts._replace(path=path).geturl(), text)

    _hosts[parts.netloc].add(object(), send)
    at_end_of_child(flush)


def _send(name: str, address: str, text: str) -> None:
    try:
        post(address, data=text.encode())
    except OSError as error:
        signals.logger.warning("Lock %r: its ping failed: %s", name, error)
