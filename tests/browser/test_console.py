"""The console in a real browser, as an operator and as others use it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from django_shedlock.console.admin import rows
from django_shedlock.locks.status import LockState
from django_shedlock.providers import get_provider
from django_shedlock.testing.contract.harness import force_extend
from tests.support.locks import expire, force_release, state, take
from tests.support.operators import ALL, CHANGE, HOSTILE, LIST
from tests.support.scenes import HOLDER, STUCK, bad_morning
from tests.support.waiting import PATIENCE, STARTUP_PATIENCE

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.once,
]

PASSWORD = "console"
NEARLY_THREE_HOURS = r"2h5\dm"
RUNNING = ".shedlock-states a[href*='state=running']"
"""The toolbar's link to the locks of running jobs, with their number."""
BARS = ".shedlock-chart-durations .shedlock-mark"
"""The last runs on a lock's page."""


def make_user(*permissions: str) -> User:
    user = User.objects.create_user("ada", password=PASSWORD, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


class Console:
    """The pages as somebody with a mouse and a keyboard meets them."""

    def __init__(self, browser: Any, server: str):
        self.browser = browser
        self.server = server

    def log_in(self, *permissions: str) -> None:
        """Log in without the page for it."""
        client = Client()
        client.force_login(make_user(*permissions))
        name = settings.SESSION_COOKIE_NAME
        cookie = {"name": name, "value": client.cookies[name].value, "url": self.server}
        self.browser.execute_cdp_cmd("Network.setCookie", cookie)

    def log_in_by_hand(self, *permissions: str) -> None:
        make_user(*permissions)
        self.open("admin:login")
        self.find("[name=username]").send_keys("ada")
        self.find("[name=password]").send_keys(PASSWORD)
        self.find("input[type=submit]").click()
        self.until(lambda: "ADA" in self.text("#user-tools").upper())

    def open(self, view: str, *arguments: str, query: str = "") -> None:
        self.browser.get(self.server + reverse(view, args=arguments) + query)

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def find_all(self, selector: str) -> list[Any]:
        self.browser.implicitly_wait(0)
        found = self.browser.find_elements("css selector", selector)
        self.browser.implicitly_wait(PATIENCE)
        return list(found)

    def text(self, selector: str) -> str:
        return str(self.find(selector).text)

    def texts(self, selector: str) -> list[str]:
        return [element.text for element in self.find_all(selector)]

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what another page, or the page's script, has to do first."""
        from selenium.common.exceptions import WebDriverException

        deadline = time.monotonic() + STARTUP_PATIENCE
        while True:
            try:
                if condition():
                    return
            except WebDriverException:  # of a page that goes while it is read
                pass
            assert time.monotonic() < deadline, self.text("body")[:2000]
            time.sleep(0.05)

    def row(self, name: str) -> Any:
        """Return the row of a lock."""
        return self.find(f'input.action-select[value="{name}"]').find_element(
            "xpath", "ancestor::tr"
        )

    def lock(self, name: str) -> Any:
        """Return all of a lock: its row, and what is found."""
        return self.row(name).find_element("xpath", "ancestor::tbody")

    def choose(self, action: str, *names: str) -> None:
        """Select locks, choose an action for them, and go."""
        for name in names:
            self.row(name).find_element("css selector", "input").click()
        self.find(f"select[name=action] option[value={action}]").click()
        self.find("button[name=index]").click()

    def refresh_soon(self) -> None:
        """Let the page refresh itself every half second or so from now on."""
        self.browser.execute_script(
            "document.querySelector('[data-shedlock-every]')"
            ".dataset.shedlockEvery = '0.5';"
            "document.dispatchEvent(new Event('DOMContentLoaded'));"
        )


@pytest.fixture
def console(browser: Any, live_server: Any) -> Console:
    bad_morning()
    return Console(browser, live_server.url)


def test_operator_finds_the_stuck_job_and_frees_it(console: Console) -> None:
    """An operator learns which job is stuck, where and since when, and frees it."""
    console.log_in_by_hand(*ALL)
    console.open(LIST)
    states = console.texts("td.field-current_state")
    assert [text.split()[0] for text in states] == [
        "free",
        "expired",
        "running",
        "free",
        "running",
        "held",
    ]
    console.find(RUNNING).click()
    console.until(lambda: len(console.texts("th.field-shown_name")) == 2)
    stuck = console.lock(STUCK).text
    for clue in ("Runs too long", "web-2:4711", r"for 2h(\d+m)?", "usually takes"):
        assert re.search(clue, stuck)
    console.browser.find_element("link text", STUCK).click()
    console.until(lambda: "Last runs" in console.text(".shedlock-runs"))
    assert len(console.find_all(BARS)) == 15
    console.find("button[value=release_selected]").click()
    console.until(lambda: "may still be running" in console.text("#content"))
    assert HOLDER in console.text("#content")
    assert state(STUCK) is LockState.RUNNING
    console.find("textarea[name=reason]").send_keys("node of web-2 is gone")
    console.find("input[name=process_is_gone]").click()
    console.find("input[type=submit]").click()
    console.until(lambda: "is released" in console.text(".messagelist"))
    assert state(STUCK) is LockState.FREE
    console.open(CHANGE, STUCK)
    console.browser.find_element("link text", "OPERATORS' ACTIONS").click()
    console.until(lambda: "node of web-2 is gone" in console.text("#result_list"))
    assert HOLDER in console.text("#result_list")


def test_operator_extends_a_lease(console: Console) -> None:
    """Two locks are extended at once, from the list, with a reason."""
    console.log_in(*ALL)
    console.open(LIST)
    console.choose("extend_selected", STUCK, "search.reindex")
    console.until(lambda: console.text("#content").startswith("Extend"))
    lease = console.find("input[name=lock_at_most_for]")
    lease.clear()
    lease.send_keys("soon")
    console.find("textarea[name=reason]").send_keys("slow today")
    console.find("input[type=submit]").click()
    console.until(lambda: "Enter a duration" in console.text(".errorlist"))
    lease = console.find("input[name=lock_at_most_for]")
    lease.clear()
    lease.send_keys("3h")
    console.find("input[type=submit]").click()
    console.until(lambda: console.text(".messagelist").count("is held for") == 2)
    assert LogEntry.objects.filter(change_message__contains="slow today").count() == 2
    assert re.search(NEARLY_THREE_HOURS, console.row(STUCK).text)


def test_viewer_can_do_nothing(console: Console) -> None:
    """Without the permissions there is no action, and a forged POST is refused."""
    console.log_in("view_lockrecord", "view_lockrun")
    console.open(CHANGE, STUCK)
    console.until(lambda: STUCK in console.text("#content"))
    assert not console.find_all("button[name=action]")
    console.open(LIST)
    console.until(lambda: STUCK in console.text("#result_list"))
    assert not console.find_all("select[name=action], input.action-select")
    console.browser.execute_script(
        """
        window.isForging = true;
        const form = document.getElementById("changelist-form");
        for (const [name, value] of Object.entries(arguments[0])) {
            const field = document.createElement("input");
            form.appendChild(Object.assign(field, {name, value}));
        }
        form.submit();
        """,
        {
            "action": "release_selected",
            "confirmed": "yes",
            "_selected_action": STUCK,
            "locked_by": HOLDER,
            "reason": "forged",
        },
    )
    is_forging = "return window.isForging === true"
    console.until(lambda: not console.browser.execute_script(is_forging))
    console.until(lambda: STUCK in console.text("#result_list"))
    assert state(STUCK) is LockState.RUNNING
    assert not LogEntry.objects.exists()


def test_name_with_markup_is_text(console: Console) -> None:
    """A hostile name runs no script: not in the list, nor anywhere on the way."""
    take(HOSTILE)
    console.log_in(*ALL)
    console.open(LIST)
    console.until(lambda: HOSTILE in console.texts("th.field-shown_name"))
    console.browser.find_element("link text", HOSTILE).click()
    console.until(lambda: HOSTILE in console.text("#content"))
    console.find("button[value=release_selected]").click()
    console.until(lambda: HOSTILE in console.texts(".shedlock-held h2"))
    console.find("textarea[name=reason]").send_keys(HOSTILE)
    console.find("input[name=process_is_gone]").click()
    console.find("input[type=submit]").click()
    console.until(lambda: HOSTILE in console.text(".messagelist"))
    assert state(HOSTILE) is LockState.FREE


def test_expired_confirmation_changes_nothing(console: Console) -> None:
    """A lock that was taken anew after the page was opened stays held."""
    console.log_in(*ALL)
    console.open(LIST)
    console.choose("release_selected", STUCK)
    console.until(lambda: "may still be running" in console.text("#content"))
    force_release(get_provider(), STUCK)
    take(STUCK)
    console.find("textarea[name=reason]").send_keys("too late")
    console.find("input[name=process_is_gone]").click()
    console.find("input[type=submit]").click()
    console.until(lambda: "is not released" in console.text(".messagelist"))
    assert state(STUCK) is LockState.RUNNING
    assert not LogEntry.objects.exists()


def test_list_refreshes_itself(console: Console) -> None:
    """A refresh shows new states, and keeps filter, selection and keyboard focus."""
    console.log_in(*ALL)
    console.open(LIST, query="?last=succeeded")
    console.row("search.reindex").find_element("css selector", "input").click()
    console.browser.execute_script(
        "document.querySelector('#result_list th a').focus()"
    )
    focused = console.browser.switch_to.active_element.text
    take("new")
    console.refresh_soon()
    force_release(get_provider(), "mirror.pull")
    force_extend(get_provider(), "search.reindex", timedelta(hours=3))
    console.until(
        lambda: bool(re.search(NEARLY_THREE_HOURS, console.row("search.reindex").text))
    )
    console.until(lambda: "Updated" in console.text(".shedlock-refresh"))
    box = console.row("search.reindex").find_element("css selector", "input")
    assert box.is_selected()
    assert "1 of" in console.text(".action-counter")
    assert console.browser.switch_to.active_element.text == focused
    assert "new" not in console.texts("th.field-shown_name")
    assert "last=succeeded" in console.browser.current_url


def test_locks_come_into_the_list_by_themselves(console: Console) -> None:
    """A lock that is new appears without a reload, in its place."""
    console.log_in(*ALL)
    console.open(LIST)
    console.until(lambda: STUCK in console.texts("th.field-shown_name"))
    console.browser.execute_script("window.sameDocument = true")
    console.refresh_soon()
    take("a.new")
    console.until(lambda: "a.new" in console.texts("th.field-shown_name"))
    assert console.texts("th.field-shown_name").index("a.new") == 4
    assert console.browser.execute_script("return window.sameDocument") is True


def test_new_lock_takes_no_focus_away(console: Console) -> None:
    """While the keyboard is in the list no row moves; a new one comes after that."""
    console.log_in(*ALL)
    console.open(LIST)
    run = console.browser.execute_script
    run("document.querySelector('#result_list tbody a').focus()")
    focused = console.browser.switch_to.active_element.text
    console.refresh_soon()
    take("a.new")
    console.until(lambda: console.text(f"{RUNNING} strong") == "3")
    assert console.browser.switch_to.active_element.text == focused
    assert "a.new" not in console.texts("th.field-shown_name")
    run("document.activeElement.blur()")
    console.until(lambda: "a.new" in console.texts("th.field-shown_name"))


def test_lock_that_came_by_itself_can_be_selected(console: Console) -> None:
    """A lock that came by a refresh is counted as selected, alone and with all."""
    console.log_in(*ALL)
    console.open(LIST)
    console.until(lambda: STUCK in console.texts("th.field-shown_name"))
    console.refresh_soon()
    take("a.new")
    console.until(lambda: "a.new" in console.texts("th.field-shown_name"))
    console.row("a.new").find_element("css selector", "input").click()
    console.until(lambda: console.text(".action-counter") == "1 of 7 selected")
    console.find("#action-toggle").click()
    console.until(lambda: console.text(".action-counter") == "7 of 7 selected")
    assert console.row("a.new").find_element("css selector", "input").is_selected()


def test_lock_that_leaves_takes_its_selection_along(console: Console) -> None:
    """What is no longer in the filtered list is not counted as selected."""
    console.log_in(*ALL)
    console.open(LIST, query="?state=running")
    console.row("search.reindex").find_element("css selector", "input").click()
    console.until(lambda: console.text(".action-counter") == "1 of 2 selected")
    console.browser.execute_script("document.activeElement.blur()")
    console.refresh_soon()
    force_release(get_provider(), "search.reindex")
    console.until(lambda: console.text(".action-counter") == "0 of 1 selected")


def test_half_typed_search_stays(console: Console) -> None:
    """A list that becomes empty, and full again, takes away nothing typed."""
    console.log_in(*ALL)
    console.open(LIST, query="?state=held+at+least")
    console.until(lambda: "rates.refresh" in console.texts("th.field-shown_name"))
    console.find("#searchbar").send_keys("half typed")
    console.refresh_soon()
    force_release(get_provider(), "rates.refresh")
    console.until(lambda: not console.texts("th.field-shown_name"))
    take("new", lock_at_least_for=timedelta(minutes=1)).release()
    console.until(lambda: console.texts("th.field-shown_name") == ["new"])
    assert console.find("#searchbar").get_attribute("value") == "half typed"


def test_pausing_counts_also_for_an_answer_on_its_way(console: Console) -> None:
    """A list that is paused stays as it is, though the server was asked before."""
    console.log_in(*ALL)
    console.open(LIST)
    console.until(lambda: STUCK in console.texts("th.field-shown_name"))
    console.browser.execute_script(
        "const real = window.fetch;"
        "window.fetch = (...asked) => {"
        "  window.asked = true;"
        "  return new Promise((answer) => { window.answer = answer; })"
        "    .then(() => real(...asked))"
        "    .finally(() => setTimeout(() => { window.answered = true; }, 500));"
        "};"
    )
    console.refresh_soon()
    run = console.browser.execute_script
    console.until(lambda: bool(run("return window.asked")))
    console.find(".shedlock-refresh button").click()
    take("a.new")
    run("window.answer()")
    console.until(lambda: bool(run("return window.answered")))
    assert "a.new" not in console.texts("th.field-shown_name")
    run("localStorage.clear()")


def test_refresh_can_be_paused(console: Console) -> None:
    """A list that is paused stays as it is until somebody resumes it."""
    console.log_in(*ALL)
    console.open(LIST)
    console.find(".shedlock-refresh button").click()
    console.until(lambda: console.text(".shedlock-refresh button") == "Refresh again")
    run = console.browser.execute_script
    run(
        "const real = window.fetch;"
        "window.asked = 0;"
        "window.fetch = (...given) => { window.asked++; return real(...given); };"
        "window.turns = 0;"
        "const start = window.setTimeout;"
        "window.setTimeout = (turn, ms) =>"
        "  start(() => { turn(); window.turns++; }, ms);"
    )
    console.refresh_soon()
    console.until(lambda: bool(run("return window.turns")))
    assert run("return window.asked") == 0
    console.find(".shedlock-refresh button").click()
    console.until(lambda: bool(run("return window.asked")))
    run("localStorage.clear()")


WATCHED_TIMERS = """
window.pauses = [];
const start = window.setTimeout;
window.setTimeout = (turn, ms) => {
    window.pauses.push(ms);
    return start(turn, ms);
};
"""
SLOW_ANSWERS = """
const real = window.fetch;
window.asked = 0;
window.fetch = (...given) => {
    window.asked++;
    return new Promise((answer) => start(answer, arguments[0]))
        .then(() => real(...given));
};
"""


def test_refresh_follows_the_time_of_the_last_answer(console: Console) -> None:
    """The pause is ten times as long as the last answer took, at least ten seconds."""
    console.log_in(*ALL)
    console.open(LIST)
    run = console.browser.execute_script
    run(WATCHED_TIMERS + SLOW_ANSWERS, 1500)
    again = "document.dispatchEvent(new Event('DOMContentLoaded'));"
    run(again)
    assert run("return window.pauses") == [10_000]
    console.refresh_soon()
    console.until(lambda: run("return window.pauses.length") > 2)
    first, second, third = run("return window.pauses")
    assert (first, second) == (10_000, 500)
    assert third >= 15_000
    assert run("return window.asked") == 1


def test_hidden_page_asks_nothing(console: Console) -> None:
    """A tab that nobody sees asks when it is shown again, unless it has just asked."""
    console.log_in(*ALL)
    console.open(LIST)
    run = console.browser.execute_script
    run(WATCHED_TIMERS + SLOW_ANSWERS, 0)
    run(
        "window.hides = true; window.turns = 0;"
        "Object.defineProperty(document, 'hidden', {get: () => window.hides});"
        "const watched = window.setTimeout;"
        "window.setTimeout = (turn, ms) =>"
        "  watched(() => { turn(); window.turns++; }, ms);"
    )
    console.refresh_soon()
    console.until(lambda: bool(run("return window.turns")))
    assert run("return window.asked") == 0
    show = "document.dispatchEvent(new Event('visibilitychange'));"
    run("document.querySelector('[data-shedlock-every]').dataset.shedlockEvery = '60';")
    run("window.hides = false;" + show)
    console.until(lambda: run("return window.pauses.at(-1)") >= 60_000)
    asked = run("return window.asked")
    run(show)
    assert run("return window.asked") == asked == 1


def test_long_list_refreshes_what_it_shows(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long list refreshes its states and findings; all else needs a reload."""
    monkeypatch.setattr(rows, "WHOLE_REFRESH_LOCK_LIMIT", 3)
    console.log_in(*ALL)
    console.open(LIST)
    console.until(lambda: STUCK in console.texts("th.field-shown_name"))
    assert "Reload the page for new locks" in console.text(".shedlock-refresh")
    running = console.text(f"{RUNNING} strong")
    take("a.new")
    take("b.dead")
    expire("b.dead")
    force_release(get_provider(), STUCK)
    console.browser.execute_script("document.activeElement.blur()")
    console.refresh_soon()
    console.until(lambda: "b.dead" in console.texts("th.field-shown_name"))
    console.until(lambda: "Updated" in console.text(".shedlock-refresh"))
    assert "free" in console.row(STUCK).text
    assert "a.new" not in console.texts("th.field-shown_name")
    assert console.text(f"{RUNNING} strong") == running
    console.open(LIST)
    console.until(lambda: "a.new" in console.texts("th.field-shown_name"))


def test_refresh_that_fails_is_said_aloud(console: Console) -> None:
    """If a refresh fails, the list stays, and a screen reader reads a line about it."""
    console.log_in(*ALL)
    console.open(LIST)
    run = console.browser.execute_script
    run("window.real = window.fetch; window.fetch = () => Promise.reject(Error())")
    console.refresh_soon()
    console.until(lambda: "Not refreshed since" in console.text("[role=alert]"))
    assert "the server did not answer" in console.text("[role=alert]")
    assert STUCK in console.texts("th.field-shown_name")
    run("window.fetch = window.real")
    console.until(lambda: "Updated" in console.text(".shedlock-refresh"))
    assert not console.find_all("[role=alert]")


def test_server_that_hangs_is_said_in_plain_sight(console: Console) -> None:
    """The wait for a server is limited, and its end is shown where the reader is."""
    console.log_in(*ALL)
    console.open(LIST)
    run = console.browser.execute_script
    run(
        "window.fetch = (address, {signal}) => new Promise((answer, fail) => {"
        "  window.asked = (window.asked || 0) + 1;"
        "  signal.addEventListener('abort', () => fail(signal.reason));"
        "});"
        "document.querySelector('[data-shedlock-limit]').dataset.shedlockLimit = '0.1';"
        "document.body.style.minHeight = '5000px';"
        "window.scrollTo(0, 4000);"
    )
    console.refresh_soon()
    console.until(lambda: "Not refreshed since" in console.text("[role=alert]"))
    place = run(
        "const {top, bottom} = document.querySelector('[role=alert]')"
        ".getBoundingClientRect(); return [top, window.innerHeight - bottom]"
    )
    assert min(place) > 0
    console.until(lambda: run("return window.asked") > 1)


def test_logout_is_said(console: Console) -> None:
    """The page to log in is never shown as if it were the list."""
    console.log_in(*ALL)
    console.open(LIST)
    console.until(lambda: STUCK in console.texts("th.field-shown_name"))
    console.browser.delete_all_cookies()
    console.refresh_soon()
    console.until(lambda: "you are logged out" in console.text("[role=alert]"))
    assert STUCK in console.texts("th.field-shown_name")


def test_new_finding_is_announced(console: Console) -> None:
    """A live region names its lock and what it is; what was known is not repeated."""
    console.log_in(*ALL)
    console.open(LIST)
    console.until(lambda: STUCK in console.texts("th.field-shown_name"))
    take("a.new")
    expire("a.new")
    console.browser.execute_script("document.activeElement.blur()")
    console.refresh_soon()
    region = console.find("[aria-live=polite]")
    heard = "New findings: a.new: Expired"
    console.until(lambda: region.get_attribute("textContent") == heard)


def test_screen_reader_learns_which_lock(console: Console) -> None:
    """Each button names its lock, and no link is inside an image."""
    console.log_in(*ALL)
    console.open(LIST)
    labels = [
        button.get_attribute("aria-label")
        for button in console.find_all(".shedlock-cures > *")
    ]
    assert f"Release… {STUCK}" in labels
    assert all(len(label.split()) > 1 for label in labels)
    console.open(CHANGE, STUCK)
    console.until(lambda: bool(console.find_all(BARS)))
    for button in console.find_all(".shedlock-actions button"):
        assert button.get_attribute("aria-label").endswith(STUCK)
    assert not console.find_all("[role=img] a")


def test_keyboard_alone_frees_a_lock(console: Console) -> None:
    """A lock can be released without a mouse."""
    from selenium.webdriver.common.keys import Keys

    console.log_in(*ALL)
    console.open(CHANGE, STUCK)
    button = console.find("button[value=release_selected]")
    console.browser.execute_script("arguments[0].focus()", button)
    button.send_keys(Keys.ENTER)
    reason = console.find("textarea[name=reason]")
    console.browser.execute_script("arguments[0].focus()", reason)
    reason.send_keys("gone", Keys.TAB)
    tick = console.browser.switch_to.active_element
    tick.send_keys(Keys.SPACE, Keys.TAB)
    console.browser.switch_to.active_element.send_keys(Keys.ENTER)
    console.until(lambda: "is released" in console.text(".messagelist"))
    assert state(STUCK) is LockState.FREE


@pytest.mark.parametrize("width", [390, 320])
def test_phone_shows_the_list_without_scrolling_sideways(
    console: Console, width: int
) -> None:
    """On a narrow screen each lock is a card within the screen's width."""
    console.log_in(*ALL)
    metrics = {"height": 800, "deviceScaleFactor": 1, "mobile": False}
    command = "Emulation.setDeviceMetricsOverride"
    console.browser.execute_cdp_cmd(command, {"width": width, **metrics})
    try:
        console.open(LIST)
        console.until(lambda: STUCK in console.texts("th.field-shown_name"))
        edge = "return document.querySelector('#result_list').scrollWidth"
        assert console.browser.execute_script(edge) <= width
        assert console.row(STUCK).is_displayed()
    finally:
        console.browser.execute_cdp_cmd(command, {"width": 1280, **metrics})
