"""``manage.py shedlock check``."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_shedlock import conf
from django_shedlock.findings import Finding, Kind, Severity
from django_shedlock.management.subcommands.arguments import duration
from django_shedlock.management.subcommands.base import Subcommand
from django_shedlock.management.subcommands.tables import printable
from django_shedlock.options import default_duration
from django_shedlock.providers import get_provider, provider_aliases
from django_shedlock.searches import Search

STATUSES = {Severity.WARNING: 1, Severity.CRITICAL: 2}


class Check(Subcommand):
    """Tells by its exit status, and in words, whether somebody should have a look."""

    name = "check"
    help = (
        "look for trouble; exit status 0: none, 1: a job needs a look, 2: no job with "
        "a lock can run"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        """What to look for, and what to make of it."""
        parser.add_argument(
            "--held-for",
            metavar="DURATION",
            type=duration,
            help="find jobs that run for longer; if not given, those that run for much "
            "longer than when they last succeeded",
        )
        parser.add_argument(
            "--grace",
            metavar="DURATION",
            type=duration,
            help="find jobs that have not succeeded so long after a tick of their "
            "schedule; if not given, what SHEDLOCK_GRACE says",
        )
        parser.add_argument(
            "--ignore",
            metavar="PATTERN",
            action="append",
            default=[],
            help='leave out locks with such names, as in "import:*"; may be repeated',
        )
        parser.add_argument(
            "--fail-on",
            choices=[severity.value for severity in Severity],
            default=Severity.WARNING.value,
            help="what is printed, but is less, exits with 0",
        )
        parser.add_argument("--json", action="store_true", help="for programs")

    def handle(self, alias: str | None, **options: Any) -> None:
        """See Subcommand.handle(). Without an alias all providers are looked at."""
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
        self.stdout.write(_as_json(findings) if json else _as_lines(findings))
        status = max((STATUSES[found.kind.severity] for found in findings), default=0)
        if status >= STATUSES[Severity(fail_on)]:
            sys.exit(status)


def _aliases() -> Sequence[str]:
    try:
        return provider_aliases() or ["default"]
    except ImproperlyConfigured:  # who asks for the provider is told again
        return ["default"]


def _findings(search: Search, alias: str) -> Iterator[Finding]:
    try:
        yield from search.findings(get_provider(alias))
    except Exception as error:  # also a DATABASES that is wrong: no job can run
        yield Finding(Kind.UNREACHABLE, alias, str(error))


def _as_lines(findings: Sequence[Finding]) -> str:
    if not findings:
        return "No findings."
    return "\n".join(
        f"{found.kind.severity.upper()} {printable(found.text)}" for found in findings
    )


def _as_json(findings: Sequence[Finding]) -> str:
    return json.dumps(
        [
            {
                "severity": found.kind.severity.value,
                "kind": found.kind.value,
                "provider": found.provider,
                "lock": found.lock,
                "text": found.text,
            }
            for found in findings
        ],
        indent=2,
    )
