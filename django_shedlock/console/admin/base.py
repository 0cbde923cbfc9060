"""What the pages of the console have in common, and what large tables need."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    ParamSpec,
    TypeVar,
)

from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin, ShowFacets
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.paginator import Paginator
from django.db import Error
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import Promise, cached_property
from django.utils.safestring import SafeString
from django.utils.translation import gettext, pgettext, pgettext_lazy

from django_shedlock.console.admin import filters, labels
from django_shedlock.console.models import ActionResult, LockAction
from django_shedlock.exceptions import LockProviderError
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.errors import describe

if TYPE_CHECKING:  # in Django itself they take no parameters
    AnyModelAdmin = ModelAdmin[Any]
    AnyPaginator = Paginator[Any]
else:
    AnyModelAdmin, AnyPaginator = ModelAdmin, Paginator

P = ParamSpec("P")
ShownAdmin = TypeVar("ShownAdmin", bound="ConsoleAdmin")

Told = tuple[ActionResult, str, str]
"""The result of an action on a lock, the lock's name, and the sentence about it."""


def tells_failure(
    view: Callable[Concatenate[ShownAdmin, HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[ShownAdmin, HttpRequest, P], HttpResponse]:
    """Let an admin's view say in a sentence that the database failed: status 503."""

    @wraps(view)
    def wrapped(
        self: ShownAdmin, request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs
    ) -> HttpResponse:
        try:
            return view(self, request, *args, **kwargs)
        except (Error, LockProviderError) as error:
            title = gettext("The database can't be read")
            if self.model is LockRecord:
                title = gettext("The locks can't be read")
            context = {
                **self.admin_site.each_context(request),
                "title": title,
                "opts": self.opts,
                "database": self.get_queryset(request).db,
                "error": describe(error) if isinstance(error, Error) else str(error),
            }
            page = "admin/shedlock_console/unreachable.html"
            return TemplateResponse(request, page, context, status=503)

    return wrapped


def has_nul(request: HttpRequest) -> bool:
    """Return whether a text of the request has a NUL: none of our columns has one."""
    sent = [*request.GET.lists(), *request.POST.lists()]
    return any("\0" in text for _, texts in sent for text in texts)


class ConsoleAdmin(AnyModelAdmin):
    """
    Read-only pages: nobody adds, changes or deletes a row here.

    They look alike, never count a whole table, and say so if the database failed.
    """

    list_per_page = 50
    named_lock_limit = 3
    """An action on more locks gets one message, with so many names for each result."""
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    change_form_template: ClassVar[str] = "admin/shedlock_console/change_form.html"

    class Media:
        css: ClassVar[dict[str, list[str]]] = {
            "all": [
                f"shedlock_console/{each}.css"
                for each in ("console", "charts", "list", "lock")
            ]
        }

    @tells_failure
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the list; without a filter that has a NUL, which PostgreSQL refuses."""
        if has_nul(request):
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        return super().changelist_view(request, extra_context)

    @tells_failure
    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        return super().change_view(request, object_id, form_url, extra_context)

    def message_user(
        self, request: HttpRequest, message: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Leave a message, unless a refresh asked: nobody reads its answer."""
        if not is_refresh(request):
            super().message_user(request, message, *args, **kwargs)

    def tell(
        self, request: HttpRequest, label: Promise | str, told: Sequence[Told]
    ) -> None:
        """Give the operator a message for each of a few locks, or one for many."""
        level_of_result = {
            ActionResult.REFUSED: messages.WARNING,
            ActionResult.STARTED: messages.ERROR,
            ActionResult.FAILED: messages.ERROR,
        }
        levels = [
            level_of_result.get(result, messages.SUCCESS) for result, _, _ in told
        ]
        if len(told) <= self.named_lock_limit:
            for level, (_, _, text) in zip(levels, told, strict=True):
                self.message_user(request, text, level)
            return
        counts = []
        for result in dict.fromkeys(result for result, _, _ in told):
            names = [repr(name) for each, name, _ in told if each is result]
            counts.append(
                pgettext("shedlock", "%(count)s %(result)s (%(names)s)")
                % {
                    "count": len(names),
                    "result": result.label,
                    "names": ", ".join(
                        [*names[: self.named_lock_limit], "…"][: len(names)]
                    ),
                }
            )
        worst = max(levels)
        example = told[levels.index(worst)][2] if worst > messages.SUCCESS else ""
        text = f"{label}: {', '.join(counts)}. {example}".strip()
        self.message_user(request, text, worst)

    def leads(
        self, request: HttpRequest, row: LockRecord | LockRun | LockAction
    ) -> list[tuple[labels.ShownText, str]]:
        """Return titles and addresses of the runs and actions of the row's lock."""
        shown_alias = filters.admin_provider(request).alias
        alias = shown_alias if isinstance(row, LockRecord) else row.provider
        query = filters.query_of_lock(alias, row.name)
        titles: dict[type[Model], labels.ShownText] = {
            LockRun: pgettext_lazy("shedlock", "Runs"),
            LockAction: pgettext_lazy("shedlock", "Operators' actions"),
        }
        site, found = self.admin_site, []
        for model, title in titles.items():
            app, name = model._meta.app_label, model._meta.model_name
            may_view = request.user.has_perm(f"{app}.view_{name}")
            if may_view and site.is_registered(model):
                page = reverse(f"admin:{app}_{name}_changelist", current_app=site.name)
                found.append((title, f"{page}{query}"))
        return found

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        context["shedlock_leads"] = self.leads(request, kwargs["obj"])
        return super().render_change_form(request, context, *args, **kwargs)

    @tells_failure
    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Redirect to the actions, or the runs: Django's log has neither of them."""
        row = self.get_object(request, unquote(object_id))
        for _, page in reversed(self.leads(request, row) if row else []):
            return HttpResponseRedirect(page)
        return super().history_view(request, object_id, extra_context)

    def has_add_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        """Refuse: jobs write the rows, and ``shedlock prune`` deletes old ones."""
        return False

    def has_change_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        return False

    def has_delete_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        return False


class CappedPaginator(AnyPaginator):
    """Counts at most ``most`` rows, so counting stays quick."""

    most = 10_000
    is_capped: bool = False
    """Whether there are more rows than ``count`` says."""

    @cached_property
    def count(self) -> int:
        """Return the number of rows, or ``most`` if there are more."""
        rows: Any = self.object_list
        counted: int = rows.order_by()[: self.most + 1].count()
        self.is_capped = counted > self.most
        return min(counted, self.most)


class LargeTableAdmin(ConsoleAdmin):
    """A view of a table that grows with each run, the newest row first."""

    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    sortable_by: ClassVar[tuple[str, ...]] = ()
    actions: None = None
    paginator = CappedPaginator

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows in the database that the page shows."""
        rows = super().get_queryset(request).using(filters.history_database(request))
        is_of_lock = filters.OF_LOCK_LOOKUP in request.GET
        return filters.of_known_providers(rows) if is_of_lock else rows

    def lookup_allowed(
        self, lookup: str, value: str, request: HttpRequest | None = None
    ) -> bool:
        """Refuse what the list does not offer: no index may find it."""
        # A project's own list may have filters by fields, or a hierarchy of dates.
        fields = {each for each in self.list_filter if isinstance(each, str)}
        fields |= {self.date_hierarchy} if self.date_hierarchy else set()
        offered = {getattr(each, "parameter_name", "") for each in self.list_filter}
        offered.add(filters.OF_LOCK_LOOKUP)
        return lookup in offered or lookup.partition("__")[0] in fields

    @classmethod
    def cells(
        cls, rows: Iterable[Model], columns: Sequence[str]
    ) -> list[dict[str, object]]:
        """Return each ``row``, and what the list shows of it in these columns."""
        return [
            {"row": row, **{each: getattr(cls, each)(None, row) for each in columns}}
            for row in rows
        ]

    @admin.display(description=pgettext_lazy("shedlock", "lock"))
    def lock(self, row: LockRun | LockAction) -> SafeString:
        """Return the lock's name, as a link where the site shows that lock."""
        site, address = self.admin_site, ""
        if (
            site.is_registered(LockRecord)
            and row.provider in filters.database_providers()
        ):
            page, key = "admin:django_shedlock_lockrecord_change", quote(row.name)
            address = reverse(page, args=[key], current_app=site.name)
            address += filters.query_of(row.provider)
        return labels.shown("lock_link", name=row.name, page=address)


def is_refresh(request: HttpRequest) -> bool:
    """Return whether a page's own script asks: ``refresh.js``."""
    return "X-Shedlock-Refresh" in request.headers


def with_parts(
    request: HttpRequest, response: HttpResponse, *parts: str
) -> HttpResponse:
    """
    Return the response; to the page's own refresh it renders these parts only.

    The messages of the operator's other pages stay until one of these shows them.
    """
    if is_refresh(request) and isinstance(response, TemplateResponse):
        response.template_name = "admin/shedlock_console/parts.html"
        context = response.context_data or {}
        templates = [f"admin/shedlock_console/lockrecord/{part}.html" for part in parts]
        response.context_data = {**context, "shedlock_parts": templates}
    return response
