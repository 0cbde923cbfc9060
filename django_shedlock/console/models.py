"""The tables of the console: actions of operators, and reported findings."""

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Self

from django.db import models
from django.utils.translation import pgettext_lazy

from django_shedlock.models.runs import PastRowsQuerySet
from django_shedlock.sql.fields import (
    Flag,
    LockNameField,
    LongText,
    Number,
    StatementNow,
    Text,
    UTCDateTimeField,
)

if TYPE_CHECKING:
    from django_stubs_ext import StrPromise


class ActionKind(models.TextChoices):
    """What an operator does to a lock."""

    RELEASE = "release", pgettext_lazy("shedlock", "Release")
    EXTEND = "extend", pgettext_lazy("shedlock", "Extend")
    RESUME = "resume", pgettext_lazy("shedlock", "Resume job")
    PAUSE = "pause", pgettext_lazy("shedlock", "Pause job")
    ACKNOWLEDGE = "acknowledge", pgettext_lazy("shedlock", "Acknowledge")
    RUN = "run", pgettext_lazy("shedlock", "Run job now")
    WITHDRAW = "withdraw", pgettext_lazy("shedlock", "Withdraw request")


class ActionResult(models.TextChoices):
    """
    The result of an action.

    With ``REQUESTED`` somebody was asked to run a job: what came of it is in the
    history of its runs. With ``STARTED`` the store did not answer, so nobody knows.
    """

    REQUESTED = "requested", pgettext_lazy("shedlock", "requested")
    STARTED = "started", pgettext_lazy("shedlock", "result not known")
    DONE = "done", pgettext_lazy("shedlock", "done")
    REFUSED = "refused", pgettext_lazy("shedlock", "refused")
    FAILED = "failed", pgettext_lazy("shedlock", "failed")


class LockActionQuerySet(PastRowsQuerySet["LockAction"]):
    """Actions by lock, by age, and by what they acknowledge."""

    def of_lock(self, name: str, provider: str) -> Self:
        """Only the actions on this lock."""
        return self.filter(name=name, provider=provider)

    def older_than(self, age: timedelta) -> Self:
        """
        Only actions that ended longer ago than this, and silence no finding any more.

        Without its row, an acknowledged finding would be reported again.
        """
        acknowledges = ~models.Q(facts="") & models.Q(result=ActionResult.DONE)
        is_over = models.Q(until__lte=StatementNow())
        return super().older_than(age).filter(~acknowledges | is_over)


class LockAction(models.Model):
    """
    What an operator did, or asked for: a row of the table ``shedlock_action``.

    It is written once, when the result is known.
    ``locked_by`` is the acquisition that it was about. ``began`` and ``ended`` are by
    the database's clock; ``detail`` says what came of it, in words. ``facts`` are those
    of the findings that it acknowledges, one a line, ``until`` then or for good. With
    ``process_is_gone`` the operator has said so of their run.
    """

    name: LockNameField = LockNameField(
        pgettext_lazy("shedlock", "name"), max_length=255
    )
    provider: Text = Text(pgettext_lazy("shedlock", "provider"), max_length=100)
    kind: Text = Text(pgettext_lazy("shedlock", "action"), max_length=20)
    operator: Text = Text(
        pgettext_lazy("shedlock", "operator"), max_length=255, blank=True
    )
    reason: LongText = LongText(pgettext_lazy("shedlock", "reason"), blank=True)
    locked_by: Text = Text(
        pgettext_lazy("shedlock", "locked by"), max_length=255, blank=True
    )
    began: UTCDateTimeField = UTCDateTimeField(pgettext_lazy("shedlock", "began"))
    ended: UTCDateTimeField = UTCDateTimeField(pgettext_lazy("shedlock", "ended"))
    result: Text = Text(pgettext_lazy("shedlock", "result"), max_length=20)
    detail: LongText = LongText(pgettext_lazy("shedlock", "detail"), blank=True)
    facts: LongText = LongText(pgettext_lazy("shedlock", "acknowledged"), blank=True)
    process_is_gone: Flag = Flag(
        pgettext_lazy("shedlock", "process is gone"), default=False
    )
    until: UTCDateTimeField = UTCDateTimeField(
        pgettext_lazy("shedlock", "until"), null=True
    )

    objects = LockActionQuerySet.as_manager()

    class Meta:
        app_label = "shedlock_console"
        db_table: ClassVar[str] = "shedlock_action"
        permissions: "ClassVar[list[tuple[str, str | StrPromise]]]" = [
            ("extend_lockrecord", "Can extend lock"),
            ("pause_lockrecord", "Can pause and resume job of lock"),
            ("acknowledge_lockrecord", "Can acknowledge findings of lock"),
            ("run_lockrecord", "Can run job of lock"),
        ]
        verbose_name: "ClassVar[StrPromise]" = pgettext_lazy(
            "shedlock", "operator's action"
        )
        verbose_name_plural: "ClassVar[StrPromise]" = pgettext_lazy(
            "shedlock", "operators' actions"
        )
        default_permissions: ClassVar[tuple[str, ...]] = ("view",)
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["name", "provider", "id"], name="shedlock_action_name"
            ),
            models.Index(fields=["ended"], name="shedlock_action_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} ({self.result})"


class Notice(models.Model):
    """
    That a reader was told of a fact: a row of the table ``shedlock_notice``.

    ``key`` is made from the reader, the provider, the lock and the fact. A host that
    raises the ``version`` which it has read tells the reader, so of several hosts one
    does: it claims that at ``claimed_at``, and has told at ``told_at``. ``gone_at`` is
    when the finding was first away, and ``is_acknowledged`` whether the reader knows
    that somebody acknowledged it.
    """

    key: LockNameField = LockNameField(primary_key=True, max_length=64)
    reader: Text = Text(max_length=100)
    provider: Text = Text(max_length=100)
    lock: LockNameField = LockNameField(max_length=255, blank=True)
    kind: Text = Text(max_length=20)
    fact: LongText = LongText()
    told_at: UTCDateTimeField = UTCDateTimeField(null=True)
    claimed_at: UTCDateTimeField = UTCDateTimeField(null=True)
    gone_at: UTCDateTimeField = UTCDateTimeField(null=True)
    is_acknowledged: Flag = Flag(default=False)
    version: Number = Number(default=0)

    class Meta:
        app_label = "shedlock_console"
        db_table: ClassVar[str] = "shedlock_notice"
        default_permissions: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"{self.reader}: {self.fact}"
