"""Commands of other apps, locked by ``SHEDLOCK_COMMANDS``."""

from __future__ import annotations

import importlib
import logging
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core import management
from django.core.checks import CheckMessage
from django.core.management import CommandError, ManagementUtility, call_command
from django.test import override_settings

from django_shedlock import InvalidLockConfiguration, scheduler_lock
from django_shedlock.checks import check_jobs
from django_shedlock.contrib.crontab.entries import CrontabEntry
from django_shedlock.models import LockRun
from django_shedlock.registry.commands import NEVER_LOCKED_COMMANDS
from django_shedlock.registry.jobs import decorated_job, registered_jobs
from django_shedlock.testing import held_elsewhere
from tests.support.commands import run
from tests.support.jobs import DAILY, only_jobs_of, ran

pytestmark = pytest.mark.django_db(transaction=True)

SWEEP = '''
from django.core.management.base import BaseCommand
from tests.support.jobs import ran

class Command(BaseCommand):
    """Ignored, since there is a help."""

    help = "Sweeps the floor."
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("--room", default="all rooms")

    def handle(self, *args, room, **options):
        ran.append(room)
'''
SUBCLASS = "from others.management.commands.sweep import Command\n"
SWEEP_DEEPER = f"""
{SUBCLASS}
class Command(Command):
    pass
"""
DECORATED = f"""
from django_shedlock import scheduler_lock
{SUBCLASS}
@scheduler_lock("sweep by hand")
class Command(Command):
    pass
"""
TYPED = """
from django.core.management.base import BaseCommand
from tests.support.jobs import ran

class Typed(type(BaseCommand)):
    # As django-typer's, whose options are the parameters of a class's own handle().
    def __new__(mcs, name, bases, attributes):
        if handle := attributes.pop("handle", None):
            attributes |= {"typed": staticmethod(handle), "handle": Typed.handle}
        return super().__new__(mcs, name, bases, attributes)

    def handle(self, *args, **options):
        self.typed(options["room"])

class Command(BaseCommand, metaclass=Typed):
    requires_system_checks = []

    def add_arguments(self, parser):
        for name in self.typed.__code__.co_varnames:
            parser.add_argument(f"--{name}")

    def handle(room):
        ran.append(room)
"""
REFUSES = """
from django.core.management.base import BaseCommand

class Command(BaseCommand):
    def __init_subclass__(cls, **options):
        raise TypeError("no subclasses")
"""
IN_EXECUTE = """
from django.core.management.base import BaseCommand
from tests.support.jobs import ran

class Command(BaseCommand):
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("--room", default="all rooms")

    def execute(self, *args, **options):
        ran.append(options["room"])
        return super().execute(*args, **options)

    def handle(self, *args, room, **options):
        ran.append("end")
"""
IN_EXECUTE_DECORATED = IN_EXECUTE.replace(
    "class Command",
    "@__import__('django_shedlock').scheduler_lock('sweep')\nclass Command",
)
EXECUTE_WITHOUT_LOCK = """
from others.management.commands.sweep import Command

class Command(Command):
    def handle(self, *args, room, **options):
        pass
"""
IN_RUN_FROM_ARGV = """
from django.core.management.base import BaseCommand
from tests.support.jobs import ran

class Command(BaseCommand):
    def run_from_argv(self, argv):
        ran.append(argv[-1])

    def handle(self, *args, **options):
        pass
"""
AFTER_RUN_FROM_ARGV = """
from django.core.management.base import BaseCommand

class Command(BaseCommand):
    def run_from_argv(self, argv):
        super().run_from_argv(argv[:2])

    def handle(self, *args, **options):
        pass
"""
CLICK = """
import djclick as click
from tests.support.jobs import ran

@click.command()
@click.option("--room", default="all rooms")
def command(room):
    ran.append(room)
"""
CLICK_DECORATED = CLICK.replace(
    "def command", "@__import__('django_shedlock').scheduler_lock('sweep')\ndef command"
)
APPS = ["django_shedlock", "django_shedlock.beat", "others"]
NAME_A_COMMAND = "Give the name of a command of one of INSTALLED_APPS"
CORRECT_IT = "Correct its options."
LOCKED: dict[str, Any] = {"SHEDLOCK_COMMANDS": {"sweep": {"lock_at_most_for": "10m"}}}


@pytest.fixture(autouse=True)
def others(tmp_path: Path) -> Iterator[Callable[[str, str, str], None]]:
    """Let there be an app of other people with a command, and perhaps more."""

    def add(app: str, command: str, code: str) -> None:
        folder = tmp_path / app / "management" / "commands"
        folder.mkdir(parents=True, exist_ok=True)
        (tmp_path / app / "__init__.py").touch()
        (folder / f"{command}.py").write_text(code, encoding="utf-8")
        importlib.invalidate_caches()
        management.get_commands.cache_clear()

    add("others", "sweep", SWEEP)
    ran.clear()
    sys.path.insert(0, str(tmp_path))
    with only_jobs_of(), override_settings(INSTALLED_APPS=APPS):
        management.get_commands.cache_clear()
        yield add
    sys.path.remove(str(tmp_path))
    management.get_commands.cache_clear()
    for name in [name for name in sys.modules if name.startswith(("others", "ours"))]:
        del sys.modules[name]


def by_command_line() -> None:
    ManagementUtility(["manage.py", "sweep", "--room", "hall"]).execute()


def by_code() -> None:
    call_command("sweep", room="hall")


def by_cron() -> None:
    """As ``manage.py crontab run`` calls an entry of ``CRONJOBS``."""
    args = ["sweep", "--room", "hall"]
    CrontabEntry("* * * * *", "django.core.management.call_command", args).run()


STARTS = [by_command_line, by_code, by_cron]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("apps", [APPS, APPS[::-1]])
def test_command_is_locked(start: Callable[[], None], apps: list[str]) -> None:
    """However it is started, and wherever its app stands."""
    with override_settings(INSTALLED_APPS=apps, **LOCKED):
        with held_elsewhere("sweep"):
            start()
        assert ran == []
        start()
    assert ran == ["hall"]


@pytest.mark.parametrize("start", STARTS)
def test_command_without_the_setting_is_not_locked(start: Callable[[], None]) -> None:
    """A command runs without a lock once the setting doesn't name it."""
    with override_settings(**LOCKED):
        run("list")
    with held_elsewhere("sweep"):
        start()
    assert ran == ["hall"]


def test_subclass_of_a_locked_command_is_another_command(others: Any) -> None:
    """The other app's class stays as it was."""
    others("others", "sweep_deeper", SWEEP_DEEPER)
    with override_settings(**LOCKED):
        by_code()
        with held_elsewhere("sweep"):
            call_command("sweep_deeper", room="cellar")
    assert ran == ["hall", "cellar"]


def test_two_commands_of_one_class(others: Any) -> None:
    """Each has its own lock, and is found as its own job."""
    others("others", "tidy", SUBCLASS)
    with override_settings(SHEDLOCK_COMMANDS={"sweep": {}, "tidy": {}}):
        load = partial(management.load_command_class, "others")
        commands = [load(name) for name in ("sweep", "tidy")]
        jobs = [decorated_job(type(command)) for command in commands]
    assert [job and job.name for job in jobs] == ["sweep", "tidy"]


def test_options_are_those_of_the_decorator() -> None:
    """With a name for the lock, which may have fields for the arguments."""
    options = {"name": "sweep:{room}", "lock_at_least_for": "1m"}
    with override_settings(SHEDLOCK_COMMANDS={"sweep": options}):
        by_code()
        by_code()
        call_command("sweep", room="cellar")
    assert ran == ["hall", "cellar"]


def test_it_is_a_job_as_any_other() -> None:
    """A command in SHEDLOCK_COMMANDS can be triggered, caught up and shown."""
    commands = {"sweep": {**DAILY, "runbook": "https://example.com/sweep"}}
    with override_settings(SHEDLOCK_COMMANDS=commands):
        run("catch-up")
        run("trigger", "sweep")
        shown = run("show", "sweep")
    assert ran == ["all rooms"]
    assert LockRun.objects.get().name == "sweep"
    assert "Sweeps the floor." in shown
    assert "https://example.com/sweep" in shown


def test_jobs_go_with_the_setting() -> None:
    """A command's job disappears with the setting, so later tests don't see it."""
    with override_settings(**LOCKED):
        by_code()
        assert [job.name for job in registered_jobs] == ["sweep"]
    assert list(registered_jobs) == []


def test_decorated_command_keeps_its_lock(others: Any) -> None:
    """Two locks around one command would make two histories of it."""
    others("ours", "sweep", DECORATED)
    with override_settings(INSTALLED_APPS=["ours", *APPS], **LOCKED):
        [message] = [m for m in check_jobs() if m.id == "shedlock.E009"]
        assert "decorated, with the lock 'sweep by hand'" in message.msg
        assert message.hint == "Its options here have no effect: remove them."
        with held_elsewhere("sweep by hand"):
            by_code()
        assert ran == []
        with held_elsewhere("sweep"):
            by_code()
    assert ran == ["hall"]


@pytest.mark.parametrize(
    ("commands", "told", "hint"),
    [
        (
            {"swep": {}},
            "['swep']: there is no such command.",
            f"{NAME_A_COMMAND}. Did you mean 'sweep'?",
        ),
        ({"*": {}}, "['*']: there is no such command.", f"{NAME_A_COMMAND}."),
        ({7: {}}, "[7]: there is no such command.", f"{NAME_A_COMMAND}."),
        (
            {"runserver": {}},
            "['runserver']: this command has no business under a",
            "Remove it. A job that it starts has a lock of its own.",
        ),
        (
            {"sweep": "10m"},
            "['sweep']: SHEDLOCK_COMMANDS['sweep'] = '10m': it must be",
            CORRECT_IT,
        ),
        (
            {"sweep": {"wait": -1}},
            "['sweep']: Lock 'sweep': wait (-1) must not",
            CORRECT_IT,
        ),
        (
            {"sweep": {"on_skip": "raise"}},
            "['sweep']: Lock 'sweep': on_skip ('raise') must be \"skip\" or \"fail\"",
            CORRECT_IT,
        ),
        (
            {"sweep": {"rerun": "yes"}},
            "['sweep']: Lock 'sweep': rerun ('yes') must be True or False",
            CORRECT_IT,
        ),
        (
            {"sweep": {"unless": "room"}},
            "['sweep']: Lock 'sweep': unless ('room') must be a list of the",
            CORRECT_IT,
        ),
        (
            {"sweep": {"for": 1}},
            "['sweep']: Lock 'sweep': unknown option 'for'",
            CORRECT_IT,
        ),
        (
            {"sweep": {"migrate": True}},
            "['sweep']: Lock 'sweep': unknown option 'migrate'; there are name, "
            "lock_at_most_for, lock_at_least_for, provider, keep_alive, wait, "
            "schedule, history, description, runbook, on_skip, rerun, unless, "
            "migrates. Did you mean migrates?",
            CORRECT_IT,
        ),
        (
            {"sweep": {"name": "a:{b c}"}},
            "'a:{b c}': {b c} is no parameter of others.",
            CORRECT_IT,
        ),
        (
            {"refuses": {}},
            "['refuses']: it can't be locked: TypeError: no subclasses.",
            "Remove it, and start the command by `shedlock run`.",
        ),
    ],
)
def test_e009_entry_without_effect(
    others: Any, commands: Any, told: str, hint: str
) -> None:
    """E009 names the entry, what is wrong, and what to do."""
    others("others", "refuses", REFUSES)
    with override_settings(SHEDLOCK_COMMANDS=commands):
        [message] = [m for m in check_jobs() if m.id == "shedlock.E009"]
    assert message.msg.startswith("SHEDLOCK_COMMANDS[")
    assert told in message.msg
    assert re.search(r"[^.?][.?]$", message.msg)
    assert message.hint == hint


@pytest.mark.parametrize("code", ["1 / 0\n", "raise SystemExit(1)\n"])
def test_w002_command_that_cannot_be_imported(others: Any, code: str) -> None:
    """W002 is a warning, so it does not stop ``migrate`` and all other commands."""
    others("others", "broken", code)
    with override_settings(SHEDLOCK_COMMANDS={"broken": {}, "sweep": {}}):
        [message] = check_jobs()
        with held_elsewhere("sweep"):
            by_code()
    assert (message.id, message.is_serious()) == ("shedlock.W002", False)
    told = "SHEDLOCK_COMMANDS['broken']: it can't be imported, so it can't run: "
    assert message.msg.startswith(told)
    assert message.hint == "Install what it needs, or remove the entry."
    assert ran == []


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("code", [IN_EXECUTE, IN_EXECUTE_DECORATED])
def test_work_in_execute_is_locked(
    others: Any, start: Callable[[], None], code: str
) -> None:
    """A command that overrides execute() does nothing at all while it is skipped."""
    others("others", "sweep", code)
    with override_settings(**LOCKED):
        with held_elsewhere("sweep"):
            start()
        assert ran == []
        start()
    assert ran == ["hall", "end"]
    assert LockRun.objects.count() == 1


def test_work_in_execute_is_locked_under_a_name_with_fields(others: Any) -> None:
    """The options of execute() fill the fields of the name as those of handle() do."""
    others("others", "sweep", IN_EXECUTE)
    with override_settings(SHEDLOCK_COMMANDS={"sweep": {"name": "sweep:{room}"}}):
        with held_elsewhere("sweep:hall"):
            by_code()
            call_command("sweep", room="cellar")
    assert ran == ["cellar", "end"]


def test_execute_of_a_subclass_with_its_own_handle_is_not_locked(others: Any) -> None:
    """The lock belongs to the decorated class, whose handle() the subclass replaces."""
    others("others", "sweep", IN_EXECUTE_DECORATED)
    others("others", "deeper", EXECUTE_WITHOUT_LOCK)
    with held_elsewhere("sweep"):
        call_command("deeper", room="hall")
    assert ran == ["hall"]


@pytest.mark.parametrize("code", [IN_RUN_FROM_ARGV, AFTER_RUN_FROM_ARGV])
def test_w020_work_in_run_from_argv(others: Any, code: str) -> None:
    """W020 names a command whose run_from_argv() does the work without the lock."""
    others("others", "sweep", code)
    with override_settings(**LOCKED):
        messages = check_jobs()
    told = [
        (m.id, m.hint, "'sweep': `manage.py` runs it without" in m.msg)
        for m in messages
    ]
    hint = (
        "Move the work into handle(). If the command is not yours, start it by "
        "`manage.py shedlock run NAME -- ...` instead."
    )
    expected = {IN_RUN_FROM_ARGV: [("shedlock.W020", hint, True)]}
    assert told == expected.get(code, [])


def test_w020_command_of_django_click(others: Any) -> None:
    """A command of django-click runs without a lock, and W020 says what helps."""
    pytest.importorskip("djclick")
    others("others", "sweep", CLICK)
    with override_settings(**LOCKED):
        [message] = check_jobs()
        with held_elsewhere("sweep"):
            by_command_line()
            call_command("sweep", "--room", "cellar")
    assert ran == ["hall", "cellar"]
    assert (message.id, message.is_serious()) == ("shedlock.W020", False)
    assert "it is no BaseCommand but a djclick.adapter.CommandAdapter." in message.msg
    assert "@scheduler_lock below @click.command()" in str(message.hint)


def test_command_of_django_click_with_the_decorator(others: Any) -> None:
    """The hint of W020 works: the decorator below ``@click.command()`` locks it."""
    pytest.importorskip("djclick")
    others("others", "sweep", CLICK_DECORATED)
    with held_elsewhere("sweep"):
        by_command_line()
        call_command("sweep", "--room", "cellar")
    assert ran == []
    by_command_line()
    assert ran == ["hall"]


def test_wrong_options_stop_the_command() -> None:
    """A command with a wrong lock option fails instead of running without a lock."""
    with override_settings(SHEDLOCK_COMMANDS={"sweep": {"wait": -1}}):
        with pytest.raises(InvalidLockConfiguration, match=r"wait .-1. must"):
            by_code()
    assert ran == []


def test_sound_entries_have_nothing_to_say() -> None:
    """Neither for the command, nor for its lock."""
    with override_settings(**LOCKED):
        assert check_jobs() == []


@pytest.mark.parametrize("name", sorted(NEVER_LOCKED_COMMANDS - {"crontab"}))
def test_never_locked_commands_exist(name: str) -> None:
    """Each command in NEVER_LOCKED_COMMANDS exists and stays unwrapped."""
    with override_settings(
        INSTALLED_APPS=[*APPS, "django.contrib.staticfiles"],
        SHEDLOCK_COMMANDS={name: {}},
    ):
        command = management.load_command_class(management.get_commands()[name], name)
    assert not hasattr(command.handle, "__wrapped__")


def test_w020_decorated_command_that_another_app_hides(others: Any) -> None:
    """W020 tells it, until one of the two ways out is taken."""
    others("ours", "sweep", DECORATED)

    def warnings() -> list[CheckMessage]:
        return [message for message in check_jobs() if message.id == "shedlock.W020"]

    with override_settings(INSTALLED_APPS=[*APPS, "ours"]):
        [message] = warnings()
        told = "`manage.py sweep` runs the command of others, which stands"
        assert told in message.msg
        assert message.hint == (
            "Put ours first, or lock the other one: give it an entry in "
            "SHEDLOCK_COMMANDS."
        )
        with override_settings(**LOCKED):
            assert warnings() == []
    with override_settings(INSTALLED_APPS=["ours", *APPS]):
        assert warnings() == []


def test_w020_other_command_that_is_broken(others: Any) -> None:
    """The check goes on, whatever the other app's command raises."""
    others("ours", "tidy", DECORATED)
    others("others", "tidy", "1 / 0\n")
    with override_settings(INSTALLED_APPS=[*APPS, "ours"]):
        [message] = [m for m in check_jobs() if m.id == "shedlock.W020"]
    assert "`manage.py tidy` runs the command of others" in message.msg


def test_w020_command_that_is_made_elsewhere() -> None:
    """A class outside the commands of an app is not run by its module's name."""

    @scheduler_lock("elsewhere")
    class Command(management.BaseCommand):
        def handle(self, *args: Any, **options: Any) -> None: ...

    assert [m for m in check_jobs() if m.id == "shedlock.W020"] == []
    assert Command.__module__ == __name__


def test_w022_hint_for_the_setting(others: Any) -> None:
    """W022 gives what stands in the dict of the setting."""
    flag = '"--list", action="store_true"'
    others("others", "sweep", SWEEP.replace('"--room", default="all rooms"', flag))
    with override_settings(**LOCKED):
        [message] = [m for m in check_jobs() if m.id == "shedlock.W022"]
    assert "a call with --list seems to look only" in message.msg
    assert 'Add "unless": ["list"] to its options' in str(message.hint)


@pytest.mark.parametrize("name", ["sweep", "cleaning"])
def test_commands_that_share_a_name_on_purpose(others: Any, name: str) -> None:
    """Two commands may share a lock name on purpose, without W001."""
    others("others", "tidy", SWEEP)
    commands = {"sweep": {"name": name}, "tidy": {"name": name}}
    if name == "sweep":
        del commands["sweep"]["name"]
    with override_settings(SHEDLOCK_COMMANDS=commands):
        assert check_jobs() == []


def test_w001_command_with_the_name_of_a_function(others: Any) -> None:
    """A decorated job does not say that it shares its name on purpose."""

    @scheduler_lock("cleaning")
    def clean() -> None: ...

    with override_settings(SHEDLOCK_COMMANDS={"sweep": {"name": "cleaning"}}):
        [message] = check_jobs()
    assert message.id == "shedlock.W001"
    assert vars(clean)["shedlock_job"].path in message.msg


CALLING = """
from django.core.management import call_command
from django.core.management.base import BaseCommand
from tests.support.jobs import ran

class Command(BaseCommand):
    requires_system_checks = []

    def handle(self, *args, **options):
        ran.append("cleared")
        call_command("sweep", room="hall")
"""


def test_inner_command_goes_into_the_lock_of_the_outer_one(others: Any) -> None:
    """With one name for both, the inner one is never skipped."""
    others("others", "renew", CALLING)
    commands = {"sweep": {}, "renew": {"name": "sweep"}}
    with override_settings(SHEDLOCK_COMMANDS=commands):
        call_command("renew")
        with held_elsewhere("sweep"):
            call_command("renew")
    assert ran == ["cleared", "hall"]


@pytest.mark.parametrize("is_locked", [True, False])
def test_skip_names_the_command_that_called(
    others: Any, is_locked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says it, whether or not the outer command has a lock."""
    others("others", "renew", CALLING)
    commands: dict[str, Any] = {"sweep": {}} | ({"renew": {}} if is_locked else {})
    caplog.set_level(logging.INFO, "django_shedlock")
    with override_settings(SHEDLOCK_COMMANDS=commands), held_elsewhere("sweep"):
        ManagementUtility(["manage.py", "renew"]).execute()
    assert ran == ["cleared"]
    assert caplog.messages[-1].startswith("Lock 'sweep' not acquired: held by ")
    assert caplog.messages[-1].endswith(". The command 'renew' called it.")


def test_inner_skip_that_fails(others: Any) -> None:
    """The outer command does not go on as if the work were done."""
    others("others", "renew", CALLING)
    commands = {"sweep": {"on_skip": "fail"}, "renew": {}}
    with override_settings(SHEDLOCK_COMMANDS=commands), held_elsewhere("sweep"):
        with pytest.raises(CommandError, match="Lock 'sweep' is held by") as refused:
            call_command("renew")
    assert refused.value.returncode == 75
    assert LockRun.objects.get(name="renew").outcome == "failed"


def test_metaclass_that_reads_handle(others: Any) -> None:
    """django-typer makes a command's options of the handle() that its class defines."""
    others("others", "typed", TYPED)
    with override_settings(SHEDLOCK_COMMANDS={"typed": {}}):
        call_command("typed", "--room", "hall")
        with held_elsewhere("typed"):
            call_command("typed", "--room", "cellar")
    assert ran == ["hall"]
