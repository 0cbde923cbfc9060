"""What an operator's action is, and the one way in which each is carried out."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache, cached_property
from typing import Any

from django.dispatch import Signal
from django.utils.functional import Promise
from django.utils.translation import override

from django_shedlock.console.models import ActionKind, ActionResult
from django_shedlock.console.operators import performing
from django_shedlock.console.operators.audit import AuditedAction, write_action
from django_shedlock.exceptions import LockProviderError, described
from django_shedlock.execution.operators import condition
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.status import LockState, LockStatus
from django_shedlock.providers.base import LockProvider
from django_shedlock.signals import logger


@dataclass(frozen=True)
class Answer:
    """
    The result of an action: true if it was done.

    ``tell()`` says it in the active language, with the lock's state now; ``detail``
    does so in English, for the audit log. If ``result`` is ``STARTED``, the store's
    reply was lost and nobody knows.
    """

    result: ActionResult
    tell: Callable[[], str]
    look: Callable[[], LockStatus | None] = lambda: None
    error: BaseException | None = None
    """What the job raised."""

    def __bool__(self) -> bool:
        return self.result is ActionResult.DONE

    @property
    def detail(self) -> str:
        """The text of the audit log."""
        with override("en"):
            return self.tell()

    @cached_property
    def status(self) -> LockStatus | None:
        """The lock after the action; ``None`` if it has no record, or can't be read."""
        return self.look()


@dataclass(frozen=True)
class Option:
    """
    An option of an action: a duration or, if the default is ``False``, a switch.

    ``name`` is the keyword of ``perform``. ``flag`` is that of the command line, where
    an option without one comes after the lock. The admin's form asks for durations that
    have a ``label``; its confirmation turns switches on.
    """

    name: str
    flag: str
    help: str
    default: timedelta | bool | None = None
    """``None`` if it must be given."""
    label: Promise | None = None
    hint: Promise | str = ""
    initial: str = ""


def is_not_shown(
    before: LockStatus | None, after: LockStatus | None, **options: object
) -> bool:
    """Return that nobody knows: ``perform`` has looked at the lock already."""
    return False


@dataclass(frozen=True)
class Action:
    """
    One thing that operators can do to a lock: a row of the table ``ACTIONS``.

    The admin offers it to users with ``permission`` for locks in ``states``; a command
    line has a subcommand for each with a ``help``. ``refused`` and ``unknown`` say with
    the lock's name what was not done, ``done`` what is true now.
    """

    kind: ActionKind
    permission: str
    states: frozenset[LockState]
    question: Promise
    refused: Promise
    unknown: Promise | str = ""
    done: Callable[..., str] | Promise = performing.released
    obstacles: Callable[[LockProvider, Sequence[str]], Mapping[str, str]] = (
        lambda provider, names: {}
    )
    """Returns why it can't be done to some of these locks, whatever their states."""
    notes: Callable[[LockProvider], Sequence[str]] = lambda provider: ()
    """Returns what else an operator should know before confirming."""
    perform: Callable[..., bool] = bool
    """Is called with ``(asked, before, **options)``; returns whether it was done."""
    is_shown: Callable[..., bool] = is_not_shown
    """Whether the lock, read after a lost reply, shows that it was done."""
    success: ActionResult = ActionResult.DONE
    """The result if it was done."""
    signal: Signal | None = None
    is_audited: bool = False
    """Whether a receiver writes the row of the audit log when it was done."""
    makes: Callable[[AuditedAction], str] | None = None
    """Returns the identity of the acquisition that it makes."""
    facts: Callable[..., Sequence[str]] = lambda asked, before: ()
    """Returns the facts that it acknowledges: see ``Finding``."""
    options: Sequence[Option] = ()
    help: str = ""
    advice: Mapping[LockState, str] = field(default_factory=dict)
    """What the command line adds to a refusal because of this state."""
    refused_in: Mapping[LockState, Promise] = field(default_factory=dict)
    """The text instead of ``refused`` for this state."""
    needs_reason: bool = False
    """Whether the command line requires a reason. The admin's form always does."""
    cures: frozenset[str] = frozenset()
    """The kinds of findings that it helps with."""
    is_dangerous: bool = False
    """Whether its buttons are red."""

    @property
    def name(self) -> str:
        """Its name in the forms of the admin."""
        return f"{self.kind}_selected"

    @property
    def label(self) -> Promise | str:
        """What its buttons say."""
        return self.kind.label

    def refusal(
        self, name: str, locked_by: str | None, status: LockStatus | None
    ) -> str:
        """Say why it is not done to the acquisition ``locked_by``."""
        text = self.refused
        if status is not None:
            text = self.refused_in.get(status.state, text)
        return performing.refused(text, name, locked_by, status)

    def carry_out(
        self, asked: AuditedAction, seen: LockStatus | None = None, **options: Any
    ) -> Answer:
        """
        Do it to the acquisition that is meant, with an audit row and a signal.

        ``seen`` is the lock, if it was read before. Raises ``LockProviderError`` if the
        store failed, or if the row of an acknowledgement can't be written.
        """
        before = seen or asked.provider.status(asked.name)
        meant = asked.locked_by
        is_meant = meant in {None, before and before.locked_by}
        if is_meant:
            own = before.locked_by if before else None
            asked = replace(asked, locked_by=self.makes(asked) if self.makes else own)
            if why := self.obstacles(asked.provider, [asked.name]):
                facts = {"name": repr(asked.name), "why": why[asked.name]}
                return Answer(ActionResult.REFUSED, lambda: str(self.refused) % facts)
            lasting = options.get("lasting")
            lasting = None if lasting == FOREVER else lasting
            asked = replace(asked, facts=self.facts(asked, before), lasting=lasting)
        look = cache(asked.look)
        began = time.monotonic()
        result = ActionResult.REFUSED
        try:
            if is_meant and self.perform(asked, before, **options):
                result = self.success
        except BaseException as error:
            if not getattr(error, "is_uncertain", False):
                detail = described(error)
                if not isinstance(error, LockProviderError):
                    with override("en"):  # interrupted, perhaps after it was done
                        detail = f"{detail}; {condition(look())}"
                self._write(asked, ActionResult.FAILED, detail, began)
                raise
            after = look()
            is_ours = after is not None and after.locked_by == (asked.locked_by or "")
            is_done = is_ours and self.is_shown(before, after, **options)
            result = self.success if is_done else ActionResult.STARTED

        def tell() -> str:
            if result is self.success:
                if isinstance(self.done, Promise):
                    return str(self.done) % {"name": repr(asked.name)}
                return self.done(asked, before, look)
            if result is ActionResult.STARTED:
                return performing.unknown(self.unknown, asked.name, look())
            return self.refusal(asked.name, meant, look())

        answer = Answer(result, tell, look)
        was_written = (answer and self.is_audited) or self._write(
            asked, result, answer.detail, began
        )
        if answer and not was_written and self.kind is ActionKind.ACKNOWLEDGE:
            raise LockProviderError(
                f"Lock {asked.name!r}: nothing is acknowledged, since the audit log of "
                "operators' actions can't be written."
            )
        if answer and self.signal:
            told = {"action": asked, "answer": answer, **options}
            self.signal.send_robust(type(asked.provider), **told)
        elif result is ActionResult.STARTED:
            by = asked.operator or "an operator"
            logger.warning("%s %s asked for it: %r", answer.detail, by, asked.reason)
        return answer

    def _write(
        self, asked: AuditedAction, result: ActionResult, detail: str, began: float
    ) -> bool:
        took = timedelta(seconds=time.monotonic() - began)
        return write_action(asked, self.kind, result, detail, took=took)
