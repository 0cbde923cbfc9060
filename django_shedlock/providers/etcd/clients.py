"""The members of an etcd cluster, which are asked in turn until one answers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

EXAMPLE = 'Write it as "http://HOST:2379" or "https://HOST:2379".'


class NoAnswer(Exception):
    """No member has done what it was asked; if ``is_uncertain``, one may have."""

    def __init__(self, reason: str, *, is_uncertain: bool):
        super().__init__(reason)
        self.is_uncertain = is_uncertain


class Members:
    """
    The clients of one provider: for each thread one of each member.

    Nothing is connected before it is needed. A forked child connects anew.
    """

    def __init__(
        self, endpoints: str | Sequence[str], timeout: float, options: dict[str, Any]
    ):
        self.urls = urls = [endpoints] if isinstance(endpoints, str) else [*endpoints]
        if not urls:
            raise ValueError(f"endpoints={endpoints!r} names no member. {EXAMPLE}")
        self._addresses = [_address(url) for url in urls]
        self._timeout = timeout / len(urls)
        self._options = options
        self._of_threads = threading.local()

    def ask(self, path: str, request: dict[str, Any]) -> tuple[Any, float]:
        """
        Return the first member's answer, and its clock: seconds since 1970.

        Raises ``NoAnswer``, caused by the error of the member that was asked last.
        """
        from etcd3gw.exceptions import Etcd3Exception
        from requests import RequestException

        is_uncertain, last = False, None
        for client in self._in_turn():
            try:
                answer = client.post(f"{client.base_url}/v3/{path}", json=request)
            except (Etcd3Exception, RequestException) as error:
                is_uncertain, last = is_uncertain or _was_sent(error), error
            else:
                self._of_threads.first = client
                return answer, self._of_threads.clock
        reason = getattr(last, "detail_text", None) or str(last)
        raise NoAnswer(reason, is_uncertain=is_uncertain) from last

    def make(self) -> list[Any]:
        """Return new clients; an error, such as ``TypeError``, if there can't be."""
        from etcd3gw import Etcd3Client

        common = {"timeout": self._timeout, "api_path": "/v3/", **self._options}
        made = [Etcd3Client(**address, **common) for address in self._addresses]
        for client in made:
            client.session.hooks["response"] = [self._note_clock]
        return made

    def close(self) -> None:
        """Close the connections of this thread."""
        for client in vars(self._of_threads).pop("clients", ()):
            client.session.close()

    def _in_turn(self) -> Iterator[Any]:
        # The one that has answered last comes first.
        mine = self._of_threads
        if getattr(mine, "pid", None) != os.getpid():
            mine.clients, mine.pid, mine.first = self.make(), os.getpid(), None
        elif "clients" not in vars(mine):
            mine.clients, mine.first = self.make(), None
        yield from sorted(mine.clients, key=lambda client: client is not mine.first)

    def _note_clock(self, response: Any, **kwargs: Any) -> None:
        # It tells the second, and this host's clock only where in it.
        second = parsedate_to_datetime(response.headers["Date"]).timestamp()
        self._of_threads.clock = min(max(time.time(), second), second + 1)


def _address(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    is_http = parts.scheme in {"http", "https"} and parts.hostname
    if not is_http or parts.username is not None or parts.path.strip("/"):
        # It may hold a password, so the message has only its end.
        shown = url.rpartition("@")[2]
        raise ValueError(f"{shown!r} is no endpoint of etcd. {EXAMPLE}")
    port = parts.port or 2379
    return {"protocol": parts.scheme, "host": parts.hostname, "port": port}


def _was_sent(error: Exception) -> bool:
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    # etcd3gw raises its error from that of requests, which holds that of urllib3.
    arguments = getattr(error.__context__, "args", ()) or (None,)
    reason = getattr(arguments[0], "reason", None)
    return not isinstance(reason, ConnectTimeoutError | NewConnectionError)
