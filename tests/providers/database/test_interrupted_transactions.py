"""A signal's handler that raises while Django begins a transaction."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections, transaction

from django_shedlock import hold
from django_shedlock.sql.connections import close, has_own_transaction
from django_shedlock.testing import is_held
from tests.support.locks import name_holder
from tests.support.processes import worker

pytestmark = pytest.mark.django_db(transaction=True)


def interrupt_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise after the driver has turned autocommit off, before Django has noted it."""
    backend = type(connections["default"])
    set_autocommit = backend._set_autocommit

    def interrupt(wrapper: Any, autocommit: bool) -> None:
        set_autocommit(wrapper, autocommit)
        if not autocommit:
            raise SystemExit

    monkeypatch.setattr(backend, "_set_autocommit", interrupt)


@pytest.mark.servers_only
def test_release_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock whose body was interrupted there is free when its process ends."""
    with pytest.raises(SystemExit), hold("job", lock_at_most_for="1m"):
        with monkeypatch.context() as patch:
            interrupt_beginning(patch)
            with transaction.atomic():
                pass
    connections["default"].close()  # nobody commits it
    assert not is_held("job")


@pytest.mark.servers_only
def test_acquisition_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker sees a lock that is acquired after the interruption."""
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        interrupt_beginning(patch)
        with transaction.atomic():
            pass
    with hold("job", lock_at_most_for="1m") as lock, worker(name_holder) as other:
        assert other.result() == lock.locked_by
    connections["default"].close()


@pytest.mark.servers_only
def test_driver_that_is_closed_has_no_transaction() -> None:
    """The driver of MySQL and MariaDB raises when it is asked about a closed one."""
    connection = connections["default"]
    connection.ensure_connection()
    connection.connection.close()
    assert not has_own_transaction(connection)
    close(connection)
