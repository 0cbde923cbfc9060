"""The headline of the list of locks: what is wrong, in words, and how many are well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext, ngettext, pgettext

from django_shedlock.clocks import aware
from django_shedlock.console.monitoring.briefs import counted
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.durations import format_rough
from django_shedlock.locks.configuration import ZERO


@dataclass(frozen=True)
class Part:
    """How many findings of a kind there are; ``choice`` is its filter, if any."""

    text: str
    choice: str = ""


@dataclass(frozen=True)
class NextRun:
    """Which job runs next, and when, by the store's ``clock``."""

    name: str
    at: datetime
    clock: datetime

    def __str__(self) -> str:
        left = max(aware(self.at) - aware(self.clock), ZERO)
        text = gettext("Next: %(name)s in %(time)s")
        return text % {"name": self.name, "time": format_rough(left)}


@dataclass(frozen=True)
class Headline:
    """What is wrong, in words; ``rest`` says how many jobs are well."""

    parts: Sequence[Part]
    rest: str

    def __str__(self) -> str:
        wrong = ", ".join(part.text for part in self.parts)
        return " · ".join(filter(None, [wrong, self.rest]))


def headline_of(
    of_store: Sequence[Finding],
    of_locks: Mapping[str, Sequence[Finding]],
    total: int | None,
    acknowledged: int,
    next_run: NextRun | None,
) -> Headline:
    """
    Return the headline for these findings of a store and of its locks.

    ``total`` is the number of its locks, if they were counted. The
    ``acknowledged`` locks are neither wrong nor well.
    """
    counts: dict[Kind, int] = {}
    for finding in of_store:
        counts[finding.kind] = counts.get(finding.kind, 0) + 1
    for findings in of_locks.values():
        for kind in {each.kind for each in findings if not each.is_folded}:
            counts[kind] = counts.get(kind, 0) + 1
    in_locks = {each.kind for findings in of_locks.values() for each in findings}
    parts = [
        Part(counted(kind, counts[kind]), kind if kind in in_locks else "")
        for kind in Kind
        if kind in counts and kind is not Kind.MORE
    ]
    if Kind.MORE in counts:  # nobody knows how many of the others are well
        left_out = (each.brief.meaning for each in of_store if each.kind is Kind.MORE)
        return Headline(parts, next(left_out))
    if parts or acknowledged:
        return Headline(parts, _rest(total, len(of_locks), acknowledged))
    return Headline([], _all_well(total, next_run))


def _rest(total: int | None, wrong: int, acknowledged: int) -> str:
    told = []
    if acknowledged:
        text = pgettext("shedlock", "%(count)s acknowledged")
        told.append(text % {"count": acknowledged})
    well = 0 if total is None else total - wrong - acknowledged
    if well > 0:
        told.append(pgettext("shedlock", "%(count)s well") % {"count": well})
    return " · ".join(told)


def _all_well(total: int | None, next_run: NextRun | None) -> str:
    if total == 0:
        return gettext("No locks yet")
    text = gettext("All jobs are well.")
    if total is not None:
        text = ngettext(
            "%(count)s job, all well.", "All %(count)s jobs are well.", total
        ) % {"count": total}
    return f"{text} {next_run or ''}".strip()
