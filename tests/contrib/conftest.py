"""People who look at the monitoring views."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.admin.operators import operator


@pytest.fixture
def viewer() -> Client:
    return operator("view_lockrecord")
