"""The tests' settings with another name of the table."""

import os

from tests.support.lean_settings import *  # noqa: F403

SHEDLOCK_TABLE = os.environ.get("SHEDLOCK_TEST_TABLE", "locks of ours")
