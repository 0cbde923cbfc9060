"""The examples of the documentation run, and print what they show."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from sybil.evaluators.skip import Skipper

from django_shedlock.schedules.expressions import SHORTHANDS
from tests.support.documents import Document, all_documents
from tests.support.examples import Project, find_examples
from tests.support.jobs import only_jobs_of
from tests.test_tutorial import TYPED

DOCUMENTS = {document.name: document for document in all_documents()}
COMMANDS = [
    'python3 -m venv .venv && .venv/bin/python -m pip install -e ".[crontab]" '
    "&& .venv/bin/python example_project/manage.py demo",
    "python3 -m venv --upgrade-deps .venv && .venv/bin/python -m pip install -e . "
    "--group test && .venv/bin/python -m tests",
]
"""With these a newcomer begins; CI takes them from the README."""

INSTALL_BENCHMARKS = "$ python -m pip install -e . --group benchmarks"
FOREIGN_FILES = (
    "netbox_shedlock/__init__.py",
    "netbox/configuration.py",
    "netbox/local_settings.py",
    "shop_settings.py",
)
NOT_RUN = {
    ("CONTRIBUTING.rst", "$ python3 -m venv .venv"),
    ("CONTRIBUTING.rst", "$ python -m benchmarks.imports --rounds 20"),
    (
        "CONTRIBUTING.rst",
        "$ python -m benchmarks.beats --redis redis://127.0.0.1:6379/7 "
        "--json result.json",
    ),
    ("CONTRIBUTING.rst", "$ python -m tests"),
    (
        "CONTRIBUTING.rst",
        "$ mkdir costs",
    ),
    (
        "CONTRIBUTING.rst",
        "$ SHEDLOCK_TEST_STORE=postgres python -m benchmarks.records --records 1000000",
    ),
    (
        "CONTRIBUTING.rst",
        "$ python -m pip install -e . --group test-all --group mutants",
    ),
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
        "$ python -m benchmarks.soak --store postgres --for 1h --seed 1",
    ),
    (
        "CONTRIBUTING.rst",
        "$ python -m benchmarks.soak.beats --store postgres --for 10m --seed 1",
    ),
    (
        "CONTRIBUTING.rst",
        "$ SHEDLOCK_TEST_STORE=postgres python -m benchmarks.console --runs 1000000",
    ),
    ("CONTRIBUTING.rst", INSTALL_BENCHMARKS),
    ("docs/explanation/performance.rst", INSTALL_BENCHMARKS),
    ("docs/explanation/performance.rst", "$ python -m benchmarks.locks --only crowds"),
    ("docs/explanation/performance.rst", "$ python -m benchmarks.locks --only many"),
    ("docs/explanation/performance.rst", "$ python -m benchmarks.locks --only sizes"),
    ("docs/explanation/performance.rst", "$ python -m benchmarks.imports"),
    (
        "CONTRIBUTING.rst",
        "$ python -m django makemessages --all --no-location --no-obsolete",
    ),
    (
        "CONTRIBUTING.rst",
        "$ DJANGO_SETTINGS_MODULE=tests.settings python -m tests.browser.screenshots",
    ),
    ("CONTRIBUTING.rst", "$ tox -e py314-django61-postgres"),
    ("CONTRIBUTING.rst", "$ sphinx-build -W docs docs/_build"),
    ("README.rst", COMMANDS[0]),
    ("README.rst", COMMANDS[1]),
    ("README.rst", '$ python -m pip install "./django-shedlock[postgres]"'),
    ("docs/howto/adopt.rst", "$ python -m pip install django-shedlock"),
    ("docs/howto/django_crontab.rst", "$ python manage.py crontab add"),
    *(("docs/howto/installed_apps.rst", f"# {name}") for name in FOREIGN_FILES),
    (
        "docs/howto/any_program.rst",
        "$ python manage.py shedlock run --wait 10m --on-skip-exit 1 deploy -- "
        "./deploy.sh",
    ),
    (
        "docs/explanation/performance.rst",
        "$ python -m benchmarks.locks --only redis --redis redis://127.0.0.1:6379/7 "
        "--rounds 3000",
    ),
    (
        "docs/explanation/performance.rst",
        "$ python -m benchmarks.locks --only ways --redis redis://127.0.0.1:6379/7",
    ),
    (
        "docs/stores/dynamodb.rst",
        '$ python -m pip install "django-shedlock[dynamodb]"',
    ),
    (
        "docs/stores/dynamodb.rst",
        "$ aws dynamodb create-table --table-name shedlock "
        "--billing-mode PAY_PER_REQUEST \\",
    ),
    (
        "docs/stores/dynamodb.rst",
        "$ DYNAMODB_URL=http://127.0.0.1:8000 python -m pytest "
        "tests/providers/dynamodb",
    ),
    ("docs/project/releases.rst", "$ python -m pip install pypi-attestations"),
    ("docs/project/releases.rst", "$ git checkout v1.0.0rc1"),
    ("docs/project/releases.rst", "$ .ci/may_release v1.0.0rc1"),
    ("docs/stores/etcd.rst", '$ python -m pip install "django-shedlock[etcd]"'),
    ("docs/stores/mongodb.rst", '$ python -m pip install "django-shedlock[mongodb]"'),
    (
        "docs/stores/mongodb.rst",
        "$ MONGODB_URL=mongodb://127.0.0.1:27017/test python -m pytest "
        "tests/providers/mongodb",
    ),
    ("docs/stores/own.rst", '$ python -m pip install "django-shedlock[contract]"'),
    ("docs/stores/redis.rst", '$ python -m pip install "django-shedlock[redis]"'),
    (
        "docs/stores/zookeeper.rst",
        '$ python -m pip install "django-shedlock[zookeeper]"',
    ),
    (
        "docs/howto/backup.rst",
        "$ python manage.py migrate django_shedlock zero --fake",
    ),
    ("docs/howto/languages.rst", "$ cd django_shedlock"),
    ("docs/howto/languages.rst", "$ python -m django compilemessages"),
    (
        "docs/project/upgrade.rst",
        "$ python -m pip install --upgrade django-shedlock",
    ),
    ("docs/project/upgrade.rst", '$ python -m pip install "django-shedlock==1.0.*"'),
    ("docs/switch/cache_add.rst", "$ python -m pip install django-shedlock"),
    ("docs/tutorial.rst", "$ mkdir mysite && cd mysite"),
}
"""Every example that no test runs. Add one only if it can't run."""

COMMENTS = (
    "invisible-code-block: python\n",
    'skip: next "',
    "skip: next if(store ",
    "in the background",
    "after the background",
    "three in the background",
    "after some ticks",
)
"""How a comment may begin. Sybil would pass over one with a word that is misspelt."""


def pages_with_examples() -> Iterator[Any]:
    """Yield them, and run each once, or on each store if that makes a difference."""
    for page in DOCUMENTS.values():
        if page.path not in TYPED and find_examples(page.path).regions:
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
    # Threads of django-health-check leave their connections open. Since Python 3.13
    # those of SQLite warn when they are deleted.
    leaves_some = "health_check" in page.source
    with warnings.catch_warnings():
        if leaves_some:
            warnings.simplefilter("ignore", ResourceWarning)
        with only_jobs_of():
            Project(tmp_path, monkeypatch, settings).run(page.path)
        # Async examples leave those of their thread open: the database can't go then.
        asyncio.run(sync_to_async(connections.close_all)())
        if leaves_some:
            gc.collect()


def test_examples_that_do_not_run() -> None:
    """Only known examples don't run, and each one says why."""
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
