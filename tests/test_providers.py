"""Providers by alias."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_shedlock import InvalidLockConfiguration, execute
from django_shedlock.providers import get_provider
from django_shedlock.providers.base import LockProvider
from django_shedlock.providers.database import DatabaseLockProvider
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.testing import MEMORY_PROVIDERS
from tests.support.forks import forked, thread_inside


def test_default_is_the_database() -> None:
    """A project without settings keeps its locks in its default database."""
    provider = get_provider()
    assert isinstance(provider, DatabaseLockProvider)
    assert (provider.alias, provider.using) == ("default", "default")


def test_one_instance_per_process() -> None:
    """Threads and calls share the provider, as the memory's locks need it."""
    assert get_provider() is get_provider()


def test_overridden_settings_make_a_new_provider() -> None:
    """A test may exchange the providers, and gets the old ones back."""
    with override_settings(SHEDLOCK_PROVIDERS=MEMORY_PROVIDERS):
        assert isinstance(get_provider(), MemoryLockProvider)
    assert isinstance(get_provider(), DatabaseLockProvider)


def test_unknown_alias() -> None:
    """A misspelt alias is an error that names those that there are."""
    with pytest.raises(InvalidLockConfiguration, match="'redis'.*has 'default'"):
        get_provider("redis")


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"BACKEND": "no.such.module"},
        {"BACKEND": "django_shedlock.providers.memory.Nothing"},
        {"BACKEND": "datetime.timedelta"},
        {"BACKEND": "builtins.dict"},
        {
            "BACKEND": MEMORY_PROVIDERS["default"]["BACKEND"],
            "OPTIONS": {"usng": "default"},
        },
        "django_shedlock.providers.memory.MemoryLockProvider",
    ],
)
def test_broken_entry_is_improperly_configured(parameters: Any) -> None:
    """An entry that gives no provider is an error that shows it."""
    with override_settings(SHEDLOCK_PROVIDERS={"default": parameters}):
        with pytest.raises(ImproperlyConfigured, match="SHEDLOCK_PROVIDERS.'default'"):
            get_provider()


def test_no_password_is_told() -> None:
    """A log or a check is read by more people than the settings."""
    options = {"url": "redis://me:s3cret@host", "sentinel_password": "s3cret"}
    entry = {**MEMORY_PROVIDERS["default"], "OPTIONS": options}
    with override_settings(SHEDLOCK_PROVIDERS={"default": entry}):
        with pytest.raises(ImproperlyConfigured) as raised:
            get_provider()
    assert "'url'" in str(raised.value)
    assert "s3cret" not in str(raised.value)


class SlowProvider(MemoryLockProvider):
    """Takes its time to start, as one that connects to a server."""

    def __init__(self, alias: str):
        time.sleep(0.02)
        super().__init__(alias)


@override_settings(
    SHEDLOCK_PROVIDERS={"default": {"BACKEND": f"{__name__}.SlowProvider"}}
)
def test_threads_that_come_first_share_the_instance() -> None:
    """Two threads never get two providers, and so never one lock of the memory's."""
    with ThreadPoolExecutor(8) as threads:
        providers = set(threads.map(lambda _: get_provider(), range(8)))
    assert len(providers) == 1


class StayingProvider(MemoryLockProvider):
    """Is being made for as long as a test wants, in one of its threads."""

    stay: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, alias: str):
        type(self).stay()
        super().__init__(alias)


@pytest.mark.skipif(sys.platform == "win32", reason="has no fork()")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@override_settings(
    SHEDLOCK_PROVIDERS={
        **MEMORY_PROVIDERS,
        "slow": {"BACKEND": f"{__name__}.StayingProvider"},
    }
)
def test_child_forked_while_a_provider_is_made_makes_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that makes it does not go on in the child, which does not wait."""

    def make(stay: Callable[[], None]) -> LockProvider:
        monkeypatch.setattr(StayingProvider, "stay", staticmethod(stay))
        return get_provider("slow")

    with thread_inside(make):
        assert forked(lambda: isinstance(get_provider(), MemoryLockProvider))


def test_schedule_is_refused_where_no_ticks_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A provider that can't run each tick once says so, and runs nothing."""
    monkeypatch.setattr(MemoryLockProvider, "keeps_ticks", False)
    with (
        override_settings(SHEDLOCK_PROVIDERS=MEMORY_PROVIDERS),
        pytest.raises(InvalidLockConfiguration, match="'default' keeps no ticks") as no,
    ):
        execute(lambda: pytest.fail("it runs"), "job", schedule="@hourly")
    assert "Lock 'job'" in str(no.value)
