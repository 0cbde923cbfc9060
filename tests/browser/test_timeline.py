"""The timeline shows what happened to each job and host in the last 24 hours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from secrets import token_hex
from typing import Any

import pytest
from django.db import transaction

from django_shedlock.console.models import ActionKind
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.schedules.cron import Schedule
from tests.browser.test_list import BROKEN, CUT, TIMELINE, WORDS, Screen
from tests.support.last_runs import follow_history
from tests.support.locks import MINUTE, add_run
from tests.support.operators import ALL
from tests.support.pages import HOUR, add_action

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

DEAD = "orders.import"
DEAD_HOST = "cron-1"
OVERLAPPING = "ledger.sync"
HUNG = "prices.fetch"
PAUSED = "mail.digest"
FAILING = "invoices.export_to_the_warehouse"
PART = "shop_customers_of_all_countries"
LONG_NAME = f"{PART}.{PART}.{PART}"

MARKS = """
const strip = document.querySelector(
    `tr[data-shedlock-key="${arguments[0]}"] svg.shedlock-chart`
);
const {left, width, top, height} = strip.getBoundingClientRect();
return Array.from(strip.querySelectorAll(".shedlock-mark"), (mark) => {
    const box = mark.querySelector(".shedlock-body").getBoundingClientRect();
    return {
        kind: mark.getAttribute("class").split("shedlock-").pop(),
        title: mark.querySelector("title").textContent,
        left: (box.left - left) / width,
        right: (box.right - left) / width,
        top: (box.top - top) / height,
        bottom: (box.bottom - top) / height,
    };
});
"""


@dataclass(frozen=True)
class Box:
    """A mark in its strip; its edges are parts of the strip's width and height."""

    kind: str
    title: str
    left: float
    right: float
    top: float
    bottom: float

    def is_at_right_edge(self) -> bool:
        return abs(self.right - 1) < 0.01

    def lasts(self, duration: timedelta) -> bool:
        """Whether it is as wide as that part of a day."""
        return abs(self.right - self.left - duration / timedelta(days=1)) < 0.01


class Past:
    """The store at one instant of its clock, to which a past is added."""

    def __init__(self) -> None:
        self.now = LockRecord.objects.clock()

    def run(
        self,
        name: str,
        ago: timedelta,
        took: timedelta = MINUTE,
        outcome: RunOutcome = RunOutcome.SUCCEEDED,
        host: str = "web-1",
        **columns: Any,
    ) -> LockRun:
        """Add a run that began so long ago; its lock comes later."""
        began = self.now - ago
        instants = {"started": began, "ended": began + took, "duration": took}
        holder = f"{host}:4711:{token_hex(8)}"
        return add_run(name, outcome, locked_by=holder, **instants, **columns)

    def release(self, run: LockRun, **columns: Any) -> None:
        """Add the lock of this run, which has released it."""
        LockRecord.objects.create(
            name=run.name,
            locked_by=run.locked_by,
            locked_at=run.started,
            lock_until=run.started,
            released_at=run.ended,
            **columns,
        )
        follow_history(run.name)


@transaction.atomic
def eventful_day() -> None:
    """Let a cron die, runs overlap, a job hang, a job be paused, and a run fail."""
    past = Past()
    hourly = Schedule("@hourly", "UTC")
    ticks = list(islice(hourly.ticks_until(past.now - 5 * HOUR), 12))
    *_, run = [past.run(DEAD, past.now - tick, host=DEAD_HOST) for tick in ticks[::-1]]
    due_at = next(hourly.ticks_after(ticks[0]))
    past.release(run, schedule=str(hourly), tick=ticks[0], due_at=due_at)

    run = past.run(OVERLAPPING, 7 * HOUR, HOUR, host="web-2")
    past.run(OVERLAPPING, 8 * HOUR, 3 * HOUR, RunOutcome.LOST)
    past.release(run)

    past.run(HUNG, 20 * HOUR)
    holder = "web-3:99:4e07408562bedb8b"
    LockRecord.objects.create(
        name=HUNG,
        locked_by=holder,
        locked_at=past.now - 6 * HOUR,
        lock_until=past.now + HOUR,
        open_run=holder,
    )
    follow_history(HUNG)

    past.run(PAUSED, 12 * HOUR)
    past.release(past.run(PAUSED, 3 * HOUR))
    for kind, ago in ((ActionKind.PAUSE, 10), (ActionKind.RESUME, 6)):
        moment = past.now - ago * HOUR
        add_action(PAUSED, kind=kind, began=moment, ended=moment)

    for name in (FAILING, LONG_NAME):
        *_, run = [past.run(name, ago * HOUR) for ago in (9, 6, 3)]
        if name == FAILING:
            error = "shop.errors.WarehouseFull"
            failed = {"outcome": RunOutcome.FAILED, "exception_type": error}
            run = past.run(name, 2 * HOUR, 5 * MINUTE, **failed)
        past.release(run)


@pytest.fixture
def screen(browser: Any, live_server: Any) -> Iterator[Screen]:
    """The timeline of an eventful day."""
    eventful_day()
    screen = Screen(browser, live_server.url)
    screen.log_in(*ALL)
    screen.open(TIMELINE)
    yield screen
    screen.resize(1280)


def boxes(screen: Screen, row: str, kind: str) -> list[Box]:
    """Return the marks of this kind in a row, from left to right."""
    found = [Box(**mark) for mark in screen.run(MARKS, row)]
    return sorted((box for box in found if box.kind == kind), key=lambda box: box.left)


def row(screen: Screen, key: str) -> Any:
    return screen.find(f'tr[data-shedlock-key="{key}"]')


def test_dead_cron_is_a_gap_at_the_right_edge(screen: Screen) -> None:
    """Ticks without a run end at now, and the host's last start was hours ago."""
    runs = boxes(screen, f"lock {DEAD}", "succeeded")
    assert len(runs) == 12
    [gap] = boxes(screen, f"lock {DEAD}", "missed")
    assert gap.is_at_right_edge()
    assert gap.left > runs[-1].right
    assert gap.right - gap.left > 4 / 24
    assert "1 gap without a run" in row(screen, f"lock {DEAD}").text
    assert "Overdue" in row(screen, f"lock {DEAD}").text
    starts = boxes(screen, f"host {DEAD_HOST}", "host")
    assert starts
    assert max(box.right for box in starts) < 20 / 24
    assert "last start 5h" in row(screen, f"host {DEAD_HOST}").text
    hosts = screen.texts(".shedlock-timeline-hosts tbody th")
    assert hosts == ["web-1", DEAD_HOST, "web-3", "web-2"]


def test_runs_at_the_same_time_have_lanes(screen: Screen) -> None:
    """Two runs of one lock that overlap in time do not cover each other."""
    [lost] = boxes(screen, f"lock {OVERLAPPING}", "lost")
    [other] = boxes(screen, f"lock {OVERLAPPING}", "succeeded")
    assert lost.lasts(3 * HOUR)
    assert other.lasts(HOUR)
    assert lost.left < other.left < other.right < lost.right
    assert lost.bottom <= other.top or other.bottom <= lost.top
    assert min(lost.top, other.top) >= 0
    assert max(lost.bottom, other.bottom) <= 1


def test_hang_goes_on_until_now(screen: Screen) -> None:
    """The mark of a run without an end reaches the right edge."""
    [running] = boxes(screen, f"lock {HUNG}", "running")
    assert running.is_at_right_edge()
    assert running.lasts(6 * HOUR)
    assert running.title.startswith("running since")
    assert "Runs too long" in row(screen, f"lock {HUNG}").text


def test_pause_is_shown_between_the_runs(screen: Screen) -> None:
    """The audit log says from when to when a job was paused."""
    before, after = boxes(screen, f"lock {PAUSED}", "succeeded")
    [pause] = boxes(screen, f"lock {PAUSED}", "paused")
    assert pause.lasts(4 * HOUR)
    assert before.right < pause.left < pause.right < after.left
    assert "paused" in row(screen, f"lock {PAUSED}").text


def test_timeline_works_without_javascript(screen: Screen) -> None:
    """The server draws all marks, and a click on one opens its run."""
    command = "Emulation.setScriptExecutionDisabled"
    screen.browser.execute_cdp_cmd(command, {"value": True})
    try:
        screen.open(TIMELINE)
        assert len(screen.find_all("tr[data-shedlock-key^=lock] .shedlock-mark")) == 27
        assert screen.find_all("tr[data-shedlock-key^=host] .shedlock-mark")
        screen.find("a.shedlock-mark.shedlock-failed .shedlock-body").click()
        screen.until(lambda: "WarehouseFull" in screen.text("#content"))
    finally:
        screen.browser.execute_cdp_cmd(command, {"value": False})


def test_keyboard_opens_bad_runs(screen: Screen) -> None:
    """Tab stops at a bad run but at no good one, and then at the words for all runs."""
    from selenium.webdriver.common.keys import Keys

    def tab_from(element: Any) -> Any:
        element.send_keys(Keys.TAB)
        return screen.browser.switch_to.active_element

    strip = row(screen, f"lock {FAILING}")
    good = strip.find_elements("css selector", "a.shedlock-mark.shedlock-succeeded")
    assert len(good) == 3
    name = strip.find_element("css selector", "th a")
    screen.run("arguments[0].focus()", name)
    bad = tab_from(name)
    assert bad.accessible_name.endswith("failed after 5m on web-1")
    words = tab_from(bad)
    assert words.text == "1 failed, 3 succeeded"
    assert f"name__exact={FAILING}" in words.get_attribute("href")
    words.send_keys(Keys.SHIFT + Keys.TAB)
    screen.browser.switch_to.active_element.send_keys(Keys.ENTER)
    screen.until(lambda: "WarehouseFull" in screen.text("#content"))
    assert "/lockrun/" in screen.browser.current_url


def test_each_strip_has_a_name(screen: Screen) -> None:
    """A screen reader says of a strip what its row says in words."""
    rows = screen.find_all(".shedlock-timeline tbody tr")
    assert len(rows) == 10
    for each in rows:
        strip = each.find_element("css selector", "svg")
        words = each.find_element("css selector", "td:last-child").text
        assert strip.accessible_name == f"Last 24 hours: {words}"
        assert strip.aria_role in {"group", "image", "img"}
    for chart in screen.find_all(".shedlock-timeline thead svg"):
        assert chart.accessible_name == "The hours of the day"


def test_timeline_fits_the_screen(screen: Screen) -> None:
    """Nothing is wider than the screen, and no name that fits is broken in a word."""
    for width in (390, 1280):
        screen.resize(width)
        assert screen.run("return innerWidth") == width
        assert screen.run(CUT) == [], width
        words = screen.run(BROKEN, WORDS)
        assert PART + "." in [each["word"] for each in words]
        assert [each["word"] for each in words if each["isBroken"]] == [], width
