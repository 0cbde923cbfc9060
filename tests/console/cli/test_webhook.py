"""``manage.py shedlock check --webhook``: each finding is posted once."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import django
import pytest
from django.core import mail
from django.core.cache import cache
from django.core.management import CommandError, call_command

from django_shedlock import webhooks
from django_shedlock.console.cli import check
from django_shedlock.console.models import Notice
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from tests.support.locks import end_run, take
from tests.support.notices import pass_time
from tests.support.waiting import PATIENCE
from tests.support.web import Web, serving

pytestmark = pytest.mark.django_db

BROKEN = {
    "default": {
        "BACKEND": "django_shedlock.providers.database.DatabaseLockProvider",
        "OPTIONS": {"using": "gone"},
    }
}
LOCMEM = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(webhooks, "POST_RETRY_SECONDS", 0)
    monkeypatch.setattr(webhooks, "POST_TIMEOUT_SECONDS", PATIENCE)
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def admins(settings: Any) -> None:
    ada = "ada@example.com"
    settings.ADMINS = [ada if django.VERSION >= (6,) else ("Ada", ada)]


def call(url: str, *args: str) -> tuple[int, str]:
    """Return the exit status, and what is printed as an error."""
    err = io.StringIO()
    command = ("shedlock", "check", "--webhook", url, "--verbosity", "0", *args)
    try:
        call_command(*command, stderr=err)
    except SystemExit as end:
        return int(end.code or 0), err.getvalue()
    return 0, err.getvalue()


def texts(web: Web) -> list[str]:
    """Return what each post says in Slack's form."""
    bodies = [json.loads(each.body) for each in web.sent]
    assert all(body.keys() == {"text"} for body in bodies)
    return [body["text"] for body in bodies]


def fail(name: str) -> None:
    take(name).release()
    end_run(name, RunOutcome.FAILED, exception_type="ValueError")


def test_finding_is_posted_once_and_its_end_once(web: Web) -> None:
    """Four calls, from whatever hosts, are two posts."""
    fail("job")
    url = f"{web.url}/services/T0/secret"
    assert call(url) == (1, "")
    assert call(url) == (1, "")
    end_run("job")
    assert call(url) == (0, "")
    pass_time(timedelta(hours=2))
    assert call(url) == (0, "")
    assert call(url) == (0, "")
    assert {each[:2] for each in web.sent} == {("POST", "/services/T0/secret")}
    new, gone = texts(web)
    begin = "shedlock: 1 new: job\n\nNew:\n\n* WARNING Lock 'job': Its last run failed"
    assert new.startswith(begin)
    assert gone.startswith("shedlock: 1 gone: job\n\nGone:\n\n* WARNING Lock 'job'")


def test_name_calls_nobody(web: Web) -> None:
    """Slack would take <!here> for everybody in the channel."""
    fail("job")
    LockRecord.objects.update(name="<!here> & co")
    call(web.url)
    [text] = texts(web)
    assert "&lt;!here&gt; &amp; co" in text
    assert "<" not in text


def test_name_calls_nobody_in_other_chats(web: Web) -> None:
    """Discord, Mattermost and Rocket.Chat take a plain @everyone, @all or @here."""
    fail("import:@everyone")
    call(web.url)
    [text] = texts(web)
    assert "@everyone" not in text
    assert "@\u200beveryone" in text


def test_many_findings_fit_into_every_chat(web: Web) -> None:
    """Discord answers 400 to more than 2000 characters, each time."""
    for number in range(30):
        fail(f"import:<{number}>")
    call(web.url)
    [text] = texts(web)
    assert text.startswith("shedlock: 30 new: ")
    assert len(text) <= 2000


def test_post_has_an_end(web: Web) -> None:
    """A chat refuses long texts; all findings count as told."""
    for number in range(30):
        fail(f"import:{number}")
    call(web.url)
    call(web.url)
    assert [len(text) for text in texts(web)] == [2000]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_post_that_is_refused_is_not_lost(web: Web, status: int) -> None:
    """stderr has it, but no address; the verdict stays, and the next call posts it."""
    fail("job")
    url = f"{web.url.replace('//', '//ada:sesame@')}/secret?key=sesame"
    web.statuses += [status] * webhooks.POST_TRIES
    host = web.url.removeprefix("http://")
    exit_status, error = call(url)
    assert exit_status == 1
    assert error.startswith(
        f"The webhook could not be sent: {host}: it answered with the status {status}. "
    )
    assert "sesame" not in error
    assert "secret" not in error
    assert call(url) == (1, "")
    assert len(web.sent) == webhooks.POST_TRIES + 1
    assert [row.claimed_at for row in Notice.objects.all()] == [None]


def test_critical_finding_outweighs_a_webhook_that_fails(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network that is away may have the store, too: the agent must see the 2."""
    with serving() as web:
        url = web.url
    monkeypatch.setattr(webhooks, "POST_RETRY_SECONDS", 0)
    monkeypatch.setattr(webhooks, "POST_TIMEOUT_SECONDS", PATIENCE)
    settings.CACHES = LOCMEM
    settings.SHEDLOCK_PROVIDERS = BROKEN
    status, error = call(f"{url}/secret")
    assert status == 2
    assert "ConnectionError" in error


def test_end_that_is_not_posted_is_no_success(web: Web) -> None:
    """Without findings, nothing else would say so by its exit status."""
    fail("job")
    call(web.url)
    LockRecord.objects.all().delete()
    call(web.url)
    pass_time(timedelta(hours=2))
    web.statuses += [500] * webhooks.POST_TRIES
    assert call(web.url)[0] == 6
    assert call(web.url)[0] == 0
    assert texts(web)[-1].startswith("shedlock: 1 gone: job")


def test_try_that_fails_is_repeated(web: Web) -> None:
    """A chat that is busy for a moment needs no second call."""
    fail("job")
    web.statuses += [503, 429]
    assert call(web.url) == (1, "")
    assert call(web.url) == (1, "")
    assert len(web.sent) == 3


def test_mail_and_webhooks_are_remembered_apart(web: Web) -> None:
    """Each reader is told once, in one call or in several, and whoever fails."""
    fail("job")
    web.statuses += [500] * webhooks.POST_TRIES
    call(f"{web.url}/broken", "--mail-admins")
    assert len(mail.outbox) == 1
    call(f"{web.url}/first", "--mail-admins")
    call(f"{web.url}/second")
    call(f"{web.url}/broken")
    assert len(mail.outbox) == 1
    paths = [each.path for each in web.sent[webhooks.POST_TRIES :]]
    assert paths == ["/first", "/second", "/broken"]
    keys = list(Notice.objects.values_list("provider", flat=True))
    assert len(keys) == 4
    assert "default" in keys
    assert not [key for key in keys if "first" in key]


def test_readers_are_apart_while_the_store_is_away(web: Web, settings: Any) -> None:
    """The cache, too, remembers what each was told."""
    settings.CACHES = LOCMEM
    cache.clear()
    settings.SHEDLOCK_PROVIDERS = BROKEN
    for _ in range(2):
        assert call(web.url, "--mail-admins")[0] == 2
    assert len(mail.outbox) == 1
    assert len(web.sent) == 1


@pytest.mark.parametrize("url", ["secret", "ftp://host/secret", "https:///secret"])
def test_address_that_is_none(url: str) -> None:
    """The refusal does not show it: a part of a secret is a secret."""
    with pytest.raises(CommandError, match="begins with https://") as caught:
        call(url)
    assert "secret" not in str(caught.value)


def test_webhook_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra that brings it is named, and nothing counts as told."""
    fail("job")
    monkeypatch.setattr(check, "find_spec", {}.get)
    with pytest.raises(CommandError, match=r"django-shedlock\[pings\]") as caught:
        call("https://example.com")
    assert caught.value.returncode == 2
    assert not Notice.objects.exists()
