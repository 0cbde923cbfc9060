"""The package's private connections, as a test sees them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.utils import CaptureQueriesContext

from django_shedlock.sql import connections as connecting


def noted_opens(monkeypatch: pytest.MonkeyPatch) -> list[BaseDatabaseWrapper]:
    """Return the list to which each private connection is added when it is opened."""
    opened: list[BaseDatabaseWrapper] = []
    really = connecting._open

    def note(connection: BaseDatabaseWrapper) -> None:
        opened.append(connection)
        really(connection)

    monkeypatch.setattr(connecting, "_open", note)
    return opened


def _is_only_connection(connection: BaseDatabaseWrapper) -> bool:
    return True


@contextmanager
def counted_statements() -> Iterator[CaptureQueriesContext]:
    """Count the statements of the body, all of which the caller's connection sends."""
    with (
        patch.object(connecting, "is_only_connection", _is_only_connection),
        CaptureQueriesContext(connection) as queries,
    ):
        yield queries
