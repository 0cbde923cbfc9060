"""Ask Redis: one server, the master that Sentinel names, or a cluster."""

import re
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha1
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.checks import CheckMessage, Warning

from django_shedlock.durations import option_duration
from django_shedlock.exceptions import described
from django_shedlock.providers.redis_records import Script, ScriptCall
from django_shedlock.providers.servers import Clients, shown_url

LIMIT_NAMES = ("socket_timeout", "socket_connect_timeout")
ADVICE = {
    "AuthenticationError": "Correct the user and the password",
    "BUSY ": "A script runs too long: wait, or SCRIPT KILL; SHUTDOWN would lose locks",
    "BusyLoadingError": "It still loads its data: wait until it has",
    "Cluster mode is not": "Give the user +cluster|slots, or name no cluster in `url`",
    "ClusterDownError": "A part of the cluster is missing: start its servers",
    "MISCONF": "It can't save its data: make room on its disk, or repair it",
    "NOREPLICAS": "Start the replicas that its min-replicas-to-write requires",
    "OutOfMemoryError": "Give the server more memory, or delete what nobody needs",
    "ReadOnlyError": "It is a replica: let `url` name the master",
    "SlotNotCoveredError": "A part of the cluster is missing: start its servers",
    "WRONGTYPE": "Another program uses that key: correct the `prefix` of this provider",
}
"""What to do about an error whose text contains this."""
SCRIPT_COMMANDS = {
    command.lower()
    for script in Script
    for command in re.findall(r"redis\.p?call\('(\w+)'", script)
}


class Unconfirmed(Exception):
    """Too few replicas have confirmed a change."""


class RedisServer:
    """
    The servers of a URL, and the client that asks them.

    All threads share the client. ``kind`` is ``"sentinel"``, ``"cluster"``, or empty
    for one server. ``options`` are those of redis-py. A record stays for ``retention``
    after its lease. ``wait`` says for how many replicas a change waits, and how long.
    If fewer have it by then, the change raises ``Unconfirmed``. Each key begins with
    ``prefix``. Raises ``ValueError`` if the URL names no server, or an option can't
    work.
    """

    default_ports: ClassVar[dict[str, int]] = {"sentinel": 26379, "cluster": 6379}
    url_examples = (
        "Write it as redis://HOST:6379/0, unix:///PATH, "
        "redis+sentinel://HOST:26379,HOST/SERVICE/0 or redis+cluster://HOST:6379,HOST"
    )

    def __init__(
        self,
        url: str,
        options: dict[str, Any],
        retention: timedelta,
        wait: tuple[int, timedelta],
        prefix: str,
    ):
        limits = dict.fromkeys(LIMIT_NAMES, 5.0)
        self._url, self._options = url, {**limits, **options}
        self._prefix = prefix
        shown_url(url)
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        if {**options, **query}.get("decode_responses"):
            raise ValueError("decode_responses=True breaks the reading: leave it out")
        for name in limits:
            limit = float(query[name]) if name in query else self._options[name]
            if limit is not None:
                self._options[name] = option_duration(name, limit).total_seconds()
        scheme, _, kind = parts.scheme.partition("+")
        self.kind: str = kind if kind in self.default_ports else ""
        self.hosts: list[tuple[str, int]] = []
        places = parts.netloc.rpartition("@")[2]
        for place in places.split(",") if self.kind else ():
            host = urlsplit(f"//{place}")
            if not host.hostname:
                raise ValueError(f"{place!r} is no host. {self.url_examples}")
            self.hosts.append(
                (host.hostname, host.port or self.default_ports[self.kind])
            )
        self.path: list[str] = [unquote(part) for part in parts.path.split("/") if part]
        if self.kind == "sentinel" and not self.path:
            raise ValueError(
                f"url names no service after {places!r}. {self.url_examples}"
            )
        login = {"username": parts.username, "password": parts.password}
        self._login: dict[str, str | bool]
        self._login = {k: unquote(v) for k, v in login.items() if v}
        if scheme == "rediss":
            self._login["ssl"] = True
        self.replicas: int
        self.replicas, timeout = wait
        if type(self.replicas) is not int or self.replicas < 0:
            raise ValueError(f"wait_replicas={self.replicas!r}: give it 0, 1 or more")
        if self.replicas and self.kind == "cluster":
            raise ValueError("wait_replicas does not work with a cluster: leave it out")
        self._scripts = {}
        millisecond = timedelta(milliseconds=1)
        for script in Script:
            text = script.replace("RETENTION", str(retention // millisecond))
            sha = sha1(text.encode()).hexdigest()  # noqa: S324
            self._scripts[script] = text, sha
        self._wait = ("WAIT", self.replicas, timeout // millisecond)
        self.clients: Clients[Any] = Clients(self.connect)

    def connect(self) -> Any:
        """Return a client of redis-py. Only that of a cluster connects at once."""
        import redis

        from django_shedlock.providers.redis_retries import QuickRetry, never_again

        library: Any = redis  # a part of it has no types
        # A request can be repeated: the scripts recognise it.
        retry = QuickRetry(self._options["socket_timeout"])
        # Before version 6, redis-py repeats a request only after these errors.
        options = {
            "retry": retry,
            "retry_on_error": [library.ConnectionError],
            **self._options,
        }
        if not self.kind:
            return library.Redis.from_url(self._url, **options)
        options |= self._login
        if self.kind == "cluster":
            nodes = [library.cluster.ClusterNode(*host) for host in self.hosts]
            return library.RedisCluster(startup_nodes=nodes, **options)
        service, *database = self.path
        of_sentinel = {k: v for k, v in self._options.items() if k.startswith("socket")}
        for name in LIMIT_NAMES:  # of all sentinels together
            if of_sentinel[name] is not None:
                of_sentinel[name] /= len(self.hosts)
        of_sentinel["retry"] = never_again()
        sentinel = library.Sentinel(self.hosts, sentinel_kwargs=of_sentinel, **options)
        return sentinel.master_for(service, db=int(database[0]) if database else 0)

    def run(self, name: str, call: ScriptCall, *, is_confirmed: bool = False) -> Any:
        """
        Run a script on the lock of this name; return its answer.

        If the change ``is_confirmed``, wait for the replicas. Raises ``Unconfirmed`` if
        too few of them have it in time.
        """
        from redis.exceptions import NoScriptError

        client = self.clients.get()
        text, sha = self._scripts[call.script]
        arguments = 1, self.key(name), *call.arguments
        if is_confirmed and self.replicas:
            # Use one connection: WAIT counts only the writes of its own connection.
            with client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("EVAL", text, *arguments)
                pipeline.execute_command(*self._wait)
                return self._confirmed(*pipeline.execute(raise_on_error=False))
        try:
            return client.execute_command("EVALSHA", sha, *arguments)
        except NoScriptError:  # the server has not seen the script since its start
            return client.execute_command("EVAL", text, *arguments)

    def key(self, name: str) -> bytes:
        """Return the key of the lock of this name."""
        # The braces let a cluster keep all keys of a lock on one server.
        return f"{self._prefix}{{{name}}}".encode(errors="surrogateescape")

    def _confirmed(self, answer: Any, replicas: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        was_done = answer[0] if isinstance(answer, list) else answer
        if was_done == 1 and isinstance(replicas, Exception):
            text = f"the replicas can't confirm it: {self.explained(replicas)}"
            raise Unconfirmed(text) from replicas
        if was_done == 1 and replicas < self.replicas:
            raise Unconfirmed(
                f"only {replicas} of {self.replicas} replicas have it, so it does not "
                "count. See wait_replicas and wait_timeout."
            )
        return answer

    def explained(self, error: Exception) -> str:
        """Return the text of an error of redis-py, and what to do about it."""
        place_in_script = r" script: ([\da-f]{40}, )?on @user_script:.*"
        text = re.sub(place_in_script, "", described(error)).rstrip(".")
        if "handshake operation timed out" in str(error.__context__):
            text += ": its SSL handshake got no answer"  # as from a server without TLS
        advice = [each for known, each in ADVICE.items() if known in text]
        if rights := self._missing_rights(text):
            advice.append(f"Give the user {rights}")
        return ". ".join([text, *advice])

    def _missing_rights(self, text: str) -> str:
        """Return the rights that the user lacks, as ``ACL SETUSER`` writes them."""
        if named := re.search(r"run the '([^']+)' command", text):
            return f"+{named[1]}"
        if "NoPermissionError" in text and "key" in text:
            return f"~{self._prefix}*"
        # Of a script's commands, Redis 7.0 does not say which it refuses.
        if "executing the script can't" in text:
            return " ".join(f"+{command}" for command in sorted(SCRIPT_COMMANDS))
        return ""

    def warnings(self, of: str) -> Iterator[CheckMessage]:
        """
        Return a warning for each server that may lose locks, or does not say so.

        ``of`` names the provider in the texts.
        """
        client, is_cluster = self.clients.get(), self.kind == "cluster"
        for node in client.get_primaries() if is_cluster else [None]:
            where = f"A Redis server of {of}" + (f" ({node.name})" if node else "")
            info, reason = {}, "INFO lacks that"
            try:
                info = client.info(target_nodes=node) if node else client.info()
            except Exception as error:  # also what redis-py can't read
                reason = self.explained(error)
            needed = ("role", "maxmemory", "maxmemory_policy")
            if missing := [name for name in needed if name not in info]:
                text = f"{where} does not report its {', '.join(missing)}, so it may "
                text += f"be a replica, or delete locks to make room: {reason}."
                hint = "Allow INFO, or look at the server yourself and silence this."
                yield Warning(text, hint=hint, id="shedlock.W016")
            if info.get("role", "master") != "master":
                text = f"{where} is a replica, which refuses locks, or loses them."
                hint = "Let `url` name the master, or the sentinels that know it."
                yield Warning(text, hint=hint, id="shedlock.W017")
            policy = info.get("maxmemory_policy", "noeviction")
            if info.get("maxmemory") and policy != "noeviction":
                text = f"{where} deletes keys to make room (maxmemory-policy {policy})."
                text += " Locks may be among them."
                hint = "Set maxmemory-policy to noeviction, or use another server."
                yield Warning(text, hint=hint, id="shedlock.W016")

    def place(self) -> tuple[str, ...]:
        """Return where the keys are, without a password. A cluster is not connected."""
        if self.kind:
            hosts = (f"{host}:{port}" for host, port in sorted(self.hosts))
            return (self.kind, *hosts, *self.path)
        known = self.connect().connection_pool.connection_kwargs
        options = {"host": "localhost", "port": 6379, "db": 0, **known}
        names = ("path", "db") if "path" in options else ("host", "port", "db")
        return tuple(str(options[name]) for name in names)
