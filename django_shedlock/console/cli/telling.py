"""Tell people what is news: by mail, or by whatever service Apprise knows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from django.core import mail

from django_shedlock.cli import terminal
from django_shedlock.console.links import page_of_list
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.notices import (
    Change,
    News,
    NotTold,
    reader_of_address,
)
from django_shedlock.console.monitoring.recovery import sentences_of_recovery
from django_shedlock.execution.skips import PROGRAM
from django_shedlock.registry.discovery import named_jobs
from django_shedlock.scrubbing import scrubbed

NAME_MAX_WIDTH = 60
MAIL_NEWS_LIMIT = 100
POSTED_LINE_LIMIT = 40
HEADLINE_MAX_LENGTH = 400
TITLE_MARKUP_LENGTH = 10


class Reader(ABC):
    """Somebody who is told of news, and remembers what was told."""

    name: str
    """By this name the table of notices knows what the reader was told."""
    means: ClassVar[str]

    def tell(self, news: Sequence[News]) -> None:
        """
        Tell what is news, the most urgent first.

        Raises ``NotTold`` if not all of it could be told.
        """
        told: list[News] = []
        try:
            for part in self._send(sorted(news, key=_urgency)):
                told += part
        except Exception as error:  # whatever a mail backend raises
            raise NotTold(scrubbed(str(error)), told) from error

    @abstractmethod
    def _send(self, news: Sequence[News]) -> Iterator[Sequence[News]]:
        """Tell what is news; yield each part that was told; raise what goes wrong."""


class Administrators(Reader):
    """The people in Django's ``ADMINS``, by one mail."""

    name = "mail"
    means: ClassVar[str] = "mail"

    def _send(self, news: Sequence[News]) -> Iterator[Sequence[News]]:
        mail.mail_admins(subject_of(news), _text_of_mail(news))
        yield news


class Chat(Reader):
    """
    A chat, or another service, by an address that Apprise knows.

    Raises ``ValueError``, which does not show the address, if Apprise does not know it.
    """

    means: ClassVar[str] = "notification"

    def __init__(self, address: str):
        from apprise import Apprise  # not before somebody wants it

        self.name: str = reader_of_address(address)
        self._service = Apprise()
        # A text with several addresses would be several readers.
        if not self._service.add(address) or len(self._service) != 1:
            raise ValueError(
                "Apprise knows no service with the address of --notify, or it has "
                "several. See the list in its documentation: "
                "https://appriseit.com/services/"
            )

    def _send(self, news: Sequence[News]) -> Iterator[Sequence[News]]:
        from apprise import NotifyFormat, NotifyType

        kinds_of_change = {
            Change.RECOVERED: NotifyType.SUCCESS,
            Change.ACKNOWLEDGED: NotifyType.INFO,
        }
        title = harmless(subject_of(news))
        # Some services send the title, with its markup, as a part of the text.
        longest_text = min(each.body_maxlen for each in self._service)
        room = longest_text - len(title) - TITLE_MARKUP_LENGTH
        for post in posts_of(news, room):
            is_sent = self._service.notify(
                body=post.text,
                title=title,
                notify_type=kinds_of_change.get(news[0].change, NotifyType.WARNING),
                body_format=NotifyFormat.TEXT,
            )
            if not is_sent:
                raise OSError("the service could not be reached, or refused it")
            yield post.news


def subject_of(news: Sequence[News]) -> str:
    """
    Return severity, kind and lock of the first news, and the number of others.

    It is the same on all hosts, so that mails of several form one thread.
    """
    first = news[0]
    name = terminal.shortened(first.lock or first.provider, NAME_MAX_WIDTH)
    others = f" and {len(news) - 1} more" if len(news) > 1 else ""
    return f"shedlock: {_heading(first)} {first.kind.value}: {name}{others}"


@dataclass
class Post:
    """A part of what is told, which fits into one message of a service."""

    text: str = ""
    news: list[News] = field(default_factory=list)

    def add(self, line: str, *news: News) -> None:
        """Add a line that tells these news."""
        self.text += f"{line}\n"
        self.news += news


def posts_of(news: Sequence[News], room: int) -> list[Post]:
    """Return the news, a line for each, as posts of at most ``room`` characters."""
    recovered = _sentences_of_recovered(news)
    lines: list[tuple[str, Sequence[News]]] = []
    for each in news[:POSTED_LINE_LIMIT]:
        line = next(recovered) if each.finding is None else _headline(each.finding)
        line = harmless(f"{_heading(each)} {line}")
        step = "" if each.finding is None else _next_step(each.finding)
        lines.append((f"{line} {step}".strip(), [each]))
    if left := news[POSTED_LINE_LIMIT:]:
        lines.append((f"and {len(left)} more", left))
    if any(each.finding for each in news):
        lines.append((f"See {_where(news)}", []))
    posts = [Post()]
    for line, told in lines:
        if posts[-1].text and len(posts[-1].text) + len(line) > room:
            posts.append(Post())
        posts[-1].add(line, *told)
    return posts


def _where(news: Sequence[News]) -> str:
    """Return where all findings are; while a store is down, that is the command."""
    if all(each.kind is not Kind.UNREACHABLE for each in news):
        with suppress(Exception):  # whatever settings, or the sites' table, raise
            if page := page_of_list(news[0].provider):
                return page
    return f"`{PROGRAM} check`"


def harmless(text: str) -> str:
    """Return the text so that no name in it calls anybody, as @here or <!here> do."""
    return text.replace("@", "@\u200b").replace("<", "(").replace(">", ")")


def _urgency(news: News) -> tuple[int, int, str, str]:
    order = list(Change)
    place = order.index(news.change)
    return place, news.kind.rank, news.provider, news.lock or ""


def _heading(news: News) -> str:
    if news.change in {Change.NEW, Change.STILL}:
        return news.kind.severity.upper()
    return news.change.upper()


def _headline(finding: Finding) -> str:
    """Return the headline as one printable line, shortened."""
    headline = terminal.printable(finding.headline)
    if len(headline) > HEADLINE_MAX_LENGTH:
        return f"{headline[: HEADLINE_MAX_LENGTH - 1]}…"
    return headline


def _next_step(finding: Finding) -> str:
    """Return the next step; empty if a post can't have its command as it is."""
    step = finding.advice.in_brief()
    return step if harmless(terminal.printable(step)) == step else ""


def _sentences_of_recovered(news: Iterable[News]) -> Iterator[str]:
    """Yield what is true now of each of the news without a finding, in their order."""
    recovered = [each for each in news if each.finding is None]
    for sentence in sentences_of_recovery(recovered):
        yield terminal.printable(sentence)


def _lines(news: Sequence[News]) -> list[str]:
    """Return the sentence of each of the news, as one printable line."""
    recovered = _sentences_of_recovered(news)
    return [
        next(recovered)
        if each.finding is None
        else terminal.printable(str(each.finding))
        for each in news
    ]


def _text_of_mail(news: Sequence[News]) -> str:
    runbooks, parts = _runbooks(news), list[str]()
    pairs = list(zip(news, _lines(news), strict=True))
    for change in Change:
        told = [(each, line) for each, line in pairs if each.change is change]
        if told:
            parts.append(f"{change.capitalize()}:")
        for each, line in told[:MAIL_NEWS_LIMIT]:
            text = f"* {_heading(each)} {line}"
            if each.finding is not None:
                runbook = runbooks.get((each.provider, each.lock))
                text += f" Runbook: {runbook}" if runbook else ""
                found = (each.finding.link, each.finding.help)
                text += "".join(f"\n  {link}" for link in found if link)
            parts.append(text)
        if (left := len(told) - MAIL_NEWS_LIMIT) > 0:
            parts.append(f"* {left} more: see `{PROGRAM} check`.")
    return "\n\n".join(parts) + "\n"


def _runbooks(news: Iterable[News]) -> dict[tuple[str, str | None], str]:
    """Return the runbooks of the jobs with findings, by provider and lock."""
    aliases = {each.provider for each in news if each.finding and each.lock}
    return {
        (alias, job.full_name): job.runbook
        for alias in aliases
        for job in named_jobs(alias)
    }
