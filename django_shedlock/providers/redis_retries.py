"""When redis-py sends a request again. Only a provider of Redis loads this module."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from redis import exceptions as of_redis
from redis.backoff import NoBackoff
from redis.retry import Retry

T = TypeVar("T")


class QuickRetry(Retry):
    """
    Tries once more after an error that came quickly, such as that of a dead connection.

    A server that hangs would take as long again, so a timeout is no reason, nor is an
    error after ``limit_seconds``: of sentinels, none of which answers in time, redis-py
    makes an error of the connection.
    """

    def __init__(self, limit_seconds: float | None) -> None:
        super().__init__(NoBackoff(), 1, (of_redis.ConnectionError,))
        self.limit_seconds = limit_seconds

    def call_with_retry(self, do: Callable[[], T], *args: Any, **options: Any) -> T:
        """See redis-py."""
        began = time.monotonic()

        def do_in_time() -> T:
            try:
                return do()
            except of_redis.ConnectionError as error:
                took = time.monotonic() - began
                if self.limit_seconds is None or took < self.limit_seconds:
                    raise
                raise of_redis.TimeoutError(str(error)) from error

        answer: T = super().call_with_retry(do_in_time, *args, **options)
        return answer


def never_again() -> Retry:
    """Ask only once; by default, redis-py asks a sentinel four times."""
    return Retry(NoBackoff(), 0)
