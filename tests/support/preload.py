"""Loaded once by the process from which the workers are forked."""

import os
from importlib import import_module
from importlib.util import find_spec

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

# What the workers of most tests need; each would import it again.
import django.test  # noqa: E402
import pytest  # noqa: E402, F401
from django.core.management import get_commands, load_command_class  # noqa: E402

import django_shedlock.execution.executor  # noqa: E402
import django_shedlock.providers.database  # noqa: E402, F401
import tests.support.clocks  # noqa: E402
import tests.support.leases  # noqa: E402
import tests.support.processes  # noqa: E402
import tests.support.run_conditions  # noqa: E402
import tests.support.warm  # noqa: E402, F401
from tests.support.stores import chosen_store  # noqa: E402
from tests.support.waiting import wait_for_servers  # noqa: E402

if chosen_store() == "postgres" and find_spec("celery"):  # only there its workers run
    for module in ("bin.celery", "apps.worker", "apps.beat", "concurrency.prefork"):
        import_module(f"celery.{module}")

wait_for_servers()
get_commands()
load_command_class("django_shedlock", "shedlock")
