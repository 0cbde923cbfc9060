"""A project with Celery on the chosen store, and real workers and beats of it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from celery.__main__ import main as celery_main
from celery.result import AsyncResult
from django.conf import settings
from django.test import override_settings

from tests.support.leases import beat_often
from tests.support.stores import REDIS_VARIABLE, missing_redis_reason
from tests.support.waiting import NEVER_SECONDS, STARTUP_PATIENCE, wait_for
from tests.support.warm import Command

reason = missing_redis_reason()
MARKS = [
    pytest.mark.postgres_only,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(reason is not None, reason=str(reason)),
]
"""Of the tests with workers, which need Redis."""
LEASE = "10m"
HOLD = "hold"
"""While this file exists, bodies do not end."""
HOLD_RETRIES = "hold_retries"
"""While this file exists, no retry of a task begins."""
PARENT = "parent"
"""Names a lock that the parent of a worker's processes takes before it forks."""
PR_SET_PDEATHSIG = 1
RAN = ("SUCCESS", "ran")
SKIPPED = ("SUCCESS", None)
LONGEST_BODY = NEVER_SECONDS
"""Seconds after which a body ends even if its test died."""


class Project:
    """A project whose workers and beats many hosts start; nothing is left behind."""

    def __init__(
        self,
        folder: Path,
        *,
        visibility_timeout: int = 3600,
        apps: Sequence[str] = (),
        beat: Sequence[str] = ("append",),
    ):
        self.folder = folder
        self.hold = folder / HOLD
        self.hold_retries = folder / HOLD_RETRIES
        self.parent = folder / PARENT
        self.stack = contextlib.ExitStack()
        self._prefix = f"shedlock_tests_{uuid.uuid4().hex}_"
        self._transport = {
            "global_keyprefix": self._prefix,
            "visibility_timeout": visibility_timeout,
        }
        self._settings = self._make_settings(apps)
        self._beaten = beat
        self._redis = redis.Redis.from_url(os.environ[REDIS_VARIABLE])
        self.stack.callback(self._redis.close)
        self.stack.callback(self._delete_keys)
        self._app = self._client()
        self.stack.callback(self._app.close)

    def worker(self, *options: str) -> Command:
        """Start a worker with these options, of one process if they don't say more."""
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        common = ("--concurrency=1", "--loglevel=INFO", *quiet)
        return self._start("worker", *common, *options)

    def outlast_visibility(self) -> None:
        """
        Wait until a worker that starts takes over what others have received.

        It looks for such messages when it starts, and then only every other minute.
        """
        visible = time.monotonic() + self._transport["visibility_timeout"] + 0.1
        wait_for(lambda: time.monotonic() > visible, STARTUP_PATIENCE)

    def beat(self, name: str) -> Command:
        """Start a beat whose messages have its name as argument."""
        schedule = str(self.folder / f"schedule_{name}")
        return self._start("beat", "--schedule", schedule, "--pidfile=", beat=name)

    def send(self, task: str, *args: Any, countdown: float = 0) -> AsyncResult:
        """Send the task as a beat does, by its name."""
        return self._app.send_task(task, args, countdown=countdown)

    def hurry(self) -> None:
        """Let the only message in the queue be for now, and not for later."""
        queue = f"{self._prefix}celery"
        message = json.loads(self._redis.rpop(queue))
        message["headers"]["eta"] = None
        self._redis.rpush(queue, json.dumps(message))

    def bodies(self, name: str) -> list[int]:
        """Return of each body that began the process."""
        file = self.folder / name
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def results(self) -> list[dict[str, Any]]:
        """Return what is known of each task that ended."""
        keys = self._redis.keys(f"{self._prefix}celery-task-meta-*")
        start = len(f"{self._prefix}celery-task-meta-")
        ids = [key.decode()[start:] for key in keys]
        return [self._app.backend.get_task_meta(task_id) for task_id in ids]

    def log(self) -> str:
        """Return what all the processes wrote."""
        return "\n".join(path.read_text() for path in self.folder.glob("*.log"))

    def _start(self, *arguments: str, beat: str = "") -> Command:
        log = self.folder / f"{uuid.uuid4().hex}.log"
        schedule = {
            task: {"task": task, "schedule": 0.5, "args": [beat]}
            for task in self._beaten
        }
        settings = {**self._settings, "CELERY_BEAT_SCHEDULE": schedule}
        prepare = partial(become_host, settings, log)
        app = ("-A", "tests.contrib.celery_jobs")
        host = Command(*app, *arguments, prepare=[prepare], program=celery_main)
        self.stack.callback(end, host)
        return host

    def _make_settings(self, apps: Sequence[str]) -> dict[str, Any]:
        url = os.environ[REDIS_VARIABLE]
        return {
            "INSTALLED_APPS": [*settings.INSTALLED_APPS, *apps],
            "FOLDER": str(self.folder),
            "CELERY_BROKER_URL": url,
            "CELERY_RESULT_BACKEND": url,
            "CELERY_BROKER_TRANSPORT_OPTIONS": self._transport,
            "CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS": self._transport,
            "CELERY_RESULT_EXTENDED": True,
            "CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP": True,
            "CELERY_WORKER_ENABLE_REMOTE_CONTROL": False,
            # One message at a time for each process: the others are for other workers.
            "CELERY_WORKER_PREFETCH_MULTIPLIER": 1,
            "CELERY_TASK_ACKS_LATE": True,
            "CELERY_TASK_REJECT_ON_WORKER_LOST": True,
        }

    def _client(self) -> Celery:
        url = os.environ[REDIS_VARIABLE]
        app = Celery(
            "client", broker=url, backend=url, fixups=set(), set_as_current=False
        )
        app.conf.broker_transport_options = self._transport
        app.conf.result_backend_transport_options = self._transport
        return app

    def _delete_keys(self) -> None:
        for key in self._redis.scan_iter(f"{self._prefix}*"):
            self._redis.delete(key)


def become_host(settings: dict[str, Any], log: Path) -> None:
    """Be a process on a host of its own, which also ends if the tests are killed."""
    os.setsid()
    if sys.platform == "linux":  # its parent ends with the tests
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    override_settings(**settings).enable()
    beat_often()


MakeProject = Callable[..., Project]


def started(project: Project, name: str) -> int:
    """Wait for the body; return its process."""
    return wait_for(lambda: project.bodies(name), STARTUP_PATIENCE)[-1]


def ended(result: AsyncResult) -> tuple[str, Any]:
    """Wait for the task; return its state and result."""
    wait_for(result.ready, STARTUP_PATIENCE)
    return result.state, result.result


def kill(host: Command) -> None:
    """End the worker and its children at once, as the loss of its host does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(host.pid, signal.SIGKILL)


def end(host: Command) -> None:
    """Leave no process behind."""
    kill(host)
    host.end()
