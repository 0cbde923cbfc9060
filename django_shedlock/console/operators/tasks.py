"""Ask for a run of a job, by a worker of ``django.tasks`` if there are any."""

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

from django_shedlock.console.operators.acting import Action
from django_shedlock.console.operators.requests import carry_out_requests, jobs_by_name
from django_shedlock.console.operators.trail import Answer, OperatorAction, Trail
from django_shedlock.durations import format_left
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.states import LockStatus
from django_shedlock.models.console import ActionResult
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.signals import logger

TASKS = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
"""Since version 6 Django brings what the other package brings to older ones."""
BY_WORKER = gettext_lazy("A worker of django.tasks will run the job of lock %(name)s.")
BY_CATCH_UP = gettext_lazy(
    "The next `shedlock catch-up` will run the job of lock %(name)s."
)


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


def enqueue(provider: str, row: int) -> bool:
    """Enqueue the request in this row; return whether a worker will get it."""
    if worker_backend() is None:
        return False
    try:
        __getattr__("carry_out").enqueue(provider, row)
    except Exception:  # the next catch-up carries it out
        logger.exception("The request %d could not be enqueued.", row)
        return False
    return True


class RunRequest(Action):
    """
    Asks for a run of the job, by a worker of ``django.tasks`` or the next catch-up.

    Nothing runs in the process of the operator.
    """

    def obstacles(
        self, provider: LockProvider, names: Sequence[str]
    ) -> Mapping[str, str]:
        if provider.history_database is None:
            text = gettext("its provider has no database for the request")
            return dict.fromkeys(names, text)
        trail, jobs = Trail(provider), jobs_by_name(provider)
        requests = {each.name: each for each in trail.requests(name__in=names)}
        found = {}
        for name in names:
            if name not in jobs:
                found[name] = gettext("no such job is known in this process")
            elif jobs[name].start is None:
                found[name] = gettext(
                    "its job needs arguments, so it can't be started by name"
                )
            elif name in requests:
                text = gettext(
                    "%(operator)s asked for a run %(age)s ago, which is still open"
                )
                age = format_left(trail.age(requests[name].began))
                found[name] = text % {"operator": requests[name].operator, "age": age}
        return found

    def notes(self, provider: LockProvider) -> Sequence[str]:
        if worker_backend() is not None:
            runs = gettext("A worker of django.tasks will run it.")
        else:
            runs = gettext(
                "The next `shedlock catch-up` will run it, on any host where the job "
                "is known."
            )
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
        row = trail.begin(self.kind, asked, ActionResult.REQUESTED)
        if row is None:
            raise LockProviderError(
                f"Lock {asked.name!r}: the request to run its job can't be written."
            )
        text = "Lock %r: %s asks for a run of its job, because: %r."
        logger.warning(text, asked.name, by, asked.reason)
        is_enqueued = enqueue(asked.provider.alias, row)
        who = BY_WORKER if is_enqueued else BY_CATCH_UP
        return Answer(ActionResult.REQUESTED, lambda: str(who) % told)


def _carry_out(provider: str, row: int) -> str:
    """Run the requested job, unless another process has; return the answer."""
    for _, answer in carry_out_requests(get_provider(provider), row):
        if answer.result is ActionResult.FAILED and answer.error:
            raise answer.error
        return answer.detail
    return "Not carried out here: it was before, or its job is not known."


def __getattr__(name: str) -> Any:
    # Workers look for the task under its name. It is made when somebody asks for it,
    # since making it reads the settings.
    if name != "carry_out":
        raise AttributeError(name)
    _carry_out.__qualname__ = name
    task = globals()[name] = import_module(TASKS).task(_carry_out)
    return task
