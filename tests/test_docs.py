"""The documentation is complete, and fits the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from django.dispatch import Signal
from docutils import nodes

import django_shedlock
from django_shedlock import ShedLockError, conf, signals, threads
from django_shedlock.console.admin import actions, runs
from django_shedlock.console.admin.base import CappedPaginator
from django_shedlock.console.cli import check
from django_shedlock.console.monitoring import (
    health,
    notices,
    search,
    summaries,
)
from django_shedlock.history import journal, recording
from django_shedlock.locks.configuration import LockOptions
from tests.support.documents import Document, all_documents
from tests.support.examples import find_examples
from tests.support.paths import ROOT

DOCUMENTS = {document.name: document for document in all_documents()}
README = DOCUMENTS["README.rst"]
BEHAVIOURS = 17
ENVIRONMENT = r"SHEDLOCK_(TEST_\w+|REQUIRE_STORES|OFF)"
"""Variables of the tests and of the example, which are no settings."""


def package_source() -> str:
    files = sorted(ROOT.glob("django_shedlock/**/*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def targets(*directives: str) -> set[str]:
    """Return what autodoc is told to document, on all pages."""
    return {
        target
        for page in DOCUMENTS.values()
        for directive in directives
        for target in page.directives(directive)
    }


def resolve(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("page", DOCUMENTS.values(), ids=DOCUMENTS)
def test_page_is_valid(page: Document) -> None:
    """Every page is right for docutils; those of the root without Sphinx's markup."""
    assert page.titles


def test_every_check_has_its_heading() -> None:
    """Each check has one heading, and no page knows a check that is not in the code."""
    known = set(re.findall(r"shedlock\.[EW]\d{3}", package_source()))
    headings = DOCUMENTS["docs/reference/checks.rst"].titles[1:]
    assert headings == sorted(known)
    for page in DOCUMENTS.values():
        assert set(re.findall(r"shedlock\.[EW]\d{3}", page.source)) <= known


def test_every_setting_has_its_heading() -> None:
    """Each setting has a heading and a line in the README, and there are no others."""
    known = [setting.name for setting in conf.SETTINGS]
    assert DOCUMENTS["docs/reference/settings.rst"].titles[1:] == known
    assert set(re.findall(r"^   \* - ``(SHEDLOCK_\w+)``", README.source, re.M)) == {
        *known
    }
    for page in DOCUMENTS.values():
        for name in re.findall(r"\bSHEDLOCK_[A-Z_]*[A-Z]\b", page.source):
            assert name in known or re.fullmatch(ENVIRONMENT, name), name


@pytest.mark.parametrize("setting", conf.SETTINGS, ids=lambda setting: setting.name)
def test_default_of_setting(setting: conf.Setting[Any]) -> None:
    """The reference shows the default that the code has."""
    names: dict[str, Any] = {}
    page = DOCUMENTS["docs/reference/settings.rst"]
    for example in find_examples(page.path).examples():
        exec(example.parsed, names)
    assert names[setting.name] == setting.default


def test_every_public_name_is_in_the_reference() -> None:
    """Each name of __all__ has its place, and autodoc finds all that it is told."""
    documented = targets("autofunction", "autoclass", "autoexception")
    public = {f"django_shedlock.{name}" for name in django_shedlock.__all__}
    assert public <= documented
    assert all(map(resolve, documented))


def test_every_error_is_in_the_reference() -> None:
    """Each error of the package is an exception to autodoc."""
    errors = {f"django_shedlock.{error.__name__}" for error in subclasses()}
    assert targets("autoexception") == errors


def subclasses() -> list[type[ShedLockError]]:
    return [ShedLockError, *ShedLockError.__subclasses__()]


def test_every_signal_is_in_the_reference() -> None:
    """Each signal has a line, and no other has one."""
    known = {name for name in vars(signals) if isinstance(resolve_signal(name), Signal)}
    source = DOCUMENTS["docs/reference/signals.rst"].source
    assert set(re.findall(r"^   \* - ``(\w+)``", source, re.M)) == known


def resolve_signal(name: str) -> Any:
    return getattr(signals, name)


def test_every_option_is_in_the_readme() -> None:
    """The README explains each option of a lock."""
    listed = re.findall(r"^   \* - ``([a-z_]+)``", README.source, re.M)
    assert listed == list(LockOptions.__annotations__)


def test_numbered_behaviour() -> None:
    """README and docs/behaviour have the same seventeen points."""
    [points] = [
        found
        for found in README.tree.findall(nodes.enumerated_list)
        if len(found) == BEHAVIOURS
    ]
    assert len(points) == BEHAVIOURS
    titles = DOCUMENTS["docs/behaviour.rst"].titles
    numbers = [int(title.split(".")[0]) for title in titles if title[0].isdigit()]
    assert numbers == list(range(1, BEHAVIOURS + 1))


@pytest.mark.parametrize("page", DOCUMENTS.values(), ids=DOCUMENTS)
def test_links_resolve(page: Document) -> None:
    """Links to files, pages, labels and names lead somewhere."""
    folder = page.path.parent
    for link in page.links:
        assert "://" in link or (folder / link).is_file(), link
    for target in page.roles("doc"):
        base = ROOT / "docs" if target.startswith("/") else folder
        assert (base / f"{target.lstrip('/')}.rst").is_file(), target
    for target in page.roles("download"):
        assert (folder / target).is_file(), target
    labels = set().union(*(other.labels for other in DOCUMENTS.values()))
    assert set(page.roles("ref")) <= labels
    for target in page.roles("class"):
        path = target.lstrip("~")
        assert resolve(path if "." in path else f"django_shedlock.{path}")


def test_every_page_is_in_a_table_of_contents() -> None:
    """No page of docs/ is left out."""
    entries = {"docs/index.rst"}
    for page in DOCUMENTS.values():
        for block in re.findall(
            r"^\.\. toctree::\n(.*?)(?=^\S|\Z)", page.source, re.M | re.S
        ):
            names = re.findall(r"^   ([\w/]+)$", block, re.M)
            entries |= {f"{Path(page.name).parent}/{name}.rst" for name in names}
    assert entries == {name for name in DOCUMENTS if name.startswith("docs/")}


def test_environments_of_tox() -> None:
    """Each environment that CONTRIBUTING names is one of tox.ini."""
    tox = (ROOT / "tox.ini").read_text(encoding="utf-8")
    source = DOCUMENTS["CONTRIBUTING.rst"].source
    named = re.findall(r"^   \* - ``([a-z]+)``$", source, re.M)
    assert named
    assert all(f"\n[testenv:{name}]\n" in tox for name in named)
    for name in re.findall(r"\$ tox -e (\S+)", source):
        factors = set(re.split("[-,]", name))
        assert all(re.search(rf"\b{factor}\b", expanded(tox)) for factor in factors)


def expanded(tox: str) -> str:
    """Return the text with ``py{311,312}`` written out."""

    def write_out(match: re.Match[str]) -> str:
        return " ".join(match[1] + end for end in match[2].split(","))

    return re.sub(r"(\w*)\{([\w,]+)\}", write_out, tox)


def test_version_is_in_the_changelog() -> None:
    """The version of the package has its section."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"$', project, re.M)
    assert version
    assert DOCUMENTS["CHANGELOG.rst"].titles[1].startswith(version[1])


PAGES = ("behaviour", "monitoring", "operations")
NUMBERS = {
    "more than 10,000 locks may have findings": search.MOST,
    "since the last success, 100 at the most": summaries.MOST_FAILURES,
    "the most urgent first; 1,000 at the most": health.MOST,
    "``keep_for``, 5 seconds by default": health.KEEP_FOR.total_seconds(),
    "after ``deadline``, 5 seconds by default": health.DEADLINE.total_seconds(),
    "there are 10 such threads at the most": health.MOST_UNDER_WAY,
    "100 new and 100 gone findings at the most": check.MOST_MAILED,
    "default cache keeps for 1 hour": notices.REMINDER.total_seconds() / 3600,
    "for 10 minutes, or for as long as it": notices.SHORTEST_AWAY.seconds / 60,
    "as it lasted, up to 1 hour": notices.LONGEST_AWAY.total_seconds() / 3600,
    "the first 2,000 characters of its message": journal.LONGEST_TEXT,
    "the last 16,000 of its traceback": recording.LONGEST_TRACEBACK,
    "an action takes 200 locks": actions.MOST_LOCKS,
    "it counts at most 10,000": CappedPaginator.most,
    "how many of the last 100 that ended": runs.COUNTED,
    "are called for 8 of them at a time": threads.MOST_AT_ONCE,
    "holds up the others for 5 seconds": threads.HANGS,
}
"""Sentences of these pages, with figures, and the number in the code."""
WORDS = {
    "a thousand": "1,000",
    "ten thousand": "10,000",
    "a hundred": "100",
    "hundred": "100",
    "an hour": "1 hour",
    "five": "5",
    "eight": "8",
    "ten": "10",
}


@pytest.mark.parametrize(("sentence", "number"), NUMBERS.items())
def test_numbers_are_those_of_the_code(sentence: str, number: float) -> None:
    """What a page promises is what is there, unless somebody sets it otherwise."""
    pages = (DOCUMENTS[f"docs/{name}.rst"] for name in PAGES)
    text = " ".join(" ".join(page.source.split()).lower() for page in pages)
    for word, figures in WORDS.items():
        text = re.sub(rf"\b{word}\b", figures, text)
    assert sentence in text
    assert f"{number:,.0f}" in re.findall(r"[\d,]*\d", sentence)
