"""Tables in which the workers of the tests leave their marks."""

from django.db import models

from django_shedlock.sql.fields import UTCDateTimeField


class Counter(models.Model):
    """A number that loses steps if two workers write at once."""

    name = models.CharField(max_length=20, unique=True)
    value = models.IntegerField(default=0)

    class Meta:
        app_label = "tests"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"


class Body(models.Model):
    """One body that ran under a lock, by the database's clock."""

    name = models.CharField(max_length=20)
    token = models.BigIntegerField()
    worker = models.CharField(max_length=20)
    begun_at = UTCDateTimeField()

    class Meta:
        app_label = "tests"

    def __str__(self) -> str:
        return f"{self.name} {self.token} on {self.worker}"


class FencedWrite(models.Model):
    """One write in a transaction that called fence(), and whose the lock was then."""

    name = models.CharField(max_length=20)
    token = models.BigIntegerField()
    token_of_lock = models.BigIntegerField()

    class Meta:
        app_label = "tests"

    def __str__(self) -> str:
        return f"{self.name} {self.token}"


class ElementSet(models.Model):
    """
    A set, kept as one text in JSON, that loses an element if two workers write at once.

    ``token`` is the greatest fencing token that the row has seen.
    """

    name = models.CharField(max_length=20, unique=True)
    elements = models.TextField(default="[]")
    token = models.BigIntegerField(default=0)

    class Meta:
        app_label = "tests"

    def __str__(self) -> str:
        return f"{self.name}: {self.elements}"
