"""Texts as they are stored: without secrets, and short enough for their columns."""

import re
from typing import Any

from django_shedlock import conf
from django_shedlock.signals import logger
from django_shedlock.sql.compiling import Parameter, text
from django_shedlock.sql.fields import storable

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
