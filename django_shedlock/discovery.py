"""Find the modules of the installed apps that decorate jobs."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from django.apps import AppConfig, apps

MARK = "scheduler_lock"
"""A module with a decorated job has this word in its source."""

logger = logging.getLogger("django_shedlock")


def import_decorated_modules() -> None:
    """
    Import the modules in which the project's apps may decorate jobs.

    They are an app's own modules and its management commands, which Django itself
    imports no sooner than they are needed. Only those whose source names the decorator
    are imported; one that cannot be imported is logged and left out.
    """
    for app in apps.get_app_configs():
        for name in _decorated_modules(app):
            try:
                import_module(name)
            except Exception:
                logger.debug(
                    "Could not import %s to look for jobs.", name, exc_info=True
                )


def _decorated_modules(app: AppConfig) -> Iterator[str]:
    for folder in (Path(), Path("management", "commands")):
        directory = Path(app.path, folder)
        package = ".".join([app.name, *folder.parts])
        for module in pkgutil.iter_modules([str(directory)]):
            source = directory / f"{module.name}.py"
            if not module.name.startswith("test") and _has_mark(source):
                yield f"{package}.{module.name}"


def _has_mark(source: Path) -> bool:
    try:
        return MARK in source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
