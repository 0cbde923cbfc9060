"""
What is news to a reader: mail, or a chat. Each fact is told once, whichever host asks.

A row of ``shedlock_notice`` stands for one fact that one reader was told of.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from hashlib import sha256

from django.core.cache import cache
from django.db import Error
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce

from django_shedlock.clocks import aware
from django_shedlock.console.models import Notice
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.outages import Outage
from django_shedlock.console.monitoring.search import (
    Search,
    fact_of_own_clock,
    unreachable,
)
from django_shedlock.console.monitoring.starts import was_started_since
from django_shedlock.locks.lock import own_host
from django_shedlock.locks.patterns import matches_any
from django_shedlock.providers import get_provider
from django_shedlock.scrubbing import scrubbed
from django_shedlock.signals import logger
from django_shedlock.sql.compiling import Delete, Insert, Update, texts
from django_shedlock.sql.connections import (
    delete_here,
    read_here,
    read_rows,
    run_here,
    within_deadline,
)
from django_shedlock.sql.fields import DatabaseNow, StatementNow, UTCDateTimeField

CLAIM_LIFETIME = timedelta(minutes=10)
REPEAT_INTERVAL = timedelta(days=1)
SAME_KIND_INTERVAL = timedelta(hours=1)
RECOVERY_DELAY = timedelta(minutes=10)
UNKEPT_REMINDER_INTERVAL = timedelta(hours=1)
NOTICE_MIN_AGE = timedelta(days=30)
"""A reader that was told something since then counts as still asked."""
ENDS_WITH_TIME = frozenset({Kind.LOST, Kind.PASSED_OVER, Kind.REQUEST, Kind.HISTORY})

# Note [One host tells]
# A host claims a fact by an UPDATE that finds the version which it has read, or that of
# a new row. Then it tells the reader, and writes that it has told. If it dies before,
# its claim ends after CLAIM_LIFETIME, which is longer than telling takes, and another
# host tells it.

# Note [Findings that come and go]
# A job may fail at every other run, each time with another fact. So a further fact of
# the same kind and lock is told SAME_KIND_INTERVAL after the last one, if it is still
# there, and a recovery when the finding has been away for RECOVERY_DELAY.

# Note [Recoveries that are none]
# A finding may give way to another one of its lock, as when the lease of a job that
# hangs ends. And some findings end because they are old. Neither is told as a recovery.
# A finding about the past, such as passed-over ticks, does not take another's place.

# Note [Many wrong clocks]
# If the clock of a store is wrong, each host finds that, and in a cluster each check
# may come from a host of its own. One of them tells it, once in REPEAT_INTERVAL. Only
# that host knows that its clock is right again. Once it has not told so for twice as
# long, it is gone, and any host may say so.


class Change(StrEnum):
    """What is new about a finding."""

    NEW = "new"
    STILL = "still"
    ACKNOWLEDGED = "acknowledged"
    RECOVERED = "recovered"


@dataclass(frozen=True)
class News:
    """
    What a reader is told: a change, and the finding; without one, it has recovered.

    ``provider``, ``lock``, ``kind`` and ``fact`` are those of the finding that the
    reader was told of.
    """

    change: Change
    provider: str
    lock: str | None
    kind: Kind
    fact: str
    finding: Finding | None = None


class NotTold(Exception):
    """A reader could not be told; the text says why. It was told of ``told`` alone."""

    def __init__(self, why: str, told: Collection[News] = ()):
        super().__init__(why)
        self.told: Collection[News] = told


@contextmanager
def news_for(
    reader: str,
    search: Search,
    aliases: Sequence[str],
    findings: Collection[Finding],
) -> Iterator[list[News]]:
    """
    Yield what is news for this reader, for the body to tell.

    ``findings`` are all that ``search`` found in the providers of these aliases,
    acknowledged and folded ones among them. If the body raises, nothing counts as told
    but what ``NotTold`` names, and the next call has it again. Where a database can't
    keep what was told, Django's cache does, and a warning is logged.
    """
    memories: list[Memory] = []
    news: list[News] = []
    told: Collection[News] = ()
    try:
        for alias in aliases:
            found = [each for each in findings if each.provider == alias]
            memory, claimed = _memory_and_news(reader, search, alias, found)
            memories.append(memory)
            news += claimed
        yield news
        told = news
    except NotTold as error:
        told = error.told
        raise
    finally:
        for memory in memories:
            memory.finish(told)


class Memory:
    """
    What one reader was told of one provider.

    This one is in Django's cache, for as long as no database can keep it, as while the
    store is down. It knows of no recovery.
    """

    def __init__(self, reader: str, alias: str, found: Collection[Finding]):
        self.reader: str = reader
        self.alias: str = alias
        self.found: Collection[Finding] = found
        self._keys: list[tuple[str, News]] = []

    def claim(self) -> Iterator[News]:
        """Yield what is news, and claim it for this host."""
        for finding in self.found:
            if finding.acknowledged or finding.is_folded:
                continue
            if finding.kind is Kind.UNREACHABLE:
                self.outage.go_on()
            key = _cache_key(self.reader, finding)
            with suppress(Exception):  # if the cache fails, it is told all the same
                seconds = UNKEPT_REMINDER_INTERVAL.total_seconds()
                if not cache.add(key, own_host(), seconds):
                    continue
            news = _news(Change.NEW, finding)
            self._keys.append((key, news))
            yield news

    def finish(self, told: Collection[News]) -> None:
        """Remember what was told, and forget that this host claimed the rest."""
        for key, news in self._keys:
            if not _is_among(news, told):
                with suppress(Exception):
                    cache.delete(key)
            elif news.kind is Kind.UNREACHABLE:
                self.outage.begin()

    @cached_property
    def outage(self) -> Outage:
        """The outage of its store, as far as the cache knows of one."""
        key = _cache_key(self.reader, unreachable(self.alias, ""))
        return Outage(key, RECOVERY_DELAY)


class KeptMemory(Memory):
    """What one reader was told of one provider, in rows of its database."""

    def __init__(
        self,
        reader: str,
        alias: str,
        found: Collection[Finding],
        search: Search,
        using: str,
    ):
        super().__init__(reader, alias, found)
        self._using = using
        self._search = search
        self._rows = _rows_of(using, reader, alias)
        keys = {key_of(reader, each) for each in found}
        self._gone = {key: row for key, row in self._rows.items() if key not in keys}
        self._kinds_found = {each.kind for each in found}
        self._told_locks = {row.lock for row in self._rows.values() if row.told_at}
        self._locks_in_trouble = {
            each.lock for each in found if each.lock and _takes_place(each)
        }
        self._returned: News | None = None
        self._claims: list[Claim] = []

    def claim(self) -> Iterator[News]:
        for finding in self.found:
            row = self._rows.get(key_of(self.reader, finding))
            if row is None:
                yield from self._begin(finding)
            else:
                yield from self._go_on(row, finding)
        yield from self._store_is_back()
        places = {_place_of(each) for each in self.found}
        for row in self._gone.values():
            if self._was_looked_for(row):
                is_back = (row.lock, row.kind) in places or self._is_silent(row)
                yield from self._end(row, is_back=is_back)

    @cached_property
    def _earlier(self) -> Mapping[tuple[str, str], list[Notice]]:
        """Rows of facts that are not found any more, by their locks and kinds."""
        rows: dict[tuple[str, str], list[Notice]] = {}
        for row in self._gone.values():
            rows.setdefault((row.lock, row.kind), []).append(row)
        return rows

    def _begin(self, finding: Finding) -> Iterator[News]:
        """Yield the news of a fact that the reader was not told of."""
        change, earlier = Change.NEW, self._earlier.get(_place_of(finding), [])
        if finding.is_folded:
            return
        if finding.acknowledged:
            # It may have taken the place of what the reader was told of this lock.
            if finding.lock not in self._told_locks or not _takes_place(finding):
                return
            change = Change.ACKNOWLEDGED
        # See Notes [Findings that come and go] and [Many wrong clocks].
        is_clock = finding.kind is Kind.CLOCK
        interval = REPEAT_INTERVAL if is_clock else SAME_KIND_INTERVAL
        if change is Change.NEW and any(
            _is_younger(row, "told_at", interval) for row in earlier
        ):
            return
        row = Notice(
            key=key_of(self.reader, finding),
            reader=self.reader,
            provider=self.alias,
            lock=finding.lock or "",
            kind=finding.kind.value,
            fact=finding.fact,
        )
        self._insert(row)
        if self._claim(row):
            yield self._claimed(row, _news(change, finding), earlier)

    def _go_on(self, row: Notice, finding: Finding) -> Iterator[News]:
        """Yield the news of a fact that the reader may know."""
        change = None
        if finding.acknowledged:
            change = None if row.is_acknowledged else Change.ACKNOWLEDGED
        elif finding.is_folded:
            change = None
        elif row.told_at is None:
            change = Change.NEW
        elif row.is_acknowledged or not _is_younger(row, "told_at", REPEAT_INTERVAL):
            change = Change.STILL
        if change and self._claim(row):
            is_new = change is Change.NEW
            earlier = self._earlier.get(_place_of(finding), []) if is_new else []
            yield self._claimed(row, _news(change, finding), earlier)
        elif change is None:
            self._note(row, is_gone=False)

    def _end(self, row: Notice, *, is_back: bool) -> Iterator[News]:
        """Yield the news of a finding that has been away for a while."""
        # See Note [Findings that come and go].
        if is_back:
            self._note(row, is_gone=False)
        elif row.told_at is None:
            if self._claim(row):  # a host died before it told
                self._delete(row)
        elif row.gone_at is None:
            self._note(row, is_gone=True)
        elif not _is_younger(row, "gone_at", RECOVERY_DELAY) and self._claim(row):
            if not self._is_recovery(row):
                self._delete(row)
                return
            kind, lock = Kind(row.kind), row.lock or None
            recovered = News(Change.RECOVERED, self.alias, lock, kind, row.fact)
            yield self._claimed(row, recovered)

    def _note(self, row: Notice, *, is_gone: bool) -> None:
        """Write whether the finding is gone, unless that is known."""
        if is_gone == (row.gone_at is not None):
            return
        # A host that tells of it now must find the row as it has claimed it.
        if not _is_younger(row, "claimed_at", CLAIM_LIFETIME):
            self._change(row, gone_at=DatabaseNow() if is_gone else None)

    def _is_recovery(self, row: Notice) -> bool:
        """Return whether the end of this finding is good news."""
        # See Note [Recoveries that are none].
        is_known = row.kind in set(Kind)  # another version may know other kinds
        is_only_old = row.lock and row.kind in ENDS_WITH_TIME
        return is_known and not is_only_old and row.lock not in self._locks_in_trouble

    def _store_is_back(self) -> Iterator[News]:
        """Yield that the store answers again, if the cache knows that it did not."""
        if Kind.UNREACHABLE in self._kinds_found:
            return
        # Of several calls one forgets it.
        if self.outage.is_over() and self.outage.end():
            down = unreachable(self.alias, "")
            back = News(Change.RECOVERED, self.alias, None, down.kind, down.fact)
            self._returned = back
            yield back

    def _was_looked_for(self, row: Notice) -> bool:
        if not self._kinds_found.isdisjoint({Kind.UNREACHABLE, Kind.MORE}):
            return False
        if row.kind == Kind.CLOCK and row.fact != fact_of_own_clock():
            # See Note [Many wrong clocks].
            return not _is_younger(row, "told_at", 2 * REPEAT_INTERVAL)
        return not (row.lock and matches_any(row.lock, self._search.ignored))

    def _is_silent(self, row: Notice) -> bool:
        """Return whether no scheduler has started a job since this row was told."""
        if row.kind != Kind.SILENT or row.told_at is None:
            return False
        return not was_started_since(get_provider(self.alias), aware(row.told_at))

    def finish(self, told: Collection[News]) -> None:
        try:
            for claim in self._claims:
                if _is_among(claim.news, told):
                    self._settle(claim)
                else:
                    self._take_back(claim)
        except Error as failure:  # the claims end after CLAIM_LIFETIME
            logger.warning("What was told could not be noted: %s", failure)
        if self._returned is not None and not _is_among(self._returned, told):
            self.outage.end_again()

    def _settle(self, claim: "Claim") -> None:
        """Write that the reader was told of it."""
        row, change = claim.row, claim.news.change
        if change is Change.RECOVERED:
            self._delete(row)
            return
        is_acknowledged = change is Change.ACKNOWLEDGED
        now = (row.told_at if is_acknowledged else None) or DatabaseNow()
        self._change(
            row,
            told_at=now,
            claimed_at=None,
            gone_at=None,
            is_acknowledged=is_acknowledged,
        )
        for superseded in claim.supersedes:
            self._delete(superseded)

    def _take_back(self, claim: "Claim") -> None:
        """Let the next call claim it again, since it could not be told."""
        if claim.news.change is Change.NEW and claim.row.told_at is None:
            self._delete(claim.row)
        else:
            self._change(claim.row, claimed_at=None)

    def _claimed(
        self, row: Notice, news: News, supersedes: Sequence[Notice] = ()
    ) -> News:
        self._claims.append(Claim(row, news, supersedes))
        return news

    def never_told(self) -> list[Finding]:
        """Return the findings of which the reader was never told."""
        return [each for each in self.found if not self._was_told(each)]

    def _was_told(self, finding: Finding) -> bool:
        row = self._rows.get(key_of(self.reader, finding))
        return row is not None and row.told_at is not None

    def _claim(self, row: Notice) -> bool:
        # See Note [One host tells].
        if _is_younger(row, "claimed_at", CLAIM_LIFETIME):
            return False
        return self._change(row, claimed_at=DatabaseNow())

    def _insert(self, row: Notice) -> None:
        values = {name: getattr(row, name) for name in INSERTED_TEXTS}

        def insert(connection: BaseDatabaseWrapper) -> int:
            return insert_notice(connection, **values)

        within_deadline(insert, self._using)

    def _change(self, row: Notice, **columns: object) -> bool:
        version = row.version

        def build() -> tuple[QuerySet[Notice, object], dict[str, object]]:
            same = Notice.objects.filter(pk=row.key, version=version)
            return same, {"version": version + 1, **columns}

        row.version += 1
        return within_deadline(Update(build), self._using) > 0

    def _delete(self, row: Notice) -> None:
        def build() -> QuerySet[Notice, object]:
            return Notice.objects.filter(pk=row.key, version=row.version)

        within_deadline(Delete(build), self._using)


@dataclass(frozen=True)
class Claim:
    """News that this host tells, the row of its fact, and the rows it makes useless."""

    row: Notice
    news: News
    supersedes: Sequence[Notice] = ()


INSERTED_TEXTS = ("key", "reader", "provider", "lock", "kind", "fact")


def _new_notice() -> tuple[type[Notice], dict[str, object]]:
    return Notice, {**texts(*INSERTED_TEXTS), "is_acknowledged": False, "version": 0}


insert_notice: Insert = Insert(_new_notice, unique="key")
"""Another host may have inserted it."""


def key_of(reader: str, finding: Finding) -> str:
    """Return the key of the row of this reader and this fact."""
    parts = (reader, finding.provider, finding.lock or "", finding.fact)
    return sha256("\0".join(parts).encode()).hexdigest()


def prune_notices(
    using: str,
    older_than: timedelta,
    provider: str | None = None,
    *,
    dry_run: bool = False,
) -> int:
    """
    Delete what readers were told who were told nothing for that long; return how many.

    They count as gone, but only after ``NOTICE_MIN_AGE``: a reader that is still asked
    is told daily of what is still there, unless it is acknowledged. Otherwise see
    ``prune_runs()``.
    """
    last_change = Coalesce(
        F("told_at"), F("claimed_at"), output_field=UTCDateTimeField()
    )
    rows = Notice.objects.using(using).alias(last_change=last_change)
    age = max(older_than, NOTICE_MIN_AGE)
    young = rows.filter(last_change__gte=StatementNow() - age)
    readers = read_here(young.values_list("reader", flat=True).distinct(), using)
    old = Notice.objects.using(using).exclude(reader__in=readers)
    if provider is not None:
        old = old.filter(provider=provider)
    return run_here(old.count, using) if dry_run else delete_here(old, using)


def _cache_key(reader: str, finding: Finding) -> str:
    return f"shedlock:{key_of(reader, finding)}"


def reader_of_address(address: str) -> str:
    """Return the name of the reader with this address, which is a secret."""
    return f"address {sha256(address.encode()).hexdigest()[:12]}"


def _memory_and_news(
    reader: str, search: Search, alias: str, found: Collection[Finding]
) -> tuple[Memory, list[News]]:
    """Return what is news, claimed in the provider's database, or else in the cache."""
    memory: KeptMemory | None = None
    try:
        using = get_provider(alias).history_database
        if using is not None:
            memory = KeptMemory(reader, alias, found, search, using)
            return memory, list(memory.claim())
    except Exception as error:  # whatever wrong settings, or a store, raise
        text = "What is told of provider %r can't be kept in its database: %s"
        logger.warning(text, alias, scrubbed(str(error).strip()))
        if memory is not None:
            memory.finish(())
            # Old news stay old, though one row can't be written.
            found = memory.never_told()
    unkept = Memory(reader, alias, found)
    return unkept, list(unkept.claim())


def _rows_of(using: str, reader: str, alias: str) -> Mapping[str, Notice]:
    mine = Notice.objects.using(using).filter(reader=reader, provider=alias)
    rows = mine.annotate(now=DatabaseNow()).order_by("lock", "kind", "key")

    return {row.key: row for row in read_rows(rows, using)}


def _is_younger(row: Notice, column: str, age: timedelta) -> bool:
    """Return whether the instant of this column is less than ``age`` ago."""
    moment: datetime | None = getattr(row, column)
    if moment is None:
        return False
    now: datetime = vars(row)["now"]
    return aware(now) - aware(moment) < age


def _place_of(finding: Finding) -> tuple[str, str]:
    """Return the lock and the kind of a finding, as a row has them."""
    return finding.lock or "", finding.kind.value


def _takes_place(finding: Finding) -> bool:
    """Return whether it may have taken the place of another finding of its lock."""
    # See Note [Recoveries that are none].
    if finding.kind in ENDS_WITH_TIME - {Kind.LOST} or finding.kind is Kind.PAUSED:
        return False
    return bool(finding.params.get("is_last", True)) and not finding.is_folded


def _is_among(news: News, told: Collection[News]) -> bool:
    return any(each is news for each in told)


def _news(change: Change, finding: Finding) -> News:
    return News(
        change, finding.provider, finding.lock, finding.kind, finding.fact, finding
    )
