"""The five answers on a lock's page: what it does, who, is it alive, before, next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.admin.utils import quote
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, pgettext

from django_shedlock import conf
from django_shedlock.clocks import aware
from django_shedlock.console.admin.filters import query_of
from django_shedlock.console.admin.labels import (
    NOTHING,
    ago,
    excerpt,
    filled_in,
    holder,
    instant,
    lease_meter,
    length,
    outcome_badge,
    rough_length,
    state_badge,
    with_instant,
)
from django_shedlock.durations import format_seconds
from django_shedlock.locks.configuration import ZERO, default_duration
from django_shedlock.locks.lock import split_identity
from django_shedlock.locks.states import (
    LockState,
    LockStatus,
    RunOutcome,
    is_unusual,
)


@dataclass(frozen=True)
class Answer:
    """An answer on a lock's page: what is asked, in a word or two, and its lines."""

    kind: str
    label: str
    lines: Sequence[SafeString]


@dataclass(frozen=True)
class LockAnswers:
    """
    What the page tells of a lock. ``record`` comes from the admin's queryset.

    ``runs`` are the last ones, the newest first; ``None`` if the user may not see them.
    ``site`` is the name of the admin site that has their pages.
    """

    record: Any
    runs: Sequence[Any] | None = None
    site: str = "admin"

    @property
    def status(self) -> LockStatus:
        """The lock when it was read."""
        status: LockStatus = self.record.status
        return status

    @property
    def grace(self) -> timedelta:
        """How late a tick may succeed."""
        return default_duration(conf.GRACE)

    @property
    def answers(self) -> Sequence[Answer]:
        """What it is doing, for whom, whether it is alive, what was, and what comes."""
        return [
            Answer("state", pgettext("shedlock", "State"), self._state()),
            Answer("holder", pgettext("shedlock", "Holder"), self._holder()),
            Answer("heartbeat", pgettext("shedlock", "Alive"), self._heartbeat()),
            Answer("last", pgettext("shedlock", "Last run"), self._last_run()),
            Answer("next", pgettext("shedlock", "Next run"), self._next_run()),
        ]

    @property
    def details(self) -> Sequence[tuple[str, SafeString | str]]:
        """The rest of the record, for whoever looks for it."""
        record = self.record
        identity = format_html('<code dir="ltr">{}</code>', record.locked_by or NOTHING)
        known = instant if record.locked_by else lambda moment: NOTHING
        details = [
            (pgettext("shedlock", "Acquisition"), identity),
            (pgettext("shedlock", "Locked at"), known(record.locked_at)),
            (pgettext("shedlock", "Lock until"), known(record.lock_until)),
            (gettext("Lock at least until"), instant(record.lock_at_least_until)),
            (pgettext("shedlock", "Extended at"), instant(record.heartbeat_at)),
            (pgettext("shedlock", "Released at"), instant(record.released_at)),
            (pgettext("shedlock", "Fencing token"), str(record.fencing_token)),
        ]
        if record.schedule is None:
            return details
        return [
            *details,
            (pgettext("shedlock", "Schedule"), self._schedule()),
            (gettext("Newest tick that was run"), instant(record.tick)),
            (pgettext("shedlock", "Due at"), instant(record.due_at)),
        ]

    def _state(self) -> list[SafeString]:
        lines = {
            LockState.RUNNING: self._running,
            LockState.PAUSED: self._paused,
            LockState.HELD_AT_LEAST: self._held_at_least,
            LockState.EXPIRED: self._expired,
            LockState.FREE: list,
        }[self.status.state]()
        return _beside(state_badge(self.status.state), lines)

    def _running(self) -> list[SafeString]:
        age, usual = self.status.held_for, self.record.usual_duration
        text = pgettext("shedlock", "for %(time)s")
        lines = [filled_in(text, time=rough_length(age))]
        if usual is not None:
            text = pgettext("shedlock", "usually %(time)s")
            lines.append(_quiet(filled_in(text, time=length(usual))))
        if is_unusual(self.status.state, age, usual):
            lines.append(_warning(filled_in(gettext("longer than usual"))))
        return lines

    def _paused(self) -> list[SafeString]:
        calm = gettext("Its job does not run meanwhile, and is not overdue.")
        if self.status.is_endless:
            until = filled_in(gettext("until it is resumed"))
        else:
            text = pgettext("shedlock", "until %(instant)s")
            until = filled_in(text, instant=instant(self.record.lock_until))
        return [until, _quiet(filled_in(calm))]

    def _held_at_least(self) -> list[SafeString]:
        text = gettext("Its job has ended; lock_at_least_for keeps it for %(time)s.")
        return [filled_in(text, time=format_seconds(self.status.remaining))]

    def _expired(self) -> list[SafeString]:
        since = rough_length(max(-self.record.remaining, ZERO))
        text = gettext("Its lease ended %(time)s ago, and nobody released it.")
        return [filled_in(text, time=since)]

    def _holder(self) -> list[SafeString]:
        record, pause = self.record, self.status.pause
        if not record.locked_by:
            return [filled_in(gettext("Nobody has held it yet."))]
        age = aware(record.clock) - aware(record.locked_at)
        since = ago(age, record.locked_at)
        if pause is not None:
            who = format_html("<bdi>{}</bdi>", pause.operator)
            why = format_html('<bdi class="shedlock-reason">{}</bdi>', pause.reason)
            return [who, since, why]
        who = holder(record.locked_by, *split_identity(record.locked_by))
        if self.status.state.may_run:
            return [who, since]
        nobody = filled_in(gettext("Nobody; the last one was %(holder)s"), holder=who)
        return [nobody, since]

    def _heartbeat(self) -> list[SafeString]:
        if not self.status.state.may_run:
            return [_quiet(filled_in(gettext("No job runs under this lock.")))]
        beat = self.record.heartbeat_at
        if beat is None:
            text = gettext("Not known: its lease was not extended since then.")
            lines = [_quiet(filled_in(text))]
        else:
            since = aware(self.record.clock) - aware(beat)
            text = pgettext("shedlock", "heartbeat %(age)s ago")
            lines = [filled_in(text, age=rough_length(since))]
        if self.status.state is LockState.RUNNING:
            lines.append(self._meter())
        return lines

    def _meter(self) -> SafeString:
        left = filled_in(
            pgettext("shedlock", "%(remaining)s of the lease left"),
            remaining=format_seconds(self.status.remaining),
        )
        return format_html("{} {}", lease_meter(self.record.lease_used), left)

    def _last_run(self) -> list[SafeString]:
        run = next(filter(_has_ended, self.runs or ()), None)
        if run is not None:
            text = pgettext("shedlock", "after %(time)s")
            lasted = length(run.duration)
            after = [] if run.duration is None else [filled_in(text, time=lasted)]
            failure = [] if not run.exception_type else [excerpt(run)]
            began = ago(run.elapsed, run.started)
            return _beside(self._linked_outcome(run), [*after, began, *failure])
        if self.record.last_outcome is None:
            return [_quiet(filled_in(gettext("No run has ended yet.")))]
        return [outcome_badge(RunOutcome(self.record.last_outcome))]

    def _linked_outcome(self, run: Any) -> SafeString:
        page = reverse(
            "admin:django_shedlock_lockrun_change",
            args=[quote(run.pk)],
            current_app=self.site,
        )
        badge = outcome_badge(RunOutcome(run.current_outcome))
        query = query_of(run.provider)
        return format_html('<a href="{}{}">{}</a>', page, query, badge)

    def _next_run(self) -> list[SafeString]:
        if self.record.schedule is None:
            text = gettext("It has no schedule: whatever calls its job starts it.")
            return [_quiet(filled_in(text))]
        status, since = self.status, self.status.overdue_since(self.grace)
        lines = [self._ahead(), _quiet(self._schedule())]
        if status.state is LockState.PAUSED:
            lines.append(filled_in(gettext("Ticks are skipped while it is paused.")))
        if since is not None:
            text = pgettext("shedlock", "overdue since %(instant)s")
            lines.append(_warning(filled_in(text, instant=instant(since))))
        return lines

    def _ahead(self) -> SafeString:
        tick = self.status.next_tick
        if tick is None:
            return _quiet(filled_in(gettext("The next tick is not known here.")))
        until = tick - aware(self.status.clock)
        text = pgettext("shedlock", "in %(time)s")
        return with_instant(filled_in(text, time=rough_length(until)), tick, until)

    def _schedule(self) -> SafeString:
        return format_html('<code dir="ltr">{}</code>', self.record.schedule)


def _has_ended(run: Any) -> bool:
    return RunOutcome(run.current_outcome).is_end


def _beside(badge: SafeString, lines: list[SafeString]) -> list[SafeString]:
    if not lines:
        return [badge]
    return [format_html("{} {}", badge, lines[0]), *lines[1:]]


def _quiet(text: SafeString) -> SafeString:
    return format_html('<span class="shedlock-quiet">{}</span>', text)


def _warning(text: SafeString) -> SafeString:
    return format_html('<span class="shedlock-warning">{}</span>', text)
