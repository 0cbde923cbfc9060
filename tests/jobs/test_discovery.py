"""Where the project's jobs are looked for."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError
from django.test import override_settings

from django_shedlock import checks
from django_shedlock.jobs.discovery import import_decorated_modules, modules_of_apps
from django_shedlock.models import LockRecord
from tests.support.commands import run
from tests.support.jobs import only_jobs_of

pytestmark = pytest.mark.django_db(transaction=True)

PACKAGES = "tests.apps.packages"
MARKED = [f"{PACKAGES}.jobs.nightly", f"{PACKAGES}.tasks"]
BROKEN = "Could not import tests.apps.broken.jobs to look for jobs."


@pytest.fixture(autouse=True)
def no_other_jobs() -> Iterator[None]:
    """Forget the jobs of other tests, and those that were imported before."""
    for name in [name for name in sys.modules if name.startswith(f"{PACKAGES}.")]:
        del sys.modules[name]
    with only_jobs_of():
        yield


@pytest.mark.parametrize("apps", [[PACKAGES], [PACKAGES, f"{PACKAGES}.jobs"]])
def test_modules_of_packages_are_found_once(apps: list[str]) -> None:
    """Also a package's own module; not its programs, migrations and tests."""
    with override_settings(INSTALLED_APPS=apps):
        assert sorted(modules_of_apps()) == MARKED


def test_only_modules_with_the_mark_are_imported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What names no decorator is left alone, and so is what others import."""
    with override_settings(INSTALLED_APPS=[PACKAGES]), caplog.at_level(logging.DEBUG):
        import_decorated_modules()
    assert "Could not import" not in caplog.text
    assert set(MARKED) <= set(sys.modules)
    assert f"{PACKAGES}.jobs.plain" not in sys.modules


@override_settings(INSTALLED_APPS=["django_shedlock", PACKAGES])
def test_jobs_of_packages_are_known() -> None:
    """They are started by name, registered, and keep their records."""
    assert "has run" in run("trigger", "packages.task")
    run("catch-up")
    LockRecord.objects.update(lock_until="2020-01-01T00:00Z")
    run("prune", "--unused-for", "1d")
    names = LockRecord.objects.order_by("name").values_list("name", flat=True)
    assert list(names) == ["packages.nightly", "packages.task"]


def test_packages_of_tests_are_left_alone() -> None:
    """An app of tests has none but tests in its packages."""
    with override_settings(INSTALLED_APPS=["tests"]):
        assert [name for name in modules_of_apps() if name.count(".") > 1] == []


@pytest.fixture
def loose_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of an app that has nothing yet."""
    app = tmp_path / "loose_app"
    app.mkdir()
    (app / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "loose_app", raising=False)
    with override_settings(INSTALLED_APPS=["loose_app"]):
        yield app


def test_commands_in_folders_that_are_no_packages(loose_app: Path) -> None:
    """Django finds such commands, too."""
    commands = loose_app / "management" / "commands"
    commands.mkdir(parents=True)
    (commands / "loose.py").write_text("# scheduler_lock")
    assert list(modules_of_apps()) == ["loose_app.management.commands.loose"]


def test_names_that_only_begin_like_others(loose_app: Path) -> None:
    """What pytest and Django import themselves is left out, and nothing else."""
    for name in ("conftest", "migrations", "migrations_report", "tests", "__main__"):
        (loose_app / f"{name}.py").write_text("# scheduler_lock")
    assert list(modules_of_apps()) == ["loose_app.migrations_report"]


@pytest.mark.parametrize("end", ["SystemExit(0)", "BaseException('skipped')"])
def test_script_that_ends_the_process_ends_no_other(
    loose_app: Path, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """A command that only looks for jobs goes on, and says what it left out."""
    (loose_app / "script.py").write_text(f"# scheduler_lock\nraise {end}")
    import_decorated_modules(logging.WARNING)
    assert "Could not import loose_app.script to look for jobs." in caplog.text


@override_settings(INSTALLED_APPS=["django_shedlock", "tests.apps.broken"])
@pytest.mark.parametrize(
    "command", [["catch-up"], ["prune", "--unused-for", "1d"], ["trigger", "nothing"]]
)
def test_module_that_cannot_be_imported_is_told(
    command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Who starts jobs, or deletes records of unknown ones, warns; checks do not."""
    checks.check_jobs()
    assert BROKEN not in caplog.text
    try:
        run(*command)
    except CommandError:
        assert command[0] == "trigger"
    [record] = [r for r in caplog.records if r.getMessage() == BROKEN]
    assert record.levelname == "WARNING"
    assert "a_package_that_is_not_installed" in caplog.text
