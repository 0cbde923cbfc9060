"""What the errors of databases mean, and what they advise."""

from __future__ import annotations

import pytest
from django.db import (
    DatabaseError,
    InternalError,
    OperationalError,
    connection,
)

from django_shedlock import LockProviderError
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.sql import errors
from tests.support.locks import configure, try_from
from tests.support.paths import ROOT

committed = pytest.mark.django_db(transaction=True)


def as_driver_says(
    code: str | int, kind: type[DatabaseError] = OperationalError
) -> DatabaseError:
    """Return the error as Django raises it for a state, or for MySQL's number."""
    error = kind(code)
    error.__cause__ = Exception()
    if isinstance(code, str):
        vars(error.__cause__)["sqlstate"] = code
    return error


@pytest.mark.parametrize(
    "code", ["25006", "57P01", "57P02", "57P03", 1047, 1053, 1290, 1792, 1836, 3032]
)
@pytest.mark.parametrize("kind", [OperationalError, InternalError, DatabaseError])
def test_server_that_can_not_write_is_left(
    code: str | int, kind: type[DatabaseError]
) -> None:
    """A fresh connection is tried, whatever class a driver has for the error."""
    error = as_driver_says(code, kind)
    assert errors.is_unfit_server(error)
    assert errors.may_be_lost_connection(error)


@pytest.mark.parametrize("code", ["25P03", "25P04", "57P05", 1927, 4031])
def test_session_that_the_server_ended_is_a_lost_connection(code: str | int) -> None:
    """psycopg calls some of these an InternalError."""
    error = as_driver_says(code, InternalError)
    assert errors.may_be_lost_connection(error)
    assert not errors.is_unfit_server(error)


@pytest.mark.parametrize("code", ["42501", "25P02", "23505", "55P03", 1142, 1205])
def test_other_errors_are_none_of_the_connection(code: str | int) -> None:
    """A refusal that every connection would meet is not tried again."""
    error = as_driver_says(code, InternalError)
    assert not errors.may_be_lost_connection(error)


def advice() -> str:
    with pytest.raises(LockProviderError) as caught:
        try_from(DatabaseLockProvider("default"), configure())
    text = str(caught.value)
    assert "'job'" in text
    assert "pooler" not in text
    return text


def send(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.postgres_only
@committed
def test_read_only_database_says_so() -> None:
    """The advice is to reach the primary; it mentions no pooler and no migration."""
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    change = f"ALTER DATABASE {name} SET default_transaction_read_only = "
    send(f"{change} on")
    connection.close()
    try:
        text = advice()
    finally:
        connection.close()
        send("SET default_transaction_read_only = off")
        send(f"{change} off")
        connection.close()
    assert "It is read-only, as a replica is" in text
    assert "migrate" not in text


@pytest.mark.sqlite_only
@committed
def test_read_only_file_says_so() -> None:
    """On SQLite the file, or its folder, is not writable."""
    send("PRAGMA query_only = 1")
    try:
        text = advice()
    finally:
        send("PRAGMA query_only = 0")
    assert "The file and its folder have to be writable" in text
    assert "migrate" not in text


SLOW_STATEMENTS = {
    "postgresql": ["SET statement_timeout = '1ms'", "SELECT pg_sleep(600)"],
    # MariaDB's SLEEP() sometimes ends at the limit without an error.
    "mysql": [
        "SET STATEMENT max_statement_time = 0.001 FOR SELECT COUNT(*) FROM "
        + ", ".join(f"information_schema.columns AS c{number}" for number in range(4))
    ],
}


@pytest.mark.servers_only
@committed
def test_statement_that_was_too_slow_says_so() -> None:
    """The advice is about the time limit, and neither about poolers nor migrations."""
    with pytest.raises(DatabaseError) as caught:
        for statement in SLOW_STATEMENTS[connection.vendor]:
            send(statement)
    connection.close()
    assert_is_about_time(errors.describe(caught.value))


@pytest.mark.parametrize("code", ["57014", 1317, 1969, 3024])
def test_interrupted_statement_says_so(code: str | int) -> None:
    """An administrator may also have ended it."""
    assert_is_about_time(errors.describe(as_driver_says(code)))


def assert_is_about_time(text: str) -> None:
    assert "A time limit of your database ended the statement" in text
    assert "pooler" not in text
    assert "migrate" not in text


@committed
def test_table_of_others_leads_to_the_page_on_java() -> None:
    """A table with ShedLock's four columns leads to the page on Java."""
    send("ALTER TABLE shedlock RENAME TO elsewhere")
    send(
        "CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT "
        "NULL, locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, "
        "PRIMARY KEY (name))"
    )
    try:
        text = advice()
    finally:
        send("DROP TABLE shedlock")
        send("ALTER TABLE elsewhere RENAME TO shedlock")
    assert "If ShedLock for Java made the table" in text
    assert errors.JAVA_URL in text


def test_page_on_java_is_there() -> None:
    """The address that errors and checks name leads to a page."""
    page = errors.JAVA_URL.partition("/en/stable/")[2]
    assert (ROOT / "docs" / page).with_suffix(".rst").exists()
