"""The door to ``manage.py shedlock``, where Django looks for it."""

from django_shedlock.console.cli import Command as Command
