"""The page of the admin when the database of the locks fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext

from django_shedlock.console.admin.choice import admin_provider
from django_shedlock.exceptions import LockProviderError
from django_shedlock.providers.database.errors import describe

TEMPLATE = "admin/django_shedlock/unreachable.html"

View = Callable[..., HttpResponse]


def tells_failure(view: View) -> View:
    """Let an admin's view say in a sentence that the database failed: status 503."""

    @wraps(view)
    def told(
        self: Any, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        try:
            return view(self, request, *args, **kwargs)
        except Error as error:
            return _page(self, request, describe(error))
        except LockProviderError as error:
            return _page(self, request, str(error))

    return told


def _page(model_admin: Any, request: HttpRequest, error: str) -> TemplateResponse:
    context = {
        **model_admin.admin_site.each_context(request),
        "title": gettext("The locks can't be read"),
        "opts": model_admin.opts,
        "database": admin_provider(request).using,
        "error": error,
    }
    return TemplateResponse(request, TEMPLATE, context, status=503)
