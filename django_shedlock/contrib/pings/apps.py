"""The app that pings an address when a run begins and ends, and its receivers."""

from collections import defaultdict
from fnmatch import fnmatchcase
from importlib import import_module
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary

from django.apps import AppConfig

from django_shedlock import conf, signals
from django_shedlock.background import Timetable
from django_shedlock.contrib.slugs import slug_of
from django_shedlock.exceptions import described
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import RunOutcome
from django_shedlock.webhooks import post

WAITING_PINGS_LIMIT = 100
"""If so many pings wait for one host, further ones are left out."""


def _make_timetable() -> Timetable:
    return Timetable("pings", retries=False)


_hosts = defaultdict[str, Timetable](_make_timetable)
"""Pings each host in order. A host that does not answer delays no other."""
_addresses: WeakKeyDictionary[Lock, str] = WeakKeyDictionary()
"""The address to ping at the end of each run that goes on."""


class PingsConfig(AppConfig):
    """The app that ``INSTALLED_APPS`` names as ``"django_shedlock.contrib.pings"``."""

    name = "django_shedlock.contrib.pings"
    label = "django_shedlock_pings"

    def ready(self) -> None:
        signals.lock_acquired.connect(ping_start)
        signals.lock_lost.connect(ping_end)
        signals.lock_released.connect(ping_end)


def ping_start(*, lock: Lock, **kwargs: object) -> None:
    """Ping the address of the first pattern that matches, because a run begins."""
    for pattern, address in conf.PINGS.value.items():
        if fnmatchcase(lock.name, pattern):
            if address:
                name, slug = quote(lock.name, safe=""), slug_of(lock.name)
                _addresses[lock] = address.format(name=name, slug=slug)
                _ping(lock.name, _addresses[lock], "/start")
            return


def ping_end(
    *,
    lock: Lock,
    released: bool = False,
    exception: BaseException | None = None,
    **kwargs: object,
) -> None:
    """
    Ping how a run ended, and why it failed.

    A run whose lock is lost has failed at once, before its body ends.
    """
    if (address := _addresses.pop(lock, None)) is None:
        return
    if not RunOutcome.of(exception, released=released).is_bad:
        _ping(lock.name, address)
        return
    # These load the models, so no app can import them while apps are loading.
    from django_shedlock.history.texts import fitting
    from django_shedlock.models import LockRun
    from django_shedlock.scrubbing import scrubbed

    lost = "The lock was lost: another worker may be running the same job."
    text = lost if exception is None else scrubbed(described(exception))
    fits = fitting(LockRun, exception_message=text)
    _ping(lock.name, address, "/fail", fits["exception_message"])


def _ping(name: str, address: str, ending: str = "", text: str = "") -> None:
    parts = urlsplit(address)
    if len(_hosts[parts.netloc].entries) >= WAITING_PINGS_LIMIT:
        signals.logger.warning(
            "Lock %r: no ping, since %d wait.", name, WAITING_PINGS_LIMIT
        )
        return
    # If the thread imported it while the job forks, the child would have half a module.
    import_module("requests")
    path = parts.path.rstrip("/") + ending if ending else parts.path

    def send() -> None:
        _send(name, parts._replace(path=path).geturl(), text)

    _hosts[parts.netloc].add(object(), send)


def _send(name: str, address: str, text: str) -> None:
    try:
        post(address, data=text.encode())
    except OSError as error:
        signals.logger.warning("Lock %r: its ping failed: %s", name, error)
