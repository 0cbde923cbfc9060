"""People who look at the monitoring views, and projects with workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.contrib.celery_workers import MakeProject, Project
from tests.contrib.queues.workers import Workers
from tests.support.operators import operator


@pytest.fixture
def viewer() -> Client:
    return operator("view_lockrecord")


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with Workers(tmp_path) as started:
        yield started


@pytest.fixture
def make_project(tmp_path: Path) -> Iterator[MakeProject]:
    made: list[Project] = []

    def make(**options: Any) -> Project:
        made.append(Project(tmp_path, **options))
        return made[-1]

    yield make
    for project in made:
        project.stack.close()


@pytest.fixture
def project(make_project: MakeProject) -> Project:
    return make_project()
