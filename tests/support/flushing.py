"""
Emptying the tables after a test that commits, with less work than Django's flush.

Django's ``flush`` empties permissions and content types, too, and makes them again for
all apps. No test changes them, so they stay. On PostgreSQL it truncates, and so makes
new files for each table: deleting a few rows is much less work.

A server still carries out the last statement of a process that was killed. The flush
waits for such statements, or their rows would turn up in the next test.
"""

from __future__ import annotations

import time
from typing import Any

from django.core.management.color import Style
from django.core.management.commands import flush
from django.db import connection as default_connection
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.support.sessions import AT_WORK, number_at_work

KEPT = {"auth_permission", "django_content_type"}
LOOK_LIMIT = 400
"""The wait ends after so many looks: the server of a test may hang."""


def install() -> None:
    """Let the flush of this process be the quick one."""
    flush.sql_flush = _without_kept_tables
    flush.emit_post_migrate_signal = _nothing_to_make_again


def _without_kept_tables(
    style: Style, connection: BaseDatabaseWrapper, **options: Any
) -> list[str]:
    if connection.vendor in AT_WORK:
        wait_until_others_are_idle(connection)
    names = connection.introspection.django_table_names(
        only_existing=True, include_views=False
    )
    emptied = sorted({*names} - KEPT)
    if connection.vendor == "postgresql":  # at the commit it checks what refers to what
        quoted = map(connection.ops.quote_name, emptied)
        return [" ".join(f"DELETE FROM {name};" for name in quoted)]
    return connection.ops.sql_flush(style, emptied, **options)


def wait_until_others_are_idle(of: Any = default_connection) -> None:
    """Wait until no other session of the database carries out a statement."""
    for _ in range(LOOK_LIMIT):
        if not number_at_work(of):
            return
        time.sleep(0.005)


def _nothing_to_make_again(*args: Any, **options: Any) -> None:
    """Keep what the migrations made."""
