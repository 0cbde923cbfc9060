"""
Emptying the tables after a test that commits, with less work than Django's flush.

Django's ``flush`` empties permissions and content types, too, and makes them again for
all apps. No test changes them, so they stay. On PostgreSQL it truncates, and so makes
new files for each table: deleting a few rows is much less work.
"""

from __future__ import annotations

from typing import Any

from django.core.management.color import Style
from django.core.management.commands import flush
from django.db.backends.base.base import BaseDatabaseWrapper

KEPT = {"auth_permission", "django_content_type"}


def install() -> None:
    """Let the flush of this process be the quick one."""
    flush.sql_flush = _without_kept_tables
    flush.emit_post_migrate_signal = _nothing_to_make_again


def _without_kept_tables(
    style: Style, connection: BaseDatabaseWrapper, **options: Any
) -> list[str]:
    names = connection.introspection.django_table_names(
        only_existing=True, include_views=False
    )
    emptied = sorted({*names} - KEPT)
    if connection.vendor == "postgresql":  # at the commit it checks what refers to what
        quoted = map(connection.ops.quote_name, emptied)
        return [" ".join(f"DELETE FROM {name};" for name in quoted)]
    return connection.ops.sql_flush(style, emptied, **options)


def _nothing_to_make_again(*args: Any, **options: Any) -> None:
    """Keep what the migrations made."""
