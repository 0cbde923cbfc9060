"""The provider of locks in MongoDB."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django_shedlock.durations import Duration, parse_duration
from django_shedlock.exceptions import described
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.states import LockHolder, LockStatus
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry, wall_clock
from django_shedlock.providers.mongodb import documents
from django_shedlock.providers.mongodb.clients import Client
from django_shedlock.providers.mongodb.documents import Document
from django_shedlock.providers.servers import (
    Failure,
    ServerLockProvider,
    Store,
    statuses_at,
)
from django_shedlock.schedules.state import Trigger

COLLECTION = "shedLock"
"""As ShedLock for Java names it."""


class MongoLockProvider(ServerLockProvider):
    """
    Keeps each lock as a document in MongoDB, by the server's clock.

    ``url`` names the servers. ``database`` is by default that of the URL, or
    ``shedlock``; ``collection`` that of ShedLock for Java, which may share it. The
    majority of a replica set confirms each change. An operation fails after
    ``timeout``. Other options are those of ``pymongo.MongoClient``.
    """

    shortest_lease = documents.MILLISECOND
    store = Store("MongoDB", "PyMongo", "mongodb")

    def __init__(
        self,
        alias: str,
        *,
        url: str,
        database: str | None = None,
        collection: str = COLLECTION,
        timeout: Duration = "5s",
        keep_alive: bool = False,
        history_database: str | None = None,
        **client_options: Any,
    ):
        super().__init__(
            alias, keep_alive=keep_alive, history_database=history_database
        )
        self.client = Client(
            url, database, collection, parse_duration(timeout), client_options
        )

    def acquire(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.acquire(). It is one operation, and one for a held lock."""
        start = lock.configuration.start
        if lock.configuration.schedule is not None or start.trigger is Trigger.OPERATOR:
            return super().acquire(lock)
        with self.asking("acquire", lock.name):
            is_taken = self._taken(lock)
        if is_taken:
            lock.tick = None
            return None
        entry, _, now = self._readable(lock.name)
        status = (entry or Entry.free(now)).status(lock.name, now, wall_clock(now))
        return status.holder()

    def extend(
        self,
        lock: Lock,
        lock_at_most_for: timedelta,
        lock_at_least_for: timedelta | None = None,
        *,
        is_beat: bool = False,
    ) -> bool:
        """See LockProvider.extend(). It is one operation."""
        pipeline = documents.extending(lock_at_most_for, lock_at_least_for)
        with self.asking("extend", lock.name):
            ours = documents.ours(lock, is_held=True)
            return self._find_and_update(ours, pipeline) is not None

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release(). The success of a tick is one operation more."""
        if lock.was_release_tried or (succeeded and lock.tick is not None):
            return super().release(lock, succeeded=succeeded)
        pipeline = documents.releasing(lock.lock_at_least_for)
        with self.asking("release", lock.name):
            return self._find_and_update(documents.ours(lock), pipeline) is not None

    def read(self, name: str) -> tuple[Entry | None, Document]:
        """See EntryLockProvider.read(). The version is the document."""
        entry, version, _ = self.observe(name)
        return entry, version

    def observe(self, name: str) -> tuple[Entry | None, Document, float]:
        """See EntryLockProvider.observe(). It is one operation, on the primary."""
        with self.asking("read", name):
            found = self._read({"_id": name})
        if not found:
            return None, {}, self.clock()
        [document] = found
        entry, now = _entry(document)
        return entry, document, now

    def write(self, name: str, entry: Entry, version: Document) -> bool:
        """See EntryLockProvider.write()."""
        from pymongo.errors import DuplicateKeyError

        fields = documents.to_document(entry, version)
        collection = self.client.collection
        with self.asking("change", name):
            if version:
                which = documents.unchanged(name, version)
                return bool(
                    collection.update_one(which, {"$set": fields}).matched_count
                )
            try:
                collection.insert_one({"_id": name, **fields})
            except DuplicateKeyError:
                return False
            return True

    def names(self) -> Iterable[str]:
        """See EntryLockProvider.names()."""
        with self.asking("list", None):
            return [
                str(found["_id"]) for found in self.client.collection.find({}, ["_id"])
            ]

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is the primary's."""
        with self.asking("ask the clock of", None):
            database = self.client.collection.database
            hello = database.command("hello", codec_options=database.codec_options)
            return documents.seconds(hello["localTime"])

    def read_all(self, names: Collection[str] | None) -> Iterable[LockStatus]:
        """See EntryLockProvider.read_all(). It is one query."""
        which = {} if names is None else {"_id": {"$in": list(names)}}
        with self.asking("list", None):
            found = {str(each["_id"]): each for each in self._read(which)}
        now = max(
            (documents.seconds(each["now"]) for each in found.values()), default=0
        )
        return statuses_at(
            now, found, lambda each: documents.to_entry(found[each], now)
        )

    def record_of(self, name: str) -> str:
        """See LockProvider.record_of()."""
        return f"its document {name!r} in MongoDB"

    def place(self) -> Place | None:
        """See LockProvider.place()."""
        with suppress(Exception):  # check() tells what is wrong with the options
            address = self.client.address()
            text = f"one MongoDB, in {'.'.join(address[-2:])}"
            return Place(("mongodb", *address), text)
        return None

    def try_options(self) -> None:
        """See ServerLockProvider.try_options()."""
        self.client.check()

    def failure(self, error: Exception) -> Failure | None:
        """See ServerLockProvider.failure()."""
        from pymongo import errors

        if not isinstance(error, errors.PyMongoError):
            return None
        # What PyMongo knows of each server fills a page.
        text = described(error).partition(", Timeout:")[0]
        is_sent = not isinstance(error, errors.ServerSelectionTimeoutError)
        lost = (errors.ConnectionFailure, errors.WriteConcernError)
        is_lost = isinstance(error, (*lost, errors.ExecutionTimeout))
        return Failure(text.partition(", full error:")[0], is_sent and is_lost)

    def _taken(self, lock: Lock) -> bool:
        from pymongo.errors import DuplicateKeyError

        which, pipeline = {"_id": lock.name}, documents.taking(lock)
        try:
            found = self._find_and_update(which, pipeline, upsert=True)
        except DuplicateKeyError:  # somebody inserted it in the same instant
            found = self._find_and_update(which, pipeline)
        return found is not None and found.get("lockedBy") == lock.locked_by

    def _find_and_update(
        self, which: Document, pipeline: list[Document], *, upsert: bool = False
    ) -> Document | None:
        from pymongo import ReturnDocument

        found: Document | None = self.client.collection.find_one_and_update(
            which,
            pipeline,
            projection=["lockedBy"],
            upsert=upsert,
            return_document=ReturnDocument.AFTER,
        )
        return found

    def _read(self, which: Document) -> list[Document]:
        stages = [{"$match": which}, {"$sort": {"_id": 1}}]
        projected = [*stages, {"$project": documents.WITH_CLOCK}]
        return list(self.client.collection.aggregate(projected))


def _entry(document: Document) -> tuple[Entry, float]:
    now = documents.seconds(document["now"])
    return documents.to_entry(document, now), now
