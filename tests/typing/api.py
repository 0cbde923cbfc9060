"""The contract of the signatures: never run, it only has to type-check."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type

from django.core.management.base import BaseCommand

from django_shedlock import (
    Lock,
    LockConfiguration,
    Schedule,
    TaskResult,
    aexecute,
    ahold,
    assert_locked,
    current_lock,
    execute,
    extend_active_lock,
    hold,
    locks_held,
    release_all,
    scheduler_lock,
)


@scheduler_lock
def bare(number: int) -> str:
    return str(number)


assert_type(bare(1), str | None)


@scheduler_lock()
def called(number: int) -> str:
    return str(number)


assert_type(called(number=1), str | None)


@scheduler_lock("named", lock_at_most_for="9m", lock_at_least_for=30, wait=timedelta(0))
def named() -> int:
    return 1


assert_type(named(), int | None)


@scheduler_lock("weekly", schedule=["15 6 * * *", "0 10 * * *"])
def several() -> None: ...


@scheduler_lock("poll", schedule=timedelta(seconds=20))
def polling() -> None: ...


@scheduler_lock("mixed", schedule=["every 2h", timedelta(minutes=90), "@daily"])
def mixed() -> None: ...


@scheduler_lock("nightly", schedule=Schedule(["@daily"], "Europe/Berlin"))
def nightly() -> int:
    return execute(lambda: 1, "hourly", schedule="@hourly").value or 0


assert_type(nightly(), int | None)


@scheduler_lock
async def bare_coroutine(tenant: str) -> bytes:
    return tenant.encode()


@scheduler_lock("import:{tenant}", provider="default", keep_alive=True)
async def named_coroutine(tenant: str) -> bytes:
    return tenant.encode()


class Jobs:
    @scheduler_lock("method")
    def method(self, number: int) -> float:
        return number / 2


assert_type(Jobs().method(3), float | None)


@scheduler_lock("command", unless=["dry_run"], on_skip="fail", rerun=True)
class Command(BaseCommand):
    extra = 1


@scheduler_lock("told", description="Ships", runbook="https://wiki/told", wait="5s")
def told() -> None: ...


@scheduler_lock
class BareCommand(BaseCommand):
    extra = 1


assert_type(Command().extra, int)
assert_type(BareCommand().extra, int)


def synchronous() -> None:
    with hold("a", lock_at_most_for="1m", wait="5s") as lock:
        assert_type(lock, Lock)
        assert_type(lock.remaining(), timedelta)
        assert_type(lock.is_lost, bool)
        assert_type(lock.fencing_token, int)
        assert_type(lock.configuration, LockConfiguration)
        lock.extend("10m")
        lock.extend("10m", lock_at_least_for=30)
        lock.extend(lock_at_least_for=timedelta(seconds=1))
        lock.fence()
        lock.assert_locked()
        assert_type(lock.release(), bool)
        assert_type(current_lock(), Lock)
    assert_type(execute(lambda: 7, "a"), TaskResult[int])
    assert_type(execute(lambda: 7, "a", keep_alive=True).value, int | None)
    assert_type(locks_held(), list[Lock])
    assert_type(release_all(), list[Lock])
    assert_locked()
    extend_active_lock(timedelta(minutes=1))


async def asynchronous() -> None:
    async with ahold("a") as lock:
        assert_type(lock, Lock)
        await lock.aextend()
        await lock.aextend("10m", "30s")
        await lock.afence()
        assert_type(await lock.arelease(), bool)
    assert_type(await aexecute(lambda: coroutine(), "a"), TaskResult[bytes])
    assert_type(await bare_coroutine("a"), bytes | None)
    assert_type(await named_coroutine(tenant="a"), bytes | None)


async def coroutine() -> bytes:
    return b""


taken: Callable[[int], str | None] = bare
awaited: Callable[[str], Coroutine[Any, Any, bytes | None]] = bare_coroutine

hold("a", lock_at_most=1)  # type: ignore[call-arg]
hold("a", wait=[])  # type: ignore[arg-type]
hold("a")(called)  # type: ignore[operator]
ahold("a")(called)  # type: ignore[operator]
bare("1")  # type: ignore[arg-type]
