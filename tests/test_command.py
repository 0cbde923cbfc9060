"""``manage.py shedlock``: what it prints, and its exit statuses."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_shedlock import Lock
from django_shedlock.providers import get_provider
from django_shedlock.states import LockState
from tests.providers.contract import MINUTE, configure, take

pytestmark = pytest.mark.django_db


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("shedlock", *args, stdout=out)
    return out.getvalue()


def take_default(name: str, **options: Any) -> Lock:
    return take(get_provider(), configure(name, **options))


def state(name: str) -> LockState:
    return get_provider().statuses(name)[0].state


def test_list_without_locks() -> None:
    """An empty table is said in words."""
    assert run("list") == "There are no locks yet.\n"


def test_list_is_a_table() -> None:
    """Each lock is a line, below the names of the columns."""
    lock = take_default("billing")
    take_default("a.much.longer.name").release()
    header, first, second = run("list").splitlines()
    assert header.split() == [
        "NAME",
        "STATE",
        "LOCKED",
        "BY",
        "LOCKED",
        "AT",
        "REMAINING",
    ]
    assert first.startswith("a.much.longer.name  free")
    assert second.startswith("billing             running  " + lock.locked_by)
    assert first.endswith("-")
    assert second.endswith(("59s", "1m"))


def test_list_as_json() -> None:
    """Programs get instants in ISO-8601 and durations in seconds."""
    lock = take_default("billing")
    [listed] = json.loads(run("list", "--json"))
    assert listed["name"] == "billing"
    assert listed["state"] == "running"
    assert listed["locked_by"] == lock.locked_by
    assert 0 < listed["remaining"] <= 60
    assert listed["locked_at"] < listed["lock_until"]


@override_settings(USE_TZ=False)
def test_list_without_time_zones() -> None:
    """Projects with naive datetimes see their locks as well."""
    take_default("billing")
    assert "billing" in run("list")


def test_release_of_a_kept_lock() -> None:
    """A lock that is only held by lock_at_least_for is released at once."""
    take_default("job", lock_at_least_for=timedelta(seconds=30)).release()
    assert run("release", "job") == "Lock 'job' is released.\n"
    assert state("job") is LockState.FREE


def test_release_of_a_running_lock_needs_force() -> None:
    """A running job's lock is not released by mistake; that is exit status 3."""
    lock = take_default("job")
    with pytest.raises(CommandError, match=f"running as {lock.locked_by}") as caught:
        run("release", "job")
    assert caught.value.returncode == 3
    assert state("job") is LockState.RUNNING
    run("release", "job", "--force")
    assert state("job") is LockState.FREE


@pytest.mark.parametrize("args", [("release", "job"), ("extend", "job", "1m")])
def test_free_lock_is_not_held(args: tuple[str, ...]) -> None:
    """There is nothing to release or extend: exit status 1."""
    take_default("job").release()
    with pytest.raises(CommandError, match="'job' is not held") as caught:
        run(*args)
    assert caught.value.returncode == 1


@pytest.mark.parametrize("args", [("release", "jbo"), ("extend", "jbo", "1m")])
def test_unknown_lock(args: tuple[str, ...]) -> None:
    """A misspelt name is said to be unknown: exit status 1."""
    with pytest.raises(CommandError, match="There is no lock 'jbo'") as caught:
        run(*args)
    assert caught.value.returncode == 1


def test_extend() -> None:
    """A running lock's lease is lengthened from now on, and never shortened."""
    take_default("job")
    assert "is held for 9m59s more" in run("extend", "job", "10m").replace(
        "10m", "9m59s"
    )
    run("extend", "job", "1s")
    assert get_provider().statuses("job")[0].remaining > 9 * MINUTE


@pytest.mark.parametrize("duration", ["soon", "0s", ""])
def test_bad_duration(duration: str) -> None:
    """A duration that is none changes nothing: exit status 1."""
    take_default("job")
    with pytest.raises(CommandError, match="'job'") as caught:
        run("extend", "job", duration)
    assert caught.value.returncode == 1


def test_unknown_provider() -> None:
    """A misspelt provider is said to be unknown."""
    with pytest.raises(CommandError, match="no lock provider 'redis'"):
        run("--provider", "redis", "list")


def test_missing_subcommand() -> None:
    """Without a subcommand, the usage is shown."""
    with pytest.raises(CommandError, match="required: COMMAND"):
        run()


@override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": "no.such.Provider"}})
def test_broken_provider_is_no_traceback() -> None:
    """A provider that can't be made is said in words: exit status 1."""
    with pytest.raises(CommandError, match="no.such.Provider") as caught:
        run("list")
    assert caught.value.returncode == 1
