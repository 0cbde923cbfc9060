"""The page that Prometheus scrapes."""

from __future__ import annotations

import os
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from django_shedlock.access import MonitoringView
from django_shedlock.contrib.prometheus.collectors import StoreCollector

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"


class MetricsView(MonitoringView):
    """
    All metrics of this process, and what the stores say of the locks.

    With ``PROMETHEUS_MULTIPROC_DIR`` those of all processes that share it. Who may not
    see them gets a 403: see ``MonitoringView`` for ``token`` and ``public``.
    """

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return the metrics in the format that the request accepts."""
        if not self.is_allowed:
            raise PermissionDenied
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return HttpResponse(encode(_registry()), content_type=content_type)


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    if os.environ.get(MULTIPROCESS):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(REGISTRY)
    registry.register(StoreCollector())
    return registry
