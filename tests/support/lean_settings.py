"""The tests' settings with one app and no address, so that a process starts sooner."""

from tests.settings import *  # noqa: F403

INSTALLED_APPS = ["django_shedlock"]
ROOT_URLCONF = __name__

urlpatterns: list[object] = []
