"""Find the modules that decorate jobs."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from django.apps import AppConfig, apps

MARK = b"scheduler_lock"
"""A module with a decorated job has this word in its source."""
COMMANDS = Path("management", "commands")
LEFT_OUT = {"__main__", "conftest", "migrations"}
"""Modules and packages that only their users import, as those of tests."""
TESTS = ("test", "tests")
"""The packages of an app of this name are tests, too."""

logger = logging.getLogger("django_shedlock")


def import_decorated_modules(level: int = logging.DEBUG) -> None:
    """
    Import the modules in which the project may decorate jobs.

    They are those of all ``sources``; one that cannot be imported is logged and left
    out. Nearly every command checks the project, so only who acts upon what is known
    raises the ``level``.
    """
    for name in dict.fromkeys(name for source in sources for name in source()):
        try:
            import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException:  # a script may exit, and a test skip itself
            text = "Could not import %s to look for jobs."
            logger.log(level, text, name, exc_info=True)


def modules_of_apps() -> Iterator[str]:
    """
    Return the apps' modules and management commands that name the decorator.

    Django itself imports them no sooner than they are needed.
    """
    roots = {Path(app.path) for app in apps.get_app_configs()}
    for app in apps.get_app_configs():
        yield from _modules_of_app(app, roots)


sources: list[Callable[[], Iterator[str]]] = [modules_of_apps]
"""Whatever knows names of modules; apps may add to it when they are ready."""


def _modules_of_app(app: AppConfig, roots: set[Path]) -> Iterator[str]:
    # Django finds commands in folders that are no packages, too.
    commands = Path(app.path, COMMANDS)
    yield from _decorated(commands, ".".join([app.name, *COMMANDS.parts]), roots)
    yield from _decorated(Path(app.path), app.name, roots | {commands})


def _decorated(folder: Path, package: str, others: set[Path]) -> Iterator[str]:
    for module in pkgutil.iter_modules([str(folder)]):
        path, name = folder / module.name, f"{package}.{module.name}"
        if path in others or _is_left_out(module, folder):
            continue
        if _has_mark(path / "__init__.py" if module.ispkg else path.with_suffix(".py")):
            yield name
        if module.ispkg:
            yield from _decorated(path, name, others)


def _is_left_out(module: pkgutil.ModuleInfo, folder: Path) -> bool:
    is_of_tests = module.ispkg and folder.name in TESTS
    is_test = module.name.startswith("test")
    return is_of_tests or is_test or module.name in LEFT_OUT


def _has_mark(source: Path) -> bool:
    try:
        return MARK in source.read_bytes()
    except OSError:
        return False
