"""
The provider of locks in DynamoDB, by the clock of its replies.

That clock has whole seconds, so a lock is held through the second in which its lease
ends.
"""

import re
import secrets
import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from math import ceil
from typing import Any, NamedTuple

from django_shedlock.durations import Duration, option_duration
from django_shedlock.exceptions import described
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockStatus
from django_shedlock.providers import servers
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry, Found, Read, readable_number

Item = dict[str, dict[str, str]]
"""An item of DynamoDB: each attribute by its name, with its type and its value."""
REQUEST_TRIES = 3
ACCESS_KEY_OPTIONS = ("aws_access_key_id", "aws_secret_access_key")


class SeenItem(NamedTuple):
    """
    The item of a lock as it was read at ``clock``; without one, ``mark`` is ``None``.

    Each change writes another ``mark``. The lock is held until ``held_until``.
    """

    mark: dict[str, str] | None
    entry: Entry
    clock: float
    held_until: int | str


class DynamoDBLockProvider(
    servers.ServerLockProvider[SeenItem, tuple[Item | None, float]]
):
    """
    Keeps each lock as an item in DynamoDB, by the clock of its replies.

    The key of the ``table`` is ``name``, a string. A request with all its tries fails
    after ``timeout``. Other options are those of ``boto3.client``, such as
    ``region_name``.
    """

    shortest_lease: timedelta = timedelta(seconds=1)
    store: str = "DynamoDB"
    library: str = "boto3"
    extra: str = "dynamodb"

    def __init__(
        self,
        alias: str,
        *,
        table: str = "shedlock",
        timeout: Duration = "5s",
        keep_alive: bool = False,
        history_database: str | None = None,
        **client_options: Any,
    ):
        super().__init__(
            alias, keep_alive=keep_alive, history_database=history_database
        )
        pattern = r"(arn:[\w:-]+:table/)?[\w.-]{3,255}"
        if not re.fullmatch(pattern, table or "", re.ASCII):
            raise ValueError(f"table={table!r} is no name of a table")
        url = client_options.get("endpoint_url") or ""
        if (shown := servers.shown_url(url)) != url:
            raise ValueError(f"the endpoint_url {shown!r} has a login or options")
        for name in (*ACCESS_KEY_OPTIONS, "aws_session_token"):
            if not re.fullmatch("[!-~]*", client_options.get(name) or ""):
                raise ValueError(f"{name} has a character that no key of AWS has")
        self._options = client_options
        self.table: str = table
        limit = option_duration("timeout", timeout).total_seconds() / REQUEST_TRIES / 2
        self._limits = {"connect_timeout": limit, "read_timeout": limit}
        self._request = threading.local()
        self.clients: servers.Clients[Any] = servers.Clients(self._connect)

    def read(self, name: str) -> Read[SeenItem]:
        """See EntryLockProvider.read(). It is one consistent read."""
        which = {"Key": {"name": {"S": name}}, "ConsistentRead": True}
        answer, clock = self._ask("read", name, "get_item", **which)
        return self.parse((answer.get("Item"), clock))

    def parse(self, found: tuple[Item | None, float]) -> Read[SeenItem]:
        """See EntryLockProvider.parse()."""
        item, clock = found
        if item is None:
            return None, SeenItem(None, Entry.free(clock), clock, 0), clock
        try:
            mark, held_until = item["mark"], float(item["held_until"]["N"])
            entry = Entry.from_json(item["entry"]["S"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"{str(item)[:80]} is no item of a lock") from error
        is_held, until = readable_number(held_until) > clock, entry.lock_until
        until = max(until, clock + 1) if is_held else min(until, clock)
        entry = replace(entry, lock_until=until)
        return entry, SeenItem(mark, entry, clock, item["held_until"]["N"]), clock

    def write(self, name: str, entry: Entry, version: SeenItem) -> bool:
        """See EntryLockProvider.write(). It is one conditional put."""
        (mark, before, clock, held_until), until = version, entry.lock_until
        if not entry.differs_only_in_its_job_from(before):
            # A release may come within the second in which the kept lock ends.
            is_kept = until == before.lock_at_least_until > before.locked_at
            held_until = ceil(until) + (until > clock or is_kept)
        item = {"name": {"S": name}, "mark": {"S": secrets.token_hex(8)}}
        item |= {"entry": {"S": entry.to_json()}, "held_until": {"N": str(held_until)}}
        put: dict[str, object] = {"ConditionExpression": "attribute_not_exists(mark)"}
        if mark is not None:
            put = {"ConditionExpression": "mark = :seen"}
            put["ExpressionAttributeValues"] = {":seen": mark}
        put["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        answer, _ = self._ask("change", name, "put_item", Item=item, **put)
        # After a lost reply, our own first try may have written it.
        is_ours = answer.get("Item", {}).get("mark") == item["mark"]
        return is_ours or "Error" not in answer

    def names(self) -> Iterable[str]:
        return [name for name, _ in self.read_all(None)]

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is the second of a reply."""
        nobody = {"name": {"S": " "}}
        return float(self._ask("ask the clock of", None, "get_item", Key=nobody)[1])

    def read_all(
        self, names: Collection[str] | None
    ) -> Found[tuple[Item | None, float]]:
        """See EntryLockProvider.read_all(). It reads all locks in one scan."""
        if names is not None:
            yield from super().read_all(names)
            return
        request: dict[str, object] = {"ConsistentRead": True}
        while "ExclusiveStartKey" not in request or request["ExclusiveStartKey"]:
            answer, clock = self._ask("list", None, "scan", **request)
            for item in answer["Items"]:
                yield item["name"]["S"], (item, clock)
            request["ExclusiveStartKey"] = answer.get("LastEvaluatedKey")

    def lease_of(self, lock: Lock) -> LockStatus | None:
        """See LockProvider.lease_of(). Most of the current second may be over."""
        found = self.status(lock.name)
        if found is None:
            return None
        second = timedelta(seconds=1)
        return replace(found, remaining=max(found.remaining, second) - second)

    def record_of(self, name: str) -> str:
        return f"its item {name!r} in the table {self.table!r} of DynamoDB"

    def place(self) -> Place | None:
        names = ("endpoint_url", "region_name", "aws_access_key_id")
        which = (str(self._options.get(name)) for name in names)
        text = f"one DynamoDB, in the table {self.table!r}"
        return Place(("dynamodb", *which, self.table), text)

    def try_options(self) -> None:
        # Without access keys, boto3 would look for some on this host.
        has_keys = any(self._options.get(name) for name in ACCESS_KEY_OPTIONS)
        self._connect(
            **{} if has_keys else dict.fromkeys(ACCESS_KEY_OPTIONS, "none")
        ).close()
        if isinstance(self._options.get("verify"), str):
            servers.check_files(self._options, ["verify"])

    def explain(self, error: Exception) -> tuple[str, bool] | None:
        from botocore.exceptions import BotoCoreError, ClientError

        # A reply without a date raises a KeyError or a ValueError.
        if not isinstance(error, BotoCoreError | ClientError | KeyError | ValueError):
            return None
        text = described(error)
        hint = f"Create table {self.table!r}. " if "resource not found" in text else ""
        return hint + text, self._request.is_lost

    def _ask(
        self, verb: str, name: str | None, operation: str, **request: object
    ) -> tuple[Any, float]:
        """Return the answer and its second. An unmet condition is an answer as well."""
        with self.asking(verb, name):
            self._request.is_lost = False
            client = self.clients.get()
            try:
                answer = getattr(client, operation)(TableName=self.table, **request)
            except client.exceptions.ConditionalCheckFailedException as error:
                answer = error.response
            date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
            return answer, parsedate_to_datetime(date).timestamp()

    def _connect(self, **keys: str) -> Any:
        from boto3 import Session
        from botocore.config import Config
        from botocore.exceptions import HTTPClientError

        request = self._request

        def note(
            caught_exception: Exception | None, response: Any, **_: object
        ) -> None:
            # After each try, because the last one says nothing about the others.
            is_broken = response is not None and response[0].status_code >= 500
            if is_broken or isinstance(caught_exception, HTTPClientError):
                request.is_lost = True

        retries = {"mode": "standard", "total_max_attempts": REQUEST_TRIES}
        config = Config(retries=retries, **self._limits)
        client = Session().client("dynamodb", config=config, **self._options, **keys)
        client.meta.events.register("needs-retry.dynamodb", note)
        return client
