"""Where operators go from a text: to a page of the documentation, or of a lock."""

from contextlib import suppress
from urllib.parse import urlencode

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist
from django.db import Error
from django.urls import reverse

from django_shedlock import conf
from django_shedlock.providers import get_provider, provider_aliases

RUNBOOK_URL = "https://django-shedlock.readthedocs.io/en/stable/howto/runbook.html"


def has_catch_up() -> bool:
    """Return whether the project has the app that runs overdue and requested jobs."""
    return apps.is_installed("django_shedlock.beat")


def page_of_lock(alias: str, name: str) -> str:
    """Return the address of a lock's page in the admin; empty if that is not known."""
    return _page(alias, "change", name)


def page_of_list(alias: str) -> str:
    """Return the address of the admin's list of locks; empty if that is not known."""
    return _page(alias, "changelist")


def _page(alias: str, page: str, *names: str) -> str:
    is_shown = get_provider(alias).record_database is not None
    site = _site() if is_shown and apps.is_installed("django.contrib.admin") else ""
    if not site:
        return ""
    from django.contrib.admin.utils import quote  # needs the admin's apps

    with suppress(Exception):  # a text is worth more than a link in it
        view = f"admin:django_shedlock_lockrecord_{page}"
        path = reverse(view, args=[quote(name) for name in names])
        return f"{site}{path}{_query_of(alias)}"
    return ""


def _query_of(alias: str) -> str:
    many = len(provider_aliases()) > 1
    return f"?{urlencode({'provider': alias})}" if many else ""


def _site() -> str:
    if (url := conf.SITE_URL.value) or not apps.is_installed("django.contrib.sites"):
        return url.rstrip("/")
    from django.contrib.sites.models import Site  # is a model of that app

    with suppress(ImproperlyConfigured, ObjectDoesNotExist, Error):
        if (domain := Site.objects.get_current().domain) != "example.com":
            return f"https://{domain}"
    return ""  # "example.com" is what Django wrote, and nobody has changed
