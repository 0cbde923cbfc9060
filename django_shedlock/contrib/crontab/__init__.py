"""django-crontab: entries of ``CRONJOBS`` under locks."""

from django_shedlock.contrib.crontab.commands import locked_command

__all__ = ["locked_command"]
