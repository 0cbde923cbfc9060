"""The harness itself: the suite runs on the database that it says."""

from __future__ import annotations

import pytest
from django.db import connections

from tests.stores import STORE_VARIABLE, chosen_store, parse_url

VENDORS = {"sqlite": "sqlite", "postgres": "postgresql", "mariadb": "mysql"}


@pytest.mark.django_db(databases=["default", "other"])
@pytest.mark.parametrize("alias", ["default", "other"])
def test_database_is_the_chosen_one(alias: str) -> None:
    """Each alias answers, with the vendor that the environment asked for."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
    assert connections[alias].vendor == VENDORS[chosen_store()]


def test_unknown_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt store is an error, and not the default."""
    monkeypatch.setenv(STORE_VARIABLE, "postgresql")
    with pytest.raises(ValueError, match="use one of sqlite, postgres, mariadb"):
        chosen_store()


def test_url_with_host() -> None:
    """A URL gives user, password, host, port and name, unquoted."""
    assert parse_url("mysql://me:p%40ss@127.0.0.1:3306/test") == {
        "NAME": "test",
        "USER": "me",
        "PASSWORD": "p@ss",
        "HOST": "127.0.0.1",
        "PORT": "3306",
    }


def test_url_with_socket() -> None:
    """The folder of a Unix socket stands in the query, or quoted as the host."""
    settings = parse_url("postgresql://postgres:@/postgres?host=/tmp/run")
    assert (settings["HOST"], settings["NAME"]) == ("/tmp/run", "postgres")
