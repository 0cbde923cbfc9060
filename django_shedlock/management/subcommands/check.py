"""``manage.py shedlock check``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_shedlock import conf
from django_shedlock.locks.configuration import default_duration
from django_shedlock.management.subcommands.base import (
    Subcommand,
    as_json,
    duration,
    printable,
)
from django_shedlock.monitoring.findings import Finding, Kind, Search, Severity
from django_shedlock.providers import get_provider, provider_aliases

STATUSES = {Severity.WARNING: 1, Severity.CRITICAL: 2}


class Check(Subcommand):
    """Prints the findings, and exits with the status of the worst."""

    name = "check"
    help = (
        "print findings; exit status 0: none, 1: a job needs attention, 2: no job with "
        "a lock can run"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """Add what to look for, and how to report it."""
        parser.add_argument(
            "--held-for",
            metavar="DURATION",
            type=duration,
            help="find jobs that have run for longer; by default, for much longer than "
            "when they last succeeded",
        )
        parser.add_argument(
            "--grace",
            metavar="DURATION",
            type=duration,
            help="find jobs that have not succeeded by so long after a tick of their "
            "schedule; SHEDLOCK_GRACE by default",
        )
        parser.add_argument(
            "--ignore",
            metavar="PATTERN",
            action="append",
            default=[],
            help='ignore locks whose names match, as in "import:*"; may be repeated',
        )
        parser.add_argument(
            "--fail-on",
            choices=[severity.value for severity in Severity],
            default=Severity.WARNING.value,
            help="exit with 0 if all findings are less severe",
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, alias: str | None, **options: Any) -> None:
        """Run with the provider of this alias, or with all if it is ``None``."""
        self.run(_aliases() if alias is None else [alias], **options)

    def run(
        self,
        aliases: Sequence[str],
        *,
        held_for: timedelta | None,
        grace: timedelta | None,
        ignore: list[str],
        fail_on: str,
        json: bool,
        **options: Any,
    ) -> None:
        """Print the findings, and exit with the status of the worst."""
        if grace is None:
            grace = default_duration(conf.GRACE)
        search = Search(grace, held_for, tuple(ignore))
        findings = [found for alias in aliases for found in _findings(search, alias)]
        listed = as_json(map(_as_dict, findings)) if json else _as_lines(findings)
        self.stdout.write(listed)
        status = max((STATUSES[found.kind.severity] for found in findings), default=0)
        if status >= STATUSES[Severity(fail_on)]:
            sys.exit(status)


def _aliases() -> Sequence[str]:
    try:
        return provider_aliases() or ["default"]
    except ImproperlyConfigured:  # get_provider() raises it again
        return ["default"]


def _findings(search: Search, alias: str) -> Iterator[Finding]:
    try:
        yield from search.findings(get_provider(alias))
    except Exception as error:  # even wrong DATABASES: no job can run
        yield Finding(Kind.UNREACHABLE, alias, str(error))


def _as_lines(findings: Sequence[Finding]) -> str:
    if not findings:
        return "No findings."
    return "\n".join(
        f"{found.kind.severity.upper()} {printable(found.text)}" for found in findings
    )


def _as_dict(found: Finding) -> dict[str, str | None]:
    return {
        "severity": found.kind.severity.value,
        "kind": found.kind.value,
        "provider": found.provider,
        "lock": found.lock,
        "text": found.text,
    }
