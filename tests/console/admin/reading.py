"""What a reader sees of the admin's pages: whole texts of rows, lines and answers."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from tests.support.operators import CHANGE

INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([+-]\d\d:\d\d)?")
"""An instant, as the tests' time zone writes it."""


def text(html: str) -> str:
    """Return what a reader sees in one line: a picture is its label, in brackets."""
    html = re.sub(r'<svg [^>]*aria-label="(.*?)".*?</svg>', r" [\1]", html, flags=re.S)
    shown = re.sub(r"<[^>]+>", " ", html.replace("<wbr>", ""))
    return re.sub(r" ([,.;])(?= |$)", r"\1", unescape(" ".join(shown.split())))


def steady(shown: str) -> str:
    """
    Return the text with a word for what differs from one test to the next.

    Times are rounded down to hours, or to ten minutes, or are "now".
    """
    shown = INSTANT.sub("INSTANT", shown)
    shown = re.sub(r"\b\d\d:\d\d(:\d\d)?-0[56]:00", "TIME", shown)
    shown = re.sub(r"\b\d{4}-\d\d-\d\d\b", "DATE", shown)
    shown = re.sub(r"\b[0-9a-f]{16}\b", "TOKEN", shown)
    shown = re.sub(r"\b\d+s ago", "now", shown)
    shown = re.sub(r"\b(\d+h)\d+m(\d+s)?\b", r"\1", shown)
    return re.sub(r"\b(\d)\dm(\d+s)?\b", r"\g<1>0m", shown)


def first(pattern: str, html: str) -> str:
    """Return the text of the first group of the first match; empty without one."""
    found = re.search(pattern, html, re.S)
    return text(found[1]) if found else ""


def texts(pattern: str, html: str) -> list[str]:
    """Return the text of the first group of each match."""
    return [text(each[1]) for each in re.finditer(pattern, html, re.S)]


def html_of(response: Any) -> str:
    """Return the page of an answer that has one."""
    assert response.status_code == 200
    page: str = response.content.decode()
    return page


# The lists.


def names(page: Any) -> list[str]:
    """Return the locks of a list's rows, in its order."""
    return [row.name for row in page.context["cl"].result_list]


def rows(html: str) -> list[str]:
    """Return each row of a list of Django's, without its check box."""
    body = re.search(r'<table id="result_list".*?<tbody>(.*?)</tbody>', html, re.S)
    return texts(r"<tr>(.*?)</tr>", body[1]) if body else []


def cells(page: Any, column: str) -> list[str]:
    """Return the texts of a column of a list."""
    pattern = rf'<t[dh] class="field-{column}[^"]*">(.*?)</t[dh]>'
    return texts(pattern, page.content.decode())


def bodies(html: str) -> dict[str, str]:
    """Return what the list of locks has of each lock, by name, as HTML."""
    pattern = r'<tbody data-shedlock-key="lock (.*?)".*?>(.*?)</tbody>'
    return {unescape(name): body for name, body in re.findall(pattern, html, re.S)}


def lock_row(html: str, name: str) -> str:
    """Return the row of this lock of the list, without its findings."""
    pattern = r'<tr data-shedlock-key="cells">(.*?)</tr>'
    return steady(first(pattern, bodies(html)[name]))


def lock_rows(html: str) -> list[str]:
    """Return the row of each lock of the list, without its findings."""
    return [lock_row(html, name) for name in bodies(html)]


def brief(body: str) -> list[str]:
    """Return the findings below a lock of the list, in one line each."""
    line = r'<(?:summary|p) class="shedlock-brief">(.*?)</(?:summary|p)>'
    return [steady(each) for each in texts(line, body)]


def briefs(html: str) -> dict[str, list[str]]:
    """Return the findings below each lock that has any, in one line each."""
    found = {name: brief(body) for name, body in bodies(html).items()}
    return {name: lines for name, lines in found.items() if lines}


def details(html: str) -> dict[str, list[str]]:
    """Return all that is folded away below each lock that has findings."""
    found = {
        name: texts(r"</summary>(.*?)</details>", body)
        for name, body in bodies(html).items()
    }
    return {name: lines for name, lines in found.items() if lines}


def cures(html: str) -> dict[str, list[str]]:
    """Return the buttons and links below each lock that has any."""
    button = r'<(?:button|a) [^>]*class="button.*?>(.*?)</(?:button|a)>'
    found = {name: texts(button, body) for name, body in bodies(html).items()}
    return {name: lines for name, lines in found.items() if lines}


def headline(html: str) -> str:
    """Return what the list, or the timeline, says first."""
    return first(r'<h1 id="shedlock-headline".*?>(.*?)</h1>', html)


def choices(html: str) -> dict[str, str]:
    """Return the linked parts of the headline by their choices of the filter."""
    shown = re.search(r'<h1 id="shedlock-headline".*?</h1>', html, re.S)
    assert shown
    links = r'href="\?(?:[^"]*[?;])?attention=(\w+)[^"]*">(.*?)</a>'
    return {kind: text(part) for kind, part in re.findall(links, shown[0])}


def states(html: str) -> dict[str, int]:
    """Return the numbers of locks by the state that their links choose."""
    links = r'href="\?(?:[^"]*[?;])?state=([\w+]+)[^"]*">[^<]*<strong>(\d+)<'
    found = re.findall(links, html)
    return {state.replace("+", " "): int(locks) for state, locks in found}


def to_refresh(html: str) -> list[str]:
    """Return the ids of the parts that a refresh replaces."""
    return re.findall(r'id="shedlock-([\w-]+)"[^>]* data-shedlock-refresh', html)


# The page of a lock.


def open_page(client: Client, name: str = "billing", **how: Any) -> Any:
    response = client.get(reverse(CHANGE, args=[quote(name)]), **how)
    assert response.status_code == 200
    return response


def entries(html: str, where: str) -> dict[str, str]:
    """Return what a list of terms on a lock's page says, by term."""
    part = re.search(rf'<(dl|div) [^>]*id="shedlock-{where}".*?</\1>', html, re.S)
    assert part
    lines = re.findall(r"<dt>(.*?)</dt>\s*<dd.*?>(.*?)</dd>", part[0], re.S)
    return {label: steady(text(value)) for label, value in lines}


def answers(html: str) -> list[str]:
    """Return the five answers: state, holder, life, last run, next run."""
    return list(entries(html, "answers").values())


def findings(html: str) -> list[str]:
    """Return the findings on top of a lock's page."""
    part = re.search(r'<div id="shedlock-findings".*?</div>', html, re.S)
    assert part
    return [steady(each) for each in texts(r"<li .*?>(.*?)</li>", part[0])]


def buttons(html: str) -> list[str]:
    """Return the actions that a lock's page offers, as their labels."""
    return texts(r'<button type="submit" form="shedlock-act".*?>(.*?)</button>', html)


def instead(html: str) -> list[str]:
    """Return the actions for which a lock's page names a command instead."""
    return texts(r'<span class="shedlock-instead">(.*?)</span>', html)


def table(html: str) -> list[str]:
    """Return the rows of the last runs on a lock's page."""
    part = re.search(r'<table class="shedlock-list-of-runs">.*?</table>', html, re.S)
    return [steady(each) for each in texts(r"<tr>(.*?)</tr>", part[0])] if part else []


def audit_log(html: str) -> list[str]:
    """Return what operators did, on a lock's page."""
    section = r'<section class="shedlock-audit-log.*?</section>'
    part = re.search(section, html, re.S)
    return [steady(each) for each in texts(r"<li>(.*?)</li>", part[0])] if part else []


def drawn(html: str) -> list[tuple[str, str, str]]:
    """Return the kind, the title and the link of each mark in a page's charts."""
    marks = re.findall(
        r'<(?:a|g)(?: href="([^"]*)")? class="shedlock-mark shedlock-(\S+)".*?'
        r"<title>(.*?)</title>",
        html,
        re.S,
    )
    return [(kind, unescape(title), link) for link, kind, title in marks]


def told(page: Any) -> list[str]:
    """Return the messages of an answer."""
    return [str(each) for each in page.context["messages"]]
