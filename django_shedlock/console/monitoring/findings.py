"""Findings: what an operator should look at, why, and which command helps."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, timedelta
from enum import StrEnum
from operator import attrgetter

from django.db.models import TextChoices
from django.utils.translation import gettext_noop as _
from django.utils.translation import pgettext_lazy

from django_shedlock.cli.base import command
from django_shedlock.clocks import aware, local_text
from django_shedlock.console.links import RUNBOOK_URL, has_catch_up, page_of_lock
from django_shedlock.console.monitoring.sentences import Said, say, together
from django_shedlock.console.monitoring.traces import (
    Evidence,
    Trace,
    fact_of,
    traces_of,
)
from django_shedlock.durations import format_measured, format_rough
from django_shedlock.locks.lock import process_of
from django_shedlock.locks.own import is_own_lock
from django_shedlock.locks.status import LockState, LockStatus, RunOutcome
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import PASSED_OVER_LIMIT


class Severity(StrEnum):
    """How bad a finding is: some jobs need a look, or no job can run."""

    WARNING = "warning"
    CRITICAL = "critical"


class Kind(TextChoices):
    """What is found, the most urgent first; those in a lock have a label."""

    UNREACHABLE = "unreachable"
    OVERDUE = "overdue", pgettext_lazy("shedlock", "overdue")
    FAILED = "failed", pgettext_lazy("shedlock", "failed")
    TIMED_OUT = "timed out", pgettext_lazy("shedlock", "timed out")
    EXPIRED = "expired", pgettext_lazy("shedlock", "expired")
    LONG = "long", pgettext_lazy("shedlock", "runs too long")
    LOST = "lost", pgettext_lazy("shedlock", "lost")
    ABANDONED = "abandoned", pgettext_lazy("shedlock", "abandoned")
    PASSED_OVER = "passed-over", pgettext_lazy("shedlock", "passed over")
    PAUSED = "paused", pgettext_lazy("shedlock", "paused")
    UNREADABLE = "unreadable", pgettext_lazy("shedlock", "unreadable")
    HISTORY = "history", pgettext_lazy("shedlock", "not in the history")
    CLOCK = "clock"
    MORE = "more"

    @property
    def rank(self) -> int:
        """Its place in the order of urgency; 0 is the most urgent."""
        return list(Kind).index(self)

    @property
    def severity(self) -> Severity:
        """Without its store no job runs; all else can wait until working hours."""
        return Severity.CRITICAL if self is Kind.UNREACHABLE else Severity.WARNING

    @property
    def may_still_run(self) -> bool:
        """Whether the job of a lock with such a finding may still run."""
        return self in {Kind.EXPIRED, Kind.LONG, Kind.LOST, Kind.ABANDONED}


@dataclass(frozen=True)
class Finding:
    """
    Something that an operator should look at, in a lock or, if it is ``None``, a store.

    ``sentence`` says who, since when, and what it means. ``command`` can be pasted into
    a shell, and helps; it is empty if none does. ``fact`` is what it tells of: which
    run, or which tick. Once a fact is ``acknowledged``, that says by whom and why.
    ``message`` tells what a job raised, for those who may see its runs.
    """

    kind: Kind
    provider: str
    lock: str | None
    sentence: str
    command: str = ""
    fact: str = ""
    acknowledged: str = ""
    message: str = ""

    @property
    def told(self) -> str:
        """The sentence in the reader's language."""
        return getattr(self.sentence, "told", self.sentence)

    @property
    def link(self) -> str:
        """The address of the lock's page; empty if it has none, or no site is known."""
        return page_of_lock(self.provider, self.lock) if self.lock else ""

    @property
    def help(self) -> str:
        """The address of what such a finding means, and what to do."""
        return f"{RUNBOOK_URL}#{self.kind.replace(' ', '-')}"

    def as_dict(self) -> dict[str, object]:
        """Return what programs get to read."""
        return {**asdict(self), "link": self.link, "help": self.help}

    def __str__(self) -> str:
        what = f"Lock {self.lock!r}" if self.lock else f"Provider {self.provider!r}"
        after = f"Next: {self.command}" if self.command else ""
        if self.acknowledged:
            after = f"Acknowledged {self.acknowledged}"
        return f"{what}: {' '.join(filter(None, [self.sentence, self.message, after]))}"


def is_unusual(status: LockStatus) -> bool:
    """
    Return whether a job has run three times as long as usual, and as last time.

    Runs of at most a minute are never unusual.
    """
    usual, last = status.job.usual_duration, status.job.last_duration
    if usual is None or status.state is not LockState.RUNNING:
        return False
    longest = usual if last is None else max(usual, last)
    return status.held_for > max(timedelta(minutes=1), 3 * longest)


def findings_of(
    provider: LockProvider,
    status: LockStatus,
    evidence: Evidence,
    grace: timedelta,
    held_for: timedelta | None,
) -> list[Finding]:
    """
    Return what an operator should look at in this lock, the most urgent first.

    ``evidence`` has what operators did to it, and what its runs raised. The package's
    own locks have no findings.
    """
    if is_own_lock(status.name):
        return []
    bad: Sequence[Trace] = ()
    if status.unreadable:
        text = _("Its record can't be read: %(why)s. See %(record)s.")
        record = provider.record_of(status.name)
        sentence = say(text, why=status.unreadable, record=record)
        told: list[Told | None] = [(Kind.UNREADABLE, sentence, [], status.unreadable)]
    else:
        bad = traces_of(status)
        told = [_bad_end(status, each, evidence) for each in bad]
        told += [
            _overdue(status, bad, evidence, grace),
            _expired(status),
            _long(status, grace, held_for),
            _passed_over(status),
            _paused(status),
            _unrecorded(status),
        ]
    messages = {
        trace.outcome.value: evidence.message(trace.locked_by)
        for trace in reversed(bad)  # of two losses the last run's
    }
    found = (
        Finding(
            kind,
            provider.alias,
            status.name,
            sentence,
            command(provider, *words) if words else "",
            fact := fact_of(kind, what),
            evidence.acknowledgement(fact),
            messages.get(kind.value, ""),
        )
        for kind, sentence, words, what in filter(None, told)
    )
    return sorted(found, key=attrgetter("kind.rank"))


Told = tuple[Kind, Said, list[str], str]
"""A finding's kind, its sentence, the words of a command that helps, and its fact."""


def _overdue(
    status: LockStatus, bad: Sequence[Trace], evidence: Evidence, grace: timedelta
) -> Told | None:
    since = status.overdue_since(grace)
    if since is None:
        return None
    # Another version may have written a schedule that can't be read here.
    schedule = f" ({status.schedule})" if status.schedule else ""
    tick = status.ticks.tick
    last = local_text(tick) if tick else ""
    if not tick or not (status.job.last_run or status.job.open_run):
        why = _("No run has ever begun: check whether its scheduler runs.")
    elif not status.ticks.was_started(aware(status.clock), grace):
        why = _(
            "No run has begun since the tick of %(last)s: check whether its scheduler "
            "runs."
        )
    elif tick == since:
        why = _("Its job ran, but did not succeed: find out why.")
    else:
        why = _("Nor has the last tick that ran, %(last)s: find out why.")
    late, missed = format_rough(aware(status.clock) - since), local_text(since)
    text = _("Late by %(late)s: the tick of %(missed)s%(schedule)s has not succeeded.")
    sentence = say(text, late=late, missed=missed, schedule=schedule)
    sentence = together(sentence, say(why, last=last))
    newest, words = since, ["trigger", status.name]
    if status.schedule is not None:
        newest = next(status.schedule.ticks_until(aware(status.clock) - grace))
    is_expired = status.state is LockState.EXPIRED
    if process := evidence.suspect(bad, status.unreported_run):
        text = _("Its last run may still go on in process %(process)s.")
        sentence = together(sentence, say(text, process=process))
        words = ["show", status.name]
    elif status.may_catch_up(grace) and has_catch_up():
        words = ["catch-up"] + ["--include-expired", status.name] * is_expired
    return Kind.OVERDUE, sentence, words, newest.astimezone(UTC).isoformat()


def _expired(status: LockStatus) -> Told | None:
    run = status.unreported_run
    if not run:
        return None
    text = _(
        "Its lease ended at %(at)s, but %(holder)s never released the lock: its "
        "worker may have died, or its job runs for longer than lock_at_most_for. "
        "The next start acquires the lock, a catch-up does not. Make sure that "
        "process %(process)s is gone, then release the lock."
    )
    words = ["release", status.name, "--force"]
    if run != status.locked_by:
        text = _(
            "Its lease ended, but %(holder)s never released the lock, and another "
            "service has acquired it since. Make sure that process %(process)s is gone."
        )
        words = ["acknowledge", status.name, "--reason", "its process is gone"]
    at, process = local_text(status.lock_until), process_of(run)
    return Kind.EXPIRED, say(text, at=at, holder=run, process=process), words, run


def _long(
    status: LockStatus, grace: timedelta, held_for: timedelta | None
) -> Told | None:
    if status.state is not LockState.RUNNING:
        return None
    usual, text = status.job.usual_duration, ""
    tick = status.skips_since(grace) if held_for is None else None
    if held_for is not None and (usual is None or usual <= held_for):
        if status.held_for > held_for:
            text = _("Its job has run for %(time)s as %(holder)s.")
    elif is_unusual(status):
        text = _("Its job has run for %(time)s as %(holder)s, usually for %(usual)s.")
    elif tick is not None and (usual is None or status.held_for > usual):
        text = _(
            "Its job has run for %(time)s as %(holder)s, since the tick of %(tick)s "
            "(%(schedule)s), so later ticks are skipped."
        )
    if not text:
        return None
    values = {"time": format_rough(status.held_for), "holder": status.locked_by}
    values["usual"] = format_measured(usual) if usual is not None else ""
    values["tick"] = local_text(tick) if tick else ""
    sentence = together(
        say(text, schedule=str(status.schedule), **values),
        say(_("If it hangs, end its process, then release the lock.")),
    )
    return Kind.LONG, sentence, ["release", status.name, "--force"], status.locked_by


def _passed_over(status: LockStatus) -> Told | None:
    passed, newest = status.passed_over, status.ticks.tick
    if not passed or newest is None:
        return None
    count = str(len(passed)) if len(passed) < PASSED_OVER_LIMIT else f"{len(passed)}+"
    text = _(
        "Passed over %(count)s of its ticks, the first at %(first)s (%(schedule)s): "
        "they never began, and its last run was for the tick of %(newest)s. Check "
        "whether its scheduler was down, jobs waited for room, or a run took too long."
    )
    sentence = say(
        text,
        count=count,
        first=local_text(passed[0]),
        schedule=str(status.schedule),
        newest=local_text(newest),
    )
    words, fact = ["history", status.name], newest.astimezone(UTC).isoformat()
    return Kind.PASSED_OVER, sentence, words, fact


def _paused(status: LockStatus) -> Told | None:
    if not status.is_endless or not status.pause:
        return None
    if status.held_for <= timedelta(days=1):
        return None
    sentence = say(
        _(
            "Paused for %(time)s, without an end, by %(who)s, because: %(reason)s. Its "
            "job does not run until somebody resumes it."
        ),
        time=format_rough(status.held_for),
        who=status.pause.operator,
        reason=status.pause.reason,
    )
    return Kind.PAUSED, sentence, ["resume", status.name], status.locked_by


def _unrecorded(status: LockStatus) -> Told | None:
    if status.job.unrecorded_at is None or not status.job.is_unrecorded:
        return None
    text = _(
        "The history lacks its last run, because it could not be written at %(at)s: "
        "the log says why."
    )
    at = local_text(status.job.unrecorded_at)
    words = ["history", status.name]
    return Kind.HISTORY, say(text, at=at), words, status.job.last_run or ""


def _bad_end(status: LockStatus, trace: Trace, evidence: Evidence) -> Told | None:
    job, outcome = status.job, trace.outcome
    which, last = say(_("Its last run")), None
    again: Said | str = ""
    if not trace.is_last:
        which = say(_("An earlier run"))
    elif outcome is RunOutcome.ABANDONED and status.unreported_run:
        return None  # a later run has not reported its end either
    elif job.failures > 1:
        text = _(", and %(count)s runs in a row have not succeeded")
        again = say(text, count=job.failures)
    if job.succeeded_at is not None:
        at = local_text(job.succeeded_at)
        last = say(_("It last succeeded at %(at)s."), at=at)
    locked_by, words = trace.locked_by, ["history", status.name]
    end, remedy = trace.told(which, again, evidence.exception(locked_by))
    if trace.may_still_run:
        words = ["acknowledge", status.name, "--reason", "its process is gone"]
    sentence = together(end, evidence.released(locked_by), last, remedy)
    return Kind(str(outcome)), sentence, words, locked_by
