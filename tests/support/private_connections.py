"""The package's private connections, as a test sees them."""

from __future__ import annotations

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

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
