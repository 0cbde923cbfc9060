"""What the admin's lists and pages have in common."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import ModelAdmin, ShowFacets
from django.contrib.admin.views.main import ERROR_FLAG
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict

NUL = "\0"


class ConsoleAdmin(ModelAdmin):  # type: ignore[type-arg]
    """
    Pages of the console: they look alike, and never count a whole table.

    They do nothing if a text of the request has a NUL.
    """

    show_full_result_count = False
    show_facets = ShowFacets.NEVER

    class Media:
        css = {
            "all": (
                "django_shedlock/console.css",
                "django_shedlock/list.css",
                "django_shedlock/lock.css",
            )
        }

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead back to the list, as Django does if it can't understand a filter."""
        if _has_nul(request.GET) or _has_nul(request.POST):
            return HttpResponseRedirect(f"{request.path}?{ERROR_FLAG}=1")
        return super().changelist_view(request, extra_context)


def _has_nul(texts: QueryDict) -> bool:
    # No text of ours has one, and PostgreSQL refuses the statement.
    return any(NUL in text for _, values in texts.lists() for text in values)
