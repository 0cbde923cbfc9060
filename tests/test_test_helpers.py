"""What projects use in their own tests."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import Callable

import pytest
from django.test import SimpleTestCase, TransactionTestCase

from django_shedlock import assert_locked, execute, scheduler_lock
from django_shedlock.providers import get_provider
from django_shedlock.testing import (
    HeldElsewhere,
    aforce_release,
    ais_held,
    force_release,
    held_elsewhere,
    is_held,
    locked_in_memory,
    unlocked,
)

pytestmark = pytest.mark.once
pytest_plugins = ["pytester"]
UNUSED = ("django", "hypothesispytest", "xdist")
"""Plugins that the project does without: together they take a second to load."""


@scheduler_lock("job")
def job() -> str:
    return "ran"


@scheduler_lock("job")
async def ajob() -> str:
    return "ran"


@locked_in_memory()
class HelpersTests(SimpleTestCase):
    """The helpers as class decorators, without a database."""

    def test_held_elsewhere(self) -> None:
        """A job is skipped while another worker holds its lock."""
        with held_elsewhere("job"):
            self.assertIsNone(job())
        self.assertEqual(job(), "ran")

    def test_held_elsewhere_twice(self) -> None:
        """A lock that is held already can't be held elsewhere."""
        with held_elsewhere("job"), self.assertRaisesMessage(AssertionError, "'job'"):
            with held_elsewhere("job"):
                self.fail("unreachable")

    def test_free(self) -> None:
        """A lock that lock_at_least_for keeps can be freed for the next step."""
        execute(job, "kept", lock_at_least_for="5m")
        self.assertTrue(is_held("kept"))
        self.assertTrue(force_release("kept"))
        self.assertFalse(is_held("kept"))


def run_suite(case: type[unittest.TestCase]) -> unittest.TestResult:
    """Run the tests of a class as unittest does, without a fixture of ours."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun
    assert not result.errors + result.failures, result.errors + result.failures
    return result


def test_tests_of_a_class_share_no_locks() -> None:
    """A lock that one test leaves behind is no lock of the next one."""

    @locked_in_memory()
    class Tests(SimpleTestCase):
        def test_first(self) -> None:
            execute(job, "kept", lock_at_least_for="5m")
            self.assertTrue(is_held("kept"))

        test_second = test_third = test_first

        def test_of_no_lock(self) -> None:
            self.assertFalse(is_held("kept"))

    class Inherited(Tests):
        def setUp(self) -> None:
            super().setUp()
            self.assertFalse(is_held("kept"))

    assert run_suite(Tests).testsRun == 4
    assert run_suite(Inherited).testsRun == 4


def test_class_is_in_memory_from_the_beginning() -> None:
    """What is set up for all tests of a class needs no database either."""

    @locked_in_memory()
    class Tests(SimpleTestCase):
        @classmethod
        def setUpClass(cls) -> None:
            super().setUpClass()
            execute(job, "kept", lock_at_least_for="5m")
            assert is_held("kept")

        def test_begins_without_locks(self) -> None:
            self.assertFalse(is_held("kept"))

    run_suite(Tests)


def test_inner_locks_are_not_the_outer_ones() -> None:
    """An inner helper begins without locks, and leaves the outer ones alone."""
    with locked_in_memory():
        with held_elsewhere("job"):
            with locked_in_memory():
                assert job() == "ran"
            assert job() is None
        assert job() == "ran"


def test_lock_is_released_where_it_was_acquired() -> None:
    """A lock is released in its own store, even if the settings change meanwhile."""
    with locked_in_memory():
        elsewhere = held_elsewhere("job")
        elsewhere.__enter__()
        provider = get_provider()
        with locked_in_memory():
            elsewhere.__exit__(None, None, None)
        assert get_provider() is provider
        assert job() == "ran"


@held_elsewhere("job")
def try_job() -> str | None:
    return job()


@held_elsewhere("job")
async def atry_job() -> str | None:
    return await ajob()


@locked_in_memory()
def test_held_elsewhere_decorates_functions() -> None:
    """The lock is held during each call, and only then."""
    assert [try_job(), try_job(), job()] == [None, None, "ran"]
    assert asyncio.run(atry_job()) is None
    assert asyncio.run(atry_job()) is None
    assert job() == "ran"


def test_held_elsewhere_decorates_classes() -> None:
    """The lock is held during each test of a class."""

    @locked_in_memory()
    @held_elsewhere("job")
    class Tests(SimpleTestCase):
        def test_sync(self) -> None:
            self.assertIsNone(job())

        async def test_async(self) -> None:
            self.assertIsNone(await ajob())

    assert run_suite(Tests).testsRun == 2


class AsyncTests(SimpleTestCase):
    """The helpers in async tests, without a database."""

    @locked_in_memory()
    async def test_in_memory(self) -> None:
        """Locks work as anywhere, and the lock elsewhere is held by another worker."""
        async with held_elsewhere("job"):
            self.assertIsNone(await ajob())
            self.assertTrue(await ais_held("job"))
            self.assertTrue(await aforce_release("job"))
        with held_elsewhere("job"):
            self.assertIsNone(await ajob())
        self.assertEqual(await ajob(), "ran")

    @unlocked()
    async def test_unlocked(self) -> None:
        """The job runs, and believes that it is locked."""
        assert_locked()
        self.assertEqual(await ajob(), "ran")


@unlocked()
class UnlockedTests(SimpleTestCase):
    """Without locks, no store is asked."""

    def test_unlocked(self) -> None:
        """The job runs, and believes that it is locked."""
        assert_locked()
        self.assertEqual(job(), "ran")


def test_fixtures(pytester: pytest.Pytester) -> None:
    """A project that names the module gets the helpers as fixtures."""
    pytester.makeconftest(
        "from django.conf import settings\n"
        "pytest_plugins = ['django_shedlock.testing.fixtures']\n"
        "def pytest_configure():\n"
        "    settings.configure(INSTALLED_APPS=['django_shedlock'])\n"
    )
    pytester.makepyfile(
        """
        from django_shedlock import assert_locked, scheduler_lock

        @scheduler_lock("job")
        def job():
            return "ran"

        def test_unlocked(shedlock_unlocked):
            assert_locked()
            assert job() == "ran"

        def test_in_memory(shedlock_in_memory, shedlock_held_elsewhere):
            with shedlock_held_elsewhere("job"):
                assert job() is None
            assert job() == "ran"
        """
    )
    without = (f"-pno:{plugin}" for plugin in UNUSED)
    result = pytester.runpytest_subprocess(*without)
    result.assert_outcomes(passed=2)


@pytest.mark.usefixtures("shedlock_in_memory")
def test_in_memory_fixture_needs_no_database() -> None:
    """A test without a database has its locks in memory."""
    with held_elsewhere("job"):
        assert job() is None


class DatabaseTests(TransactionTestCase):
    """The helpers in async tests of the database's locks."""

    async def test_held_elsewhere(self) -> None:
        """Entering and leaving asks the database outside the event loop."""
        async with held_elsewhere("job"):
            self.assertTrue(await ais_held("job"))
            self.assertIsNone(await ajob())
        self.assertFalse(await ais_held("job"))

    @held_elsewhere("job")
    async def test_decorator(self) -> None:
        """A decorated coroutine function does so, too."""
        self.assertIsNone(await ajob())
        self.assertTrue(await aforce_release("job"))
        self.assertEqual(await ajob(), "ran")

    async def test_in_memory(self) -> None:
        """Locks held in the database don't count when locks are in memory."""
        async with held_elsewhere("job"):
            with locked_in_memory():
                self.assertEqual(await ajob(), "ran")


@pytest.mark.usefixtures("shedlock_in_memory")
def test_fixture_in_an_async_test(
    shedlock_held_elsewhere: Callable[[str], HeldElsewhere],
) -> None:
    """The fixtures are for coroutines, too."""

    async def body() -> list[str | None]:
        async with shedlock_held_elsewhere("job"):
            skipped = await ajob()
        return [skipped, await ajob()]

    assert asyncio.run(body()) == [None, "ran"]
