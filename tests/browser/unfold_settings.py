"""The tests' settings with django-unfold, on the SQLite file that the tests name."""

import os

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS

DEBUG = True
"""So that ``runserver`` serves the static files."""
ALLOWED_HOSTS = ["127.0.0.1"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["SHEDLOCK_UNFOLD_FILE"],
    }
}
INSTALLED_APPS = ["unfold", *INSTALLED_APPS]
