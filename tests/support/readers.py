"""Somebody who reads a page and runs its examples, from top to bottom."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
import types
import unittest
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from unittest.mock import MagicMock, patch

import django
from django.core.management import get_commands, load_command_class
from django.test import override_settings

from tests.support.documents import ROOT, Example
from tests.support.jobs import only_jobs_of
from tests.support.stores import chosen_store

FILE = re.compile(r"# ([\w/]+\.py)$", re.MULTILINE)
"""The first line of an example that is a file of the reader's project."""

DIFFERS = {
    r"[\w.-]+:\d+:[0-9a-f]{16}": "HOLDER",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([+-]\d\d:\d\d)?": "MOMENT",
    r"\b(\d+(\.\d+)?(ms|[dhms]))+\b": "DURATION",
    r"\s+": " ",
}
"""What differs from run to run in a command's output, and stands for it."""

SETTINGS = """
SECRET_KEY = "only for tests"
INSTALLED_APPS = ["django_shedlock"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
"""
"""The project in which the reader's own test files run."""

NAP = """
import time
from pathlib import Path

def sleep(seconds):
    Path("asleep").touch()
    until = time.monotonic() + 60
    while not Path("awake").exists() and time.monotonic() < until:
        time.sleep(0.05)
"""
"""Stands for ``time`` in the jobs of the tutorial."""


async def fetch_orders(tenant: str) -> None:
    """Stand for a coroutine function of the reader's."""


def stand_ins() -> dict[str, Any]:
    """Return what the examples call of the reader's own code."""
    return {
        "customers_with_news": lambda *groups: ["Ada", "Grace"],
        "fetch_orders": fetch_orders,
        **dict.fromkeys(("alert", "copy_everything", "delete_old_carts"), MagicMock()),
        **dict.fromkeys(("rebuild_index", "send_mail", "upload"), MagicMock()),
        "Invoice": MagicMock(),
    }


class Reader:
    """
    Runs examples in this process, on the database of the tests.

    The examples of one reader share their names. Files become modules, ``settings.py``
    overrides settings, commands are called and their output is compared. All of it
    ends with the context.
    """

    def __init__(self, folder: Path):
        self.names = {"__name__": "reader", **stand_ins()}
        self.status = 0
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(only_jobs_of())
        if django.VERSION < (6,):
            self._put_module("django.tasks", importlib.import_module("django_tasks"))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.close()

    def run(self, example: Example) -> None:
        """Run the example, or raise what is wrong with it."""
        if example.mark.startswith("not run:") or example.language == "text":
            return
        if example.mark.startswith("servers only:") and chosen_store() == "sqlite":
            return
        getattr(self, f"_run_{example.language}")(example.text)

    def _run_hidden(self, text: str) -> None:
        exec(text, self.names)

    def _run_python(self, text: str) -> None:
        file = FILE.match(text)
        if file is None:
            self._run_in(self.names, text)
        elif file[1] == "settings.py":
            self._override_settings(text)
        elif Path(file[1]).name.startswith(("test_", "conftest")):
            self._run_pytest(file[1], text)
        else:
            self._make_module(file[1], text)

    def _run_in(self, names: dict[str, Any], text: str) -> None:
        known = set(names)
        exec(compile(text, "<example>", "exec"), names)
        for name in set(names) - known:
            if _is_test_case(names[name]):
                _run_unittest(names[name])

    def _make_module(self, file: str, text: str) -> None:
        self._write(file, text)
        *packages, name = file.removesuffix(".py").split("/")
        for depth in range(1, len(packages) + 1):
            self._module(".".join(packages[:depth])).__path__ = []
        module = self._module(".".join([*packages, name]))
        vars(module).update(stand_ins())
        exec(compile(text, file, "exec"), vars(module))
        if packages[-2:] == ["management", "commands"]:
            commands = patch.dict(get_commands(), {name: packages[0]})
            self._stack.enter_context(commands)

    def _module(self, name: str) -> Any:
        module = types.ModuleType(name)
        self._put_module(name, module)
        return module

    def _put_module(self, name: str, module: types.ModuleType) -> None:
        # Not with patch.dict, which would forget what the examples import.
        before = sys.modules.get(name)
        self._stack.callback(_set_module, name, before)
        _set_module(name, module)

    def _write(self, file: str, text: str) -> Path:
        path = self._folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    def _override_settings(self, text: str) -> None:
        settings: dict[str, Any] = {}
        exec(text, settings)
        values = {key: settings[key] for key in settings if key.isupper()}
        for app in values.pop("INSTALLED_APPS", []):
            __import__(app)
        _check_logging(values.pop("LOGGING", None))
        self._stack.enter_context(override_settings(**values))
        if "CRONJOBS" in values:
            _run_cronjobs()

    def _run_pytest(self, file: str, text: str) -> None:
        path = self._write(file, text)
        self._write("reader_settings.py", SETTINGS)
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "reader_settings",
            "PYTHONPATH": os.pathsep.join([str(self._folder), str(ROOT)]),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path]
        if path.name == "conftest.py":
            command[-1:] = ["--collect-only", "--rootdir", path.parent, path.parent]
        done = subprocess.run(
            command, env=environment, cwd=self._folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout

    def _run_doctest(self, text: str) -> None:
        test = doctest.DocTestParser().get_doctest(text, {}, "example", None, 0)
        test.globs = self.names
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        out = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
        runner.run(test, out=out.write, clear_globs=False)
        assert not runner.failures, out.getvalue()

    def _run_console(self, text: str) -> None:
        for command, expected in parse_console(text):
            if command == "echo $?":
                output = str(self.status)
            else:
                self.status, output = self._call(command)
            compare(command, expected, output, self.status)

    def _call(self, command: str) -> tuple[int, str]:
        python, manage, name, *arguments = shlex.split(command)
        assert (python, manage) == ("python", "manage.py"), command
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                called = load_command_class(get_commands()[name], name)
                called.run_from_argv([manage, name, *arguments])
            except SystemExit as end:
                return int(end.code or 0), out.getvalue()
        return 0, out.getvalue()


class Machine:
    """
    Runs the examples of the tutorial in a shell, in a project that they make.

    A job in the background, or one that is to be killed, sleeps for as long as it takes
    the reader to do that; the others don't.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._awake, self._asleep = folder / "awake", folder / "asleep"
        self._awake.touch()
        (folder / "nap.py").write_text(NAP)
        self._background: subprocess.Popen[str] | None = None
        self._promised = ""
        without = {"DJANGO_SETTINGS_MODULE", "PYTHONPATH"}
        self._environment = {
            **{key: os.environ[key] for key in os.environ if key not in without},
            "PATH": os.pathsep.join(
                [str(Path(sys.executable).parent), "/usr/bin:/bin"]
            ),
            "PYTHONUNBUFFERED": "1",
            "LOGNAME": "deploy",
        }

    def run(self, example: Example) -> None:
        """Run the example, or raise what is wrong with it."""
        if example.mark.startswith("not run:") or example.language == "text":
            return
        if example.language == "python":
            self._write(example)
            return
        if example.mark == "after the background":
            self._end_background()
        steps = parse_console(example.text)
        if example.mark == "in the background":
            [(command, self._promised)] = steps
            self._awake.unlink()
            self._background = self._start(command)
            self._wait_for_first_line()
        else:
            self._run_steps(steps)

    def _write(self, example: Example) -> None:
        file = FILE.match(example.text)
        assert file, f"The tutorial should say of which file this is:\n{example.text}"
        path = self._folder / file[1]
        before = path.read_text() if path.name == "settings.py" else ""
        text = example.text.replace("import time\n", "import nap as time\n")
        path.write_text(f"{before}{text}\n")

    def _start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _wait_for_first_line(self) -> None:
        assert self._background
        assert self._background.stdout
        first, _, self._promised = self._promised.partition("\n")
        assert self._background.stdout.readline().strip() == first

    def _end_background(self) -> None:
        assert self._background
        self._awake.touch()
        output, _ = self._background.communicate(timeout=60)
        assert (output.strip(), self._background.returncode) == (self._promised, 0)

    def _run_steps(self, steps: list[tuple[str, str]]) -> None:
        status = 0
        for command, expected in steps:
            if "kill -9" in command:
                compare(command, expected, self._run_until_killed(command), 0)
                continue
            shell = self._start(f"(exit {status}); {command}")
            output, _ = shell.communicate(timeout=60)
            status = shell.returncode
            compare(command, expected, output, status)

    def _run_until_killed(self, command: str) -> str:
        self._awake.unlink()
        self._asleep.unlink(missing_ok=True)
        until_asleep = "until [ -e asleep ]; do sleep 0.1; done"
        shell = self._start(command.replace("sleep 3", until_asleep))
        output, _ = shell.communicate(timeout=60)
        self._awake.touch()
        return output.replace("Killed", "")


def parse_console(text: str) -> list[tuple[str, str]]:
    """Return the commands of an example, each with the output that it shows."""
    steps = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not steps[0], f"It should begin with a command: {text}"
    pairs = [step.partition("\n") for step in steps[1:]]
    return [(command, expected.strip()) for command, _, expected in pairs]


def compare(command: str, expected: str, output: str, status: int) -> None:
    """Fail unless the output is as shown; if none is shown, any will do."""
    assert status == 0 or expected, f"{command}: {status}\n{output}"
    if expected:
        assert masked(output) == masked(expected), f"{command} printed\n{output}"


def masked(output: str) -> str:
    """Return the output without what differs from run to run."""
    for pattern, name in DIFFERS.items():
        output = re.sub(pattern, name, output)
    return output.strip()


def _set_module(name: str, module: types.ModuleType | None) -> None:
    if module is None:
        del sys.modules[name]
    else:
        sys.modules[name] = module


def _is_test_case(value: Any) -> bool:
    return (
        isinstance(value, type)
        and issubclass(value, unittest.TestCase)
        and value.__module__ == "reader"
    )


def _run_unittest(case: type[unittest.TestCase]) -> None:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun
    assert result.wasSuccessful(), result.errors + result.failures


def _check_logging(configuration: dict[str, Any] | None) -> None:
    # In a process of its own, since it would replace the handlers of this one.
    if configuration is not None:
        script = f"import logging.config as c; c.dictConfig({configuration!r})"
        subprocess.run([sys.executable, "-c", script], check=True)


def _run_cronjobs() -> None:
    from django_crontab.crontab import Crontab

    manage = str(ROOT / "example_project" / "manage.py")
    failed = patch("django_crontab.crontab.logger.exception", side_effect=_raise)
    with override_settings(CRONTAB_DJANGO_MANAGE_PATH=manage), failed:
        crontab = Crontab(readonly=True)
        for job in crontab.settings.CRONJOBS:
            crontab.run_job(crontab._Crontab__hash_job(job))


def _raise(*args: Any) -> None:
    raise
