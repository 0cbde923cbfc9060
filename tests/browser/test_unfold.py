"""The console with django-unfold, which brings its own styles instead of Django's."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.browser.test_console import Console
from tests.support.operators import LIST
from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.scenes import HOLDER, KILLED, STUCK
from tests.support.waiting import STARTUP_PATIENCE, wait_for

pytest.importorskip("unfold", reason="django-unfold is in the group 'test-all'")

pytestmark = pytest.mark.once

OPERATOR, PASSWORD = "ada", "console"
SERVE = f"""
import sys

import django

django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command, execute_from_command_line

from tests.support.scenes import bad_morning

call_command("migrate", verbosity=0)
User.objects.create_superuser("{OPERATOR}", password="{PASSWORD}")
bad_morning()
execute_from_command_line(["manage.py", "runserver", "--noreload", sys.argv[1]])
"""


@dataclass(frozen=True)
class UnfoldSite:
    """A site with django-unfold in its own process: unfold replaces the admin."""

    url: str
    file: Path

    def open_run(self, name: str) -> str | None:
        """Return the acquisition of this lock whose run is not accounted for."""
        query = "SELECT open_run FROM shedlock WHERE name = ?"
        with closing(
            sqlite3.connect(self.file, timeout=STARTUP_PATIENCE)
        ) as connection:
            [[open_run]] = connection.execute(query, [name])
        return open_run and str(open_run)


@contextmanager
def unfold_site(folder: Path) -> Iterator[UnfoldSite]:
    """Serve the bad morning of ``scenes`` while the body runs."""
    address, file = f"127.0.0.1:{free_port()}", folder / "unfold.sqlite3"
    path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = {
        "DJANGO_SETTINGS_MODULE": "tests.browser.unfold_settings",
        "SHEDLOCK_UNFOLD_FILE": str(file),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONWARNINGS": "ignore",
    }
    log = folder / "unfold.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVE, address],
            env=os.environ | variables,
            stdout=output,
            stderr=output,
        )
    try:
        url = f"http://{address}"
        wait_for(
            lambda: server.poll() is not None or _answers(f"{url}/admin/login/"),
            STARTUP_PATIENCE,
        )
        assert server.poll() is None, log.read_text()
        yield UnfoldSite(url, file)
    finally:
        server.kill()
        server.wait(STARTUP_PATIENCE)


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=STARTUP_PATIENCE) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


READABLE_CONTRAST = 4.5
VISIBLE_CONTRAST = 3
"""What the Web Content Accessibility Guidelines ask of texts, and of fields."""
EDGE_CONTRAST = 1.2
"""That of a button, whose text has more."""

LOOKS = r"""
const canvas = document.createElement("canvas").getContext("2d");
const parsed = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return Array.from(canvas.getImageData(0, 0, 1, 1).data);
};
const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
        const colour = parsed(getComputedStyle(each).backgroundColor);
        if (colour[3] > 0) {
            return colour;
        }
    }
    return [255, 255, 255, 255];
};
const luminance = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((part) => {
        const share = part / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const contrast = (one, other) => {
    const [darker, brighter] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (brighter + 0.05) / (darker + 0.05);
};
const look = (box) => {
    box.style.transition = "none";
    const style = getComputedStyle(box);
    const around = behind(box.parentElement);
    const isThere = parseFloat(style.borderTopWidth) && style.borderTopStyle !== "none";
    const border = isThere ? contrast(parsed(style.borderTopColor), around) : 1;
    const {width, height} = box.getBoundingClientRect();
    return {
        what: box.outerHTML.slice(0, 80),
        text: contrast(parsed(style.color), behind(box)),
        edge: Math.max(border, contrast(behind(box), around)),
        size: Math.min(width, height),
        drawnByBrowser: box.type === "checkbox" && style.appearance !== "none",
    };
};
const hidden = {visibilityProperty: true, opacityProperty: true};
const isShown = (box) => box.checkVisibility(hidden);
return Array.from(document.querySelectorAll(arguments[0])).filter(isShown).map(look);
"""
"""The contrasts of boxes: of their texts to what is behind, and of their edges."""


class UnfoldConsole(Console):
    """The pages of the other process's site."""

    def __init__(self, browser: Any, site: UnfoldSite):
        super().__init__(browser, site.url)
        self.site = site

    def enter(self) -> None:
        """Log in by the site's own page."""
        self.open("admin:index")
        self.find("[name=username]").send_keys(OPERATOR)
        self.find("[name=password]").send_keys(PASSWORD)
        self.find("[type=submit]").click()
        self.until(lambda: "Scheduler locks" in self.text("#main"))

    def use(self, theme: str) -> None:
        """Choose a theme, as the menu of django-unfold does."""
        script = "localStorage.setItem('adminTheme', JSON.stringify(arguments[0]))"
        self.browser.execute_script(script, theme)

    def looks(self, selector: str) -> list[dict[str, Any]]:
        """Return how each of these boxes looks that is shown; see ``LOOKS``."""
        found = self.browser.execute_script(LOOKS, selector)
        assert len(found) > 1
        for look in found:
            assert look["text"] >= READABLE_CONTRAST, look
        return list(found)

    def assert_are_buttons(self, selector: str) -> None:
        """Fail unless people see the edges of all these, and can hit them."""
        for look in self.looks(selector):
            assert look["edge"] > EDGE_CONTRAST, look
            assert look["size"] >= 24, look

    def press(self, name: str, button: str) -> None:
        """Press a button of a lock in the list."""
        self.open(LIST)
        buttons = self.lock(name).find_elements("css selector", "button")
        [chosen] = [each for each in buttons if each.text == button]
        chosen.click()
        self.until(lambda: name in self.text(".shedlock-held"))

    def resize(self, width: int) -> None:
        metrics = {"height": 900, "deviceScaleFactor": 1, "mobile": False}
        command = "Emulation.setDeviceMetricsOverride"
        self.browser.execute_cdp_cmd(command, {"width": width, **metrics})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnfoldSite]:
    with unfold_site(tmp_path_factory.mktemp("unfold")) as served:
        yield served


@pytest.fixture
def console(browser: Any, site: UnfoldSite) -> Iterator[UnfoldConsole]:
    console = UnfoldConsole(browser, site)
    console.enter()
    yield console
    console.resize(1280)
    browser.execute_script("localStorage.clear()")


def test_lock_is_released_from_the_list(console: UnfoldConsole) -> None:
    """An operator gives a reason, ticks the box, and frees the lock, by a phone."""
    assert console.site.open_run(STUCK) == HOLDER
    console.press(STUCK, "Release…")
    console.resize(390)
    wide = "return document.documentElement.scrollWidth"
    assert console.browser.execute_script(wide) <= 390
    for target in console.find_all(".submit-row > *, .shedlock-switch"):
        assert target.rect["height"] >= 44, target.text
    console.find("textarea[name=reason]").send_keys("node of web-2 is gone")
    box = console.find("input[name=process_is_gone]")
    box.click()
    assert box.is_selected()
    console.find(".submit-row input[type=submit]").click()
    console.until(lambda: "is released" in console.text("#main"))
    assert console.site.open_run(STUCK) is None


def test_pages_are_legible(console: UnfoldConsole) -> None:
    """Fields and buttons have edges, and texts are readable, in both themes."""
    for theme in ("light", "dark"):
        console.use(theme)
        console.open(LIST)
        is_dark = "return document.documentElement.classList.contains('dark')"
        assert console.browser.execute_script(is_dark) is (theme == "dark")
        console.assert_are_buttons(".shedlock-cures .button, .shedlock-refresh .button")
        console.browser.find_element("link text", KILLED).click()
        console.until(lambda: bool(console.find_all("#shedlock-actions .button")))
        console.assert_are_buttons("#content .button")
        console.press(KILLED, "Release…")
        console.assert_are_buttons(".submit-row > *")
        console.looks(".shedlock-confirmation :is(p, h2, dt, dd, code, label)")
        [reason, box] = console.looks("textarea, input[type=checkbox]")
        assert reason["edge"] >= VISIBLE_CONTRAST, reason
        assert box["edge"] >= VISIBLE_CONTRAST or box["drawnByBrowser"], box
        assert box["size"] >= 24, box


def test_action_is_chosen_from_the_menu(console: UnfoldConsole) -> None:
    """The bar of actions shows its button once an action is chosen."""
    console.open(LIST)
    assert not console.find("button[name=index]").is_displayed()
    console.choose("release_selected", KILLED)
    console.until(lambda: KILLED in console.text(".shedlock-held"))
