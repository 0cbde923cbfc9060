"""The jobs that a beat has started, each in a process of its own."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from secrets import token_hex

import django_shedlock.history.recording  # noqa: F401  # so that no child loads it
from django_shedlock.beat.leases import LeaseGuard
from django_shedlock.beat.looks import ChildEnd, DueStart, RunningJob, still_holds
from django_shedlock.clocks import uptime
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import LockProviderError, message_of
from django_shedlock.execution.operators import OperatorAction
from django_shedlock.execution.shutdown import exit_timeout_seconds
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.lock import Lock, identity_of
from django_shedlock.locks.status import LockStatus, is_interruption, is_success
from django_shedlock.processes.child import Child
from django_shedlock.processes.guard import LOOK_INTERVAL_SECONDS
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.jobs import with_start
from django_shedlock.registry.trigger import start_for_operator
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.signals import around_body, logger

LATE_EXIT_SECONDS = 5.0
"""How long after SHEDLOCK_EXIT_TIMEOUT a job's process must have ended."""

# Note [What the beat knows of a child]
# The random part of the identity is chosen before the fork, and the child's pid
# completes it. So the beat knows under which identity the child acquires its lock,
# before the child's first statement. Through a pipe the child reports that the body
# begins and ends. If the child dies, the beat reads from that, and from the record,
# what is left to do: see ``DeadAcquisition``.


class Message(bytes, Enum):
    """What a child reports to the beat, in one byte each."""

    BODY_BEGINS = b"b"
    BODY_SUCCEEDED = b"s"
    BODY_FAILED = b"f"
    BODY_INTERRUPTED = b"i"
    WAS_SKIPPED = b"k"
    JOB_RETURNED = b"r"


class BodyReporter:
    """Reports to the beat, from its child, what becomes of the job's body."""

    def __init__(self, writer: int, identity: str):
        self._writer = writer
        self._identity = identity
        self.has_begun: bool = False

    def report(self, message: Message) -> None:
        """Write the message; a beat that is gone does not read it."""
        with suppress(OSError):
            os.write(self._writer, message.value)

    @contextmanager
    def around(self, lock: Lock) -> Iterator[None]:
        """
        Report the begin and the end of the body, if this is the job's own lock.

        If its kept-alive lease can't be extended, the body is ended before that.
        """
        # A body that re-enters its lock is inside already.
        if self.has_begun or lock.locked_by != self._identity:
            yield
            return
        self.has_begun = True
        self.report(Message.BODY_BEGINS)
        end = Message.BODY_FAILED
        try:
            with LeaseGuard(lock).watching():
                yield
            end = Message.BODY_SUCCEEDED
        except BaseException as error:
            if is_success(error):
                end = Message.BODY_SUCCEEDED
            elif is_interruption(error):
                end = Message.BODY_INTERRUPTED
            raise
        finally:
            self.report(end)


class StartedJob:
    """
    A job in a forked child, and what the beat knows of it.

    ``locked_by`` is the identity under which the child acquires the job's lock. Raises
    ``OSError`` if the host can't start a process; then nothing was started. The job
    writes the result of a requested run by ``write``. A process that must end gets
    SIGTERM, and SIGKILL ``kill_after`` later: see ``look()``.
    """

    def __init__(
        self,
        provider: LockProvider,
        due: DueStart,
        write: Callable[[str], None],
        kill_after: timedelta,
    ):
        self.due = due
        self._kill_after = kill_after
        self._provider = provider
        self._write = write
        acquisition = token_hex(8)
        self._start: Start = replace(due.start, acquisition=acquisition)
        self._reader, self._writer = os.pipe()
        try:
            os.set_blocking(self._reader, False)
            self.child = Child.of_body(
                due.name,
                self._run,
                time_limit=due.job.time_limit,
                kill_after=kill_after,
            )
        except BaseException:
            os.close(self._reader)
            raise
        finally:
            os.close(self._writer)
        self.locked_by: str = identity_of(self.child.pid) + acquisition
        self.messages: set[Message] = set()
        self.began: float | None = None
        """When the body began, by ``time.monotonic()``, as far as the beat knows."""
        self._returned_at: float | None = None
        self._was_reported = False

    @property
    def name(self) -> str:
        """The full name of the job's lock."""
        return self.due.name

    # In the child

    def _run(self) -> None:
        os.close(self._reader)
        identity = identity_of(os.getpid()) + self._start.acquisition
        reporter = BodyReporter(self._writer, identity)
        around_body.insert(0, reporter.around)
        try:
            if not self._start_job():
                reporter.report(Message.WAS_SKIPPED)
        except LockProviderError as error:
            if reporter.has_begun:  # the job's own failure
                raise
            text = "The job of lock %r does not start, because the store failed: %s"
            logger.error(text, self.name, message_of(error))
            sys.exit(1)
        finally:
            reporter.report(Message.JOB_RETURNED)

    def _start_job(self) -> bool:
        if self._start.trigger is not Trigger.OPERATOR:
            return self.due.job.start(self._start)
        action = OperatorAction(
            self._provider,
            self.name,
            operator=self._start.operator,
            reason=self._start.reason,
        )
        triggered = start_for_operator(action, self.due.job, self._start)
        if triggered.was_executed:
            self._write(str(triggered))
        if triggered.error is not None:
            raise triggered.error
        return triggered.was_executed

    # In the beat

    def look(self) -> ChildEnd | None:
        """
        Return how its process has ended, or ``None`` while it runs.

        With the process ends all that it left behind in its process group. A process is
        ended if the time limit of its job is over, or if it runs on long after its job
        has returned.
        """
        has_ended = self.child.has_exited()
        self._read()
        if has_ended:
            os.close(self._reader)
            return self._end()
        self.child.end_if_time_is_over()
        self.child.kill_if_due()
        if self._returned_at is not None and not self._was_reported:
            limit = exit_timeout_seconds() + LATE_EXIT_SECONDS
            if uptime() >= self._returned_at + limit:
                self._was_reported = True
                logger.error(
                    "The job of lock %r has returned, but its process %d still runs %s "
                    "later, so it is ended. Does the job leave a thread behind that is "
                    "no daemon?",
                    self.name,
                    self.child.pid,
                    format_duration(timedelta(seconds=limit)),
                )
                self.child.end(self._kill_after)
        return None

    def _read(self) -> None:
        with suppress(BlockingIOError):
            for byte in os.read(self._reader, 64):
                message = Message(bytes([byte]))
                self.messages.add(message)
                if message is Message.BODY_BEGINS:
                    self.began = time.monotonic()
                elif message is Message.JOB_RETURNED:
                    self._returned_at = uptime()

    def _end(self) -> ChildEnd:
        messages = self.messages
        has_succeeded = None
        if Message.BODY_SUCCEEDED in messages:
            has_succeeded = True
        elif Message.BODY_FAILED in messages:
            has_succeeded = False
        return ChildEnd(
            Message.BODY_BEGINS in messages,
            has_succeeded,
            self.child.killed_by,
            self.child.status,
            self.due.job.time_limit if self.child.has_timed_out else None,
            has_returned=Message.JOB_RETURNED in messages,
        )

    def configuration(self) -> LockConfiguration:
        """Return the configuration of the lock that the child acquires."""
        return with_start(self.due.job.request, self._start).configuration()

    @property
    def was_skipped(self) -> bool:
        """Whether somebody else held the lock, or had begun the tick."""
        return Message.WAS_SKIPPED in self.messages

    @property
    def look_within_seconds(self) -> float:
        """How long the next ``look()`` may wait; its end sends SIGCHLD."""
        if self._returned_at is not None:
            return LOOK_INTERVAL_SECONDS
        return self.child.look_within_seconds

    def end(self, kill_after: timedelta) -> None:
        """Send SIGTERM; ``look()`` sends SIGKILL so much later."""
        self.child.end(kill_after)

    def kill(self) -> None:
        """Send SIGKILL to the process and to all that it started."""
        self.child.send(signal.SIGKILL)


class DeadAcquisition:
    """
    The acquisition of a child that has ended, and may have left its lock held.

    The beat calls ``release()`` at each look until ``is_over``. If the child did not
    end in order, an UPDATE of it may have been under way, and arrive late.
    """

    def __init__(self, provider: LockProvider, started: StartedJob, end: ChildEnd):
        self._provider = provider
        self._end = end
        self.name: str = started.name
        self.locked_by: str = started.locked_by
        self._configuration = started.configuration()
        self._began, self._ended = started.began, time.monotonic()
        self._since = uptime()
        self._was_looked_at = False
        self._was_reported = False
        self._lock: Lock | None = None

    def release(self, status: LockStatus | None) -> bool:
        """
        Release what the record's ``status`` shows as held; return whether it was.

        The run counts as failed, unless its body had succeeded. A body that never began
        leaves no run. Raises ``LockProviderError`` if the store failed.
        """
        was_released = False
        if status is not None and still_holds(status, self.locked_by):
            self._lock = self._lock or self._make_lock(status)
        if self._lock is not None:  # its release may have had no answer before
            was_released = self._lock.release(self._end.exception)
            self._lock = None
        self._was_looked_at = True
        return was_released

    def report(self, error: LockProviderError) -> None:
        """Log once that its lock could not be released yet."""
        if not self._was_reported:
            self._was_reported = True
            text = (
                "Lock %r: its job's process has ended, but its lock could not be "
                "released. The beat tries again: %s"
            )
            logger.error(text, self.name, message_of(error))

    def _make_lock(self, status: LockStatus) -> Lock:
        lock = Lock(
            self._provider,
            self._configuration,
            locked_by=self.locked_by,
            has_deadline=True,
        )
        lock.known_token = status.fencing_token
        lock.tick = status.schedule_state.tick
        lock.former_tick = status.schedule_state.former_tick
        lock.never_began = not self._end.has_begun
        lock.began = self._ended if self._began is None else self._began
        lock.ended = self._ended
        return lock

    @property
    def is_over(self) -> bool:
        """Whether nothing can come from the child any more."""
        if not self._was_looked_at:
            return False
        dead_for = timedelta(seconds=uptime() - self._since)
        return self._end.is_orderly or dead_for >= self._configuration.lock_at_most_for


class StartedJobs:
    """The jobs that run now, at most so many at once, and those that have died."""

    def __init__(self, provider: LockProvider, most: int, kill_after: timedelta):
        self._provider = provider
        self._most = most
        self._kill_after = kill_after
        self._has_no_room = False
        """Whether the host could not start the last process."""
        self.has_unreleased: bool = False
        """Whether some lock could not be released the last time."""
        self.running: dict[str, StartedJob] = {}
        self.dead: list[DeadAcquisition] = []

    @property
    def names(self) -> Collection[str]:
        """The names of the locks of running jobs."""
        return self.running.keys()

    @property
    def own_jobs(self) -> dict[str, RunningJob]:
        """The running jobs by the names of their locks, as a look reports them."""
        return {
            name: RunningJob(started.due.since, started.locked_by)
            for name, started in self.running.items()
        }

    @property
    def room(self) -> int:
        """How many more jobs can start."""
        return self._most - len(self.running)

    def start(self, due: DueStart, write: Callable[[str], None]) -> bool:
        """Start the job; return whether the host could start a process."""
        try:
            self.running[due.name] = StartedJob(
                self._provider, due, write, self._kill_after
            )
        except OSError as error:
            if not self._has_no_room:
                logger.error("No process can be started for %r: %s", due.name, error)
            self._has_no_room = True
            return False
        self._has_no_room = False
        return True

    def look(self) -> list[tuple[StartedJob, ChildEnd]]:
        """Return the jobs whose processes have ended since, and how."""
        ended = []
        for name, started in list(self.running.items()):
            end = started.look()
            if end is None:
                continue
            del self.running[name]
            ended.append((started, end))
            if end.killed_by is not None and end.time_limit is None:
                # The host's memory may have run out.
                text = "The process of the job of lock %r was killed by signal %d."
                logger.error(text, name, end.killed_by)
            self.dead.append(DeadAcquisition(self._provider, started, end))
        return ended

    @property
    def look_within_seconds(self) -> float:
        """How long the next ``look()`` may wait, unless a process ends."""
        running = self.running.values()
        return min((each.look_within_seconds for each in running), default=math.inf)

    def release_dead(self, records: Mapping[str, LockStatus]) -> bool:
        """
        Release what dead children hold by these records; return whether they did.

        A locked row holds up no other lock. After any other failure the rest waits for
        the next call, since the store may be away. The locks that failed come last.
        """
        was_released = self.has_unreleased = False
        for acquisition in list(self.dead):
            try:
                was_released |= acquisition.release(records.get(acquisition.name))
            except LockProviderError as error:
                acquisition.report(error)
                self.dead.remove(acquisition)
                self.dead.append(acquisition)
                self.has_unreleased = True
                if not error.is_blocked:
                    break
                continue
            if acquisition.is_over:
                self.dead.remove(acquisition)
        return was_released

    def read_and_release_dead(self) -> None:
        """
        Read the records of dead children's locks for ``release_dead()``.

        Raises ``LockProviderError`` if the store does not answer.
        """
        names = {acquisition.name for acquisition in self.dead}
        if names:
            read = self._provider.statuses(LockQuery(names=names))
            self.release_dead({status.name: status for status in read})
