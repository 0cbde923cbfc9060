"""People who use the admin, and the stage for scenes that a module opens once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from tests.support.operators import ALL, operator

Stage = Callable[[], AbstractContextManager[None]]
"""Makes a block in which a scene can be made; its rows are gone after the block."""


@pytest.fixture
def viewer() -> Client:
    return operator("view_lockrecord", "view_lockrun", "view_lockaction")


@pytest.fixture
def releaser() -> Client:
    return operator("view_lockrecord", "release_lockrecord")


@pytest.fixture
def chief() -> Client:
    return operator(*ALL)


@pytest.fixture(scope="module")
def stage(django_db_setup: None, django_db_blocker: Any) -> Stage:
    """
    Return a block in which a module makes a scene, and opens the pages once.

    The block ends before the tests, which only read the pages. They still need the
    mark ``django_db``: without it pytest-django may make no tables.
    """

    @contextmanager
    def block() -> Iterator[None]:
        transaction_of_test = transaction.atomic()
        # As Django's TestCase has it, so that the library reads in this transaction.
        transaction_of_test._from_testcase = True
        with django_db_blocker.unblock(), transaction_of_test:
            yield
            transaction.set_rollback(True)

    return block
