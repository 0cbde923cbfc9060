"""The provider of locks in MongoDB, in the documents of ShedLock for Java."""

from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from django_shedlock.durations import Duration, option_duration
from django_shedlock.exceptions import described
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockHolder
from django_shedlock.providers import mongodb_documents as documents
from django_shedlock.providers.base import Place
from django_shedlock.providers.entries import Entry, Found, Read
from django_shedlock.providers.servers import (
    Clients,
    ServerLockProvider,
    check_files,
    shown_url,
)
from django_shedlock.schedules.state import Trigger

if TYPE_CHECKING:
    from pymongo.collection import Collection as MongoCollection

UNAUTHORIZED = 13
OUT_OF_DISK_SPACE = 14031
WORDS_BEFORE_A_PAGE = (", Timeout:", ", full error:", " to execute command")
"""After these, PyMongo or MongoDB describes every server, or the command."""


class CollectionClients(Clients["MongoCollection[documents.Document]"]):
    """Collections of PyMongo, each with a client of its own."""

    @staticmethod
    def close_client(client: "MongoCollection[documents.Document]") -> None:
        """See Clients.close_client()."""
        client.database.client.close()


class MongoLockProvider(ServerLockProvider[documents.Document, documents.Document]):
    """
    Keeps each lock as a document in MongoDB, by the server's clock.

    ``url`` names the servers. ``database`` is by default that of the URL, or else
    ``shedlock``. ``collection`` is by default that of ShedLock for Java, with which it
    can be shared. The majority of a replica set confirms each change. An operation
    fails after ``timeout``. Other options are those of ``pymongo.MongoClient``.
    """

    shortest_lease: timedelta = timedelta(milliseconds=1)
    deletes_records: bool = True
    store: str = "MongoDB"
    library: str = "PyMongo"
    extra: str = "mongodb"
    address: str = "url"

    def __init__(
        self,
        alias: str,
        *,
        url: str,
        database: str | None = None,
        collection: str = "shedLock",
        timeout: Duration = "5s",
        **options: Any,
    ):
        super().__init__(alias, **options)
        self._url, self._database, self._name = url, database, collection
        self._shown, self._is_srv = shown_url(url), url.startswith("mongodb+srv://")
        limit = option_duration("timeout", timeout) // timedelta(milliseconds=1)
        self._options = {
            "timeoutMS": limit,
            **self.client_options,
            # With these, PyMongo reads the other documents even if one is foreign.
            "tz_aware": True,
            "datetime_conversion": "DATETIME_AUTO",
            "unicode_decode_error_handler": "replace",
        }
        self.clients: CollectionClients = CollectionClients(self._connect)

    @property
    def collection(self) -> "MongoCollection[documents.Document]":
        """The collection, with the client of this process."""
        return self.clients.get()

    def acquire(self, lock: Lock) -> LockHolder | None:
        """See LockProvider.acquire(). It is one operation; two if the lock is held."""
        schedule, start = lock.configuration.schedule, lock.configuration.start
        is_by_operator = start.trigger is Trigger.OPERATOR or start.request is not None
        if schedule is not None or is_by_operator:
            return super().acquire(lock)
        which, pipeline = {"_id": lock.name}, documents.acquiring(lock)
        with self.asking("acquire", lock.name):
            from pymongo.errors import DuplicateKeyError

            try:
                found = self._find_and_update(which, pipeline, upsert=True)
            except DuplicateKeyError:  # somebody inserted it in the same instant
                found = self._find_and_update(which, pipeline)
        is_ours = found is not None and found.get("lockedBy") == lock.locked_by
        if found is None or not is_ours or found["isReleased"]:
            return super().acquire(lock)
        lock.known_token = int(found["fencingToken"])
        lock.abandoned = documents.abandoned_run(found)
        return None

    def extend(self, lock: Lock, *durations: timedelta) -> bool:
        """See LockProvider.extend(). It is one operation; a loss is one more."""
        ends, *kept = map(documents.after, durations)
        new: documents.Document = {
            "lockUntil": {"$max": ["$lockUntil", ends]},
            "extendedAt": "$$NOW",
            "changes": documents.next_change(),
        }
        if kept:
            new["atLeastUntil"] = kept[0]
        which = documents.readable(lock.name, lockedBy=lock.locked_by, isReleased=False)
        which["$expr"] = {"$gt": ["$lockUntil", "$$NOW"]}
        with self.asking("extend", lock.name):
            found = self._find_and_update(which, [{"$set": new}])
        # If nothing was changed, a read tells a loss from a record that is unreadable.
        return found is not None or super().extend(lock, *durations)

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        """See LockProvider.release(). A change of a tick is one operation more."""
        is_again = lock.was_release_tried
        changes_ticks = (succeeded and lock.tick is not None) or lock.gives_tick_back
        if is_again or changes_ticks or not lock.ends_run:
            return super().release(lock, succeeded=succeeded)
        run = lock.locked_by
        which = documents.readable(lock.name, lockedBy=run, openRun=run)
        pipeline = documents.releasing(lock, succeeded=succeeded)
        with self.asking("release", lock.name):
            found = self._find_and_update(which, pipeline)
        return found is not None or super().release(lock, succeeded=succeeded)

    def read(self, name: str) -> Read[documents.Document]:
        """
        See EntryLockProvider.read(). It is one operation on the primary.

        The version is the document.
        """
        with self.asking("read", name):
            found = self._read({"_id": name})
        if not found:
            return None, {}, self.clock()
        return documents.parse(*found)

    def write(self, name: str, entry: Entry, version: documents.Document) -> bool:
        from pymongo.errors import DuplicateKeyError

        fields = documents.to_document(entry, version)
        with self.asking("change", name):
            if version:
                which = documents.unchanged(name, version)
                updated = self.collection.update_one(which, {"$set": fields})
                return bool(updated.matched_count)
            try:
                self.collection.insert_one({"_id": name, **fields})
            except DuplicateKeyError:
                return False
            return True

    def delete(self, name: str, version: documents.Document) -> bool:
        with self.asking("delete", name):
            deleted = self.collection.delete_one(documents.unchanged(name, version))
            return bool(deleted.deleted_count)

    def clock(self) -> float:
        """See EntryLockProvider.clock(). It is the primary's."""
        with self.asking("ask the clock of", None):
            database = self.collection.database
            hello = database.command("hello", codec_options=database.codec_options)
            return documents.seconds_of(hello["localTime"])

    def read_all(self, names: Collection[str] | None) -> Found[documents.Document]:
        """See EntryLockProvider.read_all(). It is one query."""
        with self.asking("list", None):
            found = self._read({} if names is None else {"_id": {"$in": list(names)}})
        return [(str(each["_id"]), each) for each in found]

    def parse(self, found: documents.Document) -> Read[documents.Document]:
        """See EntryLockProvider.parse()."""
        return documents.parse(found)

    def record_of(self, name: str) -> str:
        return f"its document {name!r} in MongoDB"

    def place(self) -> Place | None:
        with suppress(Exception):  # check() reports wrong options
            address = self._address()
            text = f"one MongoDB, in {'.'.join(address[-2:])}"
            return Place(("mongodb", *address), text)
        return None

    def try_options(self) -> None:
        self._address()
        if self._is_srv:  # to make a client, PyMongo may ask the name server
            of_url = dict(parse_qsl(urlsplit(self._url).query))
            options = {**of_url, **self._options}
            check_files(options, ("tlsCAFile", "tlsCertificateKeyFile"))
        else:
            self._connect().database.client.close()

    def explain(self, error: Exception) -> tuple[str, bool] | None:
        from pymongo import errors

        if isinstance(error, OSError) and error.filename is not None:
            return described(error), False  # PyMongo could not read that file
        if not isinstance(error, errors.PyMongoError):
            return None
        text = described(error)
        for words in WORDS_BEFORE_A_PAGE:
            text = text.partition(words)[0]
        if isinstance(error, errors.OperationFailure):
            text = f"{self._fix_of(error.code)} {text}".lstrip()
        is_sent = not isinstance(error, errors.ServerSelectionTimeoutError)
        lost = (
            errors.ConnectionFailure,
            errors.ExecutionTimeout,
            errors.ProtocolError,
            errors.WriteConcernError,
        )
        # mongos sets this label when it has lost the shard.
        is_lost = error.has_error_label("RetryableWriteError")
        return text, is_sent and (is_lost or isinstance(error, lost))

    def _fix_of(self, code: int | None) -> str:
        if code == UNAUTHORIZED:
            place = ".".join(self._address()[-2:])
            return f"Allow its user find, insert, update and remove on {place!r}."
        return "Give MongoDB more disk space." if code == OUT_OF_DISK_SPACE else ""

    def _find_and_update(
        self,
        which: documents.Document,
        pipeline: list[documents.Document],
        *,
        upsert: bool = False,
    ) -> documents.Document | None:
        from pymongo import ReturnDocument

        fields = ["lockedBy", "isReleased", "fencingToken"]
        fields += ["outcome", "lastRun", "startedAt", "endedAt"]
        return self.collection.find_one_and_update(
            which,
            pipeline,
            projection=fields,
            upsert=upsert,
            return_document=ReturnDocument.AFTER,
        )

    def _read(self, which: documents.Document) -> list[documents.Document]:
        stages = [{"$match": which}, {"$sort": {"_id": 1}}]
        projected = [*stages, {"$project": documents.projection()}]
        return list(self.collection.aggregate(projected))

    def _connect(self) -> "MongoCollection[documents.Document]":
        from pymongo import MongoClient, ReadPreference, WriteConcern
        from pymongo.read_concern import ReadConcern

        client: MongoClient[documents.Document]
        client = MongoClient(self._url, connect=False, **self._options)
        if self._database is None:
            database = client.get_default_database(default="shedlock")
        else:
            database = client[self._database]
        # These hold whatever the URL says. The primary has the newest documents, and a
        # conditional write decides, which a majority confirms.
        return database.get_collection(
            self._name,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("local"),
            write_concern=WriteConcern("majority"),
        )

    def _address(self) -> tuple[str, ...]:
        from pymongo.uri_parser import parse_uri

        if self._is_srv:
            host, _, database = self._shown.partition("://")[2].partition("/")
            places = [host]
        else:
            parts = parse_uri(self._url, validate=False, warn=False)
            database = parts["database"]
            places = sorted(f"{host}:{port}" for host, port in parts["nodelist"])
        return (*places, self._database or database or "shedlock", self._name)
