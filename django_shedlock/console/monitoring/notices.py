"""Report each finding once, and once that it is gone, whichever hosts check."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.core.cache import cache
from django.db import Error
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet

from django_shedlock.clocks import aware
from django_shedlock.console.models import Notice
from django_shedlock.console.monitoring.findings import Finding, Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.patterns import matches_any
from django_shedlock.providers import get_provider
from django_shedlock.signals import logger
from django_shedlock.sql.compiling import Insert, Update, on_connection, texts
from django_shedlock.sql.connections import within_deadline
from django_shedlock.sql.fields import DatabaseNow

AWAY_MIN_DURATION = timedelta(minutes=10)
AWAY_MAX_DURATION = timedelta(hours=1)
CLAIM_LIFETIME = timedelta(minutes=10)
UNKEPT_REMINDER_INTERVAL = timedelta(hours=1)

# Note [Findings that come and go]
# A job that fails every other time would be reported again and again. So a finding is
# gone when it has stayed away for as long as it lasted before, but at least for
# AWAY_MIN_DURATION and at most for AWAY_MAX_DURATION. Until then its return is no news.

# Note [One host tells]
# A host claims the row by an UPDATE that finds the version which it has read, tells,
# and then writes what was told. If it dies before, its claim ends after
# CLAIM_LIFETIME, which is longer than telling takes, and another host tells the same.


@dataclass
class Changes:
    """The findings that are new, and those that are gone."""

    new: list[Finding] = field(default_factory=list)
    gone: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.new or self.gone)


@contextmanager
def reported(
    search: Search,
    aliases: Sequence[str],
    findings: Sequence[Finding],
    *,
    webhook: str = "",
) -> Iterator[Changes]:
    """
    Yield what has changed since the last report, for the body to tell.

    ``findings`` are all that ``search`` found in the providers of these aliases. What
    was told to the administrators, and to each ``webhook``, is remembered apart. If the
    body raises, nothing counts as told, and the next report has it again. Raises
    ``django.db.Error`` if the database failed.
    """
    # The address is a secret, which nobody can read from its hash.
    reader = webhook and f":webhook:{sha256(webhook.encode()).hexdigest()[:12]}"
    changes, claims, unkept = Changes(), list[tuple[Notice, str]](), list[str]()
    try:
        for alias in aliases:
            found = [each for each in findings if each.provider == alias]
            kinds = {each.kind for each in found}
            try:
                using = get_provider(alias).history_database
                row = None if using is None else _row(using, alias + reader)
            except Exception:  # whatever wrong settings, or a store, raise
                if Kind.UNREACHABLE not in kinds:
                    raise
                row = None
            is_complete = kinds.isdisjoint({Kind.UNREACHABLE, Kind.MORE})
            ignored = search.ignored if is_complete else None
            if row is None:
                unkept += _report_unkept(found, changes, reader)
            elif told := _report(row, found, ignored, changes):
                claims.append((row, told))
        yield changes
        for row, told in claims:
            _update(row, row.version + 1, told=told, claimed_at=None)
    except BaseException:
        for key in unkept:  # by itself: Memcached refuses some keys
            with suppress(Exception):
                cache.delete(key)
        for row, _ in claims:
            try:
                _update(row, row.version + 1, claimed_at=None)
            except Error as failure:  # the claim ends after CLAIM_LIFETIME
                logger.warning("A notice could not be taken back: %s", failure)
        raise


def _report(
    row: Any,
    found: Iterable[Finding],
    ignored: Sequence[str] | None,
    changes: Changes,
) -> str | None:
    # Adds the changes; returns what has been reported once they are told, if this host
    # tells them.
    now = aware(row.now).timestamp()
    claimed_at = row.claimed_at and aware(row.claimed_at).timestamp()
    if claimed_at and now - claimed_at < CLAIM_LIFETIME.total_seconds():
        return None  # another host is telling
    of_alias = Changes()
    told = json.dumps(_compared(json.loads(row.told), found, ignored, now, of_alias))
    if told == row.told:
        return None
    if not of_alias:
        _update(row, row.version, told=told)
    elif _update(row, row.version, claimed_at=DatabaseNow()):
        changes.new += of_alias.new
        changes.gone += of_alias.gone
        return told
    return None


def _compared(
    told: Iterable[dict[str, Any]],
    found: Iterable[Finding],
    ignored: Sequence[str] | None,
    now: float,
    changes: Changes,
) -> list[dict[str, Any]]:
    # Adds the changes, and returns what has been reported once they are told.
    kept = []
    left = {(each.lock, each.kind): each for each in found}
    shortest = AWAY_MIN_DURATION.total_seconds()
    longest = AWAY_MAX_DURATION.total_seconds()
    for entry in told:
        lock, gone_at = entry["lock"], entry["gone_at"]
        if left.pop((lock, entry["kind"]), None):
            kept.append(entry | {"gone_at": None})
        elif ignored is None or (lock and matches_any(lock, ignored)):
            kept.append(entry)  # nobody has looked
        elif gone_at is None:
            kept.append(entry | {"gone_at": now})
        # See Note [Findings that come and go].
        elif now - gone_at < max(shortest, min(gone_at - entry["found_at"], longest)):
            kept.append(entry)
        else:
            with suppress(ValueError):  # another version may know other kinds
                kind, text = Kind(entry["kind"]), (entry["sentence"], entry["command"])
                changes.gone.append(Finding(kind, entry["provider"], lock, *text))
    for finding in left.values():
        changes.new.append(finding)
        kept.append({**asdict(finding), "found_at": now, "gone_at": None})
    return kept


def _row(using: str, key: str) -> Any:
    notices = Notice.objects.using(using)
    rows = notices.filter(provider=key).annotate(now=DatabaseNow())

    def find(connection: BaseDatabaseWrapper) -> Any:
        found = on_connection(rows, connection)
        if (row := found.first()) is None:
            insert_notice(connection, provider=key)
            row = found.get()
        return row

    return within_deadline(find, using)


def _new_notice() -> tuple[type[Notice], dict[str, object]]:
    told = {"told": "[]", "version": 0, "claimed_at": None}
    return Notice, {**texts("provider"), **told}


insert_notice: Insert = Insert(_new_notice, unique="provider")
"""Another host may be first."""


def _update(row: Any, version: int, **columns: object) -> bool:
    def build() -> tuple[QuerySet[Any, object], dict[str, object]]:
        # See Note [One host tells].
        same = Notice.objects.filter(pk=row.pk, version=version)
        return same, {"version": version + 1, **columns}

    return within_deadline(Update(build), row._state.db) > 0


def _report_unkept(
    found: Iterable[Finding], changes: Changes, reader: str
) -> Iterator[str]:
    # While the store is down, only a cache can remember what was reported: by this key.
    for finding in found:
        key = f"shedlock:{finding.provider}{reader}:{finding.lock}:{finding.kind}"
        with suppress(Exception):  # if the cache fails, it is reported all the same
            if not cache.add(key, True, UNKEPT_REMINDER_INTERVAL.total_seconds()):
                continue
        changes.new.append(finding)
        yield key
