"""A real Prometheus scrapes the real page, and its example alerts tell of incidents."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from django.db.models import F
from django.urls import path

from django_shedlock import execute
from django_shedlock.contrib.prometheus.views import MetricsView
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockQuery
from django_shedlock.sql.fields import DatabaseNow
from tests.support.lateness import DAY, HOUR, be_on_time, be_overdue
from tests.support.locks import (
    MINUTE,
    Broken,
    end_run,
    expire,
    force_release,
    pause,
    take,
)
from tests.support.paths import ROOT
from tests.support.processes import Parent, worker
from tests.support.prometheus import needs, prometheus
from tests.support.waiting import STARTUP_PATIENCE, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.once,
    needs("prometheus"),
]

TOKEN = "open sesame"

urlpatterns = [path("metrics", MetricsView.as_view(token=TOKEN))]

INCIDENT = {
    ("ShedLockExpired", "killed"),
    ("ShedLockRunsTooLong", "hung"),
    ("ShedLockJobFailing", "failing"),
    ("ShedLockOverdue", "overdue"),
    ("ShedLockLost", "lost"),
    ("ShedLockPaused", "paused"),
    ("ShedLockRequestWaits", "asked"),
    ("ShedLockUnrecorded", ""),
}


def impatient_rules() -> dict[str, Any]:
    """Return the example rules, which fire at once."""
    file = ROOT / "docs" / "howto" / "files" / "alerts.yml"
    rules: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    return rules


def hold_and_wait(parent: Parent) -> None:
    take("killed")
    parent.say("held")
    parent.wait()


def fail() -> None:
    raise Broken


def incident() -> None:
    """
    Kill a worker, let jobs fail, hang, be overdue and lose their lock.

    One is paused for two days, one is asked for in vain, one is not in the history.
    """
    with worker(hold_and_wait) as held:
        assert held.heard() == "held"
        held.kill()
    expire("killed")
    for _ in range(3):
        with pytest.raises(Broken):
            execute(fail, "failing")
    end_run("hung", duration=MINUTE)
    take("hung", lock_at_most_for=HOUR)
    ago = DatabaseNow() - 4 * MINUTE
    LockRecord.objects.filter(name="hung").update(locked_at=ago)
    take("overdue").release()
    be_overdue("overdue")
    take("lost").release()
    end_run("lost", RunOutcome.LOST)
    pause("paused", lasting=FOREVER)
    moved = {each: F(each) - 2 * DAY for each in ("locked_at", "lock_until")}
    LockRecord.objects.filter(name="paused").update(**moved)
    provider = get_provider()
    for name in ("asked", "unrecorded"):
        execute(lambda: None, name)
    provider.request_run("asked", "ada", "a customer waits")
    LockRecord.objects.filter(name="asked").update(asked_at=DatabaseNow() - HOUR / 2)
    provider.note_unrecorded("unrecorded")
    take("running", lock_at_most_for=HOUR)
    take("free").release()


def cure() -> None:
    """Release what is held, and let the jobs succeed."""
    provider = get_provider()
    for name in ("killed", "hung", "paused"):
        assert force_release(provider, name)
    [asked] = provider.statuses(LockQuery(requested=True))
    assert asked.job.asked_at is not None
    assert provider.withdraw_request("asked", asked.job.asked_at)
    for name in ("killed", "failing", "hung", "unrecorded"):
        execute(lambda: None, name)
    be_on_time("overdue")


def test_incident_is_told_and_its_end_too(live_server: Any, tmp_path: Path) -> None:
    """Each alert of an incident fires for its lock, and no other; then none does."""
    incident()
    page = urlsplit(live_server.url).netloc
    with prometheus(tmp_path, impatient_rules(), page, TOKEN) as server:
        assert wait_for(lambda: server.firing() == INCIDENT, STARTUP_PATIENCE)
        cure()
        # Of the last hour, as the lost run.
        assert wait_for(
            lambda: server.firing() == {("ShedLockLost", "lost")}, STARTUP_PATIENCE
        )
