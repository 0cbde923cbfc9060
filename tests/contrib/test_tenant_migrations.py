"""Pods that migrate the schemas of django-tenants."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import DjangoDbBlocker

from tests.support.deploys import Deploy, new_deploy
from tests.support.waiting import STARTUP_PATIENCE, wait_for

pytestmark = pytest.mark.postgres_only

SETTINGS = """
SECRET_KEY = "secret"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
SHARED_APPS = [
    "django_tenants",
    "django.contrib.contenttypes",
    "customers",
    "django_shedlock",
]
TENANT_APPS = ["deployed"]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
TENANT_MODEL, TENANT_DOMAIN_MODEL = "customers.Tenant", "customers.Domain"
SHEDLOCK_COMMANDS = {
    "migrate": {"wait": "30m", "migrates": True},
    "migrate_schemas": {"wait": "30m", "migrates": True},
}
"""
MODELS = """
from django.db import models
from django_tenants.models import DomainMixin, TenantMixin

class Tenant(TenantMixin):
    auto_create_schema = False

class Domain(DomainMixin):
    pass
"""
MIGRATION = """
import time
from pathlib import Path

from django.db import migrations

here = Path(__file__).parents[2]

def wait(apps, schema_editor):
    with (here / "log").open("a") as log:
        print(schema_editor.connection.schema_name, file=log)
    while not (here / "go").exists():
        time.sleep(0.01)

class Migration(migrations.Migration):
    operations = [migrations.RunPython(wait)]
"""
MANAGE = """
from django.core.management import execute_from_command_line
import sys

execute_from_command_line(sys.argv)
"""


@pytest.fixture
def deploy(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Deploy]:
    with django_db_blocker.unblock(), new_deploy(tmp_path) as made:
        made.prepare(
            {
                "deploy_settings.py": SETTINGS,
                "customers/__init__.py": "",
                "customers/models.py": MODELS,
                "customers/migrations/__init__.py": "",
                "deployed/__init__.py": "",
                "deployed/migrations/__init__.py": "",
                "deployed/migrations/0001_initial.py": MIGRATION,
                "manage.py": MANAGE,
            },
            engine="django_tenants.postgresql_backend",
        )
        yield made


@pytest.mark.parametrize("executor", ["standard", "multiprocessing", "subprocess"])
def test_each_schema_is_migrated_once(deploy: Deploy, executor: str) -> None:
    """Three pods migrate, from the first deploy on: two wait, and do nothing."""
    manage = [sys.executable, str(deploy.folder / "manage.py")]
    assert deploy.start([*manage, "makemigrations", "customers"]).end() == 0
    shared = [*manage, "migrate_schemas", "--shared"]
    pods = [deploy.start(shared) for _ in range(3)]
    assert [pod.end() for pod in pods] == [0, 0, 0]
    for schema in ("acme", "globex"):
        deploy.do(f"CREATE SCHEMA {schema}")
        deploy.do(f"INSERT INTO customers_tenant (schema_name) VALUES ('{schema}')")
    migrate = [*manage, "migrate_schemas", "--tenant", "--executor", executor]
    pods = [deploy.start(migrate) for _ in range(3)]
    wait_for(
        lambda: sum("this process waits" in pod.output for pod in pods) == 2,
        STARTUP_PATIENCE,
    )
    assert wait_for(deploy.log, STARTUP_PATIENCE)
    deploy.go()
    assert [pod.end() for pod in pods] == [0, 0, 0]
    assert sorted(deploy.log()) == ["acme", "globex"]
