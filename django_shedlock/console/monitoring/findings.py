"""A finding: what an operator should look at. It is data; others look for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import override

from django_shedlock.clocks import aware
from django_shedlock.console.links import RUNBOOK_URL, page_of_lock
from django_shedlock.console.monitoring.advice import Advice, advice_of
from django_shedlock.console.monitoring.briefs import Brief, brief_of
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.sentences import (
    acknowledged,
    counts_as_gone,
    headline_of,
    raised,
    sentence_of,
)


def plain(value: object) -> object:
    """Return an instant as ISO 8601, a duration as seconds, and other values as is."""
    if isinstance(value, datetime):
        return aware(value).isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else value


@dataclass(frozen=True)
class Acknowledgement:
    """
    Who knows of a finding, since when, until when, and why it may wait.

    With ``process_is_gone`` the process of its run is no longer suspected.
    """

    operator: str
    at: datetime
    until: datetime | None
    reason: str
    process_is_gone: bool = False

    def __str__(self) -> str:
        text = acknowledged(self.operator, self.at, self.until, self.reason)
        return f"{text}. {counts_as_gone()}" if self.process_is_gone else text


@dataclass(frozen=True)
class Finding:
    """
    Something that an operator should look at, in a lock or, if it is ``None``, a store.

    ``fact`` is the single event or state that it is about: an acquisition, a run, a
    tick, a pause. ``params`` is what its sentence tells. ``message`` is the first line
    of what a job raised, for those who may see its runs. A finding that ``is_folded``
    has the same cause as a finding of the store, which lists its lock.
    """

    kind: Kind
    provider: str
    lock: str | None
    fact: str
    params: Mapping[str, Any] = field(default_factory=dict)
    acknowledged: Acknowledgement | None = None
    message: str = ""
    is_folded: bool = False

    @property
    def sentence(self) -> str:
        """Who, since when, and what it means, in the active language."""
        return sentence_of(self.kind, self.params)

    @property
    def brief(self) -> Brief:
        """Since when, who, and what it means, in one line in the active language."""
        return brief_of(self.kind, self.params)

    @property
    def raised(self) -> str:
        """What a job raised, as a sentence in the active language; may be empty."""
        return raised(self.message) if self.message else ""

    @property
    def advice(self) -> Advice:
        """What to do next."""
        return advice_of(self.kind, self.provider, self.lock, self.fact, self.params)

    @property
    def suspected_run(self) -> str:
        """The run that may still go on; empty if none may, or its process is gone."""
        if self.acknowledged is not None and self.acknowledged.process_is_gone:
            return ""
        if self.params.get("may_still_run", self.kind.may_still_run):
            return str(self.params["run"])
        return str(self.params.get("suspect", ""))

    @property
    def command(self) -> str:
        """A line that can be pasted into a shell, and helps; empty if none does."""
        return self.advice.command

    @property
    def link(self) -> str:
        """The address of the lock's page; empty if it has none, or no site is known."""
        return page_of_lock(self.provider, self.lock) if self.lock else ""

    @property
    def help(self) -> str:
        """The address of what such a finding means, and what to do."""
        return f"{RUNBOOK_URL}#{self.kind.replace(' ', '-')}"

    @property
    def rank(self) -> int:
        """Its place in the order of urgency; folded ones come last."""
        return self.kind.rank + len(Kind) * self.is_folded

    def as_dict(self) -> dict[str, object]:
        """Return what programs get to read, in English, in types that JSON has."""
        with override("en"):
            advice = self.advice
            return {
                "severity": self.kind.severity,
                "kind": self.kind,
                "provider": self.provider,
                "lock": self.lock,
                "fact": self.fact,
                "sentence": self.sentence,
                "command": advice.command,
                "look": advice.look,
                "command_after_look": advice.command_after_look,
                "acknowledged": str(self.acknowledged or ""),
                "message": self.raised,
                "params": {key: plain(value) for key, value in self.params.items()},
                "link": self.link,
                "help": self.help,
            }

    @property
    def headline(self) -> str:
        """Its first sentence, in English: enough to know what to look at."""
        with override("en"):
            return f"{self._about}: {headline_of(self.kind, self.params)}"

    @property
    def _about(self) -> str:
        return f"Lock {self.lock!r}" if self.lock else f"Provider {self.provider!r}"

    def __str__(self) -> str:
        with override("en"):
            return self._line(self.advice.in_brief())

    def in_detail(self) -> str:
        """Return it in English, with its fact, and with all steps of the advice."""
        with override("en"):
            return self._line(f"(fact: {self.fact}) {self.advice.in_detail()}".strip())

    def _line(self, advice: str) -> str:
        after = f"Acknowledged {self.acknowledged}" if self.acknowledged else advice
        told = " ".join(filter(None, [self.sentence, self.raised, after]))
        return f"{self._about}: {told}"
