"""An incident at night: the first screen shows each fault, and leads to its cure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_shedlock.locks.status import LockState
from tests.browser.screenshots import incident as served_incident
from tests.browser.test_list import Screen
from tests.support.example_project import environment, manage
from tests.support.incident import SIGNS
from tests.support.locks import state
from tests.support.operators import ALL, LIST
from tests.support.scenes import FAILING, FREE, KILLED, LATE, STUCK, incident

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.once,
]

WIDTH, HEIGHT = 1280, 800
LABELS = {
    "silent": "Scheduler silent",
    "overdue": "Overdue",
    "failed": "Failed",
    "expired": "Expired",
    "long": "Runs too long",
    "lost": "Lost",
    "request": "Request not carried out",
    "paused": "Paused",
    "history": "Not in the history",
    "clock": "Wrong clock",
}
"""What the list calls each kind of finding."""
SCENE = (
    *((LATE, "overdue"), ("nightly.cleanup", "overdue"), ("nightly.cleanup", "failed")),
    *(
        (FAILING, "failed"),
        (KILLED, "expired"),
        (STUCK, "long"),
        ("mirror.pull", "lost"),
    ),
)
"""The lock and the kind of each fault of the scene."""
FAULTS = """
import json
from example.incident import EXPECTED

print(json.dumps(EXPECTED))
"""
LINE_ON_FIRST_SCREEN = """
const [lock, kind] = arguments;
const within = lock === null
    ? document.getElementById("shedlock-attention")
    : document.querySelector(`tbody[data-shedlock-key="lock ${lock}"]`);
const line = within?.querySelector(`[data-shedlock-key="${kind}"] .shedlock-brief`);
if (!line) {
    return null;
}
const boxes = [...line.children, within.querySelector(".field-shown_name")];
const isShown = (box) => {
    const {left, right, top, bottom} = box.getBoundingClientRect();
    const topmost = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
    const isInside = Math.min(left, top) >= 0 && right <= innerWidth;
    return isInside && bottom <= innerHeight && box.contains(topmost);
};
return boxes.filter(Boolean).every(isShown) && scrollY === 0 ? line.innerText : null;
"""
"""The line of a finding, if all of it and the name of its lock can be seen."""


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
    """Say why, and that the process is gone, and click once more."""
    screen.until(lambda: "may still be running" in screen.text("#content"))
    screen.find("textarea[name=reason]").send_keys("its host is gone")
    screen.find("input[name=process_is_gone]").click()
    screen.find("input[type=submit]").click()
    screen.until(lambda: "is released" in screen.text(".messagelist"))


@pytest.fixture
def demo(
    browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Screen]:
    """The list of the demo's incident, which real processes have made."""
    monkeypatch.setenv("SHEDLOCK_EXAMPLE_FILE", str(tmp_path / "unused.sqlite3"))
    monkeypatch.delenv("SHEDLOCK_EXAMPLE_DATABASE_URL", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with served_incident() as server:
        screen = Screen(browser, server)
        screen.resize(WIDTH, HEIGHT)
        screen.open(LIST)
        screen.find("[name=username]").send_keys("admin")
        screen.find("[name=password]").send_keys("admin")
        screen.find("#login-form [type=submit]").click()
        screen.until(lambda: bool(screen.find_all("#result_list")))
        yield screen
        screen.resize(WIDTH)


def line_of(screen: Screen, lock: str | None, kind: str) -> str:
    """Return the line of a finding. Fail unless the first screen shows all of it."""
    line = screen.run(LINE_ON_FIRST_SCREEN, lock, kind)
    assert line is not None, f"the first screen does not show {kind} in {lock}"
    assert line.startswith(LABELS[kind]), line
    return " ".join(line.split())


def test_first_screen_shows_each_fault(screen: Screen) -> None:
    """Each lock with its findings is seen without scrolling, and counted in words."""
    lines = {(lock, kind): line_of(screen, lock, kind) for lock, kind in SCENE}
    for found, told in (
        ((STUCK, "long"), r"for 2h · web-2:4711 · usually takes 3m\d+s"),
        ((KILLED, "expired"), r"1h ago · web-3:99 · never released its lock: dead, or"),
        ((FAILING, "failed"), r"15m ago · web-2:\d+ · ConnectTimeout, 4 runs in a row"),
        ((LATE, "overdue"), r"for 3h\d*m? · no run has begun"),
    ):
        assert re.search(told, lines[found])
    shown = screen.text("#shedlock-headline")
    assert shown == (
        "2 jobs overdue, 2 jobs failed, 1 lock expired, 1 job runs too long, "
        f"1 lock was lost · {FREE + 2} well"
    )
    states = screen.find_all(".shedlock-states a")
    told = [each.text.replace("\n", " ") for each in states]
    assert told == ["running 2", "held at least 1", f"free {FREE + 4}"]
    assert len({each.rect["y"] for each in states}) == 1
    screen.browser.find_element("link text", "1 lock expired").click()
    screen.until(lambda: screen.texts("th.field-shown_name") == [KILLED])


def test_first_screen_shows_each_fault_of_the_demo(demo: Screen) -> None:
    """Ten faults that processes have made are seen without scrolling."""
    printed = manage("shell", "-v", "0", "-c", FAULTS, environment=environment())
    faults = json.loads(printed.stdout)
    assert len(faults) == 10
    lines = {fault: line_of(demo, lock, kind) for fault, lock, kind in faults}
    for job in SIGNS["cron is dead"].locks:
        assert job in lines["cron is dead"]


@pytest.mark.parametrize("name", [STUCK, KILLED])
def test_dead_and_hung_jobs_are_two_clicks_from_their_release(
    screen: Screen, name: str
) -> None:
    """
    Two clicks release the lock of a dead or hung job.

    One click asks about this lock alone, and the other one releases it.
    """
    press(screen, name, "Release…")
    confirm(screen)
    assert state(name) is LockState.FREE
    told = "never reported its end, may still run"
    # The release of an expired lock acknowledges that, so it needs nobody any more.
    assert (told in screen.text("#result_list")) is (name == STUCK)


def test_failing_job_is_a_click_from_its_exception(screen: Screen) -> None:
    """The page of the run shows with which exception it failed."""
    press(screen, FAILING, "The run")
    screen.until(lambda: "ConnectTimeout" in screen.text("#content"))
    assert "did not answer within 30 seconds" in screen.text("#content")


def test_overdue_job_is_a_click_from_the_command_that_runs_it(screen: Screen) -> None:
    """A click on the finding unfolds what to check, and then the command."""
    finding = screen.lock(LATE).find_element("css selector", ".shedlock-findings li")
    assert "no run has begun" in finding.text
    assert "shedlock catch-up" not in finding.text
    finding.find_element("css selector", "summary").click()
    screen.until(lambda: "python manage.py shedlock catch-up" in finding.text)
    assert "check whether its scheduler runs" in finding.text
