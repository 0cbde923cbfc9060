"""Ask etcd: the members of a cluster, and the requests to its JSON gateway."""

import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django_shedlock.providers.servers import Clients, shown_url

if TYPE_CHECKING:
    from etcd3gw import Etcd3Client
    from requests import Response

EtcdJson = dict[str, object]
"""A request to the JSON gateway of etcd, or a part of one."""


class MemberClients(Clients["list[Etcd3Client]"]):
    """Clients of etcd3gw: one for each member, all of them closed together."""

    @staticmethod
    def close_client(client: "list[Etcd3Client]") -> None:
        """See Clients.close_client()."""
        for each in client:
            each.session.close()


class Unanswered(Exception):
    """
    No member has answered a request.

    With ``is_uncertain``, a member may have carried it out. Otherwise none has.
    """

    is_uncertain = False


class Members:
    """
    The members of a cluster, which are asked in turn until one answers.

    Each thread has its own clients, one for each member. The member that answered last
    comes first. With a user, all clients share one login, which is renewed when it has
    ended. ``timeout`` is for a request to all members, in seconds. ``options`` are
    those of ``etcd3gw.Etcd3Client``, and ``user`` and ``password``. Raises
    ``ValueError`` if an endpoint or an option can't work.
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

    def connect(self) -> "list[Etcd3Client]":
        """Return new clients. Raises ``TypeError``, for example, for a wrong option."""
        from etcd3gw import Etcd3Client

        clients = [Etcd3Client(**each, **self.options) for each in self._addresses]
        for client in clients:
            # Environment variables must not replace certificates, divert requests or
            # log in.
            client.session.trust_env = False
        return clients

    def ask(self, path: str, request: EtcdJson) -> tuple[Any, float]:
        """
        Return the first answer of a member, and its clock as seconds since 1970.

        Raises ``Unanswered``, caused by the error of the member that was asked last.
        """
        clients, is_uncertain, last = self.clients.get(), False, None
        from etcd3gw.exceptions import Etcd3Exception
        from requests import RequestException
        from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

        for client in clients:
            seen: list[Response] = []
            try:
                answer = self._post(client, path, request, seen)
            except (Etcd3Exception, OSError) as error:
                # The context of the error is one of requests, which holds urllib3's.
                causes = getattr(error.__context__, "args", ()) or (None,)
                reason = getattr(causes[0], "reason", None)
                is_unsent = isinstance(reason, ConnectTimeoutError | NewConnectionError)
                # If a certificate is no file, requests fails before it connects.
                is_unsent |= not isinstance(error, Etcd3Exception | RequestException)
                is_refused = seen and _is_refusal(seen[-1])
                is_uncertain = is_uncertain or not (is_unsent or is_refused)
                last = error
            else:
                clients.remove(client)
                clients.insert(0, client)
                # The answer has the second. This host's clock is only used within it.
                date = seen[-1].headers["Date"]
                second = parsedate_to_datetime(date).timestamp()
                return answer, min(max(time.time(), second), second + 1)
        failure = Unanswered(getattr(last, "detail_text", None) or str(last))
        failure.is_uncertain = is_uncertain
        raise failure from last

    def _post(
        self,
        client: "Etcd3Client",
        path: str,
        request: EtcdJson,
        seen: "list[Response]",
    ) -> Any:
        """Return the answer of one member; add each of its responses to ``seen``."""
        from etcd3gw.exceptions import Etcd3Exception

        def note(response: "Response", **_: object) -> None:
            seen.append(response)

        def post(path: str, request: EtcdJson, token: str) -> Any:
            url = f"{client.base_url}/v3/{path}"
            headers = {"Authorization": token or None}
            hooks = {"response": note}
            return client.post(url, json=request, headers=headers, hooks=hooks)

        if self._token or not self._login["name"]:
            try:
                return post(path, request, self._token)
            except Etcd3Exception:  # the login may have ended, or predate its user
                if not self._token or not seen or not _is_refusal(seen[-1]):
                    raise
        self._token = post("auth/authenticate", self._login, "")["token"]
        return post(path, request, self._token)


@dataclass(frozen=True)
class Known:
    """What etcd has for a key; ``revision`` is 0 if it has nothing."""

    value: bytes = b""
    revision: int = 0
    lease: int = 0


def read_key(key: bytes, *, is_prefix: bool = False) -> EtcdJson:
    """Return the step that reads a key, or in their order all keys with a prefix."""
    wanted = {"key": _text(key)}
    if is_prefix:
        # The range ends before the prefix whose last byte is one higher.
        wanted["range_end"] = _text(key[:-1] + bytes([key[-1] + 1]))
    return {"request_range": wanted}


def put_key(key: bytes, value: bytes, lease: int = 0) -> EtcdJson:
    """Return the step that writes a key; with a lease, etcd deletes it at its end."""
    pair = {"key": _text(key), "value": _text(value), "lease": str(lease)}
    return {"request_put": pair}


def delete_key(key: bytes) -> EtcdJson:
    """Return the step that deletes a key."""
    return {"request_delete_range": {"key": _text(key)}}


def unchanged(key: bytes, revision: int) -> EtcdJson:
    """Return the condition that a key has not changed since this revision."""
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


def _is_refusal(response: "Response") -> bool:
    # After these statuses etcd has done nothing. After others it may have.
    return response.status_code in {400, 401, 403}


def _text(key: bytes) -> str:
    return b64encode(key).decode()
