"""``manage.py shedlock check --mail-admins``: each finding is mailed once."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import django
import pytest
from django.contrib import admin
from django.core import mail
from django.core.mail.backends.base import BaseEmailBackend
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import override_settings

from django_shedlock import scheduler_lock
from django_shedlock.console.cli import telling
from django_shedlock.console.monitoring.findings import Finding
from django_shedlock.console.monitoring.kinds import Kind
from django_shedlock.console.monitoring.search import Search
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.providers import get_provider
from tests.support.jobs import only_jobs_of
from tests.support.locks import end_run, take
from tests.support.notices import pass_time, told
from tests.support.operators import operator

pytestmark = pytest.mark.django_db

urlpatterns: list[Any] = []
"""A test uses them as those of a project without the admin's pages."""

HOUR = timedelta(hours=1)
DATABASE = "django_shedlock.providers.database.DatabaseLockProvider"
MEMORY = "django_shedlock.providers.memory.MemoryLockProvider"
DUMMY = "django.core.cache.backends.dummy.DummyCache"


class Failing(BaseEmailBackend):
    """Stands for a mail server that is away."""

    def send_messages(self, email_messages: Any) -> int:
        raise OSError("connection refused")

    @staticmethod
    def get(*args: Any, **columns: Any) -> Any:
        raise OperationalError("no such table: django_site")


@pytest.fixture(autouse=True)
def admins(settings: Any) -> None:
    settings.ADMINS = [("Ada", "ada@example.com")]
    if django.VERSION >= (6,):
        settings.ADMINS = ["ada@example.com"]


def call(*args: str) -> tuple[int, str]:
    """Return the exit status, and what is printed."""
    out = io.StringIO()
    try:
        call_command("shedlock", "check", "--mail-admins", *args, stdout=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def fail(name: str) -> None:
    take(name).release()
    end_run(name, RunOutcome.FAILED, exception_type="ValueError")


def test_finding_is_mailed_once_and_its_recovery_once() -> None:
    """Four calls, from whatever hosts, are two mails; the second has no command."""
    fail("job")
    assert call()[0] == 1
    assert call()[0] == 1
    [message] = mail.outbox
    assert message.to == ["ada@example.com"]
    assert message.subject.endswith("shedlock: WARNING failed: job")
    assert message.body.startswith("New:\n\n* WARNING Lock 'job': Its last run failed")
    end_run("job")
    assert call()[0] == 0
    pass_time(2 * HOUR)
    assert call() == (0, "No findings.\n")
    [_, message] = mail.outbox
    assert message.subject.endswith("shedlock: RECOVERED failed: job")
    begin = "Recovered:\n\n* RECOVERED Lock 'job': the finding “failed” is over. Its"
    assert message.body.startswith(begin)
    assert "manage.py" not in message.body
    call()
    assert len(mail.outbox) == 2


def test_mail_has_the_runbook() -> None:
    """Whoever gets it need not look for the page."""
    fail("job")
    fail("other")
    wiki = "https://wiki.example.com/job"
    with only_jobs_of():
        job = scheduler_lock("job", runbook=wiki)(lambda: None)
        call()
    assert callable(job)
    [message] = mail.outbox
    lines = [line for line in message.body.splitlines() if line.startswith("*")]
    assert [line.endswith(f" Runbook: {wiki}") for line in lines] == [True, False]


def test_mail_says_what_was_raised_and_where_to_look(settings: Any) -> None:
    """The first line of the message, in bounds, and a link to the lock's page."""
    settings.SHEDLOCK_SITE_URL = "https://ops.example.org/"
    take("night/ly").release()
    failed: dict[str, Any] = {"exception_type": "builtins.OSError"}
    message = f"No space left on device.\n{'x' * 500}"
    end_run("night/ly", RunOutcome.FAILED, exception_message=message, **failed)
    take("wordy").release()
    end_run("wordy", RunOutcome.FAILED, exception_message="x" * 500, **failed)
    call()
    body = mail.outbox[0].body
    assert " with builtins.OSError. It last succeeded at " in body
    told = "Find out why. It raised: No space left on device."
    assert f"{told} Next: python manage.py shedlock history" in body
    assert f"It raised: {'x' * 199}…. Next" in body
    page = "https://ops.example.org/admin/django_shedlock/lockrecord/night_2Fly/change/"
    assert f"\n  {page}\n" in body
    client = operator("view_lockrecord")
    assert client.get(page.removeprefix("https://ops.example.org")).status_code == 200


@pytest.mark.parametrize(
    ("domain", "link"),
    [
        ("shop.example.org", "https://shop.example.org/admin/"),
        ("example.com", ""),
        (None, ""),
    ],
)
def test_link_by_the_sites_framework(
    monkeypatch: pytest.MonkeyPatch, settings: Any, domain: str | None, link: str
) -> None:
    """
    A finding's link uses the domain of the sites framework.

    There is no link if the domain is Django's default, or can't be read.
    """
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "django.contrib.sites"]
    from django.contrib.sites import models

    if admin.site.is_registered(models.Site):  # by the admin's look for new apps
        admin.site.unregister(models.Site)
    settings.SITE_ID = 1 if domain else 0
    site = models.Site(pk=1, domain=domain or "")
    monkeypatch.setattr(models, "SITE_CACHE", {1: site})
    if domain is None:
        monkeypatch.setattr(models.Site.objects, "get", Failing.get)
    fail("job")
    finding = [*Search().findings(get_provider())][-1]
    assert finding.link.startswith(link)
    assert bool(finding.link) is bool(link)
    assert finding.as_dict()["link"] == finding.link


def test_urls_that_cannot_be_imported_cost_only_the_link(settings: Any) -> None:
    """A broken release makes jobs fail as well."""
    settings.SHEDLOCK_SITE_URL = "https://ops.example.org"
    settings.ROOT_URLCONF = "no.such.urls"
    fail("job")
    assert call()[0] == 1
    [message] = mail.outbox
    assert "ops.example.org" not in message.body
    assert "Lock 'job': Its last run failed" in message.body


@override_settings(SHEDLOCK_PROVIDERS={"default": {"BACKEND": MEMORY}})
def test_lock_without_a_page_has_no_link(settings: Any) -> None:
    """The admin shows only the locks in databases."""
    settings.SHEDLOCK_SITE_URL = "https://ops.example.org"
    assert Finding(Kind.FAILED, "default", "job", "failed 1").link == ""


def test_link_names_the_provider_where_there_are_several(settings: Any) -> None:
    """The page of a lock of this name, and not of another provider's."""
    settings.SHEDLOCK_SITE_URL = "https://ops.example.org"
    database, memory = {"BACKEND": DATABASE}, {"BACKEND": MEMORY}
    settings.SHEDLOCK_PROVIDERS = {"default": memory, "shop": database}
    assert Finding(Kind.FAILED, "shop", "job", "failed 1").link.endswith(
        "/lockrecord/job/change/?provider=shop"
    )
    settings.ROOT_URLCONF = __name__  # without the admin's pages
    assert Finding(Kind.FAILED, "shop", "job", "failed 1").link == ""


def test_name_that_looks_like_a_pattern_is_ignored_by_itself() -> None:
    """
    ``--ignore`` with a name that looks like a pattern ignores that lock.

    The ignored finding is neither new nor gone.
    """
    fail("job[1]")
    assert call("--ignore", "job[1]") == (0, "No findings.\n")
    assert call()[0] == 1
    assert call("--ignore", "job[1]") == (0, "No findings.\n")
    assert [each.gone_at for each in told()] == [None]


def test_wrong_settings_of_a_store_are_mailed(settings: Any) -> None:
    """No job can run then, whatever the settings lack."""
    wrong = {"BACKEND": DATABASE, "OPTIONS": {"using": "gone"}}
    settings.SHEDLOCK_PROVIDERS = {"default": wrong}
    settings.CACHES = {"default": {"BACKEND": DUMMY}}
    assert call()[0] == 2
    [message] = mail.outbox
    assert message.body.startswith("New:\n\n* CRITICAL")
    assert "'gone'" in message.body


def test_several_changes_are_one_mail() -> None:
    """What is new and what has recovered stand below each other."""
    fail("old")
    call()
    LockRecord.objects.all().delete()
    call()
    pass_time(2 * HOUR)
    fail("a")
    fail("b")
    call()
    subject, body = mail.outbox[-1].subject, mail.outbox[-1].body
    assert subject.endswith("shedlock: WARNING failed: a and 2 more")
    assert body.index("New:") < body.index("'a'") < body.index("Recovered:")
    assert body.index("Recovered:") < body.index("'old'")


def test_acknowledgement_is_mailed_and_no_recovery() -> None:
    """While the job fails on, nobody is told that it is well, nor that it is new."""
    fail("job")
    call()
    reason = ("--reason", "being mended", "--for", "8h")
    call_command("shedlock", "acknowledge", "job", *reason, stdout=io.StringIO())
    call()
    subject, body = mail.outbox[-1].subject, mail.outbox[-1].body
    assert subject.endswith("shedlock: ACKNOWLEDGED failed: job")
    assert body.startswith("Acknowledged:\n\n* ACKNOWLEDGED Lock 'job': Its last run")
    assert "being mended" in body
    for _ in range(3):
        pass_time(8 * HOUR)
        call()
    assert len(mail.outbox) == 2


def test_finding_that_stays_is_mailed_daily() -> None:
    """Whoever missed the first mail gets another one."""
    fail("job")
    call()
    pass_time(24 * HOUR)
    call()
    assert mail.outbox[-1].body.startswith("Still:\n\n* WARNING Lock 'job': Its last")
    call()
    assert len(mail.outbox) == 2


def test_critical_finding_is_in_the_subject(settings: Any) -> None:
    """The subject of a mail names a critical finding before any other news."""
    settings.CACHES = {"default": {"BACKEND": DUMMY}}
    fail("job")
    wrong = {"BACKEND": DATABASE, "OPTIONS": {"using": "gone"}}
    settings.SHEDLOCK_PROVIDERS = {"default": {"BACKEND": DATABASE}, "shop": wrong}
    call()
    subject = mail.outbox[0].subject
    assert subject.endswith("shedlock: CRITICAL unreachable: shop and 1 more")


def test_nothing_new_is_no_mail() -> None:
    """The command sends no mail if there are no findings."""
    assert call() == (0, "No findings.\n")
    assert mail.outbox == []


def test_quiet_call_prints_nothing() -> None:
    """
    With ``--verbosity 0`` the command sends its mail but prints nothing.

    Cron would mail the output as well.
    """
    fail("job")
    assert call("--verbosity", "0") == (1, "")
    assert len(mail.outbox) == 1


def mailed_by(backend: str) -> override_settings:
    """Send mail by this backend; Django 6.1 has another setting for it."""
    if django.VERSION >= (6, 1):
        return override_settings(MAILERS={"default": {"BACKEND": backend}})
    return override_settings(EMAIL_BACKEND=backend)


def test_mail_that_cannot_be_sent_is_not_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The verdict stays, stderr says why, and the next call sends it."""
    fail("job")
    with mailed_by(f"{__name__}.Failing"):
        for _ in range(2):
            assert call("--verbosity", "0") == (1, "")
            assert "The mail could not be sent: conn" in capsys.readouterr().err
            assert call("--fail-on", "critical")[0] == 6
    assert mail.outbox == []
    call()
    assert len(mail.outbox) == 1


def test_nobody_to_mail_to(settings: Any) -> None:
    """Without ADMINS Django would say nothing, and nothing would be told."""
    fail("job")
    settings.ADMINS = []
    with pytest.raises(CommandError, match="ADMINS") as caught:
        call()
    assert caught.value.returncode == 2
    assert told() == []


def test_mail_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred findings are enough for one mail; all of them count as told."""
    monkeypatch.setattr(telling, "MAIL_NEWS_LIMIT", 2)
    for number in range(5):
        fail(f"import:{number}")
    call()
    assert mail.outbox[0].body.count("* WARNING") == 2
    assert "* 3 more: see `python manage.py shedlock check`." in mail.outbox[0].body
    assert len(told()) == 5


def test_long_name_is_shortened_in_the_subject() -> None:
    """A long name is shortened in the subject, and whole in the text."""
    name = "import:" + "x" * 200
    fail(name)
    call()
    [message] = mail.outbox
    assert message.subject.split(": ")[-1] == "import:" + "x" * 23 + "…" + "x" * 29
    assert name in message.body


def test_name_cannot_add_headers() -> None:
    """A line break that somebody wrote into a name is mailed as an escape."""
    fail("job")
    LockRecord.objects.update(name="job\nBcc: eve@example.com")
    call()
    assert r"job\nBcc: eve@example.com" in mail.outbox[0].subject
