"""One of several daemons: each host starts one, one of them runs, the others wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import connections
from django.db.models import F

from django_shedlock.locks.status import LockState
from django_shedlock.models import LockRecord
from tests.support.bridges import bridge
from tests.support.commands import run
from tests.support.locks import state
from tests.support.paths import ROOT
from tests.support.runs import is_alive
from tests.support.waiting import NEVER_SECONDS, PATIENCE, STARTUP_PATIENCE, wait_for

pytestmark = [pytest.mark.each_store, pytest.mark.django_db(transaction=True)]

HOSTS = 3
LEASE = timedelta(seconds=3)
STEADY_LEASE = timedelta(seconds=9)
"""One that a busy machine does not let end."""
LONG_LEASE = timedelta(seconds=NEVER_SECONDS)
"""One that ends after a test has given up."""
AT_ONCE_SECONDS = NEVER_SECONDS / 4
"""Enough for a busy machine, and much shorter than the long lease."""
SETTINGS = """
from datetime import timedelta

from tests.support.lean_settings import *

DATABASES = {databases!r}
INSTALLED_APPS = [*INSTALLED_APPS, "shop"]
SHEDLOCK_COMMANDS = {{
    name: {{"lock_at_most_for": {lease}, "keep_alive": True, "wait": "3650d"}}
    for name in ("consume", "consume_in_order", "consume_watched")
}}
"""
CONSUME = """
import fcntl
import os
import time
from pathlib import Path

from django.core.management.base import BaseCommand

HERE = Path(__file__).parents[3]

def note(word):
    with Path(HERE, "notes").open("a") as notes:
        notes.write(f"{word} {os.getpid()}\\n")

class Command(BaseCommand):
    def handle(self, *args, **options):
        with Path(HERE, "alive").open("w") as alive:
            try:
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                note("beside")
            note("begins")
            while True:
                time.sleep(0.05)
"""
"""A daemon that does not look at its lock, but notes if another one is alive."""
IN_ORDER = """
import signal
import sys

from shop.management.commands import consume

class Command(consume.Command):
    def handle(self, *args, **options):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        super().handle(*args, **options)
"""
"""A daemon that ends in order at SIGTERM."""
WATCHED = """
import os
import signal

from django_shedlock.signals import lock_lost

from shop.management.commands import consume

def end_daemon(*, lock, **kwargs):
    os.kill(os.getpid(), signal.SIGTERM)

class Command(consume.Command):
    def handle(self, *args, **options):
        lock_lost.connect(end_daemon)
        super().handle(*args, **options)
"""
"""A daemon that ends when its lock is lost, as the documentation shows it."""
UNLOCKED = "from shop.management.commands.consume import Command"
"""A daemon that no setting locks, for ``shedlock run``."""
COMMANDS = {
    "consume": CONSUME,
    "consume_in_order": IN_ORDER,
    "consume_watched": WATCHED,
    "consume_unlocked": UNLOCKED,
}


class Project:
    """A project with daemons, whose hosts leave no process behind."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.stack = ExitStack()
        output = Path(folder, "output").open("wb")  # noqa: SIM115
        self.output = self.stack.enter_context(output)
        commands = folder / "shop" / "management" / "commands"
        commands.mkdir(parents=True)
        for package in (commands, *commands.parents[:2]):
            Path(package, "__init__.py").touch()
        for name, source in COMMANDS.items():
            Path(commands, f"{name}.py").write_text(source)

    def start(
        self, *command: str, lease: timedelta = LEASE, **address: Any
    ) -> subprocess.Popen[bytes]:
        """Start ``manage.py`` on one more host, with this address of its database."""
        keys = ("ENGINE", "NAME", "HOST", "PORT", "USER", "PASSWORD", "OPTIONS")
        of_test = {alias: connections[alias].settings_dict for alias in connections}
        databases = {alias: {k: of[k] for k in keys} for alias, of in of_test.items()}
        databases["default"].update(address)
        name = f"settings_{len(list(self.folder.glob('settings_*')))}"
        lease_text = f"timedelta(seconds={lease.total_seconds()})"
        settings = SETTINGS.format(databases=databases, lease=lease_text)
        Path(self.folder, f"{name}.py").write_text(settings)
        host = subprocess.Popen(
            [sys.executable, "-m", "django", *command],
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": name,
                "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            },
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )
        self.stack.callback(_end, host)
        return host

    def start_wrapped(
        self, lease: timedelta = LEASE, **address: Any
    ) -> subprocess.Popen[bytes]:
        """Start a daemon by ``shedlock run`` on one more host."""
        options = ("--wait", "3650d", "--lock-at-most-for", f"{lease.seconds}s")
        command = ("--", sys.executable, "-m", "django", "consume_unlocked")
        arguments = ("shedlock", "run", "consume", *options, *command)
        return self.start(*arguments, lease=lease, **address)

    def noted(self, word: str) -> list[int]:
        """Return the process ids of the daemons that wrote this, in their order."""
        file = self.folder / "notes"
        lines = file.read_text().splitlines() if file.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith(word)]

    def next_daemon(self, number: int, timeout: float = STARTUP_PATIENCE) -> int:
        """Wait until that many daemons have begun; return the last one's process id."""
        wait_for(lambda: len(self.noted("begins")) >= number, timeout)
        begun = self.noted("begins")
        assert len(begun) == number
        assert self.noted("beside") == []
        return begun[-1]

    def host_of(
        self, daemon: int, hosts: list[subprocess.Popen[bytes]]
    ) -> subprocess.Popen[bytes]:
        """Return the host whose process is the daemon, or its parent."""
        pids = {daemon, psutil.Process(daemon).ppid()}
        [host] = [host for host in hosts if host.pid in pids]
        hosts.remove(host)
        return host

    def log(self) -> str:
        return Path(self.folder, "output").read_text()


def _end(host: subprocess.Popen[bytes]) -> None:
    family: list[psutil.Process] = []
    if host.poll() is None:
        with suppress(psutil.NoSuchProcess):  # it may end by itself meanwhile
            parent = psutil.Process(host.pid)
            family = [parent, *parent.children(recursive=True)]
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, PATIENCE)
    host.wait(PATIENCE)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    with made.stack:
        yield made
        for daemon in filter(is_alive, made.noted("begins")):
            os.kill(daemon, signal.SIGKILL)


Start = Callable[[Project, timedelta], subprocess.Popen[bytes]]


def by_setting(project: Project, lease: timedelta) -> subprocess.Popen[bytes]:
    return project.start("consume", lease=lease)


def in_order(project: Project, lease: timedelta) -> subprocess.Popen[bytes]:
    return project.start("consume_in_order", lease=lease)


def by_run(project: Project, lease: timedelta) -> subprocess.Popen[bytes]:
    return project.start_wrapped(lease)


def outlasted_its_lease() -> bool:
    """Return whether the lock was kept alive for longer than its first lease."""
    twice = F("locked_at") + 2 * STEADY_LEASE
    long_kept = LockRecord.objects.filter(lock_until__gt=twice)
    return long_kept.filter(name="consume").exists()


@pytest.mark.parametrize("start", [by_setting, by_run])
def test_next_host_takes_over_after_sigkill(project: Project, start: Start) -> None:
    """A killed daemon is replaced when its lease ends, and no two run at once."""
    hosts = [start(project, STEADY_LEASE) for _ in range(HOSTS)]
    for number in range(1, HOSTS):
        daemon = project.next_daemon(number)
        wait_for(lambda: project.noted("beside") or outlasted_its_lease())
        project.host_of(daemon, hosts).kill()
    last = project.next_daemon(HOSTS)
    assert is_alive(last)
    assert [host.poll() for host in hosts] == [None]


@pytest.mark.parametrize("start", [in_order, by_run])
def test_orderly_end_hands_over_at_once(project: Project, start: Start) -> None:
    """At SIGTERM the lock is released, and the next host takes it at once."""
    hosts = [start(project, LONG_LEASE) for _ in range(HOSTS)]
    first = project.next_daemon(1)
    host = project.host_of(first, hosts)
    host.send_signal(signal.SIGTERM)
    assert host.wait(PATIENCE) in {0, 128 + signal.SIGTERM}
    project.next_daemon(2, timeout=AT_ONCE_SECONDS)


def test_killed_program_is_replaced_at_once(project: Project) -> None:
    """``shedlock run`` sees its end, and releases the lock."""
    hosts = [project.start_wrapped(LONG_LEASE) for _ in range(2)]
    first = project.next_daemon(1)
    host = project.host_of(first, hosts)
    os.kill(first, signal.SIGKILL)
    assert host.wait(PATIENCE) == 128 + signal.SIGKILL
    project.next_daemon(2, timeout=AT_ONCE_SECONDS)


def test_command_without_a_handler_keeps_its_lock(project: Project) -> None:
    """SIGTERM ends Python at once, so the lease runs out, as after SIGKILL."""
    host = project.start("consume", lease=LONG_LEASE)
    project.next_daemon(1)
    host.send_signal(signal.SIGTERM)
    assert host.wait(PATIENCE) == -signal.SIGTERM
    assert state("consume") is LockState.RUNNING


def test_lost_lock_does_not_end_a_command_that_does_not_look(project: Project) -> None:
    """Python can't interrupt it, so it goes on beside the next one, with a WARNING."""
    host = project.start("consume")
    project.next_daemon(1)
    run("release", "consume", "--force", "--reason", "test")
    wait_for(lambda: "Lock 'consume' lost" in project.log())
    project.start("consume")
    wait_for(lambda: project.noted("beside"))
    assert host.poll() is None


@pytest.mark.parametrize("command", ["consume_watched", "consume_unlocked"])
def test_lost_lock_ends_a_daemon(project: Project, command: str) -> None:
    """A receiver of lock_lost can end it, and ``shedlock run`` ends its command."""
    wrapped = command == "consume_unlocked"
    name = "consume" if wrapped else command
    host = project.start_wrapped() if wrapped else project.start(command)
    daemon = project.next_daemon(1)
    run("release", name, "--force", "--reason", "test")
    assert host.wait(PATIENCE) == (123 if wrapped else -signal.SIGTERM)
    assert not is_alive(daemon)


@pytest.mark.servers_only
@pytest.mark.parametrize("wrapped", [False, True], ids=["receiver", "run"])
def test_split_network_leaves_one_daemon(project: Project, wrapped: bool) -> None:
    """The host that can't reach the store ends its daemon when another one begins."""
    with bridge() as to_server:
        address = to_server.address
        if wrapped:
            project.start_wrapped(**address)
        else:
            project.start("consume_watched", **address)
        daemon = project.next_daemon(1)
        if wrapped:
            project.start_wrapped()
        else:
            project.start("consume_watched")
        to_server.freeze()
        # It ends when its lease does, so both may run for a moment.
        wait_for(lambda: len(project.noted("begins")) == 2)
        wait_for(lambda: not is_alive(daemon))
