"""What an operator can do to locks and their jobs, each with its page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy, pgettext_lazy

from django_shedlock.console.admin.actions import Confirmation, ReasonForm
from django_shedlock.console.admin.filters import admin_provider
from django_shedlock.console.admin.labels import rough_length
from django_shedlock.console.operators import Answer, OperatorAction
from django_shedlock.console.operators.enqueueing import worker_backend
from django_shedlock.console.operators.requests import (
    jobs_by_name,
    obstacle,
    open_requests,
    request_run,
)
from django_shedlock.console.operators.trail import Trail
from django_shedlock.durations import parse_duration
from django_shedlock.jobs.named import NamedJob
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.states import LockState
from django_shedlock.models import LockAction

LONGEST_LEASE = timedelta(days=365)


class LeaseForm(ReasonForm):
    """For how long, and why."""

    lock_at_most_for = forms.CharField(
        label=gettext_lazy("Lease from now"),
        max_length=30,
        initial="30m",
        help_text=gettext_lazy("For example 30m or 1h30m. It never becomes shorter."),
    )
    field_order = ("lock_at_most_for", "reason")

    def clean_lock_at_most_for(self) -> timedelta:
        """Return the lease; refuse anything else, and more than a year."""
        return _positive(self.cleaned_data["lock_at_most_for"])


def _positive(text: str) -> timedelta:
    try:
        duration = parse_duration(text)
    except (ValueError, OverflowError):
        duration = ZERO
    if not ZERO < duration <= LONGEST_LEASE:
        raise forms.ValidationError(
            gettext("Enter a duration of at most a year, such as 30m or 1h30m.")
        )
    return duration


class PauseForm(ReasonForm):
    """For how long, if not until it is resumed, and why."""

    lasting = forms.CharField(
        label=pgettext_lazy("shedlock", "For"),
        max_length=30,
        required=False,
        help_text=gettext_lazy(
            "For example 2h. If it is empty, the pause has no end of its own."
        ),
    )
    field_order = ("lasting", "reason")

    def clean_lasting(self) -> timedelta:
        """Return the length of the pause; refuse what is none."""
        if not self.cleaned_data["lasting"].strip():
            return FOREVER
        return _positive(self.cleaned_data["lasting"])


class ReleaseConfirmation(Confirmation):
    """Releases locks, even if their jobs still run."""

    # Of an expired lock nobody knows whether its job still runs.
    states = frozenset({LockState.RUNNING, LockState.HELD_AT_LEAST, LockState.EXPIRED})
    action = "release_selected"
    is_dangerous = True
    title = pgettext_lazy("shedlock", "Release locks?")
    button = pgettext_lazy("shedlock", "Release")
    question = gettext_lazy(
        "Another worker can acquire a released lock at once. A job that still runs "
        "under it is not stopped: make sure that it is dead, or it will run twice."
    )
    refusal = gettext_lazy(
        "Lock “%(name)s” is not released: %(holder)s does not hold it any more."
    )

    def act(self, action: OperatorAction, data: dict[str, Any]) -> Answer:
        """See Confirmation.act()."""
        return action.release(running=True)


class ExtendConfirmation(Confirmation):
    """Extends the leases of held locks."""

    states = frozenset({LockState.RUNNING, LockState.HELD_AT_LEAST})
    action = "extend_selected"
    form_class = LeaseForm
    title = pgettext_lazy("shedlock", "Extend locks?")
    button = pgettext_lazy("shedlock", "Extend")
    question = gettext_lazy(
        "An extended lock stays held for longer, even if its worker is dead. A worker "
        "learns of its longer lease when it asks the next time."
    )
    refusal = gettext_lazy(
        "Lock “%(name)s” is not extended: %(holder)s does not hold it any more."
    )

    def act(self, action: OperatorAction, data: dict[str, Any]) -> Answer:
        """See Confirmation.act()."""
        return action.extend(data["lock_at_most_for"])


class PauseConfirmation(Confirmation):
    """Pauses jobs that do not run."""

    states = frozenset(LockState) - {LockState.RUNNING}
    action = "pause_selected"
    form_class = PauseForm
    title = pgettext_lazy("shedlock", "Pause jobs?")
    button = pgettext_lazy("shedlock", "Pause job")
    question = gettext_lazy(
        "A paused job is skipped on all hosts, and is not overdue, until the pause "
        "ends or somebody resumes the job. Each skip tells who paused it and why."
    )
    refusal = gettext_lazy(
        "The job of lock “%(name)s” is not paused: there is no such lock any more."
    )
    nothing = gettext_lazy("None of these jobs can be paused now.")

    def act(self, action: OperatorAction, data: dict[str, Any]) -> Answer:
        """See Confirmation.act()."""
        return action.pause(data["lasting"])


class ResumeConfirmation(Confirmation):
    """Ends the pauses of jobs."""

    states = frozenset({LockState.PAUSED})
    action = "resume_selected"
    title = pgettext_lazy("shedlock", "Resume jobs?")
    button = pgettext_lazy("shedlock", "Resume job")
    question = gettext_lazy(
        "The next start of a resumed job runs it. If a tick was missed meanwhile, "
        "`shedlock catch-up` runs it once."
    )
    refusal = gettext_lazy(
        "The job of lock “%(name)s” is not resumed: there is no such lock any more."
    )
    nothing = gettext_lazy("None of these jobs is paused.")

    def act(self, action: OperatorAction, data: dict[str, Any]) -> Answer:
        """See Confirmation.act()."""
        return action.resume()


class RunConfirmation(Confirmation):
    """Asks a worker to run jobs now; nothing runs in the web process."""

    states = frozenset({LockState.FREE, LockState.HELD_AT_LEAST, LockState.EXPIRED})
    action = "run_selected"
    title = pgettext_lazy("shedlock", "Run jobs now?")
    button = pgettext_lazy("shedlock", "Run job now")
    question = gettext_lazy(
        "The job runs under its lock, even if its tick has been run, or if "
        "lock_at_least_for keeps the lock."
    )
    refusal = gettext_lazy(
        "No run of the job of lock “%(name)s” is requested: it is paused, or there is "
        "no such lock any more."
    )
    nothing = gettext_lazy("None of these jobs can be run now.")

    def obstacle(self, record: Any) -> str | None:
        """See Confirmation.obstacle()."""
        why = super().obstacle(record)
        return why or obstacle(
            record.name, admin_provider(self.request), self._jobs, self._requests
        )

    @property
    def notes(self) -> list[str]:
        """Who will run it, and when a catch-up was last seen."""
        return [self._who_runs(), self._last_catch_up()]

    def act(self, action: OperatorAction, data: dict[str, Any]) -> Answer:
        """See Confirmation.act()."""
        return request_run(action, self._jobs)

    @cached_property
    def _jobs(self) -> Mapping[str, NamedJob]:
        return jobs_by_name(admin_provider(self.request))

    @cached_property
    def _requests(self) -> Mapping[str, LockAction]:
        return open_requests(admin_provider(self.request))

    def _who_runs(self) -> str:
        if worker_backend() is not None:
            return gettext("A worker of django.tasks will run it.")
        return gettext(
            "The next `shedlock catch-up` will run it, on any host where the job is "
            "known."
        )

    def _last_catch_up(self) -> str:
        trail = Trail(admin_provider(self.request))
        seen = trail.last_catch_up()
        if seen is None:
            return gettext("No catch-up was ever seen.")
        text = gettext("A catch-up was last seen %(age)s ago.")
        return text % {"age": rough_length(trail.age(seen))}
