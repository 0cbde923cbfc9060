"""``manage.py shedlock check``."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.utils.translation import override

from django_shedlock.cli import base, json_output, terminal
from django_shedlock.console.cli.findings import finding_line
from django_shedlock.console.cli.telling import Administrators, Chat, Reader
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind, Severity
from django_shedlock.console.monitoring.notices import NotTold, news_for
from django_shedlock.console.monitoring.search import (
    Search,
    default_grace,
    open_findings,
)
from django_shedlock.console.monitoring.sentences import some_names
from django_shedlock.exceptions import LockProviderError
from django_shedlock.execution.skips import PROGRAM
from django_shedlock.providers import aliases_to_ask, get_provider


class Check(base.Subcommand):
    """Prints the findings, and exits with the status of the worst."""

    name = "check"
    group = base.Group.LOOK
    example = "check --held-for 2h --mail-admins"
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
            "find jobs that have not succeeded this long after a tick of their "
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
            "mail to ADMINS what is new: findings, acknowledgements and recoveries; "
            "findings that stay are repeated daily; with --verbosity 0 print nothing",
        )
        parser.add_argument(
            "--notify",
            metavar="URL",
            action="append",
            default=[],
            help="send the same to a chat or another service, by an address of "
            "Apprise, as in slack://… or discord://…; may be repeated",
        )
        base.add_switch(parser, "--json", "print JSON")

    def handle(self, alias: str | None, **options: Any) -> None:
        self.run(aliases_to_ask() if alias is None else [alias], **options)

    def run(
        self,
        aliases: Sequence[str],
        *,
        held_for: timedelta | None,
        grace: timedelta | None,
        ignore: list[str],
        fail_on: str,
        mail_admins: bool,
        notify: list[str],
        json: bool,
        verbosity: int,
        **options: object,
    ) -> None:
        readers = _readers(notify, mail_admins=mail_admins)
        grace = default_grace() if grace is None else grace
        search = Search(grace, held_for, tuple(ignore), acknowledged=True)
        found = search.verdict(aliases)
        findings = open_findings(found)
        # What cron mails, or a probe keeps, shall not have it each time.
        if ignore and verbosity and self.stderr.isatty():
            self._report_needless(ignore, aliases, found)
        if json:
            json_output.write_json(self.stdout, [each.as_dict() for each in findings])
        elif verbosity:
            self._print(findings, [each for each in found if each.acknowledged])
        are_told = [self._tell(reader, search, aliases, found) for reader in readers]
        statuses = {Severity.WARNING: 1, Severity.CRITICAL: 2}
        status = max((statuses[found.kind.severity] for found in findings), default=0)
        if status >= statuses[Severity(fail_on)]:
            sys.exit(status)
        if not all(are_told):
            sys.exit(base.ExitStatus.NOT_TOLD)

    def _print(
        self, findings: Sequence[Finding], acknowledged: Sequence[Finding]
    ) -> None:
        lines = [finding_line(self.style, each) for each in findings]
        lines = lines or ["No findings."]
        if acknowledged and (names := _names_of_locks(acknowledged)):
            names = terminal.printable(names)
            lines.append(f"Acknowledged, see `{PROGRAM} show NAME`: {names}.")
        self.write("\n".join(lines))

    def _report_needless(
        self, ignore: Sequence[str], aliases: Sequence[str], found: Sequence[Finding]
    ) -> None:
        """Name the patterns of ``--ignore`` that match no lock: perhaps misspelt."""
        if any(each.kind is Kind.UNREACHABLE for each in found):
            return
        with suppress(LockProviderError):  # it was read a moment ago
            providers = [get_provider(alias) for alias in aliases]
            for pattern in ignore:
                if not any(base.has_match(each, pattern) for each in providers):
                    self.stderr.write(base.needless_pattern("--ignore", pattern))

    def _tell(
        self,
        reader: Reader,
        search: Search,
        aliases: Sequence[str],
        findings: Sequence[Finding],
    ) -> bool:
        # Without a network neither mail nor chat works. The verdict counts anyway.
        try:
            with news_for(reader.name, search, aliases, findings) as news:
                if news:
                    reader.tell(news)
        except NotTold as error:
            self.stderr.write(
                f"The {reader.means} could not be sent: {error}. The next call of "
                f"`{PROGRAM} check` for this reader tries it again."
            )
            return False
        return True


def _names_of_locks(findings: Sequence[Finding]) -> str:
    """Return the names of some of the locks, in English, and how many others are."""
    names = (finding.lock for finding in findings if finding.lock)
    with override("en"):
        return some_names(list(dict.fromkeys(names)))


def _readers(addresses: Sequence[str], *, mail_admins: bool) -> list[Reader]:
    if mail_admins and not settings.ADMINS:
        raise base.WrongCall("--mail-admins needs an address in ADMINS.")
    if addresses and find_spec("apprise") is None:
        raise base.WrongCall("--notify needs django-shedlock[apprise].")
    readers: list[Reader] = [Administrators()] if mail_admins else []
    for address in addresses:
        try:
            readers.append(Chat(address))
        except ValueError as error:
            raise base.WrongCall(str(error)) from None
    return readers
