"""
Workers, a server and a network that fail at random, and a journal of what came of it.

It kills and stops workers, lets others end in good order, and stops, crashes, freezes
and restarts the server. It may also promote the server's replica. etcd and ZooKeeper
have three members; it also crashes and freezes single ones, and the leader. The network
delays, swallows and cuts what workers send and get.
"""

from __future__ import annotations

import math
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from django.db import connections

from benchmarks.soak import network
from benchmarks.soak.aftermath import held_by, look
from benchmarks.soak.enough import LONGEST
from benchmarks.soak.journal import Journal, read
from benchmarks.soak.pairs import Pair
from benchmarks.soak.servers import Cluster, LockServer, soaked
from benchmarks.soak.verdict import Verdict, judge
from benchmarks.soak.watch import HUNG
from benchmarks.soak.worker import Task, make_sets, work
from django_shedlock.locks.lock import identity_of
from tests.support.processes import Worker
from tests.support.processes import worker as one_worker
from tests.support.servers import Server, use
from tests.support.standstills import ServerProcess
from tests.support.stores import chosen_store

DRIFT = 0.01
"""Seconds by which the wall clock may have moved before it is told."""

HARM = (1, 4)
"""Seconds between two signals to workers."""

HARMS = {"killed": 3, "stopped": 4, "ended": 4}
LONGEST_END = 120.0
"""Seconds from SIGTERM to the end of a worker: two of its exit timeouts, and more."""

LONGEST_STOP = 7.0
SERVER_HARM = (20, 70)
"""Seconds between two faults of the server."""

LONGEST_OUTAGE = 8.0


@dataclass(frozen=True)
class Plan:
    """How long, how many workers, and which faults; ``pace`` shortens their pauses."""

    seconds: float
    seed: int
    workers: int = 7
    pace: float = 1.0
    longest_swallow: float | None = 20.0
    broken: str | None = None
    workload: str = "all"
    store: str = field(default_factory=chosen_store)
    replica: bool = False
    is_enough: Callable[[Verdict], bool] = field(default=lambda verdict: True)


class Soak:
    """The one that kills, stops and restarts."""

    def __init__(self, plan: Plan, server: Server, ports: list[int], journal: Path):
        self._plan = plan
        self._server = server
        self._ports = ports
        self._provider: dict[str, Any] | None = None
        if isinstance(server, LockServer):
            self._provider = server.provider(ports)
        self._path = journal
        self._journal = Journal(journal)
        # One for each, so that how long things take changes no choice.
        self._chance = random.Random(f"{plan.seed} workers")
        self._server_chance = random.Random(f"{plan.seed} server")
        self._starts: Counter[str] = Counter()
        self._until = time.monotonic() + plan.seconds
        self._next_look = self._until
        self._wall = time.time() - time.monotonic()
        self._stopped: dict[str, float] = {}
        self._ending: dict[str, float] = {}
        names = [f"worker-{number}" for number in range(plan.workers)]
        self._workers = {name: self._start(name) for name in names}
        self._server_harms: dict[Callable[[], None], int] = {
            self._restart: 3,
            self._crash: 3,
            self._outage: 2,
            self._freeze: 2,
        }
        if isinstance(server, Pair):
            self._server_harms[self._promote] = 4
        if isinstance(server, Cluster):
            self._server_harms |= {
                self._crash_member: 3,
                self._crash_leader: 10,
                self._freeze_member: 3,
                self._freeze_leader: 2,
            }

    def run(self) -> None:
        """Do harm until the time is over, and then let the workers end."""
        next_harm = next_server_harm = time.monotonic()
        next_server_harm += self._server_pause(*SERVER_HARM)
        try:
            while not self._is_over():
                self._sleep(0.05)
                self._go_on()
                self._replace_dead()
                if time.monotonic() > next_harm:
                    self._harm_worker()
                    pause = self._chance.uniform(*HARM) * self._plan.pace
                    next_harm = time.monotonic() + pause
                if time.monotonic() > next_server_harm:
                    self._harm_server()
                    pause = self._server_pause(*SERVER_HARM)
                    next_server_harm = time.monotonic() + pause
        finally:
            for worker in self._workers.values():
                worker.end()

    def _is_over(self) -> bool:
        if time.monotonic() < max(self._until, self._next_look):
            return False
        self._next_look = time.monotonic() + 1  # the journal is long
        return self._plan.is_enough(judge(read(self._path)))

    def _server_pause(self, shortest: float, longest: float) -> float:
        return self._server_chance.uniform(shortest, longest) * self._plan.pace

    def _sleep(self, seconds: float) -> None:
        began = time.monotonic()
        time.sleep(seconds)
        if (took := time.monotonic() - began) > 1:
            self._journal.write("stall", took=took)
        # The server's clock against that of the holders: a step of it ends leases.
        drift = time.time() - time.monotonic() - self._wall
        if abs(drift) > DRIFT:
            self._journal.write("drift", took=abs(drift))

    def _start(self, name: str) -> Worker:
        self._starts[name] += 1
        seed = f"{self._plan.seed} {name} {self._starts[name]}"
        task = Task(
            name,
            seed,
            self._until + LONGEST,  # else they end with their parent
            self._ports,
            self._provider,
            self._path,
            self._plan.workload,
            self._plan.broken,
        )
        return Worker(work, task)

    def _go_on(self) -> None:
        for name, until in list(self._stopped.items()):
            if time.monotonic() > until:
                del self._stopped[name]
                self._workers[name].go_on()

    def _replace_dead(self) -> None:
        for name, worker in self._workers.items():
            if worker.process.is_alive():
                if time.monotonic() > self._ending.get(name, math.inf):
                    self._journal.write("endless", worker=name)
                    self._replace(name)
                continue
            if name in self._ending:
                self._look_at_end(name)
            elif worker.process.exitcode != HUNG:  # which it has noted
                self._journal.write("died", worker=name, why=worker.last_words())
            self._replace(name)

    def _replace(self, name: str) -> None:
        self._ending.pop(name, None)
        self._workers[name].end()
        self._workers[name] = self._start(name)

    def _look_at_end(self, name: str) -> None:
        process = self._workers[name].process
        if process.exitcode in (HUNG, -signal.SIGTERM):  # or it had not begun
            return
        try:
            self._workers[name].result()
        except (AssertionError, EOFError, OSError) as error:
            self._journal.write("died", worker=name, why=str(error))
            return
        assert process.pid is not None
        identity = identity_of(process.pid)
        held = held_by(identity)
        self._journal.write("reaped", identity=identity, held=held)

    def _harm_worker(self) -> None:
        name = self._chance.choice([*self._workers])
        [harm] = self._chance.choices([*HARMS], [*HARMS.values()])
        seconds = self._chance.uniform(0.2, LONGEST_STOP) * max(self._plan.pace, 0.5)
        if name in self._stopped:
            return
        if harm == "killed":
            self._replace(name)
            self._journal.write("harm", kind="workers killed")
        elif harm == "ended":
            if name not in self._ending:
                self._workers[name].process.terminate()
                self._ending[name] = time.monotonic() + LONGEST_END
                self._journal.write("harm", kind="workers ended")
        elif len(self._stopped) < len(self._workers) // 3:
            try:
                self._workers[name].stop()
            except ProcessLookupError:  # it was ending, and has ended
                return
            self._stopped[name] = time.monotonic() + seconds
            self._journal.write("harm", kind="workers stopped")

    def _harm_server(self) -> None:
        harms = self._server_harms
        [harm] = self._server_chance.choices([*harms], [*harms.values()])
        name = harm.__name__.strip("_")
        self._journal.write("harm", kind=f"server: {name}")
        connections["default"].close()
        harm()

    def _restart(self) -> None:
        self._server.stop()
        self._server.start()

    def _crash(self) -> None:
        self._server.crash()
        self._journal.write("crashed")
        self._server.start()

    def _promote(self) -> None:
        assert isinstance(self._server, Pair)
        self._server.promote()
        self._journal.write("crashed")
        use(self._server.settings())

    def _crash_member(self) -> None:
        self._crash_one(self._server_chance.choice(self._cluster.members))

    def _crash_leader(self) -> None:
        self._crash_one(self._cluster.leader())

    def _crash_one(self, member: ServerProcess) -> None:
        member.end()
        self._wait(self._server_pause(0, LONGEST_OUTAGE))
        self._cluster.restart_member(member)

    def _freeze_member(self) -> None:
        self._freeze_one(self._server_chance.choice(self._cluster.members))

    def _freeze_leader(self) -> None:
        self._freeze_one(self._cluster.leader())

    def _freeze_one(self, member: ServerProcess) -> None:
        with member.paused():
            self._wait(self._server_pause(0, LONGEST_OUTAGE))

    @property
    def _cluster(self) -> Cluster[Any]:
        assert isinstance(self._server, Cluster)
        return self._server

    def _outage(self) -> None:
        self._server.stop()
        self._wait(self._server_pause(0, LONGEST_OUTAGE))
        self._server.start()

    def _freeze(self) -> None:
        frozen = self._server.processes()
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        try:
            self._wait(self._server_pause(0, LONGEST_OUTAGE))
        finally:
            for process in frozen:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._sleep(0.05)
            self._go_on()


def soak(plan: Plan) -> Verdict:
    """Run the soak on a server and behind a proxy of its own; return what it shows."""
    with (
        soaked(plan.store, replica=plan.replica) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        make_sets()
        journal = Path(folder, "journal")
        link = network.Network(
            server.addresses(), journal, plan.seed, plan.pace, plan.longest_swallow
        )
        with one_worker(network.run, link) as between:
            Soak(plan, server, between.heard(), journal).run()
        # With the proxy the last connections end, and what they had begun.
        verdict = judge(read(journal))
        look(verdict, journal)
    return verdict
