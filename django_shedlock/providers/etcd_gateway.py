"""Ask etcd: the members of a cluster, and the requests to its JSON gateway."""

import re
import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from django_shedlock.exceptions import described
from django_shedlock.providers.servers import Clients, check_files, shown_url

if TYPE_CHECKING:
    from requests import Response, Session

EtcdJson = dict[str, Any]
"""A request to the JSON gateway of etcd, or a part of one."""

# Codes of gRPC.
PERMISSION_DENIED, RESOURCE_EXHAUSTED = 7, 8


class EtcdError(Exception):
    """
    A member has answered with an error.

    ``code`` is that of gRPC. It is 0 if the answer comes from something else, such as a
    load balancer. If it ``is_refusal``, etcd has done nothing.
    """

    code: int

    def __init__(self, response: "Response"):
        try:
            answer = response.json()
            # Only some versions of etcd have the text in "error" as well.
            text, self.code = str(answer["message"]), int(answer["code"])
        except (KeyError, TypeError, ValueError):
            text, self.code = f"HTTP {response.status_code} {response.reason}", 0
        super().__init__(text)
        # After other statuses it may have: without space, etcd may write first, and
        # then say that there is none.
        self.is_refusal: bool = response.status_code in {400, 401, 403}


class ForeignAnswer(Exception):
    """Something else than etcd has answered."""

    def __init__(self, url: str):
        super().__init__(f"what answers at {url} is not etcd: correct the endpoints")


class Unanswered(Exception):
    """
    No member has answered a request without an error.

    With ``is_uncertain``, a member may have carried it out. Otherwise none has.
    ``error`` is the most telling one of the members' errors.
    """

    def __init__(self, error: Exception, *, is_uncertain: bool):
        is_described = isinstance(error, EtcdError | ForeignAnswer)
        super().__init__(str(error) if is_described else described(error))
        self.is_uncertain: bool = is_uncertain
        self._code = error.code if isinstance(error, EtcdError) else 0

    @property
    def is_full(self) -> bool:
        """Whether etcd has used up its quota, and writes nothing more."""
        return self._code == RESOURCE_EXHAUSTED and "space exceeded" in str(self)

    @property
    def is_forbidden(self) -> bool:
        """Whether etcd's user lacks a right."""
        return self._code == PERMISSION_DENIED


@dataclass(frozen=True)
class Access:
    """
    How to log in, and the paths of certificates: options of the provider.

    Raises ``ValueError`` for half of a pair.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_cert: str | None = None
    cert_cert: str | None = None
    cert_key: str | None = None

    def __post_init__(self) -> None:
        for pair in (("user", "password"), ("cert_cert", "cert_key")):
            if len({getattr(self, each) is None for each in pair}) > 1:
                raise ValueError(f"{' and '.join(pair)} belong together: give both")

    def session(self) -> "Session":
        """
        Return a session with these certificates.

        Raises ``ImportError`` without requests, ``OSError`` if a file can't be read.
        """
        from requests import Session

        check_files(vars(self), ("ca_cert", "cert_cert", "cert_key"))
        session = Session()
        # Environment variables must not replace certificates, divert requests or log
        # in.
        session.trust_env = False
        session.verify = self.ca_cert or True
        if self.cert_cert and self.cert_key:
            session.cert = (self.cert_cert, self.cert_key)
        return session


class Client:
    """What one thread asks with: a session, and the members in their order."""

    def __init__(self, session: "Session", urls: Sequence[str]):
        self.session: Session = session
        self.urls: list[str] = [*urls]

    def prefer(self, url: str) -> None:
        """Ask this member first from now on."""
        self.urls.remove(url)
        self.urls.insert(0, url)

    def close(self) -> None:
        """Close the connections to all members."""
        self.session.close()


class Members:
    """
    The members of a cluster, which are asked in turn until one answers.

    Each thread has its own client. The member that answered it last comes first. With a
    user, all threads share one login, which is renewed when it has ended. ``timeout``
    is for a request to all members, in seconds. Raises ``ValueError`` if an endpoint
    can't work.
    """

    endpoint_example = (
        'Write it as "https://HOST:2379", and a login as the options user and password.'
    )

    def __init__(self, endpoints: str | Sequence[str], timeout: float, access: Access):
        self.urls: list[str] = (
            [endpoints] if isinstance(endpoints, str) else [*endpoints]
        )
        if not self.urls:
            raise ValueError(
                f"endpoints={endpoints!r} names no member. {self.endpoint_example}"
            )
        self.access: Access = access
        self._token = ""
        self._timeout = timeout / len(self.urls)
        self._addresses = [self._address(url) for url in self.urls]
        self.clients: Clients[Client] = Clients(self.connect, for_each_thread=True)

    def _address(self, url: str) -> str:
        shown, parts = shown_url(url), urlsplit(url)
        is_http = parts.scheme in {"http", "https"} and parts.hostname
        if not is_http or shown != url or parts.path.strip("/"):
            raise ValueError(
                f"{shown!r} is no endpoint of etcd. {self.endpoint_example}"
            )
        port = "" if parts.port else ":2379"
        return f"{parts.scheme}://{parts.netloc}{port}"

    def connect(self) -> Client:
        """Return a new client. It raises what ``Access.session()`` raises."""
        return Client(self.access.session(), self._addresses)

    def ask(self, path: str, request: EtcdJson) -> tuple[Any, float]:
        """
        Return the first answer of a member, and its clock as seconds since 1970.

        Raises ``Unanswered``, caused by an error of etcd's own, or else by that of the
        member that was asked last.
        """
        try:
            client = self.clients.get()
        except OSError as error:  # a certificate can't be read
            raise Unanswered(error, is_uncertain=False) from error
        errors: list[Exception] = []
        for url in client.urls.copy():
            try:
                answer = self._ask(client.session, f"{url}/v3/", path, request)
            except Exception as error:  # whatever it is, there is no answer
                errors.append(error)
            else:
                client.prefer(url)
                return answer
        is_uncertain = any(map(_may_be_carried_out, errors))
        of_etcd = [each for each in errors if isinstance(each, EtcdError) and each.code]
        telling = [*errors, *of_etcd][-1]
        raise Unanswered(telling, is_uncertain=is_uncertain) from telling

    def _ask(
        self, session: "Session", url: str, path: str, request: EtcdJson
    ) -> tuple[Any, float]:
        """Return the answer of one member, and its clock. Log in if needed."""
        if self._token or not self.access.user:
            try:
                return self._post(session, url + path, request, self._token)
            except EtcdError as error:  # the login may have ended, or predate its user
                if not self._token or not error.is_refusal:
                    raise
        login = {"name": self.access.user, "password": self.access.password}
        answer, _ = self._post(session, f"{url}auth/authenticate", login)
        self._token = answer["token"]
        return self._post(session, url + path, request, self._token)

    def _post(
        self, session: "Session", url: str, request: EtcdJson, token: str = ""
    ) -> tuple[Any, float]:
        headers = {"Authorization": token} if token else {}
        response = session.post(
            url, json=request, headers=headers, timeout=self._timeout
        )
        if response.status_code != 200:
            raise EtcdError(response)
        try:
            second = parsedate_to_datetime(response.headers["Date"]).timestamp()
            answer = response.json()
            answer["header"]  # each answer of etcd has one
        except (KeyError, TypeError, ValueError) as error:
            raise ForeignAnswer(url) from error
        # The answer has the second. This host's clock is only used within it.
        return answer, min(max(time.time(), second), second + 1)


@dataclass(frozen=True)
class Known:
    """What etcd has for a key; ``revision`` is 0 if it has nothing."""

    value: bytes = b""
    revision: int = 0
    lease: int = 0


class Outcome(NamedTuple):
    """
    What a transaction did: whether its conditions held, and the keys that it read.

    ``revision`` is that of the store, and ``clock`` the member's clock, then.
    """

    succeeded: bool
    found: dict[bytes, Known]
    revision: int
    clock: float

    @classmethod
    def of(cls, answer: Any, clock: float) -> "Outcome":
        """Return the outcome that a member has answered."""
        found = {
            b64decode(pair["key"]): Known(
                b64decode(pair.get("value", "")),
                int(pair["mod_revision"]),
                int(pair.get("lease", 0)),
            )
            for each in answer.get("responses", ())
            for pair in each.get("response_range", {}).get("kvs", ())
        }
        revision = int(answer["header"]["revision"])
        return cls(answer.get("succeeded", False), found, revision, clock)

    def of_key(self, key: bytes) -> Known:
        """Return what was read for this key."""
        return self.found.get(key, Known())


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


def alarms(status: dict[str, Any]) -> list[str]:
    """Return the names of the alarms that a member's status mentions."""
    found = re.findall(r"alarm:(\w+)", " ".join(status.get("errors", ())))
    return sorted(set(found))


def _may_be_carried_out(error: Exception) -> bool:
    """Return whether a member may have carried out a request that had this error."""
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

    if isinstance(error, EtcdError):
        return not error.is_refusal
    # If requests could not connect, its error holds urllib3's, and nothing was sent.
    held = error.args[0] if error.args else None
    reason = getattr(held, "reason", None)
    return not isinstance(reason, ConnectTimeoutError | NewConnectionError)


def _text(key: bytes) -> str:
    return b64encode(key).decode()
