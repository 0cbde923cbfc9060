"""The base of providers that ask a server through the client of another library."""

import _thread
import re
import threading
from abc import abstractmethod
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, finalize

from django.core.checks import CheckMessage, Error

from django_shedlock.exceptions import LockProviderError, message_of
from django_shedlock.forking import renewed_in_child
from django_shedlock.mutexes import Mutex
from django_shedlock.providers.entries import EntryLockProvider, Stored, Version

Client = TypeVar("Client")


def shown_url(url: str) -> str:
    """
    Return the scheme, the hosts and the path of a URL, for messages.

    Raises ``ValueError`` unless all libraries read the URL alike: if it is not clear
    where its password ends, a library may quote part of it. The error's text shows
    nothing of the URL.
    """
    host = r"(?:[\w.%-]+|\[[\da-fA-F:.%]+])(?::\d+)?"
    login, options = r"(?:[!\"$-.0->A-Z^-~]*@)?", r"(?:\?[!\"$-?A-~]*)?"
    pattern = (
        rf"(?P<scheme>[a-z][a-z\d+.-]*://)?{login}"
        rf"(?P<place>(?:{host}(?:,{host})*)?(?:/[^?#@]*)?){options}"
    )
    if not (found := re.fullmatch(pattern, url, re.ASCII)):
        raise ValueError(
            "its URL can't be read. A port is a number. Write what is neither a letter "
            "nor a digit in a user, a password or an option as in %40 for @"
        )
    return (found["scheme"] or "") + found["place"]


def check_files(options: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise ``OSError`` if an option of these ``names`` is no readable file."""
    for name in names:
        if options.get(name):
            Path(options[name]).open("rb").close()


class Clients(Generic[Client]):
    """
    The clients of one provider: one for all threads, or one for each thread.

    ``make`` makes a client when it is first needed, so nothing connects before. A
    forked child makes its own clients, and leaves its parent's connections alone.
    Override ``close_client()`` for a client that has no ``close()``.
    """

    def __init__(self, make: Callable[[], Client], *, for_each_thread: bool = False):
        self._make = make
        self._for_each_thread = for_each_thread
        self._inherited: list[object] = []
        self._at_end: finalize[..., object] | None = None
        self.forget()
        renewed_in_child(self)

    def forget(self) -> None:
        """Forget the clients: a forked child must not use its parent's."""
        if self._at_end is not None:
            # The child keeps them, or the garbage collector would close them.
            self._inherited.append(self._clients)
            self._at_end.detach()
        self._mutex = Mutex()
        self._clients: MutableMapping[object, Client]
        # The shared client has no thread of its own.
        self._clients = WeakKeyDictionary() if self._for_each_thread else {}
        # Python may collect garbage within any line. That line may hold what the
        # closing waits for: kazoo joins a thread that logs. So a thread closes them.
        self._at_end = finalize(self, self._close_in_thread, self._clients)
        self._at_end.atexit = False

    def get(self) -> Client:
        """Return the client of this thread, or the shared one; make it if needed."""
        key = threading.current_thread() if self._for_each_thread else None
        with self._mutex:
            if key not in self._clients:
                self._clients[key] = self._make()
            return self._clients[key]

    def discard(self, failed: Client) -> None:
        """
        Close this client; the next ``get()`` makes a new one.

        Threads that share it may all notice that it has failed. Only the first one
        closes it, and none of them closes the new one.
        """
        with self._mutex:
            keys = [key for key, each in self._clients.items() if each is failed]
            for key in keys:
                del self._clients[key]
        if keys:
            self.close_client(failed)

    def close(self) -> None:
        """Close all clients of this process; the next ``get()`` makes a new one."""
        with self._mutex:
            self._close_all(self._clients)

    @classmethod
    def _close_in_thread(cls, clients: MutableMapping[object, Client]) -> None:
        _thread.start_new_thread(cls._close_all, (clients,))

    @classmethod
    def _close_all(cls, clients: MutableMapping[object, Client]) -> None:
        while clients:
            cls.close_client(clients.popitem()[1])

    @staticmethod
    def close_client(client: Any) -> None:
        """Close this client."""
        client.close()


class ServerLockProvider(EntryLockProvider[Version, Stored]):
    """
    Reports the failures of a server, or of its client, in the same way for each store.

    ``client_options`` are the options of the client's library.
    """

    store: str
    """The name of the server, for people."""
    library: str
    """The name of the library that asks the server."""
    extra: str
    """The extra of this package that installs the library."""
    address: str
    """The option that says where the server is."""

    @property
    def _installation(self) -> str:
        return f'Install it: pip install "django-shedlock[{self.extra}]"'

    def __init__(
        self,
        alias: str,
        *,
        keep_alive: bool = False,
        history_database: str | None = None,
        **client_options: Any,
    ):
        super().__init__(
            alias, keep_alive=keep_alive, history_database=history_database
        )
        self.client_options = client_options

    def names(self) -> Iterable[str]:
        """Return the names that ``read_all()`` finds. Override one of the two."""
        return [name for name, _ in self.read_all(None)]

    @abstractmethod
    def try_options(self) -> None:
        """Make a client without connecting; raise an error if an option is wrong."""

    @abstractmethod
    def explain(self, error: Exception) -> tuple[str, bool] | None:
        """
        Return the text of an error of the library, for people, and its uncertainty.

        The latter says whether the server may have carried out the request all the
        same. Return ``None`` for any error that is not of the library: it counts as a
        lost connection.
        """

    def check(self) -> list[CheckMessage]:
        where, hint = f"SHEDLOCK_PROVIDERS[{self.alias!r}]", "Correct its OPTIONS."
        try:
            self.try_options()
        except ImportError as error:
            text, hint = f"{where} needs {self.library}: {error}", self._installation
        except Exception as error:  # the library's errors can't be named without it
            text = f"{where} has wrong options: {message_of(error)}"
        else:
            return []
        return [Error(text, hint=hint, id="shedlock.E002")]

    def advice(self, error: LockProviderError) -> str:
        hint = (
            f"No job with a lock runs until {self.store} answers. Start it, or correct "
            f"the option {self.address!r}."
        )
        text = str(error)
        # A server without TLS may end the handshake in one of these ways.
        is_ended = any(each in text for each in ("SSL", "reset by peer", "was closed"))
        if is_ended and "certificate" not in text.lower():
            hint += " If you use TLS: the server may speak no TLS at this address."
        return hint

    @contextmanager
    def asking(self, verb: str, name: str | None) -> Iterator[None]:
        """
        Turn errors of the body into ``LockProviderError``.

        The text is "Could not ``verb`` lock ``name``", or "the locks" for ``None``.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, ImportError):
                text, is_uncertain = f"{error}. {self._installation}", False
            elif explained := self.explain(error):
                text, is_uncertain = explained
            else:
                # The library does not know this error, so the server may have done it.
                text, is_uncertain = f"{type(error).__name__}: {error}", True
            what = "the locks" if name is None else f"lock {name!r}"
            where = f"in {self.store} (provider {self.alias!r})"
            failure = LockProviderError(f"Could not {verb} {what} {where}: {text}")
            failure.is_uncertain = is_uncertain
            raise failure from error
