"""What a beat logs of ticks that have not begun."""

from collections.abc import Iterable
from datetime import datetime

from django_shedlock.beat.looks import BeatReport, ReportKind
from django_shedlock.clocks import local_text, uptime
from django_shedlock.signals import logger

REPORT_INTERVAL_SECONDS = 30.0
"""A beat logs reports of one kind about one job at most this often."""


class Reporter:
    """Logs each report at WARNING, once for each tick."""

    def __init__(self) -> None:
        self._ticks: dict[tuple[ReportKind, str], datetime] = {}
        self._times: dict[tuple[ReportKind, str], float] = {}

    def report(self, reports: Iterable[BeatReport], jobs: int) -> None:
        """Log the reports that are new; ``jobs`` is how many may run at once."""
        for report in reports:
            if self._is_new(report):
                self._log(report, jobs)

    def _is_new(self, report: BeatReport) -> bool:
        key = (report.kind, report.name)
        last = self._ticks.get(key)
        if last is not None and report.tick <= last:
            return False
        if uptime() < self._times.get(key, 0.0):
            return False
        self._ticks[key] = report.tick
        runs_on = self._ticks.get((ReportKind.RUNS_ON, report.name))
        if report.kind is ReportKind.PASSED_OVER and runs_on == report.tick:
            return False  # that its job ran on was reported before
        self._times[key] = uptime() + REPORT_INTERVAL_SECONDS
        return True

    def _log(self, report: BeatReport, jobs: int) -> None:
        tick = local_text(report.tick)
        match report.kind:
            case ReportKind.WAITS:
                logger.warning(
                    "Lock %r: the tick of %s waits for room, because %d jobs run here "
                    "at once. Give --jobs a greater number, or run a beat on another "
                    "host.",
                    report.name,
                    tick,
                    jobs,
                )
            case ReportKind.RUNS_ON:
                logger.warning(
                    "Lock %r: its job still runs as %s, so the tick of %s waits for "
                    "its end. If that is usual, choose a schedule with fewer ticks.",
                    report.name,
                    report.holder,
                    tick,
                )
            case ReportKind.TOO_OLD:
                logger.warning(
                    "Lock %r: the tick of %s has not begun, and is older than "
                    "SHEDLOCK_GRACE, so only a catch-up starts it. If jobs wait for "
                    "room, give --jobs a greater number.",
                    report.name,
                    tick,
                )
            case ReportKind.PASSED_OVER:
                logger.warning(
                    "Lock %r: the tick of %s was passed over without having begun, "
                    "because a later tick has come. If jobs wait for room, give --jobs "
                    "a greater number.",
                    report.name,
                    tick,
                )
            case ReportKind.EXPIRED:
                logger.warning(
                    "Lock %r: its job is overdue since %s, but not started: the lease "
                    "of %s ended without a release, so it may still run. `python "
                    "manage.py shedlock show` says what to do.",
                    report.name,
                    tick,
                    report.holder,
                )
