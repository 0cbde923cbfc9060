"""Who may see what a monitoring view tells."""

from __future__ import annotations

from typing import Any

from django.db import Error, connections, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import add_never_cache_headers
from django.utils.crypto import constant_time_compare
from django.views import View

PERMISSION = "django_shedlock.view_lockrecord"
BEARER = "Bearer "


class MonitoringView(View):
    """
    A view for machines, in no transaction of a request's, and never cached.

    It tells all to staff with the permission ``django_shedlock.view_lockrecord``, to
    who sends ``Authorization: Bearer`` with ``token``, and with ``public`` to all.
    """

    token: str | None = None
    public: bool = False

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Any:
        """See View.as_view(). A store that is down must not end the request early."""
        view: Any = super().as_view(**initkwargs)
        for alias in connections:
            view = transaction.non_atomic_requests(alias)(view)
        return view

    def dispatch(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponseBase:
        """Answer, and let nobody keep the answer."""
        response = super().dispatch(request, *args, **kwargs)
        add_never_cache_headers(response)
        return response

    @property
    def is_allowed(self) -> bool:
        """Whether the request may see everything."""
        return self.public or self._has_token() or self._has_permission()

    def _has_token(self) -> bool:
        if not self.token:
            return False
        # Servers decode headers as Latin-1, whatever the client meant.
        header = self.request.headers.get("Authorization", "")
        sent = header.encode("latin-1", errors="replace")
        expected = f"{BEARER}{self.token}".encode(errors="surrogateescape")
        return constant_time_compare(sent, expected)

    def _has_permission(self) -> bool:
        user: Any = getattr(self.request, "user", None)
        try:
            return bool(user and user.is_staff and user.has_perm(PERMISSION))
        except Error:  # the store of users may be the one that is down
            return False
