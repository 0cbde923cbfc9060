"""How etcd is asked: the members of a cluster, and what its JSON gateway is sent."""

import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from django_shedlock.providers.servers import Clients, shown_url


class MemberClients(Clients[list[Any]]):
    """Clients of etcd3gw: one for each member, all of them closed together."""

    @staticmethod
    def close_client(client: list[Any]) -> None:
        """See Clients.close_client()."""
        for each in client:
            each.session.close()


class Unanswered(Exception):
    """No member has done what it was asked; if ``is_uncertain``, one may have."""

    is_uncertain = False


class Members:
    """
    The members of a cluster, which are asked in turn until one answers.

    Each thread has its own client of each. The one that answered last comes first. With
    a user they share one login, which is renewed when it is over.
    """

    endpoint_example = (
        'Write it as "https://HOST:2379", and a login as the options user and password.'
    )

    def __init__(
        self, endpoints: str | Sequence[str], timeout: float, options: dict[str, Any]
    ):
        urls = [endpoints] if isinstance(endpoints, str) else [*endpoints]
        self.urls: list[str] = urls
        if not urls:
            raise ValueError(
                f"endpoints={endpoints!r} names no member. {self.endpoint_example}"
            )
        for pair in (("user", "password"), ("cert_cert", "cert_key")):
            if len({options.get(each) is None for each in pair}) > 1:
                raise ValueError(f"{' and '.join(pair)} belong together: give both")
        self._login = {"name": options.pop("user"), "password": options.pop("password")}
        self._token = ""
        self.options: dict[str, Any] = {
            "timeout": timeout / len(urls),
            "api_path": "/v3/",
            **options,
        }
        self._addresses: list[dict[str, Any]] = []
        for url in urls:
            shown, parts = shown_url(url), urlsplit(url)
            is_http = parts.scheme in {"http", "https"} and parts.hostname
            if not is_http or shown != url or parts.path.strip("/"):
                raise ValueError(
                    f"{shown!r} is no endpoint of etcd. {self.endpoint_example}"
                )
            address = {"host": parts.hostname, "port": parts.port or 2379}
            self._addresses.append({"protocol": parts.scheme, **address})
        self.clients: MemberClients = MemberClients(self.connect, for_each_thread=True)

    def connect(self) -> list[Any]:
        """Return new clients; an error, such as ``TypeError``, if there can't be."""
        from etcd3gw import Etcd3Client

        clients = [Etcd3Client(**each, **self.options) for each in self._addresses]
        for client in clients:
            # No variable replaces our certificates, diverts a request or logs in.
            client.session.trust_env = False
        return clients

    def ask(self, path: str, request: dict[str, Any]) -> tuple[Any, float]:
        """
        Return the first member's answer, and its clock: seconds since 1970.

        Raises ``Unanswered``, caused by the error of the member that was asked last.
        """
        clients, is_uncertain, last = self.clients.get(), False, None
        from etcd3gw.exceptions import Etcd3Exception
        from requests import RequestException
        from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

        for client in clients:
            seen: list[Any] = []
            try:
                answer = self._post(client, path, request, seen)
            except (Etcd3Exception, OSError) as error:
                # Its context is an error of requests, which holds one of urllib3.
                causes = getattr(error.__context__, "args", ()) or (None,)
                reason = getattr(causes[0], "reason", None)
                is_unsent = isinstance(reason, ConnectTimeoutError | NewConnectionError)
                # A certificate that is no file stops requests before.
                is_unsent |= not isinstance(error, Etcd3Exception | RequestException)
                is_refused = seen and _is_refusal(seen[-1])
                is_uncertain = is_uncertain or not (is_unsent or is_refused)
                last = error
            else:
                clients.remove(client)
                clients.insert(0, client)
                # It says the second, and this host's clock only where in it.
                date = seen[-1].headers["Date"]
                second = parsedate_to_datetime(date).timestamp()
                return answer, min(max(time.time(), second), second + 1)
        failure = Unanswered(getattr(last, "detail_text", None) or str(last))
        failure.is_uncertain = is_uncertain
        raise failure from last

    def _post(
        self, client: Any, path: str, request: dict[str, Any], seen: list[Any]
    ) -> Any:
        """Return the answer of one member; what it sends is added to ``seen``."""
        from etcd3gw.exceptions import Etcd3Exception

        def note(response: Any, **_: Any) -> None:
            seen.append(response)

        def post(path: str, request: dict[str, Any], token: str) -> Any:
            url = f"{client.base_url}/v3/{path}"
            headers = {"Authorization": token or None}
            hooks = {"response": note}
            return client.post(url, json=request, headers=headers, hooks=hooks)

        if self._token or not self._login["name"]:
            try:
                return post(path, request, self._token)
            except Etcd3Exception:  # the login may be over, or older than its user
                if not self._token or not seen or not _is_refusal(seen[-1]):
                    raise
        self._token = post("auth/authenticate", self._login, "")["token"]
        return post(path, request, self._token)


@dataclass(frozen=True)
class Known:
    """A key as etcd has it; ``revision`` is 0 if there is none."""

    value: bytes = b""
    revision: int = 0
    lease: int = 0


def read_key(key: bytes, *, is_prefix: bool = False) -> dict[str, Any]:
    """Return the step that reads a key, or all keys that begin so, in their order."""
    wanted = {"key": _text(key)}
    if is_prefix:
        # All keys up to the prefix with its last byte one higher begin with it.
        wanted["range_end"] = _text(key[:-1] + bytes([key[-1] + 1]))
    return {"request_range": wanted}


def put_key(key: bytes, value: bytes, lease: int = 0) -> dict[str, Any]:
    """Return the step that writes a key, which ends with the lease, if one is given."""
    pair = {"key": _text(key), "value": _text(value), "lease": str(lease)}
    return {"request_put": pair}


def delete_key(key: bytes) -> dict[str, Any]:
    """Return the step that deletes a key."""
    return {"request_delete_range": {"key": _text(key)}}


def unchanged(key: bytes, revision: int) -> dict[str, Any]:
    """Return the condition that a key is as it was at this revision."""
    condition = {"target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}
    return {"key": _text(key), **condition}


def answers(result: dict[str, Any]) -> dict[bytes, Known]:
    """Return the keys that the reading steps of a transaction found."""
    return {
        b64decode(pair["key"]): Known(
            b64decode(pair.get("value", "")),
            int(pair["mod_revision"]),
            int(pair.get("lease", 0)),
        )
        for each in result.get("responses", ())
        for pair in each.get("response_range", {}).get("kvs", ())
    }


def _is_refusal(response: Any) -> bool:
    # What etcd did not do: other errors may come after it was done.
    return response.status_code in {400, 401, 403}


def _text(key: bytes) -> str:
    return b64encode(key).decode()
