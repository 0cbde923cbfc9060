"""
What a schedule costs: taking and giving back a lock with one, beside one without.

``SHEDLOCK_TEST_STORE=postgres python -m benchmarks.ticks --rounds 1000``
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from benchmarks.databases import database

SCHEDULES = (None, "*/15 * * * *", "@yearly")


def main() -> None:
    """Measure each kind of lock in turn, round by round, in one database."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    rounds = parser.parse_args().rounds
    with database():
        compare(rounds)


def compare(rounds: int) -> None:
    """Print the median of each kind of lock, and its ratio to the plain one."""
    from django.db import connection

    requests = [request(schedule) for schedule in SCHEDULES]
    for each in requests:
        measure(each)  # the first one makes the record
    times = [[measure(each) for each in requests] for _ in range(rounds)]
    plain, *others = map(statistics.median, zip(*times, strict=True))
    print(f"{connection.vendor}: take and release, median of {rounds}")
    for schedule, taken in zip(SCHEDULES, [plain, *others], strict=True):
        print(f"{schedule or 'none':14} {taken:7.3f} ms   ratio {taken / plain:.2f}")


def request(schedule: str | None) -> Any:
    """Return what asks for a lock with this schedule."""
    from django_shedlock.options import LockRequest

    return LockRequest(f"job {schedule}", "1m", schedule=schedule)


def measure(request: Any) -> float:
    """Return the milliseconds of one pair, for a tick that was not run."""
    from django_shedlock.models import LockRecord
    from django_shedlock.providers import get_provider

    LockRecord.objects.filter(name=request.name).update(tick=None)
    provider = get_provider()
    started = time.perf_counter()
    provider.acquire(request.configuration()).release()
    return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    main()
