"""
Whether the console reports the incident of the example project: each fault once.

``python -m tests.support.incident`` makes it by ``manage.py demo --incident``, in the
database that the example project finds. It asks each reader of ``READERS``, prints what
is wrong with its answer, and exits with 1 if anything is.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from typing import Any, ClassVar

from tests.support.paths import MANAGE
from tests.support.waiting import STARTUP_PATIENCE
from tests.support.web import serving

IS_MADE = "Ctrl-C ends the hanging processes"
"""What the demo prints when it has made all faults."""
ITEM = re.compile(r"^[^\w\n]*(?:WARNING|CRITICAL)\b.*$", re.MULTILINE)
"""A finding in a mail or in a post: a line."""
ZERO_WIDTH_SPACE = "\u200b"

Samples = dict[str, dict[str, float]]
"""The values of each metric, by lock. A metric of a store has an empty lock."""
STORE = ""


@dataclass(frozen=True)
class Above:
    """A metric that is above a limit, whatever its sign."""

    metric: str
    limit: float

    def locks(self, page: Samples) -> set[str]:
        """Return the locks in which that is so."""
        values = page[self.metric]
        return {lock for lock in values if abs(values[lock]) > self.limit}


@dataclass(frozen=True)
class Below(Above):
    """A metric that is below a limit."""

    def locks(self, page: Samples) -> set[str]:
        values = page[self.metric]
        return {lock for lock in values if values[lock] < self.limit}


@dataclass(frozen=True)
class TimesAbove(Above):
    """A metric that is above so many times another metric of the same lock."""

    other: str

    def locks(self, page: Samples) -> set[str]:
        values, others = page[self.metric], page[self.other]
        return {
            lock
            for lock in values.keys() & others.keys()
            if values[lock] > self.limit * others[lock]
        }


@dataclass(frozen=True)
class Sign:
    """
    What has to be told of a fault, and by which metric it is known.

    ``words`` are its cause, and ``when`` is a pattern of its time or duration.
    ``advice`` is the next step, a pattern as well; empty if no command helps.
    """

    words: str
    when: str
    advice: str
    metric: Above
    locks: frozenset[str]

    def missing_in(self, text: str) -> list[str]:
        """Return what the text does not tell."""
        wanted = [re.escape(self.words), self.when, self.advice]
        return [each for each in wanted if not re.search(each, text)]


def sign(words: str, when: str, advice: str, metric: Above, *locks: str) -> Sign:
    return Sign(words, when, advice, metric, frozenset(locks))


AT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
SHEDLOCK = "manage.py shedlock"


SIGNS = {
    "cron is dead": sign(
        "No host has started any scheduled job since",
        rf"since {AT}",
        rf"{SHEDLOCK} catch-up",
        Above("shedlock_overdue_seconds", 0),
        *("shop.import_orders", "shop.send_mails", "shop.update_stock"),
    ),
    "a job hangs": sign(
        "it usually takes 1m",
        r"for 3h(\dm)? as ",
        rf"{SHEDLOCK} show shop\.sync_prices",
        Above("shedlock_running_seconds", 2 * 3600),
        "shop.sync_prices",
    ),
    "a job failed three times": sign(
        "with example.shop.CardDeclined, and 3 runs in a row have not succeeded",
        rf"failed at {AT}",
        rf"{SHEDLOCK} history shop\.charge_cards",
        Above("shedlock_consecutive_failures", 2),
        "shop.charge_cards",
    ),
    "a worker was killed": sign(
        "never released the lock",
        rf"lease ended at {AT}",
        rf"{SHEDLOCK} show shop\.make_thumbnails",
        Above("shedlock_expired", 0),
        "shop.make_thumbnails",
    ),
    "a job went on without its lock": sign(
        "lost its lock",
        rf"lost its lock at {AT}",
        rf"{SHEDLOCK} history shop\.pay_suppliers",
        Below("shedlock_since_loss_seconds", 3600),
        "shop.pay_suppliers",
    ),
    "a job takes three times as long": sign(
        "it usually takes 25m",
        r"for 1h(39|4\d)m",
        rf"{SHEDLOCK} show shop\.rebuild_search",
        TimesAbove("shedlock_running_seconds", 3, "shedlock_usual_duration_seconds"),
        *("shop.rebuild_search", "shop.sync_prices"),
    ),
    "a pause has no end": sign(
        "without an end",
        "for 2d",
        rf"{SHEDLOCK} resume shop\.send_newsletter --held-by '.+'",
        Above("shedlock_paused_seconds", 24 * 3600),
        "shop.send_newsletter",
    ),
    "nobody carries out a request": sign(
        "asked for a run",
        rf"asked for a run at {AT}",
        rf"{SHEDLOCK} catch-up shop\.export_taxes",
        Above("shedlock_requested", 0),
        "shop.export_taxes",
    ),
    "the history can't be written": sign(
        "The history lacks its last run",
        rf"could not be written at {AT}",
        rf"{SHEDLOCK} history shop\.archive_orders",
        Above("shedlock_unrecorded", 0),
        "shop.archive_orders",
    ),
    "a host's clock is two minutes off": sign(
        "clock is",
        "2m behind",
        "",
        Above("shedlock_clock_difference_seconds", 30),
        STORE,
    ),
}
"""The signs of each fault, by its title in ``example.incident``."""
BOUND = re.compile(r" release (\S+) --held-by \S+")
"""The advice after a look: it releases one acquisition, and no later one."""


class Reader(ABC):
    """Somebody or something that reads what the console reports."""

    name: ClassVar[str]
    praise = "each fault once"

    def problems(self) -> Iterator[str]:
        """Return how its answer differs from the list of faults."""
        found, wanted = Counter(self.found()), Counter(titles())
        for text in sorted(wanted - found):
            yield f"does not report: {text}"
        for text in sorted((found - wanted).elements()):
            yield f"reports more than that: {text}"

    @abstractmethod
    def found(self) -> Iterable[str]:
        """Return the titles of the faults that it sees, and whatever else it sees."""


class CheckReader(Reader):
    """Reads what ``shedlock check`` prints for programs."""

    name = "check --json"

    def found(self) -> Iterator[str]:
        for each in json.loads(check("--json")):
            title = title_of(each["lock"], each["kind"])
            told = f"{each['sentence']} {each['command']}"
            yield from reported(title, told)
            if each["look"] and not BOUND.search(each["command_after_look"]):
                yield f"{title}: the advice after a look is bound to no acquisition"


class MailReader(Reader):
    """Reads the mails of one call of ``shedlock check``."""

    name = "mail"

    def found(self) -> Iterator[str]:
        from django.core import mail

        check("--mail-admins", "--verbosity", "0")
        yield from faults_in([str(message.body) for message in mail.outbox])


class PostReader(Reader):
    """Reads the posts of one call of ``shedlock check``."""

    name = "post"

    def found(self) -> Iterator[str]:
        with serving() as web:
            address = web.url.replace("http:", "json:")  # by which Apprise posts JSON
            check("--notify", address, "--verbosity", "0")
            texts = [json.loads(sent.body)["message"] for sent in web.sent]
        yield from faults_in(
            [unescape(text).replace(ZERO_WIDTH_SPACE, "") for text in texts]
        )


class ScreenReader(Reader):
    """Reads the first screen of the admin, as its superuser."""

    name = "first screen"

    def found(self) -> Iterator[str]:
        from django.urls import reverse

        page = Findings()
        page.feed(get(reverse("admin:django_shedlock_lockrecord_changelist")))
        for lock, kind, text in page.found:
            yield from reported(title_of(lock, kind), text)


class MetricsReader(Reader):
    """Reads the page for Prometheus."""

    name = "metrics"

    def found(self) -> Iterator[str]:
        from prometheus_client.parser import text_string_to_metric_families

        page: Samples = defaultdict(dict)
        for family in text_string_to_metric_families(get("/metrics")):
            for sample in family.samples:
                lock = sample.labels.get("lock", STORE)
                page[sample.name][lock] = sample.value
        for title, each in SIGNS.items():
            if locks := each.metric.locks(page):
                is_right = locks == each.locks
                yield title if is_right else f"{each.metric} in {sorted(locks)}"


class HistoryReader(Reader):
    """Reads the history, of which most runs are copies: could they have happened?"""

    name, praise = "history", "all of it can be true"

    def problems(self) -> Iterator[str]:
        from tests.support.believable import contradictions

        yield from contradictions(self.found())

    def found(self) -> Iterable[Any]:
        from django_shedlock.models import LockRecord, LockRun

        assert LockRun.objects.count() > 1000
        records = LockRecord.objects.filter(name__startswith="shop.")
        return records.exclude(name="shop.export_taxes")  # which never ran


READERS = (
    *(CheckReader(), MailReader(), PostReader(), ScreenReader(), MetricsReader()),
    HistoryReader(),
)


class Findings(HTMLParser):
    """Finds the findings on a page, each with its lock and its kind."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str | None, str, str]] = []
        """Locks, kinds and texts."""
        self._lock: str | None = None
        self._kind: str | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        key = values.get("data-shedlock-key") or ""
        if tag == "tbody":
            self._lock = key.removeprefix("lock ")
        elif "data-shedlock-finding" in values:
            self._kind, self._text = key, ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "tbody":
            self._lock = None
        elif tag == "li" and self._kind is not None:
            self.found.append((self._lock, self._kind, self._text))
            self._kind = None


def expected() -> list[Any]:
    """Return the faults; their module needs Django's apps."""
    from example.incident import EXPECTED

    return EXPECTED


def titles() -> list[str]:
    return [each.fault for each in expected()]


def title_of(lock: str | None, kind: str) -> str:
    """Return the fault with such a finding; if there is none, what is found."""
    known = {(each.lock, each.kind): each.fault for each in expected()}
    return known.get((lock, kind), f"{kind} in {lock or 'the store'}")


def faults_in(texts: list[str]) -> Iterator[str]:
    """Return the fault of each line that reports one, and that it is one text."""
    if len(texts) != 1:
        yield f"({len(texts)} texts instead of one)"
    for text in texts:
        for line in ITEM.findall(text):
            yield from reported(fault_in(line), line)


def reported(title: str, text: str) -> Iterator[str]:
    """Yield the fault, and what the text about it does not tell."""
    yield title
    if title in SIGNS:
        for missing in SIGNS[title].missing_in(text):
            yield f"{title}: nothing like {missing!r} in {text!r}"


def fault_in(line: str) -> str:
    """Return the fault that this line reports; if none, what it says."""
    for each in expected():
        if SIGNS[each.fault].words in line and (each.lock or "") in line:
            return str(each.fault)
    return str(line[:100])


def check(*options: str) -> str:
    """Return what ``shedlock check`` prints."""
    from django.core.management import call_command

    printed = io.StringIO()
    with suppress(SystemExit):
        call_command("shedlock", "check", *options, stdout=printed)
    return printed.getvalue()


def get(address: str) -> str:
    """Return the page, as the superuser sees it."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client()
    client.force_login(get_user_model().objects.get(username="admin"))
    answer = client.get(address)
    assert answer.status_code == 200, address
    return str(answer.content.decode())


@contextmanager
def incident() -> Iterator[None]:
    """Let the demo make the incident, and end it by Ctrl-C."""
    with subprocess.Popen(
        [sys.executable, str(MANAGE), "demo", "--incident"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        try:
            assert demo.stdout is not None
            shown = ""
            while IS_MADE not in shown:
                line = demo.stdout.readline()
                assert line, f"The demo ended: {shown}"
                shown += line
            yield
            demo.send_signal(signal.SIGINT)
            rest, _ = demo.communicate(timeout=STARTUP_PATIENCE)
            assert demo.returncode == 0, rest
        finally:
            demo.kill()


def become_host_with_wrong_clock() -> None:
    """Let this process be one of the example project, on the host of the last fault."""
    sys.path.insert(0, str(MANAGE.parent))
    os.environ["DJANGO_SETTINGS_MODULE"] = "example.settings"
    os.environ["SHEDLOCK_EXAMPLE_CLOCK_AHEAD"] = "120"  # as the demo says it
    os.environ["NO_PROXY"] = "127.0.0.1"
    import django
    from django.test.utils import setup_test_environment

    django.setup()
    setup_test_environment()


def main() -> int:
    """Ask each reader, and print what is wrong with its answer."""
    are_right = True
    with incident():
        become_host_with_wrong_clock()
        for reader in READERS:
            problems = list(reader.problems())
            print(f"{reader.name}: {'wrong' if problems else reader.praise}")
            for problem in problems:
                print(f"  {problem}")
            are_right = are_right and not problems
    return 0 if are_right else 1


if __name__ == "__main__":
    sys.exit(main())
