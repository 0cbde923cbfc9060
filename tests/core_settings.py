"""The tests' settings of a project that has the core, and no other app of ours."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as ALL_APPS

INSTALLED_APPS = [app for app in ALL_APPS if not app.startswith("django_shedlock.")]
ROOT_URLCONF = "tests.core_alone.urls"
