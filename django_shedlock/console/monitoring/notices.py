"""Tell each finding once, and once that it is gone, on whatever host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.core.cache import cache
from django.db import Error
from django.db.models import Q

from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.fields import DatabaseNow
from django_shedlock.models import Notice
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import matches_any
from django_shedlock.providers.database.connections import run_here
from django_shedlock.signals import logger

SHORTEST_AWAY = timedelta(minutes=10)
LONGEST_AWAY = timedelta(hours=1)
PATIENCE = timedelta(minutes=10)
"""Longer than it takes to tell what has changed."""
REMINDER = timedelta(hours=1)
"""Time between two notices of a finding that no table can keep."""

# Note [Findings that come and go]
# A job that fails every other time would be told again and again. So a finding is gone
# when it has stayed away for as long as it lasted before, within SHORTEST_AWAY and
# LONGEST_AWAY. Until then its return is no news.


@dataclass
class Changes:
    """The findings that are new, and those that are gone."""

    new: list[Finding] = field(default_factory=list)
    gone: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.new or self.gone)


@dataclass(frozen=True)
class Told:
    """A finding that was told, and in seconds when it was found, and first missing."""

    finding: Finding
    found_at: float
    gone_at: float | None = None

    def is_gone(self, now: float) -> bool:
        """Return whether it has stayed away for long enough."""
        # See Note [Findings that come and go].
        if self.gone_at is None:
            return False
        lasted = min(self.gone_at - self.found_at, LONGEST_AWAY.total_seconds())
        return now - self.gone_at >= max(SHORTEST_AWAY.total_seconds(), lasted)


@contextmanager
def reported(
    search: Search, aliases: Sequence[str], findings: Sequence[Finding]
) -> Iterator[Changes]:
    """
    Yield what has changed since the last report, for the body to tell.

    ``findings`` are all that ``search`` found in the providers of these aliases. If the
    body raises, nothing counts as told, and the next report has it again. Raises
    ``django.db.Error`` if the database failed.
    """
    changes = Changes()
    with ExitStack() as claims:
        for alias in aliases:
            found = [each for each in findings if each.provider == alias]
            _report(search, alias, found, changes, claims)
        yield changes


def _report(
    search: Search,
    alias: str,
    found: Sequence[Finding],
    changes: Changes,
    claims: ExitStack,
) -> None:
    kinds = {each.kind for each in found}
    try:
        using = get_provider(alias).history_database
        row = None if using is None else _row(using, alias)
    except Exception:  # whatever wrong settings, or a store, raise
        if Kind.UNREACHABLE not in kinds:
            raise
        row = None
    if row is None:
        _report_unkept(found, changes, claims)
        return
    of_alias = Changes()
    is_complete = kinds.isdisjoint({Kind.UNREACHABLE, Kind.MORE})
    ignored = search.ignored if is_complete else None
    now = aware(row.now).timestamp()
    told = list(_compared(_read(row.told), found, ignored, now, of_alias))
    text = json.dumps([asdict(each) for each in told])
    if text == row.told:
        return
    if not of_alias:
        _change(row, told=text)
    elif _change(row, claimed_at=DatabaseNow()):
        changes.new += of_alias.new
        changes.gone += of_alias.gone
        claims.push(partial(_end_claim, row, text))


def _compared(
    told: Iterable[Told],
    found: Iterable[Finding],
    ignored: Sequence[str] | None,
    now: float,
    changes: Changes,
) -> Iterator[Told]:
    # Yields what is told after the changes, which it adds.
    left = {(each.lock, each.kind): each for each in found}
    for each in told:
        lock = each.finding.lock
        if left.pop((lock, each.finding.kind), None):
            yield replace(each, gone_at=None)
        elif ignored is None or (lock is not None and matches_any(lock, ignored)):
            yield each  # nobody has looked
        elif each.is_gone(now):
            changes.gone.append(each.finding)
        else:
            yield each if each.gone_at else replace(each, gone_at=now)
    for finding in left.values():
        changes.new.append(finding)
        yield Told(finding, now)


def _report_unkept(
    found: Iterable[Finding], changes: Changes, claims: ExitStack
) -> None:
    # While the store is down, only a cache can know what was told.
    for finding in found:
        key = f"shedlock:{finding.provider}:{finding.lock}:{finding.kind}"
        is_new = True
        with suppress(Exception):  # whatever a cache raises: it must be told
            is_new = cache.add(key, True, REMINDER.total_seconds())
        if is_new:
            changes.new.append(finding)
            claims.push(partial(_forget_unkept, key))


def _forget_unkept(key: str, error: type[BaseException] | None, *args: Any) -> None:
    if error is not None:
        with suppress(Exception):
            cache.delete(key)


def _read(text: str) -> Iterator[Told]:
    for each in json.loads(text):
        with suppress(KeyError, TypeError, ValueError):  # another version wrote it
            finding = Finding(**each.pop("finding"))
            yield Told(replace(finding, kind=Kind(finding.kind)), **each)


def _row(using: str, alias: str) -> Any:
    rows = Notice.objects.using(using).filter(provider=alias)
    rows = rows.annotate(now=DatabaseNow())
    row = run_here(rows.first, using)
    if row is None:
        new = [Notice(provider=alias)]
        create = partial(Notice.objects.using(using).bulk_create, ignore_conflicts=True)
        run_here(lambda: create(new), using)  # unless another host was faster
        row = run_here(rows.get, using)
    return row


def _change(row: Any, **columns: Any) -> bool:
    # Of several hosts one finds the version that all have read.
    using = row._state.db
    is_free = Q(claimed_at=None) | Q(claimed_at__lte=DatabaseNow() - PATIENCE)
    same = Notice.objects.using(using).filter(is_free, pk=row.pk, version=row.version)
    changed = run_here(lambda: same.update(version=row.version + 1, **columns), using)
    return bool(changed)


def _end_claim(
    row: Any, told: str, error: type[BaseException] | None, *args: Any
) -> None:
    using, claimed = row._state.db, row.version + 1
    ours = Notice.objects.using(using).filter(pk=row.pk, version=claimed)
    # Another host that read the row meanwhile must read it again.
    columns: dict[str, Any] = {"claimed_at": None, "version": claimed + 1}
    if error is None:
        run_here(lambda: ours.update(told=told, **columns), using)
        return
    try:
        run_here(lambda: ours.update(**columns), using)
    except Error as failure:  # another report finds it after PATIENCE
        logger.warning("A notice could not be taken back: %s", failure)
