"""The task by which a worker of ``django.tasks`` carries out a request."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django_shedlock.console.operators.enqueueing import TASKS
from django_shedlock.console.operators.requests import carry_out, jobs_by_name
from django_shedlock.providers import get_provider

task: Any = import_module(TASKS).task


@task  # type: ignore[untyped-decorator]
def carry_out_request(provider: str, row: int) -> str:
    """Run the requested job, unless another process has; return what came of it."""
    known = get_provider(provider)
    carried_out = carry_out(known, row, jobs_by_name(known))
    if carried_out is None:
        return "Not carried out here: it was before, or its job is not known."
    if carried_out.error is not None:
        raise carried_out.error
    return carried_out.answer.detail
