"""The system checks of the database provider."""

import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from django.core import management
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from django_shedlock import conf
from django_shedlock.clocks import CLOCK_TOLERANCE, clock_difference
from django_shedlock.durations import format_duration
from django_shedlock.in_tests import are_databases_temporary
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers.base import Place
from django_shedlock.sql.compiling import on_connection
from django_shedlock.sql.connections import within_deadline
from django_shedlock.sql.errors import JAVA_URL, KNOWN_DATABASES
from django_shedlock.sql.fields import ClockMilliseconds

IS_READ_ONLY_QUERIES = {
    "postgresql": "SELECT current_setting('transaction_read_only') = 'on'",
    "mysql": "SELECT @@global.read_only",
}
"""Their answer is true on a replica."""


TRIED_VENDORS = {"postgresql", "mysql", "sqlite"}
EFFECTS: dict[type[Model], str] = {
    LockRecord: "no job with a lock will run",
    LockRun: "no run will be recorded",
}
"""What happens without the table, or with one that lacks columns."""
JAVA_COLUMNS = {"name", "lock_until", "locked_at", "locked_by"}


def check_alias(alias: str, using: str) -> list[CheckMessage]:
    """Return what is wrong with ``using``, by the settings alone."""
    entry = f"SHEDLOCK_PROVIDERS[{alias!r}]"
    if using not in connections:
        return [
            Error(
                f"{entry} uses the database {using!r}, which is not in DATABASES.",
                hint=f"DATABASES has {', '.join(map(repr, connections))}.",
                id="shedlock.E002",
            )
        ]
    connection = connections[using]
    name = connection.display_name
    if connection.vendor in TRIED_VENDORS:
        return []
    if connection.vendor not in ClockMilliseconds.templates:
        return [
            Error(
                f"{entry} keeps its locks in {name}, whose clock they can't rely on. "
                "On SQL Server, for example, it is local time in whole seconds.",
                hint=f"{KNOWN_DATABASES} Let `using` name one of these, or use "
                "another store.",
                id="shedlock.E002",
            )
        ]
    return [
        Warning(
            f"{entry} keeps its locks in {name}. Nobody has tried that: two workers "
            "may run one job at the same time.",
            hint=f"{KNOWN_DATABASES} If you have tried it, silence this check.",
            id="shedlock.W021",
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

    def look(connection: BaseDatabaseWrapper) -> list[CheckMessage]:
        return list(_warnings(connection))

    try:
        return within_deadline(look, using)
    except DatabaseError as error:
        text = f"The locks in database {using!r} can't be read: {str(error).strip()}"
        hint = "No job with a lock runs while its store is unreachable."
        return [Warning(text, hint=hint, id="shedlock.W005")]


def _warnings(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    using = connection.alias
    tables = connection.introspection.table_names()
    if connection.features.ignores_table_name_case:
        tables = [table.lower() for table in tables]
    yield from _look_alikes(connection, tables)
    missing = [model for model in EFFECTS if _table_of(model, connection) not in tables]
    faults: list[CheckMessage] = []
    for model in EFFECTS:
        if model not in missing:
            faults += _missing_columns(model, connection)
    if missing and not is_being_migrated(connection, LockRecord._meta.app_label):
        for model in missing:
            # An error would stop the very `migrate` that makes the table.
            table = _table_of(model, connection)
            text = f"The table {table!r} is missing in database "
            text += f"{using!r}, so {EFFECTS[model]}."
            faults.append(_fault_of_table(text, _migrate(using)))
    yield from faults
    if missing or faults:
        return
    question = IS_READ_ONLY_QUERIES.get(connection.vendor)
    if question is not None:
        with connection.cursor() as cursor:
            cursor.execute(question)
            [is_read_only] = cursor.fetchone()
        if is_read_only:
            yield Warning(
                f"The database {using!r} is read-only, as a replica is, so no job with "
                "a lock will run.",
                hint="Let the provider's `using` name the primary.",
                id="shedlock.W017",
            )
    records = on_connection(LockRecord.objects.using(using), connection)
    difference = clock_difference(records.clock)
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


def _table_of(model: type[Model], connection: BaseDatabaseWrapper) -> str:
    """Return the model's table, in lower case where case does not count."""
    table = str(model._meta.db_table)
    ignores_case = connection.features.ignores_table_name_case
    return table.lower() if ignores_case else table


def _missing_columns(
    model: type[Model], connection: BaseDatabaseWrapper
) -> list[CheckMessage]:
    using, table = connection.alias, _table_of(model, connection)
    with connection.cursor() as cursor:
        columns = connection.introspection.get_table_description(cursor, table)
    found = {column.name for column in columns}
    wanted = [str(field.column) for field in model._meta.concrete_fields]
    missing = [column for column in wanted if column not in found]
    if not missing:
        return []
    text = f"The table {table!r} in database {using!r} lacks the columns "
    text += f"{', '.join(missing)}, so {EFFECTS[model]}."
    if model is LockRecord and found <= JAVA_COLUMNS:
        hint = "ShedLock for Java made this table, but Django has to make it: see "
        return [_fault_of_table(text, f"{hint}{JAVA_URL}.")]
    if is_being_migrated(connection, LockRecord._meta.app_label):
        return []
    return [_fault_of_table(text, _migrate(using))]


def _look_alikes(
    connection: BaseDatabaseWrapper, tables: Collection[str]
) -> Iterator[CheckMessage]:
    """Warn of a table that a service in Java may use in place of ours."""
    using, ours = connection.alias, _table_of(LockRecord, connection)
    for table in tables:
        if table.lower() == ours.lower() and table != ours:
            text = f"SHEDLOCK_TABLE is {ours!r}, but database {using!r} has a table "
            text += f"{table!r}. A Java service with that one shares no locks with us."
            hint = "ShedLock writes names without quotes, which PostgreSQL reads in "
            hint += "lower case. Set SHEDLOCK_TABLE to the name that Java uses."
            yield _fault_of_table(text, hint)


def _fault_of_table(text: str, hint: str) -> CheckMessage:
    return Warning(text, hint=hint, id="shedlock.W003")


def _migrate(using: str) -> str:
    return f"Run `python manage.py migrate --database {using}`."


def _migrates(name: str = "") -> bool:
    """Return whether the command is ``migrate``, or one like it."""
    if name == "migrate":
        return True
    with suppress(ImproperlyConfigured):  # another check reports the setting
        options = conf.COMMANDS.value.get(name)
        if isinstance(options, dict) and options.get("migrates") is True:
            return True
    with suppress(Exception):  # whatever its module raises
        app = management.get_commands().get(name)
        kind = type(management.load_command_class(str(app), name))
        from django.core.management.commands import migrate

        return issubclass(kind, migrate.Command)
    return False


def is_being_migrated(connection: BaseDatabaseWrapper, app_label: str) -> bool:
    """Return whether this process is the ``migrate`` that makes the app's tables."""
    # Django checks before it migrates. If a router keeps the migration from making the
    # table, it is recorded as applied nevertheless: then the warning is right.
    if not _migrates(*sys.argv[1:2]):
        return False
    from django.db.migrations.recorder import MigrationRecorder  # many modules

    applied = MigrationRecorder(connection).applied_migrations()
    return all(app != app_label for app, _ in applied)
