"""The examples of a page: Sybil finds and runs them, in the project of a reader."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from configparser import ConfigParser
from copy import copy
from pathlib import Path
from sqlite3 import complete_statement
from types import ModuleType
from typing import Any
from unittest import SkipTest, TestCase, TestResult, defaultTestLoader
from unittest.mock import AsyncMock, MagicMock, patch

import django
import pytest
import yaml
from django.core.management import get_commands, load_command_class
from django.test import override_settings
from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator, pad
from sybil.parsers.rest import CodeBlockParser, DocTestParser, SkipParser
from sybil.typing import Evaluator, Parser

from tests.support.paths import MANAGE, ROOT
from tests.support.stores import chosen_store

FILE = re.compile(r"# ([\w/]+\.py)$", re.MULTILINE)
"""The first line of an example that is a file of the reader's project."""

IDENTITY = re.compile(r"[\w.-]+:\d+:[0-9a-f]{16}")
"""The identity of an acquisition."""

DIFFERS = {
    IDENTITY.pattern: "HOLDER",
    r"process [\w.-]+:\d+\b": "process HOLDER",
    r"host [\w.-]+: does process \d+ still run \(ps -p \d+\)": "host HOLDER",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([+-]\d\d:\d\d)?": "MOMENT",
    r"\b\d\d-\d\d \d\d:\d\d\b": "MOMENT",
    r"\b(\d+(\.\d+)?(ms|[dhms]))+\b": "DURATION",
    r"\b\d{13}\b": "TOKEN",
    r"\s+": " ",
}
"""What differs from run to run in a command's output, and stands for it."""

SETTINGS = """
SECRET_KEY = "only for tests"
INSTALLED_APPS = ["django_shedlock"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
"""
"""The project in which the reader's own test files run."""

STAND_INS = (
    *("Invoice", "alert", "copy_everything", "delete_old_carts"),
    *("rebuild_index", "send_mail", "upload"),
)
LANGUAGES = {
    "python": None,
    "sql": lambda example: (
        None if complete_statement(example.parsed) else "It is no statement."
    ),
    "console": None,
    "yaml": lambda example: yaml.safe_load(example.parsed) and None,
    "ini": lambda example: ConfigParser().read_string(example.parsed),
}
"""Each with an evaluator, unless the page's reader brings it."""
PYTEST = (
    "-m pytest -q -p no:cacheprovider -p no:hypothesispytest -p no:xdist --rootdir ."
)

run_python = PythonEvaluator()


def find_examples(page: Path, *parsers: Parser, **evaluators: Evaluator) -> Document:
    """Let Sybil read the page; each language has its evaluator."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    blocks = (
        CodeBlockParser(name, evaluators.get(name, usual))
        for name, usual in LANGUAGES.items()
    )
    return Document.parse(
        str(page), *blocks, DocTestParser(flags), SkipParser(), *parsers
    )


def run_examples(document: Document) -> None:
    """Run the examples in order. An error names the page and the line."""
    for example in document.examples():
        try:
            with contextlib.suppress(SkipTest):
                example.evaluate()
        except Exception as error:
            error.add_note(f"{Path(example.path).relative_to(ROOT)}:{example.line}")
            raise


def console(call: Callable[[str], tuple[int, str]]) -> Evaluator:
    """
    Return an evaluator of console examples. ``call`` runs one command.

    The output has to be as shown. If none is shown, the command has to succeed. Where a
    page shows an identity in an output and later in a command, the command gets the
    real one.
    """
    statuses, identities = [0], dict[str, str]()

    def evaluate(example: Example) -> str | None:
        for shown, expected in parse_console(example.parsed):
            command = IDENTITY.sub(lambda it: identities.get(it[0], it[0]), shown)
            if command == "echo $?":
                output = str(statuses[-1])
            else:
                status, output = call(command)
                statuses.append(status)
            real = IDENTITY.findall(output)
            identities.update(zip(IDENTITY.findall(expected), real, strict=False))
            if masked(output) != masked(expected) if expected else statuses[-1]:
                return f"$ {command}\n{output}\nExit status: {statuses[-1]}"
        return None

    return evaluate


def parse_console(text: str) -> list[tuple[str, str]]:
    """Return the commands of an example, each with the output that it shows."""
    steps = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not steps[0], f"It should begin with a command: {text}"
    pairs = [step.partition("\n") for step in steps[1:]]
    return [(command, expected.strip()) for command, _, expected in pairs]


def masked(output: str) -> str:
    """Return the output without what differs from run to run."""
    for pattern, name in DIFFERS.items():
        output = re.sub(pattern, name, output)
    return output.strip()


def stand_ins() -> dict[str, Any]:
    """Return what the examples call of the reader's own code."""
    return {
        **dict.fromkeys(STAND_INS, MagicMock()),
        "customers_with_news": MagicMock(return_value=["Ada", "Grace"]),
        "fetch_orders": AsyncMock(),
    }


class Project:
    """
    The project of a page's reader, in this process and on the database of the tests.

    A file becomes a module, ``settings.py`` changes settings, and commands are called.
    """

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        self._folder, self._settings = folder, settings
        self._monkeypatch = monkeypatch
        if django.VERSION < (6,):
            tasks = importlib.import_module("django_tasks")
            monkeypatch.setitem(sys.modules, "django.tasks", tasks)

    def run(self, page: Path) -> None:
        """Run all examples of the page, and then the tests in them."""
        document = find_examples(page, python=self._python, console=console(self._call))
        names = {"__name__": "reader", "store": chosen_store(), **stand_ins()}
        document.namespace.update(names)
        run_examples(document)
        run_test_cases(document.namespace)
        if any(self._folder.rglob("test_*.py")):
            self._run_pytest()

    def _python(self, example: Example) -> None:
        file = FILE.match(example.parsed)
        if not file:
            run_python(example)
        elif file[1] == "settings.py":
            self._change_settings(run_in({}, example))
        else:
            path = self._folder / file[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            # A traceback in the file has the numbers of the page's lines.
            line = example.line + example.parsed.line_offset
            path.write_text(pad(example.parsed, line), encoding="utf-8")
            if not path.name.startswith(("test_", "conftest")):
                self._import(file[1], example)

    def _import(self, file: str, example: Example) -> None:
        *packages, name = file.removesuffix(".py").split("/")
        for depth in range(1, len(packages) + 1):
            self._put(ModuleType(".".join(packages[:depth]))).__path__ = []
        module = self._put(ModuleType(".".join([*packages, name])))
        vars(module).update(stand_ins())
        run_in(vars(module), example)
        if packages[-2:] == ["management", "commands"]:
            self._monkeypatch.setitem(get_commands(), name, packages[0])

    def _put(self, module: ModuleType) -> ModuleType:
        self._monkeypatch.setitem(sys.modules, module.__name__, module)
        return module

    def _change_settings(self, names: dict[str, Any]) -> None:
        for app in names.pop("INSTALLED_APPS", []):
            importlib.import_module(app)
        for name in filter(str.isupper, names):
            setattr(self._settings, name, names[name])
        if "CRONJOBS" in names:
            run_cronjobs()

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

    def _run_pytest(self) -> None:
        apps = sorted(path.parent.name for path in self._folder.glob("*/management"))
        text = f"{SETTINGS}\nINSTALLED_APPS += {apps}\n"
        (self._folder / "reader_settings.py").write_text(text)
        self._monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "reader_settings")
        self._monkeypatch.setenv("PYTHONPATH", str(ROOT))
        command = [sys.executable, *PYTEST.split()]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def run_in(names: dict[str, Any], example: Example) -> dict[str, Any]:
    """Run the example with names of its own, and return them."""
    apart = copy(example)
    apart.namespace = names
    run_python(apart)
    return names


def run_test_cases(names: dict[str, Any]) -> None:
    """Run each ``TestCase`` that a page has defined."""
    for case in names.values():
        is_test_case = isinstance(case, type) and issubclass(case, TestCase)
        if is_test_case and case.__module__ == names["__name__"]:
            result = TestResult()
            defaultTestLoader.loadTestsFromTestCase(case).run(result)
            assert result.testsRun
            problems = [text for _, text in result.errors + result.failures]
            assert not problems, "\n".join(problems)


def run_cronjobs() -> None:
    """Run each job of ``CRONJOBS`` as a line of the crontab does."""
    from django_crontab.crontab import Crontab

    failed = patch("django_crontab.crontab.logger.exception", side_effect=RuntimeError)
    with override_settings(CRONTAB_DJANGO_MANAGE_PATH=str(MANAGE)), failed:
        crontab = Crontab(readonly=True)
        for job in crontab.settings.CRONJOBS:
            crontab.run_job(crontab._Crontab__hash_job(job))
