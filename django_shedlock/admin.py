"""The plain admin: who holds which lock, a forced release, and the last runs."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin, ShowFacets
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import (
    gettext,
    gettext_lazy,
    pgettext,
    pgettext_lazy,
)

from django_shedlock.clocks import aware
from django_shedlock.durations import format_left, format_measured, format_rough
from django_shedlock.exceptions import LockProviderError
from django_shedlock.execution.operators import (
    OperatorAction,
    end_of_pause,
    force_release,
    reason_of_refusal,
)
from django_shedlock.locks.status import LockState, LockStatus, RunOutcome
from django_shedlock.models import LockRecord, LockRun
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.providers.base import LockProvider
from django_shedlock.schedules.state import Trigger
from django_shedlock.scrubbing import scrubbed

if TYPE_CHECKING:  # in Django itself they take no parameters
    AnyModelAdmin = ModelAdmin[Any]
    AnyModelForm = forms.ModelForm[Any]
    from django.contrib.admin.views.main import ChangeList
    from django_stubs_ext import StrOrPromise
else:
    AnyModelAdmin, AnyModelForm = ModelAdmin, forms.ModelForm


RELEASE_PERMISSION = "django_shedlock.release_lockrecord"

STATE_LABELS = {
    LockState.EXPIRED: pgettext_lazy("shedlock", "expired"),
    LockState.RUNNING: pgettext_lazy("shedlock", "running"),
    LockState.PAUSED: pgettext_lazy("shedlock", "paused"),
    LockState.HELD_AT_LEAST: pgettext_lazy("shedlock", "held at least"),
    LockState.FREE: pgettext_lazy("shedlock", "free"),
}
"""In the order of ``LockState``."""

OUTCOME_LABELS: dict[str, "StrOrPromise"] = {
    RunOutcome.FAILED: pgettext_lazy("shedlock", "failed"),
    RunOutcome.TIMED_OUT: pgettext_lazy("shedlock", "timed out"),
    RunOutcome.LOST: pgettext_lazy("shedlock", "lost"),
    RunOutcome.ABANDONED: pgettext_lazy("shedlock", "abandoned"),
    RunOutcome.SUCCEEDED: pgettext_lazy("shedlock", "succeeded"),
}
"""In the order of ``RunOutcome``."""

TRIGGER_LABELS: dict[str, "StrOrPromise"] = {
    Trigger.SCHEDULER: pgettext_lazy("shedlock", "scheduler"),
    Trigger.RETRY: pgettext_lazy("shedlock", "retry"),
    Trigger.CATCH_UP: pgettext_lazy("shedlock", "catch-up"),
    Trigger.OPERATOR: pgettext_lazy("shedlock", "operator"),
}
"""What starts runs."""


def shown_providers() -> dict[str, LockProvider]:
    """Return the providers whose tables can be shown, the default one first."""
    shown = {}
    for alias in sorted(provider_aliases(), key="default".__ne__):
        with suppress(ImproperlyConfigured):  # a system check reports it
            provider = get_provider(alias)
            if provider.record_database is not None:
                shown[alias] = provider
    return shown


def shown_provider(request: HttpRequest) -> LockProvider | None:
    """Return the provider that the address names, or else the first one."""
    providers = shown_providers()
    # The page of a row has the filters of its list in this parameter of Django's.
    list_filters = parse_qs(request.GET.get("_changelist_filters", ""))
    of_list = list_filters.get(ShownProviderFilter.parameter_name, [""])[-1]
    alias = request.GET.get(ShownProviderFilter.parameter_name, of_list)
    return providers.get(alias) or next(iter(providers.values()), None)


class ShownProviderFilter(admin.SimpleListFilter):
    """Says which provider's rows are shown, and offers the others."""

    title: "StrOrPromise" = pgettext_lazy("shedlock", "provider")
    parameter_name: str = "provider"

    def lookups(
        self, request: HttpRequest, model_admin: object
    ) -> list[tuple[str, "StrOrPromise"]]:
        self.shown: LockProvider | None = shown_provider(request)
        return [(alias, alias) for alias in shown_providers()]

    def has_output(self) -> bool:
        return len(self.lookup_choices) > 1

    def value(self) -> str | None:
        return None if self.shown is None else self.shown.alias

    def choices(self, changelist: "ChangeList") -> Iterator[Any]:
        """Return one choice for each provider, as no list has the rows of all."""
        _, *providers = super().choices(changelist)
        return iter(providers)

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Model]
    ) -> QuerySet[Model]:
        return queryset


class LockStateFilter(admin.SimpleListFilter):
    """Only locks in one state, by the database's clock."""

    title: "StrOrPromise" = pgettext_lazy("shedlock", "state")
    parameter_name: str = "state"

    def lookups(
        self, request: HttpRequest, model_admin: object
    ) -> list[tuple[str, "StrOrPromise"]]:
        return [(state.value, label) for state, label in STATE_LABELS.items()]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Model]
    ) -> QuerySet[Model]:
        return queryset.filter(state=self.value()) if self.value() else queryset


class RunOutcomeFilter(admin.SimpleListFilter):
    """Only locks, or runs, with one outcome."""

    title: "StrOrPromise" = pgettext_lazy("shedlock", "outcome")
    parameter_name: str = "outcome"

    def lookups(
        self, request: HttpRequest, model_admin: object
    ) -> list[tuple[str, "StrOrPromise"]]:
        return [(str(outcome), label) for outcome, label in OUTCOME_LABELS.items()]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Model]
    ) -> QuerySet[Model]:
        return queryset.filter(outcome=self.value()) if self.value() else queryset


class ReleaseForm(AnyModelForm):
    """Asks for a confirmed release of the acquisition that the page shows."""

    held_by: forms.CharField = forms.CharField(widget=forms.HiddenInput, required=False)
    release: forms.BooleanField = forms.BooleanField(
        label=gettext_lazy("Release this lock"),
        help_text=gettext_lazy(
            "Another worker can acquire a released lock at once. A job that still runs "
            "under it is not stopped: make sure that it is dead, or it may run twice."
        ),
    )
    reason: forms.CharField = forms.CharField(label=pgettext_lazy("shedlock", "Reason"))

    class Meta:
        model: ClassVar[type[Model]] = LockRecord
        fields: ClassVar[list[str]] = []

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.initial["held_by"] = self.instance.locked_by


class ReadOnlyAdmin(AnyModelAdmin):
    """Pages of rows that nobody adds, changes or deletes by hand."""

    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_per_page = 50
    labelled_fields: ClassVar[dict[str, str]] = {
        "outcome": "shown_outcome",
        "trigger": "shown_trigger",
    }

    def get_readonly_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> list[str]:
        names = [field.name for field in self.model._meta.fields]
        return [self.labelled_fields.get(name, name) for name in names]

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        return self.get_readonly_fields(request, obj)

    @admin.display(description=pgettext_lazy("shedlock", "outcome"), ordering="outcome")
    def shown_outcome(self, row: Any) -> Any:
        """Return the label of the outcome; another version's is shown as it is."""
        return OUTCOME_LABELS.get(row.outcome, row.outcome)

    @admin.display(description=pgettext_lazy("shedlock", "started by"))
    def shown_trigger(self, row: Any) -> Any:
        """Return the label of what started the run."""
        return TRIGGER_LABELS.get(row.trigger, row.trigger)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        return False

    def has_delete_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        return False


class LockAdmin(ReadOnlyAdmin):
    """The locks; with the permission ``release_lockrecord`` also a forced release."""

    form: type[AnyModelForm] = ReleaseForm
    actions: None = None
    list_display: tuple[str, ...] = (
        "name",
        "state",
        "locked_by",
        "remaining",
        "shown_outcome",
    )
    list_filter: ClassVar[tuple[type[admin.SimpleListFilter], ...]] = (
        ShownProviderFilter,
        LockStateFilter,
        RunOutcomeFilter,
    )
    search_fields: ClassVar[tuple[str, ...]] = ("name", "locked_by")
    ordering: ClassVar[tuple[str, ...]] = ("name",)
    first_fields: ClassVar[tuple[str, ...]] = (
        *("name", "state", "remaining", "running_time", "last_heartbeat"),
        *("locked_by", "locked_at", "lock_until", "shown_outcome"),
    )
    """What the page of a lock shows above the form; the rest is folded."""
    form_fields: ClassVar[tuple[str, ...]] = ("release", "reason", "held_by")

    @admin.display(description=pgettext_lazy("shedlock", "state"))
    def state(self, record: Any) -> str:
        """Return the lock's state by the database's clock."""
        return str(STATE_LABELS[record.status.state])

    @admin.display(description=pgettext_lazy("shedlock", "lease"))
    def remaining(self, record: Any) -> str:
        """Return what is left of the lease."""
        status = record.status
        if status.is_endless:
            return end_of_pause(status)
        return format_left(status.remaining) if status.state.is_held else ""

    @admin.display(description=pgettext_lazy("shedlock", "job"))
    def running_time(self, record: Any) -> str:
        """Return how long the job has run, and how long it usually takes."""
        status: LockStatus = record.status
        if not status.holder_may_run:
            return self.get_empty_value_display()
        usual = status.job.usual_duration
        if status.state is LockState.RUNNING:
            text = pgettext("shedlock", "runs for %(time)s")
            if usual is not None:
                text = pgettext("shedlock", "runs for %(time)s, usually %(usual)s")
        else:  # nobody knows whether its worker died
            text = pgettext("shedlock", "began %(time)s ago")
            if usual is not None:
                text = pgettext("shedlock", "began %(time)s ago, usually %(usual)s")
        return text % {
            "time": format_rough(aware(status.clock) - aware(status.locked_at)),
            "usual": "" if usual is None else format_measured(usual),
        }

    @admin.display(description=pgettext_lazy("shedlock", "last heartbeat"))
    def last_heartbeat(self, record: Any) -> str:
        """Return how long ago the holder extended the lease of a run."""
        status: LockStatus = record.status
        if not status.holder_may_run:
            return self.get_empty_value_display()
        if status.heartbeat_at is None:
            return gettext("none: its lease was not extended")
        age = aware(status.clock) - aware(status.heartbeat_at)
        return pgettext("shedlock", "%(age)s ago") % {"age": format_rough(age)}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        provider = shown_provider(request)
        if provider is None:
            return LockRecord.objects.with_status().none()
        return LockRecord.objects.using(provider.record_database).with_status()

    def get_readonly_fields(
        self, request: HttpRequest, obj: Model | None = None
    ) -> list[str]:
        name, *others = super().get_readonly_fields(request, obj)
        return [name, "state", "remaining", "running_time", "last_heartbeat", *others]

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Return what matters with the form for a release, and the folded rest."""
        shown = self.get_readonly_fields(request, obj)
        rest = [name for name in shown if name not in self.first_fields]
        may_release = self.has_change_permission(request, obj)
        form = self.form_fields if may_release else ()
        return [
            (None, {"fields": [*self.first_fields, *form]}),
            (
                pgettext_lazy("shedlock", "Details"),
                {"fields": rest, "classes": ["collapse"]},
            ),
        ]

    def has_view_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        """Return whether the user may see locks; the release permission is enough."""
        may_release = request.user.has_perm(RELEASE_PERMISSION)
        return may_release or super().has_view_permission(request, obj)

    def has_change_permission(
        self, request: HttpRequest, obj: Model | None = None
    ) -> bool:
        """Return whether the lock can be released, and the user may do it."""
        # A lock that has become free since is refused with a message: see save_model().
        is_free = getattr(obj, "state", None) == LockState.FREE.value
        is_refused = is_free and request.method != "POST"
        return request.user.has_perm(RELEASE_PERMISSION) and not is_refused

    def save_model(
        self, request: HttpRequest, obj: Any, form: Any, change: object
    ) -> None:
        """Release the acquisition that the page showed, instead of saving the row."""
        provider: Any = shown_provider(request)
        action = OperatorAction(
            provider,
            obj.name,
            form.cleaned_data["held_by"],
            request.user.get_username(),
            form.cleaned_data["reason"],
        )
        try:
            obj.was_released = force_release(action)
        except LockProviderError as error:
            obj.was_released, obj.why_not = False, str(error).rstrip(".")
            return
        if not obj.was_released:
            obj.why_not = reason_of_refusal(action.locked_by, action.look())

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: object, add: bool = False
    ) -> Any:
        """Return what Django's own log says of it."""
        held_by, reason = form.cleaned_data["held_by"], form.cleaned_data["reason"]
        return f"Released the lock. Holder: {held_by}. Reason: {scrubbed(reason)}"

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Write it to Django's own log, if it was done."""
        return super().log_change(request, obj, message) if obj.was_released else None

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Show the operator whether the lock is released."""
        if obj.was_released:
            text = gettext("Lock %(name)s is released.") % {"name": repr(obj.name)}
            self.message_user(request, text, messages.SUCCESS)
        else:
            text = gettext("Lock %(name)s is not released: %(why)s.")
            facts = {"name": repr(obj.name), "why": obj.why_not}
            self.message_user(request, text % facts, messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())


class RunAdmin(ReadOnlyAdmin):
    """The runs, the newest first."""

    list_display: tuple[str, ...] = (
        "name",
        "shown_outcome",
        "started",
        "ended",
        "duration",
        "host",
    )
    list_filter: ClassVar[tuple[type[admin.SimpleListFilter], ...]] = (
        ShownProviderFilter,
        RunOutcomeFilter,
    )
    search_fields: ClassVar[tuple[str, ...]] = ("name",)
    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    sortable_by: ClassVar[tuple[str, ...]] = ()
    actions: None = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        provider = shown_provider(request)
        if provider is None:
            return super().get_queryset(request)
        runs = LockRun.objects.using(str(provider.history_database))
        return runs.filter(provider=provider.alias)


admin.site.register(LockRecord, LockAdmin)
admin.site.register(LockRun, RunAdmin)
