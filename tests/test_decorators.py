"""The decorator, on everything it may be put on."""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import BaseCommand

from django_shedlock import InvalidLockConfiguration, assert_locked, scheduler_lock
from django_shedlock.test import held_elsewhere, is_held, locked_in_memory


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with locked_in_memory():
        yield


@scheduler_lock
def bare(number: int) -> int:
    """Return what it got."""
    assert_locked()
    return number


@scheduler_lock("report:{tenant}")
def report(tenant: str, *, day: str = "today") -> str:
    """Return the tenant."""
    assert is_held(f"report:{tenant}")
    return tenant


@scheduler_lock("command", lock_at_most_for="1h")
class Command(BaseCommand):
    """A command that says that it ran."""

    def handle(self, *args: Any, **options: Any) -> str:
        assert is_held("command")
        return "ran"


def test_bare_name_is_module_and_qualname() -> None:
    """Without a name, the lock is called like the function."""
    with held_elsewhere("tests.test_decorators.bare"):
        assert bare(1) is None
    assert bare(2) == 2


def test_called_without_arguments_is_like_bare() -> None:
    """scheduler_lock() is the same as scheduler_lock."""

    @scheduler_lock()
    def job() -> int:
        return 3

    name = "tests.test_decorators.test_called_without_arguments_is_like_bare"
    with held_elsewhere(f"{name}.<locals>.job"):
        assert job() is None
    assert job() == 3


def test_name_and_docstring_stay() -> None:
    """A decorated function looks like itself, also to pickle."""
    assert (bare.__name__, bare.__doc__) == ("bare", "Return what it got.")
    assert pickle.loads(pickle.dumps(bare)) is bare
    assert list(inspect.signature(bare).parameters) == ["number"]


def test_direct_call_is_locked() -> None:
    """Whoever calls the function calls it with its lock."""

    @scheduler_lock("job")
    def job() -> bool:
        return is_held("job")

    assert job() is True
    assert not is_held("job")


def test_name_from_arguments() -> None:
    """Each tenant has a lock of its own, however the argument is passed."""
    with held_elsewhere("report:acme"):
        assert report("acme") is None
        assert report(tenant="acme") is None
        assert report("other", day="yesterday") == "other"


def test_name_from_defaults_and_keywords() -> None:
    """Defaults and members of **kwargs are fields, too."""

    @scheduler_lock("{day}:{extra}:{{x}}")
    def job(day: str = "today", **kwargs: str) -> bool:
        return is_held("today:y:{x}")

    assert job(extra="y") is True


def test_unknown_field_is_refused_at_decoration() -> None:
    """A field that is no parameter is found before the first night."""
    with pytest.raises(
        InvalidLockConfiguration, match="{tenat} is no parameter.*tenant"
    ):

        @scheduler_lock("import:{tenat}")
        def job(tenant: str) -> None: ...


@pytest.mark.parametrize("name", ["{", "{}", "{0}", "a}b"])
def test_broken_format_is_refused_at_decoration(name: str) -> None:
    """Half a field, or one without a name, is an error."""
    with pytest.raises(InvalidLockConfiguration, match="'"):

        @scheduler_lock(name)
        def job(tenant: str) -> None: ...


def test_blank_name_is_not_taken_for_a_missing_one() -> None:
    """An empty name is an error, and not the function's own."""
    with pytest.raises(InvalidLockConfiguration, match="is blank"):

        @scheduler_lock("")
        def job() -> None: ...


def test_method_is_locked() -> None:
    """A method is a function; its name may have fields of self."""

    class Importer:
        tenant = "acme"

        @scheduler_lock("import:{self.tenant}")
        def run(self, step: int) -> int:
            assert is_held("import:acme")
            return step

    assert Importer().run(5) == 5
    with held_elsewhere("import:acme"):
        assert Importer().run(5) is None


def test_decorator_below_staticmethod_and_classmethod() -> None:
    """Next to the function, the decorator works under both."""

    class Jobs:
        @staticmethod
        @scheduler_lock("static")
        def static() -> bool:
            return is_held("static")

        @classmethod
        @scheduler_lock("class")
        def of_class(cls) -> bool:
            return is_held("class")

    assert Jobs.static()
    assert Jobs.of_class()


def test_coroutine_function_is_held_until_it_was_awaited() -> None:
    """An async job has its lock while it runs, not while its coroutine is made."""

    @scheduler_lock("job")
    async def job() -> bool:
        await asyncio.sleep(0.01)
        return is_held("job")

    assert inspect.iscoroutinefunction(job)
    coroutine = job()
    assert not is_held("job")
    assert asyncio.run(coroutine) is True
    assert not is_held("job")


def test_coroutine_function_is_skipped() -> None:
    """A skipped coroutine function returns None."""

    @scheduler_lock("job")
    async def job() -> int:
        return 1

    with held_elsewhere("job"):
        assert asyncio.run(job()) is None


def test_command_runs_under_its_lock() -> None:
    """handle() of a decorated command runs under the lock."""
    out = io.StringIO()
    call_command(Command(), stdout=out)
    assert out.getvalue() == "ran\n"


def test_skipped_command_prints_nothing() -> None:
    """A skipped command is silent, and no error."""
    out = io.StringIO()
    with held_elsewhere("command"):
        call_command(Command(), stdout=out, stderr=out)
    assert out.getvalue() == ""


class NoCommand:
    pass


def generate() -> Iterator[int]:
    yield 1


async def agenerate() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (generate, "a generator would give its lock back"),
        (agenerate, "a generator would give its lock back"),
        (NoCommand, "is no BaseCommand. Decorate a method"),
        (staticmethod(generate), "below @staticmethod"),
        (classmethod(generate), "below @classmethod"),
        (5, "decorate a function"),
    ],
)
def test_other_targets_are_refused(target: Any, text: str) -> None:
    """What can't be locked as a whole is refused, with what to do instead."""
    with pytest.raises(InvalidLockConfiguration, match=text):
        scheduler_lock("job")(target)


def test_partial_needs_a_name() -> None:
    """A callable without a name of its own has to be given one."""
    partial = functools.partial(divmod, 7)
    with pytest.raises(InvalidLockConfiguration, match="give the lock one"):
        scheduler_lock(partial)
    assert scheduler_lock("divide")(partial)(2) == (3, 1)


def test_function_and_options_in_one_call_are_refused() -> None:
    """scheduler_lock(function, option) would read like hold() and do something else."""
    call: Any = scheduler_lock
    with pytest.raises(InvalidLockConfiguration, match="before the options"):
        call(bare, lock_at_most_for="1m")


def test_threads_share_no_state() -> None:
    """Of eight threads one runs and seven skip, and the lock is free afterwards."""
    barrier = threading.Barrier(8)
    done = threading.Event()
    results = []

    @scheduler_lock("job")
    def job() -> int:
        done.wait(20)
        return 1

    def call() -> None:
        barrier.wait(20)
        results.append(job())
        if results.count(None) == 7:
            done.set()

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results, key=str) == [1] + [None] * 7
    assert not is_held("job")
