"""
The provider of locks in DynamoDB, by the clock of its replies.

That clock has whole seconds, so a lock is held through the second in which its lease
ends.
"""

import re
import secrets
import threading
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from inspect import signature
from math import ceil
from typing import Any, NamedTuple

from django_shedlock.durations import Duration, option_duration
from django_shedlock.exceptions import described
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockStatus
from django_shedlock.providers import servers
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry, Found, Read, readable_number

Item = dict[str, dict[str, Any]]
"""An item of DynamoDB: each attribute by its name, with its type and its value."""
ITEM_ATTRIBUTES = ("name", "mark", "entry", "held_until")
REQUEST_TRIES = 3
BATCH_SIZE = 100
"""How many items DynamoDB reads in one request by their names."""
ACCESS_KEY_OPTIONS = ("aws_access_key_id", "aws_secret_access_key")
SESSION_OPTIONS = ("profile_name", "botocore_session")
"""The options of ``boto3.Session`` that ``boto3.client`` does not have."""
THROTTLING_CODES = (
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
)


class UnusableAnswer(Exception):
    """An answer that does not show the locks; the text says why, and what to do."""


class Tries(threading.local):
    """What became of the tries of this thread's last request."""

    unknown: int = 0
    """How many tries DynamoDB has carried out, or may have."""

    def note_sending(self, **_: object) -> None:
        """Count a try: from now on DynamoDB may carry it out."""
        self.unknown += 1

    def note_end(self, caught_exception: object, response: Any, **_: object) -> None:
        """Take back the count of a try that never arrived, or that was refused."""
        from botocore import exceptions

        unsent = (
            exceptions.ConnectTimeoutError,
            exceptions.EndpointConnectionError,
            exceptions.ProxyConnectionError,
        )
        is_refused = response is not None and 300 <= response[0].status_code < 500
        if is_refused or isinstance(caught_exception, unsent):
            self.unknown -= 1


class SeenItem(NamedTuple):
    """
    The item of a lock as it was read at ``clock``; without one, ``mark`` is ``None``.

    Each change writes another ``mark``. The lock is held until ``held_until``.
    ``others`` are the attributes of a newer version. They are written back as they
    were read.
    """

    mark: dict[str, str] | None
    entry: Entry
    clock: float
    held_until: int | str
    others: Item


class DynamoDBLockProvider(
    servers.ServerLockProvider[SeenItem, tuple[Item | None, float]]
):
    """
    Keeps each lock as an item in DynamoDB, by the clock of its replies.

    The key of the ``table`` is ``name``, a string. A request with all its tries fails
    after ``timeout``. Other options are those of ``boto3.client``, such as
    ``region_name``, and of ``boto3.Session``, such as ``profile_name``. ``config``
    overrides the provider's timeouts and retries.
    """

    shortest_lease: timedelta = timedelta(seconds=1)
    deletes_records: bool = True
    store: str = "DynamoDB"
    library: str = "boto3"
    extra: str = "dynamodb"
    address: str = "endpoint_url"

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
        self._tries = Tries()
        self.clients: servers.Clients[Any] = servers.Clients(self._connect)

    def read(self, name: str) -> Read[SeenItem]:
        """See EntryLockProvider.read(). It is one consistent read."""
        which = {"Key": {"name": {"S": name}}, "ConsistentRead": True}
        answer, clock = self._get("read", name, "get_item", self._of_table(which))
        return self.parse((answer.get("Item"), clock))

    def parse(self, found: tuple[Item | None, float]) -> Read[SeenItem]:
        """See EntryLockProvider.parse()."""
        item, clock = found
        if item is None:
            return None, SeenItem(None, Entry.free(clock), clock, 0, {}), clock
        try:
            mark, held_until = item["mark"], float(item["held_until"]["N"])
            entry = Entry.from_json(item["entry"]["S"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"{str(item)[:80]} is no item of a lock") from error
        is_held, until = readable_number(held_until) > clock, entry.lock_until
        until = max(until, clock + 1) if is_held else min(until, clock)
        entry = replace(entry, lock_until=until)
        others = {name: item[name] for name in item if name not in ITEM_ATTRIBUTES}
        seen = SeenItem(mark, entry, clock, item["held_until"]["N"], others)
        return entry, seen, clock

    def write(self, name: str, entry: Entry, version: SeenItem) -> bool:
        """See EntryLockProvider.write(). It is one conditional put."""
        held_until, until = version.held_until, entry.lock_until
        before = version.entry
        if not entry.differs_only_in_its_job_from(before):
            # A release may come within the second in which the kept lock ends.
            is_kept = until == before.lock_at_least_until > before.locked_at
            held_until = ceil(until) + (until > version.clock or is_kept)
        item: Item = {
            **version.others,
            "name": {"S": name},
            "mark": {"S": secrets.token_hex(8)},
            "entry": {"S": entry.to_json()},
            "held_until": {"N": str(held_until)},
        }
        put: dict[str, object] = {"ConditionExpression": "attribute_not_exists(mark)"}
        if version.mark is not None:
            put = {"ConditionExpression": "mark = :seen"}
            put["ExpressionAttributeValues"] = {":seen": version.mark}
        put |= {"Item": item, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        answer = self._ask("change", name, "put_item", self._of_table(put))
        # After a lost reply, our own first try may have written it.
        is_ours = answer.get("Item", {}).get("mark") == item["mark"]
        return is_ours or "Error" not in answer

    def delete(self, name: str, version: SeenItem) -> bool:
        """See EntryLockProvider.delete(). It is one conditional request."""
        which: dict[str, object] = {
            "Key": {"name": {"S": name}},
            "ConditionExpression": "mark = :seen",
            "ExpressionAttributeValues": {":seen": version.mark},
        }
        answer = self._ask("delete", name, "delete_item", self._of_table(which))
        return "Error" not in answer

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is the second of a reply."""
        nobody = self._of_table({"Key": {"name": {"S": " "}}})
        return self._get("ask the clock of", None, "get_item", nobody)[1]

    def read_all(
        self, names: Collection[str] | None
    ) -> Found[tuple[Item | None, float]]:
        """See EntryLockProvider.read_all(). It reads many locks in each request."""
        if names is None:
            yield from self._scan()
            return
        left = list(dict.fromkeys(names))  # DynamoDB refuses a name that comes twice
        while left:
            batch, left = left[:BATCH_SIZE], left[BATCH_SIZE:]
            yield from self._read_batch(batch)

    def _scan(self) -> Found[tuple[Item | None, float]]:
        """Find all locks, page by page."""
        request: dict[str, object] = {"ConsistentRead": True}
        pages: set[str] = set()
        while True:
            answer, clock = self._get("list", None, "scan", self._of_table(request))
            for item in answer["Items"]:
                yield item["name"]["S"], (item, clock)
            last = answer.get("LastEvaluatedKey")
            if not last:
                return
            if last["name"]["S"] in pages:
                with self.asking("list", None):
                    raise UnusableAnswer("the pages of its list come again and again")
            pages.add(last["name"]["S"])
            request["ExclusiveStartKey"] = last

    def _read_batch(self, names: list[str]) -> Found[tuple[Item | None, float]]:
        """Find these locks, of which DynamoDB may leave some for another request."""
        tries = 0
        while names:
            keys = [{"name": {"S": name}} for name in names]
            which = {self.table: {"Keys": keys, "ConsistentRead": True}}
            request: dict[str, object] = {"RequestItems": which}
            answer, clock = self._get("list", None, "batch_get_item", request)
            found = {
                item["name"]["S"]: item
                for items in answer["Responses"].values()
                for item in items
            }
            unread = {
                key["name"]["S"]
                for asked in answer.get("UnprocessedKeys", {}).values()
                for key in asked["Keys"]
            }
            left = [name for name in names if name in unread]
            for name in names:
                if name not in unread:
                    yield name, (found.get(name), clock)
            tries = tries + 1 if left == names else 0
            if tries == REQUEST_TRIES:
                with self.asking("list", None):
                    flaw = f"it left {len(left)} of them unread. {self._capacity_fix}"
                    raise UnusableAnswer(flaw)
            names = left

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
        names = ("endpoint_url", "aws_access_key_id", *SESSION_OPTIONS)
        which = (str(self._options.get(name)) for name in names)
        text = f"one DynamoDB, in the table {self.table!r}"
        return Place(("dynamodb", str(self._region), *which, self.table), text)

    def try_options(self) -> None:
        """
        See ServerLockProvider.try_options(). It makes no client.

        A client loads all that boto3 knows of DynamoDB, and looks for access keys on
        this host.
        """
        from boto3 import Session
        from botocore import exceptions, utils
        from botocore.config import Config

        session, options = self._session()
        signature(Session.client).bind(session, "dynamodb", **options)
        config = options.get("config", Config())
        if not isinstance(config, Config):
            kind = type(config).__name__
            raise TypeError(f"'config' is of {kind}, not botocore.config.Config")
        region = session.region_name if self._region is None else self._region
        if not region:
            raise exceptions.NoRegionError
        utils.validate_region_name(region)
        url = options.get("endpoint_url")
        if url and not (
            utils.is_valid_endpoint_url(url) or utils.is_valid_ipv6_endpoint_url(url)
        ):
            raise ValueError(f"Invalid endpoint: {url}")
        given = [name for name in ACCESS_KEY_OPTIONS if options.get(name) is not None]
        missing = [name for name in ACCESS_KEY_OPTIONS if not options.get(name)]
        if given and missing:
            raise exceptions.PartialCredentialsError(
                provider="explicit", cred_var=missing[0]
            )
        if isinstance(options.get("verify"), str):
            servers.check_files(options, ["verify"])

    def explain(self, error: Exception) -> tuple[str, bool] | None:
        from botocore import exceptions

        library = exceptions.BotoCoreError, exceptions.ClientError
        if not isinstance(error, (UnusableAnswer, *library)):
            return None
        text = described(error)
        if isinstance(error, UnusableAnswer):
            text = str(error)
        elif isinstance(error, exceptions.ClientError):
            code = error.response["Error"]["Code"]
            text = f"{self._fix_of(code, error.operation_name)} {text}".lstrip()
        elif isinstance(error, exceptions.EndpointConnectionError):
            reason = error.kwargs.get("error")
            text = f"{text}: {getattr(reason, '__cause__', None) or reason}"
        return text, self._tries.unknown > 0

    @property
    def _capacity_fix(self) -> str:
        return (
            f"Give table {self.table!r} more capacity, or let it be billed on demand."
        )

    def _fix_of(self, code: str, operation: str) -> str:
        if code == "ResourceNotFoundException":
            return f"Create table {self.table!r}."
        if code == "AccessDeniedException":
            return f"Allow dynamodb:{operation} on table {self.table!r}."
        return self._capacity_fix if code in THROTTLING_CODES else ""

    def _of_table(self, request: dict[str, object]) -> dict[str, object]:
        return {"TableName": self.table, **request}

    def _get(
        self, verb: str, name: str | None, operation: str, request: dict[str, object]
    ) -> tuple[Any, float]:
        """Return the answer to a read, and its second."""
        answer = self._ask(verb, name, operation, request)
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
        with self.asking(verb, name):
            try:
                return answer, parsedate_to_datetime(date).timestamp()
            except ValueError as error:
                flaw = f"its answer has the date {date!r}: is that DynamoDB?"
                raise UnusableAnswer(flaw) from error

    def _ask(
        self, verb: str, name: str | None, operation: str, request: dict[str, object]
    ) -> Any:
        """Return the answer. An unmet condition is an answer as well."""
        with self.asking(verb, name):
            self._tries.unknown = 0
            client = self.clients.get()
            try:
                answer = getattr(client, operation)(**request)
            except client.exceptions.ConditionalCheckFailedException as error:
                return error.response
            kind = answer["ResponseMetadata"]["HTTPHeaders"].get("content-type", "")
            if not kind.startswith("application/x-amz-json"):
                # boto3 takes a page of any web server for an empty answer.
                raise UnusableAnswer(f"its answer is of {kind!r}: is that DynamoDB?")
            return answer

    @property
    def _region(self) -> str | None:
        """The region that the options name, in the order of boto3."""
        named: str | None = self._options.get("region_name")
        if named is not None:
            return named
        return getattr(self._options.get("config"), "region_name", None)

    def _session(self) -> tuple[Any, dict[str, Any]]:
        """Return a session of boto3, and the options of its client."""
        from boto3 import Session

        options = dict(self._options)
        names = [name for name in SESSION_OPTIONS if name in options]
        return Session(**{name: options.pop(name) for name in names}), options

    def _connect(self) -> Any:
        from botocore.config import Config

        session, options = self._session()
        retries = {"mode": "standard", "total_max_attempts": REQUEST_TRIES}
        config = Config(retries=retries, **self._limits)
        options["config"] = config.merge(options.get("config", Config()))
        client = session.client("dynamodb", **options)
        client.meta.events.register("before-send.dynamodb", self._tries.note_sending)
        client.meta.events.register("needs-retry.dynamodb", self._tries.note_end)
        return client
