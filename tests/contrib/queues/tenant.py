"""Run the job for a tenant: ``python -m tests.contrib.queues.tenant SCHEMA``."""

from __future__ import annotations

import sys

import django


def run(schema: str) -> None:
    """Run the job where the tenant's tables are, or skip it."""
    from django.db import connection
    from django_tenants.utils import schema_context

    from tests.contrib.queues import jobs
    from tests.support.leases import beat_often

    beat_often()
    with schema_context(schema):
        jobs.digest()
        assert connection.schema_name == schema


if __name__ == "__main__":
    django.setup()
    run(sys.argv[1])
