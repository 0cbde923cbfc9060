"""
The decorated jobs, and what invokes them.

Here a name such as ``"import:{tenant}"`` becomes a lock's name: see ``Job``.
"""

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from django.core.management.base import BaseCommand

from django_shedlock.exceptions import InvalidLockConfiguration, described
from django_shedlock.locks.configuration import (
    ZERO,
    LockRequest,
    check_name,
    full_name,
    make_schedule,
)
from django_shedlock.providers import get_provider
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import Start

if sys.version_info >= (3, 14):
    from annotationlib import Format


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return its signature, also where an annotation has no value (PEP 649)."""
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


@dataclass(frozen=True)
class About:
    """What a job is for, and the web page that says what to do if it fails."""

    description: str = ""
    runbook: str = ""


def make_about(name: str, target: Any, description: Any, runbook: Any) -> About:
    """
    Return what people should know of this job; its docstring describes it by default.

    Raises ``InvalidLockConfiguration`` if the runbook is no link.
    """
    if description is None:
        has_own = inspect.isroutine(target) or isinstance(target, type)
        text = getattr(target, "help", "") or (target.__doc__ if has_own else "")
        description = inspect.cleandoc(str(text or "")).partition("\n\n")[0]
    parts = urlsplit(runbook) if isinstance(runbook, str) else urlsplit("")
    if runbook is not None and not (parts.scheme in {"http", "https"} and parts.netloc):
        raise InvalidLockConfiguration(
            f"Lock {name!r}: runbook ({runbook!r}) must be a link that begins with "
            "https:// or http://, for example https://wiki.example.com/nightly."
        )
    return About(" ".join(str(description).split()), runbook or "")


@dataclass(eq=False)
class Job:
    """
    A callable and its lock's request; ``command`` is the class whose ``handle`` it is.

    The name of ``request`` may have fields, as in ``"import:{tenant}"``. A call fills
    them with its arguments, so each tenant has its own lock: see ``request_for()``.
    Other braces are written twice. Raises ``InvalidLockConfiguration`` if a field is no
    parameter of the callable.
    """

    path: str
    function: Callable[..., Any]
    request: LockRequest
    command: type[BaseCommand] | None = None
    about: About = About()

    def __post_init__(self) -> None:
        name = self.request.name
        # Formatting the name without arguments collects its fields.
        fields: dict[str, _AnyArgument] = defaultdict(_AnyArgument)
        try:
            literal = name.format_map(fields)
        except ValueError as error:
            raise InvalidLockConfiguration(
                f"Lock name {name!r} is no format string: {error}. Name a parameter of "
                f"{self.path} in each field, as in {{tenant}}, and double all other "
                "braces."
            ) from error
        if fields:
            self._signature = signature_of(self.function)
            known = self._signature.parameters
            rest = [p.name for p in known.values() if p.kind is p.VAR_KEYWORD]
            self._rest = rest[0] if rest else ""  # its keys may be fields, too
            for field in fields:
                if field not in known and not (rest and field.isidentifier()):
                    raise InvalidLockConfiguration(
                        f"Lock name {name!r}: {{{field}}} is no parameter of "
                        f"{self.path}, which has {', '.join(known) or 'none'}."
                    )
        else:
            self.request = replace(self.request, name=literal)
        self.has_fields: bool = bool(fields)
        """Whether the lock's name depends on the arguments."""
        registered_jobs.add(self)

    def request_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LockRequest:
        """
        Return the request for a call with these arguments, see ``invoked_by()``.

        Raises ``InvalidLockConfiguration`` if no lock can have the name they make.
        """
        if not self.has_fields:
            is_plain = invocation_here.get() is None
            return self.request if is_plain else apply(self, self.request)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {**bound.arguments, **bound.arguments.get(self._rest, {})}
        try:
            name = self.request.name.format_map(arguments)
            check_name(name)
            check_name(full_name(name))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            is_explained = isinstance(error, InvalidLockConfiguration)
            raise InvalidLockConfiguration(
                f"The arguments of this call of {self.path} make no name of "
                f"{self.request.name!r}: {error if is_explained else described(error)}"
            ) from error
        return apply(self, replace(self.request, name=name))


class _AnyArgument:
    """Stands for an argument: it has every attribute, item and format."""

    def __getattr__(self, name: str) -> "_AnyArgument":
        return self

    __getitem__ = __getattr__

    def __format__(self, specification: str) -> str:
        # As part of a format, as in "{tenant:{width}}", it must be a number.
        return "1"


registered_jobs: WeakSet[Job] = WeakSet()
"""Every job whose function still exists."""


def find_job(function: Any) -> Job | None:
    """Return the job of a decorated function, also below other decorators."""
    # A job's wrapper wraps the job's function; other decorators may wrap the wrapper.
    jobs = {id(job.function): job for job in registered_jobs}
    while function is not None:
        is_partial = isinstance(function, partial)
        below = getattr(function, "func" if is_partial else "__wrapped__", None)
        if id(below) in jobs and not is_partial:
            return jobs[id(below)]
        function = below
    return None


@dataclass
class Invocation:
    """
    What starts a target, and whether the target was executed, once that is known.

    Without a target it is for every job. ``schedule`` is for a target that has none of
    its own.
    """

    start: Start
    target: object = None
    schedule: Schedule | str | None = None
    was_executed: bool | None = None


invocation_here: ContextVar[Invocation | None] = ContextVar(
    "django_shedlock_invocation", default=None
)


@contextmanager
def invoked_by(
    start: Start, target: object = None, *, schedule: Schedule | str | None = None
) -> Iterator[Invocation]:
    """Tell the target in the body what starts it; ``report()`` tells the result."""
    invocation = Invocation(start, target, schedule)
    token = invocation_here.set(invocation)
    try:
        yield invocation
    finally:
        invocation_here.reset(token)


def apply(target: object, request: LockRequest) -> LockRequest:
    """Return the target's request with the details of this invocation."""
    invocation = invocation_here.get()
    if invocation is None or invocation.target not in (None, target):
        return request
    request = with_schedule(request, invocation.schedule)
    return started_by(request, invocation.start)


def started_by(request: LockRequest, start: Start) -> LockRequest:
    """Return the request for this start; one for an operator's request never waits."""
    # The operator's request waits on the record, and another host may carry it out.
    wait = request.wait if start.request is None else ZERO
    return replace(request, start=start, wait=wait)


def with_schedule(request: LockRequest, schedule: Schedule | str | None) -> LockRequest:
    """Return the request; if it has no schedule and its provider can, with this one."""
    is_settled = schedule is None or request.schedule is not None
    if is_settled or not get_provider(request.provider).keeps_ticks:
        return request
    return replace(request, schedule=make_schedule(request.name, schedule))


def report(target: object, *, was_executed: bool) -> None:
    """Tell what invoked the target whether it was executed."""
    invocation = invocation_here.get()
    if invocation is not None and invocation.target is target:
        invocation.was_executed = was_executed
