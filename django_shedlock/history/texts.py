"""Texts as they are stored: without secrets, and short enough for their columns."""

import re
from typing import Any

from django.db.models import Model

from django_shedlock import conf
from django_shedlock.signals import logger
from django_shedlock.sql.fields import storable

TEXT_MAX_LENGTH = 2000
"""Characters of a text whose column sets no limit."""


def fitting(model: type[Model], **texts: str) -> dict[str, str]:
    """Return the texts storable, and cut to the length of their columns."""
    fits = {}
    for column, text in texts.items():
        field: Any = model._meta.get_field(column)
        fits[column] = storable(text)[: field.max_length or TEXT_MAX_LENGTH]
    return fits


def without_secrets(text: str) -> str:
    """
    Return the text without the passwords of URLs and DSNs.

    The default of ``SHEDLOCK_HISTORY_SCRUB``. In ``name=value`` the value is hidden if
    the project's ``DEFAULT_EXCEPTION_REPORTER_FILTER`` hides settings of this name.
    """
    # Not before it is needed: it imports Django's templates and URLs.
    from django.views import debug

    known: Any = debug.get_default_exception_reporter_filter()
    if not isinstance(known, debug.SafeExceptionReporterFilter):
        known = debug.SafeExceptionReporterFilter()
    hidden: str = known.cleansed_substitute

    def hide_password(found: re.Match[str]) -> str:
        return str(found[1]) + hidden

    def hide_value(found: re.Match[str]) -> str:
        is_secret = known.hidden_settings.search(found[3])
        return str(found[1] + hidden if is_secret else found[0])

    # A password may have any character but a space, and ends at the last @. To hide too
    # much does no harm. A source line's `key=lambda` stays readable.
    text = re.sub(r"(://[^\s:@/]*:)\S{1,500}(?=@)", hide_password, text)
    return re.sub(
        r"""(?<![\w.-])((['"]?)([\w.-]++)\2(?:\s*=|(?<=['"])\s*:)\s*)(?!lambda\b)"""
        r"""('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|\S+)""",
        hide_value,
        text,
    )


def scrubbed(text: str) -> str:
    """Return what ``SHEDLOCK_HISTORY_SCRUB`` leaves of a text; nothing if it fails."""
    try:
        return str(conf.HISTORY_SCRUB.function(text)) if text else text
    except Exception:  # whatever the project's function raises
        logger.exception("SHEDLOCK_HISTORY_SCRUB failed: a text is left out.")
        return ""
