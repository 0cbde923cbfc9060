"""What others keep under the prefix, or have made of a record: it hides no lock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from django_shedlock.locks.status import LockHolder, LockState
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockQuery
from django_shedlock.providers.redis import RedisLockProvider
from tests.providers.redis.test_contract import FLAWS
from tests.support.commands import call
from tests.support.locks import configure, status_of, take, try_from
from tests.support.redis_servers import PATIENT, ReachableRedis

KEY = "shedlock:{job}"
NO_UTF_8 = b"shedlock:{j\xffb}"
REASONS = {
    "a text": "WRONGTYPE Operation against a key holding the wrong kind of value",
    "another hash": "the field 'by' is missing",
    "1e30": "'1e30' is no number of at most 16 digits",
    "nan": "'nan' is no number of at most 16 digits",
}


@pytest.fixture
def locks(server: ReachableRedis, settings: Any) -> Iterator[RedisLockProvider]:
    backend = "django_shedlock.providers.redis.RedisLockProvider"
    entry = {"BACKEND": backend, "OPTIONS": {"url": server.url, **PATIENT}}
    settings.SHEDLOCK_PROVIDERS = {"default": entry}
    provider = get_provider()
    assert isinstance(provider, RedisLockProvider)
    yield provider
    provider.server.clients.close()


@pytest.fixture(params=FLAWS)
def kind(
    request: pytest.FixtureRequest, locks: RedisLockProvider, server: ReachableRedis
) -> str:
    """Put something under the name of a lock, beside another lock that is held."""
    command, *what = FLAWS[request.param]
    take(configure("other"), locks)
    if "by" in what:
        take(configure("job"), locks)
    server.ask(str(command), KEY, *what)
    return str(request.param)


def test_key_is_one_unreadable_record(locks: RedisLockProvider, kind: str) -> None:
    """The rest is listed and counted, and the reason is told."""
    found = {each.name: each for each in locks.statuses()}
    assert found.keys() == {"job", "other"}
    assert not found["other"].unreadable
    assert found["other"].state is LockState.RUNNING
    assert found["job"].unreadable.startswith(REASONS.get(kind, ""))
    assert found["job"].unreadable == status_of(locks, "job").unreadable != ""
    assert len(found["job"].unreadable) < 100
    assert locks.count() == 2
    assert locks.count(LockQuery(states={LockState.RUNNING})) == 1


def test_name_that_is_no_utf_8(
    locks: RedisLockProvider, server: ReachableRedis
) -> None:
    """A name that is not UTF-8 is shown with escaped bytes, as unreadable."""
    take(configure("grün"), locks)
    server.ask("HSET", NO_UTF_8, "until", "1")
    good, bad = locks.statuses()
    assert (good.name, good.unreadable) == ("grün", "")
    assert bad.name == "j\\xffb"
    assert "can't decode byte 0xff" in bad.unreadable
    [found] = locks.statuses(LockQuery(names={"j\\xffb", "nobody"}))
    assert found.unreadable == bad.unreadable


def test_holder_that_is_no_utf_8(
    locks: RedisLockProvider, server: ReachableRedis
) -> None:
    """A lock whose holder is not UTF-8 is still held."""
    take(configure(), locks)
    server.ask("HSET", KEY, "by", b"\xff")
    assert status_of(locks, "job").unreadable
    holder = try_from(locks, configure())
    assert isinstance(holder, LockHolder)
    assert holder.locked_by == "\\xff"


@pytest.mark.django_db
def test_console_shows_the_rest(
    locks: RedisLockProvider, server: ReachableRedis, kind: str
) -> None:
    """The list has all of them, and the check says which is broken."""
    server.ask("HSET", NO_UTF_8, "until", "1")
    status, printed, _ = call("list", "--json")
    assert status == 0
    names = {each["name"] for each in json.loads(printed)}
    assert {"job", "other", "j\\xffb"} <= names
    _, printed, _ = call("check")
    assert "Its record can't be read" in printed
    assert KEY in printed
