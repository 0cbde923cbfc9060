"""The requests that a job runs, which an operator makes, and may withdraw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext, gettext_lazy

from django_shedlock.console.links import command
from django_shedlock.console.operators import requests
from django_shedlock.console.operators.acting import Action, Answer
from django_shedlock.console.operators.requests import TASKS, jobs_by_name
from django_shedlock.console.operators.trail import OperatorAction, Trail
from django_shedlock.durations import format_left
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.states import LockStatus
from django_shedlock.models.console import ActionResult
from django_shedlock.providers.base import LockProvider
from django_shedlock.signals import logger


def open_requests(provider: LockProvider, names: Sequence[str]) -> Mapping[str, str]:
    """Return who asked for a run of these locks' jobs, and when, if it waits still."""
    trail = Trail(provider)
    text = gettext("%(operator)s asked for a run %(age)s ago, which is still open")
    return {
        each.name: text
        % {"operator": each.operator, "age": format_left(trail.age(each.began))}
        for each in trail.requests(name__in=names)
    }


def worker_backend() -> Any:
    """
    Return the default backend of ``django.tasks`` if workers run its tasks.

    ``None`` for a backend that runs a task where it is enqueued, or never, and for one
    without the default queue.
    """
    if django.VERSION < (6,) and not apps.is_installed(TASKS):
        return None
    tasks = import_module(TASKS)
    with suppress(ImproperlyConfigured):
        backend = tasks.task_backends[tasks.DEFAULT_TASK_BACKEND_ALIAS]
        without_workers = (
            import_module(f"{TASKS}.backends.immediate").ImmediateBackend,
            import_module(f"{TASKS}.backends.dummy").DummyBackend,
        )
        if isinstance(backend, without_workers):
            return None
        if not backend.queues or tasks.DEFAULT_TASK_QUEUE_NAME in backend.queues:
            return backend
    return None


class RunRequest(Action):
    """Asks a worker of ``django.tasks``, or the next catch-up, to run the job."""

    def obstacles(
        self, provider: LockProvider, names: Sequence[str]
    ) -> Mapping[str, str]:
        if provider.history_database is None:
            text = gettext("its provider has no database for the request")
            return dict.fromkeys(names, text)
        jobs, requests = jobs_by_name(provider), open_requests(provider, names)
        found = {}
        for name in names:
            if name not in jobs:
                found[name] = gettext("no such job is known in this process")
            elif jobs[name].start is None:
                found[name] = gettext(
                    "its job needs arguments, so it can't be started by name"
                )
            elif name in requests:
                found[name] = requests[name]
        return found

    def notes(self, provider: LockProvider) -> Sequence[str]:
        if worker_backend() is not None:
            runs = gettext("A worker of django.tasks will run it.")
        else:
            runs = gettext(
                "The next `%(command)s` will run it, on any host where the job is "
                "known."
            ) % {"command": command(provider, "catch-up")}
        trail = Trail(provider)
        seen = trail.last_catch_up()
        if seen is None:
            return [runs, gettext("No catch-up was ever seen.")]
        age = {"age": format_left(trail.age(seen))}
        return [runs, gettext("A catch-up was last seen %(age)s ago.") % age]

    def carry_out(
        self, asked: OperatorAction, seen: LockStatus | None = None, **options: Any
    ) -> Answer:
        before = seen or asked.provider.status(asked.name)
        told = {"name": repr(asked.name)}
        if asked.locked_by not in {None, before and before.locked_by}:
            refused = partial(self.refusal, asked.name, asked.locked_by, before)
            return Answer(ActionResult.REFUSED, refused, lambda: before)
        if why := self.obstacles(asked.provider, [asked.name]):
            told["why"] = why[asked.name]
            return Answer(ActionResult.REFUSED, lambda: str(self.refused) % told)
        trail, by = Trail(asked.provider), asked.operator or "an operator"
        trail.expire_requests()
        row = trail.begin(self.kind, asked, ActionResult.REQUESTED)
        if row is None:
            raise LockProviderError(
                f"Lock {asked.name!r}: the request to run its job can't be written."
            )
        text = "Lock %r: %s asks for a run of its job, because: %r."
        logger.warning(text, asked.name, by, asked.reason)
        told["command"] = command(asked.provider, "catch-up")
        who = gettext_lazy("The next `%(command)s` will run the job of lock %(name)s.")
        if worker_backend() is not None:
            try:
                requests.carry_out.enqueue(asked.provider.alias, row)
                who = gettext_lazy(
                    "A worker of django.tasks will run the job of lock %(name)s."
                )
            except Exception:  # the next catch-up carries it out
                logger.exception("The request %d could not be enqueued.", row)
        return Answer(ActionResult.REQUESTED, lambda: str(who) % told)


class Withdrawal(Action):
    """Withdraws the request that a job runs, if nobody has carried it out."""

    def obstacles(
        self, provider: LockProvider, names: Sequence[str]
    ) -> Mapping[str, str]:
        unasked = set(names) - set(open_requests(provider, names))
        return dict.fromkeys(unasked, gettext("nobody asks for a run of its job"))


def withdraw(asked: OperatorAction, before: LockStatus | None) -> bool:
    """Close the open requests for this lock's job; say who did, and why."""
    by = asked.operator or "another operator"
    why = f", because: {asked.reason}" if asked.reason else ""
    trail = Trail(asked.provider)
    return bool(trail.close_requests(asked.name, f"{by} withdrew it{why}."))
