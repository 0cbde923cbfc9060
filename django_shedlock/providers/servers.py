"""The base of providers that ask a server, by the client of another library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.core.checks import CheckMessage, Error

from django_shedlock.exceptions import LockProviderError, message_of
from django_shedlock.locks.states import LockStatus
from django_shedlock.providers.comparing import EntryLockProvider
from django_shedlock.providers.entries import Entry, unreadable_status, wall_clock


class Store(NamedTuple):
    """A store's name, the library that reaches it, and the extra that installs that."""

    name: str
    library: str
    extra: str


class Failure(NamedTuple):
    """What a store's failure says, and whether it may have done what it was asked."""

    text: str
    is_uncertain: bool


class ServerLockProvider(EntryLockProvider):
    """
    Tells what fails between this process and a server, in the same words for each.

    ``store`` names it.
    """

    store: Store

    @abstractmethod
    def try_options(self) -> None:
        """Make a client, which asks nobody; raise what is wrong with the options."""

    @abstractmethod
    def failure(self, error: Exception) -> Failure | None:
        """Return what the error of a request says; ``None`` if it is none of those."""

    def check(self) -> list[CheckMessage]:
        """See LockProvider.check()."""
        where, hint = f"SHEDLOCK_PROVIDERS[{self.alias!r}]", "Correct its OPTIONS."
        try:
            self.try_options()
        except ImportError as error:
            text, hint = f"{where} needs {self.store.library}: {error}", self._install
        except Exception as error:  # without the library its errors are unknown, too
            text = f"{where} has wrong options: {message_of(error)}"
        else:
            return []
        return [Error(text, hint=hint, id="shedlock.E002")]

    @contextmanager
    def asking(self, verb: str, name: str | None) -> Iterator[None]:
        """Let a failure name the lock, or all of them, and the provider."""
        try:
            yield
        except ImportError as error:
            text = f"{error}. {self._install}"
            raise self._failed(verb, name, Failure(text, False)) from error
        except Exception as error:
            failure = self.failure(error)
            if failure is None:
                raise
            raise self._failed(verb, name, failure) from error

    def _failed(
        self, verb: str, name: str | None, failure: Failure
    ) -> LockProviderError:
        what = "the locks" if name is None else f"lock {name!r}"
        where = f"in {self.store.name} (provider {self.alias!r})"
        error = LockProviderError(f"Could not {verb} {what} {where}: {failure.text}")
        error.is_uncertain = failure.is_uncertain
        return error

    @property
    def _install(self) -> str:
        return f'Install it: pip install "django-shedlock[{self.store.extra}]"'


def statuses_at(
    now: float, names: Iterable[str], parse: Callable[[str], Entry | None]
) -> list[LockStatus]:
    """Return the status of each name for which ``parse`` returns an entry, or fails."""
    found = (_status(name, now, parse) for name in names)
    return [status for status in found if status is not None]


def _status(
    name: str, now: float, parse: Callable[[str], Entry | None]
) -> LockStatus | None:
    clock = wall_clock(now)
    try:
        entry = parse(name)
    except ValueError as error:
        return unreadable_status(name, str(error), clock)
    return None if entry is None else entry.status(name, now, clock)
