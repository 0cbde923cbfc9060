"""The project's settings, with django-tenants."""

from tests.contrib.queues.settings import *  # noqa: F403
from tests.contrib.queues.settings import DATABASES

DATABASES["default"]["ENGINE"] = "django_tenants.postgresql_backend"
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
SHARED_APPS = ["django_shedlock", "django.contrib.contenttypes", "django_tenants"]
TENANT_APPS = ["tests.contrib.queues"]
TENANT_MODEL, TENANT_DOMAIN_MODEL = "queues.Tenant", "queues.Domain"
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
