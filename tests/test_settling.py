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
from tests.support.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.once


class Committing(TransactionTestCase):
    """Stands for a user's; it has no test."""


class RolledBack(TestCase):
    """Stands for a user's; it has no test."""


@pytest.fixture
def unfinished() -> Iterator[threading.Event]:
    """Return what ends a late release that is under way."""
    begun, end = threading.Event(), threading.Event()

    def release() -> None:
        begun.set()
        end.wait(PATIENCE)

    late_releases.add("unfinished", release)
    assert begun.wait(PATIENCE)
    yield end
    end.set()


def wait_in_thread(*, commits: bool) -> threading.Thread:
    thread = threading.Thread(
        target=settling.wait_until_settled, kwargs={"commits": commits}
    )
    thread.start()
    return thread


def test_late_release_of_a_test_that_commits(
    unfinished: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush would come between the release and the row of the history."""
    monkeypatch.setattr(settling, "LONGEST", PATIENCE)
    looked = Mock(wraps=settling._is_busy)
    monkeypatch.setattr(settling, "_is_busy", looked)
    waiting = wait_in_thread(commits=True)
    wait_for(lambda: looked.call_count > 1)  # so the first look found it busy
    assert waiting.is_alive()
    unfinished.set()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_late_release_of_a_test_in_a_transaction(unfinished: threading.Event) -> None:
    """It may wait for that transaction, which ends later."""
    settling.wait_until_settled(commits=False)
    assert "unfinished" in late_releases.entries


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
    """Those of pytest-django by their mark, those of Django by their class."""
    item = SimpleNamespace(cls=case, get_closest_marker=lambda name: mark and mark.mark)
    assert settling.commits(item) is expected  # type: ignore[arg-type]
