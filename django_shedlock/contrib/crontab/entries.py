"""The entries of ``CRONJOBS``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.utils.module_loading import import_string

FORMS = "(time, path), (time, path, suffix) or (time, path, [args], {kwargs}, suffix)"
KINDS: tuple[Any, ...] = (str, str, (list, tuple), dict, (str, type(None)))


@dataclass(frozen=True)
class Entry:
    """When to call what, and what comes after it in the line of the crontab."""

    time: str
    path: str
    args: list[Any] | tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    suffix: str | None = None

    @classmethod
    def parse(cls, job: Any) -> Entry:
        """
        Return the entry that stands in ``CRONJOBS``.

        Raises ``ValueError`` if django-crontab could not make sense of it.
        """
        if not isinstance(job, list | tuple) or not 2 <= len(job) <= len(KINDS):
            raise ValueError(f"it has to be {FORMS}")
        parts = list(job)
        if len(parts) == 3 and isinstance(parts[2], str):
            parts[2:2] = [(), {}]
        kinds = zip(parts, KINDS, strict=False)
        if not all(isinstance(part, kind) for part, kind in kinds):
            raise ValueError(f"it has to be {FORMS}")
        return cls(*parts)

    @property
    def call(self) -> str:
        """
        The path and, if there are any, the arguments.

        Raises ``TypeError`` or ``ValueError`` if they are no JSON.
        """
        positional = [json.dumps(value, sort_keys=True) for value in self.args]
        keywords = sorted(self.kwargs.items())
        named = [
            f"{key}={json.dumps(value, sort_keys=True)}" for key, value in keywords
        ]
        arguments = ", ".join([*positional, *named])
        return f"{self.path}({arguments})" if arguments else self.path

    @property
    def function(self) -> Any:
        """What the path names. Raises ``ImportError``, or what importing it raises."""
        return import_string(self.path)
