"""The label of a lock: its name, or what many names share."""

from __future__ import annotations

import logging

from django.utils.module_loading import import_string

from django_shedlock import conf

UNLABELLED = "(unlabelled)"
"""Stands for names of which ``SHEDLOCK_METRICS_LABEL`` can make nothing."""

logger = logging.getLogger("django_shedlock")


def own_name(name: str) -> str:
    """Return the name itself: the default of ``SHEDLOCK_METRICS_LABEL``."""
    return name


def label_of(name: str) -> str:
    """Return the label that the project gives to this name."""
    chosen = conf.METRICS_LABEL.value
    try:
        function = import_string(chosen) if isinstance(chosen, str) else chosen
        return str(function(name))
    except Exception as error:  # whatever the project's function raises
        logger.warning("SHEDLOCK_METRICS_LABEL failed for lock %r: %s", name, error)
        return UNLABELLED
