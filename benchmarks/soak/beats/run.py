"""
Beats on three hosts, whose clocks are wrong, with all kinds of faults.

It starts three ``manage.py shedlock beat`` of a small project. It restarts and kills
beats, kills their children, before their bodies begin and after it, and whole hosts;
deploys other schedules; lets the store and the links to it be away or hang; pauses and
resumes jobs, asks for runs, and starts ``catch-up``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.db import connections

from benchmarks.soak.beats.hosts import Host
from benchmarks.soak.beats.operators import (
    FAILURES,
    Operators,
    is_alive,
    note_dead_holders,
    open_requests,
)
from benchmarks.soak.beats.store import StoreFaults
from benchmarks.soak.beats.verdict import judge
from benchmarks.soak.beats.works import LOOK_INTERVAL_SECONDS
from benchmarks.soak.journal import Event, Journal, read
from benchmarks.soak.verdict import Verdict
from tests.support.proxies import proxy
from tests.support.servers import Server, own_server
from tests.support.threads import running_threads
from tests.support.zookeeper_servers import libfaketime

STORES = ("postgres", "mariadb")
HOSTS = {"alpha": (8, 0), "beta": (8, 90), "gamma": (3, -45)}
"""How many jobs a host's beat runs at once, and how far ahead its clock is."""
CRON_HOST = "cron"
"""It has no beat, and starts ``catch-up``."""
HARM_SECONDS = (0.7, 4)
"""Between two faults of hosts."""
DOWN_SECONDS = (0.2, 6)
"""For so long a host is down after its beat was killed."""
NEWBORN_SECONDS = 1.5
"""For so long the soak waits for a child that it can kill as it begins."""
CALM_SECONDS = 3 * LOOK_INTERVAL_SECONDS
"""For so long at least nothing fails before the end."""
REQUEST_SECONDS = 60
"""Requests that are open by then, though nothing fails, will stay so."""
LAST_BODY_SECONDS = 60
"""Bodies of killed beats end by themselves within so long."""
STALL_SECONDS = 1.0


@dataclass(frozen=True)
class Plan:
    """How long, and which faults; ``pace`` shortens the pauses between them."""

    seconds: float
    seed: int
    pace: float = 1.0
    journal: Path | None = None
    """Where the journal stays; else it is deleted."""
    broken: str | None = None
    """Which part of the library is taken out; see ``BREAKS``."""
    is_enough: Callable[[Verdict], bool] = field(default=lambda verdict: True)
    """Whether the faults may end, once the time is over."""


@dataclass
class Tail:
    """What is at the journal's end: which bodies live."""

    path: Path
    bodies: dict[str, Event] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)
    """Forks that bodies have left behind."""
    _read: int = 0

    def follow(self) -> None:
        """Read what was written since the last call."""
        with self.path.open("rb") as lines:
            lines.seek(self._read)
            text = lines.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            # Only few events matter, and most lines are others.
            if b'"begin"' in line or b'"end"' in line or b'"left"' in line:
                self._take(line)

    def _take(self, line: bytes) -> None:
        event = json.loads(line)
        if event["what"] == "begin":
            self.bodies[event["id"]] = event
        elif event["what"] == "end":
            self.bodies.pop(event["id"], None)
        elif event["what"] == "left":
            self.left.append(event["pid"])


class BeatSoak:
    """The one that restarts, kills and deploys."""

    def __init__(
        self, plan: Plan, server: Server, hosts: list[Host], cron: Host, journal: Path
    ):
        self._plan = plan
        self._hosts = hosts
        self._cron = cron
        self._journal_path = journal
        self._journal = Journal(journal)
        self._next_verdict = 0.0
        self._tail = Tail(journal)
        self._chance = random.Random(f"{plan.seed} hosts")
        self._version = 0
        self._rolling: list[Host] = []
        self._start_at: dict[str, float] = {}
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._commands: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()
        self._is_seen = threading.Event()
        self._harms: dict[Callable[[], None], int] = {
            # Beats have to live long enough to tidy up after their children.
            self._kill_body: 20,
            self._kill_newborn: 12,
            self._catch_up: 4,
            self._restart: 3,
            self._restart_at_once: 1,
            self._kill_beat: 2,
            self._kill_host: 2,
            self._deploy: 1,
        }
        everywhere = [*hosts, cron]
        harm = (plan.seed, plan.pace, self._over)
        self._threads = (
            StoreFaults(server, everywhere, self._journal, *harm).run,
            Operators(self._journal, *harm).run,
            lambda: note_dead_holders(self._journal, self._is_seen),
        )

    def run(self) -> None:
        """Do harm until time and plan say that it is over; let all be calm, and end."""
        # The largest of many: this process may be paused between the two clocks.
        apart = max(time.time() - time.monotonic() for _ in range(100))
        self._journal.write("clock", wall=apart)
        self._journal.write("deploy", version=self._version)
        self._next_verdict = time.monotonic() + self._plan.seconds
        with ExitStack() as stack:
            for work in self._threads:
                stack.enter_context(running_threads(1, work))
            # Before the threads are joined, however this ends.
            stack.callback(self._is_seen.set)
            stack.callback(self._over.set)
            stack.callback(self._end_all)
            next_harm = time.monotonic() + 5
            while not self._is_over():
                self._go_on(0.02)
                if time.monotonic() > next_harm:
                    self._harm()
                    pause = self._chance.uniform(*HARM_SECONDS) * self._plan.pace
                    next_harm = time.monotonic() + pause
            self._over.set()
            self._be_calm()

    def _is_over(self) -> bool:
        if time.monotonic() < self._next_verdict:
            return False
        self._next_verdict = time.monotonic() + 1  # the journal is long
        return self._plan.is_enough(judge(read(self._journal_path)))

    def _go_on(self, seconds: float) -> None:
        began = time.monotonic()
        time.sleep(seconds)
        if (took := time.monotonic() - began) > STALL_SECONDS:
            self._journal.write("stall", took=took)
        self._tail.follow()
        due = [each for each in self._later if each[0] <= time.monotonic()]
        self._later = [each for each in self._later if each not in due]
        for _, act in due:
            act()
        for host in self._hosts:
            self._tend(host)
        is_ready = all(h.is_running and h.ending_at is None for h in self._hosts)
        if self._rolling and is_ready:
            self._rolling.pop().stop()
        self._commands = [each for each in self._commands if each.poll() is None]

    def _tend(self, host: Host) -> None:
        now = time.monotonic()
        host.note_first_look()
        if host.is_running:
            if host.ending_at is not None and now > host.ending_at:
                self._journal.write("endless", host=host.name)
                host.crash()
        elif host.note_end():
            self._start_at.setdefault(host.name, now)
        elif now >= self._start_at.get(host.name, now):
            self._start_at.pop(host.name, None)
            host.start(self._version)

    def _be_calm(self) -> None:
        self._rolling.clear()
        # A fault of the store may still go on for a while.
        least = time.monotonic() + CALM_SECONDS
        most = time.monotonic() + REQUEST_SECONDS
        still_open: list[str] = []
        while time.monotonic() < most:
            self._go_on(0.2)
            with suppress(*FAILURES):
                still_open = open_requests()
                if time.monotonic() > least and not still_open:
                    break
        self._journal.write("calm")
        for name in still_open:
            self._journal.write("open request", name=name)

    def _end_all(self) -> None:
        # However this ends, none of its processes stays.
        for host in self._hosts:
            host.stop()
        running = [host for host in self._hosts if host.is_running]
        while running:
            time.sleep(0.1)
            now = time.monotonic()
            for host in [*running]:
                if host.note_end():
                    running.remove(host)
                elif host.ending_at is not None and now > host.ending_at:
                    self._journal.write("endless", host=host.name)
                    host.crash()
        until = time.monotonic() + LAST_BODY_SECONDS
        while time.monotonic() < until and self._living():
            time.sleep(0.2)
        for pid in self._living():
            self._journal.write("killing", pids=[pid], of="child", host="", pid=0)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _living(self) -> list[int]:
        """Return the processes of bodies, and what they left, that still run."""
        self._tail.follow()
        pids = [event["pid"] for event in self._tail.bodies.values()]
        pids += [each.pid for each in self._commands if each.poll() is None]
        return [pid for pid in [*pids, *self._tail.left] if is_alive(pid)]

    # What is done to hosts.

    def _harm(self) -> None:
        [harm] = self._chance.choices([*self._harms], [*self._harms.values()])
        harm()

    def _note_harm(self, kind: str) -> None:
        self._journal.write("harm", kind=f"hosts: {kind}")

    def _some_host(self) -> Host | None:
        """Return a host whose beat is not to end already."""
        host = self._chance.choice(self._hosts)
        return host if host.is_running and host.ending_at is None else None

    def _restart(self) -> None:
        if host := self._some_host():
            host.stop()
            self._note_harm("beat restarted")

    def _restart_at_once(self) -> None:
        if host := self._some_host():
            host.stop()
            at = time.monotonic() + self._chance.uniform(0.3, 2)
            self._later.append((at, partial(host.stop, host.pid)))
            self._note_harm("beat restarted by two signals")

    def _kill_beat(self) -> None:
        host = self._chance.choice(self._hosts)
        if host.is_running:
            host.kill()
            self._let_be_down(host)
            self._note_harm("beat killed")

    def _kill_host(self) -> None:
        host = self._chance.choice(self._hosts)
        if host.is_running:
            host.crash()
            self._let_be_down(host)
            self._note_harm("host crashed")

    def _let_be_down(self, host: Host) -> None:
        seconds = self._chance.uniform(*DOWN_SECONDS)
        self._start_at[host.name] = time.monotonic() + seconds

    def _kill_body(self) -> None:
        beats = {host.pid: host for host in self._hosts if host.is_running}
        bodies = [
            body
            for body in self._tail.bodies.values()
            if body["parent"] in beats and is_alive(body["pid"])
        ]
        if bodies:
            body = self._chance.choice(bodies)
            beats[body["parent"]].kill_child(body["pid"])
            self._note_harm("child killed in its body")

    def _kill_newborn(self) -> None:
        host = self._some_host()
        if host is None:
            return
        before, until = {*host.children()}, time.monotonic() + NEWBORN_SECONDS
        while time.monotonic() < until:
            for pid in {*host.children()} - before:
                time.sleep(self._chance.uniform(0, 0.05))
                host.kill_child(pid)
                self._note_harm("child killed as it began")
                return
            time.sleep(0.002)

    def _deploy(self) -> None:
        if not self._rolling:
            self._version += 1
            self._journal.write("deploy", version=self._version)
            self._rolling = [*self._hosts]
            self._note_harm("deploy of other schedules")

    def _catch_up(self) -> None:
        if not self._commands:
            command = self._cron.command(self._version, "catch-up")
            self._commands.append(command)
            self._journal.write("catch-up", pid=command.pid)
            self._note_harm("catch-up")


def database() -> dict[str, Any]:
    """Return how the project reaches the server, but for its address."""
    given = connections["default"].settings_dict
    kept = {key: given[key] for key in ("ENGINE", "NAME", "USER", "PASSWORD")}
    return {**kept, "OPTIONS": {"connect_timeout": 5}}


@contextmanager
def hosts_on(
    server: Server, journal: Path, broken: str | None = None
) -> Iterator[tuple[list[Host], Host]]:
    """Yield the hosts with a beat, and the one without, each with its own link."""
    if libfaketime() is None:
        print("libfaketime is missing: all clocks are the same", file=sys.stderr)
    [address] = server.addresses()
    with ExitStack() as stack:
        found = []
        for name, (jobs, ahead) in {**HOSTS, CRON_HOST: (0, 0)}.items():
            link = stack.enter_context(proxy(address))
            host = Host(
                name,
                link,
                database(),
                journal,
                jobs=jobs,
                ahead_seconds=ahead,
                broken=broken,
            )
            stack.callback(host.close)
            found.append(host)
        *hosts, cron = found
        yield hosts, cron


def soak(plan: Plan) -> Verdict:
    """Run the soak on a server of its own; return what it shows."""
    with tempfile.TemporaryDirectory() as folder:
        journal = plan.journal or Path(folder, "journal")
        with (
            own_server() as server,
            hosts_on(server, journal, plan.broken) as (hosts, cron),
        ):
            BeatSoak(plan, server, hosts, cron, journal).run()
        return judge(read(journal))
