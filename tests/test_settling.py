"""What a test leaves to the background comes before its tables are emptied."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from django.test import TestCase, TransactionTestCase

from django_shedlock.execution.keep_alive import late_releases
from tests.support import settling
from tests.support.waiting import NEVER_SECONDS, PATIENCE, wait_for

pytestmark = pytest.mark.once


class Committing(TransactionTestCase):
    """Stands for a user's; it has no test."""


class RolledBack(TestCase):
    """Stands for a user's; it has no test."""


@pytest.fixture
def unfinished() -> Iterator[threading.Event]:
    """Yield an event that ends a late release, which is under way."""
    begun, end = threading.Event(), threading.Event()

    def release() -> None:
        begun.set()
        end.wait(PATIENCE)

    late_releases.add("unfinished", release)
    wait_for(begun.is_set)
    yield end
    end.set()


def test_late_release_of_a_test_that_commits(
    unfinished: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush would come between the release and the row of the history."""
    monkeypatch.setattr(settling, "LOOK_LIMIT", 1000 * NEVER_SECONDS)
    looked = Mock(wraps=settling._is_busy)
    monkeypatch.setattr(settling, "_is_busy", looked)
    waiting = threading.Thread(
        target=settling.wait_until_settled, kwargs={"with_late_releases": True}
    )
    waiting.start()
    wait_for(lambda: looked.call_count > 1 or not waiting.is_alive())
    assert waiting.is_alive()
    unfinished.set()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


@pytest.mark.usefixtures("unfinished")
def test_late_release_of_a_test_in_a_transaction() -> None:
    """
    A test in a transaction doesn't wait for a late release.

    The release may wait for that transaction, which ends later.
    """
    assert not settling._is_busy(with_late_releases=False)


@pytest.mark.parametrize(
    ("case", "mark", "expected"),
    [
        (None, pytest.mark.django_db(transaction=True), True),
        (None, pytest.mark.django_db, False),
        (None, None, False),
        (Committing, None, True),
        (RolledBack, None, False),
    ],
)
def test_which_tests_commit(
    case: type | None, mark: pytest.MarkDecorator | None, expected: bool
) -> None:
    """Pytest-django's mark says so, or the class of Django that a test case extends."""
    item = SimpleNamespace(cls=case, get_closest_marker=lambda name: mark and mark.mark)
    assert settling.commits(item) is expected  # type: ignore[arg-type]
