"""People who use the admin."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.support.operators import ALL, operator


@pytest.fixture
def viewer() -> Client:
    return operator("view_lockrecord", "view_lockrun", "view_lockaction")


@pytest.fixture
def releaser() -> Client:
    return operator("view_lockrecord", "release_lockrecord")


@pytest.fixture
def chief() -> Client:
    return operator(*ALL)
