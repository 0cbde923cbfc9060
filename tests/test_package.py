"""The package as a whole: what importing it does, and what it offers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import django_shedlock

LIMIT = 0.02
"""Seconds of the processor that importing may cost beyond Django's own modules."""


def python(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *args]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, **options
    )


IMPORT_TIME = """
import sys, time
import django_shedlock  # and with it, once and for all, what it needs of Django
for name in [name for name in sys.modules if name.startswith("django_shedlock")]:
    del sys.modules[name]
begun = time.process_time()
import django_shedlock
print(time.process_time() - begun)
"""


def own_import_time(bytecode: Path) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return float(python("-c", IMPORT_TIME, env=environment).stdout)


def test_every_public_name_is_there() -> None:
    """__all__ is sorted, and each of its names can be imported."""
    assert django_shedlock.__all__ == sorted(django_shedlock.__all__)
    assert all(hasattr(django_shedlock, name) for name in django_shedlock.__all__)


def test_import_is_quick(tmp_path: Path) -> None:
    """Importing the package costs under 20 ms beyond Django's own modules."""
    # The quickest of a few tries is the one that other processes disturbed least.
    assert any(0 < own_import_time(tmp_path) < LIMIT for _ in range(10))


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
