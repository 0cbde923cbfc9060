"""Texts as they are stored: in characters and lengths that their columns accept."""

from typing import Any

from django.db.models import Model

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
