"""The examples of the documentation run, and print what they show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from sybil.evaluators.skip import Skipper

from django_shedlock.schedules.cron import SHORTHANDS
from tests.support.documents import Document, all_documents
from tests.support.examples import Project, find_examples
from tests.support.jobs import only_jobs_of
from tests.support.tutorial import Tutorial

DOCUMENTS = {document.name: document for document in all_documents()}
TUTORIAL = DOCUMENTS["docs/tutorial.rst"]
COMMANDS = [
    'python3 -m venv .venv && .venv/bin/python -m pip install -e ".[crontab]" '
    "&& .venv/bin/python example_project/manage.py demo",
    'python3 -m venv .venv && .venv/bin/python -m pip install -e ".[test]" '
    "&& .venv/bin/python -m tests",
]
"""With these a newcomer begins; CI takes them from the README."""

NOT_RUN = {
    ("CONTRIBUTING.rst", "$ python3 -m venv .venv"),
    ("CONTRIBUTING.rst", "$ python -m benchmarks.imports --rounds 20"),
    ("CONTRIBUTING.rst", "$ python -m tests"),
    (
        "CONTRIBUTING.rst",
        "$ SHEDLOCK_TEST_STORE=postgres python -m benchmarks.records --records 1000000",
    ),
    ("CONTRIBUTING.rst", '$ python -m pip install -e ".[test,mutants]"'),
    (
        "CONTRIBUTING.rst",
        "$ SHEDLOCK_TEST_STORE=postgres python -m tests.shake --rounds 10 --burn 2",
    ),
    (
        "CONTRIBUTING.rst",
        "$ SHEDLOCK_TEST_STORE=postgres python -m pytest tests/providers",
    ),
    (
        "CONTRIBUTING.rst",
        "$ python -m tests.concurrency.soak --store postgres --for 1h --seed 1",
    ),
    (
        "CONTRIBUTING.rst",
        "$ SHEDLOCK_TEST_STORE=postgres python -m benchmarks.console --runs 1000000",
    ),
    ("CONTRIBUTING.rst", '$ python -m pip install -e ".[test,benchmarks]"'),
    ("docs/performance.rst", '$ python -m pip install -e ".[test,benchmarks]"'),
    ("docs/performance.rst", "$ python -m benchmarks.locks --only crowds"),
    ("docs/performance.rst", "$ python -m benchmarks.locks --only many"),
    ("docs/performance.rst", "$ python -m benchmarks.locks --only sizes"),
    ("docs/performance.rst", "$ python -m benchmarks.imports"),
    (
        "CONTRIBUTING.rst",
        "$ python -m django makemessages --all --no-location --no-obsolete",
    ),
    (
        "CONTRIBUTING.rst",
        "$ DJANGO_SETTINGS_MODULE=tests.settings python -m tests.browser.screenshots",
    ),
    ("CONTRIBUTING.rst", "$ tox -e py313-django61-postgres"),
    ("CONTRIBUTING.rst", "$ sphinx-build -W docs docs/_build"),
    ("README.rst", COMMANDS[0]),
    ("README.rst", COMMANDS[1]),
    ("README.rst", '$ python -m pip install "django-shedlock[postgres]"'),
    ("docs/integrations.rst", "$ python manage.py crontab add"),
    (
        "docs/integrations.rst",
        "$ python manage.py shedlock run --wait 10m --on-skip-exit 1 migrations -- "
        "python manage.py migrate",
    ),
    (
        "docs/performance.rst",
        "$ python -m benchmarks.locks --only redis --redis redis://127.0.0.1:6379/7 "
        "--rounds 3000",
    ),
    (
        "docs/performance.rst",
        "$ python -m benchmarks.locks --only ways --redis redis://127.0.0.1:6379/7",
    ),
    ("docs/stores/etcd.rst", '$ python -m pip install "django-shedlock[etcd]"'),
    ("docs/stores/mongodb.rst", '$ python -m pip install "django-shedlock[mongodb]"'),
    (
        "docs/stores/mongodb.rst",
        "$ MONGODB_URL=mongodb://127.0.0.1:27017/test python -m pytest "
        "tests/providers/mongodb",
    ),
    ("docs/stores/own.rst", '$ python -m pip install "django-shedlock[contract]"'),
    ("docs/stores/redis.rst", '$ python -m pip install "django-shedlock[redis]"'),
    ("docs/tutorial.rst", "$ mkdir mysite && cd mysite"),
}
"""Every example that no test runs. Add one only if it can't run."""

COMMENTS = (
    "invisible-code-block: python\n",
    'skip: next "',
    "skip: next if(store ",
    "in the background",
    "after the background",
)
"""How a comment may begin. Sybil would pass over one with a word that is misspelt."""


def pages_with_examples() -> Iterator[Any]:
    """Yield them, and run each once, or on each store if that makes a difference."""
    for page in DOCUMENTS.values():
        if page != TUTORIAL and find_examples(page.path).regions:
            marks = () if "skip: next if(store " in page.source else pytest.mark.once
            yield pytest.param(page, id=page.name, marks=marks)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("page", [*pages_with_examples()])
def test_examples_run(
    page: Document,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    """Every example of a page runs after those before it, and prints what it shows."""
    # The hours begin far from now, so that no tick comes between two examples.
    a_while_ago = datetime.now(UTC) - timedelta(minutes=15)
    monkeypatch.setitem(SHORTHANDS, "@hourly", f"{a_while_ago.minute} * * * *")
    with only_jobs_of():
        Project(tmp_path, monkeypatch, settings).run(page.path)
    # Async examples leave those of their thread open, and the database can't go then.
    asyncio.run(sync_to_async(connections.close_all)())


@pytest.mark.sqlite_only
def test_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever types what the tutorial says sees what it shows, in a new project."""
    Tutorial(tmp_path, monkeypatch).run(TUTORIAL.path)


def test_examples_that_do_not_run() -> None:
    """Those few that can't run say why, and are known."""
    skipped = {
        (page.name, example.parsed.partition("\n")[0])
        for page in DOCUMENTS.values()
        for mark, example in pairwise(find_examples(page.path).examples())
        if isinstance(mark.region.evaluator, Skipper)
        and not mark.parsed[1].startswith("if(")
    }
    assert skipped == NOT_RUN


@pytest.mark.parametrize("page", DOCUMENTS.values(), ids=DOCUMENTS)
def test_no_example_escapes(page: Document) -> None:
    """Sybil finds each block, in a known language, and knows each comment."""
    regions = [region for _, region in find_examples(page.path).regions]
    found = [
        region.parsed.strip()
        for region in regions
        if region.lexemes.get("directive") == "code-block"
    ]
    assert found == page.blocks
    assert [text for text in page.comments if not text.startswith(COMMENTS)] == []


def test_first_commands() -> None:
    """The README has the two commands, each alone in a block and on one line."""
    blocks = DOCUMENTS["README.rst"].blocks
    assert [text for text in blocks if text.startswith("python3 -m venv")] == COMMANDS
