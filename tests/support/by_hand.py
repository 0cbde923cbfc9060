"""What people and other programs write into the tables by SQL."""

from __future__ import annotations

from django.db import connection

FAR = {
    "postgresql": ["infinity", "294276-12-31 23:59:59+00"],
    "sqlite": ["infinity"],
}
AGO = {
    "postgresql": ["-infinity", "4713-01-01 00:00:00 BC"],
    "mysql": ["0000-00-00 00:00:00", "2026-00-00 00:00:00"],
    "sqlite": ["0000-01-01", "10000-01-01", "", "2025-13-01", "2025-02-31"],
}


def far() -> list[str]:
    """Return instants that are further away than every zone of Python knows."""
    return [
        "9999-12-31",
        "9999-12-31 23:59:59.999999",
        *FAR.get(connection.vendor, []),
    ]


def ago() -> list[str]:
    """Return instants that are too long ago, and what is no instant."""
    return ["0001-01-01", *AGO[connection.vendor]]


def write(table: str, name: str, **columns: str) -> None:
    """Write texts into the columns, as people do with a client of the database."""
    assignments = ", ".join(f"{column} = %s" for column in columns)
    with connection.cursor() as cursor:
        if connection.vendor == "mysql":  # as servers have it that take zero dates
            cursor.execute("SET sql_mode = ''")
        cursor.execute(
            f"UPDATE {table} SET {assignments} WHERE name = %s",
            [*columns.values(), name],
        )
    if connection.vendor == "mysql":
        connection.close()
