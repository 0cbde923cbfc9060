"""SQLite beside manage.py, or the PostgreSQL of ``SHEDLOCK_EXAMPLE_DATABASE_URL``."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import django

BASE_DIR = Path(__file__).resolve().parent.parent


def postgres(url: str) -> dict[str, Any]:
    """Return the settings for postgres://user:password@host:5432/name, or ?host=…"""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parse_qs(parts.query).get("host", [parts.hostname or ""])[0],
        "PORT": str(parts.port or ""),
    }


SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": os.environ.get("SHEDLOCK_EXAMPLE_FILE", BASE_DIR / "example.sqlite3"),
    # Three workers write at once: they wait for each other instead of failing.
    "OPTIONS": {
        "timeout": 60,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode = WAL",
    },
}

# Not DATABASE_URL: the shell may have one for the reader's own project, and the demo
# migrates its database, and adds the superuser admin with the password admin.
DATABASE_URL = os.environ.get("SHEDLOCK_EXAMPLE_DATABASE_URL")
DATABASES = {"default": postgres(DATABASE_URL) if DATABASE_URL else SQLITE}

SECRET_KEY = "this is an example, so everybody may know it"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "example.urls"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    # Before django_crontab, so that every entry of CRONJOBS has a lock.
    "django_shedlock.contrib.crontab",
    "django_crontab",
    "django_shedlock",
    "django_shedlock.console",
    "django_shedlock.beat",
    "example",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# `manage.py crontab add` writes these lines into the crontab of each host. All hosts
# start the job, and its lock lets one of them run it.
CRONJOBS = [
    # A decorated function.
    ("*/5 * * * *", "example.jobs.refresh_rates"),
    # A management command with a decorated class, by way of call_command.
    ("0 8 * * *", "django.core.management.call_command", ["send_digest"]),
    # A function with an argument: each tenant has a lock of its own.
    ("0 6 * * *", "example.jobs.send_report", ["acme"]),
    # Somebody else's command. SHEDLOCK_COMMANDS has the options of its lock.
    ("0 4 * * *", "django.core.management.call_command", ["clearsessions"]),
    # A function without a lock of its own: name and durations come from the entry.
    ("*/10 * * * *", "example.jobs.clean_up"),
]

SHEDLOCK_COMMANDS = {
    "clearsessions": {"lock_at_most_for": "1h", "lock_at_least_for": "1m"},
}

# Where the links in mails lead, and who gets them. They are printed in the terminal.
SHEDLOCK_SITE_URL = "http://127.0.0.1:8000"
ADMINS = ["admin@example.com" if django.VERSION >= (6,) else ("", "admin@example.com")]
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.console.EmailBackend"}}
else:
    EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"

# The demo needs neither Celery nor django.tasks. Without them their examples' modules
# can't be imported.
SILENCED_SYSTEM_CHECKS = ["shedlock.W002"]

# Turn the locks off, and the demo fails, which shows that its check works.
SHEDLOCK_ENABLED = os.environ.get("SHEDLOCK_OFF") != "1"
