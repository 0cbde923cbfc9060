"""What entries of ``SHEDLOCK_SCHEDULE`` start in tests."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import django
from django.core.management.base import BaseCommand, CommandParser

from django_shedlock import current_lock, scheduler_lock

TASKS = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
"""Since version 6 Django brings what the other package brings to older ones."""

tasks = importlib.import_module(TASKS)
calls: list[tuple[Any, ...]] = []
"""What was called, with its arguments and the name of its lock."""
NUMBER = 7


def charge(currency: str, limit: int = 10) -> None:
    """Charge customers.

    Only those with an account.
    """
    calls.append((currency, limit, current_lock().name))


async def poll() -> None:
    """Poll the mailbox."""
    await asyncio.sleep(0)
    calls.append(("polled", current_lock().name))


def generate() -> Any:
    """Make a generator."""
    yield 1


class Shop:
    """Has a method to call."""

    @classmethod
    def tidy(cls) -> None:
        """Tidy up."""
        calls.append(("tidied", cls.__name__))


class Tidy(BaseCommand):
    """A command with an option, and an argument that it needs."""

    help = "Tidies the shop."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("room")
        parser.add_argument("--days", type=int, default=1)
        parser.add_argument("--dry-run", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        name = current_lock().name
        calls.append((options["room"], options["days"], options["verbosity"], name))


@scheduler_lock("entries.locked", lock_at_most_for="5m")
def locked(currency: str = "EUR") -> None:
    """Note all locks that this process holds."""
    from django_shedlock import locks_held

    calls.append((currency, *sorted(lock.name for lock in locks_held())))


@scheduler_lock("entries.report:{tenant}", lock_at_most_for="5m")
def report(tenant: str) -> None:
    """Report to a tenant."""
    calls.append((tenant, current_lock().name))


@tasks.task
def send(group: str, *, limit: int = 3) -> None:
    """Send the digest."""
    calls.append(("sent", group, limit))


@tasks.task(takes_context=True)
async def asend(context: Any, group: str) -> None:
    """Send the digest, and know the attempt."""
    await asyncio.sleep(0)
    calls.append(("sent", group, context.attempt))


@tasks.task
@scheduler_lock("entries.task", lock_at_most_for="5m")
def locked_task() -> None:
    """Run in a worker, under a lock of its own."""
