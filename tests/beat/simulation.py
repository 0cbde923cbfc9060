"""
A world of beats in which only the rules are real.

One clock, one heap of events, and one ``Random``: a seed gives the same history each
time. The store is the memory provider, the decisions are those of ``ScheduleState``,
``LockStatus``, ``Lock`` and ``beat.looks``. Processes, signals and latency are made up.

``python -m tests.beat.simulation SEED`` prints a history.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from heapq import heappop, heappush
from random import Random
from typing import Any

import django

if __name__ == "__main__":
    from django.conf import settings

    settings.configure(
        INSTALLED_APPS=["django_shedlock"], USE_TZ=True, SHEDLOCK_HISTORY=False
    )
    django.setup()

from django_shedlock.beat import children, looks, reporting
from django_shedlock.beat.looks import (
    BeatJobs,
    BeatReport,
    ChildEnd,
    DueStart,
    EndTimes,
    Look,
)
from django_shedlock.beat.loop import TryAgain
from django_shedlock.beat.reporting import Reporter
from django_shedlock.clocks import aware
from django_shedlock.exceptions import LockLost, LockProviderError
from django_shedlock.locks import lock as locks
from django_shedlock.locks.configuration import ZERO, LockConfiguration
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers import entries
from django_shedlock.providers.base import LockQuery
from django_shedlock.providers.entries import Entry
from django_shedlock.registry.jobs import Job
from django_shedlock.registry.requests import has_request
from django_shedlock.schedules import state as schedule_states
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.testing.times import OneClockProvider
from tests.beat.properties import Event, Judge, Kind, Limits, Run, Violation

BEGIN = datetime(2026, 3, 2, 9, 59, 30, tzinfo=UTC)
EXIT_TIMEOUT_SECONDS = 10.0
"""For so long a child that ends tries to release its lock."""
LEASE_END_SECONDS = 2.0
"""So long before a lease ends that can't be extended, its body is ended."""
DEADLINE_SECONDS = 5.0
"""A beat's statement ends with an error after so long."""
SCHEDULES = ("* * * * *", "* * * * *", "*/2 * * * *", "1-59/2 * * * *", "*/3 * * * *")
_schedule = lru_cache(Schedule)

Steps = Generator["Statement | float", Any, None]
"""What a process does: it waits for the answer to a statement, or for some seconds."""


@dataclass
class Statement:
    """
    Something that a process asks the store, which executes it at one instant.

    Of an acquisition that arrives late, ``lock`` is given. A killed process has read
    the record before, so its UPDATE finds nothing if the record has changed since.
    """

    operation: Callable[[], Any]
    has_deadline: bool = False
    lock: str = ""
    seen: Entry | None = None
    sent_at: float = 0.0


@dataclass(frozen=True)
class BeatRules:
    """The rules of a beat that are no pure function: a test switches one off."""

    settles_again: bool = True
    """Does it look again whether a dead child's acquisition is still there?"""
    settles: bool = True
    """Does it release what dead children hold?"""
    waits_for_stop_timeout: bool = True
    ends_before_lease: bool = True
    """Is a body ended whose lease can't be extended?"""


@dataclass(frozen=True)
class Task:
    """A job of a world, and how its bodies behave."""

    job: Job
    rerun: bool
    keep_alive: bool
    lease: float
    duration: float
    long_chance: float
    failing_chance: float
    dying_chance: float

    @property
    def name(self) -> str:
        return self.job.full_name


class Store(OneClockProvider):
    """The memory's locks, by the world's clock, and with its faults."""

    def __init__(self, world: World):
        super().__init__("default")
        self.world = world
        self.is_away = False
        self.is_hanging = False
        self.loses_reply = False
        self.late: Callable[[], object] | None = None
        self.since: float | None = None
        """From when on a registration counts."""

    def clock(self) -> float:
        return self.world.clock

    def is_seen_here_only(self) -> bool:
        """Keep out threads: a loss is accounted for at once."""
        return True

    def read(self, name: str) -> Any:
        if self.is_away or self.is_hanging:
            raise failure(is_uncertain=self.is_hanging)
        return super().read(name)

    def write(self, name: str, entry: Entry, version: Entry | None) -> bool:
        is_written = super().write(name, entry, version)
        if is_written:
            self.world.note_record(name, version, entry)
            if self.loses_reply:
                raise failure(is_uncertain=True)
        return is_written

    def acquire(self, lock: Lock) -> Any:
        if self.is_hanging:
            late, seen = copy.copy(lock), self._entries.get(lock.name)

            def acquire_late() -> None:
                if self._entries.get(lock.name) is seen:
                    super(Store, self).acquire(late)

            self.late = acquire_late
        return super().acquire(lock)

    def register(
        self, name: str, schedule: Schedule, since: datetime | None = None
    ) -> None:
        self.since = None if since is None else since.timestamp()
        super().register(name, schedule, since)
        self.since = None

    def release(self, lock: Lock, *, succeeded: bool = True) -> bool:
        if self.is_hanging:
            late = copy.copy(lock)

            def release_late() -> None:
                super(Store, self).release(late, succeeded=succeeded)

            self.late = release_late
        return super().release(lock, succeeded=succeeded)


def failure(*, is_uncertain: bool) -> LockProviderError:
    error = LockProviderError("The store does not answer.")
    error.is_uncertain = is_uncertain
    return error


class Process:
    """A process of the world. ``steps()`` says what it does."""

    def __init__(self, world: World, name: str):
        self.world = world
        self.name = name
        self.is_alive = True
        self.is_sleeping = False
        self._turn = 0
        self._steps = self.steps()
        world.at(0, self.resume, 0)

    def steps(self) -> Steps:
        raise NotImplementedError

    def ended(self) -> None:
        """React to the process's own end."""

    def resume(
        self, turn: int, answer: object = None, error: BaseException | None = None
    ) -> None:
        """Go on, unless the process is dead or went on already."""
        if not self.is_alive or turn != self._turn:
            return
        self._turn += 1
        self.is_sleeping = False
        try:
            step = self._steps.throw(error) if error else self._steps.send(answer)
        except StopIteration:
            self.is_alive = False
            self.ended()
        except SystemExit:
            self.is_alive = False
            self.ended()
        else:
            if isinstance(step, Statement):
                self.world.send(step, self, self._turn)
            else:
                self.is_sleeping = True
                self.world.at(step, self.resume, self._turn)

    def wake(self) -> None:
        """End its sleep."""
        if self.is_sleeping:
            self.resume(self._turn)

    def interrupt(self, error: BaseException) -> None:
        """Raise the error where the process is now."""
        self.resume(self._turn, error=error)

    def kill(self) -> None:
        """End it. A statement that it has sent may still be carried out."""
        self.is_alive = False

    def draw(self, least: float, most: float) -> float:
        return self.world.random.uniform(least, most)


class Heartbeat(Process):
    """Extends the lease of a child's lock."""

    def __init__(self, world: World, child: Child):
        self.child = child
        super().__init__(world, child.name)

    def steps(self) -> Steps:
        child = self.child
        lock, pause = child.lock, child.task.lease / 3
        while True:
            yield pause
            if not child.is_alive or child.is_over:
                return
            try:
                yield Statement(lock.heartbeat)
            except LockLost:
                if self.world.rules.ends_before_lease:
                    child.cut("lost")
                return
            except LockProviderError:
                pause = 1.0
            else:
                pause = child.task.lease / 3


class LeaseWatch(Process):
    """Ends a child before the end of its lease, unless that is extended."""

    def __init__(self, world: World, child: Child):
        self.child = child
        super().__init__(world, child.name)

    def steps(self) -> Steps:
        lock = self.child.lock
        while (left := lock.lease_end - self.world.now - LEASE_END_SECONDS) > 0:
            yield left
            if not self.child.is_alive or self.child.is_over:
                return
        if self.world.rules.ends_before_lease:
            self.child.cut("lease")


class Child(Process):
    """A process that runs one job's body under its lock."""

    def __init__(
        self,
        world: World,
        task: Task,
        start: Start,
        beat: Beat | None,
        since: datetime | None = None,
    ):
        self.task = task
        self.since = since
        self.name = task.name
        self.began: float | None = None
        self.was_skipped = False
        self.beat = beat
        self.has_begun = False
        self.has_succeeded: bool | None = None
        self.killed_by: int | None = None
        self.is_over = False
        """Has the body ended?"""
        number = world.next_number()
        self.start = replace(start, acquisition=f"{number}", rerun=task.rerun)
        self._configuration = LockConfiguration(
            task.name,
            timedelta(seconds=task.lease),
            history=False,
            schedule=task.job.schedule,
            grace=world.grace,
            start=self.start,
        )
        host = beat.host if beat else "command"
        self.locked_by = f"{host}:{number}:{number}"
        self.run = Run(
            self.locked_by,
            task.name,
            str(task.job.schedule),
            beat.name if beat else "",
            start.trigger,
            task.rerun,
            task.keep_alive,
            start.request,
        )
        super().__init__(world, task.name)
        if world.random.random() < task.dying_chance:
            world.at(self.draw(0, 0.6), self.die, "out of memory")

    def configuration(self) -> LockConfiguration:
        """Return the configuration of the lock that it acquires."""
        return self._configuration

    def note(self, kind: Kind, **details: Any) -> None:
        self.world.note(
            kind, self.locked_by, lock=self.task.name, run=self.run, **details
        )

    def steps(self) -> Steps:
        yield self.draw(0.01, 0.3)
        lock = self.lock = Lock(self.world.store, self._configuration)
        lock.locked_by = self.locked_by
        try:
            holder = yield Statement(
                lambda: self.world.store.acquire(lock), lock=lock.name
            )
        except (LockProviderError, SystemExit) as error:
            if not (isinstance(error, LockProviderError) and not error.is_uncertain):
                lock.never_began = True
                yield from self.release(error)
            return
        if holder is not None:
            self.note(Kind.REFUSED, text=str(holder))
            self.was_skipped = True
            return
        error: BaseException | None = None
        try:
            yield self.draw(0.001, 0.1)
        except SystemExit as failed:
            lock.never_began = True
            error = failed
        else:
            try:
                yield from self.body()
            except (RuntimeError, SystemExit) as failed:
                error = failed
        self.is_over = True
        if self.world.random.random() < self.task.dying_chance:
            self.world.at(0, self.die, "out of memory")
            yield 1.0
        yield from self.release(error)
        yield self.draw(0.01, 0.2)

    def body(self) -> Steps:
        task, lock = self.task, self.lock
        duration = self.draw(0.1, 2) * task.duration
        if self.world.random.random() < task.long_chance:
            duration = self.draw(40, 150)
        self.has_begun = True
        self.began = self.world.now
        planned = self.world.now + duration
        self.note(Kind.BEGUN, tick=lock.tick, until=planned)
        if task.keep_alive:
            Heartbeat(self.world, self)
            LeaseWatch(self.world, self)
        try:
            if self.world.random.random() < task.dying_chance:
                yield self.draw(0, duration)
                self.world.at(0, self.die, "out of memory")
                yield 1.0
            yield planned - self.world.now
        except SystemExit:
            self.note(Kind.INTERRUPTED)
            yield self.draw(0, 6)  # its clean-up may take too long
            self.note(Kind.ENDED, text="interrupted")
            raise
        self.is_over = True
        self.has_succeeded = self.world.random.random() >= task.failing_chance
        self.note(Kind.ENDED, text="succeeded" if self.has_succeeded else "failed")
        if not self.has_succeeded:
            raise RuntimeError("The job failed.")

    def release(self, error: BaseException | None) -> Steps:
        lock, until = self.lock, self.world.now + EXIT_TIMEOUT_SECONDS
        pause = 0.2
        while self.world.now < until:
            try:
                if lock.never_began:
                    is_done = yield Statement(
                        lambda: self.world.store.release(lock, succeeded=False)
                    )
                else:
                    yield Statement(lambda: lock.release(error))
                    is_done = True
            except LockProviderError:
                lock.was_release_tried = True
            except SystemExit:
                continue  # it is ending already
            else:
                if is_done:
                    return
            try:
                yield pause
            except SystemExit:
                continue
            pause = min(2 * pause, 2.0)

    def ended(self) -> None:
        self.is_over = True
        self.note(Kind.CHILD_EXITED)
        self.gone()

    def cut(self, reason: str) -> None:
        """Get SIGTERM from the beat, and SIGKILL later."""
        if self.is_alive:
            self.note(Kind.CHILD_CUT, text=reason)
            if reason == "stop" or not self.has_begun:
                self.interrupt(SystemExit(143))
                self.world.at(
                    self.world.ends.until_killed.total_seconds(), self.die, "SIGKILL"
                )
            else:
                self.die("SIGKILL: its lease ends")

    def die(self, reason: str) -> None:
        """Get SIGKILL."""
        if self.is_alive:
            self.kill()
            self.killed_by = 9
            self.note(Kind.CHILD_KILLED, text=reason)
            self.gone()

    def gone(self) -> None:
        if self.beat is not None and self.beat.is_alive:
            self.beat.child_ended(self)

    @property
    def end(self) -> ChildEnd:
        """How it has ended, as its beat knows it."""
        return ChildEnd(self.has_begun, self.has_succeeded, self.killed_by, 1)


class Beat(Process):
    """
    One ``shedlock beat``.

    Its order of steps is that of ``BeatLoop`` and ``OrderlyEnd``; what they decide is
    theirs.
    """

    def __init__(self, world: World, host: str, version: int):
        self.host = host
        self.tasks = world.tasks_of(version)
        self.jobs = BeatJobs(
            {task.name: {task.job.schedule: task.job} for task in self.tasks.values()},
            {task.name: task.job for task in self.tasks.values()},
        )
        self.running: list[Child] = []
        self.dead: list[DeadAcquisition] = []
        self.waits: dict[str, TryAgain] = {}
        self.registered: set[str] = set()
        self.reporter = NotedReporter(self)
        self.since: datetime | None = None
        self.stops_at: float | None = None
        self.began = world.now
        self.has_news = False
        world.note(
            Kind.BEAT_STARTED,
            name := f"{host}/{world.next_number()}",
            jobs={task.name: str(task.job.schedule) for task in self.tasks.values()},
        )
        super().__init__(world, name)

    def steps(self) -> Steps:
        yield self.draw(0.1, 2)
        self.began = self.world.now
        while self.stops_at is None:
            self.has_news = False
            pause = looks.BEAT_LOOK_INTERVAL.total_seconds()
            try:
                pause = yield from self.look()
            except LockProviderError:
                self.world.note(Kind.LOOK_FAILED, self.name)
            if self.stops_at is None and not self.has_news:
                yield pause
        yield from self.end()

    def read(self) -> dict[str, LockStatus]:
        found = self.world.store.statuses(LockQuery(names=self.jobs.names))
        return {each.name: each for each in found}

    def look(self) -> Generator[Statement | float, Any, float]:
        """Do what one look finds; return the seconds to the next look."""
        began = self.world.now
        records = yield Statement(self.read, has_deadline=True)
        clock = max((aware(each.clock) for each in records.values()), default=None)
        if clock is None:
            clock = yield Statement(self.world.store.now, has_deadline=True)
        if self.since is None:
            since = clock - timedelta(seconds=self.world.now - self.began)
            self.since = since
            self.world.note(Kind.LOOKED, self.name, until=since.timestamp())
        look = Look(
            jobs=self.jobs,
            records=records,
            clock=clock,
            since=self.since,
            grace=self.world.grace,
        )
        pause = looks.BEAT_LOOK_INTERVAL.total_seconds() - (self.world.now - began)
        following = self.jobs.next_tick(clock)
        if following is not None:
            pause = min(pause, (following - clock).total_seconds())
        looks_at = self.world.now + pause
        has_changed = yield from self.release_dead(records)
        has_changed |= yield from self.register(look)
        running = {
            child.task.name: looks.RunningJob(child.since, child.locked_by)
            for child in self.running
        }
        reports = look.reports(self.busy(), self.room, running)
        self.reporter.report(reports, self.world.limits.places)
        for due in look.due(self.busy()):
            if self.room > 0 and self.stops_at is None and not self.must_wait(due):
                self.start(due)
        yield from self.close_expired(records)
        return 0.001 if has_changed else max(0.001, looks_at - self.world.now)

    @property
    def room(self) -> int:
        return self.world.limits.places - len(self.running)

    def busy(self) -> set[str]:
        waiting = {
            name
            for name, wait in self.waits.items()
            if wait.attempts and self.world.now < wait.at
        }
        return waiting | {child.task.name for child in self.running}

    def must_wait(self, due: DueStart) -> bool:
        wait = self.waits.get(due.name)
        is_same = wait is not None and wait.since == due.since
        return is_same and self.world.now < wait.at

    def register(self, look: Look) -> Generator[Statement | float, Any, bool]:
        self.registered.update(look.registered())
        has_changed = False
        for name, schedule in list(look.unregistered()):
            is_known = name in self.registered
            if is_known and name in look.records:
                continue
            since = None if is_known else look.since
            yield Statement(
                lambda name=name, schedule=schedule, since=since: (
                    self.world.store.register(name, schedule, since=since)
                ),
                has_deadline=True,
            )
            self.registered.add(name)
            has_changed = True
        return has_changed

    def start(self, due: DueStart) -> None:
        child = Child(self.world, self.tasks[due.name], due.start, self, due.since)
        self.running.append(child)
        child.note(Kind.CHILD_STARTED, tick=due.start.asked_at)

    def child_ended(self, child: Child) -> None:
        self.running.remove(child)
        if self.world.rules.settles:
            provider = self.world.store
            self.dead.append(DeadAcquisition(provider, child, child.end))
        before = self.waits.pop(child.name, None)
        if not child.has_begun:
            attempts, pause = 0, looks.FIRST_PAUSE
            if not child.was_skipped:
                attempts = 1 if before is None else before.attempts + 1
                pause = looks.pause_after(attempts)
            at = self.world.now + pause.total_seconds()
            self.waits[child.name] = TryAgain(at, attempts, child.since)
        self.has_news = True
        self.wake()

    def release_dead(
        self, records: Mapping[str, LockStatus]
    ) -> Generator[Statement | float, Any, bool]:
        was_released = False
        for dead in list(self.dead):
            status = records.get(dead.name)
            if dead.needs_release(status):
                was_released |= yield Statement(
                    lambda dead=dead, status=status: dead.release(status),
                    has_deadline=True,
                )
            else:
                dead.release(status)
            if dead.is_over or not self.world.rules.settles_again:
                self.dead.remove(dead)
        return was_released

    def close_expired(self, records: Mapping[str, LockStatus]) -> Steps:
        for status in records.values():
            asked_at = status.job.asked_at
            if asked_at is not None and not has_request(status):
                is_closed = yield Statement(
                    lambda name=status.name, asked_at=asked_at: (
                        self.world.store.withdraw_request(name, asked_at)
                    ),
                    has_deadline=True,
                )
                if is_closed:
                    self.world.note(
                        Kind.REQUEST_EXPIRED, self.name, lock=status.name, tick=asked_at
                    )

    def stop(self) -> None:
        """Get SIGTERM."""
        if self.stops_at is None and self.is_alive:
            self.stops_at = self.world.now
            self.world.note(Kind.BEAT_STOPPING, self.name)
            self.wake()

    def end(self) -> Steps:
        """Let the jobs finish, as ``OrderlyEnd`` does."""
        assert self.stops_at is not None
        ends = self.world.ends
        wait = ends.stop_timeout if self.world.rules.waits_for_stop_timeout else ZERO
        cut_at = self.stops_at + wait.total_seconds()
        interval = looks.BEAT_LOOK_INTERVAL.total_seconds()
        was_cut, releases_at = False, self.world.now + interval
        while self.running:
            if not was_cut and self.world.now >= cut_at:
                was_cut = True
                for child in list(self.running):
                    child.cut("stop")
            self.has_news = False
            yield max(0.05, min(cut_at, releases_at) - self.world.now)
            if self.has_news or (not was_cut and self.world.now >= releases_at):
                releases_at = self.world.now + interval
                yield from self.read_and_release_dead()
        last = self.world.now + ends.for_releases.total_seconds()
        while True:
            is_done = yield from self.read_and_release_dead()
            if is_done or self.world.now >= last:
                break
            yield 0.1

    def read_and_release_dead(self) -> Generator[Statement | float, Any, bool]:
        try:
            records = yield Statement(self.read, has_deadline=True)
            yield from self.release_dead(records)
        except LockProviderError:
            return False
        return True

    def ended(self) -> None:
        self.world.note(Kind.BEAT_ENDED, self.name)

    def die(self) -> None:
        """Get SIGKILL: the children go on."""
        if self.is_alive:
            self.kill()
            self.world.note(Kind.BEAT_KILLED, self.name)


class NotedReporter(Reporter):
    """The real one, which writes to the history what it would log."""

    def __init__(self, beat: Beat):
        super().__init__()
        self.beat = beat

    def _log(self, report: BeatReport, jobs: int) -> None:
        text = report.kind.value
        self.beat.world.note(
            Kind.REPORTED, self.beat.name, lock=report.name, tick=report.tick, text=text
        )


class DeadAcquisition(children.DeadAcquisition):
    """The real one, with the question whether it is going to send a statement."""

    def needs_release(self, status: LockStatus | None) -> bool:
        is_held = looks.still_holds(status, self.locked_by)
        return self._lock is not None or is_held


class Command(Process):
    """One ``shedlock catch-up``, which runs overdue jobs one after the other."""

    def __init__(self, world: World, version: int):
        self.tasks = world.tasks_of(version)
        super().__init__(world, f"catch-up/{world.next_number()}")

    def steps(self) -> Steps:
        store = self.world.store
        names = {task.name: task for task in self.tasks.values()}

        def read() -> tuple[datetime, dict[str, LockStatus]]:
            found = store.statuses(LockQuery(names=names))
            return aware(store.now()), {each.name: each for each in found}

        try:
            clock, records = yield Statement(read, has_deadline=True)
            jobs = BeatJobs(
                {name: {task.job.schedule: task.job} for name, task in names.items()},
                {},
            )
            look = Look(
                jobs=jobs,
                records=records,
                clock=clock,
                since=clock,
                grace=self.world.grace,
            )
            for name, schedule in list(look.unregistered()):
                yield Statement(
                    lambda name=name, schedule=schedule: store.register(name, schedule),
                    has_deadline=True,
                )
            clock, records = yield Statement(read, has_deadline=True)
        except LockProviderError:
            return
        for name, status in records.items():
            is_expired = status.state is LockState.EXPIRED
            if not is_expired and status.may_catch_up(self.world.grace):
                child = Child(self.world, names[name], Start(Trigger.CATCH_UP), None)
                child.note(Kind.CHILD_STARTED)
                while child.is_alive:
                    yield 1.0


class Operator(Process):
    """Pauses and resumes a job, or asks for a run."""

    def __init__(self, world: World, name: str, *, lasting: float | None):
        self.lock_name = name
        self.lasting = lasting
        super().__init__(world, "operator")

    def steps(self) -> Steps:
        try:
            if self.lasting is None:
                yield Statement(self.ask)
            else:
                yield from self.pause(self.lasting)
        except LockProviderError:
            return

    def ask(self) -> None:
        self.world.store.request_run(self.lock_name, "ops", "now, please")

    def pause(self, lasting: float) -> Steps:
        store, name = self.world.store, self.lock_name
        for_ever = self.world.random.random() < 0.5
        wanted = LockConfiguration(
            name,
            timedelta(days=300) if for_ever else timedelta(seconds=lasting),
            start=Start(Trigger.OPERATOR),
        )
        lock = Lock(store, wanted, opens_run=False)
        lock.locked_by = Pause("ops", f"a test {self.world.next_number()}").identity()
        holder = yield Statement(lambda: store.acquire(lock), lock=name)
        if holder is not None or not for_ever:
            return
        yield lasting
        while True:
            try:
                status = yield Statement(lambda: store.status(name))
                if status is None or status.locked_by != lock.locked_by:
                    return
                yield Statement(partial(store.replace, status, ZERO))
            except LockProviderError:
                yield 2.0


class World:
    """The clock, the events, and all that may happen to processes and the store."""

    def __init__(self, seed: int, rules: BeatRules | None = None):
        self.random = random = Random(seed)
        self.rules = rules or BeatRules()
        self.now = 0.0
        self.ahead = BEGIN.timestamp()
        self.events: list[Event] = []
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0
        self.duration = random.choice([240.0, 360.0, 480.0])
        self.grace = timedelta(seconds=random.choice([45, 90, 150]))
        self.ends = EndTimes(
            timedelta(seconds=random.choice([8, 20])), timedelta(seconds=5)
        )
        self.limits = Limits(
            grace=self.grace.total_seconds(),
            stop_timeout=self.ends.stop_timeout.total_seconds(),
            look_interval=looks.BEAT_LOOK_INTERVAL.total_seconds(),
            places=random.choice([1, 2, 2, 4]),
            ends_at=self.duration,
        )
        self.reply_loss = random.choice([0, 0, 0.02])
        self.latency = random.choice([0.01, 0.01, 0.3])
        self.store = Store(self)
        self.hang_ends = 0.0
        self.versions = [self._draw_tasks(["a", "b", "c"][: random.randint(1, 3)])]
        if random.random() < 0.4:
            self.versions.append(self._changed(self.versions[0]))
        self.beats: dict[str, Beat | None] = {}
        self.children: list[Child] = []

    def next_number(self) -> int:
        self._number += 1
        return self._number

    @property
    def clock(self) -> float:
        """The store's clock, in seconds since 1970."""
        return self.now + self.ahead

    def uptime(self) -> float:
        """Return the clock that each host reads."""
        return self.now

    def at(self, delay: float, function: Callable[..., object], *given: Any) -> None:
        """Call the function after so many seconds."""
        heappush(self._heap, (self.now + delay, self.next_number(), function, given))

    def note(
        self, kind: Kind, who: str = "", *, routine: bool = False, **details: Any
    ) -> None:
        """Write to the history; what is ``routine`` is written once."""
        if not routine:
            self.events.append(Event(self.now, self.clock, kind, who, **details))

    def tasks_of(self, version: int) -> dict[str, Task]:
        return self.versions[min(version, len(self.versions) - 1)]

    def _draw_tasks(self, names: list[str]) -> dict[str, Task]:
        random, tasks = self.random, {}
        for name in names:
            lease = random.choice([15.0, 30.0, 70.0])
            keep_alive = random.random() < 0.6
            schedule = _schedule(random.choice(SCHEDULES), "UTC")
            tasks[name] = Task(
                job_of(name, schedule),
                rerun=random.random() < 0.5,
                keep_alive=keep_alive,
                lease=lease,
                duration=random.choice([0.5, 4.0, 15.0]),
                long_chance=random.choice([0, 0, 0.1, 0.3]),
                failing_chance=random.choice([0, 0.2]),
                dying_chance=random.choice([0, 0, 0.15]),
            )
        return tasks

    def _changed(self, tasks: dict[str, Task]) -> dict[str, Task]:
        changed = dict(tasks)
        name = self.random.choice(list(tasks))
        schedule = _schedule(self.random.choice(SCHEDULES), "UTC")
        changed[name] = replace(tasks[name], job=job_of(name, schedule))
        return changed

    # The store

    def send(self, statement: Statement, process: Process, turn: int) -> None:
        """Let a statement travel to the store, which executes it."""
        statement.sent_at = self.now
        statement.seen = self.store._entries.get(statement.lock)
        delay = self.random.uniform(0.2, 1) * self.latency
        self.at(delay, self.execute, statement, process, turn)

    def execute(self, statement: Statement, process: Process, turn: int) -> None:
        """Execute a statement, and send its answer."""
        store, back = self.store, self.random.uniform(0.2, 1) * self.latency
        is_late = not process.is_alive or self.now - statement.sent_at > 2
        has_changed = store._entries.get(statement.lock) is not statement.seen
        if is_late and statement.lock and has_changed:
            self.at(back, process.resume, turn, None, failure(is_uncertain=True))
            return
        store.is_hanging = self.now < self.hang_ends
        store.loses_reply = self.random.random() < self.reply_loss
        waits = store.is_hanging and not statement.has_deadline
        if waits and self.random.random() < 0.5:  # the store answers when it goes on
            delay = self.hang_ends - self.now + self.random.uniform(0.01, 1)
            self.at(delay, self.execute, statement, process, turn)
            return
        store.late = None
        answer, error = None, None
        try:
            answer = statement.operation()
        except (LockProviderError, LockLost) as failed:
            error = failed
        if store.is_hanging:
            back = DEADLINE_SECONDS
            if not statement.has_deadline:
                back = self.hang_ends - self.now
            if store.late is not None and self.random.random() < 0.5:
                delay = self.hang_ends - self.now + self.random.uniform(0, 8)
                self.at(delay, self.execute_late, store.late)
        store.is_hanging = store.loses_reply = False
        self.at(back, process.resume, turn, answer, error)

    def execute_late(self, operation: Callable[[], object]) -> None:
        """Execute a statement whose sender got no answer."""
        self.store.is_hanging = False
        if self.store.is_away or self.now < self.hang_ends:
            return
        with suppress(LockProviderError):
            operation()

    def note_record(self, name: str, before: Entry | None, entry: Entry) -> None:
        """Write down who holds the lock, who has asked, and what is paused."""
        is_held = not entry.is_released and bool(entry.locked_by)
        former = before or Entry.free(self.clock)
        same = former.locked_by == entry.locked_by
        schedule = entries.from_text(entry.ticks).schedule
        if schedule != entries.from_text(former.ticks).schedule:
            since = self.clock if self.store.since is None else self.store.since
            self.note(Kind.REGISTERED, lock=name, until=since, text=str(schedule))
        if Pause.parse(entry.locked_by) is not None:
            if is_held and not same:
                self.note(
                    Kind.PAUSED, entry.locked_by, lock=name, until=entry.lock_until
                )
            elif not is_held and not former.is_released:
                self.note(Kind.RESUMED, entry.locked_by, lock=name)
        if is_held and (not same or former.lock_until != entry.lock_until):
            tick = entries.from_text(entry.ticks).tick
            self.note(
                Kind.HELD, entry.locked_by, lock=name, until=entry.lock_until, tick=tick
            )
        elif not is_held and not former.is_released:
            self.note(Kind.FREED, entry.locked_by, lock=name)
        if entry.asked_at is not None and entry.asked_at != former.asked_at:
            asked_at = datetime.fromtimestamp(entry.asked_at, UTC)
            is_open_again = any(
                event.kind is Kind.REQUESTED and event.tick == asked_at
                for event in self.events
            )
            if not is_open_again:
                self.note(
                    Kind.REQUESTED, entry.asked_by or "", lock=name, tick=asked_at
                )

    def go_away(self, lasting: float) -> None:
        if not self.store.is_away and self.now >= self.hang_ends:
            self.store.is_away = True
            self.note(Kind.STORE_FAILS, text=f"away for {lasting:.0f} s")
            self.at(lasting, self.come_back)

    def come_back(self) -> None:
        self.store.is_away = False
        self.note(Kind.STORE_ANSWERS)

    def hang(self, lasting: float) -> None:
        if not self.store.is_away and self.now >= self.hang_ends:
            self.hang_ends = self.now + lasting
            self.note(Kind.STORE_FAILS, text=f"hangs for {lasting:.0f} s")
            # A beat's statement that was under way has its deadline first.
            self.at(lasting, self.note, Kind.STORE_ANSWERS)

    def set_clock(self, by: float) -> None:
        self.ahead += by
        self.note(Kind.CLOCK_SET, text=f"{by:+.3f}")

    # Hosts

    def start_beat(self, host: str, version: int) -> None:
        former = self.beats.get(host)
        if former is not None and former.is_alive:
            return
        self.beats[host] = Beat(self, host, version)

    def kill_beat(self, host: str) -> None:
        if beat := self.beats.get(host):
            beat.die()

    def stop_beat(self, host: str) -> None:
        if beat := self.beats.get(host):
            beat.stop()

    def kill_host(self, host: str) -> None:
        if beat := self.beats.get(host):
            beat.die()
            for child in list(beat.running):
                child.die("its host died")

    def kill_child(self, host: str) -> None:
        beat = self.beats.get(host)
        if beat and beat.running:
            self.random.choice(beat.running).die("SIGKILL")

    def deploy(self, version: int) -> None:
        """Replace all beats, one after the other."""
        delay = 0.0
        for host in list(self.beats):
            self.at(delay, self.stop_beat, host)
            self.at(delay + 26, self.start_beat, host, version)
            delay += self.random.uniform(0, 60)

    def plan(self) -> None:
        """Draw what will happen."""
        random = self.random
        hosts = ["A", "B", "C"][: random.randint(1, 3)]
        for host in hosts:
            self.at(random.uniform(0, 20), self.start_beat, host, 0)
        end = self.duration
        # How often each happens, on average.
        kinds = {
            kind: random.choice([0, 0, 1, 3])
            for kind in (
                *("kill child", "kill beat", "stop beat", "kill host", "deploy"),
                *("away", "hang", "clock", "pause", "request", "command"),
            )
        }
        for kind, most in kinds.items():
            for _ in range(random.randint(0, most)):
                self._plan_one(kind, random.uniform(15, end), random.choice(hosts))

    def _plan_one(self, kind: str, at: float, host: str) -> None:
        random = self.random
        name = random.choice(list(self.versions[0].values())).name
        back = at + random.choice([1, 10, 40, 100])
        version = random.randrange(len(self.versions))
        if kind == "kill child":
            tick = at - at % 60 + 30
            for delay in (at, tick + random.uniform(0, 2), tick + random.uniform(0, 9)):
                self.at(delay, self.kill_child, host)
        elif kind == "kill beat":
            self.at(at, self.kill_beat, host)
            self.at(back, self.start_beat, host, version)
        elif kind == "stop beat":
            self.at(at, self.stop_beat, host)
            self.at(max(back, at + 26), self.start_beat, host, version)
        elif kind == "kill host":
            self.at(at, self.kill_host, host)
            self.at(back, self.start_beat, host, version)
        elif kind == "deploy":
            self.at(at, self.deploy, version)
        elif kind == "away":
            self.at(at, self.go_away, random.choice([3, 30, 70, 130]))
        elif kind == "hang":
            self.at(at, self.hang, random.choice([3, 8, 30, 60]))
        elif kind == "clock":
            self.at(at, self.set_clock, random.uniform(-3, 3))
        elif kind == "pause":
            lasting = random.choice([5, 30, 90])
            self.at(at, self.operate, name, lasting)
        elif kind == "request":
            self.at(at, self.operate, name, None)
        elif kind == "command":
            self.at(at, Command, self, version)

    def operate(self, name: str, lasting: float | None) -> None:
        Operator(self, name, lasting=lasting)

    def run(self) -> None:
        """Let everything happen."""
        self.note(Kind.CLOCK_SET, text="+0")
        self.plan()
        while self._heap:
            at, _, function, given = heappop(self._heap)
            if at > self.duration:
                break
            self.now = at
            function(*given)
        self.now = self.duration
        self.note(Kind.CLOCK_SET, text="+0")


@lru_cache
def job_of(name: str, schedule: Schedule) -> Job:
    """Return a job that is never really started."""
    return Job(name, print, options={"schedule": schedule, "lock_at_most_for": "1m"})


@dataclass
class History:
    """What happened with one seed, and what of it must not happen."""

    seed: int
    events: list[Event]
    limits: Limits
    violations: list[Violation] = field(default_factory=list)

    def __str__(self) -> str:
        limits = self.limits
        settings = (
            f"seed {self.seed}, grace {limits.grace:.0f} s, {limits.places} places, "
            f"stop timeout {limits.stop_timeout:.0f} s"
        )
        lines = [settings, *self.events, *(self.violations or ["No violation."])]
        return "\n".join(map(str, lines))


# Note [Ticks that are known]
# Each look asks for the same ticks again. All schedules here have whole minutes, so the
# minute decides which ticks are around a moment. test_known_ticks_are_right() compares.
_until, _after = Schedule.ticks_until, Schedule.ticks_after


@lru_cache(100_000)
def known_around(expression: str, moment: datetime) -> tuple[datetime, datetime]:
    schedule = _schedule(expression, "UTC")
    return next(_until(schedule, moment)), next(_after(schedule, moment))


def around(schedule: Schedule, moment: datetime) -> tuple[datetime, datetime]:
    """Return what ``Schedule.around()`` does, from what is known of the minute."""
    minute = moment.replace(second=0, microsecond=0)
    return known_around(schedule.expression, minute)


def ticks_until(schedule: Schedule, moment: datetime) -> Iterator[datetime]:
    """Return what ``Schedule.ticks_until()`` does."""
    yield (tick := around(schedule, moment)[0])
    yield from _until(schedule, tick - timedelta(microseconds=1))


def ticks_after(schedule: Schedule, moment: datetime) -> Iterator[datetime]:
    """Return what ``Schedule.ticks_after()`` does."""
    yield (tick := around(schedule, moment)[1])
    yield from _after(schedule, tick)


@contextmanager
def known_ticks() -> Iterator[None]:
    """Remember the ticks of each minute: see Note [Ticks that are known]."""
    methods = {"around": around, "ticks_until": ticks_until, "ticks_after": ticks_after}
    former = {name: getattr(Schedule, name) for name in methods}
    for name, method in methods.items():
        setattr(Schedule, name, method)
    try:
        yield
    finally:
        for name, method in former.items():
            setattr(Schedule, name, method)


@contextmanager
def simulated_clocks(world: World) -> Iterator[None]:
    """Let ``Lock`` read the world's clock, and parse each text of a record once."""
    former = locks.uptime, entries.from_text
    locks.uptime = children.uptime = reporting.uptime = world.uptime
    entries.from_text = lru_cache(10_000)(schedule_states.from_text)
    try:
        yield
    finally:
        locks.uptime, entries.from_text = former
        children.uptime = reporting.uptime = former[0]


def simulate(seed: int, rules: BeatRules | None = None) -> History:
    """Return the history of one seed, judged."""
    world = World(seed, rules)
    with simulated_clocks(world), known_ticks():
        world.run()
    history = History(seed, world.events, world.limits)
    history.violations = list(Judge(world.events, world.limits).violations())
    return history


if __name__ == "__main__":
    for text in sys.argv[1:]:
        sys.stdout.write(f"{simulate(int(text))}\n")
