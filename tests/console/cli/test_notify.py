"""``manage.py shedlock check --notify``: news are posted to chats, and none is lost."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import django
import pytest
from apprise.plugins.custom_json import NotifyJSON
from django.core import mail
from django.core.cache import cache
from django.core.management import CommandError, call_command

from django_shedlock.console.cli import check, telling
from django_shedlock.console.models import Notice
from django_shedlock.locks.pauses import FOREVER, Pause
from django_shedlock.locks.status import RunOutcome
from django_shedlock.models import LockRecord
from django_shedlock.sql.fields import DatabaseNow
from tests.support.locks import end_run, pause, take
from tests.support.notices import pass_time
from tests.support.web import Web, serving

pytestmark = pytest.mark.django_db

BROKEN = {
    "default": {
        "BACKEND": "django_shedlock.providers.database.DatabaseLockProvider",
        "OPTIONS": {"using": "gone"},
    }
}
LOCMEM = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
HOURS = timedelta(hours=2)


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def admins(settings: Any) -> None:
    ada = "ada@example.com"
    settings.ADMINS = [ada if django.VERSION >= (6,) else ("Ada", ada)]


def address(web: Web, path: str = "") -> str:
    """Return the address by which Apprise posts JSON to this server."""
    return f"{web.url.replace('http:', 'json:')}/{path}"


def call(url: str, *args: str) -> tuple[int, str]:
    """Return the exit status, and what is printed as an error."""
    err = io.StringIO()
    command = ("shedlock", "check", "--notify", url, "--verbosity", "0", *args)
    try:
        call_command(*command, stderr=err)
    except SystemExit as end:
        return int(end.code or 0), err.getvalue()
    return 0, err.getvalue()


def posts(web: Web) -> list[dict[str, str]]:
    """Return what was posted: each has a title, a message and a type."""
    return [json.loads(each.body) for each in web.sent]


def lines(web: Web) -> list[str]:
    return [line for post in posts(web) for line in post["message"].splitlines()]


def fail(name: str) -> None:
    take(name).release()
    end_run(name, RunOutcome.FAILED, exception_type="ValueError")


def test_finding_is_posted_once_and_its_recovery_once(web: Web) -> None:
    """The recovery says what is true now, and has no command."""
    fail("job")
    url = address(web, "services/T0/secret")
    assert call(url) == (1, "")
    assert call(url) == (1, "")
    end_run("job")
    assert call(url) == (0, "")
    pass_time(HOURS)
    assert call(url) == (0, "")
    assert call(url) == (0, "")
    assert {each[:2] for each in web.sent} == {("POST", "/services/T0/secret")}
    new, recovered = posts(web)
    assert new["title"] == "shedlock: WARNING failed: job"
    assert new["type"] == "warning"
    assert new["message"].startswith("WARNING Lock 'job': Its last run failed at ")
    assert recovered["title"] == "shedlock: RECOVERED failed: job"
    assert recovered["type"] == "success"
    begin = "RECOVERED Lock 'job': the finding “failed” is over. Its last run succee"
    assert recovered["message"].startswith(begin)
    assert recovered["message"].strip().endswith("Now nobody holds it.")
    assert "manage.py" not in recovered["message"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("<!here> & co", "(!here) & co"), ("import:@everyone", "import:@\u200beveryone")],
)
def test_name_calls_nobody(web: Web, name: str, shown: str) -> None:
    """Slack would take <!here> for everybody, and other chats @everyone or @all."""
    fail("job")
    LockRecord.objects.update(name=name)
    call(address(web))
    [post] = posts(web)
    for text in (post["title"], post["message"]):
        assert shown in text
        assert name not in text


@pytest.mark.parametrize("reason", ["it moves", "db1 -> db2"])
def test_command_is_posted_as_it_is_or_not_at_all(web: Web, reason: str) -> None:
    """With another character in it, it would be refused, and nobody could see why."""
    paused = pause("job", lasting=FOREVER)
    paused.locked_by = Pause("alice", reason).identity()
    LockRecord.objects.update(locked_by=paused.locked_by)
    LockRecord.objects.update(locked_at=DatabaseNow() - timedelta(days=2))
    call(address(web))
    [line] = [each for each in lines(web) if "Paused for" in each]
    command = f"resume job --held-by {shlex.quote(paused.locked_by)}"
    assert (command in line) == (reason == "it moves")
    assert ("shedlock resume" in line) == (reason == "it moves")


def test_findings_that_fill_several_posts_are_all_told(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a service takes 2,000 characters, as Discord does, title and all."""
    monkeypatch.setattr(NotifyJSON, "body_maxlen", 2000)
    names = [f"import.{number}." + "x" * 200 for number in range(20)]
    for name in names:
        fail(name)
    assert call(address(web)) == (1, "")
    assert len(posts(web)) > 1
    assert all(len(post["title"]) + len(post["message"]) <= 2000 for post in posts(web))
    assert [
        name for name in names if sum(name in line for line in lines(web)) != 1
    ] == []
    assert {post["title"][:35] for post in posts(web)} == {
        "shedlock: WARNING failed: import.0."
    }


def test_post_that_is_refused_repeats_no_other(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first post told is not told again, the rest by the next call."""
    monkeypatch.setattr(NotifyJSON, "body_maxlen", 1000)
    names = [f"import.{number}." + "x" * 200 for number in range(6)]
    for name in names:
        fail(name)
    web.statuses += [200, 500]
    assert "could not be sent" in call(address(web))[1]
    refused = web.sent.pop()
    assert call(address(web)) == (1, "")
    assert refused.body
    told = [sum(name in line for line in lines(web)) for name in names]
    assert told == [1] * len(names)


def test_critical_finding_of_another_provider_comes_first(
    web: Web, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many warnings there are: what is cut off is less urgent."""
    monkeypatch.setattr(telling, "POSTED_LINE_LIMIT", 3)
    monkeypatch.setattr(telling, "MAIL_NEWS_LIMIT", 3)
    default = {"BACKEND": BROKEN["default"]["BACKEND"]}
    settings.SHEDLOCK_PROVIDERS = {"default": default, "second": BROKEN["default"]}
    for number in range(15):
        fail(f"import:{number:02}")
    assert call(address(web), "--mail-admins")[0] == 2
    assert lines(web)[0].startswith("CRITICAL Provider 'second': ")
    assert "CRITICAL Provider 'second': " in mail.outbox[0].body


def test_more_findings_than_anybody_reads_are_counted(
    web: Web, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line says how many others there are, and where."""
    monkeypatch.setattr(telling, "POSTED_LINE_LIMIT", 3)
    settings.SHEDLOCK_SITE_URL = "https://ops.example.org"
    for number in range(15):
        fail(f"import:{number:02}")
    call(address(web))
    *first, more, last = lines(web)
    assert len(first) == 3
    assert more == "and 12 more"
    assert last == "See https://ops.example.org/admin/django_shedlock/lockrecord/"
    settings.SHEDLOCK_SITE_URL = ""
    call(address(web, "other"))
    assert lines(web)[-1] == "See `python manage.py shedlock check`"


def test_long_headline_is_cut_before_its_advice(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next step stays in sight, whatever the lock is named."""
    monkeypatch.setattr(telling, "HEADLINE_MAX_LENGTH", 20)
    fail("job")
    call(address(web))
    [line, _] = lines(web)
    headline, _, advice = line.partition("…")
    assert headline == "WARNING Lock 'job': Its las"
    assert "manage.py shedlock" in advice


@pytest.mark.parametrize("status", [404, 500])
def test_post_that_is_refused_is_not_lost(
    web: Web, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """stderr says so without the address, and the next call posts it."""
    fail("job")
    url = address(web, "secret?key=sesame").replace("//", "//ada:sesame@")
    web.statuses += [status]
    exit_status, error = call(url)
    assert exit_status == 1
    assert error.startswith(
        "The notification could not be sent: the service could not be reached, or "
        "refused it. The next call of"
    )
    assert "sesame" not in error + caplog.text
    assert "secret" not in error + caplog.text
    assert call(url) == (1, "")
    assert len(web.sent) == 2
    assert [row.claimed_at for row in Notice.objects.all()] == [None]


@pytest.mark.parametrize("lock", ["J. Doe's job", "a.b"])
def test_full_stop_in_a_name_ends_no_line(web: Web, lock: str) -> None:
    """A line has the whole first sentence, and the next step."""
    take("job")
    LockRecord.objects.update(name=lock, asked_at=DatabaseNow() - HOURS / 4)
    LockRecord.objects.update(asked_by="J. Doe", asked_why="see no. 5")
    call(address(web))
    [line, _] = lines(web)
    assert line.startswith(f"WARNING Lock {lock!r}: J. Doe asked for a run at ")
    assert "because: see no. 5." in line
    assert " Next: python manage.py shedlock show " in line


def test_address_of_several_services_is_refused(web: Web) -> None:
    """
    An address of several services is refused.

    One service could fail, and the other one would be notified again and again.
    """
    with pytest.raises(CommandError, match="or it has several"):
        call(f"{address(web, 'a')},{address(web, 'b')}")


def test_store_that_is_down_is_posted_with_a_site(
    web: Web, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is asked for a link."""
    settings.CACHES = LOCMEM
    cache.clear()
    settings.SHEDLOCK_SITE_URL = "https://ops.example.org"
    settings.SHEDLOCK_PROVIDERS = {"default": {"BACKEND": "no.such.provider"}}
    assert call(address(web)) == (2, "")
    assert lines(web)[-1] == "See `python manage.py shedlock check`"


def test_critical_finding_outweighs_a_chat_that_fails(settings: Any) -> None:
    """The network that is away may have the store, too: the agent must see the 2."""
    with serving() as web:
        url = address(web, "secret")
    settings.CACHES = LOCMEM
    settings.SHEDLOCK_PROVIDERS = BROKEN
    status, error = call(url)
    assert status == 2
    assert "could not be reached" in error


def test_recovery_that_is_not_posted_is_no_success(web: Web) -> None:
    """Without findings, nothing else would say so by its exit status."""
    fail("job")
    url = address(web)
    call(url)
    LockRecord.objects.all().delete()
    call(url)
    pass_time(HOURS)
    web.statuses += [500]
    assert call(url)[0] == 6
    assert call(url)[0] == 0
    assert posts(web)[-1]["message"].strip() == (
        "RECOVERED Lock 'job': the finding “failed” is over. Now it has no record."
    )


def test_readers_are_apart(web: Web) -> None:
    """Each is told once, in one call or in several, and whoever fails."""
    fail("job")
    web.statuses += [500]
    call(address(web, "broken"), "--mail-admins")
    assert len(mail.outbox) == 1
    call(address(web, "first"), "--mail-admins", "--notify", address(web, "second"))
    call(address(web, "broken"))
    assert len(mail.outbox) == 1
    assert [each.path for each in web.sent[1:]] == ["/first", "/second", "/broken"]
    readers = set(Notice.objects.values_list("reader", flat=True))
    assert len(readers) == 4
    assert "mail" in readers
    assert not [each for each in readers if "first" in each]


def test_readers_are_apart_while_the_store_is_away(web: Web, settings: Any) -> None:
    """The cache, too, remembers what each was told; all hosts have one subject."""
    settings.CACHES = LOCMEM
    cache.clear()
    settings.SHEDLOCK_PROVIDERS = BROKEN
    for _ in range(2):
        assert call(address(web), "--mail-admins")[0] == 2
    assert len(mail.outbox) == 1
    [post] = posts(web)
    assert post["title"] == "shedlock: CRITICAL unreachable: default"


@pytest.mark.parametrize("url", ["secret", "https://example.com/secret", "what://a/b"])
def test_address_that_apprise_does_not_know(url: str) -> None:
    """The refusal does not show it: a part of a secret is a secret."""
    with pytest.raises(CommandError, match="Apprise knows no service") as caught:
        call(url)
    assert caught.value.returncode == 2
    assert "secret" not in str(caught.value)


def test_chat_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra that brings it is named, and nothing counts as told."""
    fail("job")
    monkeypatch.setattr(check, "find_spec", {}.get)
    with pytest.raises(CommandError, match=r"django-shedlock\[apprise\]") as caught:
        call("json://example.com")
    assert caught.value.returncode == 2
    assert not Notice.objects.exists()
