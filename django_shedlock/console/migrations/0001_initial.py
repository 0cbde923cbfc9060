from django.db import migrations, models

import django_shedlock.sql.fields


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Notice",
            fields=[
                (
                    "key",
                    django_shedlock.sql.fields.LockNameField(
                        max_length=64, primary_key=True, serialize=False
                    ),
                ),
                ("reader", models.CharField(max_length=100)),
                ("provider", models.CharField(max_length=100)),
                (
                    "lock",
                    django_shedlock.sql.fields.LockNameField(
                        blank=True, max_length=255
                    ),
                ),
                ("kind", models.CharField(max_length=20)),
                ("fact", models.TextField()),
                ("told_at", django_shedlock.sql.fields.UTCDateTimeField(null=True)),
                ("claimed_at", django_shedlock.sql.fields.UTCDateTimeField(null=True)),
                ("gone_at", django_shedlock.sql.fields.UTCDateTimeField(null=True)),
                ("is_acknowledged", models.BooleanField(default=False)),
                ("version", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "shedlock_notice",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="LockAction",
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
                ("kind", models.CharField(max_length=20, verbose_name="action")),
                (
                    "operator",
                    models.CharField(
                        blank=True, max_length=255, verbose_name="operator"
                    ),
                ),
                ("reason", models.TextField(blank=True, verbose_name="reason")),
                (
                    "locked_by",
                    models.CharField(
                        blank=True, max_length=255, verbose_name="locked by"
                    ),
                ),
                (
                    "began",
                    django_shedlock.sql.fields.UTCDateTimeField(verbose_name="began"),
                ),
                (
                    "ended",
                    django_shedlock.sql.fields.UTCDateTimeField(verbose_name="ended"),
                ),
                ("result", models.CharField(max_length=20, verbose_name="result")),
                ("detail", models.TextField(blank=True, verbose_name="detail")),
                ("facts", models.TextField(blank=True, verbose_name="acknowledged")),
                (
                    "process_is_gone",
                    models.BooleanField(default=False, verbose_name="process is gone"),
                ),
                (
                    "until",
                    django_shedlock.sql.fields.UTCDateTimeField(
                        null=True, verbose_name="until"
                    ),
                ),
            ],
            options={
                "verbose_name": "operator's action",
                "verbose_name_plural": "operators' actions",
                "db_table": "shedlock_action",
                "permissions": [
                    ("extend_lockrecord", "Can extend lock"),
                    ("pause_lockrecord", "Can pause and resume job of lock"),
                    ("acknowledge_lockrecord", "Can acknowledge findings of lock"),
                    ("run_lockrecord", "Can run job of lock"),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        fields=["name", "provider", "id"], name="shedlock_action_name"
                    ),
                    models.Index(fields=["ended"], name="shedlock_action_ended"),
                ],
            },
        ),
    ]
