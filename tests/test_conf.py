"""The settings."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_shedlock import conf


def test_defaults_are_valid() -> None:
    """Every default passes its own check."""
    assert [setting.value for setting in conf.SETTINGS] == [
        setting.default for setting in conf.SETTINGS
    ]


def test_value_is_read_at_use() -> None:
    """A setting that is overridden in a test counts at once."""
    with override_settings(SHEDLOCK_NAMESPACE="blue"):
        assert conf.NAMESPACE.value == "blue"
    assert conf.NAMESPACE.value == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SHEDLOCK_PROVIDERS", []),
        ("SHEDLOCK_DEFAULT_LOCK_AT_MOST_FOR", True),
        ("SHEDLOCK_DEFAULT_LOCK_AT_LEAST_FOR", None),
        ("SHEDLOCK_NAMESPACE", 1),
        ("SHEDLOCK_ENABLED", "False"),
    ],
)
def test_wrong_type_is_refused_by_name(name: str, value: Any) -> None:
    """A wrong type is an error that names the setting and its value."""
    setting = next(s for s in conf.SETTINGS if s.name == name)
    with override_settings(**{name: value}):
        with pytest.raises(ImproperlyConfigured, match=name) as caught:
            _ = setting.value
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("table", ["shedlock", "SHEDLOCK", "locks of ours", "1st$-b"])
def test_name_of_a_table(table: str) -> None:
    """What a Java service may have chosen is accepted as it is."""
    with override_settings(SHEDLOCK_TABLE=table):
        assert conf.TABLE.value == table


@pytest.mark.parametrize("table", ["my_schema.shedlock", '"my_schema"."shedlock"', "."])
def test_table_in_a_schema_is_refused(table: str) -> None:
    """Django would quote the dot, and make another table than the one that is meant."""
    with override_settings(SHEDLOCK_TABLE=table):
        with pytest.raises(ImproperlyConfigured, match="search_path") as caught:
            _ = conf.TABLE.value
    assert f"SHEDLOCK_TABLE = {table!r}" in str(caught.value)


@pytest.mark.parametrize(
    "table", ["", " ", "locks ", '"locks"', "`locks`", "l%s", "a\n", "x" * 64, "ä" * 32]
)
def test_name_of_no_table_is_refused(table: str) -> None:
    """An empty name, quotes, a percent sign, and what PostgreSQL would cut."""
    with override_settings(SHEDLOCK_TABLE=table):
        with pytest.raises(ImproperlyConfigured, match="63 bytes"):
            _ = conf.TABLE.value
