"""The page that Prometheus scrapes."""

from __future__ import annotations

import os
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from django_shedlock.console.monitoring.health import MonitoringView
from django_shedlock.contrib.prometheus.collectors import StoreCollector


class MetricsView(MonitoringView):
    """
    All metrics of this process, and those of the locks in the stores.

    With ``PROMETHEUS_MULTIPROC_DIR`` it shows all processes that share that directory.
    Callers without permission get a 403: see ``MonitoringView``.
    """

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return the metrics in the format that the request accepts."""
        if not self.is_allowed:
            raise PermissionDenied
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return HttpResponse(encode(_registry()), content_type=content_type)


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(REGISTRY)
    registry.register(StoreCollector())
    return registry
