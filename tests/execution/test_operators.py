"""What an operator does to a lock of another worker, by the functions of the core."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from django_shedlock import signals
from django_shedlock.console.models import LockAction
from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.execution.operators import (
    OperatorAction,
    force_extend,
    force_release,
    reason_of_refusal,
    released_text,
)
from django_shedlock.models import LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.testing import is_held
from tests.support.locks import take

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def action(locked_by: str | None = None) -> OperatorAction:
    return OperatorAction(get_provider(), "job", locked_by, "ada", "its host is gone")


@pytest.fixture
def sent() -> Iterator[list[dict[str, Any]]]:
    """Collect what the two signals have."""
    found: list[dict[str, Any]] = []

    def hear(**kwargs: Any) -> None:
        found.append(kwargs)

    signals.lock_force_released.connect(hear)
    signals.lock_force_extended.connect(hear)
    yield found
    signals.lock_force_released.disconnect(hear)
    signals.lock_force_extended.disconnect(hear)


def test_release_is_done_and_reported_once(sent: list[dict[str, Any]]) -> None:
    """A held lock is released; there is one signal, one run and one audit row."""
    lock = take("job")
    assert force_release(action())
    assert not force_release(action())
    assert not is_held("job")
    [signal] = sent
    assert signal["action"].locked_by == lock.locked_by
    assert signal["before"].locked_by == lock.locked_by
    assert LockRun.objects.get().outcome == "abandoned"
    row = LockAction.objects.get()
    assert (row.kind, row.result, row.operator) == ("release", "done", "ada")
    assert (row.locked_by, row.reason) == (lock.locked_by, "its host is gone")


def test_extension_is_done_and_reported_once(sent: list[dict[str, Any]]) -> None:
    """A held lock is extended; there is one signal and one audit row."""
    lock = take("job")
    assert force_extend(action(), HOUR)
    assert lock.refresh()
    assert lock.remaining() > HOUR / 2
    [signal] = sent
    assert signal["lock_at_most_for"] == HOUR
    row = LockAction.objects.get()
    assert (row.kind, row.result) == ("extend", "done")


@pytest.mark.parametrize("locked_by", ["somebody else", ""])
def test_action_is_for_one_acquisition(
    sent: list[dict[str, Any]], locked_by: str
) -> None:
    """An action that names another acquisition changes nothing."""
    take("job")
    assert not force_release(action(locked_by))
    assert not force_extend(action(locked_by), HOUR)
    assert is_held("job")
    assert sent == []
    assert not LockAction.objects.exists()


def test_lease_of_no_length_is_refused() -> None:
    """An extension to nothing would be a release."""
    take("job")
    with pytest.raises(InvalidLockConfiguration):
        force_extend(action(), timedelta(0))
    assert is_held("job")


def test_free_and_unknown_locks_are_left_alone(sent: list[dict[str, Any]]) -> None:
    """There is nothing to release or to extend."""
    assert not force_release(action())
    assert not force_extend(action(), HOUR)
    take("job").release()
    assert not force_release(action())
    assert not force_extend(action(), HOUR)
    assert sent == []


def test_refusal_names_what_was_given() -> None:
    """An identity may be mistyped, so nothing is said of an acquisition since."""
    lock = take("job")
    status = get_provider().status("job")
    running = f"its job is running as {lock.locked_by}"
    assert reason_of_refusal(lock.locked_by, status) == running
    assert reason_of_refusal(None, status) == running
    assert reason_of_refusal("foo", status) == f"'foo' does not hold it; {running}"
    # The page of the admin showed a lock that nobody had ever held.
    since = f"somebody has acquired it since you looked; {running}"
    assert reason_of_refusal("", status) == since
    assert reason_of_refusal("foo", None) == "it has no record"


def test_release_of_what_may_run_says_what_starts_beside_it() -> None:
    """Only a lock whose job may still run is released with that warning."""
    lock = take("job")
    held = get_provider().status("job")
    assert held is not None
    warning = "If it still runs, the next start, or a catch-up, runs the job beside it."
    assert released_text(held).endswith(f"Its job was not stopped. {warning}")
    lock.release()
    free = get_provider().status("job")
    assert free is not None
    assert warning not in released_text(free)


def fail(*, is_done: bool) -> Any:
    """Let the reply of the store be lost, after it was done or before."""
    replace = DatabaseLockProvider.replace

    def lose(provider: Any, *args: Any, **options: Any) -> bool:
        if is_done:
            replace(provider, *args, **options)
        error = LockProviderError("the reply was lost")
        error.is_uncertain = True
        raise error

    return patch.object(DatabaseLockProvider, "replace", lose)


def test_lost_reply_of_what_was_done_is_no_failure(sent: list[dict[str, Any]]) -> None:
    """The record shows that it was done, so that is reported as always."""
    take("job")
    with fail(is_done=True):
        assert force_extend(action(), HOUR)
        assert force_release(action())
    assert not is_held("job")
    assert len(sent) == 2


def test_lost_reply_of_what_was_not_done_is_raised(sent: list[dict[str, Any]]) -> None:
    """The record shows that it was not done, so the caller gets the error."""
    take("job")
    with fail(is_done=False):
        with pytest.raises(LockProviderError, match="reply was lost"):
            force_extend(action(), HOUR)
        with pytest.raises(LockProviderError, match="reply was lost"):
            force_release(action())
    assert is_held("job")
    assert sent == []
