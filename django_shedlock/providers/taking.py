"""Take a lock whose record others take, or make, at the same moment."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import IntegrityError
from django.db.models import F

from django_shedlock.clocks import aware, host_now
from django_shedlock.holders import LockHolder
from django_shedlock.locks import Lock
from django_shedlock.models import LockRecord
from django_shedlock.providers.claims import Claim
from django_shedlock.providers.refusals import holder_of, is_to_take
from django_shedlock.providers.statements import savepoint


class Taking:
    """What takes one lock in the database ``using``, or tells who has it."""

    def __init__(self, lock: Lock, using: str):
        self._lock = lock
        self._using = using
        self._all = LockRecord.objects.using(using)
        self._records = self._all.filter(name=lock.name)

    def attempt(self, clock: datetime | None = None) -> LockHolder | None:
        """Return ``None`` if the lock is taken; ``clock`` is the store's, if known."""
        claim = Claim.around(self._lock, clock or host_now())
        records = claim.among(self._records)
        if records.update(**claim.columns, fencing_token=F("fencing_token") + 1):
            return None
        record = self._read()
        if record is None:
            return self._create()
        if clock is None and is_to_take(record, self._lock):
            return self.attempt(aware(record.clock))
        return holder_of(record, self._lock)

    def _read(self) -> Any:
        return self._records.with_status().with_clock().first()

    def _create(self, *, again: bool = False) -> LockHolder | None:
        columns = self._claim_of_new().columns_of_new
        try:
            with savepoint(self._using):
                self._all.create(name=self._lock.name, **columns, fencing_token=1)
        except IntegrityError:
            # Somebody was first, and it may be that the record is gone already; or
            # else the table does not take our row at all.
            record = self._read()
            if record is None and again:
                raise
            if record is None:
                return self._create(again=True)
            if is_to_take(record, self._lock):
                return self.attempt(aware(record.clock))
            return holder_of(record, self._lock)
        return None

    def _claim_of_new(self) -> Claim:
        if self._lock.configuration.occasion.schedule is None:
            return Claim(self._lock)
        return Claim.around(self._lock, aware(self._all.clock()))
