"""Texts as the history keeps them: without secrets, and cut to their columns."""

from __future__ import annotations

import re

import pytest
from django.test import override_settings
from django.views.debug import (
    SafeExceptionReporterFilter,
    get_default_exception_reporter_filter,
)

from django_shedlock.history.texts import fitting, without_secrets
from django_shedlock.models import LockRun


def test_texts_fit_in_their_columns() -> None:
    """In each database, with characters that it refuses written otherwise."""
    cut = fitting(LockRun, operator="é" * 300, reason="a\0" + "b" * 3000)
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
