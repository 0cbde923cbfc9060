"""Tell each finding once, and once that it is gone, on whatever host."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.core.cache import cache
from django.db import Error, transaction

from django_shedlock.console.monitoring.findings import Finding, Kind, Search
from django_shedlock.fields import DatabaseNow
from django_shedlock.models import ReportedFinding
from django_shedlock.patterns import matches_any
from django_shedlock.providers import get_provider
from django_shedlock.providers.database.connections import run_here
from django_shedlock.providers.database.errors import is_conflict

KINDS = {kind.value: kind for kind in Kind}
SHORTEST_AWAY = timedelta(minutes=10)
LONGEST_AWAY = timedelta(hours=1)
PATIENCE = timedelta(minutes=10)
"""Longer than it takes to tell a finding."""
REMINDER = timedelta(hours=1)
"""Time between two reports of a finding that no table can keep."""

logger = logging.getLogger("django_shedlock")

# Note [Findings that come and go]
# A job that fails every other time would be told again and again. So a finding is gone
# when it has stayed away for as long as it lasted before, within SHORTEST_AWAY and
# LONGEST_AWAY. Until then its row stays, and its return is no news.


@dataclass
class Changes:
    """The findings that are new, and those that are gone."""

    new: list[Finding] = field(default_factory=list)
    gone: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.new or self.gone)


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
    report = _Report(search)
    try:
        for alias in aliases:
            report.add(alias, [found for found in findings if found.provider == alias])
        yield report.changes
    except BaseException:
        report.take_back()
        raise
    report.confirm()


@dataclass
class _Report:
    search: Search
    changes: Changes = field(default_factory=Changes)
    confirmations: list[Callable[[], object]] = field(default_factory=list)
    reversals: list[Callable[[], object]] = field(default_factory=list)

    def add(self, alias: str, findings: Sequence[Finding]) -> None:
        kinds = {found.kind for found in findings}
        is_reachable = Kind.UNREACHABLE not in kinds
        try:
            using = get_provider(alias).history_database
            rows = {} if using is None else _rows(using, alias)
        except Exception:  # whatever wrong settings, or a store, raise
            if is_reachable:
                raise
            using = None
        for found in findings:
            key = (found.lock or "", found.kind.value)
            if using is None:
                self._tell_unkept(found)
            else:
                self._tell(using, found, rows.pop(key, None))
        if using is not None and is_reachable and Kind.MORE not in kinds:
            for row in rows.values():
                if not (row.lock and matches_any(row.lock, self.search.ignored)):
                    self._miss(using, row)

    def confirm(self) -> None:
        for confirmation in self.confirmations:
            confirmation()

    def take_back(self) -> None:
        for reversal in self.reversals:
            try:
                reversal()
            except Error as error:  # another report finds it after PATIENCE
                logger.warning("A finding could not be taken back: %s", error)

    def _tell(self, using: str, found: Finding, row: ReportedFinding | None) -> None:
        if row is None:
            row = _inserted(using, found)
            is_ours = row is not None
        elif row.told_at is None:
            same = _same(using, row).untold(PATIENCE)
            is_ours = _changed(using, same, found_at=DatabaseNow(), gone_at=None)
        else:
            is_ours = False
            if row.gone_at is not None:
                _changed(using, _same(using, row), gone_at=None)
        if row is not None and is_ours:
            same = _same(using, row)
            self.changes.new.append(found)
            self.confirmations.append(
                lambda: _changed(using, same, told_at=DatabaseNow())
            )
            self.reversals.append(same.delete)

    def _miss(self, using: str, row: ReportedFinding) -> None:
        same = _same(using, row)
        if row.gone_at is None:
            _changed(using, same.filter(gone_at=None), gone_at=DatabaseNow())
            return
        # See Note [Findings that come and go].
        away = max(SHORTEST_AWAY, min(row.gone_at - row.found_at, LONGEST_AWAY))
        deleted, _ = run_here(same.gone_for(away).delete, using)
        kind = KINDS.get(row.kind)  # another version may know other kinds
        if deleted and row.told_at is not None and kind is not None:
            gone = Finding(kind, row.provider, row.lock or None, row.text)
            self.changes.gone.append(gone)
            self.reversals.append(lambda: _insert(using, row))

    def _tell_unkept(self, found: Finding) -> None:
        # While the store is down, only a cache can know what was told.
        key = f"shedlock:{found.provider}:{found.lock}:{found.kind}"
        is_new = True
        with suppress(Exception):  # whatever a cache raises: it must be told
            is_new = cache.add(key, True, REMINDER.total_seconds())
        if is_new:
            self.changes.new.append(found)
            self.reversals.append(lambda: cache.delete(key))


def _rows(using: str, alias: str) -> dict[tuple[str, str], ReportedFinding]:
    rows = ReportedFinding.objects.using(using).filter(provider=alias)
    return {(row.lock, row.kind): row for row in run_here(lambda: list(rows), using)}


def _same(using: str, row: ReportedFinding) -> Any:
    return ReportedFinding.objects.using(using).filter(pk=row.pk)


def _changed(using: str, rows: Any, **columns: Any) -> bool:
    return bool(run_here(lambda: rows.update(**columns), using))


def _inserted(using: str, found: Finding) -> ReportedFinding | None:
    row = ReportedFinding(
        provider=found.provider,
        lock=found.lock or "",
        kind=found.kind.value,
        text=found.sentence,
        found_at=DatabaseNow(),
    )
    return row if _insert(using, row) else None


def _insert(using: str, row: ReportedFinding) -> bool:
    try:
        with transaction.atomic(using):
            row.save(using=using, force_insert=True)
    except Error as error:  # another host was faster
        if not is_conflict(error):
            raise
        return False
    return True
