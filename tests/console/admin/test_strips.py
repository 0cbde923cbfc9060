"""Strips: the last 24 hours of a lock, or of a host, as marks and in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_shedlock.console.admin.addresses import Addresses
from django_shedlock.console.admin.charts import Mark
from django_shedlock.console.admin.days import Day, HostStarts, Span
from django_shedlock.console.admin.strips import (
    SHORTEST_LISTED_GAP,
    SHOWN_HOST_LIMIT,
    Strip,
    host_strips,
    in_lanes,
    joined,
)
from django_shedlock.console.admin.timeline import legend
from django_shedlock.console.monitoring.evidence import PausedTime
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.pauses import Pause
from django_shedlock.locks.status import JobState, LockState, LockStatus
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState
from tests.support.lateness import HOURLY

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def lock(
    state: LockState = LockState.FREE,
    *,
    locked_by: str = "web-2:8:b",
    locked_at: datetime = NOON - HOUR,
    schedule: Schedule | None = None,
    tick: datetime | None = None,
    **job: Any,
) -> LockStatus:
    return LockStatus(
        name="billing",
        state=state,
        locked_by=locked_by,
        locked_at=locked_at,
        lock_until=NOON + MINUTE,
        remaining=MINUTE if state.is_held else ZERO,
        clock=NOON,
        schedule_state=ScheduleState(schedule, tick),
        job=JobState(**job),
    )


def run(
    hours_ago: float,
    outcome: str = "succeeded",
    *,
    took: timedelta = MINUTE,
    **columns: Any,
) -> Span:
    """Return a single run that began so long before noon."""
    began = NOON - hours_ago * HOUR
    return Span(outcome, began, began + took, **{"key": 7, "host": "web-1", **columns})


def hour_of_runs(hours_ago: float, outcome: str = "succeeded", runs: int = 12) -> Span:
    """Return runs every five minutes, as the database counts them."""
    began = NOON - hours_ago * HOUR
    return Span(outcome, began, began + 56 * MINUTE, runs)


def strip(
    runs: Sequence[Span],
    status: LockStatus | None = None,
    *,
    pauses: Sequence[PausedTime] = (),
    grace: timedelta = ZERO,
    **options: Any,
) -> Strip:
    day = Day(NOON, grace, {"billing": list(runs)}, {"billing": list(pauses)})
    return Strip(status or lock(), day, **options)


def marks(drawn: Strip, kind: str = "strip") -> list[Mark]:
    return list(drawn.chart(kind).marks)


def kinds(drawn: Strip) -> list[str]:
    return [mark.kind for mark in marks(drawn)]


def test_run_stands_where_it_began() -> None:
    """Noon is at the right edge, and a run of six hours takes a quarter."""
    [mark] = marks(strip([run(12, took=6 * HOUR)]))
    assert (mark.left, mark.width) == (50, 25)
    assert mark.title == "18:00: succeeded after 6h on web-1"


def test_short_run_can_be_seen() -> None:
    """A run of no time has a mark, and that of the last one is within the chart."""
    first, last = marks(strip([run(12, took=ZERO), run(0, took=ZERO)]))
    assert first.width == last.width > 0.5
    assert last.left + last.width == 100


def test_bad_run_is_higher_and_is_drawn_last() -> None:
    """A bad run is higher than a good one, and nothing covers it."""
    failed, good = run(3, "failed"), run(2)
    drawn = marks(strip([failed, good]))
    assert [mark.kind for mark in drawn] == ["succeeded", "failed"]
    assert drawn[0].height < drawn[1].height == 100


def test_outcome_of_a_later_version_counts_as_bad() -> None:
    """An outcome of a later version counts as bad."""
    [mark] = marks(strip([run(3, "sulked")]))
    assert (mark.kind, mark.height) == ("sulked", 100)


def test_adjacent_hours_are_one_mark() -> None:
    """A job that runs all the time has a calm line, and one title."""
    [mark] = marks(strip([hour_of_runs(3), hour_of_runs(2), hour_of_runs(1)]))
    assert mark.title == "03:00-05:56: 36 runs, succeeded"


def test_hours_apart_are_not_joined() -> None:
    """Runs with other outcomes, and single runs, are not joined either."""
    failed = hour_of_runs(2, "failed", 3)
    assert joined([hour_of_runs(3), failed, hour_of_runs(1)]) == [
        hour_of_runs(3),
        failed,
        hour_of_runs(1),
    ]
    assert len(joined([run(1.1), run(1)])) == 2


def test_runs_at_the_same_time_have_lanes() -> None:
    """Runs at the same time stand one above the other, so an overlap can be seen."""
    lost, other = run(3, "lost", took=HOUR), run(2.5, took=HOUR)
    later = run(1, took=HOUR)
    assert in_lanes([lost, other, later]) == [(lost, 0), (other, 1), (later, 0)]
    drawn = {mark.title[:5]: mark for mark in marks(strip([lost, other, later]))}
    low, high = drawn["03:00"], drawn["03:30"]
    assert high.top + high.height <= low.top
    assert low.left < high.left < low.left + low.width


def test_run_that_goes_on_beside_a_lost_one_has_its_own_lane() -> None:
    """The blue box of the run that has the lock now hides no run beside it."""
    lost = run(3, "lost", took=2 * HOUR)
    drawn = marks(strip([lost], lock(LockState.RUNNING, locked_at=NOON - 2 * HOUR)))
    assert [mark.kind for mark in drawn] == ["running", "lost"]
    running, low = drawn
    assert running.top + running.height <= low.top


def test_failure_just_before_the_open_run_is_not_covered() -> None:
    """Of two marks that are too short to stand side by side, the bad one is on top."""
    failed = hour_of_runs(0.95, "failed", 2)
    drawn = marks(strip([failed], lock(LockState.RUNNING, locked_at=NOON - SECOND)))
    assert [mark.kind for mark in drawn] == ["running", "failed"]


def test_one_run_after_the_other_has_no_lanes() -> None:
    """A run that begins as another one ends is beside it."""
    spans = [run(3, took=HOUR), run(2, took=HOUR)]
    assert [lane for _, lane in in_lanes(spans)] == [0, 0]


def test_counted_runs_have_no_lanes() -> None:
    """Counted runs stay in one lane: nobody knows which of them overlapped."""
    spans = [hour_of_runs(3), hour_of_runs(3, "failed")]
    assert [lane for _, lane in in_lanes(spans)] == [0, 0]


def test_marks_lead_to_runs() -> None:
    """
    The mark of one run links to its page, and that of several runs to their list.

    Only the marks of bad runs are tab stops.
    """
    addresses = Addresses("admin", "default")
    runs = [run(5, "failed"), hour_of_runs(2)]
    good, bad = marks(strip(runs, addresses=addresses))
    list_of_day = "/lockrun/?name__exact=billing&outcome=succeeded&day=2026-03-02"
    assert good.page.endswith(list_of_day)
    assert bad.page.endswith("/lockrun/7/change/")
    assert [good.is_tab_stop, bad.is_tab_stop] == [False, True]
    assert {mark.page for mark in marks(strip(runs))} == {""}
    two_days = Span("sulked", NOON - 9 * HOUR, NOON, 12)
    [unknown] = marks(strip([two_days], addresses=addresses))
    assert unknown.page.endswith("/lockrun/?name__exact=billing")


def test_running_job_reaches_the_right_edge() -> None:
    """A job that hangs is a long mark up to now."""
    hung = strip([run(8)], lock(LockState.RUNNING, locked_at=NOON - 6 * HOUR))
    mark = marks(hung)[-1]
    assert (mark.kind, mark.left, mark.width) == ("running", 75, 25)
    assert mark.title.startswith("running since 2026-03-02 00:00:00")


def test_run_that_began_before_the_day_fills_it() -> None:
    """The mark of a run that began before the day begins at the left edge."""
    [mark] = marks(strip([], lock(LockState.RUNNING, locked_at=NOON - 60 * HOUR)))
    assert (mark.left, mark.width) == (0, 100)


def test_expired_lock_of_shedlock_has_no_mark() -> None:
    """An expired lock has a mark only if the open run is this library's."""
    assert kinds(strip([], lock(LockState.EXPIRED, open_run="web-2:8:b"))) == [
        "expired"
    ]
    assert kinds(strip([], lock(LockState.EXPIRED, open_run="web-1:1:a"))) == []


def test_last_run_that_the_history_lacks_is_drawn() -> None:
    """The last run is drawn from the record if the history lacks it."""
    last: dict[str, Any] = {
        "outcome": "succeeded",
        "last_run": "web-1:1:a",
        "started_at": NOON - 2 * HOUR,
        "ended_at": NOON - HOUR,
    }
    assert len(marks(strip([], lock(**last)))) == 1
    assert len(marks(strip([run(5)], lock(**last)))) == 2
    assert len(marks(strip([run(2, took=HOUR)], lock(**last)))) == 1
    assert marks(strip([], lock(**{**last, "ended_at": NOON - 25 * HOUR}))) == []


def test_ticks_between_runs_are_a_gap() -> None:
    """The gap reaches from the first tick that was missed to the next run."""
    runs = [run(6), run(2)]
    status = lock(schedule=HOURLY, tick=NOON)
    [gap] = [
        mark
        for mark in marks(strip(runs, status, grace=2 * HOUR))
        if mark.kind == "missed"
    ]
    assert gap.left == pytest.approx(100 * 19 / 24)
    assert gap.left + gap.width == pytest.approx(100 * 22 / 24)
    assert gap.title.startswith("3 ticks without a run after 2026-03-02 00:0")


def test_ticks_since_the_last_run_are_a_gap() -> None:
    """A dead scheduler can be seen at the right edge, but not within the grace."""
    status = lock(schedule=HOURLY, tick=NOON - 3 * HOUR)
    dead = strip([run(3)], status)
    assert kinds(dead) == ["succeeded", "missed"]
    assert marks(dead)[-1].left + marks(dead)[-1].width == 100
    assert kinds(strip([run(3)], status, grace=3 * HOUR)) == ["succeeded"]


@pytest.mark.parametrize("early", [ZERO, 30 * SECOND, -50 * MINUTE])
def test_runs_on_time_have_no_gap(early: timedelta) -> None:
    """Late starts, and those shortly before their tick, belong to that tick."""
    runs = [run(hours + early / HOUR, took=SECOND) for hours in range(5, 0, -1)]
    status = lock(schedule=HOURLY, tick=NOON - HOUR)
    assert "missed" not in kinds(strip(runs, status, grace=HOUR / 2))


def test_long_run_misses_no_tick() -> None:
    """The ticks that a long run skipped are no gap."""
    long, tick = run(9, took=5.5 * HOUR), NOON - HOUR
    runs = [long, run(3), run(2), run(1)]
    assert "missed" not in kinds(
        strip(runs, lock(schedule=HOURLY, tick=tick), grace=MINUTE)
    )


def test_tick_that_a_run_ended_just_before_is_not_its_own() -> None:
    """The next tick is missed, though the run ended half a minute before it."""
    long = run(3, took=59.5 * MINUTE)
    status = lock(schedule=HOURLY, tick=NOON - HOUR)
    drawn = strip([long, run(1)], status, grace=2 * HOUR)
    [gap] = [mark for mark in marks(drawn) if mark.kind == "missed"]
    assert gap.title.startswith("1 tick without a run")


def test_ticks_that_began_without_a_row_are_no_gap() -> None:
    """Ticks that began are no gap, even if the history has no row of them."""
    fresh = lock(schedule=HOURLY, tick=NOON - HOUR)
    assert kinds(strip([run(9)], fresh, grace=HOUR / 2)) == ["succeeded"]


def test_day_without_a_run_is_a_gap() -> None:
    """The newest tick that began was before it, so all of the day was missed."""
    status = lock(schedule=HOURLY, tick=NOON - 30 * HOUR)
    assert kinds(strip([], status)) == ["missed"]


def test_new_schedule_owes_only_its_own_ticks() -> None:
    """What was before the first run, or before the registration, is not known."""
    first = lock(schedule=HOURLY, tick=NOON - 2 * HOUR)
    assert kinds(strip([run(2)], first, grace=2 * HOUR)) == ["succeeded"]
    [gap] = marks(strip([], first))
    assert (gap.kind, gap.title[:6]) == ("missed", "1 tick")


def test_without_a_schedule_nothing_is_missed() -> None:
    """The strip of a lock without a schedule shows only runs."""
    assert kinds(strip([run(20), run(1)])) == ["succeeded", "succeeded"]


def test_paused_job_misses_no_tick() -> None:
    """A pause is drawn, whether it goes on, was ended, or has ended by itself."""
    status = lock(schedule=HOURLY, tick=NOON)
    runs = [run(9), run(4), run(3), run(2), run(1)]
    ended = PausedTime(NOON - 9 * HOUR + 2 * MINUTE, NOON - 4.5 * HOUR)
    drawn = strip(runs, status, pauses=[ended], grace=MINUTE)
    assert kinds(drawn)[0] == "paused"
    assert drawn.summary == "5 succeeded, was paused"
    assert "missed" not in kinds(drawn)
    no_end = PausedTime(ended.began, None)
    assert strip(runs, status, pauses=[no_end]).pauses == [
        (ended.began, NOON - 4 * HOUR)
    ]


def test_pause_that_ended_by_itself_hides_no_gap() -> None:
    """A dead scheduler is seen after the pause, though no run has begun since."""
    status = lock(schedule=HOURLY, tick=NOON - 8 * HOUR)
    hour = PausedTime(NOON - 7.5 * HOUR, NOON - 6.5 * HOUR)
    drawn = strip([run(8)], status, pauses=[hour])
    assert drawn.pauses == [(hour.began, hour.ended)]
    assert kinds(drawn) == ["paused", "succeeded", "missed"]


def test_replaced_pause_is_drawn_until_the_next_one() -> None:
    """The record knows only the newest pause, the audit log the one before."""
    identity = Pause("maria", "the template").identity()
    began = NOON - 2 * HOUR
    status = lock(
        LockState.PAUSED, locked_by=identity, locked_at=began, schedule=HOURLY
    )
    known = [PausedTime(NOON - 5 * HOUR, None), PausedTime(began + SECOND, None)]
    assert strip([], status, pauses=known).pauses == [
        (NOON - 5 * HOUR, began),
        (began, NOON),
    ]


def test_pause_that_goes_on_reaches_the_right_edge() -> None:
    """A pause that goes on is known by the record, and counts once."""
    began = NOON - 30 * HOUR
    identity = Pause("maria", "the template").identity()
    status = lock(LockState.PAUSED, locked_by=identity, locked_at=began)
    [mark] = marks(strip([], status))
    assert (mark.kind, mark.left, mark.width) == ("paused", 0, 100)
    assert strip([], status).summary == "no run, paused"


def test_list_looks_for_no_gap_that_is_too_small_to_see() -> None:
    """The list skips a gap too small to see, but not one that reaches up to now."""
    every_minute = Schedule("* * * * *", "UTC")
    runs = [hour_of_runs(3, runs=57), hour_of_runs(2, runs=57)]
    status = lock(schedule=every_minute, tick=NOON - HOUR)
    assert kinds(strip(runs, status)).count("missed") == 2
    small = strip(runs, status, shortest_gap=SHORTEST_LISTED_GAP)
    assert kinds(small).count("missed") == 1


def test_strip_is_told_in_words() -> None:
    """A screen reader says all that is drawn."""
    status = lock(LockState.RUNNING, schedule=HOURLY, tick=NOON - HOUR)
    drawn = strip([hour_of_runs(9), run(4, "failed")], status)
    told = "1 failed, 12 succeeded, 2 gaps without a run, running"
    assert drawn.summary == told
    assert drawn.chart().title == f"Last 24 hours: {told}"
    assert strip([]).summary == "no run"
    assert strip([run(4, "sulked"), run(3)]).summary == "1 sulked, 1 succeeded"


def test_only_the_timeline_has_lines() -> None:
    """Each sixth hour of the reader's day has one; the axis has their names."""
    drawn = strip([run(1)])
    assert drawn.chart().columns == []
    # The tests' time zone is Chicago's, six hours behind.
    assert [line.text for line in drawn.day.hours()] == [
        "12:00",
        "18:00",
        "00:00",
        "06:00",
    ]
    assert [line.place for line in drawn.chart("timeline").columns] == [25, 50, 75, 100]
    assert {line.text for line in drawn.chart("timeline").columns} == {""}


def test_hosts_are_sorted_by_their_last_start() -> None:
    """A host that is dead comes last, and says when it started a run."""
    day = Day(NOON, ZERO)
    early = HostStarts(NOON - 9 * HOUR, NOON - 8.05 * HOUR, 12)
    late = HostStarts(NOON - 2 * HOUR, NOON - 1.5 * HOUR, 12)
    day.hosts.update({"web-3": [early], "web-1": [early, late]})
    found = host_strips(day, [lock(LockState.RUNNING, locked_at=NOON - MINUTE)])
    assert [each.host for each in found] == ["web-2", "web-1", "web-3"]
    assert found[2].last_text == "last start 8h3m ago"
    assert found[2].chart().title == "Last 24 hours: last start 8h3m ago"
    assert [mark.kind for mark in found[1].chart().marks] == ["host", "host"]
    assert found[1].chart().marks[0].title.startswith("12 runs began between 2026-")
    assert SHOWN_HOST_LIMIT > 3
    hung = lock(LockState.RUNNING, locked_at=NOON - 30 * HOUR)
    assert host_strips(Day(NOON, ZERO), [hung]) == []


def test_legend_has_each_mark() -> None:
    """The legend explains each shape."""
    texts = [sample.text for sample in legend()]
    assert texts == [
        "succeeded",
        "failed",
        "timed out",
        "lost",
        "abandoned",
        "running",
        "expired",
        "paused",
        "ticks without a run",
    ]
