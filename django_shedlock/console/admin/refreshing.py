"""Answers to a page that refreshes itself: its parts alone, without the messages."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

HEADER = "X-Shedlock-Refresh"
"""What refresh.js sends when it asks for the parts of its page."""
TEMPLATE = "admin/django_shedlock/parts.html"


def with_parts(
    request: HttpRequest, response: HttpResponse, *parts: str
) -> HttpResponse:
    """
    Return the response; to the page's own refresh it renders these templates only.

    The messages of the operator's other pages stay until one of these shows them.
    """
    is_refresh = HEADER in request.headers
    if is_refresh and isinstance(response, TemplateResponse):
        response.template_name = TEMPLATE
        context = response.context_data or {}
        response.context_data = {**context, "shedlock_parts": parts}
    return response
