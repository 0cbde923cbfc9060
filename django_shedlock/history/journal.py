"""
Rows that are written before something happens, and finished after it.

Runs and operators' actions have such rows. What they tell of never fails because of
them: what can't be written is logged.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper

from django_shedlock import conf
from django_shedlock.fields import storable
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database.connections import Work, run
from django_shedlock.providers.database.statements import (
    Insert,
    Parameter,
    Select,
    Update,
    text,
)
from django_shedlock.signals import logger

T = TypeVar("T")
Values = Mapping[str, Any]
Where = Lock | LockProvider
"""Has the database of the rows."""

LONGEST = {"operator": 255, "exception_type": 255}
"""Columns that have room for fewer characters than the others."""
LONGEST_TEXT = 2000


def fitting(**texts: str) -> dict[str, str]:
    """Return each text as every database accepts it, and its column has room for it."""
    return {
        column: storable(value)[: LONGEST.get(column, LONGEST_TEXT)]
        for column, value in texts.items()
    }


# Note [What a secret looks like]
# A password may have any character but a space, and may end at the last @ only. Too
# much that is hidden does no harm. A source line's `key=lambda` stays readable.
URL = re.compile(r"(://[^\s:@/]*:)\S{1,500}(?=@)")
PAIR = re.compile(
    r"""(?<![\w.-])((['"]?)([\w.-]++)\2(?:\s*=|(?<=['"])\s*:)\s*)(?!lambda\b)"""
    r"""('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|\S+)"""
)


def without_secrets(text: str) -> str:
    """
    Return the text without the passwords of URLs and DSNs.

    The default of ``SHEDLOCK_HISTORY_SCRUB``. In ``name=value`` the value is hidden if
    the project's ``DEFAULT_EXCEPTION_REPORTER_FILTER`` hides settings of this name.
    """
    # It imports Django's templates and URLs.
    from django.views import debug

    known: Any = debug.get_default_exception_reporter_filter()
    if not isinstance(known, debug.SafeExceptionReporterFilter):
        known = debug.SafeExceptionReporterFilter()
    hidden = known.cleansed_substitute

    def hide(found: re.Match[str]) -> str:
        is_secret = known.hidden_settings.search(found[3])
        return found[1] + hidden if is_secret else found[0]

    return PAIR.sub(hide, URL.sub(lambda found: found[1] + hidden, text))


def scrubbed(text: str) -> str:
    """Return what ``SHEDLOCK_HISTORY_SCRUB`` leaves of a text; nothing if it fails."""
    try:
        return str(conf.HISTORY_SCRUB.function(text)) if text else text
    except Exception:  # whatever the project's function raises
        logger.exception("SHEDLOCK_HISTORY_SCRUB failed: a text is left out.")
        return ""


def texts(*columns: str) -> dict[str, Parameter]:
    """Return a parameter of the same name for each column that is a text."""
    return {column: text(column) for column in columns}


@dataclass(frozen=True)
class Journal:
    """
    The rows of one table.

    ``inserted`` writes one, ``found`` reads the key of one with the values of an
    INSERT whose reply was lost, and ``finished`` updates the one with the key ``row``.
    A line of the log begins with what the journal ``lacks``, if it can't be written.
    """

    lacks: str
    inserted: Insert
    found: Select
    finished: Update

    def begin(
        self, where: Where, values: Values, may_exist: bool = False
    ) -> int | None:
        """Write a row, or find it; return its key, or ``None`` if nobody knows it."""

        def begin(connection: BaseDatabaseWrapper, is_again: bool) -> int | None:
            return self._begun(values, connection, is_again or may_exist)

        return self.write(where, values["name"], begin)

    def finish(
        self, where: Where, key: int | None, begun: Values, end: Values, **how: bool
    ) -> None:
        """
        Write how it ended.

        Without a key the row is looked for by the values that ``begun`` it, and made if
        it is missing: the database failed, perhaps after it had written the row.
        """

        def finish(connection: BaseDatabaseWrapper, is_again: bool) -> int:
            row = key or self._begun(begun, connection, True)
            return self.finished(connection, row=row, **end)

        self.write(where, begun["name"], finish, **how)

    def write(
        self, where: Where, name: str, work: Work[T], is_urgent: bool = False
    ) -> T | None:
        """
        Return what ``work`` returns; ``None`` if it fails, or without a database.

        What is written of a lock is where that is; see Note [Search paths].
        """
        lock = where if isinstance(where, Lock) else None
        provider = where.provider if isinstance(where, Lock) else where
        if (using := provider.history_database) is None:
            return None
        try:
            return run(work, using, is_urgent=is_urgent, lock=lock)
        except Exception as error:
            logger.warning("%s lock %r: %s", self.lacks, name, str(error).strip())
            return None

    def _begun(
        self, values: Values, connection: BaseDatabaseWrapper, is_again: bool
    ) -> int | None:
        if is_again:
            for (key,) in self.found(connection, **values):
                return int(key)
        return self.inserted(connection, **values)
