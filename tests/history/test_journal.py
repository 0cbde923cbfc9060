"""The journal: rows that are written before something happens, and finished after."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

import pytest
from django.db import DatabaseError
from django.test import override_settings
from django.views.debug import (
    SafeExceptionReporterFilter,
    get_default_exception_reporter_filter,
)

from django_shedlock.history.journal import fitting, without_secrets
from django_shedlock.history.recording import RUNS, exception_columns
from django_shedlock.locks.configuration import ZERO
from django_shedlock.models import LockRun
from django_shedlock.providers import get_provider
from django_shedlock.providers.memory import MemoryLockProvider

pytestmark = pytest.mark.django_db

BEGUN: dict[str, Any] = {
    **dict.fromkeys(("name", "provider", "locked_by", "host"), "job"),
    **dict.fromkeys(("operator", "reason"), ""),
    "trigger": "scheduler",
    "pid": 1,
    "skips": 3,
    "ago": ZERO,
}
END: dict[str, Any] = {
    "outcome": "succeeded",
    "duration": timedelta(seconds=1),
    **exception_columns(None),
}


def test_row_is_begun_and_finished() -> None:
    """Its key leads from one to the other."""
    key = RUNS.begin(get_provider(), BEGUN)
    assert LockRun.objects.get(pk=key).outcome == "running"
    RUNS.finish(get_provider(), key, BEGUN, END)
    assert LockRun.objects.get(pk=key).outcome == "succeeded"


@pytest.mark.parametrize("is_there", [True, False])
def test_row_without_a_key_is_looked_for(*, is_there: bool) -> None:
    """If it was written all the same it is finished, and else made now."""
    if is_there:
        RUNS.begin(get_provider(), BEGUN)
    RUNS.finish(get_provider(), None, BEGUN, END)
    run = LockRun.objects.get()
    assert (run.outcome, run.skips) == ("succeeded", 3)


def test_what_cannot_be_written_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is raised, and the log names the lock and what is lacking."""

    def fail(*args: Any, **values: Any) -> NoReturn:
        raise DatabaseError("no room on the disk")

    assert replace(RUNS, inserted=fail).begin(get_provider(), BEGUN) is None
    assert "The history lacks a run of lock 'job': no room on the disk" in caplog.text


def test_without_a_database_nothing_is_written() -> None:
    """A provider may have no history."""
    nowhere = MemoryLockProvider("default")
    assert RUNS.begin(nowhere, BEGUN) is None
    RUNS.finish(nowhere, None, BEGUN, END)
    assert not LockRun.objects.exists()


def test_texts_fit_in_their_columns() -> None:
    """In each database, with characters that it refuses written otherwise."""
    cut = fitting(operator="é" * 300, reason="a\0" + "b" * 3000)
    assert cut["operator"] == "é" * 255
    assert cut["reason"] == "a\\0" + "b" * 1997


HIDDEN = "*" * 20


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgresql://app:s3cr3t@db/shop", f"postgresql://app:{HIDDEN}@db/shop"),
        ("redis://:s3/cr:3t@db:6379/0", f"redis://:{HIDDEN}@db:6379/0"),
        ("amqp://app:s3@cr3t@db, twice", f"amqp://app:{HIDDEN}@db, twice"),
        ("host=db password=s3cr;3t user=app", f"host=db password={HIDDEN} user=app"),
        (r"password='s3 cr\'3t' host=db", f"password={HIDDEN} host=db"),
        ('password = "s3 cr3t" host', f"password = {HIDDEN} host"),
        ("password='s3cr3t", f"password={HIDDEN}"),
        ("sslpassword=s3cr3t", f"sslpassword={HIDDEN}"),
        ("{'passwd': 's3cr3t', 'a': 1}", f"{{'passwd': {HIDDEN}, 'a': 1}}"),
        ("?api_key=s3cr3t", f"?api_key={HIDDEN}"),
    ],
)
def test_secret_is_hidden(text: str, kept: str) -> None:
    """A URL's, a DSN's, and that of a dictionary; the rest stays readable."""
    assert without_secrets(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'missing'",
        "sorted(found, key=lambda each: each.name)",
        "see https://example.com:8080/path, or mail@example.com",
        "DETAIL:  Key (id)=(5) already exists.",
        'File "/srv/shop/jobs.py", line 7, in job',
        "x" * 1_000_000,
        "://a:" * 100_000,
    ],
)
def test_what_is_no_secret_is_kept(text: str) -> None:
    """Also if it is long, and soon."""
    assert without_secrets(text) == text


def test_names_are_those_of_the_projects_error_reports() -> None:
    """What Django's own reports hide, the history hides."""
    path = f"{__name__}.Filter"
    with override_settings(DEFAULT_EXCEPTION_REPORTER_FILTER=path):
        get_default_exception_reporter_filter.cache_clear()
        try:
            assert without_secrets("pin=1234 password=x") == "pin=(gone) password=x"
        finally:
            get_default_exception_reporter_filter.cache_clear()


class Filter(SafeExceptionReporterFilter):
    cleansed_substitute = "(gone)"
    hidden_settings = re.compile("^pin$")
