"""``manage.py shedlock check``."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from datetime import timedelta
from html import escape
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.core import mail
from django.core.management.base import CommandError

from django_shedlock.cli import base, json_output, terminal
from django_shedlock.console.cli.findings import finding_line
from django_shedlock.console.monitoring.findings import Finding, Severity
from django_shedlock.console.monitoring.notices import Changes, reported
from django_shedlock.console.monitoring.search import (
    Search,
    aliases_to_search,
    default_grace,
)
from django_shedlock.execution.skips import PROGRAM
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.webhooks import is_address, post

NAMES_MAX_WIDTH = 60
MAIL_FINDING_LIMIT = 100
"""New findings in one mail, and as many that are gone."""


class Check(base.Subcommand):
    """Prints the findings, and exits with the status of the worst."""

    name = "check"
    help = (
        "print findings; exit status 0: none, 1: a job needs attention, 2: no job with "
        "a lock can run"
    )

    @classmethod
    def add_arguments(cls, parser: ArgumentParser) -> None:
        base.add_duration(
            parser,
            "--held-for",
            "find jobs that have run for longer; by default, and if they usually take "
            "longer, for much longer than usual",
        )
        base.add_duration(
            parser,
            "--grace",
            "find jobs that have not succeeded by so long after a tick of their "
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
        base.add_switch(
            parser,
            "--mail-admins",
            "mail each finding once to ADMINS, and once that it is gone; with "
            "--verbosity 0 print nothing",
        )
        parser.add_argument(
            "--webhook",
            metavar="URL",
            type=_address,
            help="post each finding once to this address, and once that it is gone, "
            "as the JSON that Slack reads",
        )
        base.add_switch(parser, "--json", "print JSON")

    def handle(self, alias: str | None, **options: Any) -> None:
        self.run(aliases_to_search() if alias is None else [alias], **options)

    def run(
        self,
        aliases: Sequence[str],
        *,
        held_for: timedelta | None,
        grace: timedelta | None,
        ignore: list[str],
        fail_on: str,
        mail_admins: bool,
        webhook: str | None,
        json: bool,
        verbosity: int,
        **options: object,
    ) -> None:
        if mail_admins and not settings.ADMINS:
            raise base.WrongCall("--mail-admins needs an address in ADMINS.")
        if webhook and find_spec("requests") is None:
            raise base.WrongCall("--webhook needs django-shedlock[pings].")
        grace = default_grace() if grace is None else grace
        search = Search(grace, held_for, tuple(ignore), acknowledged=True)
        found = search.verdict(aliases)
        findings = [each for each in found if not each.acknowledged]
        known = dict.fromkeys(str(each.lock) for each in found if each.acknowledged)
        if json:
            rows = [
                {"severity": each.kind.severity} | each.as_dict() for each in findings
            ]
            json_output.write_json(self.stdout, rows)
        elif verbosity:
            lines = [finding_line(self.style, each) for each in findings]
            lines = lines or ["No findings."]
            if known:
                names = terminal.shortened(", ".join(known), NAMES_MAX_WIDTH)
                lines.append(f"Acknowledged, see `{PROGRAM} show NAME`: {names}.")
            self.write("\n".join(lines))
        are_told = []
        if mail_admins:
            are_told.append(self._report(search, aliases, findings))
        if webhook:
            are_told.append(self._report(search, aliases, findings, webhook))
        statuses = {Severity.WARNING: 1, Severity.CRITICAL: 2}
        status = max((statuses[found.kind.severity] for found in findings), default=0)
        if status >= statuses[Severity(fail_on)]:
            sys.exit(status)
        if not all(are_told):
            sys.exit(base.ExitStatus.NOT_TOLD)

    def _report(
        self,
        search: Search,
        aliases: Sequence[str],
        findings: Sequence[Finding],
        webhook: str = "",
    ) -> bool:
        # Without a network both mail and webhook fail. The verdict counts all the same.
        try:
            with reported(search, aliases, findings, webhook=webhook) as changes:
                if changes:
                    try:
                        subject, text = _composed(changes)
                        if webhook:
                            _post(webhook, subject, text)
                        else:
                            mail.mail_admins(subject, text)
                    except Exception as error:  # whatever a mail backend raises
                        raise CommandError(str(error)) from error
        except CommandError as error:
            how = "webhook" if webhook else "mail"
            self.stderr.write(
                f"The {how} could not be sent: {error}. The next call of "
                f"`{PROGRAM} check` that tells of changes tries it again."
            )
            return False
        return True


def _address(text: str) -> str:
    if not is_address(text):  # it may be secret, or contain one
        raise ArgumentTypeError("give an address that begins with https:// or http://")
    return text


def _post(address: str, subject: str, text: str) -> None:
    # A name could call all people of the channel, as <!here> does, or @here.
    text = escape(f"{subject}\n\n{text}", quote=False).replace("@", "@\u200b")
    # Discord refuses more than this, escapes included, and Rocket.Chat more than 5000.
    post(address, json={"text": text[:2000]})


def _composed(changes: Changes) -> tuple[str, str]:
    found, gone = len(changes.new), len(changes.gone)
    counts = [f"{found} new"] * bool(found) + [f"{gone} gone"] * bool(gone)
    names = dict.fromkeys(
        each.lock or each.provider for each in (*changes.new, *changes.gone)
    )
    first = terminal.shortened(next(iter(names)), NAMES_MAX_WIDTH)
    others = " and others" if len(names) > 1 else ""
    runbooks = _runbooks([*changes.new, *changes.gone])
    parts = []
    for title, findings in (("New", changes.new), ("Gone", changes.gone)):
        parts += [f"{title}:"] * bool(findings)
        for each in findings[:MAIL_FINDING_LIMIT]:
            text = terminal.printable(str(each))
            runbook = runbooks.get((each.provider, each.lock))
            text += f" Runbook: {runbook}" if runbook else ""
            links = "".join(f"\n  {link}" for link in (each.link, each.help) if link)
            parts.append(f"* {each.kind.severity.upper()} {text}{links}")
        if (left := len(findings) - MAIL_FINDING_LIMIT) > 0:
            parts.append(f"* {left} more: see `{PROGRAM} check`.")
    subject = f"shedlock: {', '.join(counts)}: {first}{others}"
    return subject, "\n\n".join(parts) + "\n"


def _runbooks(findings: Sequence[Finding]) -> dict[tuple[str, str | None], str]:
    """Return the runbooks of the jobs with findings, by provider and lock."""
    aliases = {found.provider for found in findings if found.lock}
    return {
        (alias, job.full_name): job.runbook
        for alias in aliases
        for job in named_jobs(alias)
    }
