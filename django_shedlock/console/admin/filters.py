"""Which provider a page is about, its findings, and the filters of the lists."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ImproperlyConfigured
from django.db.models import F, Model, QuerySet, Value
from django.db.models.functions import Concat
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import pgettext, pgettext_lazy

from django_shedlock.admin import OUTCOME_LABELS
from django_shedlock.clocks import aware, host_now
from django_shedlock.console.admin.labels import FINDING_LABELS, ShownText
from django_shedlock.console.monitoring.search import Attention, Search
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database import DatabaseLockProvider

if TYPE_CHECKING:  # in Django itself it takes no parameters
    RegisteredAdmin = admin.ModelAdmin[Any]
else:
    RegisteredAdmin = admin.ModelAdmin

ANY_FINDING = "any"
OF_LOCK_LOOKUP = "name__exact"
"""The parameter of an address that leads to the rows of one lock."""
LISTED_FINDING_LIMIT = 200
"""Of more locks nobody reads the findings, and each costs a look into the history."""


def providers() -> Iterator[LockProvider]:
    """Return the providers of the settings; a system check reports broken ones."""
    for alias in provider_aliases():
        with suppress(ImproperlyConfigured):
            yield get_provider(alias)


def database_providers() -> dict[str, DatabaseLockProvider]:
    """Return the database providers of the settings, by alias; the first is shown."""
    return {p.alias: p for p in providers() if isinstance(p, DatabaseLockProvider)}


def history_databases() -> dict[str, str]:
    """Return in which database each provider's runs are, the shown ones first."""
    shown = {alias: each.using for alias, each in database_providers().items()}
    return shown | {p.alias: each for p in providers() if (each := p.history_database)}


def chosen_alias(request: HttpRequest, offered: Collection[str]) -> str | None:
    """
    Return which of the providers on offer the address names, or else the first one.

    Return ``None`` if it names none of them and at most one provider is in a database.
    """
    # Django's parameter for the filters of the list from which a page was opened.
    list_filters = request.GET.get("_changelist_filters", "")
    parameter = ProviderFilter.parameter_name
    of_list = parse_qs(list_filters).get(parameter, [""])
    wanted = request.GET.get(parameter, of_list[-1])
    known = list(database_providers())
    return wanted if wanted in offered else known[0] if len(known) > 1 else None


def admin_provider(request: HttpRequest) -> DatabaseLockProvider:
    """Return the provider that the address names, or else the first one."""
    known = database_providers()
    chosen = chosen_alias(request, known) or next(iter(known), "default")
    return known.get(chosen) or DatabaseLockProvider("default")


def history_database(request: HttpRequest) -> str:
    """Return the alias of the database with the runs that a page shows."""
    databases = history_databases()
    if chosen := chosen_alias(request, databases):
        return databases[chosen]
    return next(iter(databases.values()), admin_provider(request).using)


def of_known_providers(rows: QuerySet[Model]) -> QuerySet[Model]:
    """Return the rows of the settings' providers; with a name, an index finds them."""
    return rows.filter(provider__in=list(history_databases()))


def query_of(alias: str) -> str:
    """Return the query of an address about this provider's locks; it may be empty."""
    if alias in list(database_providers())[1:]:
        return f"?{urlencode({ProviderFilter.parameter_name: alias})}"
    return ""


def query_of_lock(alias: str, name: str) -> str:
    """Return the query of an address about the runs, or the actions, of this lock."""
    query = {OF_LOCK_LOOKUP: name}
    if len(history_databases()) > 1:
        query[ProviderFilter.parameter_name] = alias
    return f"?{urlencode(query)}"


def subtitle_of(request: HttpRequest) -> str | None:
    """Return which provider a page shows, where there are several to choose from."""
    if len(database_providers()) < 2:
        return None
    text = pgettext("shedlock", "provider %(alias)s")
    return text % {"alias": admin_provider(request).alias}


def attention_of(request: HttpRequest) -> Attention:
    """Return the most urgent findings; the store is asked once for a request."""
    found: Attention | None = getattr(request, "shedlock_attention", None)
    if found is None:
        found = Search().attention(admin_provider(request), LISTED_FINDING_LIMIT)
        request.shedlock_attention = found  # type: ignore[attr-defined]
    return found


def names_of(attention: Attention, choice: str) -> list[str]:
    """Return the names of the locks with a finding of this kind, or with any."""
    return [
        name
        for name, findings in attention.findings.items()
        if choice == ANY_FINDING or any(finding.kind == choice for finding in findings)
    ]


class ProviderFilter(admin.SimpleListFilter):
    """Says which provider's rows the list shows, and offers the others."""

    title: ShownText = pgettext_lazy("shedlock", "provider")
    parameter_name: str = "provider"
    """The parameter of an address that names the provider."""
    offered: Callable[[], Collection[str]] = staticmethod(database_providers)

    def lookups(
        self, request: HttpRequest, model_admin: RegisteredAdmin
    ) -> Iterable[tuple[str, ShownText]]:
        aliases = list(self.offered())
        self.chosen: str | None = chosen_alias(request, aliases)
        return [(alias, alias) for alias in aliases]

    def has_output(self) -> bool:
        return len(self.lookup_choices) > 1

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Return one choice for each provider; all of them if one table has all."""
        if len(database_providers()) < 2:
            yield next(super().choices(changelist))
        for alias, _ in self.lookup_choices:
            yield {
                "selected": alias == self.chosen,
                "query_string": changelist.get_query_string(
                    {self.parameter_name: alias}, ["p"]
                ),
                "display": alias,
            }

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Model]
    ) -> QuerySet[Model]:
        """Return all rows: the provider's table of locks has only its own."""
        return queryset


class HistoryFilter(ProviderFilter):
    """Offers also providers that keep only their runs in a database."""

    offered: Callable[[], Collection[str]] = staticmethod(history_databases)

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Model]
    ) -> QuerySet[Model]:
        return queryset.filter(provider=self.chosen) if self.chosen else queryset


class ChoiceFilter(admin.SimpleListFilter):
    """Filters by a column; a value that is not offered finds nothing."""

    labels: Mapping[str, ShownText] = {}
    parameter_name: str

    @classmethod
    def of(
        cls, model: type[Model], column: str, labels: Mapping[str, ShownText] = labels
    ) -> "type[ChoiceFilter]":
        """Return such a filter by this column of the model, under its name."""
        title = model._meta.get_field(column).verbose_name  # type: ignore[union-attr]
        own = {"title": title, "parameter_name": column, "labels": labels}
        return type(cls.__name__, (cls,), own)

    def lookups(
        self, request: HttpRequest, model_admin: RegisteredAdmin
    ) -> Iterable[tuple[str, ShownText]]:
        return [(str(choice), label) for choice, label in self.labels.items()]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Model]
    ) -> QuerySet[Model]:
        choice = self.value()
        if not choice:
            return queryset
        if choice not in dict(self.lookup_choices):
            return queryset.none()
        return self.chosen(request, queryset, choice)

    def chosen(
        self, request: HttpRequest, rows: QuerySet[Model], choice: str
    ) -> QuerySet[Model]:
        """Return the rows of this choice."""
        column: F | Concat = F(self.parameter_name)
        if DayFilter.parameter_name in request.GET:
            # The rows of a day stand together. MariaDB reads all rows of the choice
            # instead, wherever they are, unless it can't use the index of the column.
            column = Concat(column, Value(""))
        found: QuerySet[Model] = rows.alias(choice=column).filter(choice=choice)
        return found


class LastOutcomeFilter(ChoiceFilter):
    """Filters locks by the outcome of their last run, which their record has."""

    title: ShownText = pgettext_lazy("shedlock", "last run")
    parameter_name: str = "last"
    labels: Mapping[str, ShownText] = OUTCOME_LABELS

    def chosen(
        self, request: HttpRequest, rows: QuerySet[Model], choice: str
    ) -> QuerySet[Model]:
        return rows.filter(outcome=choice)


class AttentionFilter(ChoiceFilter):
    """Filters locks by what somebody should look at, as ``shedlock check`` finds it."""

    title: ShownText = pgettext_lazy("shedlock", "attention")
    parameter_name: str = "attention"
    labels: Mapping[str, ShownText] = {
        ANY_FINDING: pgettext_lazy("shedlock", "any"),
        **FINDING_LABELS,
    }

    def chosen(
        self, request: HttpRequest, rows: QuerySet[Model], choice: str
    ) -> QuerySet[Model]:
        return rows.filter(pk__in=names_of(attention_of(request), choice))


class DayFilter(ChoiceFilter):
    """
    Filters by the day of the column ``ended``, in the reader's time zone.

    It offers the last days. An address may name an older one.
    """

    title: ShownText = pgettext_lazy("shedlock", "ended")
    parameter_name: str = "day"
    offered_days = 14

    def lookups(
        self, request: HttpRequest, model_admin: RegisteredAdmin
    ) -> Iterable[tuple[str, ShownText]]:
        today = timezone.localtime(host_now()).date()
        days = {today - timedelta(days=age) for age in range(self.offered_days)}
        # The chosen one stays on offer, even if it is older.
        with suppress(ValueError):
            days.add(date.fromisoformat(self.value() or ""))
        return [(str(day), str(day)) for day in sorted(days, reverse=True)]

    def chosen(
        self, request: HttpRequest, rows: QuerySet[Model], choice: str
    ) -> QuerySet[Model]:
        day = date.fromisoformat(choice)
        ends = (datetime.combine(day, each) for each in (time.min, time.max))
        return rows.filter(ended__range=[aware(end) for end in ends])


class RecentFilter(ChoiceFilter):
    """Filters by a column; offers the values of the newest rows."""

    row_limit = 1000
    """A search in all rows would take long."""

    def lookups(
        self, request: HttpRequest, model_admin: RegisteredAdmin
    ) -> Iterable[tuple[str, ShownText]]:
        rows = model_admin.get_queryset(request).order_by("-pk")
        recent = rows.values_list(self.parameter_name, flat=True)[: self.row_limit]
        found = set(recent) - {""}
        # The chosen one stays on offer, even if no recent row has it.
        if chosen := self.value():
            found.add(chosen)
        return [(value, value) for value in sorted(found)]
