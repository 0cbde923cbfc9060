"""Commands under a lock, as entries of django-crontab run them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError
from django.test import override_settings
from django_crontab.crontab import Crontab

from django_shedlock import InvalidLockConfiguration
from django_shedlock.contrib.crontab import locked_command
from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import DatabaseNow
from tests.support.crontabs import CRONTAB_SETTINGS, Report, calls, command
from tests.support.locks import take

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def report() -> Iterator[None]:
    calls.clear()
    with command("report", Report()):
        yield


def test_command_runs_under_a_lock_of_its_call(capsys: Any) -> None:
    """The command gets its own arguments, and what it prints is printed."""
    locked_command("report", "gold", "silver", format="html")
    [(lock, groups, form)] = calls
    assert lock.name == "report gold silver format=html"
    assert (groups, form) == (["gold", "silver"], "html")
    assert capsys.readouterr().out == "done\n"


def test_options_of_the_lock_are_not_the_commands() -> None:
    """Name, durations and provider of the lock are given as strings and numbers."""
    locked_command(
        "report",
        lock="nightly",
        lock_at_most_for="9m",
        lock_at_least_for=30,
        lock_provider="default",
    )
    [(lock, _, _)] = calls
    assert lock.name == "nightly"
    assert lock.configuration.lease == "9m"
    assert LockRecord.objects.filter(name="nightly", lock_until__gt=DatabaseNow())


def test_command_is_skipped_in_silence(capsys: Any) -> None:
    """While another host holds the lock nothing runs and nothing is printed."""
    take("report")
    locked_command("report")
    assert calls == []
    assert capsys.readouterr() == ("", "")


def test_errors_pass_through() -> None:
    """What the command, its options or the store have to complain about is raised."""
    with pytest.raises(CommandError, match="Unknown command"):
        locked_command("no_such_command")
    with pytest.raises(InvalidLockConfiguration, match="'report'"):
        locked_command("report", lock_at_most_for="soon")
    missing = {"default": {"BACKEND": "no.such.Provider"}}
    with (
        override_settings(SHEDLOCK_PROVIDERS=missing),
        pytest.raises(ImproperlyConfigured, match=r"no\.such"),
    ):
        locked_command("report")
    assert calls == []


def test_entry_of_cronjobs_runs_it() -> None:
    """An entry with arguments that JSON can carry is all that django-crontab needs."""
    path = "django_shedlock.contrib.crontab.locked_command"
    entry = ("0 6 * * *", path, ["report", "gold"], {"lock_at_most_for": "9m"})
    with override_settings(CRONJOBS=[entry], **CRONTAB_SETTINGS):
        crontab = Crontab(readonly=True)
        crontab.run_job(crontab._Crontab__hash_job(entry))
    [(lock, groups, _)] = calls
    assert (lock.name, lock.configuration.lease) == ("report gold", "9m")
    assert groups == ["gold"]


def test_import_loads_no_models() -> None:
    """The module can be imported before Django is set up."""
    script = (
        "import sys, django_shedlock.contrib.crontab\n"
        "from django.conf import settings\n"
        "assert not settings.configured\n"
        "assert 'django_shedlock.models' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)
