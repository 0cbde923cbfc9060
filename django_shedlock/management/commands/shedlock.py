"""The door to ``manage.py shedlock``, where Django looks for it."""

from django_shedlock.cli.command import Command as Command
