"""The soak's pairs of servers lose no commit in a fail-over."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, connections

from tests.models import ElementSet
from tests.support.servers import use
from tests.support.soak.pairs import own_pair
from tests.support.stores import chosen_store
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.servers_only, pytest.mark.django_db(transaction=True)]

WAITING = {
    "postgresql": "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'",
    "mysql": "SELECT 1 FROM information_schema.global_status WHERE variable_name = "
    "'Rpl_semi_sync_master_wait_sessions' AND variable_value > 0",
}
"""Finds commits that wait until the replica has them."""


def has_waiting_commit() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(WAITING[connection.vendor])
        return cursor.fetchone() is not None


def names() -> set[str]:
    return {*ElementSet.objects.values_list("name", flat=True)}


def create(name: str) -> None:
    try:
        ElementSet.objects.create(name=name)
    finally:
        connections.close_all()


def test_new_primary_has_each_commit() -> None:
    """A commit waits for the replica, before a fail-over and after it."""
    with own_pair(chosen_store()) as pair:
        for name in ("first", "second"):
            replica = pair.replica_processes()
            for process in replica:
                process.suspend()
            thread = threading.Thread(target=create, args=[name])
            thread.start()
            wait_for(has_waiting_commit)
            assert name not in names(), "nobody sees it before the replica has it"
            for process in replica:
                process.resume()
            thread.join()
            connection.close()
            pair.promote()
            use(pair.settings())
            assert name in names()
