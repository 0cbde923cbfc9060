"""What the command's tests share: they call it, and see what it prints."""

from __future__ import annotations

import io
from typing import Any

from django.core.management import call_command

from django_shedlock import Lock
from django_shedlock.providers import get_provider
from django_shedlock.states import LockState
from tests.providers.contract import configure, take


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("shedlock", *args, stdout=out)
    return out.getvalue()


def take_default(name: str, **options: Any) -> Lock:
    return take(get_provider(), configure(name, **options))


def state(name: str) -> LockState:
    return get_provider().statuses(name)[0].state
