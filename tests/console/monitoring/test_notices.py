"""Findings are told once, and once that they are gone, on whatever host."""

from __future__ import annotations

import multiprocessing.synchronize
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.cache import InvalidCacheKey, cache, caches
from django.db import OperationalError
from django.test import override_settings

from django_shedlock.console.models import Notice
from django_shedlock.console.monitoring import notices
from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.monitoring.notices import Changes, reported
from django_shedlock.console.monitoring.search import Search
from django_shedlock.sql.fields import DatabaseNow
from tests.support.notices import pass_time, told
from tests.support.processes import Parent, context, workers
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.django_db

Barrier = multiprocessing.synchronize.Barrier
HOSTS = 4
MINUTE = timedelta(minutes=1)
SEARCH = Search(5 * MINUTE)
MEMORY = "django_shedlock.providers.memory.MemoryLockProvider"


def found(lock: str | None, kind: Kind = Kind.FAILED) -> Finding:
    return Finding(kind, "default", lock, "It failed.")


def report(*findings: Finding, search: Search = SEARCH) -> tuple[list[Any], list[Any]]:
    """Report these findings; return the locks of the new ones, and of those gone."""
    with reported(search, ["default"], findings) as changes:
        pass
    return [each.lock for each in changes.new], [each.lock for each in changes.gone]


def test_new_finding_is_told_once() -> None:
    """Only a finding that nobody was told of is new; each kind counts for itself."""
    assert report(found("job")) == (["job"], [])
    assert report(found("job")) == ([], [])
    assert report(found("job"), found("job", Kind.OVERDUE)) == (["job"], [])
    assert report(found("job"), found("other")) == (["other"], [])


def test_end_is_told_once() -> None:
    """A finding that stays away is gone, with the text that it had."""
    report(found("job"))
    pass_time(MINUTE)
    assert report() == ([], [])
    pass_time(10 * MINUTE)
    with reported(SEARCH, ["default"], []) as changes:
        assert changes.gone == [found("job")]
        assert changes
    assert report() == ([], [])
    assert told() == []
    assert report(found("job")) == (["job"], [])


def test_finding_that_flaps_is_not_told_again() -> None:
    """What comes back soon was never gone; the longer it lasted, the later it goes."""
    report(found("job"))
    for _ in range(5):
        pass_time(9 * MINUTE)
        assert report() == ([], [])
        pass_time(9 * MINUTE)
        assert report(found("job")) == ([], [])
    assert report() == ([], [])
    pass_time(30 * MINUTE)
    assert report() == ([], [])
    pass_time(30 * MINUTE)
    assert report() == ([], ["job"])


@pytest.mark.each_store
def test_report_that_fails_is_repeated() -> None:
    """Neither what is new nor what is gone is lost if it could not be told."""
    report(found("old"))
    pass_time(MINUTE)
    report()
    pass_time(20 * MINUTE)
    for error in (OSError, KeyboardInterrupt):
        with pytest.raises(error), reported(SEARCH, ["default"], [found("new")]):
            raise error
    assert report(found("new")) == (["new"], ["old"])
    assert report(found("new")) == ([], [])


def test_report_of_a_process_that_died_is_taken_over() -> None:
    """After some minutes another host tells it, what is new and what is gone."""
    report(found("old"))
    pass_time(MINUTE)
    report()
    pass_time(20 * MINUTE)
    dead = reported(SEARCH, ["default"], [found("new")])
    with dead as changes:
        assert (changes.new, changes.gone) == ([found("new")], [found("old")])
        assert report(found("new")) == ([], [])
        pass_time(11 * MINUTE)
        assert report(found("new")) == (["new"], ["old"])
    assert report(found("new")) == ([], [])


@pytest.mark.parametrize("kind", [Kind.UNREACHABLE, Kind.MORE])
def test_incomplete_search_ends_nothing(kind: Kind) -> None:
    """While the locks can't be read, or not all, nobody knows what is gone."""
    report(found("job"))
    for _ in range(3):
        pass_time(20 * MINUTE)
        assert report(found(None, kind))[1] == []
    assert [(each["lock"], each["gone_at"]) for each in told()][:1] == [("job", None)]


def test_host_that_was_a_moment_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has read the row before another one changed it tells nothing."""
    report()
    read = Notice.objects.annotate(now=DatabaseNow()).get
    stale = read()
    monkeypatch.setattr(notices, "_row", lambda *args: stale)
    assert report(found("job")) == (["job"], [])
    assert report(found("job"), found("other")) == ([], [])
    stale = read()
    assert report(found("job"), found("other")) == (["other"], [])


def test_host_that_read_while_another_one_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells nothing, also if the other one has told by then."""
    report()
    read = Notice.objects.annotate(now=DatabaseNow()).get
    with reported(SEARCH, ["default"], [found("job")]):
        stale = read()
    monkeypatch.setattr(notices, "_row", lambda *args: stale)
    assert report(found("job")) == ([], [])


def test_ignored_locks_are_not_gone() -> None:
    """A call that looks at fewer locks does not tell that the others are well."""
    report(found("import:7"), found("job"))
    fewer = Search(5 * MINUTE, ignored=("import:*",))
    report(search=fewer)
    pass_time(20 * MINUTE)
    assert report(search=fewer) == ([], ["job"])


def test_other_providers_are_not_gone() -> None:
    """The report of one provider says nothing of another's."""
    of_other = Finding(Kind.FAILED, "other", "job", "It failed.")
    Notice.objects.create(provider="other", told="[]")
    report(found("job"), of_other)
    assert [each["provider"] for each in told()] == ["default"]
    assert Notice.objects.get(provider="other").told == "[]"


def test_kind_of_another_version_ends_in_silence() -> None:
    """A row that nobody understands goes, and breaks nothing."""
    report(found("job"))
    row = Notice.objects.get()
    Notice.objects.update(told=row.told.replace('"failed"', '"haunted"'))
    report()
    pass_time(20 * MINUTE)
    assert report() == ([], [])
    assert told() == []


@pytest.fixture
def empty_cache() -> None:
    cache.clear()


@pytest.mark.usefixtures("empty_cache")
def test_store_that_can_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the database is down the cache knows what was told, for an hour."""

    def fail(*args: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(notices, "_row", fail)
    down = found(None, Kind.UNREACHABLE)
    with pytest.raises(ZeroDivisionError), reported(SEARCH, ["default"], [down]):
        raise ZeroDivisionError
    assert report(down) == ([None], [])
    assert report(down) == ([], [])
    with pytest.raises(OperationalError):
        report(found("job"))


@pytest.mark.usefixtures("empty_cache")
def test_broken_cache_keeps_nothing_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nobody can know whether it was told, it is told."""

    class Broken:
        def add(self, *args: Any) -> bool:
            raise ConnectionError

        delete = add

    monkeypatch.setattr(notices, "cache", Broken())
    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}}):
        assert report(found("job")) == (["job"], [])
        assert report(found("job")) == (["job"], [])


@pytest.mark.usefixtures("empty_cache")
def test_key_that_the_cache_refuses_keeps_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memcached refuses one with a space, and then what comes with it."""

    def refuse_some(method: Any, key: str, *args: Any) -> Any:
        if " " in key:
            raise InvalidCacheKey
        return method(key, *args)

    for name in ("add", "delete"):
        refusing = partial(refuse_some, getattr(cache, name))
        monkeypatch.setattr(caches["default"], name, refusing)
    both = found("a job"), found("job")
    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}}):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                with reported(SEARCH, ["default"], both) as changes:
                    raise ZeroDivisionError
            assert changes.new == [*both]


def test_changes_are_true_if_there_are_any() -> None:
    """So a body can ask whether there is anything to tell."""
    assert not Changes()
    assert Changes(gone=[found("job")])


def tell(parent: Parent, barrier: Barrier) -> tuple[int, int]:
    """Report as other hosts do at once: what is new, then what is gone."""
    barrier.wait(PATIENCE)
    new, _ = report(found("job"))
    parent.say(len(new))
    parent.wait()
    barrier.wait(PATIENCE)
    _, gone = report()
    return len(new), len(gone)


@pytest.mark.django_db(transaction=True)
def test_hosts_that_report_at_once_tell_once() -> None:
    """One UPDATE decides who tells what is new, and another one who tells the end."""
    barrier = context.Barrier(HOSTS)
    with workers(HOSTS, tell, barrier) as hosts:
        assert sum(host.heard() for host in hosts) == 1
        report()
        pass_time(20 * MINUTE)
        for host in hosts:
            host.send(None)
        results = [host.result() for host in hosts]
    assert sum(new for new, _ in results) == 1
    assert sum(gone for _, gone in results) == 1
