"""The system check of the console's tables."""

from collections.abc import Sequence

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock.console.models import LockAction, Notice
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.database.checks import is_being_migrated
from django_shedlock.sql.connections import within_deadline


def check_tables(
    databases: Sequence[str] | None = None, **kwargs: object
) -> list[CheckMessage]:
    """Warn if a table of the console is missing in a database of a provider."""
    messages: list[CheckMessage] = []
    try:
        used = {get_provider(each).history_database for each in provider_aliases()}
    except ImproperlyConfigured:  # the core's checks report it
        return messages
    effects = {
        LockAction._meta.db_table: "no action of an operator will be recorded",
        Notice._meta.db_table: "no notification will be sent",
    }
    for using in (each for each in databases or () if each in used):
        try:
            tables = within_deadline(_table_names, using)
        except DatabaseError:  # the core's checks report it
            continue
        missing = [table for table in effects if table not in tables]
        label = LockAction._meta.app_label
        if not missing or is_being_migrated(connections[using], label):
            continue
        messages += [
            Warning(
                f"The table {table!r} is missing in database {using!r}, so "
                f"{effects[table]}.",
                # As the core's check has it.
                hint=f"Run `python manage.py migrate --database {using}`.",
                id="shedlock.W003",
            )
            for table in missing
        ]
    return messages


def _table_names(connection: BaseDatabaseWrapper) -> list[str]:
    return connection.introspection.table_names()
