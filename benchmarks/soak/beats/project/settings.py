"""The settings of the soak's project."""

from benchmarks.soak.beats.place import Place
from benchmarks.soak.beats.works import EXIT_TIMEOUT_SECONDS, GRACE_SECONDS

SECRET_KEY = "only for tests"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": Place.of_environment().database}
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_shedlock",
    "django_shedlock.console",
    "django_shedlock.beat",
    "benchmarks.soak.beats.project",
]
SHEDLOCK_GRACE = GRACE_SECONDS
SHEDLOCK_EXIT_TIMEOUT = EXIT_TIMEOUT_SECONDS
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"full": {"format": "%(asctime)s %(levelname)s %(message)s"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "full"},
        "journal": {
            "class": "benchmarks.soak.beats.reports.NoteReports",
            "level": "WARNING",
        },
    },
    "loggers": {
        "django_shedlock": {"handlers": ["console", "journal"], "level": "INFO"}
    },
}
