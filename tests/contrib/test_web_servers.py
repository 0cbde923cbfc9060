"""Jobs that requests start, in the processes of several web servers."""

from __future__ import annotations

import socket
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from urllib.request import urlopen

import pytest

from tests.contrib.queues.workers import Workers
from tests.support.ports import free_port
from tests.support.waiting import STARTUP_PATIENCE, wait_for

WSGI = (
    "gunicorn",
    "tests.contrib.queues.web:wsgi",
    "--timeout=0",
    "--no-control-socket",
)
SERVERS = {
    "gunicorn": (*WSGI, "--bind=127.0.0.1:{}"),
    "gunicorn-threads": (*WSGI, "--threads=4", "--bind=127.0.0.1:{}"),
    "gevent": (*WSGI, "--worker-class=gevent", "--bind=127.0.0.1:{}"),
    "uvicorn": ("uvicorn", "tests.contrib.queues.web:asgi", "--port={}"),
}
HOSTS = 2


def ask(port: int, path: str) -> str:
    """Return the answer."""
    with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=STARTUP_PATIENCE) as answer:
        return str(answer.read().decode())


def answers(port: int) -> bool:
    """Return whether a server is there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("server", "job", "app"),
    [
        ("gunicorn", "digest", ""),
        ("gunicorn", "digest", "cachalot"),
        ("gunicorn-threads", "digest", ""),
        pytest.param(
            *("gevent", "digest", ""),
            marks=pytest.mark.skipif(sys.version_info >= (3, 15), reason="no wheel"),
        ),
        ("uvicorn", "digest", ""),
        ("uvicorn", "adigest", ""),
    ],
)
def test_one_of_two_servers_runs_the_body(
    workers: Workers, server: str, job: str, app: str
) -> None:
    """With each kind of server, one of two runs the body and its heartbeat works."""
    ports = [free_port() for _ in range(HOSTS)]
    for port in ports:
        command = [part.format(port) for part in SERVERS[server]]
        workers.start(*command, SHEDLOCK_TEST_APPS=app)
        wait_for(lambda port=port: answers(port), STARTUP_PATIENCE)
    with ThreadPoolExecutor(HOSTS) as hosts:
        asked = [hosts.submit(ask, port, job) for port in ports]
        first = next(as_completed(asked))
        assert first.result() == "skipped", str(workers.notes)
        workers.wait_for_beat(job)
        workers.notes.write("may end")
        assert sorted(each.result() for each in asked) == ["sent", "skipped"]
    assert workers.notes.count("run") == 1
