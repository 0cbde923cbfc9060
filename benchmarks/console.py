"""
How long the admin's pages take with many runs, compared with few.

Their processor time is compared with that of Django's own list of users.

``SHEDLOCK_TEST_STORE=postgres python -m benchmarks.console --runs 1000000``
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from benchmarks.databases import database

FEW = 100


def main() -> None:
    """Measure each page with few and with many runs, in one database."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--locks", type=int, default=50)
    options = parser.parse_args()
    with database():
        compare(options.runs, options.rounds, options.locks)


def compare(runs: int, rounds: int, locks: int) -> None:
    """Print each page's median time, and its number of queries."""
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client
    from django.urls import reverse

    from tests.console.admin.test_runs import add_many
    from tests.support.lateness import be_overdue
    from tests.support.locks import take
    from tests.support.operators import ALL, operator

    client = operator(*ALL)
    for number in range(locks):
        take(f"job {number}").release()
        be_overdue(f"job {number}")
    add_many(FEW)
    few = {title: measure(client, page, rounds) for title, page in pages(FEW).items()}
    root = Client()
    root.force_login(User.objects.create_superuser("root"))
    # As many as a list of locks is supposed to have.
    User.objects.bulk_create(User(username=f"user {number}") for number in range(8))
    add_many(runs - FEW)
    with connection.cursor() as cursor:
        cursor.execute(
            "ANALYZE" + (" TABLE shedlock_run" * (connection.vendor == "mysql"))
        )
    print(
        f"{connection.vendor}: milliseconds and queries of a page, median of {rounds}"
    )
    for title, address in pages(runs).items():
        milliseconds, processor, queries = measure(client, address, rounds)
        _, users, _ = measure(root, reverse("admin:auth_user_changelist"), rounds)
        before, _, _ = few[title]
        print(
            f"{title:32} {FEW} runs {before:7.0f} ms   "
            f"{runs} runs {milliseconds:7.0f} ms   "
            f"ratio {milliseconds / before:5.1f}   "
            f"processor {processor:4.0f} ms, {processor / users:4.1f} x users   "
            f"{queries} queries"
        )


def pages(count: int) -> dict[str, str]:
    """Return the addresses to measure with this number of runs."""
    from django.urls import reverse

    from tests.support.operators import CHANGE, LIST, RUNS, TIMELINE

    runs = reverse(RUNS)
    return {
        "locks": reverse(LIST),
        "locks, last run failed": reverse(LIST) + "?last=failed",
        "locks, overdue": reverse(LIST) + "?attention=overdue",
        "the timeline": reverse(TIMELINE),
        "a lock": reverse(CHANGE, args=["job 1"]),
        "runs": runs,
        "runs, a deep page": f"{runs}?p={min(100, count // 50)}",
        "runs, failed": f"{runs}?outcome=failed",
        "runs, abandoned": f"{runs}?outcome=abandoned",
        "runs of a host": f"{runs}?host=web-1",
        "runs of a lock": f"{runs}?name__exact=job+1",
        "runs, search that finds": f"{runs}?q=job+1",
        "runs, search that finds nothing": f"{runs}?q=nothing",
    }


def measure(client: Any, address: str, rounds: int) -> tuple[float, float, int]:
    """Return a page's median milliseconds, also of the processor, and its queries."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    client.get(address, follow=True)
    times, processor = [], []
    for _ in range(rounds):
        began, busy = time.perf_counter(), time.process_time()
        with CaptureQueriesContext(connection) as queries:
            response = client.get(address, follow=True)
        processor.append(1000 * (time.process_time() - busy))
        times.append(1000 * (time.perf_counter() - began))
        if response.status_code != 200:
            raise RuntimeError(f"{address} answered {response.status_code}")
    if os.environ.get("SHEDLOCK_BENCHMARK_QUERIES"):
        slowest = max(queries.captured_queries, key=lambda query: float(query["time"]))
        print(slowest["time"], slowest["sql"][:1500])
    return statistics.median(times), statistics.median(processor), len(queries)


if __name__ == "__main__":
    main()
