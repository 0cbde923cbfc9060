"""The end of a beat: its jobs may finish, and are ended after that."""

from collections.abc import Callable, Iterable

from django_shedlock.beat.children import StartedJob, StartedJobs
from django_shedlock.beat.looks import BEAT_LOOK_INTERVAL, EndTimes
from django_shedlock.clocks import uptime
from django_shedlock.durations import format_duration
from django_shedlock.exceptions import LockProviderError, message_of
from django_shedlock.processes.guard import LOOK_INTERVAL_SECONDS
from django_shedlock.processes.process_signals import ProcessSignals
from django_shedlock.signals import logger

ANSWER_SECONDS = 5.0
"""How long a store that hangs may delay the beat."""


class OrderlyEnd:
    """
    Ends the jobs of a beat.

    They may finish within ``times.stop_timeout``. Then they get SIGTERM, and SIGKILL
    after ``times.until_killed``. A second signal to the beat sends SIGTERM at once, and
    a third one SIGKILL. ``write`` tells what the beat waits for.
    """

    def __init__(
        self,
        jobs: StartedJobs,
        signals: ProcessSignals,
        times: EndTimes,
        write: Callable[[str], None],
    ):
        self._jobs = jobs
        self._signals = signals
        self._times = times
        self._write = write
        # Without a signal the beat ends because it has failed.
        self._first_signals = min(1, len(signals.received))
        self._stops_at = uptime() + times.stop_timeout.total_seconds()
        self._releases_at = uptime() + BEAT_LOOK_INTERVAL.total_seconds()
        self._was_stopped = False
        self._has_released = True
        """Whether the last call released all that it had to."""

    def run(self) -> bool:
        """
        Wait for the jobs, end those that go on, and release what they leave.

        Return whether the store did all that it was asked at last.
        """
        if self._jobs.running and self._times.stop_timeout:
            timeout = format_duration(self._times.stop_timeout)
            names = _listed(self._jobs.running.values())
            self._write(f"Waiting up to {timeout} for the end of {names}.")
        while self._jobs.running:
            self._send_signals()
            self._signals.wait(LOOK_INTERVAL_SECONDS)
            # The database may commit an UPDATE of a killed job after the job's end.
            is_due = bool(self._jobs.look()) or uptime() >= self._releases_at
            if is_due and self._has_time_to_release():
                self._release()
        last = uptime() + self._times.for_releases.total_seconds()
        self._release()
        while not self._has_released and uptime() < last:
            self._signals.wait(min(LOOK_INTERVAL_SECONDS, last - uptime()))
            self._release()
        return self._has_released

    def _has_time_to_release(self) -> bool:
        """Return whether a store that hangs would delay no signal."""
        return self._has_released and uptime() + ANSWER_SECONDS < self._stops_at

    def _send_signals(self) -> None:
        further = len(self._signals.received) - self._first_signals
        if not self._was_stopped and (further > 0 or uptime() >= self._stops_at):
            self._was_stopped = True
            running = self._jobs.running.values()
            self._write(f"Ending {_listed(running)}.")
            for started in running:
                started.end(self._times.until_killed)
        if further > 1:
            for started in self._jobs.running.values():
                started.kill()

    def _release(self) -> None:
        self._releases_at = uptime() + BEAT_LOOK_INTERVAL.total_seconds()
        try:
            self._jobs.read_and_release_dead()
        except LockProviderError as error:
            self._has_released = False
            text = "The locks of jobs that have ended could not be looked at: %s"
            logger.warning(text, message_of(error))
        else:
            self._has_released = not self._jobs.has_unreleased


def _listed(jobs: Iterable[StartedJob]) -> str:
    names = sorted(started.name for started in jobs)
    return f"{len(names)} jobs: {', '.join(names)}" if len(names) > 1 else names[0]
