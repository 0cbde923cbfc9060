"""Assert that jobs are skipped."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ParamSpec, TypeVar, overload

from asgiref.sync import iscoroutinefunction

from django_shedlock import conf
from django_shedlock.testing.attempts import attempts_here

P = ParamSpec("P")
T = TypeVar("T")


@overload
def assert_skips() -> AbstractContextManager[None]: ...


@overload
def assert_skips(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


def assert_skips(
    call: Callable[..., object] | None = None, /, *args: object, **kwargs: object
) -> object:
    """
    Assert that a call, or the body of ``with``, tries to run a job, and skips it.

    With a callable and its arguments, call it and return what it returns. Without one,
    return a context manager, also for the body of a coroutine. Raises
    ``AssertionError`` if a job runs, or if no job with a lock is tried, and says which.

    Example::

        with held_elsewhere("nightly"):
            assert_skips(call_command, "nightly")
    """
    if call is None:
        return _skipping("the block")
    named = getattr(call, "__qualname__", repr(call))
    if iscoroutinefunction(call):
        raise TypeError(
            f"{named} is a coroutine function: await it in `with assert_skips():`."
        )
    with _skipping(named):
        return call(*args, **kwargs)


@contextmanager
def _skipping(what: str) -> Iterator[None]:
    with attempts_here() as attempts:
        yield
    if ran := [repr(each.name) for each in attempts.acquired]:
        raise AssertionError(
            f"{what} was to skip its job, but a job ran under lock {', '.join(ran)}. "
            "Let another worker hold the lock, with held_elsewhere()."
        )
    if not conf.ENABLED.value:
        raise AssertionError(
            f"{what} skips nothing, since SHEDLOCK_ENABLED is off, as in unlocked(): "
            "each job runs."
        )
    if not attempts.skipped:
        raise AssertionError(
            f"{what} tried no lock: no job with a lock was called, or this worker "
            "holds its lock already, so that the job ran at once."
        )
