"""The tests' settings with another name of the table."""

from tests.support.lean_settings import *  # noqa: F403

SHEDLOCK_TABLE = "locks of ours"
