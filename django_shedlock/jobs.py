"""The decorated jobs of the project."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakSet

from django_shedlock.exceptions import InvalidLockConfiguration
from django_shedlock.options import LockRequest


@dataclass(eq=False)
class Job:
    """
    A callable and what its lock is to be.

    The name of ``request`` may have fields, as in ``"import:{tenant}"``, which are
    filled with the arguments of each call. Raises ``InvalidLockConfiguration`` if a
    field is no parameter of the callable.
    """

    path: str
    function: Callable[..., Any]
    request: LockRequest

    def __post_init__(self) -> None:
        if self.has_fields:
            self._check_fields()
        registered_jobs.add(self)

    @cached_property
    def has_fields(self) -> bool:
        """Whether the lock's name depends on the arguments."""
        return bool(self._fields)

    def request_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LockRequest:
        """Return the request for a call with these arguments."""
        if not self.has_fields:
            return self.request
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {**bound.arguments, **bound.arguments.get(self._rest, {})}
        return replace(self.request, name=self.request.name.format_map(arguments))

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @cached_property
    def _rest(self) -> str:
        # The name of **kwargs, whose members may be fields too.
        kinds = self._signature.parameters.values()
        return next((p.name for p in kinds if p.kind is p.VAR_KEYWORD), "")

    @cached_property
    def _fields(self) -> list[str]:
        name = self.request.name
        try:
            parts = [field for _, field, _, _ in string.Formatter().parse(name)]
        except ValueError as error:
            raise InvalidLockConfiguration(
                f"Lock name {name!r} is no format string: {error}. Double the braces "
                "that are no field."
            ) from error
        return [field for field in parts if field is not None]

    def _check_fields(self) -> None:
        known = self._signature.parameters
        for field in self._fields:
            root = field.split(".")[0].split("[")[0]
            if root not in known and not (self._rest and root.isidentifier()):
                raise InvalidLockConfiguration(
                    f"Lock name {self.request.name!r}: {{{field}}} is no parameter of "
                    f"{self.path}, which has {', '.join(known) or 'none'}."
                )


registered_jobs: WeakSet[Job] = WeakSet()
"""Every job whose function still exists."""
