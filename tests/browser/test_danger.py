"""What may do harm looks like it, in the light and in the dark theme."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.test_console import Console
from tests.support.locks import expire, take
from tests.support.operators import ALL, CHANGE, LIST

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]

ENOUGH = 4.5
"""The contrast that the Web Content Accessibility Guidelines ask of texts."""
RELEASE = "button[value=release_selected]"
EXTEND = "button[value=extend_selected]"
CURE = "button[name=shedlock_cure][value='release_selected billing']"
CONFIRM = ".submit-row input[type=submit]"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_only_what_confirms_a_release_is_filled(
    browser: Any, live_server: Any, theme: str
) -> None:
    """A button that leads to a release is last, with a red text on no colour."""
    console = Console(browser, live_server.url)
    console.log_in(*ALL)
    take("billing")
    console.open(CHANGE, "billing")
    release, extend = (colours(console, each, theme) for each in (RELEASE, EXTEND))
    assert is_quiet(console, release)
    assert is_reddish(release[1])
    assert not is_quiet(console, extend)
    buttons = console.texts(".shedlock-actions button")
    assert buttons == ["Extend…", "Release…"]
    console.open(LIST)
    console.choose("release_selected", "billing")
    assert is_red(colours(console, CONFIRM, theme))
    expire("billing")
    console.open(LIST)
    cure = colours(console, CURE, theme)
    assert is_quiet(console, cure)
    assert is_reddish(cure[1])
    take("search")
    console.open(LIST)
    console.choose("extend_selected", "search")
    assert not is_red(colours(console, CONFIRM, theme))


Colour = tuple[float, ...]


def colours(console: Console, selector: str, theme: str) -> list[Colour]:
    """Return the colours of the background and of the text."""
    script = """
        if (arguments[0]) {
            document.documentElement.dataset.theme = arguments[0];
        }
        arguments[1].style.transition = "none";
        const style = getComputedStyle(arguments[1]);
        return [style.backgroundColor, style.color];
    """
    found = console.browser.execute_script(script, theme, console.find(selector))
    background, text = [
        tuple(int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
        for colour in found
    ]
    assert contrast(background, text) >= ENOUGH
    return [background, text]


def is_red(found: list[Colour]) -> bool:
    red, green, blue = found[0]
    return red > 3 * max(green, blue)


def is_reddish(colour: Colour) -> bool:
    red, green, blue = colour
    return red > 1.3 * max(green, blue)


def is_quiet(console: Console, found: list[Colour]) -> bool:
    """Whether the background is that of the page."""
    return contrast(found[0], colours(console, "body", "")[0]) < 1.1


def contrast(one: Colour, other: Colour) -> float:
    """Return the ratio as the guidelines define it."""
    darker, brighter = sorted([luminance(one), luminance(other)])
    return (brighter + 0.05) / (darker + 0.05)


def luminance(colour: Colour) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
