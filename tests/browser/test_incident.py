"""An incident at night, told by the first screen, and how its cures are found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from django_shedlock.locks.status import LockState
from tests.browser.test_list import Screen
from tests.support.locks import state
from tests.support.operators import ALL, LIST
from tests.support.scenes import FAILING, FREE, KILLED, LATE, STUCK, incident

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.once,
]

WIDTH, HEIGHT = 1280, 900


@pytest.fixture
def screen(browser: Any, live_server: Any) -> Iterator[Screen]:
    """The list of an incident, as somebody sees it who was woken up."""
    incident()
    screen = Screen(browser, live_server.url)
    screen.log_in(*ALL)
    screen.resize(WIDTH, HEIGHT)
    screen.open(LIST)
    yield screen
    screen.resize(WIDTH)


def press(screen: Screen, name: str, button: str) -> None:
    """Click once, on a button below a lock."""
    buttons = screen.lock(name).find_elements("css selector", ".shedlock-cures .button")
    [chosen] = [each for each in buttons if each.text == button]
    chosen.click()


def confirm(screen: Screen) -> None:
    """Say why, and click once more."""
    screen.until(lambda: "may still be running" in screen.text("#content"))
    screen.find("textarea[name=reason]").send_keys("its host is gone")
    screen.find("input[type=submit]").click()
    screen.until(lambda: "is released" in screen.text(".messagelist"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (STUCK, "Runs too long Its job has run for 2h"),
        (KILLED, "Expired Its lease ended at .*, but web-3:99:"),
        (FAILING, r"Failed Its last run failed at .* with .*, and 4 runs in a row"),
        (LATE, "Overdue Late by .*: the tick of .* has not succeeded"),
    ],
)
def test_first_screen_tells_each_finding(screen: Screen, name: str, told: str) -> None:
    """Nobody scrolls to learn what is wrong with which lock."""
    finding = screen.lock(name).find_element("css selector", "summary")
    assert re.match(told, " ".join(finding.text.split()))
    place = screen.run("return arguments[0].getBoundingClientRect().toJSON()", finding)
    assert 0 < place["top"] < place["bottom"] <= HEIGHT
    assert 0 < place["left"] < place["right"] <= WIDTH
    assert screen.run("return window.scrollY") == 0


def test_first_screen_counts_everything(screen: Screen) -> None:
    """Five locks need somebody; the others are counted by their states."""
    counts = screen.find_all(".shedlock-count")
    assert [count.text.replace("\n", " ") for count in counts] == [
        "6 need attention",
        "overdue 2",
        "failed 2",
        "expired 1",
        "runs too long 1",
        "lost 1",
        "running 2",
        "held at least 1",
        f"free {FREE + 4}",
    ]
    assert len({count.rect["y"] for count in counts}) == 1


@pytest.mark.parametrize("name", [STUCK, KILLED])
def test_dead_and_hung_jobs_are_two_clicks_from_their_release(
    screen: Screen, name: str
) -> None:
    """One click asks about this lock alone, the other one releases it."""
    press(screen, name, "Release…")
    confirm(screen)
    assert state(name) is LockState.FREE
    told = "has not reported its end"
    # The release of an expired lock acknowledges that, so it needs nobody any more.
    assert (told in screen.text("#result_list")) is (name == STUCK)


def test_failing_job_is_a_click_from_its_exception(screen: Screen) -> None:
    """The run tells with what it failed."""
    press(screen, FAILING, "The run")
    screen.until(lambda: "ConnectTimeout" in screen.text("#content"))
    assert "did not answer within 30 seconds" in screen.text("#content")


def test_overdue_job_is_a_click_from_the_command_that_runs_it(screen: Screen) -> None:
    """A click on the finding unfolds it."""
    finding = screen.lock(LATE).find_element("css selector", ".shedlock-findings li")
    assert "check whether its scheduler runs" in finding.text
    assert "shedlock catch-up" not in finding.text
    finding.find_element("css selector", "summary").click()
    screen.until(lambda: "python manage.py shedlock catch-up" in finding.text)
