"""
Check a built release, or build one and check that.

``python .ci/check_package.py [FOLDER]`` builds the source again in another
place, and compares the hashes. It asks the uploading twine, compares the wheel with the
list of files in it, and uses the wheel in a new project.
"""

from __future__ import annotations

import csv
import json
import re
import stat
import subprocess
import sys
import tarfile
import tempfile
import venv
from base64 import urlsafe_b64decode
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "django_shedlock"

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


def main(arguments: list[str]) -> None:
    """Exit with an error if the release is not what it should be."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        release = Path(*arguments) if arguments else folder / "release"
        if not arguments:
            build(ROOT, release)
        [wheel], [source] = release.glob("*.whl"), release.glob("*.tar.gz")
        check_hashes(release, source, folder)
        run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source))
        check_contents(wheel)
        check_links(wheel)
        check_use(wheel, folder)
    print("the release is complete, and can be built again")


def build(source: Path, folder: Path) -> None:
    """Build the source with the tools of a release."""
    run(str(source / ".ci" / "build"), str(folder))


def check_hashes(release: Path, source: Path, folder: Path) -> None:
    """Build what the source distribution holds, as another user in another folder."""
    with tarfile.open(source) as archive:
        archive.extractall(folder / "elsewhere", filter="data")
    unpacked = folder / "elsewhere" / source.name.removesuffix(".tar.gz")
    for path in unpacked.rglob("*"):
        path.chmod(path.stat().st_mode & stat.S_IRWXU)
    build(unpacked, folder / "again")
    built, again = digests(release), digests(folder / "again")
    assert built == again, f"two builds of one source differ: {built}, {again}"


def digests(folder: Path) -> dict[str, str]:
    """Return the hash of each file that was built."""
    files = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in files}


def check_contents(wheel: Path) -> None:
    """Compare the wheel, the list of its files in it, and the files of the package."""
    with ZipFile(wheel) as archive:
        [sbom] = [name for name in archive.namelist() if name.endswith(".cdx.json")]
        text = archive.read(sbom).decode()
        files = {
            name: sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if ".dist-info/" not in name
        }
        record = recorded(archive)
    invalid = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert invalid is None, f"not valid: {sbom}: {invalid}"
    listed = {
        each["name"]: each["hashes"][0]["content"]
        for each in json.loads(text)["components"]
    }
    assert listed == files, f"{sbom} does not list what is in the wheel"
    assert record.items() >= files.items(), "RECORD does not list what is in the wheel"
    assert files.keys() == parts(), f"not in both: {files.keys() ^ parts()}"
    component = json.loads(text)["metadata"]["component"]
    assert f"-{component['version']}-" in wheel.name, component


def recorded(archive: ZipFile) -> dict[str, str]:
    """Return the hash of each file as the wheel's RECORD has it."""
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
    found = {}
    for path, digest, _ in csv.reader(archive.read(name).decode().splitlines()):
        if digest:
            found[path] = urlsafe_b64decode(digest.removeprefix("sha256=") + "=").hex()
    return found


def parts() -> set[str]:
    """Return each file of the package, as a path in the wheel."""
    files = {path for path in PACKAGE.rglob("*") if path.is_file()}
    return {
        str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts
    }


def check_links(wheel: Path) -> None:
    """Look whether the README's links work outside the repository."""
    with ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(name).decode()
    links = re.findall(r"<(\S+?)>`__?|:: (docs/\S+|https?://\S+)", text)
    assert links, "the README has no links"
    relative = [link for pair in links for link in pair if link and "://" not in link]
    assert relative == [], f"the index can't follow {relative}"
    stable = re.findall(r"readthedocs\.io/en/stable/([\w/]+)\.html", text)
    missing = [page for page in stable if not (ROOT / f"docs/{page}.rst").is_file()]
    assert missing == [], f"no pages: {missing}"


def check_use(wheel: Path, folder: Path) -> None:
    """Install it in an environment of its own, and use it in a new project."""
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", str(wheel))
    run(python, "-W", "error", "-c", PROJECT, folder=folder)


def run(*command: str, folder: Path | None = None) -> None:
    """Run a command in ``folder``, and end if it fails."""
    status = subprocess.run(command, cwd=folder, check=False).returncode
    if status:
        sys.exit(f"{' '.join(command)}: exit status {status}")


if __name__ == "__main__":
    main(sys.argv[1:])
