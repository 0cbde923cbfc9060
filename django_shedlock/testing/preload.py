"""Loaded once by the process from which the contract's workers are forked."""

import django

django.setup()

import django_shedlock.execution.executor  # noqa: E402
import django_shedlock.history.recording  # noqa: E402
import django_shedlock.testing.contract  # noqa: E402, F401
