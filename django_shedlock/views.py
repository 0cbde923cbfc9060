"""What the pages for machines have in common: who may see them."""

from collections.abc import Callable
from typing import Any

from django.db import Error, connections, transaction
from django.http.response import HttpResponseBase
from django.utils.crypto import constant_time_compare
from django.views import View
from django.views.decorators.cache import never_cache


class MonitoringView(View):
    """
    A view for machines: never cached, and not in the request's transaction.

    Authorised callers are staff with the permission ``django_shedlock.view_lockrecord``
    and those that send ``Authorization: Bearer`` with ``token``; with ``public``,
    anyone.
    """

    token: str | None = None
    public: bool = False

    @classmethod
    def as_view(cls, **initkwargs: object) -> Callable[..., HttpResponseBase]:
        # A store that is down must not end the request before it reaches the view.
        view: Callable[..., HttpResponseBase] = never_cache(
            super().as_view(**initkwargs)
        )
        for alias in connections:
            view = transaction.non_atomic_requests(alias)(view)
        return view

    @property
    def is_allowed(self) -> bool:
        """Whether the request may see everything."""
        if self.is_known:
            return True
        user: Any = getattr(self.request, "user", None)
        try:
            permission = "django_shedlock.view_lockrecord"
            return bool(user and user.is_staff and user.has_perm(permission))
        except Error:  # the database of users may be down as well
            return False

    @property
    def is_known(self) -> bool:
        """Whether it may see everything, by what needs no database, which may hang."""
        if self.public or not self.token:
            return self.public
        # Servers decode headers as Latin-1, whatever the client sent.
        header = self.request.headers.get("Authorization", "")
        sent = header.encode("latin-1", errors="replace")
        expected = f"Bearer {self.token}".encode(errors="surrogateescape")
        return constant_time_compare(sent, expected)
