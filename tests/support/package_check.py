"""Build the package, install it elsewhere, and look whether all of it is there."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
import venv
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PARTS = """
import sys
from importlib.resources import files

package = files("django_shedlock")
missing = [part for part in sys.argv[1:] if not (package / part).is_file()]
assert not missing, f"not in the wheel: {missing}"
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


SOURCE_TESTS = (
    *(
        "tests/locks",
        "tests/schedules",
        "tests/test_docs.py",
        "tests/test_architecture.py",
    ),
    *("tests/test_models.py", "tests/test_upgrade.py"),
)
"""What runs in the unpacked source, quickly: the whole of it is collected before."""


def main() -> None:
    """Exit with an error if the installed package lacks something."""
    with tempfile.TemporaryDirectory() as folder:
        first, again = Path(folder, "first"), Path(folder, "again")
        for place in (first, again):
            run(sys.executable, "-m", "build", "-q", "--outdir", str(place), str(ROOT))
        assert digests(first) == digests(again), "two builds of one source differ"
        files = sorted(map(str, first.iterdir()))
        run(sys.executable, "-m", "twine", "check", "--strict", *files)
        [wheel], [source] = first.glob("*.whl"), first.glob("*.tar.gz")
        check_wheel(wheel, folder)
        check_source(source, folder)
    print("the wheel and the source are complete")


def digests(folder: Path) -> dict[str, str]:
    """Return the hash of each file that was built."""
    return {
        each.name: sha256(each.read_bytes()).hexdigest() for each in folder.iterdir()
    }


def check_wheel(wheel: Path, folder: str) -> None:
    """Install it in an environment of its own, and use it in a new project."""
    environment = Path(folder, "environment")
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", str(wheel))
    run(python, "-W", "error", "-c", PARTS, *parts(), folder=folder)
    run(python, "-W", "error", "-c", PROJECT, folder=folder)
    [made_of] = environment.glob("lib/*/site-packages/*.dist-info/sboms/*.json")
    component = json.loads(made_of.read_text())["metadata"]["component"]
    assert f"-{component['version']}-" in wheel.name, component


def check_source(source: Path, folder: str) -> None:
    """Run tests of the source where it was unpacked."""
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    unpacked = str(Path(folder, source.name.removesuffix(".tar.gz")))
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    run(*pytest, "--collect-only", "-qq", folder=unpacked, quiet=True)
    run(*pytest, *SOURCE_TESTS, folder=unpacked, quiet=True)


def parts() -> list[str]:
    """Return each file of the package, as a path inside it."""
    package = ROOT / "django_shedlock"
    files = (path.relative_to(package) for path in package.rglob("*") if path.is_file())
    return sorted(str(file) for file in files if "__pycache__" not in file.parts)


def run(*command: str, folder: str | None = None, quiet: bool = False) -> None:
    """Run a command in ``folder``, and end with what it printed if it fails."""
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(command, cwd=folder, stdout=output, text=True, check=False)
    if done.returncode:
        said = f"{' '.join(command)}: exit status {done.returncode}"
        sys.exit(f"{done.stdout or ''}{said}")


if __name__ == "__main__":
    main()
