"""The admin's list of locks, and the page of one of them."""

from functools import wraps
from typing import Any, ClassVar

from django.contrib.admin import ListFilter, ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, PAGE_VAR, ChangeList
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy, pgettext, pgettext_lazy

from django_shedlock.admin import LockStateFilter
from django_shedlock.console.admin import filters, labels, rows
from django_shedlock.console.admin.actions import OperatorActions
from django_shedlock.console.admin.addresses import Addresses
from django_shedlock.console.admin.base import has_nul, tells_failure, with_parts
from django_shedlock.console.admin.duration_chart import (
    CHART_SLOT_COUNT,
    duration_chart,
    statistics_of,
)
from django_shedlock.console.admin.past import LockRunAdmin, audit_log_of, last_runs
from django_shedlock.console.admin.timeline import timeline_of
from django_shedlock.console.links import has_catch_up
from django_shedlock.console.models import LockAction
from django_shedlock.console.monitoring.evidence import Problem
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import (
    Search,
    default_grace,
    unreachable,
    unreadable_history,
)
from django_shedlock.console.operators import Action
from django_shedlock.console.operators.requests import request_of
from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.status import LockStatus
from django_shedlock.models import LockRecord, LockRecordQuerySet, LockRun
from django_shedlock.providers import provider_aliases
from django_shedlock.registry.jobs import registered_by_name


class LockRecordAdmin(OperatorActions):
    """
    A view of the locks, where operators release and extend them, and run jobs.

    Each action has a permission of its own.
    """

    list_display: tuple[str, ...] = (
        "shown_name",
        "current_state",
        "last_day",
        "shown_last_run",
        "next_expected",
    )
    list_filter: ClassVar[tuple[type[ListFilter], ...]] = (
        filters.ProviderFilter,
        filters.AttentionFilter,
        LockStateFilter,
        filters.LastOutcomeFilter,
    )
    search_fields: ClassVar[tuple[str, ...]] = ("name", "locked_by")
    search_help_text: ClassVar[labels.ShownText] = gettext_lazy(
        "Search by lock or holder"
    )
    change_list_template: ClassVar[str] = (
        "admin/shedlock_console/lockrecord/change_list.html"
    )
    change_form_template: ClassVar[str] = (
        "admin/shedlock_console/lockrecord/change_form.html"
    )
    page_run_limit = 10

    class Media:
        js: ClassVar[tuple[str, ...]] = (
            "shedlock_console/refresh.js",
            "shedlock_console/selection.js",
        )

    shown_name: labels.Column[LockRecord] = labels.column(
        pgettext_lazy("shedlock", "name"),
        rows.name,
        "name",
    )
    current_state: labels.Column[LockRecord] = labels.column(
        pgettext_lazy("shedlock", "state"),
        rows.state,
        "urgency",
    )
    last_day: labels.Column[LockRecord] = labels.column(
        pgettext_lazy("shedlock", "last 24 hours"), rows.last_day, "locked_at"
    )
    shown_last_run: labels.Column[LockRecord] = labels.column(
        pgettext_lazy("shedlock", "last run"), rows.last_run, "ended_at"
    )
    next_expected: labels.Column[LockRecord] = labels.column(
        pgettext_lazy("shedlock", "next run"), rows.next_expected
    )

    @wraps(ModelAdmin.action_checkbox)
    def action_checkbox(self, record: LockRecord) -> SafeString:  # type: ignore[override]
        """Return what Django does, for a tenth of the time."""
        text = "Select this object for an action - {}"  # Django has translated it
        label = format_html(gettext(text), record)
        html = (
            '<input type="checkbox" name="{}" value="{}" class="action-select" '
            'aria-label="{}">'
        )
        return format_html(html, ACTION_CHECKBOX_NAME, record.pk, label)

    def get_ordering(self, request: HttpRequest) -> Any:
        """Return the order: Django's check lets ``ordering`` name no annotation."""
        return super().get_ordering(request) or ("urgency", "name")

    def get_queryset(self, request: HttpRequest) -> LockRecordQuerySet:
        using = filters.admin_provider(request).using
        return LockRecord.objects.using(using).with_status()

    def get_changelist(
        self, request: HttpRequest, **kwargs: object
    ) -> type[ChangeList]:
        return rows.LockList

    @tells_failure
    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        # The value of a row's button is an action and the name of its lock. It works as
        # if that action was chosen for this lock alone.
        if "shedlock_cure" in request.POST:
            fields = request.POST.copy()
            fields["action"], _, name = str(fields["shedlock_cure"]).partition(" ")
            fields.setlist(ACTION_CHECKBOX_NAME, [name])
            fields["select_across"] = "0"
            request.POST = fields  # type: ignore[assignment]
        if done := self.carry_out_confirmed(request):
            return done
        response = super().changelist_view(request, extra_context)
        parts: tuple[str, ...] = ("headline", "attention", "locks")
        context = getattr(response, "context_data", None)
        if context and "cl" in context:
            changelist: rows.LockList = context["cl"]
            offered = self.offered(request).values()
            if not changelist.is_partial:
                parts = ("headline", "attention", "states", "locks", "pages")
                context |= self._counts(changelist)
            context |= self._verdict(request, changelist)
            context |= {
                # The headline changes with each refresh, and the title does not.
                "title": capfirst(str(self.opts.verbose_name_plural)),
                "shedlock_is_long": not changelist.is_partial and changelist.is_long,
                "shedlock_heads": changelist.heads(),
                "shedlock_rows": changelist.rows(
                    request, offered, has_runs=self._shows_runs(request)
                ),
            }
        return with_parts(request, response, *parts)

    def _counts(self, changelist: rows.LockList) -> dict[str, object]:
        """Return what the pages show of all locks."""
        return {
            "shedlock_states": changelist.state_counts(),
            "shedlock_zone": timezone.get_current_timezone_name(),
        }

    def _verdict(
        self, request: HttpRequest, changelist: rows.LockList
    ) -> dict[str, object]:
        """Return what the pages say above the locks."""
        aliases, here = provider_aliases(), filters.database_providers()
        headline = changelist.headline()
        # The page has its own words for locks that are left out.
        of_store = [
            each for each in changelist.attention.of_store if each.kind is not Kind.MORE
        ]
        chosen = changelist.get_query_string(remove=[PAGE_VAR])
        return {
            "shedlock_headline": headline,
            "shedlock_of_store": rows.finding_lines(of_store, changelist.clock),
            "shedlock_has_locks": changelist.is_partial or bool(changelist.tally),
            "shedlock_attention_limit": filters.LISTED_FINDING_LIMIT,
            "shedlock_provider": filters.query_of(
                filters.admin_provider(request).alias
            ),
            "shedlock_is_complete": changelist.attention.is_complete,
            "shedlock_others": [alias for alias in aliases if alias not in here],
            "shedlock_is_database": bool(here),
            "shedlock_has_catch_up": has_catch_up(),
            "shedlock_has_runs": self._shows_runs(request),
            "shedlock_chosen": "" if chosen == "?" else chosen,
        }

    def get_urls(self) -> list[URLPattern]:
        """Return the addresses of the pages, the timeline among them."""
        view = self.admin_site.admin_view(self.timeline_view)
        name = f"{self.opts.app_label}_{self.opts.model_name}_timeline"
        return [path("timeline/", view, name=name), *super().get_urls()]

    @tells_failure
    def timeline_view(self, request: HttpRequest) -> HttpResponse:
        """Show the last 24 hours of hosts, and of the locks that the list chooses."""
        if not (self.has_view_permission(request) and self._shows_runs(request)):
            raise PermissionDenied
        if has_nul(request):
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        try:
            changelist: Any = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "cl": changelist,
            "media": self.media,
            "subtitle": filters.subtitle_of(request),
            "shedlock_is_long": changelist.is_long,
            "shedlock_is_timeline": True,
            **self._counts(changelist),
            **self._verdict(request, changelist),
            "title": pgettext("shedlock", "Timeline"),
            **timeline_of(request, changelist, self.admin_site.name),
        }
        template = "admin/shedlock_console/lockrecord/timeline.html"
        response = TemplateResponse(request, template, context)
        parts = ("headline", "attention", "states", "timeline_rows", "pages")
        return with_parts(request, response, *parts)

    def get_fieldsets(
        self, request: HttpRequest, obj: Model | None = None
    ) -> list[Any]:
        """Return none: a lock's page has answers instead of fields."""
        return []

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show the lock's findings, five answers, its runs, and its audit log."""
        obj = kwargs["obj"]
        provider = filters.admin_provider(request)
        status: LockStatus = obj.status
        runs, audit_log, problems = None, None, list[Finding]()
        try:
            if self._shows_runs(request):
                runs = last_runs(request, obj.name)
            if request.user.has_perm("shedlock_console.view_lockaction"):
                audit_log = audit_log_of(request, obj.name)
        except Error as error:  # what the record says is still of use
            problem = Problem.of(error, provider.using)
            problems.append(unreadable_history(provider.alias, problem))
        offered, instead = list[type[Action]](), list[tuple[str, str]]()
        try:
            search = Search(acknowledged=True)
            found = search.of_locks(provider, [obj.name]).get(obj.name, [])
            for action in self.offered(request).values():
                if not action.is_offered(status, found):
                    continue
                if command := action.command_instead(provider, obj.name):
                    instead.append((action.label, command))
                else:
                    offered.append(action)
        except LockProviderError as error:  # the rest of the page is still of use
            found, offered, instead = [unreachable(provider.alias, error)], [], []
        context |= {
            "title": obj.name,
            "subtitle": filters.subtitle_of(request),
            "shedlock_provider": filters.query_of(provider.alias),
            "shedlock_of_lock": filters.query_of_lock(provider.alias, obj.name),
            "shedlock_buttons": rows.buttons(offered, status),
            "shedlock_commands_instead": instead,
            "shedlock_request": request_of(status),
            "shedlock_job": registered_by_name(provider.alias).get(obj.name),
            "shedlock_checkbox": ACTION_CHECKBOX_NAME,
            "shedlock_findings": [*problems, *found],
            "shedlock_lock": rows.facts_of(obj, runs or ()),
            "shedlock_has_actions": self.admin_site.is_registered(LockAction),
            "shedlock_audit_log": audit_log,
        }
        if runs is not None:
            recent = runs[: self.page_run_limit]
            addresses = Addresses(self.admin_site.name, provider.alias)
            context |= {
                "shedlock_runs": LockRunAdmin.cells(recent, LockRunAdmin.of_lock),
                "shedlock_durations": duration_chart(
                    runs[:CHART_SLOT_COUNT], status, default_grace(), addresses
                ),
                "shedlock_statistics": statistics_of(runs),
            }
        response = super().render_change_form(request, context, *args, **kwargs)
        return with_parts(request, response, "page")

    def _shows_runs(self, request: HttpRequest) -> bool:
        # The runs link to their pages, which another admin site may not have.
        has_pages = self.admin_site.is_registered(LockRun)
        return has_pages and request.user.has_perm("django_shedlock.view_lockrun")
