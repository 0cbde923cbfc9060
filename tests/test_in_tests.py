"""Jobs in a project's plain tests, which use no helper of ours."""

from __future__ import annotations

import threading
import unittest
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core import mail
from django.core.mail.backends import locmem
from django.db import OperationalError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import SimpleTestCase, TestCase, TransactionTestCase
from django.test.testcases import DatabaseOperationForbidden

from django_shedlock import LockProviderError, execute, hold, scheduler_lock
from django_shedlock.in_tests import are_databases_temporary, is_only_connection
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.testing import force_release
from tests.support.private_connections import noted_opens
from tests.support.statements import says

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.each_store]


@scheduler_lock("fill")
def fill() -> int:
    Group.objects.create(name=f"group {Group.objects.count()}")
    return Group.objects.count()


def run_suite(*cases: type[unittest.TestCase]) -> None:
    """Run the tests of these classes as unittest does."""
    for case in cases:
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
        assert result.testsRun
        assert not result.errors + result.failures, result.errors + result.failures


def rows() -> list[int]:
    return [kind.objects.count() for kind in (Group, LockRecord, LockRun)]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[BaseDatabaseWrapper]:
    """Each private connection that is opened."""
    return noted_opens(monkeypatch)


class Calls:
    """Tests that call a job in each way that a project's test may."""

    def test_call(self: Any) -> None:
        self.assertEqual(fill(), self.groups + 1)
        self.assertEqual(LockRun.objects.filter(name="fill").count(), self.groups + 1)

    def test_call_in_a_transaction(self: Any) -> None:
        with transaction.atomic():
            self.assertEqual(fill(), self.groups + 1)
            self.assertTrue(LockRecord.objects.filter(name="fill").exists())

    def test_transaction_that_is_rolled_back(self: Any) -> None:
        with transaction.atomic():
            fill()
            transaction.set_rollback(True)
        self.assertEqual(Group.objects.count(), self.groups)
        self.assertEqual(fill(), self.groups + 1)

    def test_loss(self: Any) -> None:
        with hold("lost"):
            force_release("lost")
        self.assertEqual(LockRun.objects.get(name="lost").outcome, "lost")


def test_forbidden_database_is_not_read_by_another_connection(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """A look in a test without databases raises Django's own error."""

    class Simple(SimpleTestCase):
        def test_look(self) -> None:
            with pytest.raises(DatabaseOperationForbidden):
                get_provider().now()

    run_suite(Simple)
    assert not opened


def test_plain_test_case_rolls_back_what_a_job_wrote(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """Locks and runs are where the test's rows are, and leave with them."""

    class Tests(Calls, TestCase):
        groups = 0

    class AfterTheClassHasCalled(Calls, TestCase):
        groups = 1

        @classmethod
        def setUpTestData(cls) -> None:
            fill()

    run_suite(Tests, AfterTheClassHasCalled)
    assert rows() == [0, 0, 0]
    assert opened == []


def test_plain_transaction_test_case_is_like_production() -> None:
    """What a job wrote is committed, and only Django's flush deletes it."""

    class Tests(TransactionTestCase):
        def test_call(self) -> None:
            with transaction.atomic():
                self.assertEqual(fill(), 1)
            self.assertFalse(is_only_connection(connection))
            self.assertEqual(rows(), [1, 1, 1])

    run_suite(Tests)
    assert rows() == [0, 0, 0]


@pytest.mark.django_db
def test_loss_is_recorded_by_the_thread_that_notices_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread would neither see the run of a TestCase nor roll it back."""

    def refuse(thread: threading.Thread) -> None:
        pytest.fail("a thread has another connection")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with hold("job") as lock:
        lock.declare_lost()  # type: ignore[attr-defined]
        assert LockRun.objects.get().outcome == "lost"
        record = LockRecord.objects.get()
        assert (record.open_run, record.last_run) == (None, lock.locked_by)


@pytest.mark.django_db
def test_statement_stays_on_a_connection_that_breaks(
    opened: list[BaseDatabaseWrapper],
) -> None:
    """A lock on a fresh connection would be committed, and outlast the test."""

    def break_down(execute: Any, sql: str, params: Any, *rest: Any) -> Any:
        if says(sql, "UPDATE"):
            raise OperationalError("server closed the connection unexpectedly")
        return execute(sql, params, *rest)

    with connection.execute_wrapper(break_down), pytest.raises(LockProviderError):
        execute(list, "job", lock_at_most_for=timedelta(minutes=1))
    assert opened == []
    assert not LockRecord.objects.exists()


@pytest.mark.django_db
def test_connection_of_a_test_case_is_the_only_one() -> None:
    """A test case's connection is the only one, even inside another atomic()."""
    assert is_only_connection(connection)
    with transaction.atomic():
        assert is_only_connection(connection)
    assert not is_only_connection(connection.copy())


def test_databases_of_tests_are_temporary() -> None:
    """Django's own set-up of a run of tests is enough to know them."""
    assert are_databases_temporary()


@pytest.mark.usefixtures("outside_tests")
def test_databases_of_production_stay() -> None:
    """Django's in-memory mail backend and a transaction are no sign of a test."""
    locmem.EmailBackend().send_messages([])
    assert hasattr(mail, "outbox")
    assert not are_databases_temporary()
    with transaction.atomic():
        assert not is_only_connection(connection)
