"""The decorator, on everything it may be put on."""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import pickle
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.test import override_settings

from django_shedlock import InvalidLockConfiguration, assert_locked, scheduler_lock
from django_shedlock.registry.decorators import ENQUEUE_METHODS
from django_shedlock.registry.jobs import decorated_job
from django_shedlock.testing import held_elsewhere, is_held, locked_in_memory
from tests.support.threads import meeting_of, run_threads
from tests.support.waiting import PATIENCE


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
    with held_elsewhere("tests.registry.test_decorators.bare"):
        assert bare(1) is None
    assert bare(2) == 2


def test_called_without_arguments_is_like_bare() -> None:
    """scheduler_lock() is the same as scheduler_lock."""

    @scheduler_lock()
    def job() -> int:
        return 3

    name = "tests.registry.test_decorators.test_called_without_arguments_is_like_bare"
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


@pytest.mark.parametrize("name", ["{tenant:{width}}", "{tenant:>{width}}", "{width.x}"])
def test_unknown_field_of_a_format_is_refused_at_decoration(name: str) -> None:
    """A field inside of a field's format is a field, too."""
    with pytest.raises(InvalidLockConfiguration, match="{width} is no parameter"):

        @scheduler_lock(name)
        def job(tenant: str) -> None: ...


def test_field_of_a_format() -> None:
    """A format may come from the arguments, too."""

    @scheduler_lock("{tenant!r:.{width}}:{day[0]:>{width}}")
    def job(tenant: str, day: list[int], *, width: int = 3) -> bool:
        return is_held("'ac:  7")

    assert job("acme", [7]) is True


@pytest.mark.parametrize(
    "name",
    ["{", "{}", "{0}", "{0.x}", "a}b", "{tenant!z}", "{tenant:{tenant:{tenant}}}"],
)
def test_broken_format_is_refused_at_decoration(name: str) -> None:
    """Half a field, or one without a name, is an error that says what to do."""
    with pytest.raises(InvalidLockConfiguration) as refusal:

        @scheduler_lock(name)
        def job(tenant: str, **others: str) -> None: ...

    assert str(refusal.value).startswith(f"Lock name {name!r} is no format string: ")
    assert "<locals>.job in each field, as in {tenant}, and double" in str(
        refusal.value
    )


def test_doubled_braces_are_single_ones() -> None:
    """Without a field, doubled braces mean the same as beside one."""

    @scheduler_lock("a{{b}}")
    def job() -> bool:
        return is_held("a{b}")

    assert job() is True
    with held_elsewhere("a{b}"):
        assert job() is None


@pytest.mark.parametrize(
    ("tenant", "problem"),
    [
        ("", "Lock name '' is blank."),
        (" acme", "Lock name ' acme' begins or ends with white space."),
        ("a\nb", "contains characters that cannot be printed."),
        ("x" * 256, "has 256 characters"),
    ],
)
def test_arguments_that_make_no_name_are_refused(tenant: str, problem: str) -> None:
    """Nothing runs under a name that no store can keep, and the error names the job."""

    @scheduler_lock("{tenant}")
    def job(tenant: str) -> None:
        raise AssertionError

    with pytest.raises(
        InvalidLockConfiguration, match=r"<locals>\.job make no"
    ) as error:
        job(tenant)
    assert problem in str(error.value)


def test_namespace_counts_in_a_name_from_arguments() -> None:
    """A name is refused that is too long only with the namespace before it."""

    @scheduler_lock("{tenant}")
    def job(tenant: str) -> bool:
        return True

    with override_settings(SHEDLOCK_NAMESPACE="shop"):
        assert job("x" * 250)
        with pytest.raises(InvalidLockConfiguration, match="job make no .* 256 char"):
            job("x" * 251)


def test_arguments_without_what_the_name_needs_are_refused() -> None:
    """The error of a field that can't be filled tells which job and which name."""

    @scheduler_lock("{tenant.pk:d}:{day}")
    async def job(tenant: object, **options: str) -> None:
        raise AssertionError

    place = r"<locals>\.job make no name of '{tenant\.pk:d}:{day}'"
    with pytest.raises(InvalidLockConfiguration, match=f"{place}: AttributeError: "):
        asyncio.run(job(None, day="today"))
    with pytest.raises(InvalidLockConfiguration, match=f"{place}: KeyError: 'day'"):
        asyncio.run(job(SimpleNamespace(pk=7)))
    with pytest.raises(InvalidLockConfiguration, match=f"{place}: ValueError: "):
        asyncio.run(job(SimpleNamespace(pk="7"), day="today"))


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


class Generates:
    def __call__(self) -> Iterator[int]:
        yield 1

    def method(self) -> Iterator[int]:
        yield 1


class GeneratingCommand(BaseCommand):
    def handle(self, *args: Any, **options: Any) -> Iterator[str]:  # type: ignore[override]
        yield "ran"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (generate, "'job' on .*generate.* a generator would release its lock"),
        (agenerate, "a generator would release its lock"),
        (functools.partial(generate), "a generator would release its lock"),
        (Generates(), "a generator would release its lock"),
        (functools.partial(Generates()), "a generator would release its lock"),
        (Generates().method, "a generator would release its lock"),
        (GeneratingCommand, "a generator would release its lock"),
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


def test_wrapper_of_a_generator_function_is_judged_by_what_it_returns() -> None:
    """Only its call tells if the decorator between the two uses up the generator."""

    @functools.wraps(generate)
    def hands_on() -> Iterator[int]:
        return generate()

    @functools.wraps(generate)
    def uses_up() -> list[int]:
        return list(generate())

    with pytest.raises(TypeError, match="Lock 'job': the task returned .*generator"):
        scheduler_lock("job")(hands_on)()
    assert not is_held("job")
    assert scheduler_lock("job")(uses_up)() == [1]


@pytest.mark.parametrize("way", ENQUEUE_METHODS)
def test_function_with_an_attribute_of_that_name_is_no_task(way: str) -> None:
    """A scheduler may note on the function itself when it is to run."""

    def job() -> str:
        return "done"

    setattr(job, way, "0 2 * * *")
    assert scheduler_lock("noted")(job)() == "done"


@pytest.mark.parametrize("way", ENQUEUE_METHODS)
def test_task_of_a_queue_is_refused(way: str) -> None:
    """A lock around a task is none in the worker; the right order is told."""

    def task() -> None: ...

    setattr(task, way, task)
    with pytest.raises(InvalidLockConfiguration, match="whose worker .* below the"):
        scheduler_lock("job")(task)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda job: functools.wraps(job)(lambda *args: job(*args)),
        functools.partial,
        functools.lru_cache,
    ],
    ids=["wraps", "partial", "lru_cache"],
)
def test_job_is_found_below_other_decorators(wrap: Any) -> None:
    """Whatever else is around a decorated function, its job is found."""
    assert decorated_job(report) is not None
    assert decorated_job(wrap(report)) is decorated_job(report)
    assert decorated_job(wrap(report.__wrapped__)) is None


LATER = """
def later(tenant: Unknown, *, day: Unknown = "today") -> Unknown:
    return tenant
"""
"""Its annotations have no value, as of a name that only a type checker imports."""


def test_annotations_without_a_value() -> None:
    """From Python 3.14 on, code has them without ``from __future__``."""
    defined: dict[str, Any] = {}
    dont_inherit = sys.version_info >= (3, 14)
    exec(compile(LATER, "later.py", "exec", dont_inherit=dont_inherit), defined)
    later = scheduler_lock("later:{tenant}")(defined["later"])
    assert later("acme") == "acme"
    specification = inspect.getfullargspec(later)  # what Celery asks
    assert specification.args == ["tenant"]
    assert specification.kwonlyargs == ["day"]
    assert "Unknown" in str(specification.annotations["day"])


def test_callable_without_signature_is_locked() -> None:
    """Some callables tell nothing of their arguments."""
    assert scheduler_lock("newest")(max)(1, 2) == 2


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


def about(target: Any) -> tuple[str, str]:
    job = decorated_job(target)
    assert job is not None
    return job.description, job.runbook


def test_job_is_described_by_its_docstring() -> None:
    """By its first paragraph, on one line; a description says it better."""

    @scheduler_lock("job")
    def job() -> None:
        """
        Send the orders
        to the warehouse.

        Nobody need know this.
        """

    assert about(job) == ("Send the orders to the warehouse.", "")
    wiki = "https://wiki.example.com/job"
    told = scheduler_lock("job", description="Ship them", runbook=wiki)(job)
    assert about(told) == ("Ship them", wiki)
    assert about(scheduler_lock("job")(lambda: None)) == ("", "")


def test_command_is_described_by_its_help() -> None:
    """What ``--help`` says of it."""

    @scheduler_lock("command", runbook="http://wiki/command")
    class Command(BaseCommand):
        help = "Sends the orders."

    assert about(Command) == ("Sends the orders.", "http://wiki/command")


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "wiki/job", "https:job", "", 7, "data:text/html,x"]
)
def test_runbook_that_is_no_link_is_refused(link: Any) -> None:
    """When the decorator is applied: a page of the admin would show it."""
    with pytest.raises(InvalidLockConfiguration, match="'job': runbook .* must be a"):
        scheduler_lock("job", runbook=link)(lambda: None)


def test_threads_share_no_state() -> None:
    """Of eight threads one runs and seven skip, and the lock is free afterwards."""
    meeting = meeting_of(8)
    done = threading.Event()
    results = []

    @scheduler_lock("job")
    def job() -> int:
        done.wait(PATIENCE)
        return 1

    def call() -> None:
        meeting.wait()
        results.append(job())
        if results.count(None) == 7:
            done.set()

    run_threads(8, call, meeting)
    assert sorted(results, key=str) == [1] + [None] * 7
    assert not is_held("job")


def test_rerun_is_stored_on_the_job() -> None:
    """The rerun option is stored on the job, and is off by default."""
    job = decorated_job(scheduler_lock("rerun", rerun=True)(lambda: None))
    other = decorated_job(scheduler_lock("no rerun")(lambda: None))
    assert job is not None
    assert other is not None
    assert (job.rerun, other.rerun) == (True, False)
    assert (job.time_limit, other.time_limit) == (None, None)


@pytest.mark.parametrize("rerun", [None, "yes", 1])
def test_wrong_rerun_is_refused(rerun: Any) -> None:
    """The error names the lock and the value, and comes at decoration."""
    with pytest.raises(InvalidLockConfiguration) as refused:
        scheduler_lock("rerun", rerun=rerun)(lambda: None)
    assert (
        str(refused.value) == f"Lock 'rerun': rerun ({rerun!r}) must be True or False."
    )
