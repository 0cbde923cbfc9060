"""The chart of a lock's last runs."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

from django_shedlock.admin.charts import HEIGHT, LEAST, make_chart
from django_shedlock.locks.states import RunOutcome


def run(seconds: float | None, outcome: str = "succeeded") -> SimpleNamespace:
    duration = None if seconds is None else timedelta(seconds=seconds)
    return SimpleNamespace(duration=duration, current_outcome=outcome)


def test_bars_are_as_high_as_the_runs_took_long() -> None:
    """The longest run fills the height, and the oldest stands on the left."""
    chart = make_chart([run(10), run(20, "failed"), run(5)])
    assert [bar.height for bar in chart.bars] == [HEIGHT / 4, HEIGHT, HEIGHT / 2]
    assert all(bar.y + bar.height == HEIGHT for bar in chart.bars)
    assert [bar.x for bar in chart.bars] == sorted(bar.x for bar in chart.bars)
    assert [bar.outcome for bar in chart.bars][1] is RunOutcome.FAILED
    assert chart.longest == "20.0s"
    assert chart.bars[1].title == "failed after 20.0s"


def test_shortest_run_can_be_seen() -> None:
    """A run of no time at all has a bar, too."""
    chart = make_chart([run(0), run(0.0001), run(3600)])
    assert [bar.height for bar in chart.bars] == [HEIGHT, LEAST, LEAST]


def test_run_without_end_has_a_full_bar() -> None:
    """What runs still, or died, has no duration that could be shown."""
    chart = make_chart([run(None, "running"), run(7)])
    assert [bar.height for bar in chart.bars] == [HEIGHT, HEIGHT]
    assert chart.bars[1].title == "running"


def test_chart_of_nothing_finished() -> None:
    """Without any duration there is no longest run, and no error."""
    chart = make_chart([run(None, "abandoned")])
    assert (len(chart.bars), chart.longest) == (1, "0ms")
