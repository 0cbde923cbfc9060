"""The chart of a lock's last runs, and their statistics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from django_shedlock.console.admin.charts import (
    LEAST,
    MOST_TICKS,
    SLOTS,
    Mark,
    make_chart,
    statistics_of,
)
from django_shedlock.locks.states import RunOutcome
from django_shedlock.schedules.cron import Schedule
from tests.support.lateness import HOURLY

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def run(
    seconds: float | None,
    outcome: str = "succeeded",
    *,
    started: datetime = NOON,
    trigger: str = "scheduler",
) -> SimpleNamespace:
    return SimpleNamespace(
        pk=1,
        duration=None if seconds is None else timedelta(seconds=seconds),
        elapsed=timedelta(seconds=60),
        current_outcome=outcome,
        started=started,
        trigger=trigger,
    )


def chart_until(end: datetime, runs: list[SimpleNamespace]) -> dict[str, Any]:
    """Return the chart of an hourly job, whose runs are looked for until then."""
    return make_chart(runs, schedule=HOURLY, until=end)


def runs_at(*hours: float) -> list[SimpleNamespace]:
    """Return runs that started at these hours of the day, the newest first."""
    midnight = NOON - 12 * HOUR
    return [run(1, started=midnight + hour * HOUR) for hour in reversed(hours)]


def labels(chart: dict[str, Any]) -> list[str]:
    """Return the gaps by their ticks, and a bar for each run, the oldest first."""
    return [mark.ticks or "bar" for mark in chart["marks"]]


def bars(chart: dict[str, Any]) -> list[Mark]:
    return [mark for mark in chart["marks"] if mark.run]


def gaps(chart: dict[str, Any]) -> list[str]:
    return [mark.title for mark in chart["marks"] if mark.ticks]


def test_bars_are_as_high_as_the_runs_took_long() -> None:
    """The longest run fills the height, and the newest stands at the right edge."""
    chart = make_chart([run(10), run(20, "failed"), run(5)])
    assert [bar.height for bar in bars(chart)] == [25, 100, 50]
    assert [bar.top for bar in bars(chart)] == [75, 0, 50]
    lefts = [mark.left for mark in chart["marks"]]
    assert lefts == pytest.approx([90, 93.3, 96.7], abs=0.1)
    assert bars(chart)[1].outcome is RunOutcome.FAILED
    assert chart["longest"] == "20.0s"
    assert bars(chart)[1].title == "2026-03-02 06:00:00-06:00: failed after 20.0s"


def test_a_bar_is_as_wide_in_each_chart() -> None:
    """One run does not fill the chart, and many do not become thinner."""
    few, many = make_chart([run(1)]), make_chart([run(1)] * (SLOTS + 5))
    assert few["bar_width"] == many["bar_width"]
    assert len(bars(many)) == SLOTS
    assert many["marks"][0].left == pytest.approx(0)


def test_shortest_run_can_be_seen() -> None:
    """A run of no time at all has a bar, too."""
    chart = make_chart([run(0), run(0.0001), run(3600), run(3600)])
    assert [bar.height for bar in bars(chart)] == [100, 100, LEAST, LEAST]


def test_hung_run_leaves_the_others_their_height() -> None:
    """The scale is that of most runs; the one that exceeds it is cut, and says so."""
    runs = [run(20 + 10 * (each % 3)) for each in range(14)]
    chart = make_chart([*runs, run(7 * 3600)])
    hung, *others = bars(chart)
    assert (hung.is_cut, hung.height) == (True, 100)
    assert hung.title.endswith("succeeded after 7h")
    assert {bar.height for bar in others} == {50, 75, 100}
    assert not any(bar.is_cut for bar in others)
    assert (chart["scale"], chart["half"], chart["longest"]) == ("40.0s", "20.0s", "7h")
    assert chart["has_cut"]


def test_bar_that_fits_is_not_cut() -> None:
    """A run that took twice as long as the others is drawn in their scale."""
    chart = make_chart([run(60), run(61), run(120)])
    assert [bar.height for bar in bars(chart)] == [100, 50.8, 50]
    assert not chart["has_cut"]


def test_running_job_is_drawn_with_its_elapsed_time() -> None:
    """It is as high as if it ended now."""
    chart = make_chart([run(None, "running"), run(120)])
    assert [bar.height for bar in bars(chart)] == [100, 50]
    assert bars(chart)[1].title == "2026-03-02 06:00:00-06:00: running for 1m so far"


def test_abandoned_run_has_a_full_bar() -> None:
    """Nobody knows how long it ran."""
    chart = make_chart([run(None, "abandoned"), run(7)])
    assert [bar.height for bar in bars(chart)] == [100, 100]
    assert bars(chart)[1].title == "2026-03-02 06:00:00-06:00: abandoned"
    assert chart["has_bad_end"]


def test_chart_of_nothing_finished() -> None:
    """Without any duration there is no longest run, and no error."""
    chart = make_chart([run(None, "abandoned")])
    assert (len(bars(chart)), chart["longest"]) == (1, "0ms")
    assert chart["usual_top"] is None


def test_usual_duration_is_a_line() -> None:
    """It has room also if all the runs that are shown were shorter."""
    assert make_chart([run(20)], 5 * SECOND)["usual_top"] == 75
    assert make_chart([run(20)], 40 * SECOND)["usual_top"] == 0
    assert bars(make_chart([run(20)], 40 * SECOND))[0].height == 50
    assert make_chart([run(20)])["usual_top"] is None


def test_dates_stand_below_the_ends() -> None:
    """The oldest run has a date only if its bar is near the left edge."""
    assert len(make_chart([run(1)] * SLOTS)["dates"]) == 2
    assert len(make_chart([run(1)] * 3)["dates"]) == 1


def test_missed_ticks_are_a_gap() -> None:
    """It stands between the runs, and says how many ticks and after which run."""
    chart = chart_until(NOON - 3 * HOUR, runs_at(3, 4, 8, 9))
    assert labels(chart) == ["bar", "bar", "3", "bar", "bar"]
    title = "3 ticks without a run after 2026-03-01 22:00:00-06:00"
    assert gaps(chart) == [title]


def test_one_missed_tick_is_a_gap() -> None:
    """It is told in the singular."""
    chart = chart_until(NOON - 7 * HOUR, runs_at(3, 5))
    assert [title.partition(" after")[0] for title in gaps(chart)] == [
        "1 tick without a run"
    ]


def test_runs_on_time_have_no_gap() -> None:
    """Neither late starts nor those shortly before their tick make one."""
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
    """Only bars are drawn then."""
    assert labels(make_chart(runs_at(3, 11))) == ["bar", "bar"]


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
    assert labels(chart) == ["bar", f"{MOST_TICKS}+"]
    assert gaps(chart)[0].startswith(f"{MOST_TICKS} ticks or more without a run")
    assert asked < 2 * MOST_TICKS


def test_no_gap_is_drawn_before_the_oldest_run() -> None:
    """What was before it is not known."""
    assert labels(chart_until(NOON - 3 * HOUR, runs_at(9))) == ["bar"]
    assert chart_until(NOON, [])["marks"] == []


def test_gaps_and_bars_share_the_slots() -> None:
    """There are never more of them than have room."""
    chart = chart_until(NOON, runs_at(*range(0, 24, 2)) * 3)
    assert len(chart["marks"]) == SLOTS
    assert any(mark.ticks for mark in chart["marks"])


def test_success_rate_is_of_the_ended_runs() -> None:
    """A run that goes on counts neither way."""
    outcomes = ["running", "succeeded", "failed", "lost", "abandoned"]
    statistics: Any = statistics_of([run(1, outcome) for outcome in outcomes])
    assert (statistics["runs"], statistics["rate"]) == (4, "25 %")


def test_nearly_all_is_not_all() -> None:
    """One failure of a thousand is no success rate of 100 %."""
    statistics: Any = statistics_of([run(1, "failed")] + [run(1, "succeeded")] * 999)
    assert statistics["rate"] == "99 %"


def test_durations_are_those_of_the_good_runs() -> None:
    """A run that failed at once says nothing of how long the job takes."""
    runs = [run(seconds, "succeeded") for seconds in range(1, 21)]
    statistics: Any = statistics_of([run(0, "failed"), run(900, "lost"), *runs])
    assert statistics["median"] == "10.5s"
    assert statistics["p95"] == "19.0s"


def test_one_run_has_statistics() -> None:
    """Its duration is all of them."""
    statistics: Any = statistics_of([run(7, "succeeded")])
    assert statistics["median"] == statistics["p95"] == "7.0s"


def test_without_a_success_there_is_no_usual_duration() -> None:
    """The rate is told, and no duration."""
    statistics: Any = statistics_of([run(7, "failed"), run(None, "abandoned")])
    assert (statistics["rate"], statistics.get("median"), statistics.get("p95")) == (
        "0 %",
        None,
        None,
    )


def test_without_an_end_there_are_no_statistics() -> None:
    """Nothing can be told of a first run that goes on."""
    assert statistics_of([run(None, "running")]) is None
    assert statistics_of([]) is None
