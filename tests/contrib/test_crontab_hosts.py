"""``crontab run`` as cron starts it: processes of several hosts on one database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from django_shedlock.models import LockRecord, LockRun
from django_shedlock.sql.fields import DatabaseNow
from tests.support.crontab_hosts import RARELY, Project, ended
from tests.support.waiting import STARTUP_PATIENCE, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    with made.stack:
        yield made


def test_one_of_two_hosts_runs_the_job(project: Project) -> None:
    """Of two hosts at one tick one runs, and the other one is silent and content."""
    hosts = [project.start("work.append", ["once"], time=RARELY) for _ in range(2)]
    assert [ended(host) for host in hosts] == [(0, "", "")] * 2
    assert project.runs == 1
    [run] = LockRun.objects.all()
    assert run.name == 'cron:work.append("once")'


def test_host_that_starts_later_does_not_run_the_tick_again(project: Project) -> None:
    """A tick runs once on two hosts, even if no lock is held between their starts."""
    for _host in range(2):
        started = project.start("work.append", ["once"], time=RARELY)
        assert ended(started) == (0, "", "")
    assert project.runs == 1
    assert not LockRecord.objects.held().exists()


def test_dead_host_is_replaced_after_its_lease(project: Project) -> None:
    """While a killed host's lease lasts nobody runs the job; then the next tick."""
    project.hold.touch()
    killed = project.start("work.append")
    wait_for(lambda: project.runs, STARTUP_PATIENCE)
    killed.kill()
    assert ended(killed)[0] == -9
    project.hold.unlink()
    assert ended(project.start("work.append")) == (0, "", "")
    assert project.runs == 1
    LockRecord.objects.update(lock_until=DatabaseNow(), tick=None)  # the next tick
    assert ended(project.start("work.append")) == (0, "", "")
    assert project.runs == 2


def test_failed_job_exits_with_1(project: Project) -> None:
    """The exit status tells cron, and the traceback is in its mail."""
    failed = project.run("work.fail")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "('* * * * *', 'work.fail') of CRONJOBS failed" in failed.stderr
    assert "ZeroDivisionError: by nobody" in failed.stderr
    assert "no.such.job" not in failed.stderr
