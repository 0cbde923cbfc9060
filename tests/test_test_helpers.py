"""What projects use in their own tests."""

from __future__ import annotations

import pytest
from django.test import SimpleTestCase

from django_shedlock import assert_locked, execute, scheduler_lock
from django_shedlock.test import (
    free,
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
        self.assertTrue(free("kept"))
        self.assertFalse(is_held("kept"))


@unlocked()
class UnlockedTests(SimpleTestCase):
    """Without locks, no store is asked."""

    def test_unlocked(self) -> None:
        """The job runs, and believes that it is locked."""
        assert_locked()
        self.assertEqual(job(), "ran")


def test_fixtures(pytester: pytest.Pytester) -> None:
    """The plugin offers the helpers as fixtures, in a project of its own."""
    pytester.makeconftest(
        "from django.conf import settings\n"
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
