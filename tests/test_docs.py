"""The documentation is complete, and fits the code."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps as apps_registry
from django.dispatch import Signal
from docutils import nodes

import django_shedlock
from django_shedlock import ShedLockError, background, conf, signals, webhooks
from django_shedlock.console.admin import (
    actions,
    days,
    duration_chart,
    filters,
    past,
    rows,
    strips,
)
from django_shedlock.console.admin.base import CappedPaginator
from django_shedlock.console.admin.locks import LockRecordAdmin
from django_shedlock.console.cli import telling
from django_shedlock.console.links import RUNBOOK_URL
from django_shedlock.console.monitoring import (
    health,
    inspection,
    notices,
    search,
)
from django_shedlock.console.monitoring.health import HealthCheck
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.contrib.pings import apps
from django_shedlock.contrib.slugs import slug_of
from django_shedlock.history import recording, texts
from django_shedlock.locks.configuration import LockOptions
from django_shedlock.registry.decorators import JobOptions
from tests.support.documents import Document, all_documents
from tests.support.examples import find_examples
from tests.support.paths import ROOT

DOCUMENTS = {document.name: document for document in all_documents()}
README = DOCUMENTS["README.rst"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BEHAVIOURS = 20
BEHAVIOURS_IN_WORDS = "twenty"
SHEDLOCK = "https://github.com/lukas-krecan/ShedLock"
ENVIRONMENT = r"SHEDLOCK_((TEST|EXAMPLE)_\w+|REQUIRE_STORES|OFF|HELD_BY)"
"""Variables of the tests, of the example and of child processes: no settings."""


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
    """Each setting has a heading and a line in the table; there are no others."""
    known = [setting.name for setting in conf.SETTINGS]
    page = DOCUMENTS["docs/reference/settings.rst"]
    assert page.titles[2:] == known
    assert set(re.findall(r"^   \* - ``(SHEDLOCK_\w+)``", page.source, re.M)) == {
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


def test_every_option_is_in_the_reference() -> None:
    """The reference explains each option of a lock and of a job."""
    source = DOCUMENTS["docs/reference/api.rst"].source
    rows = re.findall(r"^   \* - (``[a-z_]+``(?:, ``[a-z_]+``)*)$", source, re.M)
    listed = [name for row in rows for name in re.findall(r"\w+", row)]
    assert listed == list(JobOptions.__annotations__)


def test_numbered_behaviour() -> None:
    """The page has twenty points, first in short."""
    page = DOCUMENTS["docs/explanation/behaviour.rst"]
    [points] = [
        found
        for found in page.tree.findall(nodes.enumerated_list)
        if len(found) == BEHAVIOURS
    ]
    assert len(points) == BEHAVIOURS
    titles = page.titles
    numbers = [int(title.split(".")[0]) for title in titles if title[0].isdigit()]
    assert numbers == list(range(1, BEHAVIOURS + 1))


def test_number_of_points_in_texts() -> None:
    """Each page that says how many points the behaviour has says it correctly."""
    numbers = {
        name: re.findall(r"\bin (\w+) points\b", page.source)
        for name, page in DOCUMENTS.items()
    }
    assert {name: words for name, words in numbers.items() if words} == {
        "docs/explanation/behaviour.rst": [BEHAVIOURS_IN_WORDS],
        "docs/explanation/how_it_works.rst": [BEHAVIOURS_IN_WORDS],
    }


def test_options_of_the_crontab_are_in_its_page() -> None:
    """The page of django-crontab names each option that SHEDLOCK_CRONTAB takes."""
    source = DOCUMENTS["docs/howto/django_crontab.rst"].source
    [listed] = re.findall(r"The options are (.*?):\n\n", source, re.S)
    assert re.findall(r"``(\w+)``", listed) == [
        "name",
        "locked",
        *LockOptions.__annotations__,
    ]


@pytest.mark.parametrize("page", DOCUMENTS.values(), ids=DOCUMENTS)
def test_links_resolve(page: Document) -> None:
    """Links to files, pages, labels and names lead somewhere."""
    folder = page.path.parent
    for link in page.links:
        assert "://" in link or (folder / link).is_file(), link
    for target in page.roles("doc"):
        base = ROOT / "docs" if target.startswith("/") else folder
        assert (base / f"{target.lstrip('/')}.rst").is_file(), target
    for path in re.findall(
        r"``((?:tests|benchmarks|django_shedlock)/[\w./]+)``", page.source
    ):
        assert (ROOT / path).exists(), path
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
        folder = Path(page.name).parent
        entries |= {f"{folder}/{name}.rst" for name in page.entries}
    assert entries == {name for name in DOCUMENTS if name.startswith("docs/")}


def test_version_is_in_the_changelog() -> None:
    """The version of the package has its section."""
    version = PROJECT["project"]["version"]
    assert DOCUMENTS["CHANGELOG.rst"].titles[1].startswith(f"{version} (")


PAGES = ("explanation/behaviour", "howto/", "reference/history", "reference/metrics")
NUMBERS = {
    "more than 10,000 locks may have findings": search.SEARCH_LOCK_LIMIT,
    "the most urgent first; 1,000 at the most": health.ANSWER_FINDING_LIMIT,
    "``keep_for``, 5 seconds by default": HealthCheck.keep_for.total_seconds(),
    "at most 100 that are new": telling.MAIL_NEWS_LIMIT,
    "after 40 lines": telling.POSTED_LINE_LIMIT,
    "cache remembers for 1 hour": notices.UNKEPT_REMINDER_INTERVAL.seconds / 3600,
    "is told 1 hour after the last": notices.SAME_KIND_INTERVAL.seconds / 3600,
    "has been away for 10 minutes": notices.RECOVERY_DELAY.seconds / 60,
    "no host has started it for 5 minutes": inspection.REQUEST_REPORT_AGE.seconds / 60,
    "the first 2,000 characters of its message": texts.TEXT_MAX_LENGTH,
    "the last 16,000 of its traceback": recording.TRACEBACK_MAX_LENGTH,
    "an action takes 200 locks": actions.SELECTED_LOCK_LIMIT,
    "the list counts at most 10,000": CappedPaginator.most,
    "the headline counts at most 200 locks": filters.LISTED_FINDING_LIMIT,
    "gaps shorter than 20 minutes": strips.SHORTEST_LISTED_GAP.seconds / 60,
    "only the newest 100,000 runs count": days.HOST_RUN_LIMIT,
    "if the job has at most 60 runs a day": days.SINGLE_RUN_LIMIT,
    "the chart has the last 30 runs": duration_chart.CHART_SLOT_COUNT,
    "and the table the last 10": LockRecordAdmin.page_run_limit,
    "a list of more than 5,000 locks": rows.WHOLE_REFRESH_LOCK_LIMIT,
    "only in the newest 5,000 runs": past.SEARCHED_RUN_LIMIT,
    "the filter offers the last 14": filters.DayFilter.offered_days,
    "how many of the last 100 that ended": past.STATISTICS_RUN_LIMIT,
    "are called for 8 of them at a time": background.Background.thread_limit,
    "with 5 seconds for each part of an answer": webhooks.POST_TIMEOUT_SECONDS,
    "a ping that fails is tried 3 times": webhooks.POST_TRIES,
    "up to 100 pings wait for it": apps.WAITING_PINGS_LIMIT,
    "a name that is longer than 50 characters is cut": len(slug_of("a" * 100)),
    "holds up the others for 5 seconds": background.Background.hanging_after_seconds,
}
"""Sentences of these pages, with figures, and the number in the code."""
WORDS = {
    "a thousand": "1,000",
    "ten thousand": "10,000",
    "a hundred": "100",
    "hundred": "100",
    "an hour": "1 hour",
    "three": "3",
    "five": "5",
    "eight": "8",
    "ten": "10",
    "forty": "40",
}


@pytest.mark.parametrize(("sentence", "number"), NUMBERS.items())
def test_numbers_are_those_of_the_code(sentence: str, number: float) -> None:
    """What a page promises is what is there, unless somebody sets it otherwise."""
    beginnings = tuple(f"docs/{name}" for name in PAGES)
    pages = (page for name, page in DOCUMENTS.items() if name.startswith(beginnings))
    text = " ".join(" ".join(page.source.split()).lower() for page in pages)
    for word, figures in WORDS.items():
        text = re.sub(rf"\b{word}\b", figures, text)
    assert sentence in text
    assert f"{number:,g}" in re.findall(r"[\d,]*\d", sentence)


def questions() -> list[Any]:
    """Return what readers ask, each with the place and words of its answer."""
    text = (ROOT / "docs" / "questions.txt").read_text(encoding="utf-8")
    kinds = re.split(r"^== (.*)$", text, flags=re.MULTILINE)[1:]
    return [
        pytest.param(*re.split(r" \| ", line)[1:], id=f"{kind}: {line.split(' | ')[0]}")
        for kind, lines in zip(kinds[::2], kinds[1::2], strict=True)
        for line in lines.strip().splitlines()
    ]


def pages_from(page: Document) -> set[str]:
    """Return the pages that are one click away."""
    folder = page.path.parent
    named = {
        (ROOT / "docs" / target.lstrip("/")) if target[0] == "/" else folder / target
        for target in page.roles("doc") + page.entries
    }
    return {f"{each.relative_to(ROOT).as_posix()}.rst" for each in named}


def test_each_reader_asks_twenty_questions() -> None:
    """Each kind of reader on the first page asks twenty questions."""
    kinds = [each.id.partition(":")[0] for each in questions()]
    first = DOCUMENTS["docs/index.rst"].source
    asked = re.findall(r"^\*\*(I .*?)\.\*\*", first, re.MULTILINE)
    looks_up = "I want to look something up"
    assert set(kinds) == {*asked} - {looks_up}
    assert {kinds.count(kind) for kind in kinds} == {20}


@pytest.mark.parametrize(("page", "heading", "words"), questions())
def test_answer_is_two_clicks_away(page: str, heading: str, words: str) -> None:
    """The first page, or one that it links to, links to the page with the answer."""
    first, answer = DOCUMENTS["docs/index.rst"], f"docs/{page}.rst"
    near = pages_from(first)
    within = {first.name, *near}.union(*(pages_from(DOCUMENTS[each]) for each in near))
    assert answer in within
    [section] = DOCUMENTS[answer].sections(heading)
    assert words in section


LOGGER_TEXT_POSITIONS = {
    "debug": 0,
    "info": 0,
    "warning": 0,
    "error": 0,
    "exception": 0,
    "log": 1,
}
"""Where the text is among the arguments of a logger's method."""
HOLE = "…"
"""Stands for what is filled in."""


def messages() -> set[str]:
    """Return the texts of log lines and errors, with a hole for each value."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in ROOT.glob("django_shedlock/**/*.py")
        if "testing" not in path.relative_to(ROOT).parts
    }
    # The errors of the command line are answers to what somebody typed.
    errors = {
        node.name
        for path, tree in trees.items()
        if "console" not in path.parts and "cli" not in path.with_suffix("").parts
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and _is_error(node)
    }
    found: set[str] = set()
    for tree in trees.values():
        for scope in ast.walk(tree):
            if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
                found |= _said_in(scope, errors)
    return {text for text in found if re.search("[a-z]{3}", text)}


def _is_error(node: ast.ClassDef) -> bool:
    bases = map(ast.unparse, node.bases)
    return any(base.endswith(("Error", "Exception")) for base in bases)


def _said_in(scope: ast.AST, errors: set[str]) -> set[str]:
    nodes = list(ast.walk(scope))
    names: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                names.setdefault(target.id, set()).add(_text(node.value, {}))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    texts = (
        _text(call.args[place], names)
        for call in calls
        if (place := _place(call.func, errors)) is not None and len(call.args) > place
    )
    return {" ".join(re.sub(r"%(\.\d)?[rsdf]", HOLE, text).split()) for text in texts}


def _place(function: ast.expr, errors: set[str]) -> int | None:
    """Return where a logger or an error has its text, if it is one."""
    called = ast.unparse(function)
    owner, _, name = called.rpartition(".")
    if owner.endswith("logger"):
        return LOGGER_TEXT_POSITIONS.get(name)
    return 0 if name in errors else None


def _text(node: ast.expr, names: dict[str, set[str]]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, names) for part in parts)
        case ast.BinOp(left=left, right=right, op=ast.Add()):
            return _text(left, names) + _text(right, names)
        case ast.Name(id=name) if len(names.get(name, ())) == 1:
            return next(iter(names[name]))
    return HOLE


def test_every_text_can_be_looked_up() -> None:
    """Each error and each line of the log stands on one page, word for word."""
    text = " ".join(DOCUMENTS["docs/troubleshooting.rst"].source.split())
    texts = messages()
    assert len(texts) > 70
    assert [each for each in sorted(texts) if f"``{each}``" not in text] == []


def test_every_finding_has_its_section() -> None:
    """The runbook has each kind, and each alert leads to one of its sections."""
    runbook = DOCUMENTS["docs/howto/runbook.rst"]
    *kinds, unknown = runbook.titles[1:]
    assert kinds == [kind.value for kind in Kind]
    anchors = {title.lower().replace(" ", "-") for title in (*kinds, unknown)}
    alerts = (ROOT / "docs/howto/files/alerts.yml").read_text(encoding="utf-8")
    links = re.findall(rf"runbook_url: {RUNBOOK_URL}#(\S+)", alerts)
    assert set(links) <= anchors
    assert len(links) == len(re.findall("- alert: ", alerts))
    listed = re.findall(r"``(ShedLock\w+)``", runbook.source)
    assert set(listed) == set(re.findall(r"- alert: (\w+)", alerts))


def test_every_column_is_in_the_reference() -> None:
    """Each table has its heading, and its columns below that."""
    page = DOCUMENTS["docs/reference/tables.rst"]
    labels = ("django_shedlock", "shedlock_console")
    for model in (
        model
        for label in labels
        for model in apps_registry.get_app_config(label).get_models()
    ):
        [section] = page.sections(model._meta.db_table)
        columns = {field.name for field in model._meta.get_fields()}
        assert columns <= set(re.findall(r"``(\w+)``", section)), model


def test_links_of_the_readme_lead_somewhere() -> None:
    """Each link of the README is a known URL or a file in docs/."""
    urls = PROJECT["project"]["urls"]
    assert len(README.source) <= 6000
    pictures = [image["uri"] for image in README.tree.findall(nodes.image)]
    for link in (*README.links, *pictures):
        if "://" in link:
            assert link in {*urls.values(), SHEDLOCK}, link
        else:
            assert (ROOT / link).is_file(), link
            assert link.startswith("docs/"), "pyproject.toml puts addresses for these"


def test_extras_are_for_users() -> None:
    """What developers need is a group; each extra is named where a user reads it."""
    text = "\n".join(page.source for page in DOCUMENTS.values())
    extras = PROJECT["project"]["optional-dependencies"]
    assert not extras.keys() & PROJECT["dependency-groups"].keys()
    assert [each for each in extras if f"[{each}]" not in text] == []
