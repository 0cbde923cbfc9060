"""The page that asks for a confirmation, on a phone and on a large screen."""

from __future__ import annotations

from typing import Any

import pytest

from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord
from tests.browser.test_console import Console
from tests.support.locks import state, take
from tests.support.operators import ALL, LIST

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

LONG_NAME = "tenants." + "averylongnamewithoutanyplacetobreak" * 4
LONG_HOST = "billing-worker-7d9f8b6c5-x2k4q.eu-central-1.compute.internal.example.com"
METRICS = {"height": 800, "deviceScaleFactor": 1, "mobile": False}
DEVICE = "Emulation.setDeviceMetricsOverride"
WIDER = """
const width = document.documentElement.clientWidth;
return Array.from(document.querySelectorAll("#content-main *"))
    .filter((box) => box.getClientRects().length > 0)
    .filter((box) => box.getBoundingClientRect().right > width + 0.5)
    .map((box) => box.outerHTML.slice(0, 100))
    .concat(document.documentElement.scrollWidth > width ? ["the page"] : []);
"""


@pytest.fixture
def console(browser: Any, live_server: Any) -> Console:
    console = Console(browser, live_server.url)
    console.log_in(*ALL)
    take(LONG_NAME)
    holder = f"{LONG_HOST}:4711:9f86d081884c7d65"
    LockRecord.objects.update(locked_by=holder, open_run=holder, usual=95)
    return console


@pytest.mark.parametrize("width", [390, 320])
def test_phone_shows_the_confirmation_within_its_width(
    console: Console, width: int
) -> None:
    """Nothing is wider than the screen, and a thumb hits the box and the buttons."""
    console.browser.execute_cdp_cmd(DEVICE, {"width": width, **METRICS})
    try:
        console.open(LIST)
        console.choose("release_selected", LONG_NAME)
        console.until(lambda: LONG_NAME in console.text("#content-main"))
        assert console.browser.execute_script(WIDER) == []
        targets = console.find_all(".submit-row > *, .shedlock-switch")
        assert len(targets) == 3
        for target in targets:
            assert target.rect["height"] >= 44
        box = console.find("input[name=process_is_gone]").rect
        assert min(box["height"], box["width"]) >= 24
    finally:
        console.browser.execute_cdp_cmd(DEVICE, {"width": 1280, **METRICS})


def test_release_waits_for_the_box(console: Console) -> None:
    """The page stays as long as the box is not ticked; its label ticks it."""
    console.open(LIST)
    console.choose("release_selected", LONG_NAME)
    console.find("textarea[name=reason]").send_keys("the pod is gone")
    console.find(".submit-row input[type=submit]").click()
    box = console.find("input[name=process_is_gone]")
    assert console.browser.switch_to.active_element == box
    assert state(LONG_NAME) is LockState.RUNNING
    console.find(".shedlock-switch span").click()
    assert box.is_selected()
    console.find(".submit-row input[type=submit]").click()
    console.until(lambda: "is released" in console.text(".messagelist"))
    assert state(LONG_NAME) is LockState.FREE


def test_command_is_copied_with_one_click(console: Console) -> None:
    """A click selects the whole line, and nothing else."""
    console.open(LIST)
    console.choose("release_selected", LONG_NAME)
    console.find(".shedlock-look code").click()
    chosen = console.browser.execute_script("return getSelection().toString()")
    assert chosen.strip() == "ps -p 4711 -o pid,lstart,etime,args"
