"""Build the wheel, install it elsewhere, and look whether all of it is there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PARTS = """
from importlib.metadata import entry_points
from importlib.resources import files

package = files("django_shedlock")
for part in (
    "py.typed",
    "migrations/0001_initial.py",
    "management/commands/shedlock.py",
    "templates/admin/django_shedlock/lockrecord/release_confirmation.html",
):
    assert (package / part).is_file(), f"{part} is not in the wheel"
[plugin] = entry_points(group="pytest11", name="django_shedlock")
assert plugin.value == "django_shedlock.pytest_plugin"
"""

PROJECT = """
from django.conf import settings
from django.core.management import call_command
import django

settings.configure(
    INSTALLED_APPS=["django_shedlock"],
    DATABASES={
        "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}
    },
)
django.setup()
call_command("migrate", verbosity=0, skip_checks=True)
call_command("check", fail_level="WARNING", databases=["default"])

from django_shedlock import execute

assert execute(lambda: 7, "job").value == 7
call_command("shedlock", "list")
"""


def main() -> None:
    """Exit with an error if the installed package lacks something."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "build", "-q", "--outdir", folder, str(ROOT))
        [wheel] = Path(folder).glob("*.whl")
        environment = Path(folder, "environment")
        venv.create(environment, with_pip=True)
        python = str(environment / "bin" / "python")
        run(python, "-m", "pip", "install", "-q", str(wheel))
        for program in (PARTS, PROJECT):
            run(python, "-W", "error", "-c", program, folder=folder)
    print("the wheel is complete")


def run(*command: str, folder: str | None = None) -> None:
    """Run a command in ``folder``, and end with its error if it fails."""
    subprocess.run(command, check=True, cwd=folder)


if __name__ == "__main__":
    main()
