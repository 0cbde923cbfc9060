"""The decorated jobs of the project."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from weakref import WeakSet

from django.core.management.base import BaseCommand

from django_shedlock.calls import adapted
from django_shedlock.configuration import check_name
from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.options import LockRequest, full_name


@dataclass(eq=False)
class Job:
    """
    A callable and what its lock is to be; ``command`` if it is that one's ``handle``.

    The name of ``request`` may have fields, as in ``"import:{tenant}"``, which are
    filled with the arguments of each call; braces that are no field are doubled.
    Raises ``InvalidLockConfiguration`` if a field is no parameter of the callable.
    """

    path: str
    function: Callable[..., Any]
    request: LockRequest
    command: type[BaseCommand] | None = None

    def __post_init__(self) -> None:
        wanted = _Wanted()
        try:
            literal = self.request.name.format_map(wanted)
        except ValueError as error:
            raise InvalidLockConfiguration(
                f"Lock name {self.request.name!r} is no format string: {error}. Name a "
                f"parameter of {self.path} in each field, as in {{tenant}}, and double "
                "the braces that are no field."
            ) from error
        self._check_fields(wanted)
        self.has_fields = bool(wanted)
        """Whether the lock's name depends on the arguments."""
        if not wanted:
            self.request = replace(self.request, name=literal)
        registered_jobs.add(self)

    def request_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LockRequest:
        """
        Return the request for a call with these arguments, see ``called()``.

        Raises ``InvalidLockConfiguration`` if no lock can have the name they make.
        """
        return adapted(self, self._named(args, kwargs))

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LockRequest:
        if not self.has_fields:
            return self.request
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {**bound.arguments, **bound.arguments.get(self._rest, {})}
        try:
            name = self.request.name.format_map(arguments)
            check_name(name)
            check_name(full_name(name))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InvalidLockConfiguration(
                f"The arguments of this call of {self.path} make no name of "
                f"{self.request.name!r}: {_reason(error)}"
            ) from error
        return replace(self.request, name=name)

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def _rest(self) -> str:
        # The name of **kwargs, whose members may be fields too.
        kinds = self._signature.parameters.values()
        return next((p.name for p in kinds if p.kind is p.VAR_KEYWORD), "")

    def _check_fields(self, wanted: _Wanted) -> None:
        known = self._signature.parameters if wanted else {}
        for field in wanted:
            if field not in known and not (self._rest and field.isidentifier()):
                raise InvalidLockConfiguration(
                    f"Lock name {self.request.name!r}: {{{field}}} is no parameter of "
                    f"{self.path}, which has {', '.join(known) or 'none'}."
                )


class _Wanted(dict[str, "_Anything"]):
    """Stands for a call's arguments, and remembers which of them a name wants."""

    def __missing__(self, field: str) -> _Anything:
        return self.setdefault(field, _Anything())


class _Anything:
    """Stands for any argument: it has each attribute and item, and takes any format."""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __getitem__(self, key: object) -> _Anything:
        return self

    def __format__(self, specification: str) -> str:
        # Part of a format itself, as in "{tenant:{width}}", it has to be a number.
        return "1"


def _reason(error: Exception) -> str:
    if isinstance(error, InvalidLockConfiguration):
        return str(error)
    return f"{type(error).__name__}: {error}"


registered_jobs: WeakSet[Job] = WeakSet()
"""Every job whose function still exists."""


def find_job(function: Any) -> Job | None:
    """Return the job of a decorated function, also below other decorators."""
    # The wrapper of a job has the function of the job below it; others may wrap it.
    jobs = {id(job.function): job for job in registered_jobs}
    while function is not None:
        below = _below(function)
        if id(below) in jobs and not isinstance(function, partial):
            return jobs[id(below)]
        function = below
    return None


def _below(function: Any) -> Callable[..., Any] | None:
    if isinstance(function, partial):
        return function.func
    below: Callable[..., Any] | None = getattr(function, "__wrapped__", None)
    return below
