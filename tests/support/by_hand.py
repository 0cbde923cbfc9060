"""What people and other programs write into the tables by SQL."""

from __future__ import annotations

from django.db import connection


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
