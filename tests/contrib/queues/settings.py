"""The project's settings: locks in the store of the tests, queues in a file."""

import json
import os
from pathlib import Path

import django

from tests import settings
from tests.support.waiting import NEVER_SECONDS

SECRET_KEY = settings.SECRET_KEY
USE_TZ = settings.USE_TZ
ROOT_URLCONF = "tests.contrib.queues.web"
ALLOWED_HOSTS = ["127.0.0.1"]
DEBUG_PROPAGATE_EXCEPTIONS = True
DEFAULT_AUTO_FIELD = settings.DEFAULT_AUTO_FIELD
FOLDER = Path(os.environ["SHEDLOCK_TEST_FOLDER"])
DATABASES = {
    "default": {
        **settings.DATABASES["default"],
        **json.loads(FOLDER.joinpath("address.json").read_text()),
    },
    "queues": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / "queues.sqlite3",
        "OPTIONS": {"timeout": NEVER_SECONDS},
    },
}
DATABASE_ROUTERS = ["tests.contrib.queues.apps.QueueRouter"]
INSTALLED_APPS = [
    "django_shedlock",
    "django_q",
    "django_tasks_db",
    "huey.contrib.djhuey",
    "tests.contrib.queues",
    *os.environ.get("SHEDLOCK_TEST_APPS", "").split(),
]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
Q_CLUSTER = {
    "orm": "queues",
    "workers": 2,
    "poll": 0.1,
    "timeout": NEVER_SECONDS,
    "retry": NEVER_SECONDS + 60,
    "guard_cycle": 0.1,
}
HUEY = {
    "huey_class": "huey.SqliteHuey",
    "filename": str(FOLDER / "huey.sqlite3"),
    "immediate": False,
    "consumer": {
        "workers": 2,
        "worker_type": os.environ.get("SHEDLOCK_TEST_HUEY", "thread"),
    },
}
