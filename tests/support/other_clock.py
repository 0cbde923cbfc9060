"""Take a lock in a process whose clock is wrong: ``python -m … DATABASE NAME``."""

from __future__ import annotations

import sys
import time

import tests.support.preload  # noqa: F401
from tests.support.locks import configure, try_from


def main(database: str, name: str) -> None:
    """Print this process's idea of the time, and who holds the lock."""
    from django.db import connections

    from django_shedlock.locks.lock import Lock
    from django_shedlock.providers.database import DatabaseLockProvider

    connections["default"].settings_dict["NAME"] = database
    acquired = try_from(DatabaseLockProvider("default"), configure(name))
    holder = "me" if isinstance(acquired, Lock) else acquired.locked_by
    print(time.time(), holder)


if __name__ == "__main__":
    main(*sys.argv[1:])
