"""The rows of the list of locks: cells, and below them what is found and what helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.templatetags.admin_list import result_headers, results
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from django_shedlock.console.admin.actions import Confirmation
from django_shedlock.console.admin.attention import findings_of
from django_shedlock.console.admin.choice import admin_provider, query_of
from django_shedlock.console.admin.labels import KINDS
from django_shedlock.console.monitoring.findings import Finding, Kind

CURE = "shedlock_cure"
"""The buttons of a row: their value is an action and the name of its lock."""
RELEASE, EXTEND, RUN = "release_selected", "extend_selected", "run_selected"
CURES = {
    Kind.OVERDUE: (RUN,),
    Kind.FAILED: (RUN,),
    Kind.EXPIRED: (RELEASE,),
    Kind.LONG: (EXTEND, RELEASE),
    Kind.ABANDONED: (RUN,),
}
"""The actions that help with a finding."""
BAD_ENDS = {Kind.FAILED, Kind.LOST, Kind.ABANDONED}


@dataclass(frozen=True)
class Told:
    """A finding in the words of ``shedlock check``, without the name of its lock."""

    kind: Kind
    label: str | Promise
    text: SafeString


@dataclass(frozen=True)
class Cure:
    """A button that asks to confirm an action on one lock."""

    value: str
    label: str
    is_dangerous: bool


@dataclass(frozen=True)
class Row:
    """A lock of the list: the cells of its row, what is found, and what helps."""

    name: str
    cells: Sequence[SafeString]
    findings: Sequence[Told]
    cures: Sequence[Cure]
    run: str | None


def make_table(
    request: HttpRequest,
    changelist: ChangeList,
    offered: Sequence[Confirmation],
    *,
    has_runs: bool,
) -> dict[str, Any]:
    """Return the heads and the rows of the page, for the template."""
    records = list(changelist.result_list)
    run_query = query_of(admin_provider(request).alias) if has_runs else None
    found = findings_of(request, [record.pk for record in records])
    rows = [
        _row(changelist, record, cells, found.get(record.pk, []), offered, run_query)
        for record, cells in zip(records, results(changelist), strict=True)
    ]
    return {"shedlock_heads": list(result_headers(changelist)), "shedlock_rows": rows}


def _row(
    changelist: ChangeList,
    record: Any,
    cells: Sequence[SafeString],
    findings: Sequence[Finding],
    offered: Sequence[Confirmation],
    run_query: str | None,
) -> Row:
    kinds = [finding.kind for finding in findings]
    helpful = {action for kind in kinds for action in CURES.get(kind, ())}
    return Row(
        record.pk,
        cells,
        [told(finding) for finding in findings],
        [
            Cure(f"{each.action} {record.pk}", f"{each.button}…", each.is_dangerous)
            for each in offered
            if each.action in helpful
        ],
        _run_page(changelist.model_admin, record) + run_query
        if run_query is not None and not BAD_ENDS.isdisjoint(kinds)
        else None,
    )


def _run_page(model_admin: ModelAdmin[Any], record: Any) -> str:
    return reverse(
        "admin:django_shedlock_lockrun_change",
        args=[quote(str(record.last_run_pk))],
        current_app=model_admin.admin_site.name,
    )


def told(finding: Finding) -> Told:
    """Return the finding for a page that names its lock already."""
    text = escape(finding.sentence)
    if finding.command:
        text = format_html("{} <code>{}</code>", text, finding.command)
    return Told(finding.kind, KINDS[finding.kind], text)


def with_cure(posted: Any) -> Any:
    """Return the form as if the button's action was chosen for its lock alone."""
    action, _, name = posted[CURE].partition(" ")
    fields = posted.copy()
    fields["action"] = action
    fields.setlist(ACTION_CHECKBOX_NAME, [name])
    fields["select_across"] = "0"
    return fields
