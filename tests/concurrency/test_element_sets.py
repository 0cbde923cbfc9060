"""What is lost of a set that is read, and written after a pause, under a lock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import Error, OperationalError, transaction

from benchmarks.soak.servers import QUICK_LOCK_SERVERS, own_lock_server, use_provider
from django_shedlock import LockLost
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from tests.models import ElementSet
from tests.support.element_sets import Addition, Guard, lost_elements
from tests.support.locks import LEASE, configure, expire, take_at_last
from tests.support.processes import Parent, Worker, worker
from tests.support.sessions import kill_session, session_number

pytestmark = pytest.mark.django_db(transaction=True)

SHORT = timedelta(seconds=1)
"""The next holder waits until it is over. Nothing has to happen within it."""

Provider = dict[str, Any] | None
OTHERS = [pytest.mark.once, pytest.mark.slow]
PLACES = [
    "database",
    *(pytest.param(store, marks=OTHERS) for store in QUICK_LOCK_SERVERS),
]
"""Where the lock may be. Of a lock in another server, each database shows the same."""


@pytest.fixture(params=PLACES)
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    """Return where the lock is kept, for other processes; the set is in a database."""
    ElementSet.objects.create(name="set")
    if request.param == "database":
        yield None
        return
    with own_lock_server(request.param) as server:
        yield server.provider(server.addresses())


def add(
    parent: Parent, guard: Guard, provider: Provider, lease: timedelta
) -> int | None:
    """Read the set, and write it when told; return what was added, if it was."""
    use_provider(provider)
    lock = take_at_last(get_provider(), configure("set", lease))
    addition = Addition(lock, guard)
    addition.read()
    parent.say("has read")
    parent.wait()
    return write(addition)


def write(addition: Addition) -> int | None:
    try:
        with transaction.atomic():
            addition.write()
    except (LockLost, Error):
        return None
    return addition.element


def go_on(adding: Worker) -> int | None:
    adding.go_on()
    adding.send()
    element: int | None = adding.result()
    return element


def add_twice(
    guard: Guard, provider: Provider, *, is_late_last: bool
) -> tuple[int | None, int | None]:
    """
    Stop a holder until its lease is over, and another one has read the set.

    Return what the late one added, and the other.
    """
    with worker(add, guard, provider, SHORT) as late:
        late.heard()
        late.stop()
        with worker(add, guard, provider, LEASE) as other:
            other.heard()
            if is_late_last:
                added = go_on(other)
                return go_on(late), added
            return go_on(late), go_on(other)


def losses(*added: int | None) -> list[str]:
    return [*lost_elements("set", (each for each in added if each is not None))]


@pytest.mark.parametrize("is_late_last", [True, False])
def test_nothing_is_lost_with_a_token(provider: Provider, is_late_last: bool) -> None:
    """A holder that stands still past its lease is refused, whoever writes first."""
    late, other = add_twice(Guard.TOKEN, provider, is_late_last=is_late_last)
    assert late is None
    assert other is not None
    assert losses(other) == []


@pytest.mark.parametrize("is_late_last", [True, False])
@pytest.mark.parametrize("provider", ["database"], indirect=True)
def test_nothing_is_lost_with_a_fence(provider: Provider, is_late_last: bool) -> None:
    """
    A fence refuses a late holder, so the set loses no element.

    The row needs no token if the lock and the set are in one database.
    """
    late, other = add_twice(Guard.FENCE, provider, is_late_last=is_late_last)
    assert late is None
    assert other is not None
    assert losses(other) == []


@pytest.mark.parametrize(
    ("guard", "is_late_last", "lost"),
    [
        (Guard.NONE, True, 1),
        (Guard.NONE, False, 1),
        (Guard.TOKEN_ON_WRITE, True, 0),
        (Guard.TOKEN_ON_WRITE, False, 1),
    ],
)
def test_what_is_lost_without_a_guard(
    guard: Guard, provider: Provider, is_late_last: bool, lost: int
) -> None:
    """Who writes last overwrites the other, unless the row has seen its reader."""
    added = add_twice(guard, provider, is_late_last=is_late_last)
    assert len(losses(*added)) == lost


def add_and_be_cut_off(parent: Parent) -> int | None:
    """Add to the set by a connection that ends between its write and its commit."""
    lock = take_at_last(get_provider(), configure("set", LEASE))
    addition = Addition(lock, Guard.FENCE)
    addition.read()
    try:
        with transaction.atomic():
            addition.write()
            parent.say(session_number())
            parent.wait()
    except Error:
        return None
    return addition.element


@pytest.mark.servers_only
def test_nothing_is_lost_with_an_ended_connection() -> None:
    """The fence keeps the lock until then; the next holder acquires it, and adds."""
    ElementSet.objects.create(name="set")
    with worker(add_and_be_cut_off) as cut:
        session = cut.heard()
        with pytest.raises(OperationalError), transaction.atomic():
            LockRecord.objects.select_for_update(nowait=True).get(name="set")
        with worker(add, Guard.FENCE, None, LEASE) as other:
            kill_session(session)
            expire("set")
            other.heard()
            cut.send()
            added = cut.result(), go_on(other)
    assert added[0] is None
    assert losses(*added) == []
