"""The system check of ``SHEDLOCK_PINGS``."""

from importlib.util import find_spec
from typing import Any

from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from django_shedlock import conf
from django_shedlock.webhooks import is_address


def check_pings(**kwargs: Any) -> list[CheckMessage]:
    """Check the patterns and addresses of ``SHEDLOCK_PINGS``, and for the library."""
    try:
        problem = _pings_problem(conf.PINGS.value)
    except ImproperlyConfigured:  # check_settings() reports it
        return []
    return [Error(problem, id="shedlock.E001")] if problem else []


def _pings_problem(pings: dict[Any, Any]) -> str | None:
    name = conf.PINGS.name
    for pattern, address in pings.items():
        try:
            known = address and is_address(address.format(name="name", slug="slug"))
            is_sound = isinstance(pattern, str) and (known or address == "")
        except (AttributeError, LookupError, TypeError, ValueError):
            is_sound = False
        if not is_sound:  # the address itself may be secret
            return (
                f"{name}[{pattern!r}]: give a pattern of names, and an address that "
                "begins with https:// or http://, with {name} or {slug} in it if you "
                "like, or an empty one."
            )
    if pings and find_spec("requests") is None:
        return f"{name}: requests is missing. Install django-shedlock[pings]."
    return None
