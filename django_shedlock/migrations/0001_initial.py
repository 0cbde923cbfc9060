from django.db import migrations, models

import django_shedlock.fields


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LockRecord",
            fields=[
                (
                    "name",
                    django_shedlock.fields.LockNameField(
                        max_length=255,
                        primary_key=True,
                        serialize=False,
                        verbose_name="name",
                    ),
                ),
                (
                    "lock_until",
                    django_shedlock.fields.UTCDateTimeField(verbose_name="lock until"),
                ),
                (
                    "locked_at",
                    django_shedlock.fields.UTCDateTimeField(verbose_name="locked at"),
                ),
                (
                    "locked_by",
                    models.CharField(max_length=255, verbose_name="locked by"),
                ),
                (
                    "lock_at_least_until",
                    django_shedlock.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="lock at least until"
                    ),
                ),
                (
                    "released_at",
                    django_shedlock.fields.UTCDateTimeField(
                        db_default=None, null=True, verbose_name="released at"
                    ),
                ),
                (
                    "fencing_token",
                    models.BigIntegerField(db_default=0, verbose_name="fencing token"),
                ),
            ],
            options={
                "verbose_name": "lock",
                "verbose_name_plural": "locks",
                "db_table": "shedlock",
                "permissions": [("release_lockrecord", "Can release lock")],
                "default_permissions": ("view", "delete"),
            },
        ),
    ]
