"""The settings, with a database queue for django.tasks."""

from example.settings import *  # noqa: F403
from example.settings import INSTALLED_APPS as APPS

INSTALLED_APPS = [*APPS, "django_tasks_db"]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
