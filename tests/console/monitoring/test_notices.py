"""Each reader is told of each fact once, on whatever host, and of its recovery."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest
from django.core.cache import InvalidCacheKey, cache, caches
from django.db import OperationalError
from django.test import override_settings

from django_shedlock.console.models import Notice
from django_shedlock.console.monitoring import notices, outages
from django_shedlock.console.monitoring.findings import Acknowledgement, Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.notices import (
    Change,
    News,
    NotTold,
    news_for,
    prune_notices,
)
from django_shedlock.console.monitoring.search import (
    Search,
    fact_of_own_clock,
    unreachable,
)
from tests.console.admin.test_missing_history import without
from tests.support.commands import call
from tests.support.notices import pass_time, told
from tests.support.processes import Parent, race

pytestmark = pytest.mark.django_db

HOSTS = 4
MINUTE = timedelta(minutes=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SEARCH = Search(5 * MINUTE)
MEMORY = "django_shedlock.providers.memory.MemoryLockProvider"
KNOWN = Acknowledgement("ada", datetime(2026, 3, 2, tzinfo=UTC), None, "being mended")

NEW, STILL = Change.NEW, Change.STILL
ACKNOWLEDGED, RECOVERED = Change.ACKNOWLEDGED, Change.RECOVERED


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    cache.clear()


def found(
    lock: str | None, kind: Kind = Kind.FAILED, run: str = "1", **columns: Any
) -> Finding:
    return Finding(kind, "default", lock, f"{kind.value} {run}", **columns)


def tell(*findings: Finding, reader: str = "mail", search: Search = SEARCH) -> Any:
    """Tell the news of these findings; return each change with its lock."""
    with news_for(reader, search, ["default"], findings) as news:
        pass
    return [(each.change, each.lock) for each in news]


def test_fact_is_told_once() -> None:
    """Each fact counts for itself: of another kind, another lock, another store."""
    assert tell(found("job")) == [(NEW, "job")]
    assert tell(found("job")) == []
    assert tell(found("job"), found("job", Kind.OVERDUE)) == [(NEW, "job")]
    assert tell(found("job"), found("other")) == [(NEW, "other")]
    assert tell(found(None, Kind.CLOCK)) == [(NEW, None)]


def test_next_fact_of_a_kind_is_told() -> None:
    """Another failure, loss or dead worker is news, but at most one in an hour."""
    assert tell(found("job", run="1")) == [(NEW, "job")]
    assert tell(found("job", run="2")) == []
    assert tell(found("job", run="2"), found("other", run="2")) == [(NEW, "other")]
    pass_time(HOUR)
    assert tell(found("job", run="3")) == [(NEW, "job")]
    assert tell(found("job", run="3")) == []
    assert [each.fact for each in told() if each.lock == "job"] == ["failed 3"]


def test_finding_that_stays_is_repeated_daily() -> None:
    """Whoever missed the first mail gets another one."""
    tell(found("job"))
    pass_time(DAY - MINUTE)
    assert tell(found("job")) == []
    pass_time(MINUTE)
    assert tell(found("job")) == [(STILL, "job")]
    assert tell(found("job")) == []


@pytest.mark.each_store
def test_notices_of_a_reader_that_is_asked_no_more_are_pruned() -> None:
    """
    Notices of a reader that is no longer asked are pruned.

    Readers that are still asked get news daily, so their notices are young.
    """
    tell(found("job"), reader="gone")
    pass_time(31 * DAY)
    tell(found("job"))
    old = ("--older-than", "1m")
    assert prune_notices("default", 32 * DAY) == 0
    assert prune_notices("default", MINUTE, "second") == 0
    assert "Would delete notices: 1." in call("prune", "--dry-run", *old)[1]
    assert "Deleted notices: 1." in call("prune", *old)[1]
    assert "notices" not in call("prune", *old)[1]
    assert [row.reader for row in told()] == ["mail"]


def test_notices_of_a_reader_that_is_still_asked_are_kept() -> None:
    """
    Notices of a reader that is still asked are kept.

    The reader gets no daily news of an acknowledged finding, but gets news when the
    acknowledgement ends.
    """
    tell(found("job"))
    tell(found("job", acknowledged=KNOWN))
    pass_time(29 * DAY)
    assert prune_notices("default", MINUTE) == 0
    other = found("other")
    tell(found("job", acknowledged=KNOWN), other)
    pass_time(29 * DAY)
    assert prune_notices("default", MINUTE) == 0
    assert tell(found("job"), other) == [(STILL, "job"), (STILL, "other")]


def test_recovery_is_told_once() -> None:
    """When the finding has been away for ten minutes."""
    tell(found("job"))
    assert tell() == []
    pass_time(9 * MINUTE)
    assert tell() == []
    pass_time(MINUTE)
    with news_for("mail", SEARCH, ["default"], []) as news:
        finding = found("job")
        assert news == [News(RECOVERED, "default", "job", Kind.FAILED, finding.fact)]
    assert tell() == []
    assert told() == []
    assert tell(found("job")) == [(NEW, "job")]


def test_finding_that_comes_and_goes_is_told_once_an_hour() -> None:
    """A job that fails at every other run neither recovers nor fills the mailbox."""
    changes = []
    for number in range(24):
        at = [found("job", run=str(number))] if number % 2 == 0 else []
        changes += tell(*at)
        pass_time(5 * MINUTE)
    assert changes == [(NEW, "job"), (NEW, "job")]


def test_acknowledgement_is_news_of_its_own() -> None:
    """Nobody is told that the job has recovered, nor later that the finding is new."""
    tell(found("job"))
    known = found("job", acknowledged=KNOWN)
    assert tell(known) == [(ACKNOWLEDGED, "job")]
    assert tell(known) == []
    pass_time(8 * HOUR)
    assert tell(known) == []
    assert tell(found("job")) == [(STILL, "job")]
    assert tell(found("job")) == []


def test_acknowledged_finding_recovers() -> None:
    """Whoever was told that it is known is told that it is over."""
    tell(found("job"))
    tell(found("job", acknowledged=KNOWN))
    tell()
    pass_time(HOUR)
    assert tell() == [(RECOVERED, "job")]


def test_finding_that_was_acknowledged_before_anybody_was_told() -> None:
    """
    A finding that was acknowledged before any notice is no news.

    The end of such a finding is no news either.
    """
    assert tell(found("job", acknowledged=KNOWN)) == []
    pass_time(HOUR)
    assert tell() == []
    assert tell(found("job")) == [(NEW, "job")]


def test_folded_finding_neither_is_news_nor_recovers() -> None:
    """
    A folded finding is neither news nor a recovery.

    Its cause is reported instead, and an earlier notice of the job is still true.
    """
    tell(found("first", Kind.OVERDUE))
    folded = [found(name, Kind.OVERDUE, is_folded=True) for name in ("first", "b")]
    assert tell(found(None, Kind.SILENT), *folded) == [(NEW, None)]
    pass_time(HOUR)
    assert tell(found(None, Kind.SILENT), *folded) == []
    pass_time(DAY)
    assert tell(found(None, Kind.SILENT), *folded) == [(STILL, None)]


@pytest.mark.each_store
def test_news_that_could_not_be_told_are_not_lost() -> None:
    """Neither what is new, nor what stays, nor what has recovered."""
    tell(found("old"), found("stays"))
    pass_time(DAY)
    tell(found("stays", run="1"))
    pass_time(HOUR)
    for error in (OSError, KeyboardInterrupt):
        with (
            pytest.raises(error),
            news_for("mail", SEARCH, ["default"], [found("new")]) as news,
        ):
            assert len(news) == 2
            raise error
    assert tell(found("new")) == [(NEW, "new"), (RECOVERED, "old")]
    assert tell(found("new")) == []


def test_news_of_a_host_that_died_are_told_by_another() -> None:
    """After some minutes, what is new and what has recovered."""
    tell(found("old"))
    tell()
    pass_time(HOUR)
    dead = news_for("mail", SEARCH, ["default"], [found("new")])
    with dead as news:
        assert [each.change for each in news] == [NEW, RECOVERED]
        assert tell(found("new")) == []
        pass_time(11 * MINUTE)
        assert tell(found("new")) == [(NEW, "new"), (RECOVERED, "old")]
    assert tell(found("new")) == []


@pytest.mark.parametrize("kind", [Kind.FAILED, Kind.SILENT])
def test_claim_of_a_host_that_died_ends_in_silence_if_the_finding_is_gone(
    kind: Kind,
) -> None:
    """Nobody was told of it, so nobody is told of its recovery."""
    lock = None if kind is Kind.SILENT else "job"
    dead = news_for("mail", SEARCH, ["default"], [found(lock, kind)])
    dead.__enter__()
    pass_time(HOUR)
    assert tell() == []
    assert told() == []


@pytest.mark.django_db(transaction=True)
def test_database_that_cannot_keep_what_was_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As before a migration, or on a full disk: the cache knows, for an hour."""
    with without("shedlock_notice"):
        assert tell(found("job")) == [(NEW, "job")]
        assert tell(found("job")) == []
    assert "What is told of provider 'default' can't be kept in" in caplog.text
    with without("shedlock_notice"):
        assert tell(found("other"), reader="address 1") == [(NEW, "other")]


@pytest.mark.django_db(transaction=True)
def test_news_that_cannot_be_noted_are_told_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The claim ends after some minutes; a process that could tell does not fail."""
    with news_for("mail", SEARCH, ["default"], [found("job")]) as news:
        assert len(news) == 1
        gone = without("shedlock_notice")
        gone.__enter__()
    gone.__exit__(None, None, None)
    assert "What was told could not be noted" in caplog.text
    assert tell(found("job")) == []
    pass_time(11 * MINUTE)
    assert tell(found("job")) == [(NEW, "job")]


def test_finding_that_gives_way_to_another_is_no_recovery() -> None:
    """
    A finding that gives way to another one is no recovery.

    For example, a hung job's lease ends: nothing is well again.
    """
    tell(found("job", Kind.LONG))
    assert tell(found("job", Kind.EXPIRED)) == [(NEW, "job")]
    pass_time(HOUR)
    assert tell(found("job", Kind.EXPIRED)) == []
    tell()
    pass_time(HOUR)
    assert tell() == [(RECOVERED, "job")]


@pytest.mark.parametrize("kind", [Kind.LOST, Kind.PASSED_OVER, Kind.REQUEST])
def test_finding_that_is_only_old_is_no_recovery(kind: Kind) -> None:
    """A loss is reported for a day, whatever becomes of it."""
    tell(found("job", kind))
    tell()
    pass_time(HOUR)
    assert tell() == []
    assert told() == []


def test_two_findings_of_a_kind_in_one_lock() -> None:
    """
    Two findings of one kind in one lock are each reported once.

    Two workers may both have lost the lock.
    """
    both = found("job", Kind.LOST, "a"), found("job", Kind.LOST, "b")
    assert tell(*both) == [(NEW, "job"), (NEW, "job")]
    for _ in range(4):
        pass_time(HOUR)
        assert tell(*both) == []


def test_clock_of_another_host_is_not_right_again() -> None:
    """Only the host whose clock was wrong sees that."""
    wrong = Finding(Kind.CLOCK, "default", None, "clock web-9", {})
    assert tell(wrong) == [(NEW, None)]
    tell()
    pass_time(HOUR)
    assert tell() == []
    Notice.objects.update(fact=fact_of_own_clock())
    tell()
    pass_time(HOUR)
    assert tell() == [(RECOVERED, None)]


def clock_of(host: str) -> Finding:
    return Finding(Kind.CLOCK, "default", None, f"clock {host}", {})


def test_many_hosts_with_wrong_clocks_are_told_once_a_day() -> None:
    """The store's clock is wrong, and each host finds that."""
    news = []
    for _ in range(50):
        for host in ("web-1", "web-2"):
            news += tell(clock_of(host))
        pass_time(HOUR)
    assert [change for change, _ in news] == [NEW, STILL, STILL]


def test_wrong_clock_of_hosts_that_are_gone_has_an_end() -> None:
    """
    The wrong clock of a host that is gone has recovered after two days.

    In a cluster each check may come from another host.
    """
    news = []
    for hour in range(50):
        news += tell(clock_of(f"pod-{hour}"))
        pass_time(HOUR)
    assert [change for change, _ in news] == [NEW, NEW, NEW]
    assert tell() == []
    pass_time(2 * DAY)
    assert tell() == []
    pass_time(HOUR)
    assert tell() == [(RECOVERED, None)]
    assert told() == []


def test_acknowledged_finding_that_takes_the_place_of_another_is_told() -> None:
    """
    An acknowledged finding that replaces a reported one is reported.

    Otherwise nothing would end the alarm that the reader knows.
    """
    tell(found("job", Kind.LONG))
    known = found("job", Kind.EXPIRED, acknowledged=KNOWN)
    assert tell(known, found("other", Kind.EXPIRED, acknowledged=KNOWN)) == [
        (ACKNOWLEDGED, "job")
    ]
    pass_time(HOUR)
    assert tell(known) == []
    tell()
    pass_time(HOUR)
    assert tell() == [(RECOVERED, "job")]


def test_folded_finding_hides_no_recovery() -> None:
    """The job succeeded before the scheduler died."""
    tell(found("job"))
    folded = found("job", Kind.OVERDUE, is_folded=True)
    tell(folded)
    pass_time(HOUR)
    assert tell(folded) == [(RECOVERED, "job")]


def test_finding_that_is_back_while_its_end_is_told() -> None:
    """The host that tells the recovery deletes the row, so the next call tells it."""
    tell(found("job"))
    tell()
    pass_time(HOUR)
    with news_for("mail", SEARCH, ["default"], []) as news:
        assert [each.change for each in news] == [RECOVERED]
        assert tell(found("job")) == []
    assert told() == []
    assert tell(found("job")) == [(NEW, "job")]


def test_finding_that_is_gone_while_it_is_told() -> None:
    """A finding that is gone while it is reported is not reported again."""
    tell(found("job"))
    pass_time(DAY)
    with news_for("mail", SEARCH, ["default"], [found("job")]) as news:
        assert [each.change for each in news] == [STILL]
        assert tell() == []
    pass_time(11 * MINUTE)
    assert tell(found("job")) == []


@pytest.mark.parametrize("kind", [Kind.UNREACHABLE, Kind.MORE])
def test_incomplete_search_ends_nothing(kind: Kind) -> None:
    """While the locks can't be read, or not all, nobody knows what has recovered."""
    tell(found("job"))
    for _ in range(3):
        pass_time(20 * MINUTE)
        assert (RECOVERED, "job") not in tell(found(None, kind))
    assert [each.gone_at for each in told() if each.lock == "job"] == [None]


@pytest.mark.parametrize("finding", [found("job"), None])
def test_host_that_read_before_another_one_told(
    monkeypatch: pytest.MonkeyPatch, finding: Finding | None
) -> None:
    """A host with an outdated read of the notices reports nothing."""
    findings = [] if finding is None else [finding]
    read = partial(notices._rows_of, "default", "mail", "default")
    if finding is None:
        tell(found("job"))
        tell()
        pass_time(HOUR)
    stale = read()
    assert len(tell(*findings)) == 1
    monkeypatch.setattr(notices, "_rows_of", lambda *args: stale)
    assert tell(*findings) == []


def test_ignored_locks_do_not_recover() -> None:
    """A call that looks at fewer locks does not tell that the others are well."""
    tell(found("import:7"), found("job"))
    fewer = Search(5 * MINUTE, ignored=("import:*",))
    tell(search=fewer)
    pass_time(HOUR)
    assert tell(search=fewer) == [(RECOVERED, "job")]


def test_readers_and_providers_are_apart() -> None:
    """What one reader was told says nothing of another, nor of another store."""
    tell(found("job"))
    assert tell(found("job"), reader="address 1") == [(NEW, "job")]
    Notice.objects.update(provider="other")
    assert tell() == []
    pass_time(HOUR)
    assert tell() == []
    assert Notice.objects.count() == 2


def test_kind_of_another_version_ends_in_silence() -> None:
    """A row that nobody understands goes, and breaks nothing."""
    tell(found("job"))
    Notice.objects.update(kind="haunted")
    tell()
    pass_time(HOUR)
    assert tell() == []
    assert told() == []


class Clock:
    """A clock that stands still until its ``now`` is changed."""

    now = 1_000_000.0


def fail_to_tell(*findings: Finding) -> None:
    """Let the reader not be told of the news of these findings."""
    with (
        pytest.raises(ZeroDivisionError),
        news_for("mail", SEARCH, ["default"], findings),
    ):
        raise ZeroDivisionError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """A clock for the cache's notes of an outage, which only the test moves."""
    clock = Clock()
    monkeypatch.setattr(outages.time, "time", lambda: clock.now)
    return clock


def tell_while_down(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Tell that the default store is down, and that its database keeps nothing."""

    def fail(*args: Any) -> None:
        raise OperationalError("connection refused")

    with monkeypatch.context() as patched:
        patched.setattr(notices, "_rows_of", fail)
        return tell(unreachable("default", "it is down"))


def test_store_that_can_keep_nothing(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """While the database is down the cache knows what was told, for an hour."""
    assert tell_while_down(monkeypatch) == [(NEW, None)]
    assert tell_while_down(monkeypatch) == []
    clock.now += 60 * 60
    assert tell() == []
    clock.now += 10 * 60
    with (
        pytest.raises(ZeroDivisionError),
        news_for("mail", SEARCH, ["default"], []) as news,
    ):
        assert [each.kind for each in news] == [Kind.UNREACHABLE]
        raise ZeroDivisionError
    assert tell() == [(RECOVERED, None)]
    assert tell() == []


def test_outage_that_could_not_be_told_is_told_again() -> None:
    """What the cache was to remember is forgotten."""
    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}}):
        down = unreachable("default", "it is down")
        fail_to_tell(down)
        assert tell(down) == [(NEW, None)]
        assert tell(down) == []


def test_outage_that_nobody_was_told_of_has_no_end(clock: Clock) -> None:
    """The reader could not be told, and the store is back before the next call."""
    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}}):
        down = unreachable("default", "it is down")
        fail_to_tell(down)
    assert tell() == []
    clock.now += 10 * 60
    assert tell() == []


def test_store_that_comes_and_goes_is_told_once(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """
    A store that comes and goes is reported once.

    The store has recovered when it has answered for ten minutes.
    """
    assert tell_while_down(monkeypatch) == [(NEW, None)]
    for _ in range(3):
        assert tell() == []
        clock.now += 9 * 60
        assert tell_while_down(monkeypatch) == []
    assert tell() == []
    clock.now += 9 * 60
    assert tell() == []
    clock.now += 60
    assert tell() == [(RECOVERED, None)]
    assert tell_while_down(monkeypatch) == [(NEW, None)]


def test_other_hosts_say_nothing_of_the_end_of_an_outage(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Only the host that told of it knows that it could not reach the store."""
    assert tell_while_down(monkeypatch) == [(NEW, None)]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(outages, "own_host", lambda: "web-2")
        assert tell_while_down(monkeypatch) == []
        assert tell() == []
        clock.now += 10 * 60
        assert tell() == []
    assert tell() == []
    clock.now += 10 * 60
    assert tell() == [(RECOVERED, None)]


def test_row_that_cannot_be_written_makes_no_old_news_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was told before stays told, and the new fact is told all the same."""
    known = [found(f"job {number}") for number in range(3)]
    assert len(tell(*known)) == 3

    def fail(*args: Any) -> None:
        raise OperationalError("lock timeout")

    with monkeypatch.context() as patched:
        patched.setattr(notices.KeptMemory, "_insert", fail)
        assert tell(*known, found("new")) == [(NEW, "new")]
        assert tell(*known, found("new")) == []


def test_part_of_the_news_can_be_told() -> None:
    """Only the rest is told by the next call."""
    findings = [found("first"), found("second")]
    with (
        pytest.raises(NotTold),
        news_for("mail", SEARCH, ["default"], findings) as news,
    ):
        raise NotTold("the second post is refused", [news[0]])
    assert tell(*findings) == [(NEW, "second")]
    assert tell(*findings) == []


def test_recovery_is_told_though_ticks_were_passed_over() -> None:
    """A finding of its lock about an earlier time does not hide that it is over."""
    over, paused = found("job", Kind.PASSED_OVER), found("job", Kind.PAUSED)
    earlier = found("job", Kind.LOST, params={"is_last": False})
    for other in (over, paused, earlier):
        Notice.objects.all().delete()
        tell(found("job", Kind.OVERDUE), other)
        assert tell(other) == []
        pass_time(10 * MINUTE)
        assert tell(other) == [(RECOVERED, "job")]


def test_fact_that_another_host_began_to_tell_replaces_the_one_before() -> None:
    """
    A fact that a dead host began to report replaces the fact before it.

    The recovery is reported once for both facts.
    """
    tell(found("job"))
    pass_time(HOUR)
    second = found("job", run="2")
    dead = news_for("mail", SEARCH, ["default"], [second])
    dead.__enter__()
    pass_time(11 * MINUTE)
    assert tell(second) == [(NEW, "job")]
    assert len(told()) == 1


def test_broken_cache_keeps_nothing_untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nobody can know whether it was told, it is told."""

    class Broken:
        def add(self, *args: Any) -> bool:
            raise ConnectionError

        delete = add

    monkeypatch.setattr(notices, "cache", Broken())
    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}}):
        assert tell(found("job")) == [(NEW, "job")]
        assert tell(found("job")) == [(NEW, "job")]
    assert tell() == []


def test_cache_that_fails_keeps_nothing_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim that the cache can't delete does not keep the other claims."""
    refused: list[str] = []

    def refuse_first(method: Any, key: str, *args: Any) -> Any:
        if not refused or key in refused:
            refused.append(key)
            raise InvalidCacheKey
        return method(key, *args)

    refusing = partial(refuse_first, cache.delete)
    monkeypatch.setattr(caches["default"], "delete", refusing)
    both = found("a job"), found("job")
    with override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}}):
        with (
            pytest.raises(ZeroDivisionError),
            news_for("mail", SEARCH, ["default"], both),
        ):
            raise ZeroDivisionError
        assert tell(*both) == [(NEW, "job")]


def tell_at_once(parent: Parent, barrier: Barrier, *names: str) -> int:
    """Report problems of these locks as other hosts do at once; return how many."""
    barrier.wait()
    return len(tell(*map(found, names)))


@pytest.mark.django_db(transaction=True)
def test_hosts_that_tell_at_once_tell_once() -> None:
    """
    Only one of several hosts reports a new finding, and only one its end.

    One INSERT and one UPDATE decide which host reports.
    """
    assert sum(race(HOSTS, tell_at_once, "job")) == 1
    tell()
    pass_time(HOUR)
    assert sum(race(HOSTS, tell_at_once)) == 1
