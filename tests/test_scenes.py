"""The scenes that tests and screenshots show could have happened."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from tests.support.believable import contradictions
from tests.support.scenes import (
    NEXT,
    QUIET_RUNNING,
    bad_morning,
    every_kind,
    incident,
    quiet,
)

pytestmark = [pytest.mark.django_db, pytest.mark.once]


OF_STORES = {Kind.UNREACHABLE, Kind.SILENT, Kind.CLOCK, Kind.MORE}


@pytest.mark.parametrize("scene", [bad_morning, incident, quiet])
def test_scene_could_have_happened(scene: Callable[[], None]) -> None:
    """Runs begin at ticks and do not overlap, and nothing lies in the future."""
    scene()
    assert list(contradictions(LockRecord.objects.all())) == []


def test_every_kind_of_finding_in_a_lock_is_found() -> None:
    """Only a record that can't be read is missing: the database refuses it."""
    every_kind()
    found = Search().attention(get_provider())
    kinds = {each.kind for findings in found.findings.values() for each in findings}
    assert kinds == set(Kind) - OF_STORES - {Kind.UNREADABLE}


def test_nothing_is_wrong_on_the_quiet_day() -> None:
    """The search finds nothing in 299 locks, nor in their store."""
    quiet()
    found = Search().attention(get_provider())
    assert (found.findings, found.of_store) == ({}, [])
    assert LockRecord.objects.count() == 299


def test_quiet_day_has_a_history() -> None:
    """About twenty jobs have run all day, and two run now."""
    quiet()
    names = LockRun.objects.values_list("name", flat=True).distinct()
    runs = [LockRun.objects.filter(name=name).count() for name in names]
    assert sum(count > 2 for count in runs) > 10
    statuses = list(get_provider().statuses())
    running = {each.name for each in statuses if each.state is LockState.RUNNING}
    assert running == set(QUIET_RUNNING)


def test_one_job_comes_next_on_the_quiet_day() -> None:
    """Of the jobs that share the next tick, its name is the first."""
    quiet()
    statuses = list(get_provider().statuses())
    coming = [(each.next_tick, each.name) for each in statuses if each.next_tick]
    assert min(coming)[1] == NEXT
