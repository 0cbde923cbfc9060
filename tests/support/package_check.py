"""Build the wheel, install it elsewhere, and look whether all of it is there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PARTS = """
import sys
from importlib.metadata import entry_points
from importlib.resources import files

package = files("django_shedlock")
missing = [part for part in sys.argv[1:] if not (package / part).is_file()]
assert not missing, f"not in the wheel: {missing}"
[plugin] = entry_points(group="pytest11", name="django_shedlock")
assert plugin.value == "django_shedlock.test.pytest_plugin"
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
        run(python, "-W", "error", "-c", PARTS, *parts(), folder=folder)
        run(python, "-W", "error", "-c", PROJECT, folder=folder)
    print("the wheel is complete")


def parts() -> list[str]:
    """Return each file of the package, as a path inside it."""
    package = ROOT / "django_shedlock"
    files = (path.relative_to(package) for path in package.rglob("*") if path.is_file())
    return sorted(str(file) for file in files if "__pycache__" not in file.parts)


def run(*command: str, folder: str | None = None) -> None:
    """Run a command in ``folder``, and end with its error if it fails."""
    subprocess.run(command, check=True, cwd=folder)


if __name__ == "__main__":
    main()
