"""The layers of the package, and the page that shows them."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.support.paths import ROOT


def layers() -> list[list[str]]:
    """Return what stands on each layer, the top one first, as import-linter has it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [found] = [
        contract["layers"]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == ["django_shedlock"]
    ]
    return [layer.split(" : ") for layer in found]


def test_page_shows_the_layers() -> None:
    """The picture on the page of the architecture shows what import-linter checks."""
    path = ROOT / "docs" / "explanation" / "architecture.rst"
    shown = re.findall(
        r'\[label = "(\d)  [^"\\]*\\n([^"\\]*)', path.read_text(encoding="utf-8")
    )
    names = [" · ".join(layer) for layer in layers()]
    assert shown == [(str(len(names) - n), each) for n, each in enumerate(names)]


DISCOVERED_IN_APPS = {
    "actors": "dramatiq",
    "cron": "django-cron",
    "documents": "django-elasticsearch-dsl",
    "huey_tasks": "huey",
    "indexes": "django-haystack",
    "jobs": "django-extensions",
    "receivers": "projects that import them in every app",
    "rules": "django-rules",
    "schema": "graphene-django",
    "search_indexes": "django-haystack",
    "tasks": "Celery, huey, django-tasks and django-q2",
    "translation": "django-modeltranslation",
}
"""Modules that popular apps import from each installed app, and one that does."""
APPS = [
    "django_shedlock",
    "django_shedlock.contrib.celery",
    "django_shedlock.contrib.crontab",
    "django_shedlock.contrib.opentelemetry",
    "django_shedlock.contrib.pings",
    "django_shedlock.contrib.sentry",
]


@pytest.mark.parametrize("app", APPS)
def test_no_app_has_a_module_that_others_discover(app: str) -> None:
    """A module with such a name would be taken for the other package's plug-in."""
    folder = ROOT.joinpath(*app.split("."))
    names = {path.stem for path in folder.iterdir() if path.stem != "__pycache__"}
    assert names & set(DISCOVERED_IN_APPS) == set()
