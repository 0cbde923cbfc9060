"""A site with django-unfold in a process of its own, since it replaces the admin."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from tests.support.paths import ROOT
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, wait_for

OPERATOR, PASSWORD = "ada", "console"
SERVE = f"""
import sys

import django

django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command, execute_from_command_line

from tests.support.scenes import bad_morning

call_command("migrate", verbosity=0)
User.objects.create_superuser("{OPERATOR}", password="{PASSWORD}")
bad_morning()
execute_from_command_line(["manage.py", "runserver", "--noreload", sys.argv[1]])
"""


@dataclass(frozen=True)
class UnfoldSite:
    """Where the site is, and its database."""

    url: str
    file: Path

    def open_run(self, name: str) -> str | None:
        """Return the acquisition of this lock whose run is not accounted for."""
        query = "SELECT open_run FROM shedlock WHERE name = ?"
        with closing(sqlite3.connect(self.file, timeout=PATIENCE)) as connection:
            [[open_run]] = connection.execute(query, [name])
        return open_run and str(open_run)


@contextmanager
def unfold_site(folder: Path) -> Iterator[UnfoldSite]:
    """Serve the bad morning of ``scenes`` while the body runs."""
    address, file = f"127.0.0.1:{free_port()}", folder / "unfold.sqlite3"
    path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = {
        "DJANGO_SETTINGS_MODULE": "tests.support.unfold_settings",
        "SHEDLOCK_UNFOLD_FILE": str(file),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONWARNINGS": "ignore",
    }
    log = folder / "unfold.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-c", SERVE, address],
            env=os.environ | variables,
            stdout=output,
            stderr=output,
        )
    try:
        url = f"http://{address}"
        wait_for(lambda: server.poll() is not None or _answers(f"{url}/admin/login/"))
        assert server.poll() is None, log.read_text()
        yield UnfoldSite(url, file)
    finally:
        server.kill()
        server.wait(PATIENCE)


def _answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False
