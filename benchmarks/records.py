"""
How long operators and monitors wait where there are many records, and their memory.

``SHEDLOCK_TEST_STORE=postgres python -m benchmarks.records --records 1000000``
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.databases import database

ADDRESSES = "SHEDLOCK_BENCHMARK_ADDRESSES"
URGENT = 300
"""Locks of each kind that need somebody."""
DIGITS = " UNION ALL ".join(f"SELECT {digit} AS n" for digit in range(10))


def main() -> None:
    """Measure each command and view in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--action", choices=ACTIONS, help="only this, in this process")
    parser.add_argument("--without", choices=ACTIONS, action="append", default=[])
    options = parser.parse_args()
    if options.action:
        act(options.action)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("SHEDLOCK_TEST_SQLITE_FOLDER", folder)
        with database():
            compare(options.records, options.without)


def compare(records: int, without: Collection[str] = ()) -> None:
    """Print the seconds and the highest memory of each action."""
    from django.db import connection

    from tests.support.processes import addresses

    fill(records)
    print(f"{connection.vendor}: {records} records, {URGENT} of each kind of finding")
    environment = {**os.environ, ADDRESSES: json.dumps(addresses(), default=str)}
    connection.close()
    for action in [each for each in ACTIONS if each not in without]:
        command = [sys.executable, "-m", "benchmarks.records", "--action", action]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE)  # noqa: S603
        found = json.loads(done.stdout.splitlines()[-1]) if not done.returncode else {}
        seconds, peak = found.get("seconds", -1), found.get("peak", -1)
        more = found.get("more", -1)
        print(f"{action:20} {seconds:7.2f} s {peak:7.0f} MB, {more:.0f} MB of it new")


def fill(records: int) -> None:
    """Add the records, a success of each, and some that need somebody."""
    from django.db import connection

    from django_shedlock.models import LockRecord, LockRun

    now = datetime.now(UTC)
    ago = LockRecord._meta.get_field("locked_at").get_db_prep_value(
        now - timedelta(hours=1), connection
    )
    exponent = len(str(records - 1))
    number = " + ".join(f"d{power}.n * {10**power}" for power in range(exponent))
    crossed = ", ".join(f"digits d{power}" for power in range(exponent))
    name = {"mysql": "CONCAT('import:', number)"}.get(
        connection.vendor, "'import:' || number"
    )
    numbers = (
        f"WITH digits AS ({DIGITS}), "  # noqa: S608
        f"numbers AS (SELECT {number} AS number "
        f"FROM {crossed}) SELECT {{}} FROM numbers WHERE number < {records}"
    )
    run = name.replace("import:", "web-1:7:")
    added = [
        (
            "shedlock (name, lock_until, locked_at, locked_by, released_at, last_run, "
            "outcome, started_at, ended_at, succeeded_at, usual)",
            f"{name}, %s, %s, {run}, %s, {run}, 'succeeded', %s, %s, %s, 60",
            [ago] * 6,
        ),
        (
            "shedlock_run (name, provider, locked_by, host, started, ended, "
            "duration, outcome, exception_type, exception_message, "
            "exception_traceback, {trigger}, operator, reason)",
            f"{name}, 'default', {run}, 'web-1', %s, %s, {{minute}}, "
            "'succeeded', '', '', '', '', '', ''",
            [ago, ago],
        ),
    ]
    minute = {"postgresql": "INTERVAL '1 minute'"}.get(connection.vendor, "60000000")
    trigger = connection.ops.quote_name("trigger")
    with connection.cursor() as cursor:
        for columns, values, parameters in added:
            into = columns.format(trigger=trigger)
            select = numbers.format(values.format(minute=minute))
            cursor.execute(f"INSERT INTO {into} {select}", parameters)
    need_somebody(records)
    for table in (LockRecord, LockRun):
        with connection.cursor() as cursor:
            word = "ANALYZE TABLE" if connection.vendor == "mysql" else "ANALYZE"
            cursor.execute(f"{word} {table._meta.db_table}")


def need_somebody(records: int) -> None:
    """Let some jobs be overdue, killed, hung or failing."""
    from django.db.models import F

    from django_shedlock.locks.status import RunOutcome
    from django_shedlock.models import LockRecord, LockRun
    from django_shedlock.sql.fields import DatabaseNow
    from tests.support.lateness import DAILY

    def some(kind: int) -> list[str]:
        chosen = range(kind, min(records, 4 * URGENT), 4)
        return [f"import:{number}" for number in chosen]

    hour = timedelta(hours=1)
    LockRecord.objects.filter(name__in=some(0)).update(
        schedule=str(DAILY), due_at=DatabaseNow() - hour
    )
    goes_on = {"released_at": None, "open_run": F("locked_by")}
    LockRecord.objects.filter(name__in=some(1)).update(**goes_on)
    LockRecord.objects.filter(name__in=some(2)).update(
        **goes_on, lock_until=DatabaseNow() + hour
    )
    failed = RunOutcome.FAILED.value
    LockRecord.objects.filter(name__in=some(3)).update(outcome=failed, failures=1)
    LockRun.objects.filter(name__in=some(3)).update(
        outcome=failed, exception_type="ValueError", exception_message="no such rate"
    )


def act(action: str) -> None:
    """Do it in the benchmark's database, and print what it costs."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    from tests.support.processes import use

    use(json.loads(os.environ[ADDRESSES]))
    before = highest_memory()
    began = time.perf_counter()
    with suppress(SystemExit):
        ACTIONS[action]()
    seconds = time.perf_counter() - began
    peak = highest_memory()
    print(json.dumps({"seconds": seconds, "peak": peak, "more": peak - before}))


def highest_memory() -> float:
    """Return the most memory that this process ever had, in MB."""
    with suppress(OSError):  # Linux's own, since getrusage() also tells the parent's
        status = Path("/proc/self/status").read_text("ascii", "replace")
        [kilobytes] = re.findall(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
        return int(kilobytes) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def command(*words: str) -> Callable[[], Any]:
    """Return a subcommand of ``shedlock`` whose output nobody sees."""

    def run() -> None:
        from django.core.management import call_command

        call_command("shedlock", *words, stdout=io.StringIO(), stderr=io.StringIO())

    return run


def see() -> None:
    """Ask the health view."""
    from django.test import RequestFactory

    from django_shedlock.console.monitoring.health import HealthView

    view = HealthView.as_view(public=True, keep_for=0)
    view(RequestFactory().get("/health"))


def scrape() -> None:
    """Ask for the metrics."""
    from django.test import RequestFactory

    from django_shedlock.contrib.prometheus.views import MetricsView

    MetricsView.as_view(public=True)(RequestFactory().get("/metrics"))


def look() -> None:
    """Open the admin's list."""
    from django.test.utils import setup_test_environment
    from django.urls import reverse

    from tests.support.operators import ALL, LIST, operator

    setup_test_environment()
    answer = operator(*ALL).get(reverse(LIST))
    if answer.status_code != 200:
        raise RuntimeError(f"The list answered {answer.status_code}")


ACTIONS: dict[str, Callable[[], Any]] = {
    "list": command("list"),
    "check": command("check"),
    "catch-up": command("catch-up"),
    "catch-up --dry-run": command("catch-up", "--dry-run"),
    "health view": see,
    "metrics": scrape,
    "admin's list": look,
}


if __name__ == "__main__":
    main()
