"""An operator's word that a finding is known: what it silences, and until when."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.utils.translation import gettext, gettext_lazy, pgettext_lazy

from django_shedlock.console.monitoring.findings import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.console.monitoring.traces import fact_of
from django_shedlock.console.operators.acting import Action, Option
from django_shedlock.console.operators.trail import OperatorAction
from django_shedlock.locks.pauses import FOREVER
from django_shedlock.locks.states import LockState, LockStatus
from django_shedlock.models.console import ActionKind


def of_findings(asked: OperatorAction, before: LockStatus | None) -> Sequence[str]:
    """Return the facts of all findings that the lock has now."""
    found = Search(acknowledged=True).of_locks(asked.provider, [asked.name])
    return [finding.fact for finding in found.get(asked.name, ())]


def of_expired(asked: OperatorAction, before: LockStatus | None) -> Sequence[str]:
    """Return the fact of an expired lock: an operator who releases it has looked."""
    if before is None or before.state is not LockState.EXPIRED:
        return ()
    return [fact_of(Kind.EXPIRED, before.locked_by)]


def tell(
    name: str, before: LockStatus | None, look: Callable[[], LockStatus | None]
) -> str:
    """Say that the findings of a lock are silent."""
    text = gettext(
        "The findings of lock %(name)s are acknowledged. What happens from now on is "
        "told."
    )
    return text % {"name": repr(name)}


ACKNOWLEDGE = Action(
    kind=ActionKind.ACKNOWLEDGE,
    permission="acknowledge_lockrecord",
    states=frozenset(LockState),
    label=pgettext_lazy("shedlock", "Acknowledge"),
    question=gettext_lazy(
        "The findings that the lock has now are silent. What happens from now on, such "
        "as another failure, is a finding again."
    ),
    refused=gettext_lazy("Lock %(name)s has no findings to acknowledge."),
    done=tell,
    perform=lambda asked, before, lasting: bool(asked.facts),
    facts=of_findings,
    options=[
        Option(
            "lasting",
            "--for",
            'the findings are silent for so long at the most, as in "2h"',
            default=FOREVER,
            label=pgettext_lazy("shedlock", "For"),
            hint=gettext_lazy(
                "For example 2h. If it is empty, they are silent until something new "
                "happens."
            ),
        )
    ],
    help="silence the findings that a lock has now, until something new happens",
    needs_reason=True,
)
