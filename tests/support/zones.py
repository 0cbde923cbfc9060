"""The time zones of a project and of its database connection, and zones' files."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from django.db import connections
from django.test import override_settings


def zone_file(name: str) -> bytes:
    """Return the file of the time zone."""
    for folder in zoneinfo.TZPATH:
        if Path(folder, name).exists():
            return Path(folder, name).read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


@contextmanager
def project(*, use_tz: bool, zone: str, database_zone: str | None) -> Iterator[None]:
    """Let the project and its database connection have these settings."""
    connection = connections["default"]
    connection.close()
    before = connection.settings_dict["TIME_ZONE"]
    with override_settings(USE_TZ=use_tz, TIME_ZONE=zone):
        connection.settings_dict["TIME_ZONE"] = database_zone
        _forget_zones()
        try:
            yield
        finally:
            connection.close()
            connection.settings_dict["TIME_ZONE"] = before
    _forget_zones()


def _forget_zones() -> None:
    connection = connections["default"]
    for name in ("timezone", "timezone_name"):
        connection.__dict__.pop(name, None)
