"""Metrics for Prometheus. This module gives locks their labels, which may be shared."""

from django_shedlock import conf
from django_shedlock.signals import logger


def own_name(name: str) -> str:
    """Return the name itself: the default of ``SHEDLOCK_METRICS_LABEL``."""
    return name


def label_of(name: str) -> str:
    """Return the label that ``SHEDLOCK_METRICS_LABEL`` gives to this name."""
    try:
        return str(conf.METRICS_LABEL.function(name))
    except Exception as error:  # the project's function may raise anything
        logger.warning("SHEDLOCK_METRICS_LABEL failed for lock %r: %s", name, error)
        return "(unlabelled)"
