"""What a cache keeps: keys, values and timeouts."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import caches
from hypothesis import given
from hypothesis import strategies as st

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.configuration import LockConfiguration
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.states import LockHolder
from django_shedlock.providers.cache import CacheLockProvider
from django_shedlock.providers.cache.stores import DAY, timeout_of
from django_shedlock.providers.cache.values import Value, guard_of, key_of, longest_key
from tests.support.cached_locks import end_lease, entry_of
from tests.support.locks import MINUTE, configure, pause, take_from

YEAR = 365 * DAY


def key(name: str) -> str:
    return key_of(name, "shedlock:", caches["default"])


@pytest.mark.parametrize("name", ["billing.send_digest", "import:acme-7", "a/b@c+d"])
def test_plain_name_is_its_key(name: str) -> None:
    """A person finds the lock in the cache by its name."""
    assert key(name) == f"shedlock:{name}"


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Billing.sendDigest", "billing.senddigest"),
        ("job x\n", "job_x_"),
        ("jöb", "j_b"),
        ("a=b", "a_b"),
        ("x" * 255, "x" * 60),
    ],
)
def test_odd_name_is_hashed(name: str, slug: str) -> None:
    """Its key is like it, ends in a hash, and is one that Memcached takes."""
    before, _, digest = key(name).partition("=")
    assert before == f"shedlock:{slug}"
    assert len(digest) == 64


def test_key_that_the_cache_makes_too_long_is_hashed(settings: Any) -> None:
    """Django's own prefix counts, too: 250 bytes are all there is."""
    name = "x" * 200
    assert key(name) == f"shedlock:{name}"
    backend = "django.core.cache.backends.locmem.LocMemCache"
    settings.CACHES = {"default": {"BACKEND": backend, "KEY_PREFIX": "shop" * 20}}
    assert "=" in key(name)
    assert len(caches["default"].make_key(key(name))) <= 250


@given(st.lists(st.text(max_size=20), min_size=2, max_size=20, unique=True))
def test_no_two_names_share_a_key(names: list[str]) -> None:
    """Nor does a lock have the key of another one's guard, or one with other case."""
    keys = [key(name) for name in names] + [guard_of(n, "shedlock:") for n in names]
    assert len({each.casefold() for each in keys}) == len(keys)
    assert all(len(each) <= len(longest_key("shedlock:")) for each in keys)


def test_name_that_looks_like_a_key_is_hashed() -> None:
    """So it is no other name's key."""
    odd = key("Job").removeprefix("shedlock:")
    assert key(odd) != key("Job")
    assert key(guard_of("job", "")) != guard_of("job", "shedlock:")


@pytest.mark.parametrize(
    ("seconds", "timeout"),
    [
        (0.2, 3),
        (1, 3),
        (1.5, 4),
        (27 * DAY, 27 * DAY + 2),
        (29 * DAY, 30 * DAY + 2),
        (YEAR, YEAR + DAY + 2),
        (YEAR + 1, None),
        (FOREVER.total_seconds(), None),
    ],
)
def test_timeout(seconds: float, timeout: int | None) -> None:
    """In whole seconds, and two more: never too short for any backend."""
    assert timeout_of(seconds) == timeout


KINDS = ["local", "remote", "redis"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "lasting", [timedelta(days=45), 400 * timedelta(days=1), FOREVER]
)
def test_long_lease(
    kind: str, lasting: timedelta, request: pytest.FixtureRequest
) -> None:
    """Neither 30 days nor the year 2038 end a pause, or keep it from beginning."""
    request.getfixturevalue(kind)
    provider = CacheLockProvider("default")
    lock = pause("job", provider, lasting)
    [status] = provider.statuses("job")
    assert lasting - MINUTE < status.remaining <= lasting
    assert status.is_endless == (lasting == FOREVER)
    assert isinstance(provider.acquire(configure()), LockHolder)
    assert provider.release(lock)


@pytest.mark.usefixtures("local")
def test_value_is_a_small_text() -> None:
    """A person can read it, and so can another program."""
    lock = take_from(CacheLockProvider("default"), configure(lock_at_least_for=MINUTE))
    value = json.loads(caches["default"].get("shedlock:job"))
    assert value == {
        "by": lock.locked_by,
        "at": pytest.approx(time.time(), abs=60),
        "until": value["at"] + 60,
        "least": value["at"] + 60,
        "released": False,
    }


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize("text", ["7", "nobody", 7, "{}", '{"by": "me", "odd": 1}'])
def test_value_of_another_program(text: object) -> None:
    """It is no lock, and an error rather than a holder."""
    caches["default"].set("shedlock:job", text)
    provider = CacheLockProvider("default")
    with pytest.raises(LockProviderError, match="lock 'job'.*is no lock"):
        provider.acquire(configure())
    with pytest.raises(LockProviderError, match="lock 'job'.*is no lock"):
        provider.statuses("job")


@pytest.mark.usefixtures("local")
def test_two_prefixes_are_two_stores() -> None:
    """Two projects may share a cache."""
    ours = CacheLockProvider("default", prefix="ours:")
    theirs = CacheLockProvider("default", prefix="theirs:")
    lock = take_from(ours, configure())
    assert take_from(theirs, configure()).release()
    assert lock.release()


def test_clock_that_was_set_back_keeps_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A released lock is kept for lock_at_least_for at the most."""
    provider = CacheLockProvider("default")
    lock = take_from(provider, configure(lock_at_least_for=MINUTE))
    value = Value.taken(lock)
    an_hour_ago = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: an_hour_ago)
    assert value.kept_for(lock) == 60
    end_lease(lock)


@pytest.mark.usefixtures("local")
def test_kept_lock_has_its_key_for_the_rest() -> None:
    """What is left of lock_at_least_for is its timeout."""
    provider = CacheLockProvider("default")
    configuration = LockConfiguration("job", "1h", "30m")
    assert take_from(provider, configuration).release()
    value = Value.parse(entry_of(provider))
    assert value.released
    assert 29 * 60 < value.left <= 30 * 60
