"""The tests' settings without Django's apps and addresses, to start sooner."""

import os

from tests.settings import *  # noqa: F403

INSTALLED_APPS = [
    "django_shedlock",
    "django_shedlock.console",
    "django_shedlock.beat",
]
ROOT_URLCONF = __name__

urlpatterns: list[object] = []

if "SHEDLOCK_TEST_TABLE" in os.environ:
    SHEDLOCK_TABLE = os.environ["SHEDLOCK_TEST_TABLE"]
