"""The client of MongoDB, one for each process."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from weakref import finalize

DATABASE = "shedlock"


class Client:
    """
    The collection of one provider, for all threads of a process.

    Nothing is connected before it is needed. A forked child connects anew.
    """

    def __init__(
        self,
        url: str,
        database: str | None,
        collection: str,
        timeout: timedelta,
        options: dict[str, Any],
    ):
        self._url, self._database, self._name = url, database, collection
        self._timeout = timeout // timedelta(milliseconds=1)
        self._options = options
        self._of_processes: dict[int, Any] = {}
        # PyMongo warns of a client that nobody closes.
        finalize(self, _close, self._of_processes)

    @property
    def collection(self) -> Any:
        """The collection; its writes are confirmed by a majority."""
        process = os.getpid()
        try:
            return self._of_processes[process]
        except KeyError:  # of two threads that make one, both use the first
            return self._of_processes.setdefault(process, self.make())

    def make(self) -> Any:
        """Return a new collection; an error of PyMongo, if there can't be one."""
        from pymongo import MongoClient, WriteConcern

        options = {"timeoutMS": self._timeout, **self._options}
        client: Any = MongoClient(self._url, connect=False, tz_aware=True, **options)
        if self._database is None:
            database = client.get_default_database(default=DATABASE)
        else:
            database = client[self._database]
        majority = WriteConcern("majority")
        return database.get_collection(self._name, write_concern=majority)

    def check(self) -> None:
        """Raise an error, such as PyMongo's, if the options are wrong; ask nobody."""
        self.address()
        if not self._is_srv:  # for that, PyMongo may ask the name server
            self.make().database.client.close()

    def address(self) -> tuple[str, ...]:
        """Return where the documents are, without a password."""
        from pymongo.uri_parser import parse_uri

        if self._is_srv:
            rest = self._url.partition("://")[2].rpartition("@")[2]
            hosts, _, path = rest.partition("/")
            database = path.partition("?")[0]
            places = [hosts]
        else:
            parts = parse_uri(self._url, validate=False, warn=False)
            database = parts["database"]
            places = sorted(f"{host}:{port}" for host, port in parts["nodelist"])
        return (*places, self._database or database or DATABASE, self._name)

    def close(self) -> None:
        """Close the connections of this process."""
        _close(self._of_processes)

    @property
    def _is_srv(self) -> bool:
        return self._url.startswith("mongodb+srv://")


def _close(of_processes: dict[int, Any]) -> None:
    collection = of_processes.pop(os.getpid(), None)
    if collection is not None:
        collection.database.client.close()
