"""Looks at a database that hangs: its kernel acknowledges, and nobody answers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from queue import Queue
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client, override_settings
from django.urls import path

from django_shedlock import LockProviderError, scheduler_lock
from django_shedlock.beat import loop as beat_loop
from django_shedlock.beat.catch_up import note_catch_up
from django_shedlock.console.checks import check_tables
from django_shedlock.console.monitoring import notices
from django_shedlock.console.monitoring.evidence import Past
from django_shedlock.console.monitoring.health import HealthView
from django_shedlock.console.monitoring.notices import news_for
from django_shedlock.console.monitoring.search import Search
from django_shedlock.contrib.prometheus.views import MetricsView
from django_shedlock.locks.lock import Lock
from django_shedlock.providers import get_provider
from django_shedlock.providers.database.checks import check_database
from django_shedlock.providers.memory import MemoryLockProvider
from django_shedlock.sql import connections as connecting
from django_shedlock.sql.connections import private_connections
from django_shedlock.testing import MEMORY_PROVIDERS
from tests.support.beats import KEPT, when_it_waits
from tests.support.commands import call
from tests.support.jobs import only_jobs_of
from tests.support.locks import configure
from tests.support.proxies import Proxy, proxy
from tests.support.waiting import PATIENCE, wait_for
from tests.support.warm import Command, killed_after

pytestmark = [
    pytest.mark.servers_only,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
]

DEFAULT_PROVIDER = {
    "default": {"BACKEND": "django_shedlock.providers.database.DatabaseLockProvider"}
}
LIMIT = 15
"""Seconds for a look on a machine that is busy; without a deadline none ends."""

urlpatterns = [
    path("health", HealthView.as_view(public=True, keep_for=0)),
    path("metrics", MetricsView.as_view(public=True)),
]


def be_impatient() -> None:
    """Let this process give up a statement after less than a second."""
    watched = connecting.PrivateConnections
    watched.answer_timeout_seconds = 0.3
    watched.watch_interval_seconds = 0.05
    for options in connecting.CONNECTION_OPTIONS.values():
        options.update(dict.fromkeys(options, 2))  # the least that drivers take


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, outside_tests: None) -> Iterator[Proxy]:
    """Put a network before the database, and let statements wait for it shortly."""
    watched, options = connecting.PrivateConnections, connecting.CONNECTION_OPTIONS
    for name in ("answer_timeout_seconds", "watch_interval_seconds"):
        monkeypatch.setattr(watched, name, getattr(watched, name))
    for vendor, known in options.items():
        monkeypatch.setitem(options, vendor, known.copy())
    be_impatient()
    settings = connection.settings_dict
    target: int | str = int(
        settings["PORT"] or {"mysql": 3306}.get(connection.vendor, 5432)
    )
    if settings["HOST"].startswith("/"):
        target = f"{settings['HOST']}/.s.PGSQL.{target}"
    private_connections.close_idle()
    connection.close()
    with proxy(target) as passing:
        with monkeypatch.context() as through:
            through.setitem(settings, "HOST", "127.0.0.1")
            through.setitem(settings, "PORT", str(passing.port))
            yield passing
        private_connections.close_idle()
        wait_for(lambda: not private_connections._lent)
    connection.close()


def in_time(look: Callable[[], Any]) -> Any:
    """Return what the look returns, or the error that it raises; fail if it hangs."""
    answers = Queue[Any]()

    def run() -> None:
        try:
            answers.put(look())
        except BaseException as error:
            answers.put(error)
        finally:
            connections.close_all()

    Thread(target=run, daemon=True).start()
    return answers.get(timeout=LIMIT)


def connect() -> None:
    """Ask a server that answers, until a busy machine lets it do so in time."""
    wait_for(
        lambda: (
            isinstance(in_time(get_provider().now), datetime)
            and bool(private_connections._idle)
        )
    )


def check_says() -> str:
    status, printed, _ = call("check")
    assert status == 2
    return printed


def health_says() -> str:
    answer = Client().get("/health")
    assert answer.status_code == 503
    return answer.content.decode()


def metrics_say() -> str:
    return Client().get("/metrics").content.decode()


def report_to_administrators() -> str:
    """Return the warning that what was told can't be kept."""
    with patch.object(notices.logger, "warning") as warned:
        with news_for("mail", Search(), ["default"], []):
            pass
    return str(warned.call_args)


def note_catch_up_now() -> None:
    note_catch_up(get_provider())


def count_locks() -> int:
    return get_provider().count()


def withdraw_request() -> None:
    get_provider().withdraw_request("job", datetime.now(UTC))


UNANSWERED = "no answer within 0.3 s, so it hangs"


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (check_says, UNANSWERED),
        (health_says, UNANSWERED),
        (metrics_say, 'shedlock_store_up{provider="default"} 0'),
        pytest.param(partial(check_database, "default"), "W005", id="system check"),
        pytest.param(partial(check_tables, ["default"]), "[]", id="console's check"),
        pytest.param(partial(call, "list"), UNANSWERED, id="list"),
        pytest.param(partial(call, "show", "job"), UNANSWERED, id="show"),
        pytest.param(partial(call, "history"), UNANSWERED, id="history"),
        pytest.param(partial(call, "catch-up", "--dry-run"), UNANSWERED, id="catch-up"),
        (report_to_administrators, UNANSWERED),
        (note_catch_up_now, UNANSWERED),
        (withdraw_request, UNANSWERED),
        (count_locks, UNANSWERED),
    ],
)
def test_look_whose_statement_has_no_answer_ends(
    network: Proxy, look: Callable[[], object], expected: str
) -> None:
    """A statement on an open connection ends if the server has just frozen."""
    connect()
    assert private_connections._idle
    with network.cut():
        assert expected in str(in_time(look))
    connect()


def test_lock_without_a_run_is_not_waited_for(network: Proxy) -> None:
    """
    The release of a lock without a run ends if the server has frozen.

    A beat records its presence with such a lock.
    """
    connect()
    provider = get_provider()
    lock = Lock(provider, configure(), opens_run=False)
    assert in_time(partial(provider.acquire, lock)) is None
    with network.cut():
        assert UNANSWERED in str(in_time(partial(provider.release, lock)))


def test_look_at_a_server_that_greets_nobody_ends(network: Proxy) -> None:
    """
    A look connects only once to a server that greets nobody.

    A second try would take as long as the first one.
    """
    with network.cut():
        error = in_time(get_provider().now)
    assert isinstance(error, LockProviderError), error
    assert network.accepted == 1


def test_look_at_a_pooler_without_a_server_ends(
    network: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look ends if a pooler greets but does not answer Django's first statement."""

    def freeze_and_ask(connection: BaseDatabaseWrapper) -> None:
        cut.enter_context(network.cut())
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")

    wrapper = type(connections["default"])
    monkeypatch.setattr(wrapper, "init_connection_state", freeze_and_ask)
    with ExitStack() as cut:
        assert UNANSWERED in str(in_time(get_provider().now))
    monkeypatch.undo()


@pytest.mark.postgres_only
def test_system_check_of_a_database_that_hangs_ends(network: Proxy) -> None:
    """Of MySQL and MariaDB Django itself asks something first, without a limit."""
    printed = io.StringIO()
    with network.cut():
        in_time(partial(call_command, "check", databases=["default"], stderr=printed))
    assert "shedlock.W005" in printed.getvalue()


def test_other_stores_are_asked_too(network: Proxy) -> None:
    """A store that hangs holds up the others for its own deadline only."""
    providers = {**DEFAULT_PROVIDER, "memory": MEMORY_PROVIDERS["default"]}
    connect()
    with override_settings(SHEDLOCK_PROVIDERS=providers), network.cut():
        told = in_time(metrics_say)
    assert 'shedlock_store_up{provider="default"} 0' in told
    assert 'shedlock_store_up{provider="memory"} 1' in told


def test_history_that_hangs_is_asked_once(
    network: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """If the locks are elsewhere, they are checked without their history."""
    provider = MemoryLockProvider("memory", history_database="default")
    past = Past(provider)
    connect()
    accepted = network.accepted
    with network.cut():
        assert in_time(partial(past.actions, ["job"])) == {}
        assert in_time(partial(past.rows, ["run"])) == {}
    assert caplog.text.count("can't be read") == 1
    assert network.accepted == accepted


def prepare_beat() -> None:
    """Let a beat with one job ask its store all the time."""
    be_impatient()
    beat_loop.BEAT_LOOK_INTERVAL = timedelta(milliseconds=10)
    only_one = only_jobs_of()
    only_one.__enter__()
    job = scheduler_lock("yearly", schedule="0 0 1 1 *")(prepare_beat)
    KEPT.extend([only_one, job])


def test_beat_whose_store_hangs_ends(network: Proxy) -> None:
    """SIGTERM finds it in a statement, whose deadline is the longest that it takes."""
    host = Command("shedlock", "beat", "--no-catch-up", prepare=[prepare_beat])
    with killed_after(PATIENCE, host):
        when_it_waits(host)
        with network.cut():
            wait_for(network.is_holding.is_set)
            host.terminate()
            assert host.wait(LIMIT) == 0
    host.end()
