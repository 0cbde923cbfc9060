"""The app that pings a web address, asked by a real server."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from django_shedlock import LockLost, checks, execute, hold, scheduler_lock, webhooks
from django_shedlock.background import end_threads
from django_shedlock.contrib.pings import apps
from django_shedlock.contrib.pings import checks as pings_checks
from django_shedlock.contrib.pings.checks import check_pings
from django_shedlock.contrib.slugs import slug_of
from django_shedlock.locks.time_limits import TimeLimitExceeded
from django_shedlock.testing import force_release, held_elsewhere, locked_in_memory
from tests.support.forks import run_in_fork
from tests.support.installed import installed
from tests.support.locks import Broken
from tests.support.paths import ROOT
from tests.support.threads import meeting_of, run_threads
from tests.support.waiting import NEVER_SECONDS, PATIENCE, STARTUP_PATIENCE, wait_for
from tests.support.web import Sent, Web, serving

PROCESS = """
import sys
from django.conf import settings
from django_shedlock.testing import MEMORY_PROVIDERS
settings.configure(
    INSTALLED_APPS=["django_shedlock", "django_shedlock.contrib.pings"],
    SHEDLOCK_PROVIDERS=MEMORY_PROVIDERS,
    SHEDLOCK_PINGS={"*": sys.argv[1] + "/{name}"},
    SHEDLOCK_EXIT_TIMEOUT=float(sys.argv[2]),
)
import django
django.setup()
from django_shedlock import hold
with hold("nightly"):
    pass
"""
"""What cron starts: a job, and then the end."""
FORK = """
    import os, signal, time
    time.sleep(0.02)
    if (child := os.fork()) == 0:
        signal.alarm(60)
        import requests
        requests.post
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def pinging(web: Web, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ping the server for all locks, and try again without a pause."""
    monkeypatch.setattr(webhooks, "POST_RETRY_SECONDS", 0)
    monkeypatch.setattr(webhooks, "POST_TIMEOUT_SECONDS", NEVER_SECONDS)
    settings.SHEDLOCK_PINGS = {"*": f"{web.url}/secret/{{name}}"}
    with locked_in_memory(), installed("django_shedlock.contrib.pings"):
        yield
    end_threads(PATIENCE)
    apps._hosts.clear()


def run(name: str) -> None:
    execute(lambda: None, name)


def test_run_pings_its_start_and_its_success(web: Web) -> None:
    """Two pings, in this order, although nobody waits for them."""
    run("nightly")
    assert web.wait_for(2) == [
        Sent("POST", "/secret/nightly/start", ""),
        Sent("POST", "/secret/nightly", ""),
    ]


def test_failed_run_pings_why(web: Web) -> None:
    """The body says what was raised, without the passwords in it."""
    with pytest.raises(Broken), hold("nightly"):
        raise Broken("no answer from https://ada:sesame@db.example.com")
    assert web.paths(2) == ["/secret/nightly/start", "/secret/nightly/fail"]
    assert web.sent[1].body.startswith("Broken: no answer from https://ada:****")
    assert "sesame" not in web.sent[1].body


def test_run_that_takes_too_long_pings_why(web: Web) -> None:
    """A run that exceeds its time limit sends a failure ping that names the limit."""
    with pytest.raises(SystemExit), hold("nightly"):
        raise TimeLimitExceeded(timedelta(minutes=30))
    assert web.paths(2) == ["/secret/nightly/start", "/secret/nightly/fail"]
    assert web.sent[1].body == "TimeLimitExceeded: the time limit of 30m is over"


def test_long_text_of_an_exception_is_cut(web: Web) -> None:
    """A service takes so much of it, and every character of it."""
    with pytest.raises(Broken), hold("nightly"):
        raise Broken("\udcff" + "x" * 5000)
    assert web.wait_for(2)[1].body == "Broken: \\udcff" + "x" * 1986


def test_exit_with_status_0_is_a_success(web: Web) -> None:
    """A body that exits with status 0 sends a success ping."""
    with pytest.raises(SystemExit), hold("nightly"):
        sys.exit(0)
    assert web.paths(2) == ["/secret/nightly/start", "/secret/nightly"]


def test_skip_pings_nothing(web: Web) -> None:
    """The run that won pings, and no other."""
    with held_elsewhere("nightly"):
        run("nightly")
    run("other")
    assert web.paths(2) == ["/secret/other/start", "/secret/other"]


def test_first_pattern_that_matches_counts(web: Web, settings: Any) -> None:
    """
    The first matching pattern decides where a lock's pings are sent.

    A lock without a match, or with an empty address, sends no ping.
    """
    settings.SHEDLOCK_PINGS = {
        "billing.test": "",
        "billing.*": f"{web.url}/first",
        "b*": f"{web.url}/second",
    }
    for name in ("Billing.digest", "billing.test", "nightly", "billing.x", "b"):
        run(name)
    assert web.paths(4) == ["/first/start", "/first", "/second/start", "/second"]


def test_name_is_quoted(web: Web, settings: Any) -> None:
    """A lock's name is quoted in the URL, and the ending comes before the query."""
    settings.SHEDLOCK_PINGS = {"*": f"{web.url}/{{name}}/{{slug}}/?create=1"}
    run("import:a/b é")
    path = "/import%3Aa%2Fb%20%C3%A9/import-a-b"
    assert web.paths(2) == [f"{path}/start?create=1", f"{path}/?create=1"]


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("nightly", "nightly"),
        ("billing.send_digest", "billing-send_digest"),
        ("Import:{Acme}", "import-acme"),
        ("x" * 50, "x" * 50),
        ("x" * 51, "x" * 41 + "-3ecd502a"),
        ("1234", "1234-03ac6742"),
        ("日次", "lock-"),
    ],
)
def test_slug_of_a_name(name: str, slug: str) -> None:
    """Services take no other characters, no long names and no numbers."""
    assert slug_of(name).startswith(slug)
    assert len(slug_of(name)) <= 50
    assert slug_of(f"{'x' * 60}1") != slug_of(f"{'x' * 60}2")


def test_lost_lock_pings_at_once(web: Web) -> None:
    """While the job still runs; how its body ends then is no success."""
    with hold("nightly") as lock:
        force_release("nightly")
        with pytest.raises(LockLost):
            lock.extend()
        assert web.wait_for(2)[1].path == "/secret/nightly/fail"
    run("other")
    assert web.paths(4)[2:] == ["/secret/other/start", "/secret/other"]
    assert web.sent[1].body.startswith("The lock was lost")


def test_async_jobs_and_runs_in_one_another(web: Web) -> None:
    """Each run has its own pings."""

    @scheduler_lock("inner")
    async def inner() -> None:
        raise Broken("on purpose")

    @scheduler_lock("outer")
    async def outer() -> None:
        with pytest.raises(Broken):
            await inner()
        async with asyncio.timeout(60):
            await asyncio.sleep(0)

    asyncio.run(outer())
    assert [path.removeprefix("/secret") for path in web.paths(4)] == [
        *("/outer/start", "/inner/start", "/inner/fail", "/outer")
    ]


def test_runs_in_threads(web: Web) -> None:
    """What each thread's run sends stays in order."""
    names = iter([f"job-{number}" for number in range(8)])
    meeting = meeting_of(8)
    run_threads(8, lambda: execute(meeting.wait, next(names)), meeting)
    paths = web.paths(16)
    for number in range(8):
        own = [path for path in paths if f"/job-{number}" in path]
        assert own == [f"/secret/job-{number}/start", f"/secret/job-{number}"]


def test_server_that_does_not_answer_costs_the_job_nothing(web: Web) -> None:
    """The job has run, and its lock is free, while the first ping still waits."""
    web.answers.clear()
    run("nightly")
    run("nightly")
    assert len(web.wait_for(1)) == 1
    assert web.answered == 0
    web.answers.set()
    assert len(web.paths(4)) == 4


def test_server_that_is_away(
    web: Web, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """That is logged, with nothing of the address but its host."""
    with serving() as other:
        url = other.url
    settings.SHEDLOCK_PINGS = {"*": f"{url.replace('//', '//ada:sesame@')}/secret"}
    with caplog.at_level(logging.WARNING, "django_shedlock"):
        run("nightly")
        wait_for(lambda: len(caplog.records) == 2)
    host = url.removeprefix("http://")
    assert [record.getMessage() for record in caplog.records] == [
        f"Lock 'nightly': its ping failed: {host}: ConnectionError"
    ] * 2
    assert "secret" not in caplog.text


def test_ping_is_tried_again(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    """A failed ping is tried again before the next ping is sent."""
    web.statuses += [503, 429]
    run("nightly")
    start = "/secret/nightly/start"
    assert web.paths(4) == [start, start, start, "/secret/nightly"]
    assert caplog.records == []


def test_redirect_is_not_followed(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    """A redirected ping fails, because the redirect could send a secret elsewhere."""
    web.statuses += [302] * 3
    run("nightly")
    assert web.paths(4)[3] == "/secret/nightly"
    [record] = caplog.records
    assert record.getMessage().endswith("it answered with the status 302")


def test_host_that_is_away_holds_up_no_other(web: Web, settings: Any) -> None:
    """Each host has its own pings that wait."""
    with serving() as other:
        other.answers.clear()
        settings.SHEDLOCK_PINGS = {"a": f"{other.url}/a", "b": f"{web.url}/b"}
        run("a")
        run("b")
        assert web.paths(2) == ["/b/start", "/b"]
        assert other.answered == 0


def test_pings_that_wait_have_a_bound(
    web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker whose service is away for days needs no more memory."""
    monkeypatch.setattr(apps, "WAITING_PINGS_LIMIT", 3)
    web.answers.clear()
    run("nightly")
    run("nightly")
    assert "Lock 'nightly': no ping, since 3 wait." in caplog.text
    web.answers.set()
    end_threads(PATIENCE)
    assert len(web.sent) == 3


def test_process_that_ends_sends_its_pings(web: Web) -> None:
    """A command that cron started waits for them."""
    subprocess.run([sys.executable, "-c", PROCESS, web.url, "60"], check=True, cwd=ROOT)
    assert [each.path for each in web.sent] == ["/nightly/start", "/nightly"]


@pytest.mark.django_db(transaction=True)
def test_job_of_a_beat_sends_its_pings(web: Web) -> None:
    """A job in a forked process of the beat sends its pings."""
    run("before")
    assert len(web.paths(2)) == 2
    run_in_fork(partial(run, "nightly"))
    assert web.paths(2)[2:] == ["/secret/nightly/start", "/secret/nightly"]


def test_process_waits_for_no_server_for_ever(web: Web) -> None:
    """A process ends although the ping server never answers."""
    web.answers.clear()
    subprocess.run([sys.executable, "-c", PROCESS, web.url, "0"], check=True, cwd=ROOT)
    assert web.answered == 0


@pytest.mark.parametrize(
    "pings",
    [
        {"nightly": "ftp://example.com/secret"},
        {"nightly": "https:///secret"},
        {"nightly": "https://example.com:secret/"},
        {"nightly": "https://example.com/secret/{tenant}"},
        {"nightly": "https://example.com/secret/{"},
        {"nightly": "https://example.com/secret/{}"},
        {"nightly": b"https://example.com/secret"},
        {"nightly": None},
    ],
)
def test_e001_address_of_pings(settings: Any, pings: Any) -> None:
    """The text names the pattern, and shows no address, which may be secret."""
    settings.SHEDLOCK_PINGS = {"sound": "https://example.com/{slug}", **pings}
    [message] = check_pings()
    assert (message.id, message.level) == ("shedlock.E001", 40)
    assert message.msg.startswith("SHEDLOCK_PINGS['nightly']: give a pattern")
    assert "secret" not in message.msg


def test_e001_of_pings_stops_commands(settings: Any) -> None:
    """The check of the addresses runs with Django's own."""
    settings.SHEDLOCK_PINGS = {"nightly": "ftp://example.com/secret"}
    with pytest.raises(SystemCheckError, match=r"SHEDLOCK_PINGS\['nightly'\]: give"):
        call_command("check")


def test_e001_pings_of_another_type(settings: Any) -> None:
    """A setting that is no dict is reported once."""
    settings.SHEDLOCK_PINGS = ["nightly"]
    assert check_pings() == []
    [message] = checks.check_settings()
    assert message.msg.startswith("SHEDLOCK_PINGS = ['nightly']: it must be dict")


def test_e001_pings_without_their_app_or_library(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would be sent, and nobody would know."""
    assert check_pings() == checks.check_settings() == []
    monkeypatch.setattr(pings_checks, "find_spec", {}.get)
    [message] = check_pings()
    assert message.msg.endswith("Install django-shedlock[pings].")
    settings.INSTALLED_APPS = settings.INSTALLED_APPS[:-1]
    [message] = checks.check_settings()
    assert "put 'django_shedlock.contrib.pings' into INSTALLED_APPS" in message.msg
    settings.SHEDLOCK_PINGS = {}
    assert check_pings() == checks.check_settings() == []


def test_job_that_forks_at_once() -> None:
    """A thread that still imports requests would leave half of it to the child."""
    code = PROCESS.replace("    pass", FORK)
    command = [sys.executable, "-c", code, "http://127.0.0.1:9", "0"]
    assert subprocess.run(command, timeout=STARTUP_PATIENCE, cwd=ROOT).returncode == 0
