"""Where the project's jobs are looked for."""

from __future__ import annotations

import gc
import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import pytest
from django.core.management import BaseCommand, CommandError
from django.test import override_settings

from django_shedlock import checks, current_lock, locks_held, registry, scheduler_lock
from django_shedlock.models import LockRecord
from django_shedlock.registry.discovery import (
    decorated_modules,
    import_jobs,
    named_jobs,
)
from django_shedlock.registry.jobs import (
    Job,
    decorated_job,
    registered_by_name,
    registered_jobs,
)
from django_shedlock.schedules.state import Start, Trigger
from django_shedlock.testing import held_elsewhere
from tests.support.commands import run
from tests.support.jobs import (
    app_in,
    only_jobs_of,
    ran,
    scheduled_jobs,
    unimported_jobs,
)

pytestmark = pytest.mark.django_db(transaction=True)

PACKAGES = "tests.apps.packages"
MARKED = [f"{PACKAGES}.jobs.nightly", f"{PACKAGES}.tasks"]
IMPORT = "from django_shedlock import scheduler_lock"
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
    """Modules are found once. Programs, migrations and tests are left out."""
    with override_settings(INSTALLED_APPS=apps):
        assert sorted(decorated_modules()) == MARKED


def test_only_modules_with_the_mark_are_imported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What names no decorator is left alone, and so is what others import."""
    with override_settings(INSTALLED_APPS=[PACKAGES]), caplog.at_level(logging.DEBUG):
        import_jobs()
    assert "Could not import" not in caplog.text
    assert set(MARKED) <= set(sys.modules)
    assert f"{PACKAGES}.jobs.plain" not in sys.modules


@override_settings(INSTALLED_APPS=["django_shedlock", "django_shedlock.beat", PACKAGES])
def test_jobs_of_packages_are_known() -> None:
    """Jobs in packages can be triggered and caught up, and keep their records."""
    assert "has run" in run("trigger", "packages.task")
    run("catch-up")
    LockRecord.objects.update(lock_until="2020-01-01T00:00Z", released_at=None)
    run("prune", "--unused-for", "1d")
    names = LockRecord.objects.order_by("name").values_list("name", flat=True)
    assert list(names) == ["packages.nightly", "packages.task"]


def test_registered_jobs_are_those_that_are_imported() -> None:
    """Nothing is imported to look for them, and each provider has its own."""
    task = f"{PACKAGES}.tasks"
    with unimported_jobs() as imported:
        assert registered_by_name("default") == {}
        assert imported() == []
        importlib.import_module(task)
        assert [*registered_by_name("default")] == ["packages.task"]
        assert registered_by_name("other") == {}
        with override_settings(SHEDLOCK_NAMESPACE="shop"):
            assert [*registered_by_name("default")] == ["shop.packages.task"]


def test_registered_jobs_have_fixed_names_and_valid_options() -> None:
    """A name with fields is no lock's, and a system check reports wrong options."""
    jobs = [
        scheduler_lock("import:{tenant}")(lambda tenant: None),
        scheduler_lock("wrong", lock_at_least_for="2h")(lambda: None),
        scheduler_lock("right")(lambda: None),
    ]
    assert [*registered_by_name("default")] == ["right"], jobs


def test_job_may_be_registered_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread that imports a module with jobs ends no request."""

    class Growing(WeakSet[Job]):
        others: ClassVar[list[str]] = ["second"]

        def __iter__(self) -> Iterator[Job]:
            for job in super().__iter__():
                yield job
                while self.others:
                    made.append(scheduler_lock(self.others.pop())(lambda: None))

    made = [scheduler_lock("first")(lambda: None)]
    growing = Growing(registered_jobs)
    for module in (registry.jobs, registry.decorators):
        monkeypatch.setattr(module, "registered_jobs", growing)
    # From Python 3.14 on a WeakSet is copied first, and so this call lacks the second.
    assert "first" in registered_by_name("default")
    assert sorted(registered_by_name("default")) == ["first", "second"]


@pytest.mark.parametrize("name", ["report", "fetch", "digest now"])
def test_skip_of_a_job_by_name_is_told(name: str) -> None:
    """Starting a function, a coroutine function or a command tells whether it ran."""
    with scheduled_jobs() as jobs:
        job = next(job for job in named_jobs("default") if job.name == name)
        with held_elsewhere(name):
            assert not job.start()
        assert job.start()
    assert ran == [name], jobs


def test_job_with_two_decorators_has_both_locks() -> None:
    """Started by the name of the outer lock, it holds that one and the inner one."""

    @scheduler_lock("outer", lock_at_most_for="1m")
    @scheduler_lock("inner", lock_at_most_for="1m")
    def nested() -> None:
        ran.extend(lock.name for lock in locks_held())

    ran.clear()
    [outer] = [job for job in named_jobs("default") if job.name == "outer"]
    assert outer.start()
    assert ran == ["inner", "outer"], nested


def test_start_is_for_one_job() -> None:
    """What starts a command does not start the jobs that the command calls."""
    triggers: list[str] = []

    def note() -> None:
        lock = current_lock()
        triggers.append(f"{lock.name}: {lock.configuration.start.trigger.value}")

    called = scheduler_lock("called", lock_at_most_for="1m")(note)

    @scheduler_lock("command", lock_at_most_for="1m")
    class Command(BaseCommand):
        def handle(self, *args: Any, **options: Any) -> None:
            called()
            note()

    [job] = [job for job in named_jobs("default") if job.name == "command"]
    assert job.start(Start(Trigger.OPERATOR))
    assert triggers == ["called: scheduler", "command: operator"], Command


def test_skip_of_another_job_is_no_skip_of_the_started_one() -> None:
    """Only the lock of the started job says whether it was executed."""
    job = scheduler_lock("job", lock_at_most_for="1m")(ran.clear)
    other = scheduler_lock("other", lock_at_most_for="1m")(ran.clear)

    def both() -> None:
        job()
        other()

    started = Job("job", both, decorated=decorated_job(job))
    with held_elsewhere("other"):
        assert started.start()
    with held_elsewhere("job"):
        assert not started.start()


def test_decorated_target_is_locked_no_earlier_than_by_its_decorator() -> None:
    """What is around a decorated function, or before handle(), has no lock."""
    job = scheduler_lock("job", lock_at_most_for="1m")(ran.clear)
    held: list[Any] = []

    def around() -> None:
        held.extend(locks_held())
        job()

    assert Job("job", around, decorated=decorated_job(job)).start()
    assert held == []

    @scheduler_lock("command", lock_at_most_for="1m")
    class Command(BaseCommand):
        def handle(self, *args: Any, **options: Any) -> None: ...

    started = Job("command", Command, ["--unknown"], decorated=decorated_job(Command))
    with pytest.raises(CommandError, match="unrecognized arguments"):
        started.start()
    assert not LockRecord.objects.filter(name="command").exists()


def test_job_of_a_command_that_is_not_decorated() -> None:
    """A command without the decorator runs under its job's lock, with arguments."""

    class Command(BaseCommand):
        def add_arguments(self, parser: Any) -> None:
            parser.add_argument("room")

        def handle(self, *args: Any, room: str, **options: Any) -> None:
            ran.extend([room, *(lock.name for lock in locks_held())])

    ran.clear()
    assert Job("sweep", Command).needs_arguments
    job = Job("sweep", Command, args=["hall"], options={"lock_at_most_for": "1m"})
    assert not job.needs_arguments
    assert job.start()
    assert ran == ["hall", "sweep"]


def test_packages_of_tests_are_left_alone() -> None:
    """An app of tests has none but tests in its packages."""
    with override_settings(INSTALLED_APPS=["tests"]):
        assert [name for name in decorated_modules() if name.count(".") > 1] == []


@pytest.fixture
def loose_app(tmp_path: Path) -> Iterator[Path]:
    """Return the folder of an app that has nothing yet."""
    with app_in(tmp_path) as app:
        yield app


def test_commands_in_folders_that_are_no_packages(loose_app: Path) -> None:
    """Django finds such commands, too."""
    commands = loose_app / "management" / "commands"
    commands.mkdir(parents=True)
    (commands / "loose.py").write_text(IMPORT)
    assert list(decorated_modules()) == ["loose_app.management.commands.loose"]


def test_links_lead_nowhere_twice(loose_app: Path) -> None:
    """Not even to a folder around them, which would never end."""
    jobs = loose_app / "jobs"
    jobs.mkdir()
    for package in (loose_app, jobs):
        (package / "__init__.py").touch()
    (jobs / "nightly.py").write_text(IMPORT)
    (jobs / "around").symlink_to(jobs)
    (jobs / "app").symlink_to(loose_app)
    (loose_app / "alias").symlink_to(jobs)
    assert list(decorated_modules()) == ["loose_app.jobs.nightly"]


def test_names_that_only_begin_like_others(loose_app: Path) -> None:
    """What pytest and Django import themselves is left out, and nothing else."""
    for name in ("conftest", "migrations", "migrations_report", "tests", "__main__"):
        (loose_app / f"{name}.py").write_text(IMPORT)
    assert list(decorated_modules()) == ["loose_app.migrations_report"]


@pytest.mark.parametrize(
    "code",
    [
        IMPORT,
        "from django_shedlock.registry.decorators import scheduler_lock as locked",
        "import django_shedlock as s\n@s.scheduler_lock\ndef job(): ...",
        "from .locks import *\n@scheduler_lock\ndef job(): ...",
        "def decorated():\n    from .locks import scheduler_lock",
    ],
)
def test_module_whose_code_names_the_decorator_is_found(
    loose_app: Path, code: str
) -> None:
    """A module is found however its code imports and names the decorator."""
    (loose_app / "jobs.py").write_text(code)
    assert list(decorated_modules()) == ["loose_app.jobs"]


@pytest.mark.parametrize(
    "code",
    [
        "# once locked by scheduler_lock",
        '"""Is run without @scheduler_lock."""',
        'names = ["scheduler_lock", f"scheduler_lock"]',
        "from .locks import scheduler_lock_of_ours",
    ],
)
def test_module_that_only_mentions_the_decorator_is_left_alone(
    loose_app: Path, code: str
) -> None:
    """A script whose comment explains why it has no lock is not run by a check."""
    (loose_app / "script.py").write_text(f"{code}\nraise SystemExit(1)")
    assert list(decorated_modules()) == []


@pytest.mark.parametrize("code", [b"def (:", b"\0", b"# coding: no\n", b"(" * 10_000])
def test_module_that_cannot_be_read_is_imported_to_tell_why(
    loose_app: Path, code: bytes
) -> None:
    """What is no Python ends no check, and stays no secret."""
    (loose_app / "jobs.py").write_bytes(code + b"  # scheduler_lock")
    [failed] = import_jobs()
    assert failed.msg.startswith("loose_app.jobs can't be imported")
    assert "Error: " in failed.msg


@pytest.mark.filterwarnings("error")
def test_looking_for_jobs_repeats_no_warning(loose_app: Path) -> None:
    """Python warns of a doubtful string when it compiles it, and that is enough."""
    (loose_app / "jobs.py").write_text('# scheduler_lock\nnumber = "\\d"')
    assert list(decorated_modules()) == []


def test_jobs_of_a_module_that_fails_later_are_forgotten(loose_app: Path) -> None:
    """Jobs of a module that fails on import are not registered."""
    code = "@scheduler_lock('made')\ndef made(): ...\n1 / 0"
    (loose_app / "jobs.py").write_text(f"{IMPORT}\n{code}")
    [failed] = import_jobs()
    gc.collect()
    assert "ZeroDivisionError: division by zero" in failed.msg
    assert list(registered_jobs) == []


SILENT = "type('Silent', (Exception,), {'__str__': lambda self: exit()})()"
"""An exception whose ``str()`` raises ``SystemExit``."""


@pytest.mark.parametrize("end", ["SystemExit(0)", "BaseException('skipped')", SILENT])
def test_script_that_ends_the_process_ends_no_other(
    loose_app: Path, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """A command that only looks for jobs goes on, and says what it left out."""
    (loose_app / "script.py").write_text(f"{IMPORT}\nraise {end}")
    import_jobs(logging.WARNING)
    assert "Could not import loose_app.script to look for jobs." in caplog.text


@override_settings(
    INSTALLED_APPS=["django_shedlock", "django_shedlock.beat", "tests.apps.broken"]
)
@pytest.mark.parametrize(
    "command", [["catch-up"], ["prune", "--unused-for", "1d"], ["trigger", "nothing"]]
)
def test_module_that_cannot_be_imported_is_told(
    command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Who starts jobs, or deletes records of unknown ones, logs it; a check tells."""
    [message] = checks.check_jobs()
    assert message.id == "shedlock.W002"
    assert BROKEN not in caplog.text
    try:
        run(*command)
    except CommandError:
        assert command[0] == "trigger"
    [record] = [r for r in caplog.records if r.getMessage() == BROKEN]
    assert record.levelname == "WARNING"
    assert "a_package_that_is_not_installed" in caplog.text
