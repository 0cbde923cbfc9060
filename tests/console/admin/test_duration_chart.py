"""The chart of a lock's last runs, and their statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_shedlock.console.admin.addresses import Addresses
from django_shedlock.console.admin.charts import Mark
from django_shedlock.console.admin.duration_chart import (
    CHART_SLOT_COUNT,
    GAP_TICK_LIMIT,
    MISSED,
    DurationChart,
    duration_chart,
    statistics_of,
)
from django_shedlock.locks.configuration import ZERO
from django_shedlock.locks.status import JobState, LockState, LockStatus
from django_shedlock.models import LockRun
from django_shedlock.schedules.cron import Schedule
from django_shedlock.schedules.state import ScheduleState
from tests.support.lateness import HOURLY

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def run(
    seconds: float | None,
    outcome: str = "succeeded",
    *,
    started: datetime | None = NOON,
    trigger: str = "scheduler",
) -> LockRun:
    return LockRun(
        pk=1,
        locked_by="web-1:7:a",
        duration=None if seconds is None else timedelta(seconds=seconds),
        outcome=outcome,
        started=started,
        ended=NOON,
        trigger=trigger,
    )


def lock(
    state: LockState = LockState.FREE,
    *,
    clock: datetime = NOON,
    locked_at: datetime = NOON,
    schedule: Schedule | None = None,
    **job: Any,
) -> LockStatus:
    """Return a lock whose lease ends in a minute, if it is held."""
    return LockStatus(
        "billing",
        state,
        "web-2:8:b",
        locked_at,
        clock + MINUTE,
        MINUTE if state.is_held else ZERO,
        clock,
        ScheduleState(schedule),
        job=JobState(**job),
    )


def chart_of(
    runs: Sequence[LockRun], status: LockStatus | None = None
) -> DurationChart:
    addresses = Addresses("admin", "default")
    return duration_chart(runs, status or lock(), ZERO, addresses)


def chart_until(end: datetime, runs: Sequence[LockRun]) -> DurationChart:
    """Return the chart of an hourly job, whose runs are looked for until then."""
    return chart_of(runs, lock(clock=end, schedule=HOURLY))


def runs_at(*hours: float) -> list[LockRun]:
    """Return runs that started at these hours of the day, the newest first."""
    midnight = NOON - 12 * HOUR
    return [run(1, started=midnight + hour * HOUR) for hour in reversed(hours)]


def labels(chart: DurationChart) -> list[str]:
    """Return the gaps by their ticks, and a bar for each run, the oldest first."""
    return [mark.note if mark.kind == MISSED else "bar" for mark in chart.chart.marks]


def bars(chart: DurationChart) -> list[Mark]:
    return [mark for mark in chart.chart.marks if mark.kind != MISSED]


def gaps(chart: DurationChart) -> list[str]:
    return [mark.title for mark in chart.chart.marks if mark.kind == MISSED]


def usual_place(chart: DurationChart) -> float | None:
    """Return where the line of the usual duration is, in percent from the top."""
    places = [line.place for line in chart.chart.levels if line.kind == "usual"]
    return places[0] if places else None


def test_bars_are_as_high_as_the_runs_took_long() -> None:
    """The longest run fills the height, and the newest stands at the right edge."""
    chart = chart_of([run(10), run(20, "failed"), run(5)])
    assert [bar.height for bar in bars(chart)] == [25, 100, 50]
    assert [bar.top for bar in bars(chart)] == [75, 0, 50]
    lefts = [mark.left for mark in chart.chart.marks]
    assert lefts == pytest.approx([90, 93.3, 96.7], abs=0.1)
    assert [bar.note for bar in bars(chart)] == ["", "✕", ""]
    assert chart.has_bad_end
    assert chart.scale_text == "20.0s"
    assert bars(chart)[1].title == "2026-03-02 06:00:00-06:00: failed after 20.0s"


def test_a_bar_is_as_wide_in_each_chart() -> None:
    """A bar has the same width among few runs and among many."""
    few, many = chart_of([run(1)]), chart_of([run(1)] * (CHART_SLOT_COUNT + 5))
    widths = {bar.width for bar in [*bars(few), *bars(many)]}
    assert len(widths) == 1
    assert len(bars(many)) == CHART_SLOT_COUNT
    assert bars(many)[0].left == pytest.approx(0)


def test_shortest_run_can_be_seen() -> None:
    """A run of no time at all has a bar that can be seen."""
    chart = chart_of([run(0), run(0.0001), run(3600), run(3600)])
    assert [bar.height for bar in bars(chart)] == [
        100,
        100,
        2.0,
        2.0,
    ]


def test_hung_run_leaves_the_others_their_height() -> None:
    """The scale is that of most runs; the one that exceeds it is cut, and says so."""
    runs = [run(20 + 10 * (each % 3)) for each in range(14)]
    chart = chart_of([*runs, run(7 * 3600)])
    hung, *others = bars(chart)
    assert (hung.is_cut, hung.height) == (True, 100)
    assert hung.title.endswith("succeeded after 7h")
    assert {bar.height for bar in others} == {50, 75, 100}
    assert not any(bar.is_cut for bar in others)
    assert (chart.scale_text, chart.half_text, hung.note) == ("40.0s", "20.0s", "7h")
    assert chart.has_cut


def test_normal_runs_beside_a_hung_one_are_not_cut() -> None:
    """A run that is somewhat longer than 95 % of all, and of usual, sets the scale."""
    seconds = [100 + each % 7 for each in range(29)]
    seconds[5] = 108
    hung = lock(LockState.RUNNING, clock=NOON, locked_at=NOON - 48 * MINUTE, usual=103)
    chart = chart_of([run(each) for each in seconds], hung)
    assert [bar.title[-10:] for bar in bars(chart) if bar.is_cut] == ["48m so far"]
    assert chart.scale_text == "1m48s"
    assert max(bar.height for bar in bars(chart) if not bar.is_cut) == 100


@pytest.mark.parametrize(("seconds", "is_cut"), [(300, False), (301, True)])
def test_only_three_times_as_long_is_cut(seconds: float, *, is_cut: bool) -> None:
    """Of twenty runs of 100 s and one, that one alone is cut, or none is."""
    chart = chart_of([*[run(100)] * 20, run(seconds)])
    oldest, *others = bars(chart)
    assert oldest.is_cut is is_cut
    assert not any(bar.is_cut for bar in others)


def test_bar_that_fits_is_not_cut() -> None:
    """A run that took twice as long as the others is drawn in their scale."""
    chart = chart_of([run(60), run(61), run(120)])
    assert [bar.height for bar in bars(chart)] == [100, 50.8, 50]
    assert not chart.has_cut


def test_running_job_is_drawn_with_its_elapsed_time() -> None:
    """A running job's bar is as high as if it ended now."""
    status = lock(LockState.RUNNING, locked_at=NOON - MINUTE)
    chart = chart_of([run(120)], status)
    assert [bar.height for bar in bars(chart)] == [100, 50]
    [_, running] = bars(chart)
    assert running.title == "2026-03-02 05:59:00-06:00: running for 1m so far"
    assert running.page == ""
    assert not chart.has_bad_end


def test_expired_run_has_a_full_bar() -> None:
    """An expired run has a full bar, and is no gap: it has begun."""
    began = NOON - 4 * HOUR
    status = lock(
        LockState.EXPIRED, locked_at=began, schedule=HOURLY, open_run="web-2:8:b"
    )
    chart = chart_of([run(1, started=began - HOUR)], status)
    assert labels(chart) == ["bar", "bar", "3"]
    [_, expired] = bars(chart)
    assert expired.height == 100
    assert expired.title == "2026-03-02 02:00:00-06:00: expired"
    assert chart.has_bad_end


@pytest.mark.parametrize(
    "status",
    [
        lock(LockState.EXPIRED, open_run="web-3:9:c"),
        lock(LockState.PAUSED),
        lock(LockState.HELD_AT_LEAST),
        lock(LockState.FREE),
    ],
    ids=["expired before ShedLock acquired it", "paused", "held at least", "free"],
)
def test_lock_without_a_known_run_adds_no_bar(status: LockStatus) -> None:
    """Only a run that goes on, or that nobody has accounted for, is drawn."""
    assert len(bars(chart_of([run(1)], status))) == 1


def test_run_that_ended_a_moment_ago_is_drawn_once() -> None:
    """A run that has a row already is not drawn as running too."""
    ended = run(60)
    ended.locked_by = "web-2:8:b"
    [bar] = bars(chart_of([ended], lock(LockState.RUNNING)))
    assert bar.title.endswith("succeeded after 1m")


def test_run_whose_start_is_not_known_has_a_bar() -> None:
    """The bar of a run without a known start stands where the run ended."""
    [bar] = bars(chart_of([run(None, "abandoned", started=None)]))
    assert bar.title == "2026-03-02 06:00:00-06:00: abandoned"


def test_outcome_of_a_later_version_has_a_bar() -> None:
    """An outcome of a later version is shown as it is."""
    [bar] = bars(chart_of([run(1, "timed out")]))
    assert bar.title == "2026-03-02 06:00:00-06:00: timed out after 1.0s"


def test_abandoned_run_has_a_full_bar() -> None:
    """An abandoned run has a full bar: nobody knows how long it ran."""
    chart = chart_of([run(None, "abandoned"), run(7)])
    assert [bar.height for bar in bars(chart)] == [100, 100]
    assert bars(chart)[1].title == "2026-03-02 06:00:00-06:00: abandoned"
    assert chart.has_bad_end


def test_chart_of_nothing_finished() -> None:
    """A chart without any duration has no longest run, and is no error."""
    chart = chart_of([run(None, "abandoned")])
    assert (len(bars(chart)), chart.scale_text) == (1, "0ms")
    assert usual_place(chart) is None


def test_usual_duration_is_a_line() -> None:
    """The usual duration has room even if all shown runs were shorter."""
    assert usual_place(chart_of([run(20)], lock(usual=5.0))) == 75
    assert usual_place(chart_of([run(20)], lock(usual=40.0))) == 0
    assert bars(chart_of([run(20)], lock(usual=40.0)))[0].height == 50
    assert usual_place(chart_of([run(20)])) is None


def test_dates_stand_below_the_ends() -> None:
    """The oldest run has a date only if its bar is near the left edge."""
    assert len(chart_of([run(1)] * CHART_SLOT_COUNT).dates) == 2
    assert len(chart_of([run(1)] * 3).dates) == 1


def test_missed_ticks_are_a_gap() -> None:
    """A gap stands between the runs, and says how many ticks it has after which run."""
    chart = chart_until(NOON - 3 * HOUR, runs_at(3, 4, 8, 9))
    assert labels(chart) == ["bar", "bar", "3", "bar", "bar"]
    title = "3 ticks without a run after 2026-03-01 22:00:00-06:00"
    assert gaps(chart) == [title]


def test_one_missed_tick_is_a_gap() -> None:
    """One missed tick is named in the singular."""
    chart = chart_until(NOON - 7 * HOUR, runs_at(3, 5))
    assert [title.partition(" after")[0] for title in gaps(chart)] == [
        "1 tick without a run"
    ]


def test_runs_on_time_have_no_gap() -> None:
    """Neither a late start nor one shortly before its tick makes a gap."""
    chart = chart_until(NOON - 6 * HOUR, runs_at(3.4, 4 - 0.01, 5.9, 6))
    assert labels(chart) == ["bar"] * 4


def test_several_runs_of_a_tick_have_no_gap() -> None:
    """A retry belongs to the tick before it, also shortly before the next one."""
    retry = run(1, started=NOON - 8 * HOUR - SECOND, trigger="retry")
    chart = chart_until(NOON - 8 * HOUR, [*runs_at(4), retry, *runs_at(3)])
    assert labels(chart) == ["bar"] * 3


def test_ticks_since_the_last_run_are_a_gap() -> None:
    """A scheduler that is dead can be seen at the right edge."""
    chart = chart_until(NOON, runs_at(3, 4))
    assert labels(chart) == ["bar", "bar", "7"]


def test_without_a_schedule_nothing_is_missed() -> None:
    """The chart of a lock without a schedule shows only bars."""
    assert labels(chart_of(runs_at(3, 11))) == ["bar", "bar"]


def test_ticks_are_counted_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Years without a run cost no more than a chart's worth of ticks."""
    asked = 0
    ticks_after = Schedule.ticks_after

    def counted(self: Schedule, moment: datetime) -> Iterator[datetime]:
        nonlocal asked
        for tick in ticks_after(self, moment):
            asked += 1
            yield tick

    monkeypatch.setattr(Schedule, "ticks_after", counted)
    chart = chart_until(NOON, [run(1, started=NOON - 9999 * HOUR)])
    assert labels(chart) == ["bar", f"{GAP_TICK_LIMIT}+"]
    assert gaps(chart)[0].startswith(f"{GAP_TICK_LIMIT} ticks or more without a run")
    assert asked < 2 * GAP_TICK_LIMIT


@pytest.mark.parametrize(
    ("schedule", "ticks"),
    [
        ("every 20s", "29"),
        (["every 20s", "every 30s"], f"{GAP_TICK_LIMIT}+"),
        ("every 10m", None),
    ],
    ids=str,
)
def test_gap_of_an_interval_counts_its_ticks(schedule: Any, ticks: str | None) -> None:
    """Ticks of intervals without a run are counted like those of cron."""
    ended = lock(clock=NOON, schedule=Schedule(schedule))
    chart = chart_of([run(1, started=NOON - 10 * MINUTE)], ended)
    assert labels(chart) == (["bar", ticks] if ticks else ["bar"])


def test_no_gap_is_drawn_before_the_oldest_run() -> None:
    """No gap is drawn before the oldest run: nothing is known of that time."""
    assert labels(chart_until(NOON - 3 * HOUR, runs_at(9))) == ["bar"]
    assert labels(chart_until(NOON, [])) == []


def test_gaps_and_bars_share_the_slots() -> None:
    """There are never more gaps and bars than have room."""
    chart = chart_until(NOON, runs_at(*range(0, 24, 2)) * 3)
    assert len(chart.chart.marks) == CHART_SLOT_COUNT
    assert gaps(chart)


def test_success_rate_is_of_all_runs() -> None:
    """Each run that did not succeed lowers the success rate."""
    outcomes = ["succeeded", "failed", "timed out", "lost", "abandoned"]
    statistics: Any = statistics_of([run(1, outcome) for outcome in outcomes])
    assert (statistics["runs"], statistics["rate"]) == (5, "20 %")


def test_nearly_all_is_not_all() -> None:
    """The success rate is 99 % if one run of a thousand has failed."""
    statistics: Any = statistics_of([run(1, "failed")] + [run(1, "succeeded")] * 999)
    assert statistics["rate"] == "99 %"


def test_durations_are_those_of_the_good_runs() -> None:
    """A run that failed at once says nothing of how long the job takes."""
    runs = [run(seconds, "succeeded") for seconds in range(1, 21)]
    statistics: Any = statistics_of([run(0, "failed"), run(900, "lost"), *runs])
    assert statistics["median"] == "10.5s"
    assert statistics["p95"] == "19.0s"


def test_one_run_has_statistics() -> None:
    """The statistics of one run are its duration."""
    statistics: Any = statistics_of([run(7, "succeeded")])
    assert statistics["median"] == statistics["p95"] == "7.0s"


def test_without_a_success_there_is_no_usual_duration() -> None:
    """Without a success the statistics have a rate, and no duration."""
    statistics: Any = statistics_of([run(7, "failed"), run(None, "abandoned")])
    assert (statistics["rate"], statistics.get("median"), statistics.get("p95")) == (
        "0 %",
        None,
        None,
    )


def test_without_a_run_there_are_no_statistics() -> None:
    """Without a run there are no statistics."""
    assert statistics_of([]) is None
