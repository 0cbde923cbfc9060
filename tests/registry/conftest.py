from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.jobs import only_jobs_of, ran


@pytest.fixture
def no_other_jobs() -> Iterator[None]:
    """Let the test begin without jobs, and without notes of earlier runs."""
    ran.clear()
    with only_jobs_of():
        yield
