"""Commands that call commands, with those of django-haystack and 200 documents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.waiting import STARTUP_PATIENCE

pytestmark = pytest.mark.once

pytest.importorskip("whoosh", exc_type=ImportError)

SETTINGS = """
import json, os
from pathlib import Path

FOLDER = Path(__file__).parent
SECRET_KEY = "tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["haystack", "library", "django_shedlock"]
DATABASES = {"default": {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": FOLDER / "db.sqlite3",
    "OPTIONS": {"timeout": 60},
}}
HAYSTACK_CONNECTIONS = {"default": {
    "ENGINE": "haystack.backends.whoosh_backend.WhooshEngine",
    "PATH": str(FOLDER / "index"),
}}
SHEDLOCK_COMMANDS = json.loads(os.environ["SHEDLOCK_TEST_COMMANDS"])
LOGGING = {
    "version": 1,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django_shedlock": {"handlers": ["console"], "level": "INFO"}},
}
"""
MODELS = """
from django.db import models

class Book(models.Model):
    title = models.CharField(max_length=100)
"""
INDEXES = """
import os, sys
from haystack import indexes
from library.models import Book

class BookIndex(indexes.SearchIndex, indexes.Indexable):
    text = indexes.CharField(document=True, model_attr="title")

    def get_model(self):
        return Book

    def index_queryset(self, using=None):
        if "SHEDLOCK_TEST_WAITS" in os.environ:
            print("inside", flush=True)
            sys.stdin.readline()
        return Book.objects.all()
"""
ADD_BOOKS = """
import django; django.setup()
from library.models import Book
Book.objects.bulk_create(Book(title=f"Volume {number}") for number in range(200))
"""
COUNT = """
import django; django.setup()
from haystack.query import SearchQuerySet
print(SearchQuerySet().count())
"""
OPTIONS = {"lock_at_most_for": "5m", "lock_at_least_for": "1m"}


class Library:
    """A project with 200 books and their index, whose commands are processes."""

    def __init__(self, folder: Path):
        app = folder / "library"
        app.mkdir()
        (folder / "library_settings.py").write_text(SETTINGS)
        (app / "__init__.py").touch()
        (app / "models.py").write_text(MODELS)
        (app / "search_indexes.py").write_text(INDEXES)
        self.commands: dict[str, Any] = {}
        self._path = os.pathsep.join([str(folder), str(ROOT)])
        self.manage("migrate", "--run-syncdb", "-v", "0")
        self._wait_for(self._start("-c", ADD_BOOKS))

    def _start(self, *args: str, **variables: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "library_settings",
            "PYTHONPATH": self._path,
            "PYTHONWARNINGS": "ignore",  # Whoosh is older than this Python
            "SHEDLOCK_TEST_COMMANDS": json.dumps(self.commands),
        }
        return subprocess.Popen(
            [sys.executable, *args],
            env=environment | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _wait_for(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        out, errors = process.communicate(timeout=STARTUP_PATIENCE)
        return process.returncode, out + errors

    def manage(self, *args: str) -> tuple[int, str]:
        """Call ``manage.py``; return the exit status, and all that it printed."""
        return self._wait_for(self._start("-m", "django", *args))

    def start_update(self) -> subprocess.Popen[str]:
        """Start ``update_index``; return when it waits in the middle of its work."""
        started = self._start("-m", "django", "update_index", SHEDLOCK_TEST_WAITS="yes")
        assert started.stdout is not None
        while "inside" not in (line := started.stdout.readline()):
            assert line, self._wait_for(started)
        return started

    def finish(self, update: subprocess.Popen[str]) -> None:
        """Let the update go on, to its end."""
        out, errors = update.communicate("\n", timeout=STARTUP_PATIENCE)
        assert update.returncode == 0, out + errors

    def rebuild(self) -> tuple[int, str]:
        """Call ``rebuild_index``, which clears the index and updates it."""
        return self.manage("rebuild_index", "--noinput")

    def count(self) -> int:
        """Return how many documents the index has."""
        status, text = self._wait_for(self._start("-c", COUNT))
        assert status == 0, text
        return int(text.splitlines()[-1])


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path)


def test_two_locks_leave_an_empty_index(library: Library) -> None:
    """The inner command is skipped after the outer one has cleared; the log says it."""
    library.commands = {"update_index": OPTIONS, "rebuild_index": OPTIONS}
    library.manage("update_index")
    assert library.count() == 200
    status, text = library.rebuild()
    assert (status, library.count()) == (0, 0)
    assert "Removing all documents" in text
    assert "The command 'rebuild_index' called it." in text


def test_one_lock_for_both_keeps_the_index_whole(library: Library) -> None:
    """While one host updates, the rebuild of another one is skipped as a whole."""
    name = {"lock_at_most_for": "5m", "name": "search index"}
    library.commands = {"update_index": name, "rebuild_index": name}
    assert library.rebuild()[0] == 0
    assert library.count() == 200
    update = library.start_update()
    status, text = library.rebuild()
    assert (status, library.count()) == (0, 200)
    assert "Removing all documents" not in text
    library.finish(update)
    assert library.count() == 200
    assert library.rebuild()[0] == 0
    assert library.count() == 200
    _, checked = library.manage("check")
    assert "shedlock.W001" not in checked


def test_failing_skip_reports_the_empty_index(library: Library) -> None:
    """The rebuild ends with status 75, and a later one fills the index."""
    library.commands = {"update_index": {**OPTIONS, "on_skip": "fail"}}
    library.manage("update_index")
    status, text = library.rebuild()
    assert (status, library.count()) == (75, 0)
    assert "CommandError: Lock 'update_index' is held by" in text
    library.manage("shedlock", "release", "update_index", "--force", "--reason", "test")
    assert library.rebuild()[0] == 0
    assert library.count() == 200
