"""Jobs of several tenants, by django-tenants."""

from __future__ import annotations

import pytest

from tests.contrib.queues.workers import Workers


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_one_of_two_tenants_runs_the_body(workers: Workers) -> None:
    """The lock is in ``public``, which is part of each tenant's search path."""
    settings = {"DJANGO_SETTINGS_MODULE": "tests.contrib.queues.tenant_settings"}
    tenants = [
        workers.start("tests.contrib.queues.tenant", schema, **settings)
        for schema in ("acme", "globex")
    ]
    workers.notes.wait_for("run")
    workers.notes.wait_for("skip")
    workers.wait_for_beat("digest")
    workers.notes.write("may end")
    workers.finish(*tenants)
    assert (workers.notes.count("run"), workers.notes.count("skip")) == (1, 1)
