"""The pages of a lock, of runs and of what operators did, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.utils import quote
from django.test import override_settings
from django.urls import reverse

from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider
from django_shedlock.testing.contract.harness import force_release
from tests.support.locks import add_run
from tests.support.operators import ACTIONS, ALL, CHANGE, RUN, RUNS, operator
from tests.support.pages import ALIVE, FAILED, PAUSED, add_action, long_story
from tests.support.scenes import STUCK, bad_morning
from tests.support.waiting import PATIENCE, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

LIES_OUTSIDE = """
const wide = document.documentElement.clientWidth;
const shown = document.querySelectorAll("#content *, .breadcrumbs *");
const heads = Array.from(document.querySelectorAll("thead"));
const hidden = heads.filter((each) => getComputedStyle(each).clipPath !== "none");
return Array.from(shown)
    .filter((each) => each.checkVisibility() && !each.closest("svg, pre"))
    .filter((each) => !hidden.some((head) => head.contains(each)))
    .filter((each) => {
        const box = each.getBoundingClientRect();
        return box.width > 1 && (box.left < -1 || box.right > wide + 1);
    })
    .map((each) => each.outerHTML.slice(0, 200));
"""
"""What is cut at an edge of the window."""
IS_CUT = """
const boxes = document.querySelectorAll(
    "#content :is(th, td, dd, li, p), .results, .readonly"
);
return Array.from(boxes)
    .filter((each) => each.checkVisibility() && !each.closest("thead"))
    .filter((each) => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 1)
    .filter((each) => getComputedStyle(each).display !== "inline")
    .map((each) => each.outerHTML.slice(0, 200));
"""
"""What is wider than the box that it is in."""
CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d");
function light(color) {
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = Array.from(canvas.getImageData(0, 0, 1, 1).data, (c) => {
        const share = c / 255;
        return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function background(each) {
    for (let node = each; node; node = node.parentElement) {
        const color = getComputedStyle(node).backgroundColor;
        if (color !== "rgba(0, 0, 0, 0)") {
            return color;
        }
    }
    return "white";
}
const style = document.createElement("style");
style.textContent = "* { transition: none !important; }";
document.head.append(style);
return Array.from(document.querySelectorAll(arguments[0])).map((each) => {
    const pair = [light(getComputedStyle(each).color), light(background(each))].sort();
    return (pair[1] + 0.05) / (pair[0] + 0.05);
});
"""


class Pages:
    """The pages as somebody with a browser meets them."""

    def __init__(self, browser: Any, server: str):
        self.browser = browser
        self.server = server

    def log_in(self, *permissions: str) -> None:
        client = operator(*permissions)
        name = settings.SESSION_COOKIE_NAME
        cookie = {"name": name, "value": client.cookies[name].value, "url": self.server}
        self.browser.execute_cdp_cmd("Network.setCookie", cookie)

    def open(self, address: str) -> None:
        self.browser.get(self.server + address)
        assert self.find_all("#content")

    def be(self, width: int, theme: str = "light") -> None:
        """Have a screen of this width, and this theme."""
        metrics = {"height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": width, **metrics}
        )
        preferred = {"name": "prefers-color-scheme", "value": theme}
        self.browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [preferred]}
        )

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def find_all(self, selector: str) -> list[Any]:
        self.browser.implicitly_wait(0)
        found = self.browser.find_elements("css selector", selector)
        self.browser.implicitly_wait(PATIENCE)
        return list(found)

    def text(self, selector: str) -> str:
        return str(self.browser.find_element("css selector", selector).text)

    def until(self, condition: Callable[[], Any]) -> None:
        assert wait_for(condition), self.text("#content")

    def refresh_soon(self) -> None:
        """Let the page refresh itself every tenth of a second or so from now on."""
        self.browser.execute_script(
            "document.querySelector('[data-shedlock-every]')"
            ".dataset.shedlockEvery = '0.1';"
            "document.dispatchEvent(new Event('DOMContentLoaded'));"
        )


@pytest.fixture
def pages(browser: Any, live_server: Any) -> Iterator[Pages]:
    bad_morning()
    long_story()
    opened = Pages(browser, live_server.url)
    yield opened
    opened.be(1280)


def lock_page(name: str) -> str:
    return reverse(CHANGE, args=[quote(name)])


def addresses() -> list[str]:
    failed = LockRun.objects.exclude(exception_traceback="").latest("pk")
    locks = [lock_page(name) for name in (STUCK, ALIVE, PAUSED, FAILED)]
    return [*locks, reverse(RUN, args=[failed.pk]), reverse(RUNS), reverse(ACTIONS)]


@pytest.mark.parametrize("language", ["en", "de"])
def test_nothing_is_cut(pages: Pages, language: str) -> None:
    """Each page fits the screen with long names, and its colours can be read."""
    pages.log_in(*ALL)
    for address in addresses():
        with override_settings(LANGUAGE_CODE=language):
            pages.open(address)
        assert pages.run("return document.documentElement.lang") == language
        for width, theme in product([390, 1280], ["light", "dark"]):
            pages.be(width, theme)
            wide = pages.run("return document.documentElement.scrollWidth")
            assert wide <= width, address
            assert pages.run(LIES_OUTSIDE) == [], address
            assert pages.run(IS_CUT) == [], address
            contrasts = pages.run(CONTRAST, ".shedlock-badge, .shedlock-findings li")
            assert min(contrasts, default=21) >= 4.5, (address, theme)


def test_answers_stand_in_columns(pages: Pages) -> None:
    """The five answers have two columns, and one on a phone, each below the other."""
    pages.log_in(*ALL)
    pages.open(lock_page(FAILED))
    script = (
        "return Array.from(document.querySelectorAll('#shedlock-answers dd'),"
        " (each) => [each.getBoundingClientRect().left, each.offsetTop])"
    )
    for width, columns in ((1280, [3, 2]), (390, [5])):
        pages.be(width)
        tops: dict[float, list[int]] = {}
        for left, top in pages.run(script):
            tops.setdefault(left, []).append(top)
        assert [len(each) for each in tops.values()] == columns
        for each in tops.values():
            assert each == sorted(set(each))


def test_chart_has_a_constant_height(pages: Pages) -> None:
    """The chart of durations is as high for any number of runs, on any screen."""
    pages.log_in(*ALL)
    heights = set()
    for name in (STUCK, ALIVE, FAILED):
        pages.open(lock_page(name))
        for width in (390, 1280):
            pages.be(width)
            chart = "document.querySelector('.shedlock-chart-durations')"
            heights.add(pages.run(f"return {chart}.clientHeight"))
    assert heights == {100}


def test_bar_leads_to_its_run(pages: Pages) -> None:
    """The failed run's bar opens its page, with the tracebacks of it and its cause."""
    pages.log_in(*ALL)
    pages.open(lock_page(FAILED))
    bar = pages.find_all("a.shedlock-mark.shedlock-failed .shedlock-body")[0]
    bar.click()
    pages.until(lambda: pages.find_all(".shedlock-traceback pre"))
    traceback = pages.text(".shedlock-traceback pre")
    assert "FileNotFoundError" in traceback
    assert "RuntimeError: the export is incomplete" in traceback


def test_page_refreshes_itself(pages: Pages) -> None:
    """A page shows what happens without a reload, and what is unfolded stays so."""
    pages.log_in(*ALL)
    pages.open(lock_page(STUCK))
    pages.run("window.isSame = true; document.querySelector('details').open = true")
    pages.refresh_soon()
    assert force_release(get_provider(), STUCK)
    pages.until(lambda: "free" in pages.text("#shedlock-answers .shedlock-state"))
    pages.until(lambda: not pages.find_all("button[value=release_selected]"))
    add_action(STUCK, reason="node of web-2 is gone")
    pages.until(lambda: "node of web-2 is gone" in pages.text("#shedlock-audit-log"))
    add_run(STUCK, RunOutcome.FAILED, locked_by="web-9:1:a")
    pages.until(lambda: "web-9" in pages.text("#shedlock-runs"))
    assert pages.run("return window.isSame") is True
    assert pages.run("return document.querySelector('details').open") is True


def test_buttons_of_the_page_ask_to_confirm(pages: Pages) -> None:
    """The buttons of a lock's page are for this lock, though Django's form has them."""
    pages.log_in(*ALL)
    pages.open(lock_page(STUCK))
    pages.find_all("button[value=release_selected]")[0].click()
    pages.until(lambda: STUCK in pages.text(".shedlock-held h2"))
    assert LockRecord.objects.filter(name=STUCK).with_status().get().state == "running"


@pytest.mark.parametrize("view", [RUNS, ACTIONS])
def test_phone_shows_first_what_came_of_it(pages: Pages, view: str) -> None:
    """Each row is a card: the outcome is its first line, and no line is empty."""
    pages.log_in(*ALL)
    pages.be(390)
    pages.open(reverse(view))
    first = pages.find_all("#result_list tbody tr")[0]
    tops = {
        cell.get_attribute("class").split()[0]: cell.location["y"]
        for cell in first.find_elements("css selector", "td, th")
        if cell.is_displayed()
    }
    outcome = "field-how_it_ended" if view == RUNS else "field-shown_result"
    assert tops[outcome] == min(tops.values())
    empty = pages.find_all("#result_list .shedlock-nothing")
    assert not any(each.is_displayed() for each in empty)
