"""The project's jobs, for who asks by HTTP."""

from __future__ import annotations

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from tests.contrib.queues import jobs
from tests.support.leases import beat_often

wsgi, asgi = get_wsgi_application(), get_asgi_application()
beat_often()


def digest(request: HttpRequest) -> HttpResponse:
    """Run the job, or skip it."""
    return HttpResponse(jobs.digest() or "skipped")


async def adigest(request: HttpRequest) -> HttpResponse:
    """Run the job, or skip it."""
    return HttpResponse(await jobs.adigest() or "skipped")


urlpatterns = [path("digest", digest), path("adigest", adigest)]
