"""What came of an operator's action, also if the store's reply was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from django.utils.translation import override

from django_shedlock.console.operators import texts
from django_shedlock.console.operators.trail import Trail
from django_shedlock.exceptions import LockProviderError, described
from django_shedlock.locks.states import LockStatus
from django_shedlock.models.console import ActionKind, ActionResult
from django_shedlock.providers.base import LockProvider

logger = logging.getLogger("django_shedlock")

Act = Callable[[], bool]
"""Does it; returns whether the store has done it."""
IsDone = Callable[[LockStatus], bool]
"""Whether the lock, read after a reply was lost, shows that it was done."""


@dataclass(frozen=True)
class Answer:
    """
    What came of an action: true if it was done.

    ``tell()`` says it in the active language, and what is true now; ``detail`` says it
    in English, as the trail does. ``status`` is the lock after the action. If
    ``result`` is ``STARTED``, the store's answer was lost and nobody knows.
    """

    result: ActionResult
    tell: Callable[[], str]
    status: LockStatus | None = None

    def __bool__(self) -> bool:
        return self.result is ActionResult.DONE

    @property
    def detail(self) -> str:
        """The text of the trail."""
        with override("en"):
            return self.tell()


def status_if_known(provider: LockProvider, name: str) -> LockStatus | None:
    """Return the lock; ``None`` if it has no record, or if the store fails."""
    with suppress(LockProviderError):
        return next(iter(provider.statuses(name)), None)
    return None


@dataclass(frozen=True)
class Attempt:
    """
    One try of an action, with its row of the trail.

    ``before`` is the lock as it was, ``locked_by`` the acquisition that is meant.
    """

    kind: ActionKind
    provider: LockProvider
    name: str
    locked_by: str | None
    before: LockStatus | None

    def answer(
        self, act: Act, is_done: IsDone, *, operator: str, reason: str
    ) -> Answer:
        """Act, and write what came of it; raise what ``act`` raises, if it is sure."""
        trail = Trail(self.provider)
        row = trail.begin(
            self.kind,
            self.name,
            operator=operator,
            reason=reason,
            locked_by=self.locked_by or "",
        )
        try:
            answer = self._answer(act, is_done)
        except BaseException as error:
            trail.end(row, self.name, ActionResult.FAILED, self._failure(error))
            raise
        trail.end(row, self.name, answer.result, answer.detail)
        if answer.result is ActionResult.STARTED:
            asked_by = operator or "an operator"
            logger.warning("%s %s asked for it: %r", answer.detail, asked_by, reason)
        return answer

    def _answer(self, act: Act, is_done: IsDone) -> Answer:
        try:
            was_done = act()
        except LockProviderError as error:
            if not error.is_uncertain:
                raise
            return self._recognised(is_done)
        after = self._after()
        if was_done:
            return self._done(after)
        facts = (self.kind, self.name, self.locked_by, after, self.before)
        return Answer(ActionResult.REFUSED, lambda: texts.refused(*facts), after)

    def _recognised(self, is_done: IsDone) -> Answer:
        after = self._after()
        if after and after.locked_by == self.locked_by and is_done(after):
            return self._done(after)
        facts = (self.kind, self.name, after)
        return Answer(ActionResult.STARTED, lambda: texts.unknown(*facts), after)

    def _done(self, after: LockStatus | None) -> Answer:
        facts = (self.kind, self.name, self.before, after)
        return Answer(ActionResult.DONE, lambda: texts.done(*facts), after)

    def _failure(self, error: BaseException) -> str:
        told = described(error)
        if isinstance(error, LockProviderError):
            return told
        with override("en"):  # it was interrupted, perhaps after it was done
            return f"{told}; {texts.condition(self._after())}"

    def _after(self) -> LockStatus | None:
        return status_if_known(self.provider, self.name)
