"""What all tests of the console's command line share."""

import pytest
from django.core.cache import cache


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    """No test knows what another one was told while its store was down."""
    cache.clear()
