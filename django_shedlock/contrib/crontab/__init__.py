"""django-crontab: entries of ``CRONJOBS`` under locks."""
