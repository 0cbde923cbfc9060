"""A cache that fails, forgets, or is used by several threads and processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.core.cache import caches

from django_shedlock.exceptions import InvalidLockConfiguration, LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.providers.cache import CacheLockProvider
from django_shedlock.test.contract.faults import OF_A_LOCK
from tests.support.cached_locks import entry_of
from tests.support.forks import forked
from tests.support.locks import configure, take_from
from tests.support.memcached_servers import Memcached, memcached
from tests.support.threads import run_threads


def use_only(settings: Any, server: Memcached, **options: Any) -> CacheLockProvider:
    backend = server.cache
    settings.CACHES = {
        "default": {**backend, "OPTIONS": {**backend["OPTIONS"], **options}}
    }
    return CacheLockProvider("default")


def test_memcached_that_goes_and_comes(settings: Any) -> None:
    """Each call fails while it is away, and the next one after that works."""
    with memcached() as server:
        provider = use_only(settings, server)
        take_from(provider, configure())
        server.stop()
        for _ in range(5):  # pymemcache would hide its errors from the second on
            with pytest.raises(LockProviderError, match="'job' in cache 'default'"):
                provider.acquire(configure())
        server.start()
        take_from(provider, configure())


def test_memcached_that_has_forgotten(settings: Any) -> None:
    """After a restart the locks are gone, and their holders learn of it."""
    with memcached() as server:
        provider = use_only(settings, server)
        lock = take_from(provider, configure())
        server.stop()
        server.start()
        with suppress(LockProviderError):  # the old connection
            provider.statuses("job")
        other = take_from(provider, configure())
        assert not lock.release()
        assert lock.is_lost
        assert other.release()


@pytest.mark.parametrize("call", OF_A_LOCK.values(), ids=OF_A_LOCK)
def test_client_that_hides_errors(
    settings: Any,
    memcached_server: Memcached,
    call: Callable[[CacheLockProvider, Lock], Any],
) -> None:
    """A server that is away is no held lock, and no lost one either."""
    provider = use_only(settings, memcached_server, ignore_exc=True)
    location = f"unix:{memcached_server.socket}.none"
    settings.CACHES["default"]["LOCATION"] = location
    lock = Lock(provider, configure())
    with pytest.raises(LockProviderError, match="'job'.*hide errors"):
        call(provider, lock)


def test_client_that_hides_errors_of_several_locks(
    settings: Any, memcached_server: Memcached
) -> None:
    """No empty answer hides that nobody could read these locks, nor that of now()."""
    provider = use_only(settings, memcached_server, ignore_exc=True)
    location = f"unix:{memcached_server.socket}.none"
    settings.CACHES["default"]["LOCATION"] = location
    for call in (lambda: provider.statuses_of(["job", "other"]), provider.now):
        with pytest.raises(LockProviderError, match="known of the locks: the cache"):
            call()


def test_server_that_does_not_answer(settings: Any) -> None:
    """The client's time limit ends the wait, and nobody knows what was done."""
    with memcached() as server:
        provider = use_only(settings, server, timeout=0.2)
        assert take_from(provider, configure()).release()
        with server.stopped():
            with pytest.raises(LockProviderError, match="'job'.*imed out") as failure:
                provider.acquire(configure())
        assert failure.value.is_uncertain
        assert failure.value.__cause__ is not None


def test_nobody_listens(settings: Any, memcached_server: Memcached) -> None:
    """Then it is certain that nothing was done."""
    provider = use_only(settings, memcached_server)
    location = f"unix:{memcached_server.socket}.none"
    settings.CACHES["default"]["LOCATION"] = location
    with pytest.raises(LockProviderError, match="Is the cache reachable") as failure:
        provider.acquire(configure())
    assert not failure.value.is_uncertain


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_interrupted_call_costs_the_connection(
    monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """Its answer is still to come, and must not be the answer to the next call."""
    provider = CacheLockProvider("default")
    lock = take_from(provider, configure())
    cache = provider._clients.get()

    def interrupted(key: str) -> None:
        raise raised

    monkeypatch.setattr(cache, "get", interrupted)
    with pytest.raises((KeyboardInterrupt, LockProviderError)):
        provider.statuses("job")
    assert provider._clients.get() is not cache
    assert lock.release()


@pytest.mark.usefixtures("remote")
def test_each_thread_has_its_own_client() -> None:
    """A client of pymemcache must not be used by two threads at once."""
    provider = CacheLockProvider("default")
    found = {id(provider._clients.get()): provider._clients.get()}

    def work() -> None:
        cache = provider._clients.get()
        assert cache is provider._clients.get()
        found[id(cache)] = cache

    run_threads(4, work)
    assert len(found) == 5


@pytest.mark.usefixtures("remote")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_has_its_own_connection() -> None:
    """What it asks is never answered to its parent."""
    provider = CacheLockProvider("default")
    lock = take_from(provider, configure())
    inherited = provider._clients.get()

    def child() -> bool:
        for _ in range(100):
            entry_of(provider)
        is_new = provider._clients.get() is not inherited
        return is_new and take_from(provider, configure("another")).release()

    assert forked(child)
    assert provider._clients.get() is inherited
    assert lock.release()


@pytest.mark.usefixtures("local")
def test_end_of_a_request_does_not_close_it(remote: Any) -> None:
    """Django closes its own caches then: ours would connect again for each job."""
    provider = CacheLockProvider("default")
    take_from(provider, configure())
    cache = provider._clients.get()
    caches.close_all()
    assert provider._clients.get() is cache
    assert cache is not caches["default"]


def test_other_settings_make_another_client(local: Any, settings: Any) -> None:
    """A test may exchange the caches."""
    provider = CacheLockProvider("default")
    take_from(provider, configure())
    other = {**local["default"], "LOCATION": "elsewhere"}
    settings.CACHES = {"default": other}
    assert take_from(provider, configure()).release()


def test_unknown_cache() -> None:
    """It is an error that names those that there are."""
    provider = CacheLockProvider("default", cache="locks")
    with pytest.raises(LockProviderError, match="'locks' is not in CACHES.*'default'"):
        provider.acquire(configure())


@pytest.mark.usefixtures("local")
def test_no_fencing_token() -> None:
    """A cache that forgets can't count, and says what can."""
    lock = take_from(CacheLockProvider("shared"), configure())
    with pytest.raises(LockProviderError, match="'job'.*'shared'.*database"):
        _ = lock.fencing_token


@pytest.mark.usefixtures("local")
def test_short_lease_is_refused() -> None:
    """Timeouts are whole seconds."""
    provider = CacheLockProvider("default")
    with pytest.raises(InvalidLockConfiguration, match="'job'.*'999ms'.*is 1s"):
        provider.acquire(configure(lock_at_most_for=0.999))


@pytest.mark.usefixtures("local")
def test_only_named_locks_are_shown() -> None:
    """A cache has no list of its keys."""
    provider = CacheLockProvider("default")
    for name in ("c", "a", "b"):
        take_from(provider, configure(name))
    assert provider.statuses() == []
    assert provider.count() == 0
    assert [s.name for s in provider.statuses_of(["c", "z", "a"])] == ["a", "c"]
