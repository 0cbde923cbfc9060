"""Find and import the modules that decorate jobs."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from django.apps import apps

MARK = b"scheduler_lock"
"""A module with a decorated job has this word in its source."""
COMMANDS = Path("management", "commands")
LEFT_OUT = {"__main__", "conftest", "migrations"}
"""Modules and packages that are not searched: only their users import them."""
TESTS = ("test", "tests")
"""Packages in a folder of this name are tests, too."""

logger = logging.getLogger("django_shedlock")


def import_decorated_modules(level: int = logging.DEBUG) -> None:
    """
    Import the modules in which the project may decorate jobs.

    All ``sources`` name them; one that cannot be imported is logged and left out.
    Nearly every command checks the project, so only callers that act on the jobs raise
    the ``level``.
    """
    for name in dict.fromkeys(name for source in sources for name in source()):
        try:
            import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException:  # a script may exit, and a test may skip itself
            text = "Could not import %s to look for jobs."
            logger.log(level, text, name, exc_info=True)


def modules_of_apps() -> Iterator[str]:
    """Return the apps' modules and management commands that name the decorator."""
    roots = {Path(app.path) for app in apps.get_app_configs()}
    for app in apps.get_app_configs():
        # Django finds commands even in folders that are no packages.
        commands = Path(app.path, COMMANDS)
        yield from _decorated(commands, ".".join([app.name, *COMMANDS.parts]), roots)
        yield from _decorated(Path(app.path), app.name, roots | {commands})


sources: list[Callable[[], Iterator[str]]] = [modules_of_apps]
"""Where names of modules are found; apps may add to it when they are ready."""


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
