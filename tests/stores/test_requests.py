"""A run that an operator asks for, in each store that processes share."""

from __future__ import annotations

from typing import Any

import pytest

from django_shedlock import scheduler_lock
from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.console.models import ActionResult
from django_shedlock.console.operators import AuditedAction, RequestRun
from django_shedlock.providers import get_provider
from django_shedlock.registry.requests import last_catch_up
from tests.support.commands import call
from tests.support.locks import status_of

pytestmark = pytest.mark.django_db
shared_stores = pytest.mark.parametrize(
    "store",
    ["database", "redis", "etcd", "mongo", "dynamo", "zookeeper"],
    indirect=True,
)


@shared_stores
def test_request_is_carried_out_once(store: str) -> None:
    """A catch-up runs the job, clears the request, and is seen."""
    ran = []

    @scheduler_lock("by hand")
    def by_hand() -> None:
        ran.append("by hand")

    answer = ask("by hand")
    assert answer.result is ActionResult.REQUESTED
    assert "ada asked for a run" in ask("by hand").detail
    status, told, _ = call("catch-up")
    assert status == 0
    assert "The job of lock 'by hand' has run, for " in told
    assert call("catch-up")[1] == ""
    assert ran == ["by hand"]
    assert last_catch_up(get_provider()) is not None


@pytest.mark.each_store
@shared_stores
def test_request_is_withdrawn(store: str) -> None:
    """A request that was withdrawn runs nothing."""
    ask("job")
    assert call("withdraw", "job")[0] == 0
    assert status_of(get_provider(), "job").job.asked_at is None
    assert call("catch-up")[:2] == (0, "")


def ask(name: str) -> Any:
    note_catch_up(get_provider())  # else nobody would carry it out
    asked = AuditedAction(get_provider(), name, operator="ada", reason="at once")
    return RequestRun().carry_out(asked)
