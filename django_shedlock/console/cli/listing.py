"""``manage.py shedlock list`` with the findings of each lock."""

from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass, field

from django.core.management.color import Style

from django_shedlock.cli import base, listing, terminal
from django_shedlock.console.cli.findings import finding_line
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.search import Search
from django_shedlock.execution.skips import PROGRAM
from django_shedlock.locks.status import LockStatus
from django_shedlock.providers.base import LockProvider, LockQuery
from django_shedlock.providers.database.reading import batches


@dataclass
class ListedLocksWithFindings(listing.ListedLocks):
    """The locks to show: those with findings first, the others by name."""

    only_attention: bool
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    of_store: list[Finding] = field(default_factory=list)

    def statuses(self) -> Iterator[LockStatus]:
        """Read them lazily; raise ``CommandError`` for an unknown name."""
        found = Search().attention(self.provider)
        self.findings, self.of_store = found.findings, found.of_store
        self.check_names()
        for some in batches(filter(self.wanted.accepts_name, self.findings)):
            statuses = self.provider.statuses(LockQuery(names=some))
            read = {status.name: status for status in statuses}
            known = (read[name] for name in some if name in read)
            yield from filter(self.wanted.accepts, known)
        if not self.only_attention:
            for status in self.provider.statuses(self.wanted):
                if status.name not in self.findings:
                    yield status

    def as_dict(self, status: LockStatus) -> dict[str, object]:
        found = self.findings.get(status.name, [])
        findings = [each.as_dict() for each in found]
        return {**super().as_dict(status), "findings": findings}

    def first_lines(self, style: Style) -> list[str]:
        return [finding_line(style, found) for found in self.of_store]

    def last_lines(self, *, is_empty: bool) -> list[str]:
        lines = []
        inside = sum(map(self.wanted.accepts_name, self.findings))
        outside = len(self.findings) - inside
        if inside and not is_empty:
            advice = f"`{PROGRAM} check` says what to do."
            lines.append(f"{_have(inside, '')} findings. {advice}")
        if outside:
            advice = f"see `{PROGRAM} list --attention`."
            lines.append(f"{_have(outside, 'other ')} findings: {advice}")
        return lines

    def rows(self, locks: list[LockStatus], *, wide: bool) -> Iterator[terminal.Row]:
        has_findings = any(status.name in self.findings for status in locks)
        for status, row in zip(locks, super().rows(locks, wide=wide), strict=True):
            yield {**row, **self._findings(status, wide=wide)} if has_findings else row

    def _findings(self, status: LockStatus, *, wide: bool) -> terminal.Row:
        kinds = [found.kind for found in self.findings.get(status.name, [])]
        text = ", ".join(kinds)
        if len(kinds) > 1 and not wide:
            text = f"{kinds[0]} +{len(kinds) - 1}"
        return {"FINDINGS": terminal.Cell(text, "ERROR")}


def _have(count: int, other: str) -> str:
    return f"1 {other}lock has" if count == 1 else f"{count} {other}locks have"


class ListingWithFindings(listing.Listing):
    """Shows locks, first those that have findings."""

    help = "show locks, first those that have findings"
    example = "list --attention"

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        base.add_switch(parser, "--attention", "only locks with findings")

    def select(
        self, provider: LockProvider, wanted: LockQuery, **options: bool
    ) -> ListedLocksWithFindings:
        return ListedLocksWithFindings(provider, wanted, options["attention"])
