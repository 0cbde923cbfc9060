"""Runs that operators ask for: here and now, by a worker, or by a catch-up."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

import django
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import Error
from django.utils.translation import gettext, gettext_lazy

from django_shedlock import conf
from django_shedlock.cancellation import is_ending
from django_shedlock.clocks import aware
from django_shedlock.console.links import command
from django_shedlock.console.operators import performing
from django_shedlock.console.operators.acting import Action, Answer
from django_shedlock.console.operators.trail import OperatorAction, Trail
from django_shedlock.durations import format_left, format_measured
from django_shedlock.exceptions import LockProviderError, described
from django_shedlock.jobs.named import NamedJob, Starter, named_jobs
from django_shedlock.locks.states import LockStatus, is_success
from django_shedlock.models.console import ActionKind, ActionResult, LockAction
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.signals import logger

NOT_STARTED = gettext_lazy("The job of lock %(name)s was not started: %(why)s.")
TASKS = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
"""Django has its own tasks since version 6; before, they are another package's."""


def jobs_by_name(provider: LockProvider) -> Mapping[str, NamedJob]:
    """Return the jobs that are known here, by the full names of their locks."""
    # An entry of CRONJOBS may give a schedule to a job that has none of its own.
    jobs = sorted(
        named_jobs(provider.alias),
        key=lambda job: (job.start is not None, job.schedule is not None),
    )
    return {job.name: job for job in jobs}


def unasked(provider: LockProvider, names: Sequence[str]) -> Mapping[str, str]:
    """Return why no request for these locks' jobs can be withdrawn."""
    without = set(names) - set(Trail(provider).open_requests(names))
    return dict.fromkeys(without, gettext("nobody asks for a run of its job"))


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


def obstacles(provider: LockProvider, names: Sequence[str]) -> Mapping[str, str]:
    """Return why nobody can be asked to run the jobs of these locks."""
    if provider.history_database is None:
        text = gettext("its provider has no database for the request")
        return dict.fromkeys(names, text)
    jobs, requests = jobs_by_name(provider), Trail(provider).open_requests(names)
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


def notes(provider: LockProvider) -> Sequence[str]:
    """Return who will carry out a request, and when a catch-up was last seen."""
    runs = gettext("A worker of django.tasks will run it.")
    if worker_backend() is None:
        runs = gettext(
            "The next `%(command)s` will run it, on any host where the job is known."
        ) % {"command": command(provider, "catch-up")}
    seen = Trail(provider).last_catch_up()
    if seen is None:
        return [runs, gettext("No catch-up was ever seen.")]
    age = {"age": format_left(max(timedelta(0), aware(provider.now()) - aware(seen)))}
    return [runs, gettext("A catch-up was last seen %(age)s ago.") % age]


class RunRequest(Action):
    """Asks a worker of ``django.tasks``, or the next catch-up, to run the job."""

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
                import_module(__name__).carry_out.enqueue(asked.provider.alias, row)
                who = gettext_lazy(
                    "A worker of django.tasks will run the job of lock %(name)s."
                )
            except Exception:  # the next catch-up carries it out
                logger.exception("The request %d could not be enqueued.", row)
        return Answer(ActionResult.REQUESTED, lambda: str(who) % told)


def carry_out_requests(
    provider: LockProvider, row: int | None = None
) -> Iterator[tuple[LockAction, Answer]]:
    """
    Carry out the open requests for jobs that are known here, one after the other.

    With ``row`` only that one, else the trail shows that a catch-up was seen. Of all
    processes that try, one carries out a request. With ``SHEDLOCK_ENABLED = False``
    nothing is done.
    """
    if not conf.ENABLED.value:
        return
    trail = Trail(provider)
    trail.expire_requests()
    if row is None:
        trail.note_catch_up()
    try:
        requests = trail.requests(**({} if row is None else {"pk": row}))
    except Error as error:  # overdue jobs must run all the same
        logger.error("No request of an operator is carried out: %s", str(error).strip())
        return
    jobs = jobs_by_name(provider) if requests else {}
    for request in requests:
        job = jobs.get(request.name)
        if job is None or job.start is None:
            logger.info("Lock %r: its job is requested, not known here.", request.name)
            continue
        if not trail.claim(request.pk, request.name):
            continue
        by: Any = {"operator": request.operator, "reason": request.reason}
        asked = OperatorAction(provider, request.name, **by)
        answer = _run(asked, request.pk, job.start)
        raised = answer.error
        if raised is not None and not is_success(raised):
            # The other requests are carried out, unless this is an interruption.
            if is_ending(raised) or not isinstance(raised, Exception | SystemExit):
                raise raised
            logger.error("The job of lock %r failed.", request.name, exc_info=raised)
        yield request, answer


def run_now(asked: OperatorAction, start: Starter) -> Answer:
    """Run the job in this process, with a row of the trail; pass on what it raises."""
    by = asked.operator or "an operator"
    why = f"because: {asked.reason!r}" if asked.reason else "without a reason"
    logger.warning("Lock %r: %s wants its job to run now, %s.", asked.name, by, why)
    row = Trail(asked.provider).begin(ActionKind.RUN, asked)
    answer = _run(asked, row, start)
    if answer.error is not None:
        raise answer.error
    return answer


def _run(asked: OperatorAction, row: int | None, start: Starter) -> Answer:
    began = time.monotonic()
    raised: BaseException | None = None
    facts = {"name": repr(asked.name)}
    by_operator = Start(Trigger.OPERATOR, operator=asked.operator, reason=asked.reason)
    try:
        has_run = start(by_operator)
    except BaseException as error:
        raised = error
        # If the store failed, somebody else's request must still be carried out.
        has_run = not isinstance(error, LockProviderError)
    if raised is not None and not is_success(raised):
        facts["error"] = described(raised)
        text = gettext_lazy("The job of lock %(name)s failed with %(error)s")
        answer = Answer(ActionResult.FAILED, lambda: str(text) % facts, error=raised)
    elif has_run:
        facts["duration"] = format_measured(timedelta(seconds=time.monotonic() - began))
        text = gettext_lazy("The job of lock %(name)s has run, for %(duration)s.")
        answer = Answer(ActionResult.DONE, lambda: str(text) % facts, error=raised)
    else:
        answer = _skipped(asked)
        logger.warning("%s", answer.detail)
    trail = Trail(asked.provider)
    trail.end(row, asked.name, answer.result, answer.detail)
    if has_run:
        by = asked.operator or "another operator"
        trail.close_requests(asked.name, f"Its job was run meanwhile, by {by}.")
    return answer


def _skipped(asked: OperatorAction) -> Answer:
    status = asked.look()

    def tell() -> str:
        if status is None or status.state.is_held:
            return performing.refused(NOT_STARTED, asked.name, asked.locked_by, status)
        why = gettext("%(holder)s held it, and has released it since")
        why = why % {"holder": status.locked_by}
        return str(NOT_STARTED) % {"name": repr(asked.name), "why": why}

    return Answer(ActionResult.REFUSED, tell, lambda: status)


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
