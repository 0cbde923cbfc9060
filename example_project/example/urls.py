"""The admin, with the locks, and a page for Prometheus if its client is installed."""

from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]

try:
    from django_shedlock.contrib.prometheus.views import MetricsView
except ImportError:
    pass
else:
    urlpatterns.append(path("metrics", MetricsView.as_view(public=True)))
