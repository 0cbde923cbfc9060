"""What differs while a project's tests run: no other module knows that they do."""

import sys
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

# Note [In a project's tests]
# A plain ``TestCase``, and pytest-django's ``db``, work without any helper of ours, so
# this module finds out by itself where it is. The rest of the package asks only about
# connections and databases. Outside tests the answers are no.


def is_only_connection(connection: BaseDatabaseWrapper) -> bool:
    """
    Return whether each statement for its database must run on this connection.

    This is true in Django's ``TestCase``, also inside an ``atomic()`` of the test or
    the project. Its transaction is never committed, so no other connection sees its
    rows. It is also true of a database that Django's tests forbid: this connection
    raises their error.
    """
    if "connect" in vars(connection):
        testcases = sys.modules.get("django.test.testcases")
        failure = getattr(testcases, "_DatabaseFailure", ())
        if isinstance(vars(connection)["connect"], failure):
            return True
    blocks: list[Any] = connection.atomic_blocks
    return any(block._from_testcase for block in blocks)


def are_databases_temporary() -> bool:
    """
    Return whether the databases were made by this run of tests, which drops them.

    No other process migrates them. Their names differ from those in the settings, and a
    database with an open connection can't be dropped.
    """
    # The outbox of mails does not tell: Django's locmem backend makes it anywhere.
    set_up = sys.modules.get("django.test.utils")
    return set_up is not None and hasattr(set_up._TestState, "saved_data")
