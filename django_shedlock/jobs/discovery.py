"""Find and import the modules that decorate jobs."""

from __future__ import annotations

import ast
import importlib
import logging
import pkgutil
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from django.apps import apps

from django_shedlock.exceptions import InvalidLockConfiguration, described

DECORATOR = "scheduler_lock"
"""The code of a module that decorates a job has this name."""
PACKAGE = Path(__file__).parents[1]
COMMANDS = Path("management", "commands")
LEFT_OUT = {"__main__", "conftest", "migrations"}
"""Modules and packages that are not searched: only their users import them."""
TESTS = ("test", "tests")
"""Packages in a folder of this name are tests, too."""

logger = logging.getLogger("django_shedlock")


@dataclass(frozen=True)
class FailedImport:
    """A module that can't be imported, so that its jobs are not known, and why."""

    module: str
    reason: str
    has_invalid_lock: bool
    is_of_app: bool
    """Whether ``modules_of_apps()`` found it, and not a setting that names it."""


def import_decorated_modules(level: int = logging.DEBUG) -> list[FailedImport]:
    """
    Import the modules in which the project may decorate jobs.

    All ``sources`` name them; one that cannot be imported is logged, left out and
    returned. Nearly every command checks the project, and the check tells of them, so
    only callers that act on the jobs raise the ``level``.
    """
    failed = []
    for name, source in _found().items():
        try:
            import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a script may exit, and a test may skip itself
            text = "Could not import %s to look for jobs."
            logger.log(level, text, name, exc_info=True)
            is_invalid = isinstance(error, InvalidLockConfiguration)
            is_of_app = source is modules_of_apps
            failed.append(FailedImport(name, _reason(error), is_invalid, is_of_app))
    return failed


def _found() -> dict[str, object]:
    found: dict[str, object] = {}
    for source in sources:
        for name in source():
            found.setdefault(name, source)
    return found


def modules_of_apps() -> Iterator[str]:
    """Return the apps' modules and management commands that name the decorator."""
    roots = {Path(app.path).resolve() for app in apps.get_app_configs()}
    for app in apps.get_app_configs():
        # Django finds commands even in folders that are no packages.
        commands = Path(app.path, COMMANDS)
        seen = roots | {commands.resolve()}
        yield from _decorated(commands, ".".join([app.name, *COMMANDS.parts]), seen)
        yield from _decorated(Path(app.path), app.name, seen)


sources: list[Callable[[], Iterator[str]]] = [modules_of_apps]
"""Where names of modules are found; apps may add to it when they are ready."""


def _decorated(folder: Path, package: str, seen: set[Path]) -> Iterator[str]:
    # A link may lead to a folder that is searched anyway, under its own name.
    modules = pkgutil.iter_modules([str(folder)])
    for module in sorted(modules, key=lambda each: (folder / each.name).is_symlink()):
        path, name = folder / module.name, f"{package}.{module.name}"
        if path.resolve() in seen or _is_left_out(module, folder):
            continue
        source = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
        if _names_decorator(source):
            yield name
        if module.ispkg:
            seen.add(path.resolve())
            yield from _decorated(path, name, seen)


def _is_left_out(module: pkgutil.ModuleInfo, folder: Path) -> bool:
    is_of_tests = module.ispkg and folder.name in TESTS
    is_test = module.name.startswith("test")
    return is_of_tests or is_test or module.name in LEFT_OUT


def _names_decorator(source: Path) -> bool:
    try:
        code = source.read_bytes()
    except OSError:
        return False
    return DECORATOR.encode() in code and _has_name(code, DECORATOR)


def _has_name(code: bytes, name: str) -> bool:
    try:
        with warnings.catch_warnings():  # importing gives them again
            warnings.simplefilter("ignore")
            tree = ast.parse(code)
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        return True  # importing tells what is wrong
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=found) | ast.Attribute(attr=found) | ast.alias(name=found):
                if found == name:
                    return True
    return False


def _reason(error: BaseException) -> str:
    # A text, since the error would keep alive the jobs that the module did make.
    text = described(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_machinery(frame.filename)]
    if own:
        last = [frame for frame in own if frame.filename == own[0].filename][-1]
        return f'{text} (file "{last.filename}", line {last.lineno}: {last.line})'
    if isinstance(error, SyntaxError):
        return f'{text} (file "{error.filename}")'
    return text


def _is_machinery(file: str) -> bool:
    is_importlib = file.startswith("<frozen importlib") or file == importlib.__file__
    return is_importlib or Path(file).is_relative_to(PACKAGE)
