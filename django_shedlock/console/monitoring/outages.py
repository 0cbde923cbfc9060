"""What is known of a store that is away, while only Django's cache can keep it."""

import time
from contextlib import suppress
from datetime import timedelta

from django.core.cache import cache

from django_shedlock.locks.lock import own_host

OUTAGE_LIFETIME = timedelta(days=7)
"""For so long the cache knows that a store did not answer."""


class Outage:
    """
    What the cache knows of a store that did not answer, and of who told a reader.

    It is over when the store has answered for ``delay``. The key ``reminder`` keeps
    others from telling it again. Nothing is known if the cache fails, or keeps nothing.
    """

    def __init__(self, reminder: str, delay: timedelta):
        self._reminder = reminder
        self._key = f"{reminder}:outage"
        self._delay = delay

    def begin(self) -> None:
        """Note that this host has told of it."""
        self._write(None)

    def go_on(self) -> None:
        """Note that the store still does not answer this host."""
        if self._known()[0] == own_host():
            self._write(None)

    def is_over(self) -> bool:
        """Return whether this host told of it, and the store has answered since."""
        host, since = self._known()
        if host != own_host():
            return False
        if since is None:
            self._write(time.time())
            return False
        return time.time() - since >= self._delay.total_seconds()

    def end(self) -> bool:
        """Forget it; return whether this call did."""
        with suppress(Exception):
            cache.delete(self._reminder)
            return cache.delete(self._key)
        return False

    def end_again(self) -> None:
        """Take back ``end()``, since the reader could not be told."""
        self._write(0.0)

    def _known(self) -> tuple[str, float | None]:
        """Return which host told of it, and since when the store answers again."""
        with suppress(Exception):
            host, since = cache.get(self._key) or ("", None)
            return host, since
        return "", None

    def _write(self, back_since: float | None) -> None:
        with suppress(Exception):
            known = own_host(), back_since
            cache.set(self._key, known, OUTAGE_LIFETIME.total_seconds())
