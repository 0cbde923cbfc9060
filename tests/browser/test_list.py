"""The lists and the timeline fit each screen, language, theme and name."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from operator import itemgetter
from pathlib import Path
from string import ascii_letters
from typing import Any

import pytest
from django.test import override_settings

from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.schedules.state import Trigger
from django_shedlock.sql.fields import DatabaseNow
from tests.browser.test_console import Console
from tests.support.last_runs import end_run
from tests.support.lateness import HOUR
from tests.support.locks import add_run, pause
from tests.support.operators import ACTIONS, ALL, CHANGE, LIST, RUNS, TIMELINE
from tests.support.pages import add_action
from tests.support.paths import ROOT
from tests.support.scenes import MINUTE, STUCK, bad_morning
from tests.test_translations import needs_gettext

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.once,
]

PACKAGE = ROOT / "django_shedlock"
ENGLISH = [
    folder / "locale" / "en" / "LC_MESSAGES" / "django.po"
    for folder in (PACKAGE, PACKAGE / "console")
]
LANGUAGE, LOCALE = "ar-xb", "ar_XB"
"""What Unicode calls English texts that run from right to left."""
ALPHABET = "ابتثجحخدذرزسشصضطظعغفقكلمنه"
LETTERS = str.maketrans(ascii_letters, ALPHABET + ALPHABET)
KEPT = re.compile(r"(%\(\w+\)s|%%|<[^>]+>|\\.)")
"""Placeholders, HTML and escapes."""
TRANSLATION = re.compile(r'^(msgstr(?:\[\d\])?) "(.*)"$', re.MULTILINE)


def turned(text: str) -> str:
    """Return the text with an Arabic letter for each English one."""
    parts = KEPT.split(text)
    parts[::2] = [part.translate(LETTERS) for part in parts[::2]]
    return "".join(parts)


@contextmanager
def right_to_left(folder: Path) -> Iterator[None]:
    """Make the language in this folder from the English catalog, and speak it."""
    source = folder / LOCALE / "LC_MESSAGES" / "django.po"
    source.parent.mkdir(parents=True)
    header, known = "", {}
    for catalog in ENGLISH:
        joined = re.sub(r'"\n"', "", catalog.read_text(encoding="utf-8"))
        header, *entries = joined.strip().split("\n\n")
        known |= {entry.partition("msgstr")[0]: entry for entry in entries}
    text = "\n\n".join(known.values())
    text = TRANSLATION.sub(lambda found: f'{found[1]} "{turned(found[2])}"', text)
    source.write_text(f"{header}\n\n{text}\n", encoding="utf-8")
    compiled = source.with_suffix(".mo")
    subprocess.run(["msgfmt", "--check-format", "-o", compiled, source], check=True)
    with override_settings(
        LANGUAGE_CODE=LANGUAGE,
        LANGUAGES=[(LANGUAGE, "from right to left")],
        LOCALE_PATHS=[folder],
    ):
        yield


WIDTHS = (390, 1280, 1440, 1920)
LANGUAGES = ("en", "de")
THEMES = ("light", "dark")
LONG = "tenants." + "averylongnamewithoutanyplacetobreak" * 6
HOST = "billing-worker-7d9f8b6c5-x2k4q.eu-central-1.compute.internal"
COLUMNS = {
    LIST: ("shown_name", "current_state", "last_day", "shown_last_run"),
    RUNS: ("ended_at", "lock", "how_it_ended", "took", "worker", "exception"),
}
"""The columns that matter; "next_expected" has an own test."""
LEAST_WIDTHS = {"current_state": 20}
"""Of the columns, in pixels; 30 unless named here. A state may be a short word."""
WORDS = """
#result_list :is(.shedlock-badge, time, .field-cause, .shedlock-brief > *),
.shedlock-holding, #shedlock-headline, .shedlock-toolbar > *,
.shedlock-timeline tbody :is(th, td), .shedlock-legend
"""
"""What has no place to break inside a word."""

CUT = """
const width = document.documentElement.clientWidth;
const isCut = (box) => {
    const {left, right} = box.getBoundingClientRect();
    return left < -0.5 || right > width + 0.5 || box.scrollWidth > box.clientWidth + 1;
};
const isShown = (box) => box.getClientRects().length > 0;
const cells = "caption, tbody :is(th, td), .shedlock-brief > *, .shedlock-holding";
const boxes = Array.from(document.querySelectorAll("#shedlock-headline"));
for (const table of document.querySelectorAll("#result_list, .shedlock-timeline")) {
    boxes.push(...table.querySelectorAll(cells));
    if (getComputedStyle(table.tHead).position !== "absolute") {
        boxes.push(...table.tHead.querySelectorAll("th"));
    }
}
const isFolded = (box) => box.closest("details:not([open])");
return boxes
    .filter((box) => isShown(box) && !isFolded(box) && isCut(box))
    .map((box) => `${box.className}: ${box.textContent.trim().slice(0, 40)}`)
    .concat(document.documentElement.scrollWidth > width ? ["the page"] : []);
"""
SIZES = """
const column = `#result_list tbody .field-${arguments[0]}`;
return Array.from(document.querySelectorAll(column))
    .map((cell) => cell.getBoundingClientRect().width);
"""
ORDER = r"""
const cells = "last_day shown_last_run next_expected".split(" ");
const selector = cells.map((name) => `#result_list tbody .field-${name}`).join();
const found = [];
for (const cell of document.querySelectorAll(
    `${selector}, .shedlock-brief, .shedlock-timeline tbody td`
)) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        if (text.parentElement.closest("svg")) {
            continue;
        }
        const wanted = /\d+[dhms][\ddhms.]*|web-\d:\d+/g;
        for (const match of text.data.matchAll(wanted)) {
            const places = Array.from(match[0], (_, index) => {
                const range = document.createRange();
                range.setStart(text, match.index + index);
                range.setEnd(text, match.index + index + 1);
                return range.getBoundingClientRect().left;
            });
            const isInOrder = places.every((x, i) => i === 0 || places[i - 1] < x);
            found.push({text: match[0], isInOrder});
        }
    }
}
return found;
"""
BROKEN = r"""
const found = [];
const hasRoom = (element, rects) => {
    let box = element;
    while (["inline", "contents"].includes(getComputedStyle(box).display)) {
        box = box.parentElement;
    }
    const wide = Array.from(rects).reduce((sum, each) => sum + each.width, 0);
    return wide < box.clientWidth;
};
for (const box of document.querySelectorAll(arguments[0])) {
    const texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        const around = text.parentElement;
        if (!around.checkVisibility() || around.closest("svg")) {
            continue;
        }
        for (const word of text.data.matchAll(/[^\s\/-]+-?/g)) {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            const rects = range.getClientRects();
            const isBroken = new Set(Array.from(rects, (line) => line.top)).size > 1;
            const isWrong = isBroken && hasRoom(around, rects);
            found.push({word: word[0], isBroken: isWrong});
        }
    }
}
return found;
"""
"""The words in these boxes; one that is wider than its line may be broken."""
LINES = """
return Array.from(document.querySelectorAll("summary.shedlock-brief"))
    .map((line) => ["strong", "span > time", "span > bdi"].map(
        (each) => line.querySelector(`:scope > ${each}`),
    ))
    .filter((parts) => parts.every(Boolean))
    .map((parts) => parts.map((part) => part.getBoundingClientRect().right));
"""
"""Where the label, the time and the process of each finding begin from the right."""
HOURS = """
return Array.from(document.querySelectorAll(".shedlock-timeline-hosts text"))
    .map((each) => [each.textContent, each.getBoundingClientRect().left]);
"""
DIRECTIONS = """
const shown = "#shedlock-answers dd bdi[dir], #shedlock-answers dd time[dir=ltr]";
return Array.from(document.querySelectorAll(shown), (each) => {
    const {direction, unicodeBidi} = getComputedStyle(each);
    return `${direction} ${unicodeBidi}`;
});
"""


class Screen(Console):
    """The console on a screen of some size."""

    def resize(self, width: int, height: int = 900) -> None:
        size = {"deviceScaleFactor": 1, "mobile": False, "width": width}
        command = "Emulation.setDeviceMetricsOverride"
        self.browser.execute_cdp_cmd(command, {**size, "height": height})

    def prefer(self, theme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        command = "Emulation.setEmulatedMedia"
        self.browser.execute_cdp_cmd(command, {"features": features})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)


@pytest.fixture
def screen(browser: Any, live_server: Any) -> Iterator[Screen]:
    """A bad morning with long names, on a screen."""
    bad_morning()
    pause("mail.newsletter")
    pause(f"cron:{LONG}")
    LockRecord.objects.create(
        name=LONG,
        locked_by=f"{HOST}:4711:9f86d081884c7d65",
        locked_at=DatabaseNow() - 3 * HOUR,
        lock_until=DatabaseNow() - MINUTE,
    )
    busy = f"{HOST}:4712:6b86b273ff34fce1"
    LockRecord.objects.create(
        name="exports.all",
        locked_by=busy,
        locked_at=DatabaseNow() - MINUTE,
        lock_until=DatabaseNow() + HOUR,
        open_run=busy,
    )
    end_run(
        LONG,
        RunOutcome.FAILED,
        locked_by=f"{HOST}:4711:9f86d081884c7d65",
        duration=HOUR,
        exception_type=f"shop.errors.{'Broken' * 12}",
        exception_message="x" * 90,
    )
    screen = Screen(browser, live_server.url)
    screen.log_in(*ALL)
    yield screen
    screen.resize(1280)
    screen.prefer("light")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", [LIST, RUNS, TIMELINE])
def test_no_column_is_cut(screen: Screen, page: str, language: str) -> None:
    """Each cell is within its column, and no word that fits is broken."""
    add_run("job", RunOutcome.SUCCEEDED, trigger=Trigger.RETRY.value)
    with override_settings(LANGUAGE_CODE=language):
        screen.open(page)
    assert screen.run("return document.documentElement.lang") == language
    for theme, width in product(THEMES, WIDTHS):
        screen.prefer(theme)
        screen.resize(width)
        assert screen.run("return innerWidth") == width
        assert screen.run(CUT) == [], (theme, width)
        for column in COLUMNS.get(page, ()):
            narrowest = min(filter(None, screen.run(SIZES, column)))
            assert narrowest > LEAST_WIDTHS.get(column, 30), (width, column)
        words = screen.run(BROKEN, WORDS)
        assert len(words) > 10
        assert [each["word"] for each in words if each["isBroken"]] == [], width


def test_name_has_room_beside_the_sidebar(screen: Screen) -> None:
    """At 1280 pixels a usual name is on one line, and the next run beside it."""
    screen.resize(1280)
    screen.open(LIST)
    assert screen.find("#nav-sidebar").is_displayed()
    assert min(screen.run(SIZES, "shown_name")) > 180
    assert min(screen.run(SIZES, "next_expected")) > 90


@needs_gettext
def test_pages_read_from_right_to_left(screen: Screen, tmp_path: Path) -> None:
    """Sentences run to the left, 2h5m and web-2:99 to the right; nothing is cut."""
    with right_to_left(tmp_path):
        for page, least in ((LIST, 10), (TIMELINE, 2)):
            screen.open(page)
            assert screen.run("return document.documentElement.dir") == "rtl"
            for width in (390, 1280):
                screen.resize(width)
                assert screen.run(CUT) == [], (page, width)
                shown = screen.run(ORDER)
                assert len(shown) > least
                assert [each["text"] for each in shown if not each["isInOrder"]] == []
            if page == TIMELINE:
                hours = screen.run(HOURS)
                assert len(hours) == 4
                assert hours == sorted(hours, key=itemgetter(1))
            else:
                assert turned("running") in screen.text("#result_list")
                lines = screen.run(LINES)
                assert len(lines) > 3
                assert lines == [sorted(parts, reverse=True) for parts in lines]
        screen.open(CHANGE, STUCK)
        assert turned("running") in screen.text("#shedlock-answers")
        directions = screen.run(DIRECTIONS)
        assert len(directions) > 5
        assert set(directions) == {"ltr isolate"}


@pytest.mark.parametrize("page", [LIST, RUNS])
def test_phone_shows_no_empty_cell(screen: Screen, page: str) -> None:
    """A card has no dash for what a row does not have."""
    screen.resize(390)
    screen.open(page)
    cells = screen.texts("#result_list tbody td")
    assert STUCK in screen.text("#result_list")
    assert "-" not in cells


def test_phone_shows_a_run_by_its_outcome(screen: Screen) -> None:
    """The card of a run begins with its outcome, the lock beside it, the rest below."""
    screen.resize(390)
    screen.open(RUNS)
    card = screen.find("#result_list tbody tr")
    outcome = card.find_element("css selector", ".field-how_it_ended").rect
    cells = [
        cell.rect
        for cell in card.find_elements("css selector", "th, td")
        if cell.is_displayed()
    ]
    first = min(cells, key=lambda cell: (cell["y"] // 10, cell["x"]))
    assert first == outcome
    assert len({cell["y"] // 10 for cell in cells}) >= 3


def test_filters_are_folded(screen: Screen) -> None:
    """The filters take no room from the list until somebody unfolds them."""
    screen.open(LIST)
    assert not screen.find(".shedlock-filters ul").is_displayed()
    screen.find(".shedlock-filters > summary").click()
    screen.browser.find_element("link text", "held at least").click()
    screen.until(lambda: screen.texts("th.field-shown_name") == ["rates.refresh"])
    screen.browser.find_element("partial link text", "Clear all filters").click()
    screen.until(lambda: len(screen.texts("th.field-shown_name")) > 1)


def test_functions_of_two_apps_are_told_apart(screen: Screen) -> None:
    """A path that is too long for its cell continues below, after a dot."""
    names = {"cron:shop.jobs.nightly", "cron:billing.jobs.nightly"}
    for name in names:
        pause(name)
    screen.open(LIST)
    assert names <= set(screen.texts("th.field-shown_name"))


def test_finding_is_a_line_that_unfolds(screen: Screen) -> None:
    """The line of a finding is whole, and a click shows the sentence and its advice."""
    screen.open(LIST)
    stuck = screen.lock(STUCK)
    assert "usually takes" in stuck.text
    assert "end its process" not in stuck.text
    assert "python manage.py shedlock show" not in stuck.text
    hidden = """
        return Array.from(document.querySelectorAll(".shedlock-brief > *"))
            .filter((box) => box.scrollWidth > box.clientWidth + 1
                || box.scrollHeight > box.clientHeight + 1).length
    """
    assert screen.run(hidden) == 0
    stuck.find_element("css selector", "summary").click()
    told = screen.lock(STUCK).text
    assert "Its job has run for 2h" in told
    assert "If it hangs, end its process, then release the lock." in told
    assert "python manage.py shedlock show" in told


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", [LIST, RUNS, ACTIONS, CHANGE, TIMELINE])
def test_no_header_breaks_inside_a_word(
    screen: Screen, page: str, language: str
) -> None:
    """At 1280 pixels each word of a table's head is on one line, and in its cell."""
    screen.resize(1280)
    add_action(LONG, operator=HOST, reason="x" * 90, detail="x" * 90)
    with override_settings(LANGUAGE_CODE=language):
        screen.open(page, *([LONG] if page == CHANGE else []))
    words = screen.run(BROKEN, "thead th")
    assert len(words) > 3
    assert [each["word"] for each in words if each["isBroken"]] == []
    wide = """
        return Array.from(document.querySelectorAll("thead th"))
            .filter((cell) => cell.scrollWidth > cell.clientWidth + 1)
            .map((cell) => cell.textContent.trim())
    """
    assert screen.run(wide) == []


def test_refresh_keeps_what_is_unfolded(screen: Screen) -> None:
    """A finding that an operator reads stays open while the list goes on."""
    screen.open(LIST)
    folded = "details:not([open]) > summary"
    screen.lock(STUCK).find_element("css selector", folded).click()
    screen.run("document.activeElement.blur()")
    screen.refresh_soon()
    pause("a.new")
    screen.until(lambda: "a.new" in screen.texts("th.field-shown_name"))
    opened = screen.lock(STUCK).find_elements("css selector", "details[open]")
    assert len(opened) == 1
