"""SQLite beside manage.py, or the PostgreSQL of ``DATABASE_URL``."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

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
    "NAME": os.environ.get("SQLITE_FILE", BASE_DIR / "example.sqlite3"),
    "OPTIONS": {"timeout": 20, "init_command": "PRAGMA journal_mode = WAL"},
}

DATABASES = {
    "default": postgres(os.environ["DATABASE_URL"])
    if "DATABASE_URL" in os.environ
    else SQLITE
}

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
    "django_crontab",
    "django_shedlock",
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

# Every host has this crontab; each job runs on one of them.
CRONJOBS = [
    ("*/5 * * * *", "example.jobs.refresh_rates"),
    ("0 8 * * *", "django.core.management.call_command", ["send_digest"]),
]

# The demo turns the locks off to show that its own check notices.
SHEDLOCK_ENABLED = "SHEDLOCK_OFF" not in os.environ
