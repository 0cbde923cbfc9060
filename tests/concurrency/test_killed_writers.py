"""What a server still does for a process that was killed."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.db.models import F

from django_shedlock.models import LockRecord
from django_shedlock.providers.database import DatabaseLockProvider
from tests.support.flushing import wait_until_others_are_idle
from tests.support.locks import configure, take
from tests.support.processes import Parent, worker
from tests.support.sessions import number_at_work, session_number, wait_until_blocked

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]


def write(parent: Parent) -> None:
    parent.say(session_number())
    LockRecord.objects.update(failures=F("failures") + 1)


def test_statement_of_a_killed_process_is_waited_for() -> None:
    """The flush after a test waits for the statements of processes that were killed."""
    take(configure(), DatabaseLockProvider("default"))
    with transaction.atomic():
        LockRecord.objects.select_for_update().get()
        with worker(write) as killed:
            wait_until_blocked(killed.heard())
            killed.kill()
        assert number_at_work() == 1
    wait_until_others_are_idle()
    assert LockRecord.objects.get().failures == 1
