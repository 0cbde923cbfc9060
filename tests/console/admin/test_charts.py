"""The chart of a lock's last runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from django_shedlock.console.admin.charts import (
    LEAST,
    MOST_TICKS,
    SLOTS,
    Bar,
    Gap,
    RunsChart,
    Ticks,
    make_chart,
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


def runs_at(*hours: float) -> list[SimpleNamespace]:
    """Return runs that started at these hours of the day, the newest first."""
    midnight = NOON - 12 * HOUR
    return [run(1, started=midnight + hour * HOUR) for hour in reversed(hours)]


def ticks(until: datetime = NOON) -> Ticks:
    return Ticks(HOURLY, until)


def labels(chart: RunsChart) -> list[str]:
    """Return the gaps by their labels, and a bar for each run, the oldest first."""
    return [
        "bar" if isinstance(place.shown, Bar) else place.shown.label
        for place in chart.places
    ]


def test_bars_are_as_high_as_the_runs_took_long() -> None:
    """The longest run fills the height, and the newest stands at the right edge."""
    chart = make_chart([run(10), run(20, "failed"), run(5)])
    assert [bar.height for bar in chart.bars] == [25, 100, 50]
    assert [bar.top for bar in chart.bars] == [75, 0, 50]
    lefts = [place.left for place in chart.places]
    assert lefts == pytest.approx([90, 93.3, 96.7], abs=0.1)
    assert chart.bars[1].outcome is RunOutcome.FAILED
    assert chart.shown_longest == "20.0s"
    assert chart.bars[1].title == "03/02/2026 06:00:00: failed after 20.0s"


def test_a_bar_is_as_wide_in_each_chart() -> None:
    """One run does not fill the chart, and many do not become thinner."""
    few, many = make_chart([run(1)]), make_chart([run(1)] * (SLOTS + 5))
    assert few.bar_width == many.bar_width
    assert len(many.bars) == SLOTS
    assert many.places[0].left == pytest.approx(0)


def test_shortest_run_can_be_seen() -> None:
    """A run of no time at all has a bar, too."""
    chart = make_chart([run(0), run(0.0001), run(3600)])
    assert [bar.height for bar in chart.bars] == [100, LEAST, LEAST]


def test_running_job_is_drawn_with_its_elapsed_time() -> None:
    """It is as high as if it ended now."""
    chart = make_chart([run(None, "running"), run(120)])
    assert [bar.height for bar in chart.bars] == [100, 50]
    assert chart.bars[1].title == "03/02/2026 06:00:00: running for 1m so far"


def test_abandoned_run_has_a_full_bar() -> None:
    """Nobody knows how long it ran."""
    chart = make_chart([run(None, "abandoned"), run(7)])
    assert [bar.height for bar in chart.bars] == [100, 100]
    assert chart.bars[1].title == "03/02/2026 06:00:00: abandoned"
    assert chart.has_bad_end


def test_chart_of_nothing_finished() -> None:
    """Without any duration there is no longest run, and no error."""
    chart = make_chart([run(None, "abandoned")])
    assert (len(chart.bars), chart.shown_longest) == (1, "0ms")
    assert chart.usual_top is None


def test_usual_duration_is_a_line() -> None:
    """It has room also if all the runs that are shown were shorter."""
    assert make_chart([run(20)], 5 * SECOND).usual_top == 75
    assert make_chart([run(20)], 40 * SECOND).usual_top == 0
    assert make_chart([run(20)], 40 * SECOND).bars[0].height == 50
    assert make_chart([run(20)]).usual_top is None


def test_dates_stand_below_the_ends() -> None:
    """The oldest run has a date only if its bar is near the left edge."""
    assert len(make_chart([run(1)] * SLOTS).dates) == 2
    assert len(make_chart([run(1)] * 3).dates) == 1


def test_missed_ticks_are_a_gap() -> None:
    """It stands between the runs, and says how many ticks and after which run."""
    chart = make_chart(runs_at(3, 4, 8, 9), ticks=ticks(NOON - 3 * HOUR))
    assert labels(chart) == ["bar", "bar", "3", "bar", "bar"]
    title = "3 ticks without a run after 03/01/2026 22:00:00"
    assert [gap.title for gap in chart.gaps] == [title]


def test_one_missed_tick_is_a_gap() -> None:
    """It is told in the singular."""
    chart = make_chart(runs_at(3, 5), ticks=ticks(NOON - 7 * HOUR))
    assert [gap.title.partition(" after")[0] for gap in chart.gaps] == [
        "1 tick without a run"
    ]


def test_runs_on_time_have_no_gap() -> None:
    """Neither late starts nor those shortly before their tick make one."""
    chart = make_chart(runs_at(3.4, 4 - 0.01, 5.9, 6), ticks=ticks(NOON - 6 * HOUR))
    assert labels(chart) == ["bar"] * 4


def test_several_runs_of_a_tick_have_no_gap() -> None:
    """A retry belongs to the tick before it, also shortly before the next one."""
    retry = run(1, started=NOON - 8 * HOUR - SECOND, trigger="retry")
    chart = make_chart([*runs_at(4), retry, *runs_at(3)], ticks=ticks(NOON - 8 * HOUR))
    assert labels(chart) == ["bar"] * 3


def test_ticks_since_the_last_run_are_a_gap() -> None:
    """A scheduler that is dead can be seen at the right edge."""
    chart = make_chart(runs_at(3, 4), ticks=ticks(NOON))
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
    chart = make_chart([run(1, started=NOON - 9999 * HOUR)], ticks=ticks(NOON))
    assert labels(chart) == ["bar", f"{MOST_TICKS}+"]
    assert chart.gaps[0].title.startswith(f"{MOST_TICKS} ticks or more without a run")
    assert asked < 2 * MOST_TICKS


def test_no_gap_is_drawn_before_the_oldest_run() -> None:
    """What was before it is not known."""
    assert labels(make_chart(runs_at(9), ticks=ticks(NOON - 3 * HOUR))) == ["bar"]
    assert make_chart([], ticks=ticks()).places == []


def test_gaps_and_bars_share_the_slots() -> None:
    """There are never more of them than have room."""
    chart = make_chart(runs_at(*range(0, 24, 2)) * 3, ticks=ticks(NOON))
    assert len(chart.places) == SLOTS
    assert any(isinstance(place.shown, Gap) for place in chart.places)
