"""The operators' requests to run a job, which a catch-up or a beat carries out."""

from collections.abc import Mapping, Sequence

from django.utils.translation import gettext

from django_shedlock.cli.base import command
from django_shedlock.clocks import aware
from django_shedlock.console.links import has_catch_up
from django_shedlock.console.operators.audit import AuditedAction
from django_shedlock.console.operators.performing import Look
from django_shedlock.durations import format_duration, format_left
from django_shedlock.history.texts import fitting
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import LockStatus
from django_shedlock.models import LockRecord
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.registry.discovery import offered_job_sources
from django_shedlock.registry.jobs import registered_by_name
from django_shedlock.registry.requests import (
    REQUEST_LIFETIME,
    age_of_request,
    asked_at,
    has_request,
    last_catch_up,
)
from django_shedlock.signals import logger


def request_of(status: LockStatus | None) -> str:
    """Return who asked for a run of the lock's job, and how long ago, if anyone did."""
    if status is None or not has_request(status):
        return ""
    text = gettext("%(operator)s asked for a run %(age)s ago, which is still open")
    age = format_left(age_of_request(status))
    return text % {"operator": status.job.asked_by, "age": age}


def request(asked: AuditedAction, before: LockStatus | None) -> bool:
    """Ask the next catch-up or beat to run the lock's job."""
    fits = fitting(LockRecord, asked_by=asked.operator, asked_why=asked.reason)
    asked.provider.request_run(asked.name, fits["asked_by"], fits["asked_why"])
    text = "Lock %r: %s asks for a run of its job, because: %r."
    logger.warning(text, asked.name, asked.operator or "an operator", asked.reason)
    return True


def withdraw(asked: AuditedAction, before: LockStatus | None) -> bool:
    """Close the open request for this lock's job."""
    if before is None or not has_request(before):
        return False
    if asked.provider.withdraw_request(asked.name, asked_at(before)):
        return True
    # Sent again after a lost reply, our own first try may have done it. A start for the
    # request would be another acquisition.
    after = asked.look()
    return after is not None and (
        after.job.asked_at is None and after.locked_by == before.locked_by
    )


def requested(asked: AuditedAction, before: LockStatus | None, look: Look) -> str:
    """Say who will run the job."""
    text = gettext("The next `%(command)s` will run the job of lock %(name)s.")
    run_by = command(asked.provider, "catch-up")
    return text % {"command": run_by, "name": repr(asked.name)}


def is_requested(before: LockStatus | None, after: LockStatus) -> bool:
    """Return whether the lock, read after a lost reply, shows a new request."""
    return has_request(after) and (
        before is None or before.job.asked_at != after.job.asked_at
    )


def is_withdrawn(before: LockStatus | None, after: LockStatus) -> bool:
    """Return whether the lock, read after a lost reply, shows no request any more."""
    return after.job.asked_at is None


def unasked(provider: LockProvider, names: Sequence[str]) -> Mapping[str, str]:
    """Return why no request for these locks' jobs can be withdrawn."""
    found = provider.statuses(LockQuery(names=names))
    without = set(names) - {status.name for status in found if has_request(status)}
    return dict.fromkeys(without, gettext("nobody asks for a run of its job"))


def obstacles(provider: LockProvider, names: Sequence[str]) -> Mapping[str, str]:
    """
    Return why nobody can be asked to run the jobs of these locks.

    A lock with a record may have a job that this process does not know: a web process
    does not look for jobs.
    """
    if not provider.is_shared:
        text = gettext("its provider keeps its locks in the memory of each process")
        return dict.fromkeys(names, text)
    if not has_catch_up():
        text = gettext("INSTALLED_APPS lacks django_shedlock.beat, which would run it")
        return dict.fromkeys(names, text)
    jobs = registered_by_name(provider.alias)
    locks = {status.name: status for status in provider.statuses(LockQuery(names))}
    # An app that offers jobs, such as those of CRONJOBS, may give a job its arguments.
    may_have_arguments = bool(offered_job_sources())
    found = {}
    for name in names:
        if name not in jobs and name not in locks:
            found[name] = gettext("no such job is known in this process")
        elif name in jobs and jobs[name].needs_arguments and not may_have_arguments:
            found[name] = gettext(
                "its job needs arguments, so it can't be started by name"
            )
        elif is_asked := request_of(locks.get(name)):
            found[name] = is_asked
    return found


def notes(provider: LockProvider) -> Sequence[str]:
    """Return who will carry out a request, and when a catch-up was last seen."""
    runs = gettext(
        "The next `%(command)s` will run it, on any host where the job is known. A "
        "request that nobody carries out expires after %(lifetime)s."
    ) % {
        "command": command(provider, "catch-up"),
        "lifetime": format_duration(REQUEST_LIFETIME),
    }
    seen = last_catch_up(provider)
    if seen is None:
        return [runs, gettext("No catch-up was ever seen.")]
    age = {"age": format_left(max(ZERO, aware(provider.now()) - aware(seen)))}
    return [runs, gettext("A catch-up was last seen %(age)s ago.") % age]
