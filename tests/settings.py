"""A project with one app, on the store that the environment names."""

import os

from tests.support.stores import chosen_store, databases

# They would lead the tests to another server than the URL's, or change how it answers.
for variable in ("PGHOSTADDR", "PGOPTIONS", "PGSERVICE"):
    os.environ.pop(variable, None)

STORE = chosen_store()
DATABASES = databases(STORE)
SECRET_KEY = "only for tests"
USE_TZ = True
TIME_ZONE = "America/Chicago"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.smtp.EmailBackend"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_shedlock",
    "django_shedlock.console",
    "django_shedlock.beat",
    "tests",
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
