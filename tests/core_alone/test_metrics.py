"""The metrics for Prometheus, in a project without the console."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings
from django.urls import path

from django_shedlock import execute
from django_shedlock.contrib.prometheus.views import MetricsView
from tests.support.jobs import unimported_jobs
from tests.support.locks import take

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

urlpatterns = [
    path("metrics", MetricsView.as_view()),
    path("public", MetricsView.as_view(public=True)),
]

SCRAPE = """
import sys

import django
from django.conf import settings
from django.test import RequestFactory

settings.configure(
    INSTALLED_APPS=["django_shedlock"],
    SHEDLOCK_PROVIDERS={
        "default": {"BACKEND": "django_shedlock.providers.memory.MemoryLockProvider"}
    },
)
django.setup()

from django_shedlock import hold
from django_shedlock.contrib.prometheus.views import MetricsView

with hold("nightly"):
    view = MetricsView.as_view(public=True)
    print(view(RequestFactory().get("/metrics")).content.decode())
apps = ("django_shedlock.console", "django_shedlock.beat")
print("loaded:", [name for name in sys.modules if name.startswith(apps)])
"""


def test_metrics_are_those_of_the_records() -> None:
    """Held locks and last runs have their metrics, and all states are counted."""
    take("running")
    execute(list, "done", lock_at_most_for="1m")
    page = Client().get("/public").content.decode().splitlines()
    assert 'shedlock_held{lock="running",provider="default"} 1.0' in page
    done = '{lock="done",outcome="succeeded",provider="default"}'
    assert f"shedlock_last_outcome{done} 1.0" in page
    assert 'shedlock_locks{provider="default",state="free"} 1.0' in page


def test_staff_with_permission_may_scrape() -> None:
    """Who may see the locks in the plain admin may see their metrics, nobody else."""
    client = Client()
    assert client.get("/metrics").status_code == 403
    user = User.objects.create_user("ada", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_lockrecord"))
    client.force_login(user)
    assert client.get("/metrics").status_code == 200


def test_scrape_imports_no_job() -> None:
    """However many locks there may be, a scrape does not look for jobs."""
    take("running")
    for number in range(3):
        take(f"free {number}").release()
    with override_settings(SHEDLOCK_METRICS_MAX_LOCKS=2), unimported_jobs() as imported:
        page = Client().get("/public").content.decode()
        assert 'shedlock_locks_left_out{provider="default"} 2.0' in page
        assert imported() == []


def test_scrape_loads_neither_console_nor_beat() -> None:
    """Only the core is needed for the metrics."""
    environment = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-c", SCRAPE], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert 'shedlock_held{lock="nightly",provider="default"} 1.0' in done.stdout
    assert "loaded: []" in done.stdout
