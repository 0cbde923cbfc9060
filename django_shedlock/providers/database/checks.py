"""The system checks of the database provider."""

from __future__ import annotations

from django.core.checks import CheckMessage, Error, Warning
from django.db import Error as DatabaseError
from django.db import connections

from django_shedlock.clocks import TOLERANCE, clock_difference
from django_shedlock.durations import format_duration
from django_shedlock.models import LockRecord, LockRun

NEEDED_FOR = {
    LockRecord._meta.db_table: "no job with a lock will run",
    LockRun._meta.db_table: "no run will be recorded",
}
"""What each table's absence leads to."""


def check_alias(alias: str, using: str) -> list[CheckMessage]:
    """Return an error if ``using`` is no database of the project."""
    if using in connections:
        return []
    return [
        Error(
            f"SHEDLOCK_PROVIDERS[{alias!r}] uses the database {using!r}, which is not "
            "in DATABASES.",
            hint=f"DATABASES has {', '.join(map(repr, connections))}.",
            id="shedlock.E002",
        )
    ]


def check_database(using: str) -> list[CheckMessage]:
    """Return warnings if the table is missing, or the clocks are far apart."""
    try:
        tables = connections[using].introspection.table_names()
        missing = [table for table in NEEDED_FOR if table not in tables]
        if missing:
            return [_missing_table(using, table) for table in missing]
        return _check_clocks(using)
    except DatabaseError as error:
        return [_unreachable(using, error)]


def _check_clocks(using: str) -> list[CheckMessage]:
    difference = clock_difference(LockRecord.objects.using(using).clock)
    if abs(difference) <= TOLERANCE:
        return []
    return [
        Warning(
            f"The clock of database {using!r} differs from this host's by "
            f"{format_duration(difference)}.",
            hint=(
                "Locks go by the database's clock and are right, but your scheduler "
                "goes by this host's. Synchronize both, for example with NTP."
            ),
            id="shedlock.W004",
        )
    ]


def _missing_table(using: str, table: str) -> CheckMessage:
    # A warning, since an error would stop the very `migrate` that makes the table.
    return Warning(
        f"The table {table!r} is missing in database {using!r}, so "
        f"{NEEDED_FOR[table]}.",
        hint=f"Run `manage.py migrate --database {using}`.",
        id="shedlock.W003",
    )


def _unreachable(using: str, error: DatabaseError) -> CheckMessage:
    return Warning(
        f"The locks in database {using!r} can't be read: {str(error).strip()}",
        hint="No job with a lock runs while its store is unreachable.",
        id="shedlock.W005",
    )
