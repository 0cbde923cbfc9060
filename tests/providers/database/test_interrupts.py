"""A signal handler that raises while a store works for us."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NoReturn, cast

import psycopg.connection
import pytest
from django.db import connection, connections

from django_shedlock import hold
from django_shedlock.execution import executor
from django_shedlock.locks.configuration import make_request
from django_shedlock.locks.lock import Lock
from django_shedlock.mutexes import Mutex
from django_shedlock.providers import get_provider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.testing.contract.harness import force_extend
from tests.support.locks import MINUTE, configure, force_release, state, take, try_from
from tests.support.processes import Parent, worker, workers
from tests.support.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

INTERRUPTS = 200
AT_ONCE = {"sqlite": 1}
"""Processes that share them; others than SQLite let more work beside each other."""
SWALLOWED = 5
"""Seconds after which the next interrupt comes, if one had no effect."""
LONGEST_CYCLE = 0.004
"""Seconds in which an interrupt meets each step of a lock."""


def trace_nothing() -> None:
    """
    Let no tracer, as that of coverage, see this process nor its later threads.

    It may swallow an interrupt. And a thread that Python 3.11 traces goes round in
    circles while the main thread has a signal to handle, and waits for that thread.
    """
    sys.settrace(None)
    threading.settrace(cast(Any, None))


def harden_mutexes() -> None:
    """Give the libraries beside us mutexes as ours are, which Python 3.14 needs."""
    vars(connections["default"])["_thread_sharing_lock"] = Mutex()
    vars(psycopg.connection)["Lock"] = Mutex


def lock_until_interrupted(lock: Lock, parent: Parent) -> BaseException:
    """Return what ended the work, with the lock released."""
    provider = lock.provider
    try:
        parent.say(os.getpid())
        while True:
            provider.acquire(lock)
            provider.status(lock.name)
            provider.extend(lock, MINUTE)
            provider.release(lock)
    except BaseException as error:
        provider.release(lock)
        return error


def be_interrupted(parent: Parent) -> list[str]:
    """Return each end of the work that was no Ctrl-C."""
    trace_nothing()
    harden_mutexes()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    provider = DatabaseLockProvider("default")
    others = []
    for turn in range(INTERRUPTS):
        schedule = {"schedule": "* * * * *"} if turn % 2 else {}
        request = make_request("job", {"lock_at_most_for": "1m", **schedule})
        lock = Lock(provider, request.configuration())
        error = lock_until_interrupted(lock, parent)
        if not isinstance(error, KeyboardInterrupt):
            others.append(repr(error))
    return others


@pytest.mark.sqlite_only
def test_no_interrupt_is_lost() -> None:
    """Ctrl-C ends the work as Ctrl-C, wherever it comes, and nothing stays held."""
    take("job").release()  # a slow disk may let no interrupted one make the record
    with worker(be_interrupted) as working:
        for _ in range(INTERRUPTS):
            number = working.heard()
            time.sleep(random.uniform(0, LONGEST_CYCLE))
            os.kill(number, signal.SIGINT)
        assert working.result() == []
    assert not state("job").is_held


class Interrupted(BaseException):
    """What the handler of the alarm raises."""


def interrupt(*args: object) -> NoReturn:
    raise Interrupted


def hold_until_interrupted(parent: Parent, interrupts: int) -> int:
    """Hold a lock again and again, be interrupted anywhere, and count what stays."""
    trace_nothing()
    harden_mutexes()
    signal.signal(signal.SIGALRM, interrupt)
    vars(executor)["INTERRUPTED_RELEASE_SECONDS"] = 0.05
    seed = parent.wait()
    name, chance, still_held = f"job {seed}", random.Random(seed), 0
    with hold(name):
        pass
    for _ in range(interrupts):
        with suppress(Interrupted):
            # Again after a while, since Python swallows what is raised in __del__().
            soon = chance.uniform(0.0001, LONGEST_CYCLE)
            signal.setitimer(signal.ITIMER_REAL, soon, SWALLOWED)
            while True:
                with hold(name, lock_at_most_for="10m"):
                    pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            wait_for(lambda: not state(name).is_held, timeout=PATIENCE)
        except AssertionError:
            still_held += 1
            force_release(get_provider(), name)
    return still_held


def test_interrupt_leaves_no_lock() -> None:
    """Wherever a handler raises, between the statement and its answer, too."""
    count = AT_ONCE.get(connection.vendor, 5)
    with workers(count, hold_until_interrupted, INTERRUPTS // count) as working:
        for seed, each in enumerate(working):
            each.send(seed)
        assert [each.result() for each in working] == [0] * count


@pytest.mark.sqlite_only
def test_sqlite_calls_no_python() -> None:
    """Django's functions would turn an interrupt into an error of the statement."""
    sent: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        sent.append(sql)
        return execute(sql, *rest)

    provider = DatabaseLockProvider("default")
    with connection.execute_wrapper(note):
        for options in ({}, {"schedule": "@hourly"}):
            with hold("job", lock_at_least_for="1m", **options) as lock:
                lock.extend("10m", "10m")
                lock.refresh()
                force_extend(provider, "job", MINUTE)
                assert not isinstance(try_from(provider, configure()), Lock)
            assert [status.name for status in provider.statuses()] == ["job"]
            assert force_release(provider, "job")
    assert {sql.split()[0] for sql in sent} >= {"UPDATE", "INSERT", "SELECT"}
    assert [sql for sql in sent if "django_" in sql] == []
