"""The system checks of the database provider."""

import sys
from collections.abc import Iterator
from pathlib import Path

from django.core.checks import CheckMessage, Error, Warning
from django.db import Error as DatabaseError
from django.db import connections

from django_shedlock.clocks import CLOCK_TOLERANCE, clock_difference
from django_shedlock.durations import format_duration
from django_shedlock.in_tests import are_databases_temporary
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers.base import Place

IS_READ_ONLY_QUERIES = {
    "postgresql": "SELECT current_setting('transaction_read_only') = 'on'",
    "mysql": "SELECT @@global.read_only",
}
"""Their answer is true on a replica."""


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


def place_of(using: str) -> Place | None:
    """Return where the table is; ``None`` if ``using`` is no database."""
    if using not in connections:
        return None
    text = f"one table of the database {using!r}"
    database = connections.settings[using]
    name, options = str(database["NAME"]), database["OPTIONS"]
    is_in_memory = name == ":memory:" or "mode=memory" in name
    if are_databases_temporary() or is_in_memory or not name:
        return Place((using,), text)  # the name does not say where it is
    address = [database["ENGINE"], Path(name).resolve(), database["HOST"]]
    # PostgreSQL looks for the table in the schema "$user" first.
    address += [database["PORT"], database.get("USER")]
    # These may choose another schema, database or server.
    for option in ("options", "service", "read_default_file", "unix_socket"):
        address.append(options.get(option))
    return Place(tuple(map(str, address)), text)


def check_database(using: str) -> list[CheckMessage]:
    """Return warnings if jobs won't run, or won't run when they should."""
    try:
        return list(_warnings(using))
    except DatabaseError as error:
        text = f"The locks in database {using!r} can't be read: {str(error).strip()}"
        hint = "No job with a lock runs while its store is unreachable."
        return [Warning(text, hint=hint, id="shedlock.W005")]


def _warnings(using: str) -> Iterator[CheckMessage]:
    tables = connections[using].introspection.table_names()
    effects = {
        LockRecord._meta.db_table: "no job with a lock will run",
        LockRun._meta.db_table: "no run will be recorded",
    }
    missing = [table for table in effects if table not in tables]
    if missing and not is_being_migrated(using, LockRecord._meta.app_label):
        hint = f"Run `python manage.py migrate --database {using}`."
        for table in missing:
            text = f"The table {table!r} is missing in database {using!r}, so "
            text += f"{effects[table]}."
            # An error would stop the very `migrate` that makes the table.
            yield Warning(text, hint=hint, id="shedlock.W003")
    if missing:
        return
    question = IS_READ_ONLY_QUERIES.get(connections[using].vendor)
    if question is not None:
        with connections[using].cursor() as cursor:
            cursor.execute(question)
            [is_read_only] = cursor.fetchone()
        if is_read_only:
            yield Warning(
                f"The database {using!r} is read-only, as a replica is, so no job with "
                "a lock will run.",
                hint="Let the provider's `using` name the primary.",
                id="shedlock.W017",
            )
    difference = clock_difference(LockRecord.objects.using(using).clock)
    if abs(difference) > CLOCK_TOLERANCE:
        yield Warning(
            f"The clock of database {using!r} differs from this host's by "
            f"{format_duration(difference)}.",
            hint=(
                "Locks go by the database's clock and are right, but your scheduler "
                "goes by this host's. Synchronize both, for example with NTP."
            ),
            id="shedlock.W004",
        )


def is_being_migrated(using: str, app_label: str) -> bool:
    """Return whether this process is the ``migrate`` that makes the app's tables."""
    # Django checks before it migrates. If a router keeps the migration from making the
    # table, it is recorded as applied nevertheless: then the warning is right.
    if sys.argv[1:2] != ["migrate"]:
        return False
    from django.db.migrations.recorder import MigrationRecorder  # many modules

    applied = MigrationRecorder(connections[using]).applied_migrations()
    return all(app != app_label for app, _ in applied)
