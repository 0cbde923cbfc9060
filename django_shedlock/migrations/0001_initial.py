from django.db import migrations, models

import django_shedlock.sql.fields
from django_shedlock import conf

INSTANTS = (
    "locked_at",
    "lock_at_least_until",
    "released_at",
    "extended_at",
    "tick",
    "due_at",
    "former_tick",
    "repeated_tick",
    "started_at",
    "ended_at",
    "succeeded_at",
    "lost_at",
    "unrecorded_at",
    "asked_at",
)


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LockRecord",
            fields=[
                (
                    "name",
                    django_shedlock.sql.fields.LockNameField(
                        max_length=255,
                        primary_key=True,
                        serialize=False,
                        verbose_name="name",
                    ),
                ),
                (
                    "lock_until",
                    django_shedlock.sql.fields.LockUntilField(
                        verbose_name="lock until"
                    ),
                ),
                (
                    "locked_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        verbose_name="locked at"
                    ),
                ),
                (
                    "locked_by",
                    models.CharField(max_length=255, verbose_name="locked by"),
                ),
                (
                    "lock_at_least_until",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="lock at least until"
                    ),
                ),
                (
                    "released_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="released at"
                    ),
                ),
                (
                    "extended_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="extended at"
                    ),
                ),
                (
                    "fencing_token",
                    models.BigIntegerField(db_default=0, verbose_name="fencing token"),
                ),
                (
                    "schedule",
                    models.CharField(
                        db_default=None,
                        max_length=255,
                        null=True,
                        verbose_name="schedule",
                    ),
                ),
                (
                    "tick",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="tick"
                    ),
                ),
                (
                    "due_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="due at"
                    ),
                ),
                (
                    "former_tick",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="former tick"
                    ),
                ),
                (
                    "repeated_tick",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="repeated tick"
                    ),
                ),
                (
                    "open_run",
                    models.CharField(
                        db_default=None,
                        max_length=255,
                        null=True,
                        verbose_name="open run",
                    ),
                ),
                (
                    "last_run",
                    models.CharField(
                        db_default=None,
                        max_length=255,
                        null=True,
                        verbose_name="last run",
                    ),
                ),
                (
                    "outcome",
                    models.CharField(
                        db_default=None,
                        max_length=20,
                        null=True,
                        verbose_name="outcome",
                    ),
                ),
                (
                    "started_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="started at"
                    ),
                ),
                (
                    "ended_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="ended at"
                    ),
                ),
                (
                    "succeeded_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="succeeded at"
                    ),
                ),
                (
                    "failures",
                    models.IntegerField(db_default=0, verbose_name="failures in a row"),
                ),
                (
                    "usual",
                    models.FloatField(
                        db_default=None, null=True, verbose_name="usual duration"
                    ),
                ),
                (
                    "lost_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="lost at"
                    ),
                ),
                (
                    "lost_run",
                    models.CharField(
                        db_default=None,
                        max_length=255,
                        null=True,
                        verbose_name="lost run",
                    ),
                ),
                (
                    "unrecorded_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="unrecorded at"
                    ),
                ),
                (
                    "asked_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="run requested at"
                    ),
                ),
                (
                    "asked_by",
                    models.CharField(
                        db_default=None,
                        max_length=255,
                        null=True,
                        verbose_name="run requested by",
                    ),
                ),
                (
                    "asked_why",
                    models.CharField(
                        db_default=None,
                        max_length=2000,
                        null=True,
                        verbose_name="reason of the request",
                    ),
                ),
            ],
            options={
                "verbose_name": "lock",
                "verbose_name_plural": "locks",
                "db_table": conf.TABLE.value,
                "permissions": [
                    ("release_lockrecord", "Can release lock"),
                ],
                "default_permissions": ("view",),
                "constraints": [
                    models.CheckConstraint(
                        condition=django_shedlock.sql.fields.Readable(
                            "lock_until", *INSTANTS
                        ),
                        name="shedlock_readable",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="LockRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True,
                        primary_key=True,
                        serialize=False,
                        verbose_name="ID",
                    ),
                ),
                (
                    "name",
                    django_shedlock.sql.fields.LockNameField(
                        max_length=255, verbose_name="name"
                    ),
                ),
                ("provider", models.CharField(max_length=100, verbose_name="provider")),
                (
                    "locked_by",
                    django_shedlock.sql.fields.LockNameField(
                        max_length=255, unique=True, verbose_name="locked by"
                    ),
                ),
                ("host", models.CharField(max_length=255, verbose_name="host")),
                ("pid", models.BigIntegerField(null=True, verbose_name="process")),
                (
                    "fencing_token",
                    models.BigIntegerField(null=True, verbose_name="fencing token"),
                ),
                (
                    "started",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        null=True, verbose_name="started"
                    ),
                ),
                (
                    "ended",
                    django_shedlock.sql.fields.UTCDateTimeField(verbose_name="ended"),
                ),
                ("duration", models.DurationField(null=True, verbose_name="duration")),
                ("outcome", models.CharField(max_length=20, verbose_name="outcome")),
                (
                    "exception_type",
                    models.CharField(
                        blank=True, max_length=255, verbose_name="exception"
                    ),
                ),
                (
                    "exception_message",
                    models.TextField(blank=True, verbose_name="message"),
                ),
                (
                    "exception_traceback",
                    models.TextField(blank=True, verbose_name="traceback"),
                ),
                (
                    "lost_at",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        null=True, verbose_name="lost at"
                    ),
                ),
                (
                    "trigger",
                    models.CharField(
                        blank=True, max_length=20, verbose_name="started by"
                    ),
                ),
                (
                    "operator",
                    models.CharField(
                        blank=True, max_length=255, verbose_name="operator"
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
            ],
            options={
                "verbose_name": "run",
                "verbose_name_plural": "runs",
                "db_table": "shedlock_run",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        fields=["name", "provider", "id"], name="shedlock_run_name"
                    ),
                    models.Index(fields=["outcome", "id"], name="shedlock_run_outcome"),
                    models.Index(fields=["host", "id"], name="shedlock_run_host"),
                    models.Index(fields=["ended"], name="shedlock_run_ended"),
                ],
            },
        ),
    ]
