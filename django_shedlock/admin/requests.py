"""What the admin's lists refuse of a request."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.views.main import ERROR_FLAG
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict

NUL = "\0"


class TextsWithoutNul(ModelAdmin):  # type: ignore[type-arg]
    """An admin that does nothing if a text of the request has a NUL."""

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
