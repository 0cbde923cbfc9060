"""Everybody can use the console: axe finds no barrier, and targets are large."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from django_shedlock.console.models import ActionKind, LockAction
from django_shedlock.console.monitoring import search
from django_shedlock.models import LockRun
from tests.browser.test_list import Screen
from tests.support.operators import (
    ACTION,
    ACTIONS,
    ALL,
    CHANGE,
    LIST,
    RUN,
    RUNS,
    TIMELINE,
)
from tests.support.pages import add_action
from tests.support.scenes import NEXT, STUCK, every_kind, quiet

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

WIDTHS = (390, 1280)
EACH_RULE: list[str] = []
RULES_OF_THEMES = {
    "light": EACH_RULE,
    "dark": ["color-contrast", "link-in-text-block"],
}
"""The rules of axe for each theme: the other one has only other colours."""
RENDERED_BY_DJANGO = {
    ".action-checkbox, .action-checkbox-column": "Django's cells of a list's check box",
    "#changelist-search": "Django's form of the search",
    ".paginator": "Django's pages of a list",
    ".submit-row .closelink": "Django's button",
    ".sortoptions, .toggle, .sortremove": "Django's headings of a list",
}
"""Selectors of what is not ours in ``#content``, and what it is."""
LIKE_OTHERS = ("table > tbody:nth-of-type(n + 18)", "tbody > tr:nth-of-type(n + 18)")
"""The rows of a long list after the first ones, which are built in the same way."""
MARKS = "svg.shedlock-chart a"
"""A mark's place and width are its time. The lists of runs have the same links."""
SMALL_TARGETS = """
const [excluded] = arguments;
const wanted = "a[href], button, summary, select, textarea, input:not([type=hidden])";
const isInSentence = (each) => {
    if (!getComputedStyle(each).display.startsWith("inline")) {
        return false;
    }
    let block = each.parentElement;
    while (getComputedStyle(block).display === "inline") {
        block = block.parentElement;
    }
    const copy = block.cloneNode(true);
    copy.querySelectorAll(wanted).forEach((target) => target.remove());
    return /[\\p{L}\\d]/u.test(copy.textContent);
};
return Array.from(document.querySelectorAll("#content :is(" + wanted + ")"))
    .filter((each) => each.checkVisibility({visibilityProperty: true}))
    .filter((each) => !each.closest(excluded) && !isInSentence(each))
    .map((each) => [each, each.getBoundingClientRect()])
    .filter(([, box]) => box.width > 1 && (box.width < 23.9 || box.height < 23.9))
    .map(([each, box]) => {
        const name = (one) => [one.localName, ...one.classList].join(".");
        const place = `${name(each.parentElement)} > ${name(each)}`;
        return [place, `${box.width.toFixed(0)}×${box.height.toFixed(0)}`];
    });
"""
ASK = """
const form = document.createElement("form");
form.method = "post";
form.action = arguments[0];
const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
for (const [name, value] of [...arguments[1], ["csrfmiddlewaretoken", token]]) {
    const field = document.createElement("input");
    field.type = "hidden";
    field.name = name;
    field.value = value;
    form.append(field);
}
document.body.append(form);
form.submit();
"""
STILL = """
const style = document.createElement("style");
style.textContent = "*, ::before, ::after { transition: none !important; }";
document.head.append(style);
"""
VIOLATIONS = """
const [exclude, rules, done] = arguments;
const context = {include: [["#content"]], exclude: exclude.map((each) => [each])};
const options = {resultTypes: ["violations"], preload: false};
if (rules.length) {
    options.runOnly = {type: "rule", values: rules};
}
axe.run(context, options).then(({violations}) => done(violations.flatMap(
    ({id, nodes}) => nodes.map(({target, any, all, none}) => {
        const [first] = [...any, ...all, ...none];
        return `${id}: ${target.join(" ")}: ${first ? first.message : ""}`;
    })
)));
"""


@dataclass(frozen=True)
class Page:
    """A page of the console, and how it is opened."""

    title: str
    view: str
    arguments: tuple[str, ...] = ()
    action: str = ""
    """The action of which the page wants a confirmation, for the lock ``STUCK``."""

    def open(self, screen: Screen) -> None:
        """Open it, and wait until it is there."""
        screen.open(self.view, *self.arguments)
        if self.action:
            fields = [("action", self.action), ("_selected_action", STUCK)]
            screen.run(ASK, reverse(LIST), fields)
            confirmed = "input[name=confirmed]"
            screen.until(lambda: bool(screen.find_all(confirmed)))
        screen.run(STILL)


def pages_of(lock: str) -> list[Page]:
    """Return each kind of page, with this lock's."""
    latest = LockRun.objects.order_by("exception_message", "pk").last()
    assert latest is not None
    action = LockAction.objects.get()
    return [
        Page("list", LIST),
        Page("timeline", TIMELINE),
        Page("lock", CHANGE, (lock,)),
        Page("runs", RUNS),
        Page("run", RUN, (str(latest.pk),)),
        Page("actions", ACTIONS),
        Page("action", ACTION, (str(action.pk),)),
    ]


def confirmations() -> list[Page]:
    """Return what asks before an action, of a lock that somebody holds."""
    return [
        Page("release", LIST, action="release_selected"),
        Page("extend", LIST, action="extend_selected"),
    ]


@pytest.fixture
def screen(browser: Any, live_server: Any) -> Iterator[Screen]:
    """Somebody who may do everything, but has not opened a page yet."""
    screen = Screen(browser, live_server.url)
    screen.log_in(*ALL)
    yield screen
    screen.prefer("light")
    screen.resize(1280)


@pytest.fixture
def worst_day(monkeypatch: pytest.MonkeyPatch) -> list[Page]:
    """Let each kind of finding be on the pages, that of a wrong clock among them."""

    def wrong(now: Callable[[], Any]) -> timedelta:
        return timedelta(minutes=2)

    monkeypatch.setattr(search, "clock_difference", wrong)
    every_kind()
    add_action(STUCK, kind=ActionKind.RELEASE, reason="its node is gone")
    return [
        *pages_of(STUCK),
        Page("mirror", CHANGE, ("mirror.pull",)),
        *confirmations(),
    ]


@pytest.fixture
def quiet_day() -> list[Page]:
    """Return pages without any finding."""
    quiet()
    return [
        Page("list", LIST),
        Page("timeline", TIMELINE),
        Page("lock", CHANGE, (NEXT,)),
    ]


def small_targets(screen: Screen) -> list[str]:
    """Return what is too small to hit with a thumb."""
    excluded = ", ".join([*RENDERED_BY_DJANGO, MARKS])
    # A list has many alike: the widest stands for all in its place.
    sizes: dict[str, str] = dict(sorted(screen.run(SMALL_TARGETS, excluded)))
    return [f"{each}: {sizes[each]}" for each in sizes]


# The package with axe needs Python 3.12. Before, only the sizes are looked at.
HAS_AXE = sys.version_info >= (3, 12) or find_spec("axe_selenium_python") is not None


def axe() -> str:
    """Return the program of axe, which runs in the page."""
    spec = find_spec("axe_selenium_python")
    assert spec is not None
    assert spec.origin is not None
    script = Path(spec.origin).parent / "node_modules" / "axe-core" / "axe.min.js"
    return script.read_text(encoding="utf-8")


def barriers(screen: Screen, program: str) -> Iterator[str]:
    """Return what axe finds in our part of the page, in light and in dark."""
    djangos = ", ".join(RENDERED_BY_DJANGO).split(", ")
    screen.run(program)
    for theme, rules in RULES_OF_THEMES.items():
        screen.prefer(theme)
        run = screen.browser.execute_async_script
        for each in run(VIOLATIONS, [*djangos, *LIKE_OTHERS], rules):
            yield f"{theme}: {re.sub(r':nth-child[(][0-9]+[)]', '', each)}"


def walk(screen: Screen, pages: list[Page]) -> list[str]:
    """Return what is wrong with the pages: each is opened once wide and once narrow."""
    program = axe() if HAS_AXE else ""
    found: dict[str, None] = {}
    for width in WIDTHS:
        screen.resize(width, 844)
        for page in pages:
            page.open(screen)
            seen = small_targets(screen) if width == min(WIDTHS) else []
            seen += barriers(screen, program) if program else []
            found.update({f"{page.title} {width} {each}": None for each in seen})
    return list(found)


def test_worst_day_has_no_barrier(screen: Screen, worst_day: list[Page]) -> None:
    """On each page with findings names, roles, contrasts and targets are right."""
    found = walk(screen, worst_day)
    assert not found, "\n".join(found)


def test_quiet_day_has_no_barrier(screen: Screen, quiet_day: list[Page]) -> None:
    """Without findings names, roles, contrasts and targets are right as well."""
    found = walk(screen, quiet_day)
    assert not found, "\n".join(found)
