"""Tables in which the workers of the tests leave their marks."""

from django.db import models


class Counter(models.Model):
    """A number that loses steps if two workers write at once."""

    name = models.CharField(max_length=20, unique=True)
    value = models.IntegerField(default=0)

    class Meta:
        app_label = "tests"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"
