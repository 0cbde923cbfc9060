"""The package as a whole: what importing it does, and what it offers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import django_shedlock


def python(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *args]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, **options
    )


SETUP = """
import json, sys
import django
from django.conf import settings
names = ("admin", "auth", "contenttypes", "sessions", "messages", "staticfiles")
apps = [f"django.contrib.{name}" for name in names]
settings.configure(
    INSTALLED_APPS=[*apps, "django_shedlock", *sys.argv[2:]],
    DATABASES={"default": json.loads(sys.argv[1])},
    USE_TZ=True,
)
django.setup()
"""


def test_every_public_name_is_there() -> None:
    """__all__ is sorted, and each of its names can be imported."""
    assert django_shedlock.__all__ == sorted(django_shedlock.__all__)
    assert all(hasattr(django_shedlock, name) for name in django_shedlock.__all__)


@pytest.mark.parametrize("is_first", [True, False])
def test_console_replaces_the_plain_admin(is_first: bool) -> None:
    """The site has the console's pages, in whatever order the apps stand."""
    apps = ["django_shedlock", "django_shedlock.console"][:: -1 if is_first else 1]
    code = SETUP.replace(
        '[*apps, "django_shedlock", *sys.argv[2:]]', "[*apps, *sys.argv[2:]]"
    )
    show = (
        "from django.contrib.admin import site\n"
        "print(*(type(each).__module__ for each in site._registry.values()))\n"
    )
    database = json.dumps({"ENGINE": "django.db.backends.dummy"})
    found = python("-c", code + show, database, *apps).stdout.split()
    own = {each for each in found if each.startswith("django_shedlock")}
    assert own == {
        f"django_shedlock.console.admin.{each}" for each in ("locks", "past")
    }


def test_import_does_nothing() -> None:
    """Importing loads no models, reads no setting, and starts no thread."""
    python(
        "-W",
        "error",
        "-c",
        "import django_shedlock, sys, threading\n"
        "from django.conf import settings\n"
        "assert not settings.configured\n"
        "assert 'django_shedlock.models' not in sys.modules\n"
        "assert threading.active_count() == 1\n"
        "from django_shedlock import scheduler_lock\n"
        "@scheduler_lock('job', lock_at_most_for='1m')\n"
        "def job(): pass\n"
        "assert not settings.configured\n",
    )
    assert "django_shedlock" in sys.modules
