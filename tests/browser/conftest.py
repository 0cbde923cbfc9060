"""A browser for the tests, logged in or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.chromium import chromium, missing_reason
from tests.support.waiting import PATIENCE


@pytest.fixture(scope="session")
def _chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    reason = missing_reason()
    if reason:
        pytest.skip(reason)
    profile: Path = tmp_path_factory.mktemp("profile")
    with chromium(profile) as driver:
        driver.implicitly_wait(PATIENCE)
        yield driver


@pytest.fixture
def browser(_chromium: Any) -> Iterator[Any]:
    """Chromium without cookies of another test."""
    yield _chromium
    _chromium.delete_all_cookies()
    _chromium.get("about:blank")
