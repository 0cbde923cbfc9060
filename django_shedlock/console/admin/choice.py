"""Which provider's locks a request is about, where several keep theirs in databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlencode

from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import pgettext, pgettext_lazy

from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database import DatabaseLockProvider

PROVIDER = "provider"
"""The parameter of an address that names the provider."""
OF_LIST = "_changelist_filters"
"""In addresses of Django: the parameters of the list from which one came."""


def database_providers() -> dict[str, DatabaseLockProvider]:
    """Return the database providers of the settings, by alias; the first is shown."""
    found = {
        alias: provider
        for alias, provider in _providers()
        if isinstance(provider, DatabaseLockProvider)
    }
    return found or {"default": DatabaseLockProvider("default")}


def others() -> list[str]:
    """Return the aliases of the providers whose locks the admin can't show."""
    shown = {
        alias
        for alias, provider in _providers()
        if isinstance(provider, DatabaseLockProvider)
    }
    return [alias for alias in provider_aliases() if alias not in shown]


def history_providers() -> dict[str, str]:
    """Return in which database each provider's runs are, the shown ones first."""
    found = {alias: each.using for alias, each in database_providers().items()}
    for alias, provider in _providers():
        if provider.history_database is not None:
            found.setdefault(alias, provider.history_database)
    return found


def _providers() -> Iterator[tuple[str, LockProvider]]:
    for alias in provider_aliases():
        with suppress(ImproperlyConfigured):  # a system check tells why
            yield alias, get_provider(alias)


def admin_provider(request: HttpRequest) -> DatabaseLockProvider:
    """Return the provider that the address names, or else the first one."""
    providers = database_providers()
    return providers.get(_wanted(request), next(iter(providers.values())))


def _wanted(request: HttpRequest) -> str:
    of_list = parse_qs(request.GET.get(OF_LIST, "")).get(PROVIDER, [""])
    return request.GET.get(PROVIDER, of_list[-1])


def query_of(alias: str, **parameters: str) -> str:
    """Return the query of an address about this provider's locks; perhaps none."""
    if alias in list(database_providers())[1:]:
        parameters[PROVIDER] = alias
    return f"?{urlencode(parameters)}" if parameters else ""


def chosen_alias(request: HttpRequest) -> str | None:
    """Return the alias of the provider, where there are several to choose from."""
    is_choice = len(database_providers()) > 1
    return admin_provider(request).alias if is_choice else None


def chosen_history(request: HttpRequest) -> str | None:
    """Return the alias of the provider whose runs a page shows; ``None`` for all."""
    wanted = _wanted(request)
    return wanted if wanted in history_providers() else chosen_alias(request)


def history_database(request: HttpRequest) -> str:
    """Return the alias of the database with the runs that a page shows."""
    chosen = chosen_history(request)
    return history_providers()[chosen] if chosen else admin_provider(request).using


def subtitle_of(request: HttpRequest) -> str | None:
    """Return which provider a page shows, where there are several to choose from."""
    alias = chosen_alias(request)
    text = pgettext("shedlock", "provider %(alias)s")
    return None if alias is None else text % {"alias": alias}


class ProviderFilter(admin.SimpleListFilter):
    """Says which provider's rows the list shows, and offers the others."""

    title = pgettext_lazy("shedlock", "provider")
    parameter_name = PROVIDER

    def __init__(self, request: HttpRequest, *arguments: Any):
        self._chosen = chosen_alias(request)
        super().__init__(request, *arguments)

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the aliases."""
        return [(alias, alias) for alias in database_providers()]

    def has_output(self) -> bool:
        """Whether there is a choice."""
        return self._chosen is not None

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return one choice for each provider: a list never shows those of all."""
        for alias, _ in self.lookup_choices:
            yield {
                "selected": alias == self._chosen,
                "query_string": changelist.get_query_string({PROVIDER: alias}, ["p"]),
                "display": alias,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the provider's rows; the table of locks has the rows of its own."""
        fields = {field.name for field in queryset.model._meta.get_fields()}
        if self._chosen is None or PROVIDER not in fields:
            return queryset
        return queryset.filter(provider=self._chosen)


class HistoryFilter(ProviderFilter):
    """Offers also providers that keep only their runs in a database."""

    def __init__(self, request: HttpRequest, *arguments: Any):
        super().__init__(request, *arguments)
        self._is_needed = chosen_alias(request) is not None
        self._chosen = chosen_history(request)

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[Any]:
        """Return the aliases."""
        return [(alias, alias) for alias in history_providers()]

    def has_output(self) -> bool:
        """Whether there is a choice."""
        return len(self.lookup_choices) > 1

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return one choice for each provider; all of them if one table has all."""
        if not self._is_needed:
            yield next(admin.SimpleListFilter.choices(self, changelist))
        yield from super().choices(changelist)
