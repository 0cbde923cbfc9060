"""The words of the admin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import unescape
from types import SimpleNamespace

import pytest
from django.utils.html import strip_tags

from django_shedlock.admin import OUTCOME_LABELS, STATE_LABELS, TRIGGER_LABELS
from django_shedlock.console.admin.labels import (
    EMPTY_CELL,
    FINDING_LABELS,
    holder,
    instant,
    length,
    lock_name,
    outcome_badge,
    started_by,
    state_badge,
    with_instant,
)
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.locks.status import LockState, RunOutcome
from django_shedlock.schedules.state import Trigger

MOMENT = datetime(2026, 3, 2, 15, 0, 1, tzinfo=UTC)


def test_every_value_has_a_label() -> None:
    """No state, outcome or trigger is shown by its bare value, each in its order."""
    assert list(STATE_LABELS) == list(LockState)
    assert list(OUTCOME_LABELS) == list(RunOutcome)
    assert list(TRIGGER_LABELS) == list(Trigger)
    assert 'class="shedlock-badge shedlock-held-at-least">held at least<' in (
        state_badge(LockState.HELD_AT_LEAST)
    )
    assert "shedlock-lost" in outcome_badge(RunOutcome.LOST)


def test_length() -> None:
    """A run that has not ended has no duration."""
    assert length(timedelta(seconds=1.26)) == "1.3s"
    assert length(None) == EMPTY_CELL


def test_instants_are_in_the_users_zone() -> None:
    """An instant has its zone, as in findings; a recent one is shown by its time."""
    assert '<bdi dir="ltr">2026-03-02</bdi>' in instant(MOMENT)
    assert 'dir="ltr">09:00:01-06:00</bdi>' in instant(MOMENT)
    assert instant(None) == EMPTY_CELL
    assert ">09:00-06:00<" in with_instant("", MOMENT, timedelta(hours=3))
    assert ">2026-03-02<" in with_instant("", MOMENT, timedelta(days=3))


def test_holder_without_a_process() -> None:
    """A holder of another form is shown as it is."""
    assert "<bdi>java</bdi>" in holder("java", "java", None)
    assert "(" not in holder("java", "java", None)


def test_every_finding_of_a_lock_has_a_label() -> None:
    """The labels are in the order of urgency; the others concern no lock."""
    of_the_store = {Kind.UNREACHABLE, Kind.SILENT, Kind.CLOCK, Kind.MORE}
    assert list(FINDING_LABELS) == [kind for kind in Kind if kind not in of_the_store]
    bad = [outcome for outcome in RunOutcome if outcome.is_bad]
    assert bad == [kind for kind in Kind if kind in bad]


def test_long_name_may_be_broken_at_its_points() -> None:
    """A name may be broken at its points, and stays the same text."""
    name = 'cron:shop.jobs.nightly("eu")'
    shown = lock_name(name)
    assert "cron:shop.<wbr>jobs.<wbr>nightly(" in shown
    assert unescape(strip_tags(shown)) == name


@pytest.mark.parametrize(
    ("trigger", "operator", "shown"),
    [
        ("", "", '<span class="shedlock-nothing">-</span>'),
        ("scheduler", "", '<span class="shedlock-quiet">scheduler</span>'),
        ("retry", "", "retry <bdi></bdi>"),
        ("catch-up", "bob", "catch-up <bdi>bob</bdi>"),
        ("operator", "<b>", "operator <bdi>&lt;b&gt;</bdi>"),
        ("martian", "", "martian <bdi></bdi>"),
    ],
)
def test_what_started_a_run(trigger: str, operator: str, shown: str) -> None:
    """The cause of a run is shown, and the person; the usual one is quiet."""
    run = SimpleNamespace(trigger=trigger, operator=operator)
    assert started_by(run) == shown
