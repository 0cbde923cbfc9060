"""What operators do to locks, and who is told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock import signals
from django_shedlock.console.admin.past import ACTION_LABELS
from django_shedlock.console.models import ActionKind, LockAction
from django_shedlock.console.operators import (
    ACTIONS,
    Action,
    Answer,
    AuditedAction,
    ExtendLease,
    ReleaseLock,
)
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.testing import locked_in_memory
from tests.support.durations import rounded_up
from tests.support.locks import status_of, take

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


@pytest.fixture
def told() -> Iterator[list[dict[str, Any]]]:
    """Each signal of an operator that was sent."""
    heard: list[dict[str, Any]] = []

    def hear(**kwargs: Any) -> None:
        heard.append(kwargs)

    signals.lock_force_released.connect(hear)
    signals.lock_force_extended.connect(hear)
    yield heard
    signals.lock_force_released.disconnect(hear)
    signals.lock_force_extended.disconnect(hear)


def asked(locked_by: str | None = None) -> AuditedAction:
    return AuditedAction(
        get_provider(), "job", locked_by, operator="ada", reason="pod is gone"
    )


def test_release_is_told_with_its_reason(
    told: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever listens learns whose lock was freed, by whom and why; so does the log."""
    lock = take()
    meant = asked(lock.locked_by)
    assert ReleaseLock().carry_out(meant)
    assert status_of(get_provider()).state is LockState.FREE
    assert [call["action"] for call in told] == [meant]
    assert f"'job' was released by ada, because: 'pod is gone', held by {lock}" in (
        caplog.text.replace(lock.locked_by, str(lock))
    )


def test_extension_is_told(
    told: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """The signal and the log line of an extension have the new lease."""
    take()
    assert ExtendLease(lock_at_most_for=HOUR).carry_out(asked())
    assert status_of(get_provider()).remaining > timedelta(minutes=59)
    assert [call["lock_at_most_for"] for call in told] == [HOUR]
    assert "extended to at least 1h from now by ada" in caplog.text


def test_log_tells_what_is_left_of_a_longer_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An extension never shortens a lease, so the one before it may go on."""
    take(lock_at_most_for=3 * HOUR)
    assert ExtendLease(lock_at_most_for=HOUR).carry_out(asked())
    told = "'job' lasts for 3h more: extended to at least 1h"
    assert told in rounded_up(caplog.text)


def test_running_job_is_spared_unless_meant(told: list[dict[str, Any]]) -> None:
    """A release with ``spare_running`` does not free the lock of a running job."""
    take()
    assert not ReleaseLock(spare_running=True).carry_out(asked())
    assert told == []


@pytest.mark.parametrize("verb", ["release", "extend"])
def test_next_acquisition_is_spared(told: list[dict[str, Any]], verb: str) -> None:
    """An action is for the acquisition that the operator saw."""
    seen = take()
    seen.release()
    take()
    meant = asked(seen.locked_by)
    assert not (
        ReleaseLock().carry_out(meant)
        if verb == "release"
        else ExtendLease(lock_at_most_for=HOUR).carry_out(meant)
    )
    assert (status_of(get_provider()).remaining < HOUR, told) == (True, [])


def test_receiver_that_raises_breaks_nothing() -> None:
    """The operator gets the answer though somebody who listens fails."""

    def fail(**kwargs: Any) -> None:
        raise ValueError

    signals.lock_force_released.connect(fail)
    try:
        take()
        assert ReleaseLock().carry_out(asked())
    finally:
        signals.lock_force_released.disconnect(fail)


@pytest.mark.parametrize("kind", ActionKind)
def test_class_of_the_table_is_all_that_an_action_needs(kind: ActionKind) -> None:
    """An action's class defines its permission, its buttons and its audit log label."""
    action = ACTIONS[kind]
    permissions = [
        f"{model._meta.app_label}.{name}"
        for model in (LockRecord, LockAction)
        for name, _ in model._meta.permissions
    ]
    assert (action.kind, action.permission in permissions) == (kind, True)
    assert ACTION_LABELS[kind] == action.label
    assert action.name == f"{kind}_selected"


def stored_callables(action: type[Action]) -> list[str]:
    """Return the attributes of the class that hold a function defined elsewhere."""
    return [
        name
        for each in action.__mro__
        if issubclass(each, Action)
        for name, value in vars(each).items()
        if callable(value) and not is_method(each, name, value)
    ]


def is_method(owner: type, name: str, value: object) -> bool:
    is_pythons = name.startswith("__")  # dataclasses make more with each version
    qualified = getattr(value, "__qualname__", "")
    return is_pythons or qualified == f"{owner.__qualname__}.{name}"


@pytest.mark.parametrize("action", ACTIONS.values())
def test_action_stores_no_callable(action: type[Action]) -> None:
    """What an action does is a method, where "go to definition" ends."""
    assert stored_callables(action) == []
    made = action(HOUR) if action is ExtendLease else action()
    fields = {**vars(made), **vars(Answer(made, asked(), None, None))}
    fields.pop("action")
    assert [name for name, value in fields.items() if callable(value)] == []


def test_stored_callable_is_noticed() -> None:
    """The test above finds a lambda, and a function of another module."""

    class Careless(ReleaseLock):
        is_shown = lambda self, before, after: True  # noqa: E731
        take = take

    assert stored_callables(Careless) == ["is_shown", "take"]
