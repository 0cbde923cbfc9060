"""The store of the soak of the beats, and the links to it, which fail now and then."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import psutil

from benchmarks.soak.beats.hosts import Host
from benchmarks.soak.journal import Journal
from tests.support.servers import Server, answers
from tests.support.waiting import STARTUP_PATIENCE, wait_for

PAUSE_SECONDS = (12, 30)
"""Between two faults."""
LONGEST_AWAY_SECONDS = 20.0
LONGEST_HANG_SECONDS = 15.0


class StoreFaults:
    """
    Lets the store and the links to it fail, until ``over`` is set.

    A lower ``pace`` brings more faults, which are shorter.
    """

    def __init__(
        self,
        server: Server,
        hosts: Sequence[Host],
        journal: Journal,
        seed: int,
        pace: float,
        over: threading.Event,
    ):
        self._server = server
        self._hosts = hosts
        self._journal = journal
        self._chance = random.Random(f"{seed} store")
        self._pace = pace
        self._over = over
        self._faults: dict[Callable[[float], None], int] = {
            self._store_away: 2,
            self._store_hangs: 2,
            self._link_away: 3,
            self._link_hangs: 4,
            self._links_hang: 2,
        }

    def run(self) -> None:
        """See the class."""
        while not self._over.wait(self._chance.uniform(*PAUSE_SECONDS) * self._pace):
            [fault] = self._chance.choices([*self._faults], [*self._faults.values()])
            share = self._chance.random()
            name = fault.__name__.strip("_").replace("_", " ")
            self._journal.write("harm", kind=f"store: {name}")
            fault(share)

    def _store_away(self, share: float) -> None:
        with self._noted(self._hosts, "store away"):
            self._server.stop()
            self._wait(1 + share * (LONGEST_AWAY_SECONDS - 1))
            self._server.start()
            wait_for(answers, pause=0.05, timeout=STARTUP_PATIENCE)

    def _store_hangs(self, share: float) -> None:
        frozen = self._server.processes()
        with self._noted(self._hosts, "store hangs"):
            for process in frozen:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            try:
                self._wait(1 + share * (LONGEST_HANG_SECONDS - 1))
            finally:
                for process in frozen:
                    with suppress(psutil.NoSuchProcess):
                        process.resume()

    def _link_away(self, share: float) -> None:
        host = self._chance.choice(self._hosts)
        with self._noted([host], "link away"), host.link.away():
            self._wait(1 + share * (LONGEST_AWAY_SECONDS - 1))

    def _link_hangs(self, share: float) -> None:
        host = self._chance.choice(self._hosts)
        with self._noted([host], "link hangs"), host.link.cut():
            self._wait(1 + share * (LONGEST_HANG_SECONDS - 1))

    def _links_hang(self, share: float) -> None:
        with self._noted(self._hosts, "links hang"), ExitStack() as stack:
            for host in self._hosts:
                stack.enter_context(host.link.cut())
            self._wait(1 + share * (LONGEST_HANG_SECONDS - 1))

    def _wait(self, seconds: float) -> None:
        self._over.wait(seconds * min(self._pace, 1))

    @contextmanager
    def _noted(self, hosts: Sequence[Host], kind: str) -> Iterator[None]:
        names, since = [host.name for host in hosts], time.monotonic()
        self._journal.write("away", at=since, hosts=names, kind=kind)
        try:
            yield
        finally:
            self._journal.write("back", hosts=names, since=since)
