"""The rights that the page of Redis lists are enough, and each of them is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.status import LockState
from django_shedlock.providers.redis import RedisLockProvider
from django_shedlock.schedules.state import Start, Trigger
from tests.providers.redis.test_contract import shift
from tests.providers.redis.test_requests import LONG_AGO, SCHEDULE, SCHEDULED
from tests.support.locks import (
    LEASE,
    MINUTE,
    configure,
    force_release,
    status_of,
    take,
)
from tests.support.paths import ROOT
from tests.support.redis_servers import PATIENT, RedisServer

PAGE = (ROOT / "docs/stores/redis.rst").read_text(encoding="utf-8")
LINES = re.findall(r"^    ACL SETUSER shedlock (.+)$", PAGE, re.M)
WAIT, CLUSTER = (set(line.split()) for line in LINES[2:])
RIGHTS = set(" ".join(LINES[:2]).split()) - {"on", ">PASSWORD"}


@contextmanager
def logged_in(
    login: str, servers: list[RedisServer], *, database: int = 1, **options: Any
) -> Iterator[RedisLockProvider]:
    """Yield a provider of locks on one server, or in a cluster, with this login."""
    place = f"{login}127.0.0.1:{servers[0].port}"
    url = f"redis+cluster://{place}" if servers[1:] else f"redis://{place}/{database}"
    locks = RedisLockProvider("default", url=url, **PATIENT, **options)
    yield locks
    locks.server.clients.close()


@contextmanager
def locks_with(
    rights: set[str], servers: list[RedisServer], **options: Any
) -> Iterator[RedisLockProvider]:
    """Yield a provider whose user has these rights, and no others."""
    for server in servers:
        server.ask("ACL", "SETUSER", "shedlock", "on", ">PASSWORD", *sorted(rights))
    try:
        with logged_in("shedlock:PASSWORD@", servers, **options) as locks:
            yield locks
    finally:
        for server in servers:
            server.ask("ACL", "DELUSER", "shedlock")


def use(locks: RedisLockProvider, servers: list[RedisServer]) -> None:
    """Do all that a provider does with locks; only the passing of time needs more."""
    lock = take(configure(), locks)
    assert locks.extend(lock, LEASE, MINUTE)
    assert lock.refresh()
    assert locks.release(lock)
    with logged_in("", servers) as owner:
        shift(owner, "job", timedelta(days=1))
        locks.register("job", SCHEDULE, LONG_AGO)
        shift(owner, "job", timedelta(days=2))
    assert locks.release(take(SCHEDULED, locks))
    locks.request_run("job", "alice", "again")
    start = Start(Trigger.OPERATOR, request=status_of(locks).job.asked_at)
    take(LockConfiguration("job", MINUTE, start=start), locks)
    assert force_release(locks, "job")
    assert [status.name for status in locks.statuses()] == ["job"]
    assert locks.delete_unused("job", timedelta(0))


def test_rights_are_enough(own_redis: RedisServer) -> None:
    """A user with the listed rights can do everything, and the check is satisfied."""
    with locks_with(RIGHTS, [own_redis]) as locks:
        use(locks, [own_redis])
        assert locks.check_store([]) == []


@pytest.mark.parametrize("right", sorted(RIGHTS - {"+info"}))
def test_right_is_needed(own_redis: RedisServer, right: str) -> None:
    """Without it something fails, and the error says which right is missing."""
    with locks_with(RIGHTS - {right}, [own_redis]) as locks:
        with pytest.raises(LockProviderError) as raised:
            use(locks, [own_redis])
    assert right in str(raised.value).partition("Give the user ")[2].split()


def test_check_needs_info(own_redis: RedisServer) -> None:
    """Without it the check says what it can't see, and all else works."""
    with locks_with(RIGHTS - {"+info"}, [own_redis]) as locks:
        use(locks, [own_redis])
        [message] = locks.check_store([])
    assert message.id == "shedlock.W016"
    assert "'default'] does not report its role, maxmemory" in message.msg
    assert message.msg.endswith("Give the user +info.")
    assert str(message.hint).startswith("Allow INFO")


def test_replicas_need_wait(own_redis: RedisServer) -> None:
    """Without it no lock is acquired: the error names it, and the lock stays free."""
    waits: Any = {"wait_replicas": 1, "wait_timeout": "10ms"}
    for rights, error in (RIGHTS, r"Give the user \+wait$"), (RIGHTS | WAIT, "0 of 1 "):
        with locks_with(rights, [own_redis], **waits) as locks:
            with pytest.raises(LockProviderError, match=rf"'job'.*{error}"):
                take(configure(), locks)
            assert status_of(locks).state is LockState.FREE


def test_cluster_needs_more(running_cluster: list[RedisServer]) -> None:
    """A client of a cluster asks for its servers and its commands."""
    for server in running_cluster:
        server.empty()
    rights = RIGHTS - {"+select"} | CLUSTER
    with locks_with(rights, running_cluster) as locks:
        use(locks, running_cluster)
        assert locks.check_store([]) == []
    for right in CLUSTER:
        with locks_with(rights - {right}, running_cluster) as locks:
            with pytest.raises(LockProviderError) as raised:
                locks.now()
        assert f"Give the user {right}" in str(raised.value)


def test_check_of_a_cluster_needs_info(running_cluster: list[RedisServer]) -> None:
    """Each server that does not answer INFO has a warning of its own."""
    with locks_with(RIGHTS | CLUSTER, running_cluster) as locks:
        for server in running_cluster[1:]:
            server.ask("ACL", "SETUSER", "shedlock", "-info")
        messages = locks.check_store([])
    assert len(messages) == 2
    for message, server in zip(messages, running_cluster[1:], strict=True):
        assert f"(127.0.0.1:{server.port}) does not report" in message.msg
