"""Jobs and commands that entries of ``CRONJOBS`` name, and how cron would run them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import BaseCommand, get_commands

from django_shedlock import (
    NoActiveLock,
    assert_locked,
    current_lock,
    scheduler_lock,
)
from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import DatabaseNow
from tests.support.paths import MANAGE

CRONTAB_SETTINGS = {"CRONTAB_DJANGO_MANAGE_PATH": str(MANAGE)}

calls: list[tuple[Any, ...]] = []
"""What ran, and with what."""


class Report(BaseCommand):
    """A command of somebody else's, which knows of no lock."""

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("groups", nargs="*")
        parser.add_argument("--format", default="text")

    def handle(self, *args: Any, groups: list[str], **options: Any) -> None:
        assert_locked()
        calls.append((current_lock(), groups, options["format"]))
        print("done")


@contextmanager
def command(name: str, instance: BaseCommand) -> Iterator[None]:
    """Make the command known."""
    with patch.dict(get_commands(), {name: instance}):
        yield


def plain(*args: Any, **kwargs: Any) -> None:
    """A job that knows of no lock."""
    calls.append((current_lock(), args, kwargs))


async def coroutine() -> None:
    """A job that would never be awaited."""
    await asyncio.sleep(0)
    assert_locked()
    calls.append((current_lock(),))


def unlocked() -> None:
    """A job for each host."""
    with pytest.raises(NoActiveLock):
        current_lock()
    calls.append(())


def failing() -> None:
    """A job that fails."""
    raise ZeroDivisionError("by nobody")


@scheduler_lock("decorated", lock_at_most_for="7m")
def decorated() -> None:
    """A job with its own lock."""
    assert len(LockRecord.objects.filter(lock_until__gt=DatabaseNow())) == 1
    calls.append((current_lock(),))


@functools.wraps(decorated)
def wrapped() -> None:
    """A job with its own lock, and something around it that runs without the lock."""
    with pytest.raises(NoActiveLock):
        current_lock()
    decorated()


@scheduler_lock("decorated coroutine", lock_at_most_for="7m")
async def decorated_coroutine() -> None:
    """A coroutine function with its own lock."""
    await coroutine()


bound = functools.partial(decorated)


@scheduler_lock("digest", lock_at_most_for="7m")
class Digest(BaseCommand):
    """A decorated command."""

    def handle(self, *args: Any, **options: Any) -> None:
        calls.append((current_lock(),))


@scheduler_lock("sound", lock_at_most_for="4m", lock_at_least_for="30s")
def sound() -> None:
    """A job about whose lock there is nothing to say."""


@scheduler_lock("greedy", lock_at_most_for="1h", lock_at_least_for="10m")
def greedy() -> None:
    """A job that keeps its lock for long."""


@scheduler_lock("mirror", lock_at_most_for="4m", lock_at_least_for=1, keep_alive=True)
def kept_alive() -> None:
    """A job whose lease is extended."""


@scheduler_lock("short", lock_at_most_for="4m")
def short() -> None:
    """A job that nothing keeps from running again."""


@scheduler_lock("remind:{group}", lock_at_most_for="4m", lock_at_least_for="30s")
def remind(group: str) -> None:
    """A job that needs an argument."""
